//! What agents send: any bytes are read or refused within bounds, and a token that is read is the same text again.
#![no_main]

use kiln_core::agent_token::{Claim, LONGEST_REPORT, parse_machine_report, parse_report, parse_state};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(report) = parse_report(bytes) {
        let text = serde_json::to_vec(&report).expect("a report is JSON");
        assert!(text.len() <= 8 * LONGEST_REPORT);
        if text.len() <= LONGEST_REPORT {
            assert_eq!(parse_report(&text).expect("what was rendered is a report"), report);
        }
    }
    if let Ok(report) = parse_machine_report(bytes) {
        let text = serde_json::to_vec(&report).expect("a report is JSON");
        if text.len() <= LONGEST_REPORT {
            assert_eq!(parse_machine_report(&text).expect("what was rendered is a report"), report);
        }
    }
    if let Ok(state) = parse_state(bytes) {
        assert!(state.current.is_object());
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Some(claim) = Claim::parse(text)
    {
        assert_eq!(claim.bearer.render(&claim.code), text);
    }
});
