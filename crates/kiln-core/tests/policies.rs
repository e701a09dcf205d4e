//! Policies in the shapes kubernetes-nmstate documents, and the network of a node that is composed of them.
//!
//! A case has `policies.yaml`, and `host.yaml` when the host has a network of its own. `state.yaml` beside the cases is the
//! running network of the node. Captures need nmstate's engine, hence the feature.

#![cfg(feature = "captures")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a helper that fails is a failed test"
)]

#[path = "support/fixtures.rs"]
mod fixtures;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use fixtures::{cases, check_cases};
use kiln_core::document::yaml::parse_yaml;
use kiln_core::policy::{Allocations, Captured, Composed, NetworkPolicy, Node, compose};
use kiln_core::source::SourceMap;
use serde_json::Value;

fn documents(path: &Path) -> Vec<Value> {
    let mut sources = SourceMap::default();
    let file = sources.add("input.yaml", fs::read_to_string(path).unwrap());
    let (documents, findings) = parse_yaml(file, sources.file(file));
    assert_eq!(findings, [], "{}", path.display());
    documents.iter().map(|document| document.to_json()).collect()
}

fn policies(case: &Path) -> Vec<NetworkPolicy> {
    documents(&case.join("policies.yaml")).iter().map(|object| NetworkPolicy::read(object).unwrap()).collect()
}

fn composed(case: &Path, policies: &[NetworkPolicy], captured: &Captured) -> Composed {
    let state = documents(&case.with_file_name("state.yaml")).remove(0);
    let host = case.join("host.yaml");
    let base = host.exists().then(|| documents(&host).remove(0));
    let labels = [
        ("kubernetes.io/hostname", "worker-0"),
        ("node-role.kubernetes.io/worker", ""),
        ("topology.kubernetes.io/zone", "b"),
    ];
    let labels: BTreeMap<String, String> =
        labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let node = Node {
        name: "worker-0",
        labels: &labels,
        base: base.as_ref(),
        pool: None,
        current: Some(&state),
        captured,
        allocations: &Allocations::new(),
    };
    compose(&node, policies)
}

#[test]
fn documented_policies_become_one_network() {
    check_cases("policies", |case| {
        let composed = composed(case, &policies(case), &Captured::new());
        let mut text = format!("{}\n", serde_json::to_string_pretty(&composed.network).unwrap());
        if composed.persistent != composed.network {
            text += &format!("--- after a reboot\n{}\n", serde_json::to_string_pretty(&composed.persistent).unwrap());
        }
        text += "--- layers\n";
        composed.policies.iter().for_each(|policy| text += &format!("{} {}\n", policy.name, policy.generation));
        for (name, error) in &composed.refused {
            text += &format!("{name} is refused: {error}\n");
        }
        text += "--- owners\n";
        composed.owners.iter().for_each(|(field, owner)| text += &format!("{owner}  {field}\n"));
        if composed.proof != kiln_core::assignment::Proof::default() {
            text += &format!("--- proof\n{:?}\n", composed.proof);
        }
        text
    });
}

#[test]
fn what_is_composed_is_what_nmstate_reads() {
    for case in cases("policies") {
        let composed = composed(&case, &policies(&case), &Captured::new());
        for document in [&composed.network, &composed.persistent] {
            nmstate::NetworkState::new_from_json(&document.to_string())
                .unwrap_or_else(|error| panic!("{}: {error}", case.display()));
        }
    }
}

