//! Boot tokens as they travel: a Secret per host that has the hash of its token and what became of it.
//!
//! ```text
//! kind: Secret            type: kiln.dev/boot-token      name: boot-token-HOST
//! labels                  kiln.dev/ignition: boot-token, kiln.dev/host: HOST
//! data                    sha256 generation issued expires [used source] [revoked]
//! ```
//!
//! The text of a token is in no object: [`make_token`] gives it to whoever issues it, and only [`hash_token`] of it is
//! written. What a record means is decided by [`kiln_core::boot_token`].

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln_core::boot_token::{BootRecord, BootToken, TokenHash, Use};
use serde_json::{Value, json};

use super::timeline::{parse_time, render_time};

/// The label on everything the node endpoints read.
pub const IGNITION_LABEL: &str = "kiln.dev/ignition";
/// The label that says which host something belongs to.
pub const HOST_LABEL: &str = "kiln.dev/host";
/// The value of [`IGNITION_LABEL`] on a boot token.
pub const BOOT_TOKEN: &str = "boot-token";
/// The type of its Secret.
pub const BOOT_TOKEN_TYPE: &str = "kiln.dev/boot-token";

/// A new token. None when the system has no random numbers.
pub fn make_token() -> Option<BootToken> {
    let mut random = [0; 32];
    rustls::crypto::ring::default_provider().secure_random.fill(&mut random).ok()?;
    Some(BootToken::of_random(random))
}

/// What is kept of a token's text.
pub fn hash_token(text: &str) -> TokenHash {
    TokenHash(kiln_apiserver::identity::hash(text))
}

/// Reads `data` of the Secret. None when it cannot be made sense of: such a token is good for nothing.
pub fn parse_record(data: &Value) -> Option<BootRecord> {
    let text = |key: &str| decode_text(data, key);
    // A time that is there and cannot be read must not look like one that is not there.
    let time = |key: &str| match text(key) {
        None if data[key].is_null() => Some(None),
        None => None,
        Some(text) => parse_time(&text).map(Some),
    };
    let used = match (time("used")?, text("source")) {
        (None, _) => None,
        (Some(at), source) => Some(Use { at, source: source?.parse::<IpAddr>().ok()?.to_canonical() }),
    };
    Some(BootRecord {
        hash: text("sha256")?.parse().ok()?,
        generation: text("generation")?.parse().ok()?,
        issued: time("issued")??,
        expires: time("expires")??,
        used,
        revoked: time("revoked")?,
    })
}

/// `data` of the Secret. What is absent is null, so that a merge patch takes it away.
pub fn render_record(record: &BootRecord) -> Value {
    let BootRecord { hash, generation, issued, expires, used, revoked } = record;
    let text = |text: String| Value::from(STANDARD.encode(text));
    let maybe = |value: Option<String>| value.map_or(Value::Null, text);
    json!({
        "sha256": text(hash.to_string()),
        "generation": text(generation.to_string()),
        "issued": text(render_time(*issued)),
        "expires": text(render_time(*expires)),
        "used": maybe(used.map(|first| render_time(first.at))),
        "source": maybe(used.map(|first| first.source.to_string())),
        "revoked": maybe(revoked.map(render_time)),
    })
}

/// The text under a key of a Secret's `data`.
pub fn decode_text(data: &Value, key: &str) -> Option<String> {
    String::from_utf8(decode_bytes(data, key)?).ok()
}

/// The bytes under a key of a Secret's `data`.
pub fn decode_bytes(data: &Value, key: &str) -> Option<Vec<u8>> {
    STANDARD.decode(data[key].as_str()?).ok()
}

#[cfg(test)]
mod tests {
    use kiln_core::timeline::Moment;

    use super::*;

    fn records() -> [BootRecord; 2] {
        let fresh = BootRecord::issue(hash_token("kiln-a"), None, Moment(1_700_000_000), 60);
        let used = Use { at: Moment(1_700_000_001), source: "2001:db8::1".parse().unwrap() };
        [fresh, BootRecord { used: Some(used), generation: 7, ..fresh.revoke(Moment(1_700_000_002)) }]
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for record in records() {
            assert_eq!(parse_record(&render_record(&record)), Some(record));
        }
        assert_eq!(decode_text(&render_record(&records()[1]), "used").as_deref(), Some("2023-11-14T22:13:21Z"));
    }

    #[test]
    fn a_record_with_anything_strange_in_it_is_no_token() {
        for key in ["sha256", "generation", "issued", "expires", "used", "source", "revoked"] {
            for wrong in [json!("%"), json!(STANDARD.encode("soon")), json!(7)] {
                let mut data = render_record(&records()[1]);
                data[key] = wrong.clone();
                assert_eq!(parse_record(&data), None, "{key}: {wrong}");
            }
        }
        let mut without = render_record(&records()[1]);
        without["source"] = Value::Null;
        assert_eq!(parse_record(&without), None, "a use without its source");
        assert_eq!(parse_record(&Value::Null), None);
    }

    #[test]
    fn tokens_are_made_anew_each_time() {
        let (first, second) = (make_token().unwrap(), make_token().unwrap());
        assert_ne!(first, second);
        assert_eq!(first.text().parse(), Ok(first.clone()));
    }
}
