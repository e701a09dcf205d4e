//! Certificate requests and certificates: any bytes are read or refused within bounds, and what is read is read the same twice.
#![no_main]

use kiln_core::certificate_request::{LARGEST_REQUEST, parse_certificate, parse_certificate_pem, parse_content};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let read = parse_content(bytes);
    if let Ok(content) = &read {
        assert!(bytes.len() <= LARGEST_REQUEST);
        assert_eq!(parse_content(bytes).as_ref(), Ok(content));
        assert_eq!(content.key.to_string().parse(), Ok(content.key));
    }
    let _ = parse_certificate(bytes);
    let _ = parse_certificate_pem(bytes);
    // The same bytes as the body of a block, so that most inputs get past the PEM.
    let body = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes);
    let pem = format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n");
    let _ = parse_content(pem.as_bytes());
});
