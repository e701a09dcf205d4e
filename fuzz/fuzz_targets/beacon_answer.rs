//! Any bytes as the answer to a report: what is told of it is short and printable.
#![no_main]

use kiln_firstboot::witness::answer::parse_answer;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some(answer)) = parse_answer(bytes) {
        assert!(answer.said.len() <= 3 * 512 && !answer.said.contains(char::is_control));
    }
});
