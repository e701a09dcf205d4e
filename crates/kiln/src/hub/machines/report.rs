//! What a report of an agent about its files and units makes of its Host: `status.machine` and the timeline. Pure.

use kiln_core::machine::{MachinePhase, MachineReport, Needs};
use kiln_core::timeline::{Entry, Moment, Stage};
use serde_json::{Value, json};

use crate::hub::report::{AGENT, Written, replace_report};
use crate::hub::timeline::{Update, render_time};

/// Lines of a change that are told in the timeline.
const SHOWN: usize = 5;

/// What a report makes of a Host.
pub fn plan_report(host: &Value, report: &MachineReport, at: Moment) -> Update {
    let machine = &host["status"]["machine"];
    let said = serde_json::to_value(report).unwrap_or_default();
    let Some(Written { patch: written, repeated }) = replace_report(&machine["report"], said, at) else {
        return Update::default();
    };
    let mut patch = json!({"machine": {"report": written}});
    if report.phase == MachinePhase::Applied && machine["applied"]["revision"] != report.revision.as_str() {
        patch["machine"]["applied"] = json!({"revision": report.revision, "at": render_time(at)});
    }
    let entries = if repeated { Vec::new() } else { entry(report, at).into_iter().collect() };
    Update { entries, patch: Some(patch) }
}

/// What the timeline says of it. A change without effect is no event.
fn entry(report: &MachineReport, at: Moment) -> Option<Entry> {
    let MachineReport { revision, phase, needs, changes, took } = report;
    let name = format!("machine config {}", revision.get(..8).unwrap_or(revision));
    let took = took.map(|took| format!(" in {took} ms")).unwrap_or_default();
    let with = match needs {
        Needs::Reboot => ", with a reboot",
        Needs::Drain => ", on an empty node",
        Needs::Nothing | Needs::Service => "",
    };
    let lines = |lines: &[String]| {
        let shown = lines.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join("; ");
        match lines.len().saturating_sub(SHOWN) {
            0 => shown,
            more => format!("{shown}; and {more} more"),
        }
    };
    match phase {
        MachinePhase::Applied if changes.is_empty() => None,
        MachinePhase::Applied => {
            let said = format!("{name} applied{took}{with}: {}", lines(changes));
            Some(Entry::reached(Stage::Changed, at, AGENT, said))
        }
        MachinePhase::RolledBack(why) => {
            Some(Entry::failed(Stage::Changed, at, AGENT, format!("{name} rolled back{took}: {why}")))
        }
        MachinePhase::Refused(why) => Some(Entry::failed(Stage::Changed, at, AGENT, format!("{name} refused: {why}"))),
        MachinePhase::Drifted(drift) => {
            let said = format!("others changed what {name} wrote: {}", lines(drift));
            Some(Entry::failed(Stage::Changed, at, AGENT, said))
        }
        MachinePhase::Planned | MachinePhase::Working | MachinePhase::Rebooting => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::records::read_report;
    use super::*;

    fn merge(target: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else {
            *target = patch.clone();
            return;
        };
        if !target.is_object() {
            *target = json!({});
        }
        let Value::Object(target) = target else { return };
        for (key, value) in patch {
            match value {
                Value::Null => drop(target.remove(key)),
                value => merge(target.entry(key.clone()).or_insert(Value::Null), value),
            }
        }
    }

    #[test]
    fn reports_become_status_and_timeline_once() {
        let mut host = json!({});
        let mut told = Vec::new();
        let changes = vec!["~ /etc/crio/crio.conf".to_owned(), "restart crio.service".to_owned()];
        for (index, phase) in [
            MachinePhase::Planned,
            MachinePhase::Working,
            MachinePhase::RolledBack("crio.service did not start".into()),
            MachinePhase::Refused("storage.disks changed".into()),
            MachinePhase::Rebooting,
            MachinePhase::Drifted(vec!["/etc/chrony.conf".into()]),
            MachinePhase::Applied,
        ]
        .into_iter()
        .enumerate()
        {
            let report = MachineReport {
                revision: "0123456789abcdef".into(),
                phase,
                needs: Needs::Service,
                changes: changes.clone(),
                took: Some(900),
            };
            let at = Moment(1_700_000_000 + i64::try_from(index).unwrap());
            let update = plan_report(&host, &report, at);
            merge(&mut host, &json!({"status": update.patch.unwrap()}));
            told.extend(update.entries.iter().map(|entry| format!("{:?} {}", entry.outcome, entry.cause)));
            assert_eq!(read_report(&host["status"]["machine"]["report"]), Some((report.clone(), at)));
            assert_eq!(plan_report(&host, &report, Moment(at.0 + 1)), Update::default(), "{:?} again", report.phase);
            let later = plan_report(&host, &report, Moment(at.0 + 60));
            assert!(later.entries.is_empty() && later.patch.is_some(), "it is still there");
        }
        assert_eq!(
            told,
            [
                "Failed machine config 01234567 rolled back in 900 ms: crio.service did not start",
                "Failed machine config 01234567 refused: storage.disks changed",
                "Failed others changed what machine config 01234567 wrote: /etc/chrony.conf",
                "Reached machine config 01234567 applied in 900 ms: ~ /etc/crio/crio.conf; restart crio.service",
            ]
        );
        assert_eq!(host["status"]["machine"]["applied"]["revision"], "0123456789abcdef");
        let nothing = MachineReport {
            revision: "r".into(),
            phase: MachinePhase::Applied,
            needs: Needs::Nothing,
            changes: vec![],
            took: None,
        };
        assert_eq!(plan_report(&json!({}), &nothing, Moment(0)).entries, []);
    }
}
