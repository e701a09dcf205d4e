//! Any bytes as a witness's file, a pointer config or a config: what is read has an address and a token fit for a header.
#![no_main]

use kiln_core::beacon::Credentials;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for read in [Credentials::parse, Credentials::from_pointer, Credentials::from_config] {
        if let Some(credentials) = read(bytes) {
            let address = credentials.address().expect("usable credentials have an address");
            assert!(!address.host.is_empty() && address.path.starts_with('/'));
            assert!(!credentials.token.is_empty() && credentials.token.bytes().all(|byte| byte.is_ascii_graphic()));
        }
    }
});
