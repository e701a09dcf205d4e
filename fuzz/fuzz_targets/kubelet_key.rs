//! Any bytes as a kubelet's key file: a name or none, the same twice; also as the body of a PEM block.
#![no_main]

use kiln_core::beacon::kubelet_key::kubelet_key;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    assert_eq!(kubelet_key(bytes), kubelet_key(bytes));
    let body = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes);
    let _ = kubelet_key(format!("-----BEGIN EC PRIVATE KEY-----\n{body}\n-----END EC PRIVATE KEY-----\n").as_bytes());
});
