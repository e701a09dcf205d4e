//! Tables for every rule of [`plan_machines`].

use kiln_core::rollout::{Budget, Slot};
use kiln_core::timeline::Moment;

use super::super::records::MachineRecord;
use super::*;
use crate::hub::network::records::{SlotRecord, Stamp};

fn pool() -> ObjectId {
    ObjectId { kind: "MachineConfigPool".into(), namespace: String::new(), name: "worker".into() }
}

fn wish(revision: &str) -> Wish {
    Wish {
        revision: revision.into(),
        pool: pool(),
        node: "w".into(),
        payload: "p".into(),
        overlay: "o".into(),
        system: Default::default(),
    }
}

fn wishes(hosts: usize, paused: bool, budget: Budget) -> Wishes {
    Wishes {
        hosts: (0..hosts).map(|number| (format!("site/w{number}"), wish("r2"))).collect(),
        pools: BTreeMap::from([(pool(), PoolWish { paused, budget })]),
        ..Wishes::default()
    }
}

fn told(revision: &str, phase: MachinePhase, needs: Needs) -> Option<(MachineReport, Moment)> {
    let report = MachineReport { revision: revision.into(), phase, needs, changes: vec![], took: None };
    Some((report, Moment(1)))
}

fn host(number: usize, upkeep: Option<Upkeep>, told: Option<(MachineReport, Moment)>) -> HostRecord {
    let object = json!({"metadata": {"namespace": "site", "name": format!("w{number}"), "uid": "u", "resourceVersion": "7"},
        "spec": {"pool": "worker"}, "status": {"network": {"agent": {}}}});
    let mut host = HostRecord::read(&object).unwrap();
    host.machine = MachineRecord { revision: Some("r2".into()), upkeep, told, ..MachineRecord::default() };
    host
}

fn secret(number: usize, permit: Permit) -> MachineSecret {
    let assignment = wish("r2").assignment(&Default::default(), permit);
    MachineSecret {
        at: Stamp {
            namespace: "site".into(),
            name: format!("machine-w{number}"),
            uid: "s".into(),
            revision: "9".into(),
        },
        host: format!("site/w{number}"),
        text: serde_json::to_string(&assignment).unwrap(),
        assignment,
        payload: "p".into(),
        overlay: "o".into(),
    }
}

fn slot(number: usize, upkeep: Upkeep) -> SlotRecord {
    let slot = Slot {
        node: format!("site/w{number}"),
        holder: Holder::Upkeep(upkeep),
        taken: false,
        renewed: Moment(0),
        expires: Moment(0),
    };
    SlotRecord { at: Stamp::default(), slot, acquired: Moment(0) }
}

fn seen(hosts: Vec<HostRecord>, slots: Vec<SlotRecord>, secrets: Vec<MachineSecret>) -> Seen {
    Seen {
        hosts: hosts.into_iter().map(|host| (host.at.id(), Arc::new(host))).collect(),
        slots: slots.into_iter().map(|slot| (slot.slot.node.clone(), Arc::new(slot))).collect(),
        machines: secrets.into_iter().map(|secret| (secret.host.clone(), Arc::new(secret))).collect(),
        ..Seen::default()
    }
}

/// Where it stands, what it is told, and what becomes of its upkeep.
fn said(planned: &Planned) -> String {
    let permit = planned.changes.first().map_or("as before".to_owned(), |change| {
        let data = match &change.action {
            Action::Create(object) => object["data"].clone(),
            Action::Patch(patch) => patch["data"].clone(),
            Action::Delete { .. } => return "removed".to_owned(),
        };
        let text = STANDARD.decode(data["assignment"].as_str().unwrap()).unwrap();
        let assignment: kiln_core::machine::MachineAssignment = serde_json::from_slice(&text).unwrap();
        match assignment.permit {
            Permit::Go(_) => "go".to_owned(),
            Permit::Wait(why) => format!("wait ({why})"),
        }
    });
    let upkeep = match (&planned.statuses[..], &planned.freeing[..]) {
        ([status], _) => match &status.patch["status"]["machine"]["upkeep"] {
            Value::String(upkeep) => format!("asks {upkeep}"),
            _ => "same".to_owned(),
        },
        (_, [freeing]) if freeing.emptied => "reopened".to_owned(),
        (_, [_]) => "freed".to_owned(),
        _ => "same".to_owned(),
    };
    let standing = planned.standings.values().next().map_or("-", Standing::name);
    let emptied = if planned.emptying.is_empty() { "" } else { ", emptied" };
    format!("{standing}: {permit}, {upkeep}{emptied}")
}

