//! Which spec version and which coding of a config a client can read, from the headers of its request.
//!
//! Ignition names the newest spec it knows: `Accept: application/vnd.coreos.ignition+json;version=3.6.0, */*;q=0.1`.
//! [`for_pool`] answers as the machine-config-server does on `/config/POOL`, [`for_ignition`] as `/ignition` needs it, where
//! HyperShift always sends 3.2.0 whatever was asked for. Headers come from strangers: parsing is bounded and total.
//!
//! What surprises: a client that names no version is old in the eyes of the machine-config-server and gets spec 2.2.0,
//! also when it is curl.

use super::SpecVersion;

/// More entries of a header than this are not looked at.
const MOST_ENTRIES: usize = 32;
/// More bytes of a header than this are not looked at.
const MOST_BYTES: usize = 4096;
const MEDIA: &str = "application/vnd.coreos.ignition+json";

/// What the machine-config-server serves; None: it answers 400.
///
/// 3.0 is served as such, where the machine-config-server fails; everything newer than the newest gets the newest.
pub fn for_pool(accept: Option<&str>) -> Option<SpecVersion> {
    match wanted(accept) {
        None => Some(SpecVersion::V2_2),
        Some((2, 2..)) => Some(SpecVersion::V2_2),
        Some((3, minor)) => Some(third(minor)),
        Some(_) => None,
    }
}

/// The newest spec a client of `/ignition` reads. Who says nothing gets what HyperShift sends; who can read spec 2 only gets
/// that, too, and will say so itself.
pub fn for_ignition(accept: Option<&str>) -> SpecVersion {
    match wanted(accept) {
        Some((3, minor)) => third(minor),
        Some((4.., _)) => SpecVersion::NEWEST,
        _ => SpecVersion::V3_2,
    }
}

/// Whether the client asks for gzip.
pub fn accepts_gzip(accept_encoding: Option<&str>) -> bool {
    let entries = entries(accept_encoding.unwrap_or_default());
    entries.iter().any(|entry| entry.name.eq_ignore_ascii_case("gzip") && entry.quality > 0)
}

/// The newest version of spec 3 that is not newer.
fn third(minor: u64) -> SpecVersion {
    let known = SpecVersion::all().filter(|version| !version.is_v2() && u64::from(version.minor()) <= minor);
    known.last().unwrap_or(SpecVersion::V3_0)
}

/// Major and minor of the first version that is asked for, best quality first.
fn wanted(accept: Option<&str>) -> Option<(u64, u64)> {
    let mut entries = entries(accept?);
    // Stable: of two with the same quality the first counts.
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.quality));
    let usable = entries.iter().filter(|entry| entry.name.eq_ignore_ascii_case(MEDIA) && entry.quality > 0);
    usable.filter_map(|entry| parse_version(entry.version?)).next()
}

struct Entry<'a> {
    name: &'a str,
    version: Option<&'a str>,
    /// In thousandths.
    quality: u16,
}

fn entries(header: &str) -> Vec<Entry<'_>> {
    if header.len() > MOST_BYTES {
        return Vec::new();
    }
    header.split(',').take(MOST_ENTRIES).filter_map(parse_entry).collect()
}

fn parse_entry(text: &str) -> Option<Entry<'_>> {
    let mut parts = text.split(';').map(str::trim);
    let mut entry = Entry { name: parts.next()?, version: None, quality: 1000 };
    for parameter in parts {
        let Some((name, value)) = parameter.split_once('=') else { continue };
        let value = value.trim().trim_matches('"');
        match name.trim() {
            "q" | "Q" => entry.quality = parse_quality(value)?,
            "version" => entry.version = Some(value),
            _ => {}
        }
    }
    Some(entry)
}

/// `0.1` as 100; None for what is no number between 0 and 1.
fn parse_quality(text: &str) -> Option<u16> {
    let quality: f32 = text.parse().ok()?;
    (0.0..=1.0).contains(&quality).then_some((quality * 1000.0) as u16)
}

