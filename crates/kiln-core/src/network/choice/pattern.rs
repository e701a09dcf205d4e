//! `[match] interface-name`: shell patterns, some of them forbidding.
//!
//! `eth*` may match, `!eth0` must not, `&eth*` must, `|eth*` may. A plain pattern that forbids is mandatory, one that allows is
//! optional; something is matched when no mandatory pattern fails and, if there are optional ones, one of them holds.

/// Whether a name passes a list of patterns.
pub(super) fn matches(patterns: &[String], name: &str) -> bool {
    let mut optional = None;
    for pattern in patterns {
        let (mandatory, rest) = match pattern.as_bytes().first() {
            Some(b'&') => (Some(true), &pattern[1..]),
            Some(b'|') => (Some(false), &pattern[1..]),
            _ => (None, pattern.as_str()),
        };
        let (forbids, glob) = match rest.strip_prefix('!') {
            Some(glob) => (true, glob),
            None => (false, rest),
        };
        // A backslash makes the next character plain, so that a pattern may begin with `!`.
        let glob = glob.strip_prefix('\\').unwrap_or(glob);
        let holds = glob_matches(glob.as_bytes(), name.as_bytes()) != forbids;
        match mandatory.unwrap_or(forbids) {
            true if !holds => return false,
            true => {}
            false => optional = Some(optional.unwrap_or(false) || holds),
        }
    }
    optional.unwrap_or(true)
}

/// `*` and `?` as in a shell. Interface names have at most 15 bytes, so that going back is cheap.
fn glob_matches(glob: &[u8], name: &[u8]) -> bool {
    let (mut at, mut in_name, mut retry) = (0, 0, None);
    while in_name < name.len() {
        match glob.get(at) {
            Some(b'*') => {
                retry = Some((at, in_name));
                at += 1;
                continue;
            }
            Some(wanted) if *wanted == b'?' || *wanted == name[in_name] => {
                at += 1;
                in_name += 1;
                continue;
            }
            _ => {}
        }
        // Let the last `*` swallow one byte more.
        let Some((star, swallowed)) = retry else { return false };
        retry = Some((star, swallowed + 1));
        at = star + 1;
        in_name = swallowed + 1;
    }
    glob[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_allow_and_forbid() {
        let cases: [(&[&str], &str, bool); 10] = [
            (&["eth*"], "eth0", true),
            (&["eth*"], "eno1", false),
            (&["eth*", "!eth0"], "eth0", false),
            (&["eth*", "!eth0"], "eth1", true),
            (&["!eth0"], "eno1", true),
            (&["e?o*", "x"], "eno12", true),
            (&["&eth*", "&*1"], "eth1", true),
            (&["&eth*", "&*1"], "eth0", false),
            (&["|!eth0"], "eth0", false),
            (&["*a*b*"], "xaxxbx", true),
        ];
        for (patterns, name, expected) in cases {
            let patterns: Vec<_> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
            assert_eq!(matches(&patterns, name), expected, "{patterns:?} {name}");
        }
    }
}
