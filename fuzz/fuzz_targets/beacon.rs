//! Reports and beacon tokens: any bytes are read or refused within bounds, and what is read is read the same again.
#![no_main]

use kiln_core::beacon::{LONGEST_REPORT, Report};
use kiln_core::beacon_token::Claim;
use kiln_core::timeline::Moment;
use kiln_core::timeline::first_boot::{Boot, Declared, LARGEST_KEPT, Seen, arrival};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(report) = Report::parse(bytes) {
        let text = report.clone().render();
        assert!(text.len() <= LONGEST_REPORT);
        let again = Report::parse(text.as_bytes()).expect("what was rendered is a report");
        assert_eq!(again.point, report.point);
        let _ = arrival(&report, &Declared::default());
        let mut boot = Boot::default();
        assert!(boot.take(1, Seen { time: Moment(1), report: report.clone() }, &[]));
        assert!(!boot.take(1, Seen { time: Moment(2), report }, &[]));
        let kept = boot.reports.iter().chain(&boot.kept);
        assert!(
            kept.into_iter()
                .all(|seen| serde_json::to_string(&seen.report).is_ok_and(|text| text.len() <= LARGEST_KEPT))
        );
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Some(claim) = Claim::parse(text)
    {
        assert_eq!(claim.bearer.render(&claim.code), text);
    }
});
