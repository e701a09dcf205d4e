//! How an agent's report takes the place of the one before, in the status of its Host. Pure.

use kiln_core::timeline::Moment;
use serde_json::Value;

use super::timeline::{parse_time, render_time};

/// Who saw it.
pub const AGENT: &str = "agent";
/// The same report is written again when it is so many seconds old: the node is still there.
const AGAIN: i64 = 20;

/// A report that has to be written.
#[derive(Debug, PartialEq)]
pub struct Written {
    /// What a merge patch says.
    pub patch: Value,
    /// Nothing in it is new.
    pub repeated: bool,
}

/// What to write over the report that is known; None when that says the same and is young.
pub fn replace_report(known: &Value, mut report: Value, at: Moment) -> Option<Written> {
    let told_at = known["at"].as_str().and_then(parse_time);
    let mut same = known.clone();
    if let Some(fields) = same.as_object_mut() {
        fields.remove("at");
    }
    let repeated = same == report;
    if repeated && told_at.is_some_and(|told| at.0.saturating_sub(told.0) < AGAIN) {
        return None;
    }
    report["at"] = render_time(at).into();
    // A merge patch keeps what it does not name: what the report before said goes.
    forget(known, &mut report);
    if let Some(phase) = report.get_mut("phase").filter(|phase| phase.is_object()) {
        forget(&known["phase"], phase);
    }
    Some(Written { patch: report, repeated })
}

fn forget(known: &Value, written: &mut Value) {
    for key in known.as_object().into_iter().flatten().map(|(key, _)| key) {
        if written.get(key).is_none() {
            written[key] = Value::Null;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_said_before_goes_and_what_is_repeated_waits() {
        let known =
            json!({"revision": "r", "phase": {"rolledBack": "no gateway"}, "took": 7, "at": "1970-01-01T00:00:10Z"});
        let said = json!({"revision": "r", "phase": {"drifted": []}});
        let written = replace_report(&known, said, Moment(11)).unwrap();
        assert!(!written.repeated);
        assert_eq!(
            written.patch,
            json!({"revision": "r", "phase": {"drifted": [], "rolledBack": null}, "took": null, "at": "1970-01-01T00:00:11Z"})
        );
        let again = json!({"revision": "r", "phase": {"rolledBack": "no gateway"}, "took": 7});
        assert_eq!(replace_report(&known, again.clone(), Moment(29)), None);
        assert!(replace_report(&known, again, Moment(30)).unwrap().repeated);
    }
}
