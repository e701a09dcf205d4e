//! What a report of an agent makes of its Host: `status.network` and the timeline. Pure.
//!
//! ```text
//! status.network.agent    since when an agent speaks for the host
//!               .report   its last report and when it arrived
//!               .applied  the revision in force, and the policies in it
//!               .failed   a revision the node was lost with; written by the leader
//! ```

use kiln_core::assignment::{Disruption, Phase, PolicyReference, Report};
use kiln_core::timeline::{Entry, Moment, Stage};
use serde_json::{Value, json};

use crate::hub::report::{AGENT, Written, replace_report};
use crate::hub::timeline::{Update, render_time};

/// The first word of an agent.
pub fn plan_arrival(host: &Value, at: Moment) -> Update {
    let known = !host["status"]["network"]["agent"].is_null();
    let patch = (!known).then(|| json!({"network": {"agent": {"since": render_time(at)}}}));
    Update { entries: Vec::new(), patch }
}

/// The last report still holds.
pub fn plan_still_there(host: &Value, at: Moment) -> Update {
    let known = host["status"]["network"]["report"].is_object();
    Update { entries: Vec::new(), patch: known.then(|| json!({"network": {"report": {"at": render_time(at)}}})) }
}

/// What a report makes of a Host. `policies` are those of the revision, when the hub still knows.
pub fn plan_report(host: &Value, report: &Report, policies: Option<&[PolicyReference]>, at: Moment) -> Update {
    let network = &host["status"]["network"];
    let said = serde_json::to_value(report).unwrap_or_default();
    let Some(Written { patch: written, repeated }) = replace_report(&network["report"], said, at) else {
        return Update::default();
    };
    let mut patch = json!({"network": {"report": written}});
    if network["agent"].is_null() {
        patch["network"]["agent"] = json!({"since": render_time(at)});
    }
    if report.phase == Phase::Applied {
        let policies = policies.map_or_else(|| json!([]), |policies| json!(policies));
        let same = network["applied"]["revision"] == report.revision.as_str();
        if !(same && network["applied"]["policies"].is_array()) {
            patch["network"]["applied"] =
                json!({"revision": report.revision, "policies": policies, "at": render_time(at)});
        }
    }
    let entries = if repeated { Vec::new() } else { entry(report, policies, at).into_iter().collect() };
    Update { entries, patch: Some(patch) }
}

/// What the timeline says of it. A change without effect is no event.
fn entry(report: &Report, policies: Option<&[PolicyReference]>, at: Moment) -> Option<Entry> {
    let names: Vec<String> = policies
        .into_iter()
        .flatten()
        .map(|PolicyReference { name, generation }| format!("{name} (generation {generation})"))
        .collect();
    let with = if names.is_empty() { "its own network".to_owned() } else { names.join(", ") };
    let outage = match report.outage {
        Some(0) => ", no outage".to_owned(),
        Some(outage) => format!(", {outage} ms of outage"),
        None => String::new(),
    };
    let took = report.took.map(|took| format!(" in {took} ms")).unwrap_or_default();
    match &report.phase {
        Phase::Applied if report.disruption != Disruption::None || !report.changes.is_empty() => {
            Some(Entry::reached(Stage::Changed, at, AGENT, format!("{with} applied{took}{outage}")))
        }
        Phase::RolledBack(why) => {
            Some(Entry::failed(Stage::Changed, at, AGENT, format!("{with} rolled back{took}{outage}: {why}")))
        }
        Phase::Refused(why) => Some(Entry::failed(Stage::Changed, at, AGENT, format!("{with} refused: {why}"))),
        Phase::Drifted(lines) => {
            Some(Entry::failed(Stage::Changed, at, AGENT, format!("the network drifted: {}", lines.join("; "))))
        }
        Phase::Planned | Phase::Trying | Phase::Applied => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(phase: Phase) -> Report {
        Report {
            revision: "r1".into(),
            phase,
            disruption: Disruption::LinkBounce,
            changes: vec!["+ bond0".into()],
            took: Some(900),
            outage: Some(40),
        }
    }

    fn merge(target: &mut Value, patch: &Value) {
        if let (Value::Object(target), Value::Object(patch)) = (&mut *target, patch) {
            for (key, value) in patch {
                match value {
                    Value::Null => drop(target.remove(key)),
                    value => merge(target.entry(key.clone()).or_insert(Value::Null), value),
                }
            }
        } else if patch.is_object() {
            *target = json!({});
            merge(target, patch);
        } else {
            *target = patch.clone();
        }
    }

    #[test]
    fn reports_become_status_and_timeline_once() {
        let policies = [PolicyReference { name: "bond".into(), generation: 3 }];
        let mut host = json!({});
        let mut told = Vec::new();
        for (index, phase) in [
            Phase::Planned,
            Phase::Trying,
            Phase::RolledBack("no gateway".into()),
            Phase::Refused("no such NIC".into()),
            Phase::Drifted(vec!["eth0: mtu 1400".into()]),
            Phase::Applied,
        ]
        .into_iter()
        .enumerate()
        {
            let at = Moment(1_700_000_000 + i64::try_from(index).unwrap());
            let update = plan_report(&host, &report(phase.clone()), Some(&policies), at);
            merge(&mut host, &json!({"status": update.patch.unwrap()}));
            told.extend(update.entries.iter().map(|entry| format!("{:?} {}", entry.outcome, entry.cause)));
            assert_eq!(super::super::records::read_told(&host["status"]["network"]["report"]).unwrap().phase, phase);
            let again = plan_report(&host, &report(phase.clone()), Some(&policies), Moment(at.0 + 1));
            assert_eq!(again, Update::default(), "{phase:?} again");
            let later = plan_report(&host, &report(phase), Some(&policies), Moment(at.0 + 60));
            assert!(later.entries.is_empty() && later.patch.is_some(), "it is still there");
        }
        assert_eq!(
            told,
            [
                "Failed bond (generation 3) rolled back in 900 ms, 40 ms of outage: no gateway",
                "Failed bond (generation 3) refused: no such NIC",
                "Failed the network drifted: eth0: mtu 1400",
                "Reached bond (generation 3) applied in 900 ms, 40 ms of outage",
            ]
        );
        assert_eq!(host["status"]["network"]["applied"]["policies"], json!(policies));
        let nothing = Report { disruption: Disruption::None, changes: vec![], ..report(Phase::Applied) };
        assert_eq!(plan_report(&json!({}), &nothing, None, Moment(0)).entries, []);
    }
}
