//! Any text: parsing ends, and what was parsed survives rendering.
#![no_main]

use kiln_core::keyfile::Keyfile;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(keyfile) = Keyfile::parse(text) {
        assert_eq!(Keyfile::parse(&keyfile.render()).as_ref(), Ok(&keyfile));
    }
});
