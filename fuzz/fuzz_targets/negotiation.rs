//! Any headers of a request for a config: a version that exists, or none; and any text is a token, or none.
#![no_main]

use kiln_core::boot_token::{BootToken, TokenHash};
use kiln_core::ignition::negotiation::{accepts_gzip, for_ignition, for_pool};

libfuzzer_sys::fuzz_target!(|text: &str| {
    for header in [text.to_owned(), format!("application/vnd.coreos.ignition+json;version={text}")] {
        assert!(!for_ignition(Some(&header)).is_v2());
        let _ = (for_pool(Some(&header)), accepts_gzip(Some(&header)));
    }
    if let Ok(token) = text.parse::<BootToken>() {
        assert_eq!(token.text(), text);
    }
    if let Ok(hash) = text.parse::<TokenHash>() {
        assert_eq!(hash.to_string(), text);
    }
});