#[test]
fn what_follows_from_the_last_word_of_a_node() {
    use MachinePhase::{Applied, Planned as Told, Rebooting, Refused, RolledBack, Working};
    use Needs::{Drain, Nothing, Reboot, Service};
    let slots = "waits for a slot: too many nodes of pool worker or of a policy are out";
    let wait = |why: &str| Permit::Wait(why.to_owned());
    let go = || Some(Permit::Go(WINDOW));
    let failed = "it failed on this node; change the config";
    for (upkeep, told, slot_for, stored, expected) in [
        (None, None, None, None, "unheard: wait (say what would change), same".to_owned()),
        (None, told("r1", Applied, Nothing), None, None, "unheard: wait (say what would change), same".to_owned()),
        (None, told("r2", Told, Nothing), None, None, "going: go, same".to_owned()),
        (None, told("r2", Told, Service), None, None, format!("waiting: wait ({slots}), asks service")),
        (None, told("r2", Told, Reboot), None, None, format!("waiting: wait ({slots}), asks reboot")),
        // Services start anew with pods on the node.
        (Some(Upkeep::Service), told("r2", Told, Service), Some(Upkeep::Service), None, "going: go, same".to_owned()),
        // A slot for something else is somebody else's.
        (
            Some(Upkeep::Drain),
            told("r2", Told, Drain),
            Some(Upkeep::Reboot),
            None,
            format!("waiting: wait ({slots}), same"),
        ),
        (
            Some(Upkeep::Reboot),
            told("r2", Told, Reboot),
            Some(Upkeep::Reboot),
            None,
            "emptying: as before, same, emptied".to_owned(),
        ),
        (
            Some(Upkeep::Reboot),
            told("r2", Told, Reboot),
            Some(Upkeep::Reboot),
            go(),
            "going: as before, same".to_owned(),
        ),
        // A heavier slot than needed is kept: the node may be empty.
        (Some(Upkeep::Reboot), told("r2", Told, Service), Some(Upkeep::Reboot), None, "going: go, same".to_owned()),
        (
            Some(Upkeep::Service),
            told("r2", Told, Reboot),
            Some(Upkeep::Service),
            None,
            format!("waiting: wait ({slots}), asks reboot"),
        ),
        // At it: nothing changes, however long, also with something older.
        (
            Some(Upkeep::Reboot),
            told("r2", Rebooting, Reboot),
            Some(Upkeep::Reboot),
            go(),
            "working: as before, same".to_owned(),
        ),
        (
            Some(Upkeep::Reboot),
            told("r1", Working, Reboot),
            Some(Upkeep::Reboot),
            None,
            "working: wait (finish what was begun), same".to_owned(),
        ),
        // Its record was taken away: it is out all the same.
        (None, told("r2", Working, Drain), None, go(), "working: as before, asks drain".to_owned()),
        // What was given to an older change is kept until the node has spoken of the newer one.
        (
            Some(Upkeep::Service),
            told("r1", Told, Service),
            Some(Upkeep::Service),
            None,
            "unheard: wait (say what would change), same".to_owned(),
        ),
        (
            Some(Upkeep::Reboot),
            told("r2", Told, Nothing),
            Some(Upkeep::Reboot),
            go(),
            "going: as before, reopened".to_owned(),
        ),
        // First it hears that it must not go on, then its slot ends.
        (
            Some(Upkeep::Reboot),
            told("r2", Applied, Reboot),
            Some(Upkeep::Reboot),
            go(),
            "settled: wait (nothing is to be changed), same".to_owned(),
        ),
        (
            Some(Upkeep::Reboot),
            told("r2", Applied, Reboot),
            Some(Upkeep::Reboot),
            Some(wait(SETTLED)),
            "settled: as before, reopened".to_owned(),
        ),
        (
            Some(Upkeep::Service),
            told("r2", Applied, Service),
            Some(Upkeep::Service),
            Some(wait(SETTLED)),
            "settled: as before, freed".to_owned(),
        ),
        (
            Some(Upkeep::Drain),
            told("r2", RolledBack("x".into()), Drain),
            Some(Upkeep::Drain),
            Some(wait(failed)),
            "failed: as before, reopened".to_owned(),
        ),
        (None, told("r2", Refused("x".into()), Nothing), None, None, format!("failed: wait ({failed}), same")),
        (
            None,
            told("r2", MachinePhase::Drifted(vec!["/etc/a".into()]), Nothing),
            None,
            None,
            "drifted: wait (others have changed what was applied; a new config goes over it), same".to_owned(),
        ),
    ] {
        let case = format!("{upkeep:?} {told:?} {slot_for:?} {stored:?}");
        let seen = seen(
            vec![host(0, upkeep, told)],
            slot_for.into_iter().map(|upkeep| slot(0, upkeep)).collect(),
            stored.into_iter().map(|permit| secret(0, permit)).collect(),
        );
        assert_eq!(said(&plan_machines(&seen, &wishes(1, false, Budget::Count(1)))), expected, "{case}");
    }
}