/// The captures of upstream's most famous policy, filled in by Kiln and by nmstate.
#[test]
fn templates_are_filled_in_as_nmstate_fills_them_in() {
    let mut seen = 0;
    for case in cases("policies") {
        let state = documents(&case.with_file_name("state.yaml")).remove(0);
        for object in documents(&case.join("policies.yaml")) {
            let policy = NetworkPolicy::read(&object).unwrap();
            if policy.captures.is_empty() {
                continue;
            }
            let engine: nmstate::NetworkPolicy = serde_json::from_value(serde_json::json!({
                "capture": object["spec"]["capture"], "desiredState": object["spec"]["desiredState"],
            }))
            .unwrap();
            let current: nmstate::NetworkState = serde_json::from_value(state.clone()).unwrap();
            let captured = engine.capture.execute(&current);
            let theirs = captured.and_then(|captured| engine.desired.fill_with_captured_data(&captured));
            let bare = case.with_file_name("without-a-host");
            let mut ours = composed(&bare, &[policy], &Captured::new()).network;
            let ports = ours.pointer_mut("/interfaces/0/bridge/port/0").and_then(Value::as_object_mut);
            ports.map(|port| port.remove("vlan"));
            match theirs {
                Err(_) => assert_eq!(ours, serde_json::json!({}), "{}", case.display()),
                Ok(theirs) => {
                    seen += 1;
                    assert_eq!(nmstate::NetworkState::new_from_json(&ours.to_string()).unwrap(), theirs);
                }
            }
        }
    }
    assert!(seen > 0);
}

#[test]
fn what_was_captured_once_stays_when_the_node_has_changed() {
    let case = cases("policies")
        .into_iter()
        .find(|case| case.ends_with("the_default_gateways_nic_becomes_a_port_of_a_bridge"));
    let case = case.unwrap();
    let first = composed(&case, &policies(&case), &Captured::new());
    let mut kept = first.captured.clone();
    assert_eq!(composed(&case, &policies(&case), &kept), first);
    let gateway = kept.get_mut("br-primary").unwrap().pointer_mut("/base-iface/interfaces/0/name").unwrap();
    *gateway = "eth2".into();
    let later = composed(&case, &policies(&case), &kept);
    assert_eq!(
        later.network.pointer("/interfaces/1/bridge/port/0/name"),
        Some(&Value::from("eth2")),
        "the kept answer is used"
    );
}

/// The seeds of the fuzz target, with bytes changed: whatever comes out is read or refused, and composes the same twice.
#[test]
fn mutated_policies_are_read_without_panic_and_compose_the_same_twice() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/policy");
    let seeds: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap()).collect();
    let state = documents(&cases("policies")[0].with_file_name("state.yaml")).remove(0);
    let labels = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
    let mut random: u64 = 7;
    let mut next = |bound: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(random >> 33).unwrap() % bound
    };
    let mut read = 0;
    for round in 0..400 {
        let mut bytes = seeds[round % seeds.len()].clone().into_bytes();
        for _ in 0..next(4) {
            let (at, other) = (next(bytes.len()), next(bytes.len()));
            match next(4) {
                0 => bytes[at] = b"{}[]\",:.0 =|-/a"[next(15)],
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, bytes[other]),
                _ => {
                    let piece = bytes[at.min(other)..at.max(other)].to_vec();
                    bytes.splice(at..at, piece.into_iter().take(40));
                }
            }
        }
        let Ok(text) = String::from_utf8(bytes) else { continue };
        let objects = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut policies: Vec<NetworkPolicy> = objects.filter_map(|object| NetworkPolicy::read(&object).ok()).collect();
        read += policies.len();
        let (allocations, _) = kiln_core::policy::allocate(&policies, [("n0", &labels)], &Allocations::new());
        let captured = Captured::new();
        let node = Node {
            name: "n0",
            labels: &labels,
            base: Some(&state),
            pool: None,
            current: Some(&state),
            captured: &captured,
            allocations: &allocations,
        };
        let first = compose(&node, &policies);
        policies.sort_by(|one, two| two.name.cmp(&one.name));
        let names: std::collections::BTreeSet<&str> = policies.iter().map(|policy| policy.name.as_str()).collect();
        if names.len() == policies.len() {
            assert_eq!(compose(&node, &policies), first, "{text}");
        }
        let _ = kiln_core::policy::preview(&node, &policies);
    }
    assert!(read > 100, "{read} mutated policies were still policies");
}
