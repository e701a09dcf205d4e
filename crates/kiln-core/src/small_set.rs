//! A set of a few things, in order, with one allocation for all of them.
//!
//! A `BTreeSet` makes room for eleven: with ten thousand hosts that have a name and an address each, that was the largest
//! part of what is remembered of them.

use std::borrow::Borrow;

/// The set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmallSet<T>(Vec<T>);

impl<T> Default for SmallSet<T> {
    fn default() -> SmallSet<T> {
        SmallSet(Vec::new())
    }
}

impl<T: Ord> SmallSet<T> {
    /// Adds something. Says whether it is new.
    pub fn insert(&mut self, item: T) -> bool {
        let Err(place) = self.0.binary_search(&item) else { return false };
        self.0.reserve_exact(1);
        self.0.insert(place, item);
        true
    }

    /// Whether it is in the set.
    pub fn contains<Q: Ord + ?Sized>(&self, item: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.0.binary_search_by(|known| known.borrow().cmp(item)).is_ok()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Everything in it, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }
}

impl<T: Ord> FromIterator<T> for SmallSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> SmallSet<T> {
        let mut items: Vec<T> = items.into_iter().collect();
        items.sort();
        items.dedup();
        SmallSet(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_everything_once_and_in_order() {
        let mut set: SmallSet<&str> = ["c", "a", "c"].into_iter().collect();
        assert!(set.insert("b") && !set.insert("a"));
        assert_eq!(set.iter().copied().collect::<String>(), "abc");
        assert!(set.contains("b") && !set.contains("d") && !set.is_empty() && SmallSet::<u8>::default().is_empty());
    }
}
