//! What an error of Ignition may say to others: everything but secrets.
//!
//! When a stage fails, Ignition prints the whole config, with tokens, password hashes and file contents. [`redact`] is for
//! single lines and errs on the side of silence: whatever looks like a secret becomes `…`. [`last_error`] picks the line
//! that says why Ignition stopped, and never the config.

/// How long a run of letters and digits may be before it is taken for a key, a token or a hash.
const LONGEST_OPAQUE: usize = 31;
const HIDDEN: &str = "…";
/// How Ignition's lines end when a fetch or a stage went well: it does one thing at a time, so what failed before is overcome.
const OVERCOME: [&str; 3] = [" result: ok", " result: no content", "ignition finished successfully"];

/// The text without secrets, its words parted by single spaces.
pub fn redact(text: &str) -> String {
    let mut words = Vec::new();
    let mut hide_next = false;
    for word in text.split_ascii_whitespace() {
        let plain = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        if hide_next && !is_scheme(plain) {
            words.push(HIDDEN.to_owned());
            hide_next = false;
        } else {
            // `Bearer`, `Authorization:`, `password` and the like announce what comes next.
            hide_next = is_scheme(plain) || is_announcement(plain);
            words.push(redact_word(word));
        }
    }
    words.join(" ")
}

/// `Bearer`, also at the end of a piece of JSON.
fn is_scheme(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    word.ends_with("bearer") || word.ends_with("basic")
}

fn is_announcement(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    ["authorization", "password", "passwordhash", "token", "passwd", "secret"].iter().any(|name| word.ends_with(name))
}

/// One word: data URLs, crypt hashes, user names and queries of URLs, and long opaque runs go.
fn redact_word(word: &str) -> String {
    let lower = word.to_ascii_lowercase();
    let first = |names: &[&str]| names.iter().filter_map(|name| lower.find(name)).min();
    if let Some(at) = lower.find("data:") {
        return format!("{}:{HIDDEN}", hide_opaque(&word[..at + "data".len()]));
    }
    if let Some(at) = first(&["$1$", "$2", "$5$", "$6$", "$y$", "$7$", "$gy$"]) {
        return format!("{}{HIDDEN}", hide_opaque(&word[..at]));
    }
    if let Some(at) = first(&["token", "password", "secret", "authorization"])
        && let Some(end) = word[at..].find(['=', ':']).map(|end| at + end + 1).filter(|end| *end < word.len())
    {
        return format!("{}{HIDDEN}", hide_opaque(&word[..end]));
    }
    let Some((scheme, rest)) = word.split_once("://") else { return hide_opaque(word) };
    let (user, rest) = rest.rsplit_once('@').map_or(("", rest), |(_, rest)| ("…@", rest));
    // A query may be a signature.
    let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, _)| (rest, "?…"));
    format!("{}://{user}{}{query}", hide_opaque(scheme), hide_opaque(rest))
}

fn hide_opaque(word: &str) -> String {
    let opaque = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '_' | '=' | '-');
    let mut result = String::new();
    let mut rest = word;
    while let Some(start) = rest.find(opaque) {
        result.push_str(&rest[..start]);
        let run = &rest[start..];
        let end = run.find(|c| !opaque(c)).unwrap_or(run.len());
        result.push_str(if end > LONGEST_OPAQUE { HIDDEN } else { &run[..end] });
        rest = &run[end..];
    }
    result + rest
}

/// The line of a log that says why Ignition stopped, or what it fails at again and again; redacted.
/// What went well in the end is no error: most boots try once before the network is there.
pub fn last_error(log: &str) -> Option<String> {
    let mut found: [Option<&str>; 3] = [None; 3];
    for line in log.lines().filter(|line| !line.contains('{')) {
        let lower = line.to_ascii_lowercase();
        if OVERCOME.iter().any(|end| lower.ends_with(end)) {
            found = [None; 3];
            continue;
        }
        let weight = if lower.contains("critical") || lower.contains("ignition failed") {
            0
        } else if lower.contains("error") {
            1
        } else if lower.contains("failed") {
            2
        } else {
            continue;
        };
        found[weight] = Some(line);
    }
    let line = found.into_iter().flatten().next()?;
    // Time and process say nothing to the hub.
    let line = line.split_once("]: ").map_or(line, |(_, said)| said);
    Some(redact(line)).filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_goes() {
        for (text, expected) in [
            (r#"GET "https://10.0.0.1:22624/ignition": dial tcp 10.0.0.1:22624: connect: no route to host"#, None),
            ("x509: certificate signed by unknown authority", None),
            ("Authorization: Bearer abc.def", Some("Authorization: Bearer …")),
            (r#"{"name":"Authorization","value":"Bearer abc"}"#, Some(r#"{"name":"Authorization","value":… …"#)),
            ("got data:;base64,aGVsbG8= here", Some("got data:… here")),
            ("0123456789abcdef0123456789abdata:,x", Some("…:…")),
            ("hash $6$salt$long of core", Some("hash … of core")),
            ("https://user:word@host/a?sig=abc: bad", Some("https://…@host/a?… bad")),
            ("sha512-0123456789abcdef0123456789abcdef0123 differs", Some("… differs")),
            ("password geheim", Some("password …")),
            ("token=geheim", Some("token=…")),
        ] {
            let redacted = redact(text);
            assert_eq!(redacted, expected.unwrap_or(text));
            for secret in ["abc", "aGVsbG8", "salt", "user:word", "0123456789abcdef0123", "geheim"] {
                assert!(!redacted.contains(secret), "{redacted}");
            }
            assert_eq!(redact(&redacted), redacted);
        }
    }

    #[test]
    fn the_line_that_says_why_is_found() {
        for (log, expected) in [
            ("", None),
            ("INFO     : files: all fine\n", None),
            (
                "INFO : GET https://h/i: attempt #1\nINFO : GET error: Get \"https://h/i\": x509: unknown authority\nINFO : next\n",
                Some("INFO : GET error: Get \"https://h/i\": x509: unknown authority"),
            ),
            (
                "[ 12.1] ignition[512]: CRITICAL : failed to fetch config: not found\n[ 12.2] ignition[512]: failing config is error {\"token\": 1}\n[12.3] systemd[1]: ignition-fetch.service: Failed with result\n",
                Some("CRITICAL : failed to fetch config: not found"),
            ),
            (
                "GET https://h/i: attempt #1\nGET error: Get \"https://h/i\": connect: network is unreachable\nGET https://h/i: attempt #2\nGET result: OK\n",
                None,
            ),
            (
                "GET error: Get \"https://h/i\": no route to host\nGET result: OK\nGET error: Get \"https://h/j\": refused\nGET https://h/j: attempt #2\n",
                Some("GET error: Get \"https://h/j\": refused"),
            ),
            ("op(1): [failed]   loading QEMU firmware config module\nIgnition finished successfully\n", None),
            ("Ignition finished successfully\nGET error: GET result: OK not\n", Some("GET error: GET result: OK not")),
        ] {
            assert_eq!(last_error(log).as_deref(), expected, "{log}");
        }
    }
}