#[test]
fn a_pause_stops_beginnings_and_nothing_that_has_begun() {
    let planned = || told("r2", MachinePhase::Planned, Needs::Reboot);
    for (upkeep, slots, expected) in [
        (None, vec![], "waiting: wait (pool worker is paused), same"),
        (Some(Upkeep::Reboot), vec![slot(0, Upkeep::Reboot)], "emptying: as before, same, emptied"),
    ] {
        let seen = seen(vec![host(0, upkeep, planned())], slots, vec![]);
        assert_eq!(said(&plan_machines(&seen, &wishes(1, true, Budget::Count(1)))), expected);
    }
    // A wish for a slot is taken back, once the node knows why it waits.
    let seen = seen(
        vec![host(0, Some(Upkeep::Reboot), planned())],
        vec![],
        vec![secret(0, Permit::Wait("pool worker is paused".into()))],
    );
    assert_eq!(said(&plan_machines(&seen, &wishes(1, true, Budget::Count(1)))), "waiting: as before, reopened");
}

#[test]
fn as_many_failures_as_may_be_out_halt_the_pool_until_there_is_another_config() {
    let failed = |revision: &str| told(revision, MachinePhase::RolledBack("x".into()), Needs::Service);
    let planned = || told("r2", MachinePhase::Planned, Needs::Service);
    let halted = "the config failed on other nodes of pool worker; change it";
    for (failures, budget, revision, expected) in [
        (1, Budget::Count(1), "r2", true),
        (1, Budget::Count(2), "r2", false),
        (2, Budget::Count(2), "r2", true),
        (2, Budget::PercentDown(50), "r2", true),
        (2, Budget::Count(1), "r1", false),
    ] {
        let mut hosts: Vec<HostRecord> = (0..failures).map(|number| host(number, None, failed(revision))).collect();
        hosts.extend((failures..4).map(|number| host(number, None, planned())));
        let planned = plan_machines(&seen(hosts, vec![], vec![]), &wishes(4, false, budget));
        let said = planned.standings["site/w3"] == Standing::Waiting(halted.into());
        assert_eq!(said, expected, "{failures} failures of {budget:?} with {revision}");
    }
}

#[test]
fn a_host_that_is_not_kept_is_left_alone_and_one_nobody_is_sure_of_keeps_what_it_has() {
    let done = || told("r2", MachinePhase::Applied, Needs::Reboot);
    let one = |upkeep, told, secrets| seen(vec![host(0, upkeep, told)], vec![], secrets);
    let kept_no_more = Wishes::default();
    let stored = || vec![secret(0, Permit::Wait(String::new()))];
    assert_eq!(said(&plan_machines(&one(None, done(), stored()), &kept_no_more)), "-: removed, same");
    assert_eq!(
        said(&plan_machines(&one(Some(Upkeep::Drain), done(), vec![]), &kept_no_more)),
        "-: as before, reopened"
    );
    let working = told("r2", MachinePhase::Working, Needs::Reboot);
    assert_eq!(
        said(&plan_machines(&one(Some(Upkeep::Reboot), working, stored()), &kept_no_more)),
        "-: as before, same"
    );
    let unsure = Wishes { unsure: ["site/w0".to_owned()].into(), ..Wishes::default() };
    assert_eq!(said(&plan_machines(&one(Some(Upkeep::Drain), done(), stored()), &unsure)), "-: as before, same");
}

#[test]
fn a_node_that_a_person_wants_out_is_not_asked_for_twice() {
    let mut wanted = host(0, None, told("r2", MachinePhase::Planned, Needs::Reboot));
    wanted.asked = true;
    let planned = plan_machines(&seen(vec![wanted], vec![], vec![]), &wishes(1, false, Budget::Count(1)));
    assert_eq!(said(&planned), "waiting: wait (somebody else wants the node out (annotation kiln.dev/upkeep)), same");
}
