//! Any line of a log: no long opaque run is left, nor whatever follows `Bearer`.
#![no_main]

use kiln_core::beacon::redact::{last_error, redact};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let opaque = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '_' | '=' | '-');
    for redacted in [Some(redact(text)), last_error(text)].into_iter().flatten() {
        assert!(redacted.split(|c| !opaque(c)).all(|run| run.len() < 32), "{redacted}");
    }
    let secret: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let lower = secret.to_ascii_lowercase();
    if !secret.is_empty() && !lower.contains("bearer") && !lower.contains("basic") {
        assert_eq!(redact(&format!("Authorization: Bearer {secret}")), "Authorization: Bearer …");
    }
});
