//! What a node does about an assignment: nothing, say something, or try. Pure.
//!
//! | plan | memory | permit | |
//! |---|---|---|---|
//! | any | this revision failed | any | say so again, touch nothing |
//! | none possible | | any | refused |
//! | empty | | any | applied |
//! | a change | applied in this boot | any | drift: report, adopt, or go on, as is said of the interfaces it touches |
//! | a change | | wait | planned |
//! | a change | | go | try |

use kiln_core::assignment::{Assignment, Disruption, DriftAction, Permit, Phase, Report};
use kiln_core::change::{Change, ChangeError};

use crate::memory::{Applied, Memory};

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Only this is said.
    Say(Report),
    /// Remembered and then said: it is in force, or can never be.
    Remember(Box<Memory>, Report),
    /// The change may be made.
    Try,
}

/// Decides. `boot` names the boot the node is in.
pub fn decide(assignment: &Assignment, planned: &Result<Change, ChangeError>, memory: &Memory, boot: &str) -> Action {
    let revision = &assignment.revision;
    if let Some(failed) = memory.failed.as_ref().filter(|failed| failed.revision == *revision) {
        return Action::Say(failed.clone());
    }
    let change = match planned {
        Ok(change) => change,
        Err(error) => {
            let report = report(revision, Phase::Refused(error.to_string()), Disruption::None, &[]);
            let memory = Memory { failed: Some(report.clone()), ..memory.clone() };
            return Action::Remember(memory.into(), report);
        }
    };
    let say = |phase| report(revision, phase, change.disruption, &change.lines);
    let applied = Applied { revision: revision.clone(), boot: boot.into(), adopted: Vec::new() };
    if change.is_empty() {
        let said = say(Phase::Applied);
        let new = Memory { applied: Some(applied), ownership: change.ownership.clone(), ..Memory::default() };
        return if new == *memory { Action::Say(said) } else { Action::Remember(new.into(), said) };
    }
    // A boot takes away what was not to last: that is no drift.
    let in_force = memory.applied.as_ref().filter(|it| it.revision == *revision && it.boot == boot);
    if let Some(in_force) = in_force {
        match assignment.drift_on(change.interfaces()) {
            DriftAction::Report => return Action::Say(say(Phase::Drifted(change.lines.clone()))),
            DriftAction::Adopt if in_force.adopted == change.lines => return Action::Say(say(Phase::Applied)),
            DriftAction::Adopt => {
                let adopted = Applied { adopted: change.lines.clone(), ..applied };
                let new = Memory { applied: Some(adopted), ..memory.clone() };
                return Action::Remember(new.into(), say(Phase::Applied));
            }
            DriftAction::Repair => {}
        }
    }
    match assignment.permit {
        Permit::Wait(_) => Action::Say(say(Phase::Planned)),
        Permit::Go(_) => Action::Try,
    }
}

/// A report without times.
pub fn report(revision: &str, phase: Phase, disruption: Disruption, changes: &[String]) -> Report {
    /// More lines than this are not for people.
    const SHOWN: usize = 200;
    let changes = changes.iter().take(SHOWN).cloned().collect();
    Report { revision: revision.into(), phase, disruption, changes, took: None, outage: None }
}

#[cfg(test)]
mod tests {
    use kiln_core::assignment::Proof;
    use kiln_core::change::Step;
    use serde_json::json;

    use super::*;

    fn assignment(drift: DriftAction, permit: Permit) -> Assignment {
        Assignment {
            revision: "r2".into(),
            network: json!({}),
            persistent: json!({}),
            policies: vec![],
            proof: Proof::default(),
            drift,
            drift_of: [("eth9".to_owned(), DriftAction::Repair)].into(),
            permit,
        }
    }

    fn change(lines: &[&str]) -> Change {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let hostname = (!lines.is_empty()).then(|| "new".to_owned());
        Change { hostname, lines, ..Change::default() }
    }

    fn of_eth9(lines: &[&str]) -> Change {
        Change { stages: vec![vec![Step::Remove { interface: "eth9".into() }]], ..change(lines) }
    }

    fn applied(revision: &str, boot: &str, adopted: &[&str]) -> Memory {
        let adopted = adopted.iter().map(|line| (*line).to_owned()).collect();
        Memory { applied: Some(Applied { revision: revision.into(), boot: boot.into(), adopted }), ..Memory::default() }
    }

    fn decided(change: Result<Change, ChangeError>, memory: Memory, drift: DriftAction, permit: Permit) -> String {
        match decide(&assignment(drift, permit), &change, &memory, "now") {
            Action::Say(report) => format!("{:?}", report.phase),
            Action::Remember(memory, report) => {
                let kept =
                    memory.applied.map_or("-".to_owned(), |it| format!("{}@{}{:?}", it.revision, it.boot, it.adopted));
                format!("{:?} {kept} failed={}", report.phase, memory.failed.is_some())
            }
            Action::Try => "try".into(),
        }
    }

    #[test]
    fn what_a_node_does_follows_from_plan_memory_and_permit() {
        use DriftAction::{Adopt, Repair, Report};
        let wait = || Permit::Wait("budget".into());
        let (go, none) = (Permit::Go(1000), || Memory::default());
        let failed = Memory {
            failed: Some(report("r2", Phase::RolledBack("gateway".into()), Disruption::None, &[])),
            ..applied("r1", "now", &[])
        };
        let refused = || Err(ChangeError::Document("no".into()));
        for (found, expected) in [
            (decided(Ok(change(&["x"])), none(), Report, wait()), "Planned"),
            (decided(Ok(change(&["x"])), none(), Report, go.clone()), "try"),
            (decided(Ok(change(&["x"])), applied("r1", "now", &[]), Report, go.clone()), "try"),
            (decided(Ok(change(&[])), applied("r1", "now", &[]), Report, wait()), "Applied r2@now[] failed=false"),
            (decided(Ok(change(&[])), applied("r2", "now", &[]), Report, wait()), "Applied"),
            (decided(Ok(change(&["x"])), failed.clone(), Report, go.clone()), r#"RolledBack("gateway")"#),
            (decided(Ok(change(&[])), failed, Report, go.clone()), r#"RolledBack("gateway")"#),
            (decided(refused(), none(), Report, go.clone()), r#"Refused("no") - failed=true"#),
            (decided(Ok(change(&["x"])), applied("r2", "now", &[]), Report, go.clone()), r#"Drifted(["x"])"#),
            (
                decided(Ok(change(&["x"])), applied("r2", "now", &[]), Adopt, go.clone()),
                r#"Applied r2@now["x"] failed=false"#,
            ),
            (decided(Ok(change(&["x"])), applied("r2", "now", &["x"]), Adopt, go.clone()), "Applied"),
            (decided(Ok(change(&["x"])), applied("r2", "now", &[]), Repair, wait()), "Planned"),
            (decided(Ok(change(&["x"])), applied("r2", "now", &[]), Repair, go.clone()), "try"),
            // An interface that another policy owns.
            (decided(Ok(of_eth9(&["x"])), applied("r2", "now", &[]), Report, go.clone()), "try"),
            (decided(Ok(of_eth9(&["x"])), applied("r2", "now", &[]), Adopt, wait()), "Planned"),
            // after a reboot
            (decided(Ok(change(&["x"])), applied("r2", "before", &[]), Report, go), "try"),
        ] {
            assert_eq!(found, expected);
        }
    }
}
