//! How findings speak: lists that stay short, sizes, suggestions.

use std::fmt::Display;

/// How many names a message lists before it only counts.
pub(super) const SHOWN: usize = 3;

/// `a`, `b`, `c` and 4 more: at most [`SHOWN`] names in back quotes.
pub(super) fn listed<T: Display>(names: impl IntoIterator<Item = T>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    let hidden = names.len().saturating_sub(SHOWN);
    let shown = &names[..names.len() - hidden];
    match (shown, hidden) {
        (shown, 1..) => format!("{} and {hidden} more", shown.join(", ")),
        ([first @ .., last], 0) if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        (shown, 0) => shown.join(", "),
    }
}

/// `1 host`, `2 hosts`.
pub(super) fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// The candidate that `wanted` was probably meant to be: a typing mistake away.
pub(super) fn nearest<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = if wanted.len() > 5 { 2 } else { 1 };
    candidates
        .into_iter()
        .map(|candidate| (strsim::osa_distance(wanted, candidate), candidate))
        .filter(|(distance, candidate)| (1..=limit).contains(distance) && candidate.len() > *distance)
        .min()
        .map(|(_, candidate)| candidate)
}

/// `namespace/name`, or the name alone for something without namespace.
pub(super) fn full_name(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::{counted, listed, nearest};

    #[test]
    fn lists_name_three_and_count_the_rest() {
        for (names, expected) in [
            (&[][..], ""),
            (&["a"][..], "`a`"),
            (&["a", "b"][..], "`a` and `b`"),
            (&["a", "b", "c"][..], "`a`, `b` and `c`"),
            (&["a", "b", "c", "d", "e"][..], "`a`, `b`, `c` and 2 more"),
        ] {
            assert_eq!(listed(names), expected);
        }
        assert_eq!(counted(1, "host"), "1 host");
        assert_eq!(counted(3, "host"), "3 hosts");
    }

    #[test]
    fn a_suggestion_is_one_typing_mistake_away_and_never_the_same() {
        assert_eq!(nearest("clutser-a", ["cluster-a", "other"]), Some("cluster-a"));
        assert_eq!(nearest("ztp", ["ztp"]), None);
        assert_eq!(nearest("a", ["b"]), None);
        assert_eq!(nearest("img4.9", ["img4.10.11"]), None);
    }
}
