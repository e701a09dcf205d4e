//! A bounded memory of what was read last, shared by readers of one image.
//!
//! Two generations instead of a linked list: a full young generation becomes the old one, whose entries are forgotten
//! unless they are asked for again. Whatever was used among the last `capacity` entries is found.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug)]
pub(super) struct Cache<T> {
    capacity: usize,
    generations: Mutex<Generations<T>>,
}

#[derive(Debug)]
struct Generations<T> {
    young: HashMap<u64, Arc<T>>,
    old: HashMap<u64, Arc<T>>,
}

impl<T> Cache<T> {
    /// Keeps at least `capacity` entries, and at most twice as many.
    pub fn new(capacity: usize) -> Self {
        let generations = Generations { young: HashMap::new(), old: HashMap::new() };
        Cache { capacity: capacity.max(1), generations: Mutex::new(generations) }
    }

    /// What is known under this key, or what `read` gives. The lock is not held meanwhile.
    pub fn get(&self, key: u64, read: impl FnOnce() -> io::Result<T>) -> io::Result<Arc<T>> {
        if let Some(known) = self.find(key) {
            return Ok(known);
        }
        let value = Arc::new(read()?);
        self.insert(key, value.clone());
        Ok(value)
    }

    fn find(&self, key: u64) -> Option<Arc<T>> {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = generations.young.get(&key) {
            return Some(value.clone());
        }
        let value = generations.old.remove(&key)?;
        drop(generations);
        self.insert(key, value.clone());
        Some(value)
    }

    fn insert(&self, key: u64, value: Arc<T>) {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        if generations.young.len() >= self.capacity {
            generations.old = std::mem::take(&mut generations.young);
        }
        generations.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_lately_is_not_read_again_and_the_rest_is_forgotten() {
        let cache = Cache::new(4);
        let mut reads = Vec::new();
        for key in [1, 2, 3, 4, 1, 5, 1, 6, 7, 8, 1, 2] {
            let value = cache.get(key, || {
                reads.push(key);
                Ok(key * 10)
            });
            assert_eq!(*value.unwrap(), key * 10);
            let generations = cache.generations.lock().unwrap();
            assert!(generations.young.len() <= 4 && generations.old.len() <= 4);
        }
        assert_eq!(reads, [1, 2, 3, 4, 5, 6, 7, 8, 2]);
    }
}
