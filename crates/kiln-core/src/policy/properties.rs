//! What holds of every composition, whatever the policies.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::fields::fields;
use super::*;

/// Interfaces that meet often, with fields that meet often.
fn interface() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec!["eth0", "eth1", "eth2", "bond0", "br0"]);
    let port = prop::sample::select(vec!["eth0", "eth1", "eth2"]);
    (name, port, 0_u8..12).prop_map(|(name, port, what)| match (name, what) {
        ("bond0", 0) => json!({"name": name, "type": "bond", "state": "absent"}),
        ("bond0", _) => json!({"name": name, "type": "bond", "link-aggregation": {"mode": "active-backup", "port": [port]}}),
        ("br0", 0) => json!({"name": name, "type": "linux-bridge", "state": "absent"}),
        ("br0", _) => json!({"name": name, "type": "linux-bridge", "bridge": {"port": [{"name": port}]}}),
        (_, 0) => json!({"name": name, "type": "ethernet", "state": "absent"}),
        (_, 1..=4) => json!({"name": name, "mtu": 1400 + u32::from(what)}),
        (_, 5..=8) => json!({"name": name, "ipv4": {"enabled": true, "address": [{"ip": format!("10.0.0.{what}"), "prefix-length": 24}]}}),
        _ => json!({"name": name, "type": "ethernet", "ipv6": {"enabled": what % 2 == 0}}),
    })
}

fn document() -> impl Strategy<Value = Value> {
    let route = (prop::sample::select(vec!["eth0", "eth1", "br0"]), 0_u8..6).prop_map(|(over, what)| match what {
        0 => json!({"state": "absent", "next-hop-interface": over}),
        _ => json!({"destination": format!("198.51.{what}.0/24"), "next-hop-address": "10.0.0.1", "next-hop-interface": over}),
    });
    let servers = prop::collection::vec(prop::sample::select(vec!["10.0.0.53", "10.0.1.53", "10.0.2.53"]), 0..3);
    (prop::collection::vec(interface(), 0..4), prop::collection::vec(route, 0..3), servers).prop_map(
        |(interfaces, routes, mut servers)| {
            let mut names = BTreeSet::new();
            let interfaces: Vec<Value> =
                interfaces.into_iter().filter(|interface| names.insert(interface["name"].to_string())).collect();
            servers.dedup();
            let mut document = json!({});
            if !interfaces.is_empty() {
                document["interfaces"] = interfaces.into();
            }
            if !routes.is_empty() {
                document["routes"] = json!({"config": routes});
            }
            if !servers.is_empty() {
                document["dns-resolver"] = json!({"config": {"server": servers}});
            }
            document
        },
    )
}

fn policy_set() -> impl Strategy<Value = Vec<NetworkPolicy>> {
    let one = (document(), 0_i64..3, 0_u8..4, prop::option::of(0_usize..5), any::<bool>());
    prop::collection::vec(one, 0..5).prop_map(|all| {
        let read =
            |(index, (desired, priority, created, after, runtime)): (usize, (Value, i64, u8, Option<usize>, bool))| {
                let persistence = if runtime { "Runtime" } else { "Persistent" };
                let after: Vec<String> = after.into_iter().map(|after| format!("p{after}")).collect();
                let metadata =
                    json!({"name": format!("p{index}"), "generation": 1, "creationTimestamp": created.to_string()});
                let kiln = json!({"priority": priority, "after": after, "persistence": persistence});
                NetworkPolicy::read(&json!({"metadata": metadata, "spec": {"desiredState": desired, "kiln": kiln}}))
                    .unwrap()
            };
        all.into_iter().enumerate().map(read).collect()
    })
}

