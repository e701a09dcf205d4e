//! The `Range` header (RFC 9110, section 14): which bytes of a representation are asked for.
//!
//! [`select_ranges`] is total. A header that does not follow the grammar is ignored, as the standard wants; one that
//! follows it and asks for nothing that exists is unsatisfiable. The number of parts an answer may have is bounded:
//! overlapping and neighbouring ranges are joined, and whoever still asks for more than [`MOST_PARTS`] gets the whole.

use std::ops::Range;

/// More parts than this are not worth the work: a client that needs them fetches the whole.
pub const MOST_PARTS: usize = 32;

/// A gap smaller than what a part's own header costs is sent along.
const SMALL_GAP: u64 = 96;

/// What a `Range` header asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// Everything: there is no usable range.
    Whole,
    /// These bytes, in this order; at least one range, none empty, none beyond the end.
    Parts(Vec<Range<u64>>),
    /// Nothing that exists.
    Unsatisfiable,
}

/// Decides which bytes of `size` a header asks for.
pub fn select_ranges(header: &str, size: u64) -> Selection {
    let Some(specs) = parse_specs(header) else { return Selection::Whole };
    let mut ranges: Vec<Range<u64>> = specs.into_iter().filter_map(|spec| spec.within(size)).collect();
    if ranges.is_empty() {
        return Selection::Unsatisfiable;
    }
    join_neighbours(&mut ranges);
    if ranges.len() > MOST_PARTS { Selection::Whole } else { Selection::Parts(ranges) }
}

/// One element of the header.
#[derive(Debug, Clone, Copy)]
enum Spec {
    From(u64),
    Between(u64, u64),
    Last(u64),
}

impl Spec {
    fn within(self, size: u64) -> Option<Range<u64>> {
        let range = match self {
            Spec::From(first) => first..size,
            Spec::Between(first, last) => first..last.saturating_add(1).min(size),
            Spec::Last(count) => size.saturating_sub(count)..size,
        };
        (range.start < range.end).then_some(range)
    }
}

/// `None` when the header is not a list of byte ranges.
fn parse_specs(header: &str) -> Option<Vec<Spec>> {
    let (unit, list) = header.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    // Empty elements are allowed in every list of HTTP.
    let elements =
        list.split(',').map(|element| element.trim_matches([' ', '\t'])).filter(|element| !element.is_empty());
    let specs: Vec<Spec> = elements.map(parse_spec).collect::<Option<_>>()?;
    (!specs.is_empty()).then_some(specs)
}

fn parse_spec(element: &str) -> Option<Spec> {
    let (first, last) = element.split_once('-')?;
    Some(match (first, last) {
        ("", last) => Spec::Last(parse_position(last)?),
        (first, "") => Spec::From(parse_position(first)?),
        (first, last) => {
            let (first, last) = (parse_position(first)?, parse_position(last)?);
            if last < first {
                return None;
            }
            Spec::Between(first, last)
        }
    })
}

/// Digits only. A number too large for any file is the largest one.
fn parse_position(digits: &str) -> Option<u64> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse().unwrap_or(u64::MAX))
}

/// Joins ranges that overlap or nearly touch. Only then is the order of the request given up.
fn join_neighbours(ranges: &mut Vec<Range<u64>>) {
    let mut sorted = ranges.clone();
    sorted.sort_by_key(|range| (range.start, range.end));
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match joined.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(SMALL_GAP) => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    if joined.len() < ranges.len() {
        *ranges = joined;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(ranges: &[(u64, u64)]) -> Selection {
        Selection::Parts(ranges.iter().map(|&(start, end)| start..end).collect())
    }

    #[test]
    fn ranges_mean_what_the_standard_says() {
        use Selection::{Unsatisfiable, Whole};
        let table = [
            ("bytes=0-0", parts(&[(0, 1)])),
            ("bytes=0-499", parts(&[(0, 500)])),
            ("bytes=500-", parts(&[(500, 1000)])),
            ("bytes=-500", parts(&[(500, 1000)])),
            ("bytes=-5000", parts(&[(0, 1000)])),
            ("bytes=999-2000", parts(&[(999, 1000)])),
            ("bytes=999-99999999999999999999999", parts(&[(999, 1000)])),
            ("Bytes=0-1", parts(&[(0, 2)])),
            ("bytes= 0-1 ,\t400-401", parts(&[(0, 2), (400, 402)])),
            ("bytes=,,0-1,,", parts(&[(0, 2)])),
            ("bytes=800-899,100-199", parts(&[(800, 900), (100, 200)])),
            ("bytes=800-899,0-499,400-450", parts(&[(0, 500), (800, 900)])),
            ("bytes=0-99,100-199", parts(&[(0, 200)])),
            ("bytes=0-99,150-199", parts(&[(0, 200)])),
            ("bytes=0-1,5000-6000", parts(&[(0, 2)])),
            ("bytes=1000-", Unsatisfiable),
            ("bytes=1000-1001,2000-", Unsatisfiable),
            ("bytes=-0", Unsatisfiable),
            ("bytes=99999999999999999999999-", Unsatisfiable),
            ("bytes=5-4", Whole),
            ("bytes=0-1,5-4", Whole),
            ("bytes=", Whole),
            ("bytes=,", Whole),
            ("bytes=-", Whole),
            ("bytes=a-b", Whole),
            ("bytes=+1-2", Whole),
            ("bytes=1 - 2", Whole),
            ("bytes=0x0-1", Whole),
            ("bytes 0-1", Whole),
            ("lines=0-1", Whole),
            ("", Whole),
        ];
        for (header, expected) in table {
            assert_eq!(select_ranges(header, 1000), expected, "{header}");
        }
        assert_eq!(select_ranges("bytes=0-", 0), Unsatisfiable);
        assert_eq!(select_ranges("bytes=-1", 0), Unsatisfiable);
    }

    #[test]
    fn too_many_parts_become_the_whole() {
        let header = |count: u64| {
            let list: Vec<String> = (0..count).map(|index| format!("{0}-{0}", index * 1000)).collect();
            format!("bytes={}", list.join(","))
        };
        assert!(matches!(select_ranges(&header(32), 1 << 20), Selection::Parts(parts) if parts.len() == 32));
        assert_eq!(select_ranges(&header(33), 1 << 20), Selection::Whole);
    }
}
