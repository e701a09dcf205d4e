//! Who goes, who waits, and which slots end.

use super::*;

fn reference(name: &str) -> PolicyReference {
    PolicyReference { name: name.into(), generation: 1 }
}

fn node(id: &str, told: Option<(&str, Phase, i64)>) -> Node {
    Node {
        id: id.into(),
        ready: true,
        wished: Some(Wished { revision: "r".into(), policies: vec![reference("p")], repair: false }),
        told: told.map(|(revision, phase, at)| Told {
            revision: revision.into(),
            phase,
            disruption: Disruption::LinkBounce,
            at: Moment(at),
        }),
        ..Node::default()
    }
}

#[test]
fn a_slot_ends_for_these_reasons_only() {
    // Renewed at 100, over at 200.
    let slot = |revision: &str, taken: bool| Slot {
        node: "n".into(),
        holder: Holder::Change { revision: revision.into(), policies: vec![reference("p")] },
        taken,
        renewed: Moment(100),
        expires: Moment(200),
    };
    let told = |revision: &'static str, phase: Phase, at: i64| Some((revision, phase, at));
    let planned = |at: i64| told("r", Phase::Planned, at);
    for (slot, told, now, expected) in [
        (slot("r", false), planned(90), 150, Fate::Held),
        (slot("r", false), planned(90), 200, Fate::Over(Ended::NotTaken)),
        (slot("old", false), planned(90), 150, Fate::Over(Ended::NotTaken)),
        (slot("r", true), planned(90), 150, Fate::Held),
        (slot("r", true), told("r", Phase::Trying, 110), 150, Fate::Held),
        (slot("r", true), told("r", Phase::Applied, 110), 150, Fate::Over(Ended::Finished)),
        (slot("r", true), told("r", Phase::RolledBack("x".into()), 110), 300, Fate::Over(Ended::Finished)),
        // Silent: lost, however long.
        (slot("r", true), told("r", Phase::Trying, 110), 9999, Fate::Lost),
        (slot("r", true), planned(90), 9999, Fate::Lost),
        (slot("r", true), planned(201), 300, Fate::Over(Ended::CameBack)),
        // Superseded: kept until the node speaks of something else or of its end.
        (slot("old", true), told("old", Phase::Trying, 110), 150, Fate::Held),
        (slot("old", true), told("old", Phase::Applied, 110), 150, Fate::Over(Ended::Finished)),
        (slot("old", true), planned(120), 150, Fate::Over(Ended::CameBack)),
        (slot("old", true), told("older", Phase::Planned, 120), 150, Fate::Held),
    ] {
        let node = node("n", told);
        assert_eq!(judge_slot(&slot, Some(&node), Moment(now)), expected, "{slot:?} {:?} at {now}", node.told);
    }
    assert_eq!(judge_slot(&slot("r", true), None, Moment(0)), Fate::Over(Ended::Gone));

    let boots = Slot { holder: Holder::Upkeep(Upkeep::Reboot), ..slot("r", true) };
    for (upkeep, ready, now, expected) in [
        (Some(Upkeep::Reboot), false, 1999, Fate::Held),
        (Some(Upkeep::Reboot), false, 2000, Fate::Lost),
        (Some(Upkeep::Reboot), true, 9999, Fate::Held),
        (Some(Upkeep::Drain), true, 150, Fate::Over(Ended::NotAsked)),
        (None, false, 150, Fate::Over(Ended::NotAsked)),
    ] {
        let node = Node { upkeep, ready, ..node("n", None) };
        assert_eq!(judge_slot(&boots, Some(&node), Moment(now)), expected, "{upkeep:?} {ready} at {now}");
    }
}

/// Five nodes that have said what they would change.
fn five() -> Vec<Node> {
    (0..5)
        .map(|number| Node {
            labels: BTreeMap::from([("zone".to_owned(), if number < 2 { "b" } else { "a" }.to_owned())]),
            ..node(&format!("n{number}"), Some(("r", Phase::Planned, 1)))
        })
        .collect()
}

fn policy() -> Policy {
    let members = (0..5).map(|number| format!("n{number}")).collect();
    Policy { name: "p".into(), generation: 1, members, ..Policy::default() }
}

fn granted(nodes: &[Node], policy: &Policy) -> (String, Rollout) {
    let policies = std::slice::from_ref(policy);
    let pools = BTreeMap::new();
    let rollout = plan_rollout(&Situation { now: Moment(10), nodes, slots: &[], policies, pools: &pools });
    (rollout.grants.keys().cloned().collect::<Vec<_>>().join(" "), rollout)
}

