//! Policies: any JSON is read as a policy or refused within bounds; what is read composes the same twice, with an owner for
//! every field, and what nmstate's capture engine is given does not end the program.
#![no_main]

use std::collections::BTreeMap;

use kiln_core::policy::{Allocations, Captured, NetworkPolicy, Node, allocate, compose, lint, preview};
use serde_json::{Value, json};

fn state() -> Value {
    json!({
        "interfaces": [
            {"name": "eth0", "type": "ethernet", "state": "up", "mac-address": "52:54:00:AA:00:01", "mtu": 1500,
             "ipv4": {"enabled": true, "dhcp": false, "address": [{"ip": "192.0.2.10", "prefix-length": 24}]}},
            {"name": "eth1", "type": "ethernet", "state": "up", "mac-address": "52:54:00:AA:00:02"},
        ],
        "routes": {
            "running": [{"destination": "0.0.0.0/0", "next-hop-address": "192.0.2.1", "next-hop-interface": "eth0", "table-id": 254}],
            "config": [{"destination": "0.0.0.0/0", "next-hop-address": "192.0.2.1", "next-hop-interface": "eth0", "table-id": 254}],
        },
    })
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // Objects one per line, as a fuzzer can put them together; the name makes them differ.
    let objects = text.lines().take(4).filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut policies: Vec<NetworkPolicy> = objects.filter_map(|object| NetworkPolicy::read(&object).ok()).collect();
    policies.sort_by(|one, two| one.name.cmp(&two.name));
    policies.dedup_by(|two, one| one.name == two.name);
    let labels = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
    let (allocations, _) = allocate(&policies, [("n0", &labels), ("n1", &labels)], &Allocations::new());
    let (state, captured) = (state(), Captured::new());
    let node = Node {
        name: "n0",
        labels: &labels,
        base: Some(&state),
        pool: None,
        current: Some(&state),
        captured: &captured,
        allocations: &allocations,
    };
    let composed = compose(&node, &policies);
    policies.reverse();
    assert_eq!(compose(&node, &policies), composed);
    assert!(composed.network == json!({}) || !composed.owners.is_empty());
    let again = Node { captured: &composed.captured, ..node };
    assert_eq!(compose(&again, &policies).network, composed.network);
    let _ = lint([("n0", &composed.network)]);
    let _ = preview(&node, &policies);
});