fn composed(base: &Value, policies: &[NetworkPolicy]) -> Composed {
    let (labels, captured, allocations) = (BTreeMap::new(), Captured::new(), Allocations::new());
    let (name, base) = ("n0", Some(base));
    compose(
        &Node {
            name,
            labels: &labels,
            base,
            pool: None,
            current: None,
            captured: &captured,
            allocations: &allocations,
        },
        policies,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_order_policies_come_in_does_not_matter(base in document(), policies in policy_set(), turns in 0_usize..5) {
        let first = composed(&base, &policies);
        let mut turned = policies.clone();
        turned.rotate_left(turns.min(policies.len()));
        prop_assert_eq!(&composed(&base, &turned), &first);
        turned.reverse();
        prop_assert_eq!(&composed(&base, &turned), &first);
    }

    #[test]
    fn every_field_has_an_owner_that_exists_and_nothing_else_has(base in document(), policies in policy_set()) {
        let composed = composed(&base, &policies);
        let written: BTreeSet<String> = fields(&composed.network).iter().map(|field| field.path.to_string()).collect();
        let owned: BTreeSet<String> = composed.owners.keys().cloned().collect();
        prop_assert_eq!(written, owned);
        for owner in composed.owners.values() {
            let known = owner == "host" || composed.policies.iter().any(|policy| format!("policy/{}", policy.name) == *owner);
            prop_assert!(known, "{}", owner);
        }
        prop_assert_eq!(composed.policies.len() + composed.refused.len(), policies.len());
    }

    #[test]
    fn what_is_refused_counts_for_nothing_but_its_name(base in document(), policies in policy_set()) {
        let composed_all = composed(&base, &policies);
        let in_force: Vec<NetworkPolicy> = policies
            .iter()
            .filter(|policy| composed_all.policies.iter().any(|known| known.name == policy.name))
            .cloned()
            .collect();
        let again = composed(&base, &in_force);
        prop_assert_eq!(&again.network, &composed_all.network);
        prop_assert_eq!(&again.revision, &composed_all.revision);
        prop_assert_eq!(&again.refused, &vec![]);
    }

    #[test]
    fn without_policies_the_host_is_as_it_was(base in document()) {
        let alone = composed(&base, &[]);
        prop_assert_eq!(fields(&alone.network).len(), alone.owners.len());
        let mut twice = base.clone();
        if let Some(routes) = twice.pointer_mut("/routes/config").and_then(Value::as_array_mut) {
            let mut seen = BTreeSet::new();
            routes.retain(|route| seen.insert(route.to_string()));
        }
        if let Some(servers) = twice.pointer_mut("/dns-resolver/config/server").and_then(Value::as_array_mut) {
            let mut seen = BTreeSet::new();
            servers.retain(|server| seen.insert(server.to_string()));
        }
        prop_assert_eq!(&alone.network, &twice);
        prop_assert_eq!(&alone.persistent, &twice);
    }

    #[test]
    fn what_survives_a_reboot_is_the_composition_of_what_survives(base in document(), policies in policy_set()) {
        let all = composed(&base, &policies);
        let runtime = |policy: &NetworkPolicy| policy.options.persistence == Persistence::Runtime;
        if !policies.iter().any(runtime) {
            prop_assert_eq!(&all.network, &all.persistent);
        }
        if policies.iter().all(runtime) {
            prop_assert_eq!(&all.persistent, &composed(&base, &[]).network);
        }
    }

    #[test]
    fn addresses_are_never_given_twice_and_stay(
        sets in prop::collection::vec(prop::collection::btree_set(0_u8..20, 0..12), 1..6),
        size in 1_u8..14,
    ) {
        let policy = NetworkPolicy::read(&json!({"metadata": {"name": "p"}, "spec": {"kiln": {"parameters": {"pools": [
            {"name": "pool", "ranges": [format!("10.0.0.1-10.0.0.{size}")]}]}}}})).unwrap();
        let labels = BTreeMap::new();
        let mut held = Allocations::new();
        for set in sets {
            let names: Vec<String> = set.iter().map(|node| format!("n{node}")).collect();
            let nodes: Vec<(&str, &BTreeMap<String, String>)> = names.iter().map(|name| (name.as_str(), &labels)).collect();
            let (given, refused) = allocate(std::slice::from_ref(&policy), nodes.clone(), &held);
            let turned: Vec<_> = nodes.iter().rev().copied().collect();
            prop_assert_eq!(&allocate(std::slice::from_ref(&policy), turned, &held).0, &given);
            let pool = &given["p"]["pool"];
            let distinct: BTreeSet<_> = pool.values().collect();
            prop_assert_eq!(distinct.len(), pool.len());
            let without: usize = refused.iter().map(|(_, error)| match error {
                PolicyError::Exhausted { nodes, .. } => nodes.len(),
                _ => 0,
            }).sum();
            let served = names.iter().filter(|name| pool.contains_key(*name)).count();
            prop_assert_eq!(served + without, names.len());
            prop_assert_eq!(served, names.len().min(size.into()), "nobody goes without while an address is left");
            if let Some(before) = held.get("p").and_then(|pools| pools.get("pool")) {
                for (node, address) in before.iter().filter(|(node, _)| names.contains(node)) {
                    prop_assert_eq!(pool.get(node), Some(address));
                }
            }
            held = given;
        }
    }
}

/// Words of capture expressions and templates, in any order: what nmstate's engine is given must not end the program.
fn words() -> impl Strategy<Value = String> {
    let words = [
        "interfaces",
        "interfaces.name",
        "interfaces.0.name",
        "interfaces.",
        "interfaces.ipv4.address.0.ip",
        "routes",
        "routes.running",
        "routes.running.destination",
        "routes.running.0.next-hop-interface",
        "routes.config.",
        "route-rules.config.priority",
        "capture",
        "capture.a",
        "capture.a.",
        "capture.a.interfaces",
        "capture.a.interfaces.0.name",
        "capture.b.routes.running.0",
        "capture.b.routes.running",
        "capture..x",
        "==",
        "=",
        ":=",
        ":",
        "|",
        "!=",
        "\"eth0\"",
        "\"0.0.0.0/0\"",
        "\"",
        "null",
        "0",
        "99999999999999999999",
        "-1",
        "é",
        "\u{a0}",
        " ",
        "{{",
        "}}",
        "",
    ];
    prop::collection::vec(prop::sample::select(words.to_vec()), 0..7).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_capture_and_any_template_is_answered_or_refused(a in words(), b in words(), template in words()) {
        let object = json!({"metadata": {"name": "p"}, "spec": {
            "capture": {"a": a, "b": b},
            "desiredState": {"interfaces": [{"name": "br0", "type": "linux-bridge", "description": format!("{{{{ {template} }}}}"), "ipv4": template}]},
        }});
        let Ok(policy) = NetworkPolicy::read(&object) else { return Ok(()) };
        let (state, labels, captured, allocations) = (super::tests::state(), BTreeMap::new(), Captured::new(), Allocations::new());
        let node = Node {
            name: "n0", labels: &labels, base: None, pool: None, current: Some(&state), captured: &captured, allocations: &allocations,
        };
        let composed = compose(&node, std::slice::from_ref(&policy));
        prop_assert_eq!(composed.policies.len() + composed.refused.len(), 1);
    }
}