/// Major and minor of `3.4.0`. The rest must be there and is not looked at: a development version of Ignition asks for
/// `3.7.0-experimental` and reads everything older.
fn parse_version(text: &str) -> Option<(u64, u64)> {
    let (numbers, _) = text.split_at(text.find(['-', '+']).unwrap_or(text.len()));
    let mut parts = numbers.split('.').map(|part| {
        let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| part.parse::<u64>().ok()).flatten()
    });
    let (major, minor, _patch) = (parts.next()??, parts.next()??, parts.next()??);
    parts.next().is_none().then_some((major, minor))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asked(version: &str) -> String {
        format!("{MEDIA};version={version}, */*;q=0.1")
    }

    #[test]
    fn a_pool_is_negotiated_as_the_machine_config_server_does() {
        for (accept, expected) in [
            (asked("2.2.0"), Some("2.2.0")),
            (asked("2.4.0"), Some("2.2.0")),
            (asked("2.1.0"), None),
            (asked("2.0.0"), None),
            (asked("1.0.0"), None),
            (asked("4.0.0"), None),
            (asked("3.0.0"), Some("3.0.0")),
            (asked("3.1.0"), Some("3.1.0")),
            (asked("3.2.9"), Some("3.2.0")),
            (asked("3.3.0"), Some("3.3.0")),
            (asked("3.4.0"), Some("3.4.0")),
            (asked("3.5.0"), Some("3.5.0")),
            (asked("3.6.0"), Some("3.6.0")),
            (asked("3.7.0-experimental"), Some("3.6.0")),
            (asked("3.99.0"), Some("3.6.0")),
            // no version that can be read: an old client, or a person with curl
            (asked("3.4"), Some("2.2.0")),
            (asked("x"), Some("2.2.0")),
            ("*/*".into(), Some("2.2.0")),
            ("text/plain".into(), Some("2.2.0")),
            (String::new(), Some("2.2.0")),
            (MEDIA.into(), Some("2.2.0")),
            // the best quality counts, then the order
            (format!("{MEDIA};version=3.1.0;q=0.5, {MEDIA};version=3.4.0"), Some("3.4.0")),
            (format!("{MEDIA};q=0.5;version=3.1.0, {MEDIA};version=2.1.0;q=0.4"), Some("3.1.0")),
            (format!("{MEDIA};version=3.2.0, {MEDIA};version=3.4.0"), Some("3.2.0")),
            (format!("text/html, {MEDIA};version=\"3.2.0\" ; q=0.9"), Some("3.2.0")),
            (format!("{MEDIA};version=3.4.0;q=0, {MEDIA};version=3.2.0;q=0.1"), Some("3.2.0")),
            (format!("{MEDIA};version=3.4.0;q=7, {MEDIA};version=3.2.0;q=0.1"), Some("3.2.0")),
        ] {
            let version = for_pool(Some(&accept)).map(|version| version.to_string());
            assert_eq!(version.as_deref(), expected, "{accept}");
        }
        assert_eq!(for_pool(None), Some(SpecVersion::V2_2));
    }

    #[test]
    fn ignition_gets_at_most_what_it_reads() {
        for (accept, expected) in [
            (Some(asked("3.0.0")), "3.0.0"),
            (Some(asked("3.3.0")), "3.3.0"),
            (Some(asked("3.9.0")), "3.6.0"),
            (Some(asked("4.0.0")), "3.6.0"),
            (Some(asked("2.2.0")), "3.2.0"),
            (Some("*/*".into()), "3.2.0"),
            (None, "3.2.0"),
        ] {
            assert_eq!(for_ignition(accept.as_deref()).to_string(), expected, "{accept:?}");
        }
    }

    #[test]
    fn gzip_is_sent_to_who_asks_for_it() {
        for (header, expected) in [
            (None, false),
            (Some(""), false),
            (Some("identity"), false),
            (Some("gzip"), true),
            (Some("GZIP;q=0.1"), true),
            (Some("gzip;q=0"), false),
            (Some("identity, gzip"), true),
            (Some("br, *"), false),
        ] {
            assert_eq!(accepts_gzip(header), expected, "{header:?}");
        }
    }

    proptest! {
        #[test]
        fn no_header_makes_it_panic(header in ".{0,200}", close in "[a-z/+;=.,0-9q ]{0,100}") {
            for text in [&header, &close, &format!("{MEDIA};version={close}")] {
                let _ = (for_pool(Some(text)), for_ignition(Some(text)), accepts_gzip(Some(text)));
            }
        }
    }
}
