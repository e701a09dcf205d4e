//! What the kernel says over rtnetlink: any bytes become a document, without a panic and without endless work.
#![no_main]

use kiln_agent::kernel::{Dumps, render_kernel};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let bytes = bytes.to_vec();
    let document = render_kernel(&Dumps {
        links: bytes.clone(),
        addresses: bytes.clone(),
        routes: bytes.clone(),
        rules: bytes,
    });
    assert!(document["interfaces"].is_array());
});