#[test]
fn who_goes_first_follows_budget_canary_wave_and_pause() {
    let waves = Some(Waves { label: "zone".into(), order: vec!["a".into()] });
    let mut away = five();
    away[0].ready = false;
    let mut proved = five();
    proved[0].applied = vec![reference("p")];
    proved[0].told = Some(Told { phase: Phase::Applied, ..proved[0].told.clone().unwrap() });
    let one = Some(Canary::Count(1));
    for (nodes, policy, expected) in [
        (five(), policy(), "n0 n1 n2"),
        (five(), Policy { budget: Budget::Count(1), ..policy() }, "n0"),
        (five(), Policy { budget: Budget::Count(9), ..policy() }, "n0 n1 n2 n3"),
        // Whoever is not ready is skipped, and takes nobody's place.
        (away.clone(), policy(), "n1 n2 n3"),
        // Of those that live one always stays.
        (away.clone(), Policy { budget: Budget::Count(9), ..policy() }, "n1 n2 n3"),
        (five(), Policy { canary: one.clone(), ..policy() }, "n0"),
        (away, Policy { canary: one.clone(), ..policy() }, "n1"),
        (proved.clone(), Policy { canary: one, ..policy() }, "n1 n2 n3"),
        (five(), Policy { waves: waves.clone(), ..policy() }, "n2 n3 n4"),
        (five(), Policy { waves, budget: Budget::Count(2), ..policy() }, "n2 n3"),
        (five(), Policy { paused: true, ..policy() }, ""),
    ] {
        assert_eq!(granted(&nodes, &policy).0, expected, "{policy:?}");
    }
}

#[test]
fn failures_halt_the_rest_and_take_back_what_was_given() {
    let mut nodes = five();
    for node in &mut nodes[..3] {
        node.told = Some(Told { phase: Phase::RolledBack("no gateway".into()), ..node.told.clone().unwrap() });
    }
    nodes[3].applied = vec![reference("p")];
    nodes[3].told.as_mut().unwrap().phase = Phase::Applied;
    let (given, rollout) = granted(&nodes, &Policy { revert: true, ..policy() });
    assert_eq!(given, "");
    let progress = rollout.policies["p"];
    assert_eq!((progress.failed, progress.available, progress.aborted, progress.halted), (3, 1, 1, true));
    assert_eq!(rollout.enactments["p"]["n0"], Enactment::Failing("no gateway".into()));
    assert_eq!(rollout.enactments["p"]["n4"], Enactment::Aborted);
    assert_eq!(rollout.withdraw, [reference("p")]);
    // One failure of three that may fail halts nobody, unless it is the canary's; but it keeps its place.
    nodes[1] = five()[1].clone();
    nodes[2] = five()[2].clone();
    assert_eq!(granted(&nodes, &policy()).0, "n1 n2");
    assert_eq!(granted(&nodes, &Policy { canary: Some(Canary::Count(1)), ..policy() }).0, "");
}

#[test]
fn stages_that_wait_for_each_other_are_untied() {
    let canary = |node: &str| Some(Canary::Nodes(BTreeSet::from([node.to_owned()])));
    let policies =
        [Policy { canary: canary("n0"), ..policy() }, Policy { name: "q".into(), canary: canary("n1"), ..policy() }];
    let mut nodes = five();
    for node in &mut nodes {
        node.wished.as_mut().unwrap().policies.push(reference("q"));
    }
    let pools = BTreeMap::new();
    let situation = Situation { now: Moment(10), nodes: &nodes, slots: &[], policies: &policies, pools: &pools };
    let rollout = plan_rollout(&situation);
    assert_eq!(rollout.grants.keys().collect::<Vec<_>>(), ["n0"]);
}

