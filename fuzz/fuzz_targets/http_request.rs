//! Any bytes from a socket: refused, waited for, or answered with a body that is as long as announced and within the file.
#![no_main]

// Only the part of the server that decides: the rest of the program would make every fuzz build long.
#[allow(dead_code)]
#[path = "../../crates/kiln/src/image_server/answer.rs"]
mod answer;
#[allow(dead_code)]
#[path = "../../crates/kiln/src/image_server/range.rs"]
mod range;
#[allow(dead_code)]
#[path = "../../crates/kiln/src/image_server/request.rs"]
mod request;

use answer::{BodyPart, Representation, decide_answer};
use request::{LONGEST_HEAD, Parsed, parse_request};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (request, length) = match parse_request(bytes) {
        Parsed::Incomplete => return assert!(bytes.len() < LONGEST_HEAD),
        Parsed::Refused { status, .. } => return assert!((400..600).contains(&status)),
        Parsed::Complete(request, length) => (request, length),
    };
    assert!(length <= bytes.len() && request.path.starts_with('/'));
    // No file is larger than an offset of the kernel can say, so parts and their headers together never overflow.
    for size in [0, 1, 1000, i64::MAX.unsigned_abs()] {
        let representation = Representation {
            size,
            etag: "abc".into(),
            sha256: Some([0; 32]),
            content_type: "application/gzip",
            confidential: false,
        };
        let answer = decide_answer(&request.conditions(), &representation);
        assert!([200, 206, 304, 412, 416].contains(&answer.status));
        for part in &answer.body {
            if let BodyPart::Bytes(range) = part {
                assert!(range.start <= range.end && range.end <= size);
            }
        }
        let announced = answer.headers.iter().find(|(name, _)| *name == "Content-Length");
        if let (false, Some((_, length))) = (request.head_only, announced) {
            assert_eq!(*length, answer.body_length().to_string());
        }
        assert!(answer.headers.iter().all(|(_, value)| !value.contains(['\r', '\n'])));
    }
});
