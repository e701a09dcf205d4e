//! What a node does about an assignment of files and units: nothing, say something, or do it. Pure.
//!
//! | plan | memory | permit | |
//! |---|---|---|---|
//! | any | this revision failed | any | say so again, touch nothing |
//! | never possible | | any | refused |
//! | not possible yet | | any | planned, and what is waited for |
//! | any | this revision is in force, drifted | any | say what differs, repair nothing |
//! | any | this revision is in force, not drifted | any | applied |
//! | empty | | any | applied |
//! | a change | | wait | planned |
//! | a change that takes more than was told | | go | planned: the permit was for less |
//! | a change | | go | do it |

use kiln_core::assignment::Permit;
use kiln_core::machine::{MachineAssignment, MachinePhase, MachineReport, Needs};

use super::plan::{NoPlan, Plan};
use crate::memory::MachineMemory;

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Only this is said.
    Say(MachineReport),
    /// Remembered as in force without a change, then said.
    Keep(MachineReport),
    /// Remembered as impossible, then said.
    Refuse(MachineReport),
    /// The change may be made.
    Do,
}

/// Decides. `drift` is what differs from what is in force, `told` what the hub was told last.
pub fn decide(
    assignment: &MachineAssignment,
    planned: &Result<Plan, NoPlan>,
    drift: &[String],
    memory: &MachineMemory,
    told: Option<&MachineReport>,
) -> Decision {
    let revision = &assignment.revision;
    if let Some(failed) = memory.failed.as_ref().filter(|failed| failed.revision == *revision) {
        return Decision::Say(failed.clone());
    }
    let in_force = memory.applied.as_ref().is_some_and(|(applied, _)| applied == revision);
    if in_force {
        let phase = match drift {
            [] => MachinePhase::Applied,
            lines => MachinePhase::Drifted(lines.to_vec()),
        };
        return Decision::Say(report(revision, phase, Needs::Nothing, &[]));
    }
    let plan = match planned {
        Ok(plan) => plan,
        Err(NoPlan::Refused(why)) => {
            return Decision::Refuse(report(revision, MachinePhase::Refused(why.clone()), Needs::Nothing, &[]));
        }
        Err(NoPlan::Waits(why)) => {
            return Decision::Say(report(revision, MachinePhase::Planned, Needs::Nothing, &[format!("waits: {why}")]));
        }
    };
    let say = |phase| report(revision, phase, plan.needs(), &plan.lines());
    if plan.is_empty() {
        return Decision::Keep(say(MachinePhase::Applied));
    }
    let for_less = told.is_some_and(|told| told.revision == *revision && told.needs < plan.needs());
    match assignment.permit {
        Permit::Wait(_) => Decision::Say(say(MachinePhase::Planned)),
        Permit::Go(_) if for_less => Decision::Say(say(MachinePhase::Planned)),
        Permit::Go(_) => Decision::Do,
    }
}

/// A report without times.
pub fn report(revision: &str, phase: MachinePhase, needs: Needs, changes: &[String]) -> MachineReport {
    MachineReport { revision: revision.into(), phase, needs, changes: changes.to_vec(), took: None }
}

#[cfg(test)]
mod tests {
    use kiln_core::assignment::Proof;
    use kiln_core::machine::wish::{Machine, MachineChange};
    use kiln_core::machine::{Action, Rules, System};

    use super::*;

    fn plan(lines: &[&str], actions: &[Action]) -> Result<Plan, NoPlan> {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let writes = lines.iter().map(|line| (line.clone(), None)).collect();
        let change = MachineChange { writes, lines, actions: actions.to_vec(), ..MachineChange::default() };
        Ok(Plan { change, ..Plan::default() })
    }

    fn decided(planned: Result<Plan, NoPlan>, drift: &[&str], memory: &MachineMemory, permit: &Permit) -> String {
        let assignment = MachineAssignment {
            revision: "r2".into(),
            system: System::default(),
            rules: Rules::default(),
            proof: Proof::default(),
            permit: permit.clone(),
        };
        let drift: Vec<String> = drift.iter().map(|line| (*line).to_owned()).collect();
        let said = |report: MachineReport| format!("{:?} {:?} {:?}", report.phase, report.needs, report.changes);
        // The hub was told that nothing more than services is restarted.
        let told = report("r2", MachinePhase::Planned, Needs::Service, &[]);
        match decide(&assignment, &planned, &drift, memory, Some(&told)) {
            Decision::Say(report) => said(report),
            Decision::Keep(report) => format!("keep {}", said(report)),
            Decision::Refuse(report) => format!("refuse {}", said(report)),
            Decision::Do => "do".into(),
        }
    }

    #[test]
    fn what_a_node_does_follows_from_plan_memory_and_permit() {
        let (wait, go) = (Permit::Wait("budget".into()), Permit::Go(1000));
        let nothing = MachineMemory::default();
        let applied = |revision: &str| MachineMemory {
            applied: Some((revision.into(), Machine::default())),
            ..MachineMemory::default()
        };
        let failed = MachineMemory {
            failed: Some(report("r2", MachinePhase::RolledBack("crio".into()), Needs::Service, &["x".into()])),
            ..applied("r1")
        };
        let reboot = || plan(&["x"], &[Action::Drain, Action::Reboot]);
        let refused = || Err(NoPlan::Refused("disks".into()));
        let waits = || Err(NoPlan::Waits("eth0".into()));
        for (found, expected) in [
            (decided(reboot(), &[], &nothing, &wait), r#"Planned Reboot ["x"]"#),
            (decided(reboot(), &[], &nothing, &go), r#"Planned Reboot ["x"]"#),
            (decided(plan(&["x"], &[Action::DaemonReload]), &[], &nothing, &go), "do"),
            (decided(plan(&["x"], &[]), &["y"], &applied("r1"), &wait), r#"Planned Nothing ["x"]"#),
            (decided(plan(&["x"], &[]), &[], &applied("r1"), &go), "do"),
            (decided(plan(&[], &[]), &[], &nothing, &wait), "keep Applied Nothing []"),
            (decided(plan(&[], &[]), &[], &applied("r1"), &wait), "keep Applied Nothing []"),
            (decided(plan(&[], &[]), &[], &applied("r2"), &wait), "Applied Nothing []"),
            // what the plan cannot see on the machine, and what is no drift either
            (decided(plan(&["x"], &[]), &[], &applied("r2"), &go), "Applied Nothing []"),
            (decided(plan(&["x"], &[]), &["x is gone"], &applied("r2"), &go), r#"Drifted(["x is gone"]) Nothing []"#),
            (decided(reboot(), &[], &failed, &go), r#"RolledBack("crio") Service ["x"]"#),
            (decided(plan(&[], &[]), &[], &failed, &go), r#"RolledBack("crio") Service ["x"]"#),
            (decided(refused(), &[], &applied("r1"), &go), r#"refuse Refused("disks") Nothing []"#),
            (decided(waits(), &[], &applied("r1"), &go), r#"Planned Nothing ["waits: eth0"]"#),
        ] {
            assert_eq!(found, expected);
        }
    }
}