#[test]
fn a_node_that_dies_frees_its_slot_for_everything_but_what_it_died_of() {
    let died = |generation: i64| {
        let mut nodes = five();
        nodes[0].ready = false;
        nodes[0].told = Some(Told { phase: Phase::Trying, ..nodes[0].told.clone().unwrap() });
        let slot = Slot {
            node: "n0".into(),
            holder: Holder::Change { revision: "r".into(), policies: vec![reference("p")] },
            taken: true,
            renewed: Moment(1),
            expires: Moment(9),
        };
        let wished = Wished { revision: format!("r{generation}"), policies: vec![], repair: false };
        for node in &mut nodes {
            let policies = vec![PolicyReference { name: "p".into(), generation }];
            node.wished = Some(Wished { policies, ..wished.clone() });
            if node.id != "n0" {
                node.told.as_mut().unwrap().revision.clone_from(&wished.revision);
            }
        }
        (nodes, slot)
    };
    let given = |now: i64, generation: i64, budget: usize| {
        let (nodes, slot) = died(generation);
        let policies = [Policy { generation, budget: Budget::Count(budget), ..policy() }];
        let (slots, pools) = ([slot], BTreeMap::new());
        let situation =
            Situation { now: Moment(now), nodes: &nodes, slots: &slots, policies: &policies, pools: &pools };
        let rollout = plan_rollout(&situation);
        (rollout.grants.keys().cloned().collect::<Vec<_>>().join(" "), rollout.policies["p"].halted)
    };
    // While its time runs, it may still come back; then it is a failure, and the budget of this generation is less.
    assert_eq!(given(8, 1, 1), (String::new(), false));
    assert_eq!(given(10, 1, 1), (String::new(), true));
    assert_eq!(given(10, 1, 3), ("n1 n2".into(), false));
    // Edited, the policy owes it nothing.
    assert_eq!(given(10, 2, 1), ("n1".into(), false));
    assert_eq!(given(10, 2, 9), ("n1 n2 n3".into(), false));
}

#[test]
fn a_node_that_came_back_without_a_change_keeps_its_place_and_its_turn_in_every_revision() {
    let came_back = |generation: i64| {
        let mut nodes = five();
        // Of the last wave, and no canary.
        nodes[0].lost = Some(Lost {
            loss: Loss {
                revision: "before another policy was edited".into(),
                policies: vec![PolicyReference { name: "p".into(), generation }],
            },
            given_up: false,
        });
        nodes
    };
    let waves = Some(Waves { label: "zone".into(), order: vec!["a".into()] });
    let canary = Some(Canary::Nodes(BTreeSet::from(["n4".to_owned()])));
    let one = Budget::Count(1);
    for (nodes, policy, expected) in [
        // Nobody waits for the place it keeps without end: it goes first, whatever its wave and whoever is the canary.
        (came_back(1), Policy { budget: one, waves: waves.clone(), ..policy() }, "n0"),
        (came_back(1), Policy { budget: one, canary: canary.clone(), ..policy() }, "n0"),
        (came_back(1), Policy { paused: true, ..policy() }, ""),
        // Of what the policy said before, nothing is left.
        (came_back(0), Policy { budget: one, waves, ..policy() }, "n2"),
        (came_back(0), Policy { budget: one, canary, ..policy() }, "n4"),
    ] {
        assert_eq!(granted(&nodes, &policy).0, expected, "{policy:?}");
    }

    // Its time was over when it came back, with another revision: a loss all the same. In time, it only turned to what is wished.
    for (said, expected) in [(20, vec!["n0"]), (8, vec![])] {
        let mut nodes = five();
        nodes[0].told.as_mut().unwrap().at = Moment(said);
        let slot = Slot {
            node: "n0".into(),
            holder: Holder::Change { revision: "old".into(), policies: vec![reference("p")] },
            taken: true,
            renewed: Moment(1),
            expires: Moment(9),
        };
        let (slots, pools, policies) = ([slot], BTreeMap::new(), [policy()]);
        let situation = Situation { now: Moment(21), nodes: &nodes, slots: &slots, policies: &policies, pools: &pools };
        let rollout = plan_rollout(&situation);
        assert_eq!(rollout.failures.keys().collect::<Vec<_>>(), expected, "said at {said}");
    }
}

#[test]
fn what_changes_nothing_needs_no_slot_and_a_reboot_needs_one() {
    let mut nodes = five();
    nodes[0].told.as_mut().unwrap().disruption = Disruption::None;
    nodes[1].upkeep = Some(Upkeep::Reboot);
    let (given, rollout) = granted(&nodes, &Policy { budget: Budget::Count(1), ..policy() });
    assert_eq!((given.as_str(), &rollout.nodes["n0"]), ("n1", &Standing::Free));
    assert_eq!(rollout.grants["n1"], Holder::Upkeep(Upkeep::Reboot));
    let of = Standing::Waiting(Reason::Budget { of: "policy p".into(), limit: 1 });
    assert_eq!(rollout.nodes["n2"], of);
}
