//! Tables and properties of composing.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;

fn policy(name: &str, spec: Value) -> NetworkPolicy {
    NetworkPolicy::read(&json!({"metadata": {"name": name, "generation": 1}, "spec": spec})).unwrap()
}

fn composed(base: &Value, policies: &[NetworkPolicy]) -> Composed {
    let (labels, captured, allocations) = (BTreeMap::new(), Captured::new(), Allocations::new());
    let node = Node {
        name: "n0",
        labels: &labels,
        base: Some(base),
        pool: None,
        current: None,
        captured: &captured,
        allocations: &allocations,
    };
    compose(&node, policies)
}

#[test]
fn a_policy_is_laid_over_the_host_field_by_field() {
    let base = json!({"interfaces": [{"name": "eth0", "type": "ethernet", "mtu": 1500, "ipv4": {"enabled": true, "dhcp": true}}]});
    let mtu = policy("mtu", json!({"desiredState": {"interfaces": [{"name": "eth0", "mtu": 9000}]}}));
    let composed = composed(&base, &[mtu]);
    assert_eq!(
        composed.network,
        json!({"interfaces": [{"name": "eth0", "type": "ethernet", "mtu": 9000, "ipv4": {"enabled": true, "dhcp": true}}]})
    );
    assert_eq!(composed.owners["interfaces[eth0].mtu"], "policy/mtu");
    assert_eq!(composed.owners["interfaces[eth0].ipv4.dhcp"], "host");
    assert_eq!(composed.refused, vec![]);
    assert_eq!(composed.network, composed.persistent);
}

fn aged(name: &str, created: &str, spec: Value) -> NetworkPolicy {
    let metadata = json!({"name": name, "generation": 1, "creationTimestamp": created});
    NetworkPolicy::read(&json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn mtu(value: u64, kiln: Value) -> Value {
    json!({"desiredState": {"interfaces": [{"name": "eth0", "mtu": value}]}, "kiln": kiln})
}

fn names(composed: &Composed) -> Vec<&str> {
    composed.policies.iter().map(|policy| policy.name.as_str()).collect()
}

fn refusals(composed: &Composed) -> Vec<String> {
    composed.refused.iter().map(|(name, error)| format!("{name}: {error}")).collect()
}

#[test]
fn the_older_of_two_that_quarrel_stays_in_force() {
    let old = aged("z-old", "2026-01-01T00:00:00Z", mtu(9000, Value::Null));
    let new = aged("a-new", "2026-01-02T00:00:00Z", mtu(1500, Value::Null));
    let composed = composed(&json!({}), &[new, old]);
    assert_eq!(composed.network["interfaces"][0]["mtu"], 9000);
    assert_eq!(
        refusals(&composed),
        ["a-new: interfaces[eth0].mtu: policy `z-old` is older and wants `9000`, this one wants `1500`"]
    );
    assert_eq!(
        composed.conflicts,
        [Conflict {
            field: "interfaces[eth0].mtu".into(),
            kept: "z-old".into(),
            kept_value: 9000.into(),
            refused: "a-new".into(),
            refused_value: 1500.into(),
        }]
    );
}

#[test]
fn a_higher_priority_wins_without_a_quarrel() {
    let old = aged("old", "2026-01-01T00:00:00Z", mtu(9000, Value::Null));
    let new = aged("new", "2026-01-02T00:00:00Z", mtu(1500, json!({"priority": 10})));
    let composed = composed(&json!({}), &[new, old]);
    assert_eq!(composed.network["interfaces"][0]["mtu"], 1500);
    assert_eq!(composed.owners["interfaces[eth0].mtu"], "policy/new");
    assert_eq!(names(&composed), ["old", "new"]);
    assert_eq!(composed.conflicts, []);
}

#[test]
fn what_stands_on_another_comes_after_it_whatever_the_names() {
    let vlan = policy(
        "a-vlan",
        json!({"desiredState": {"interfaces": [
        {"name": "bond0.7", "type": "vlan", "state": "up", "vlan": {"id": 7, "base-iface": "bond0"}}]}}),
    );
    let bond = policy(
        "z-bond",
        json!({"desiredState": {"interfaces": [
        {"name": "bond0", "type": "bond", "state": "up", "link-aggregation": {"mode": "active-backup", "port": ["eth1", "eth2"]}}]}}),
    );
    let routes = policy(
        "routes",
        json!({"desiredState": {"routes": {"config": [
        {"destination": "198.51.100.0/24", "next-hop-address": "192.0.2.1", "next-hop-interface": "bond0.7"}]}}}),
    );
    let composed = composed(&json!({}), &[vlan, routes, bond]);
    assert_eq!(refusals(&composed), [""; 0]);
    assert_eq!(names(&composed), ["z-bond", "a-vlan", "routes"]);
}

#[test]
fn circles_and_unknown_names_in_after_are_refused_with_those_who_need_them() {
    let after = |name: &str, after: &[&str]| policy(name, json!({"kiln": {"after": after}}));
    let all = [
        after("a", &["b"]),
        after("b", &["c"]),
        after("c", &["a"]),
        after("d", &["a"]),
        after("e", &["nobody"]),
        after("f", &[]),
    ];
    let composed = composed(&json!({}), &all);
    let circle = "spec.kiln.after: policies wait for each other: a after b after c after a";
    assert_eq!(
        refusals(&composed),
        [
            format!("a: {circle}"),
            format!("b: {circle}"),
            format!("c: {circle}"),
            "d: it needs policy `a`, which is refused on this node".to_owned(),
            "e: spec.kiln.after[0]: there is no policy `nobody`".to_owned(),
        ]
    );
    assert_eq!(names(&composed), ["f"]);
}

#[test]
fn what_stands_on_a_refused_policy_is_refused_too() {
    let bond = policy(
        "bond",
        json!({"kiln": {"after": ["nobody"]}, "desiredState": {"interfaces": [
        {"name": "bond0", "type": "bond", "link-aggregation": {"mode": "active-backup", "port": ["eth1"]}}]}}),
    );
    let vlan = policy(
        "vlan",
        json!({"desiredState": {"interfaces": [
        {"name": "bond0.7", "type": "vlan", "vlan": {"id": 7, "base-iface": "bond0"}}]}}),
    );
    assert_eq!(
        refusals(&composed(&json!({}), &[vlan.clone(), bond.clone()])),
        [
            "bond: spec.kiln.after[0]: there is no policy `nobody`",
            "vlan: it needs policy `bond`, which is refused on this node",
        ]
    );
    let host = json!({"interfaces": [{"name": "bond0", "type": "bond", "link-aggregation": {"mode": "802.3ad", "port": ["eth1"]}}]});
    assert_eq!(names(&composed(&host, &[vlan, bond])), ["vlan"], "the host has the bond itself");
}

#[test]
fn a_reboot_undoes_runtime_policies_and_what_stands_on_them() {
    let bond = policy(
        "bond",
        json!({"kiln": {"persistence": "Runtime"}, "desiredState": {"interfaces": [
        {"name": "bond0", "type": "bond", "link-aggregation": {"mode": "active-backup", "port": ["eth1"]}}]}}),
    );
    let vlan = policy(
        "vlan",
        json!({"desiredState": {"interfaces": [
        {"name": "bond0.7", "type": "vlan", "vlan": {"id": 7, "base-iface": "bond0"}}]}}),
    );
    let base = json!({"interfaces": [{"name": "eth0", "type": "ethernet"}]});
    let composed = composed(&base, &[bond, vlan]);
    assert_eq!(composed.persistent, base);
    assert_eq!(composed.network["interfaces"].as_array().unwrap().len(), 3);
}

#[test]
fn a_port_gives_up_the_addresses_and_routes_of_the_host() {
    let base = json!({
        "interfaces": [{"name": "eth0", "type": "ethernet", "mtu": 9000, "ipv4": {"enabled": true, "address": [{"ip": "192.0.2.10", "prefix-length": 24}]}}],
        "routes": {"config": [{"destination": "0.0.0.0/0", "next-hop-address": "192.0.2.1", "next-hop-interface": "eth0"}]},
    });
    let bridge = policy(
        "bridge",
        json!({"desiredState": {
            "interfaces": [{"name": "br1", "type": "linux-bridge", "state": "up", "bridge": {"port": [{"name": "eth0", "vlan": {}}]},
                "ipv4": {"enabled": true, "address": [{"ip": "192.0.2.10", "prefix-length": 24}]}}],
            "routes": {"config": [{"destination": "0.0.0.0/0", "next-hop-address": "192.0.2.1", "next-hop-interface": "br1"}]},
        }}),
    );
    let composed = composed(&base, &[bridge]);
    assert_eq!(refusals(&composed), [""; 0]);
    assert_eq!(composed.network["interfaces"][0], json!({"name": "eth0", "type": "ethernet", "mtu": 9000}));
    assert_eq!(composed.network["routes"]["config"].as_array().unwrap().len(), 1);
    assert_eq!(composed.network["routes"]["config"][0]["next-hop-interface"], "br1");
}

#[test]
fn absent_ends_what_lower_layers_say_and_quarrels_with_equals() {
    let base = json!({
        "interfaces": [{"name": "eth1", "type": "ethernet", "mtu": 9000}],
        "routes": {"config": [{"destination": "198.51.100.0/24", "next-hop-address": "192.0.2.1", "next-hop-interface": "eth1"}]},
    });
    let absent = aged(
        "absent",
        "1",
        json!({"desiredState": {"interfaces": [{"name": "eth1", "type": "ethernet", "state": "absent"}]}}),
    );
    let user = aged("user", "2", json!({"desiredState": {"interfaces": [{"name": "eth1", "mtu": 1400}]}}));
    let composed_all = composed(&base, &[user, absent]);
    assert_eq!(composed_all.network, json!({"interfaces": [{"name": "eth1", "type": "ethernet", "state": "absent"}]}));
    assert_eq!(
        refusals(&composed_all),
        ["user: interfaces[eth1].state: policy `absent` is older and wants `\"absent\"`, this one wants `\"up\"`"]
    );
}

#[test]
fn an_absent_route_takes_matching_ones_out_and_stays_for_the_node() {
    let route =
        json!({"destination": "198.51.100.0/24", "next-hop-address": "192.0.2.1", "next-hop-interface": "eth1"});
    let base = json!({"routes": {"config": [route]}});
    let absent = json!({"state": "absent", "next-hop-interface": "eth1"});
    let policy = policy("absent", json!({"desiredState": {"routes": {"config": [absent]}}}));
    assert_eq!(composed(&base, &[policy]).network, json!({"routes": {"config": [absent]}}));
}

#[test]
fn name_servers_of_policies_replace_the_hosts_and_add_to_their_equals() {
    let dns = |servers: &[&str]| json!({"dns-resolver": {"config": {"server": servers}}});
    let with = |name: &str, servers: &[&str]| policy(name, json!({"desiredState": dns(servers)}));
    let host = dns(&["192.0.2.53"]);
    let both = composed(&host, &[with("b", &["10.0.0.2", "10.0.0.1"]), with("a", &["10.0.0.1"])]);
    assert_eq!(both.network, dns(&["10.0.0.1", "10.0.0.2"]));
    let none = policy("none", json!({"desiredState": {"dns-resolver": {"config": {}}}}));
    assert_eq!(composed(&host, &[none]).network, json!({"dns-resolver": {"config": {}}}));
}

#[test]
fn the_proof_is_what_all_ask_for_and_the_hub() {
    let one = policy(
        "one",
        json!({"kiln": {"probes": [{"type": "Tcp", "target": "10.0.0.1:443"}], "soak": "30s", "timeout": "1m"}}),
    );
    let proof = composed(&json!({}), &[one]).proof;
    assert_eq!(proof.probes, [crate::assignment::Probe::Tcp("10.0.0.1:443".into()), crate::assignment::Probe::Hub]);
    assert_eq!((proof.within, proof.soak, proof.checkpoint), (60_000, 30_000, 100_000));
    assert_eq!(composed(&json!({}), &[]).proof, crate::assignment::Proof::default());
}

#[test]
fn drift_of_an_interface_is_judged_by_the_policies_that_own_it() {
    use crate::assignment::Assignment;
    use crate::assignment::DriftAction::{Adopt, Repair, Report};
    let with = |name: &str, interface: &str, drift: Value| {
        let interface = json!({"name": interface, "type": "ethernet", "state": "up", "mtu": 1400});
        policy(name, json!({"kiln": {"drift": drift}, "desiredState": {"interfaces": [interface]}}))
    };
    let base = json!({"interfaces": [{"name": "eth0", "type": "ethernet", "state": "up"},
        {"name": "eth9", "type": "ethernet", "state": "up"}]});
    let lldp = policy(
        "d",
        json!({"kiln": {"drift": "Adopt"},
        "desiredState": {"interfaces": [{"name": "eth0", "type": "ethernet", "lldp": {"enabled": true}}]}}),
    );
    let found = composed(
        &base,
        &[with("a", "eth0", json!("Repair")), with("b", "eth1", json!(null)), with("c", "eth2", json!("Adopt")), lldp],
    );
    // What belongs to no interface is the last one's, as ever.
    assert_eq!(found.drift, Adopt);
    let expected = [("eth0", Repair), ("eth1", Report), ("eth9", Report)].map(|(name, said)| (name.to_owned(), said));
    assert_eq!(found.drift_of, expected.into());
    let assignment = Assignment {
        revision: "r".into(),
        network: json!({}),
        persistent: json!({}),
        policies: vec![],
        proof: Default::default(),
        drift: found.drift,
        drift_of: found.drift_of,
        permit: crate::assignment::Permit::Go(1),
    };
    for (touched, said) in
        [(vec![], Adopt), (vec!["eth2"], Adopt), (vec!["eth1", "eth2"], Report), (vec!["eth1", "eth0"], Repair)]
    {
        assert_eq!(assignment.drift_on(touched.iter().copied()), said, "{touched:?}");
    }
    let owners = |name: &str| found.layers[name].iter().map(String::as_str).collect::<Vec<_>>().join(" ");
    assert_eq!((owners("eth0").as_str(), owners("eth9").as_str()), ("policy/a policy/d", "host"));
    assert_eq!(composed(&base, &[with("a", "eth0", json!(null))]).drift_of, Default::default());
}

#[test]
fn the_hub_is_given_ports_and_never_an_address() {
    use crate::assignment::Probe;
    let read = |probes: Value| {
        let object = json!({"metadata": {"name": "p"}, "spec": {"kiln": {"probes": probes}}});
        NetworkPolicy::read(&object).map(|policy| policy.options.probes.unwrap()).map_err(|error| error.to_string())
    };
    let port = |target: Value| read(json!([{"type": "FromHub", "target": target}]));
    for target in [json!(22), json!("22"), json!(":22")] {
        assert_eq!(port(target), Ok(vec![Probe::FromHub(22)]));
    }
    for target in ["10.0.0.1:22", "node-1:22", "0", ":", "65536", "http://127.0.0.1"] {
        let why = format!("spec.kiln.probes[0].target: `{target}` is not a port such as 22 or :22");
        assert_eq!(port(json!(target)), Err(why));
    }
    assert_eq!(read(json!([{"type": "FromHub"}])), Err("spec.kiln.probes[0]: FromHub needs a target".into()));
    let nine: Vec<Value> = (1..10).map(|port| json!({"type": "FromHub", "target": port})).collect();
    assert_eq!(
        read(json!(nine)),
        Err("spec.kiln.probes: has 9 ports for the hub to reach; at most 8 are taken".into())
    );
    assert_eq!(read(json!([{"type": "Tcp", "target": 22}])), Err("spec.kiln.probes[0].target: must be a text".into()));
}

#[test]
fn the_revision_changes_with_what_counts_and_with_nothing_else() {
    let base = json!({});
    let first = composed(&base, &[policy("p", mtu(9000, Value::Null))]);
    let mut later = policy("p", mtu(9000, Value::Null));
    later.generation = 2;
    assert_eq!(first.revision.len(), 64);
    assert_ne!(first.revision, composed(&base, &[later]).revision);
    assert_ne!(first.revision, composed(&base, &[policy("p", mtu(9001, Value::Null))]).revision);
    let mut elsewhere = policy("q", mtu(1, Value::Null));
    elsewhere.selector.names.push("other".into());
    assert_eq!(first.revision, composed(&base, &[elsewhere, policy("p", mtu(9000, Value::Null))]).revision);
}

#[test]
fn what_cannot_be_read_is_named_by_its_field() {
    for (spec, expected) in [
        (json!({"kiln": {"afterr": []}}), "spec.kiln.afterr: there is no such field; did you mean `after`?"),
        (json!({"kiln": {"priority": "high"}}), "spec.kiln.priority: must be a number"),
        (json!({"kiln": {"probes": [{"type": "Tcp"}]}}), "spec.kiln.probes[0]: Tcp needs a target"),
        (
            json!({"kiln": {"probes": [{"type": "Ping", "target": "x"}]}}),
            "spec.kiln.probes[0].target: `x` is not an address",
        ),
        (json!({"kiln": {"soak": "5"}}), "spec.kiln.soak: `5` is not a time such as 20s, 1m30s or 500ms"),
        (json!({"kiln": {"drift": "Ignore"}}), "spec.kiln.drift: must be one of Report, Repair, Adopt"),
        (
            json!({"kiln": {"nodes": {"matchExpressions": [{"key": "a", "operator": "Gt"}]}}}),
            "spec.kiln.nodes.matchExpressions[0].operator: must be one of In, NotIn, Exists, DoesNotExist",
        ),
        (
            json!({"kiln": {"nodes": {"matchExpressions": [{"key": "a", "operator": "In"}]}}}),
            "spec.kiln.nodes.matchExpressions[0]: In and NotIn need at least one value",
        ),
        (
            json!({"kiln": {"rollout": {"canary": {"count": 0}}}}),
            "spec.kiln.rollout.canary.count: must be a number from 1 on",
        ),
        (json!({"nodeSelector": ["a"]}), "spec.nodeSelector: must be a mapping"),
        (json!({"desiredState": []}), "spec.desiredState: must be a mapping"),
        (
            json!({"desiredState": {"interfaces": [{"mtu": 1}]}}),
            "spec.desiredState.interfaces[0]: must be a mapping with a `name`",
        ),
        (
            json!({"desiredState": {"interfaces": [{"name": "a"}, {"name": "a"}]}}),
            "spec.desiredState.interfaces[1]: is the same interface as interfaces[0]",
        ),
    ] {
        let error = NetworkPolicy::read(&json!({"metadata": {"name": "p"}, "spec": spec})).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn nodes_are_chosen_by_every_part_of_the_choice() {
    let labels = BTreeMap::from([("zone".to_owned(), "a".to_owned()), ("gpu".to_owned(), String::new())]);
    for (spec, expected) in [
        (json!({}), true),
        (json!({"nodeSelector": {"zone": "a"}}), true),
        (json!({"nodeSelector": {"zone": "b"}}), false),
        (json!({"kiln": {"nodes": {"names": ["n0", "n1"]}}}), true),
        (json!({"kiln": {"nodes": {"names": ["n1"]}}}), false),
        (json!({"nodeSelector": {"zone": "b"}, "kiln": {"nodes": {"names": ["n0"]}}}), false),
        (
            json!({"kiln": {"nodes": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}}}),
            true,
        ),
        (
            json!({"kiln": {"nodes": {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}}}),
            false,
        ),
        (
            json!({"kiln": {"nodes": {"matchExpressions": [{"key": "rack", "operator": "NotIn", "values": ["a"]}]}}}),
            true,
        ),
        (json!({"kiln": {"nodes": {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}}}), true),
        (json!({"kiln": {"nodes": {"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}}}), false),
        (json!({"kiln": {"nodes": {"matchLabels": {"zone": "a"}}}}), true),
    ] {
        assert_eq!(policy("p", spec.clone()).selector.matches("n0", &labels), expected, "{spec}");
    }
}

fn on(
    node: &str,
    labels: &[(&str, &str)],
    current: Option<&Value>,
    allocations: &Allocations,
    policies: &[NetworkPolicy],
) -> Composed {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let captured = Captured::new();
    compose(
        &Node { name: node, labels: &labels, base: None, pool: None, current, captured: &captured, allocations },
        policies,
    )
}

fn storage() -> NetworkPolicy {
    policy(
        "storage",
        json!({
            "desiredState": {"interfaces": [{
                "name": "{{ table.nic }}", "type": "ethernet", "mtu": "{{ table.mtu }}", "description": "{{ node.name }} in {{ node.labels.topology.kubernetes.io/zone }}",
                "ipv4": {"enabled": true, "address": [{"ip": "{{ pool.storage }}", "prefix-length": "{{pool.storage.prefix}}"}]},
            }]},
            "kiln": {"parameters": {
                "tables": [
                    {"name": "nic", "by": "MAC", "values": {"52:54:00:aa:00:01": "ens5", "52-54-00-AA-00-02": "ens6"}},
                    {"name": "mtu", "by": "Label", "label": "rack", "values": {"a": 9000}, "default": 1500},
                ],
                "pools": [{"name": "storage", "cidr": "10.20.0.0/29", "exclude": ["10.20.0.1"]}],
            }},
        }),
    )
}

#[test]
fn templates_become_the_values_of_the_node_and_numbers_stay_numbers() {
    let current = json!({"interfaces": [{"name": "x", "type": "ethernet", "mac-address": "52:54:00:AA:00:02"}]});
    let zone = ("topology.kubernetes.io/zone", "z1");
    let given = Allocations::from([(
        "storage".into(),
        BTreeMap::from([("storage".into(), BTreeMap::from([("n0".into(), "10.20.0.5".parse().unwrap())]))]),
    )]);
    let composed = on("n0", &[zone, ("rack", "a")], Some(&current), &given, &[storage()]);
    assert_eq!(refusals(&composed), [""; 0]);
    assert_eq!(
        composed.network,
        json!({"interfaces": [{"name": "ens6", "type": "ethernet", "mtu": 9000, "description": "n0 in z1",
            "ipv4": {"enabled": true, "address": [{"ip": "10.20.0.5", "prefix-length": 29}]}}]})
    );
    let refused = |composed: &Composed| composed.refused[0].1.to_string();
    assert_eq!(
        refused(&on("n0", &[zone], None, &given, &[storage()])),
        "waits for the node's state, which table `nic` needs"
    );
    assert!(on("n0", &[zone], None, &given, &[storage()]).refused[0].1.is_waiting());
    assert_eq!(
        refused(&on("n0", &[], Some(&current), &given, &[storage()])),
        "spec.desiredState.interfaces[0].description: node `n0` has no label `topology.kubernetes.io/zone`"
    );
    assert_eq!(
        refused(&on("n1", &[zone], Some(&current), &given, &[storage()])),
        "spec.kiln.parameters.pools[0]: pool `storage` has no address left for n1"
    );
    let other = json!({"interfaces": []});
    assert_eq!(
        refused(&on("n0", &[zone], Some(&other), &given, &[storage()])),
        "spec.desiredState.interfaces[0].name: table `nic` has no value for node `n0`"
    );
}

#[test]
fn parameters_that_mean_nothing_are_refused_when_the_policy_is_read() {
    let desired = |template: &str| json!({"interfaces": [{"name": "eth0", "description": template}]});
    let pool = |pool: Value| json!({"kiln": {"parameters": {"pools": [pool]}}});
    let table = |table: Value| json!({"kiln": {"parameters": {"tables": [table]}}});
    for (spec, expected) in [
        (
            json!({"desiredState": desired("{{ table.nic }}")}),
            "spec.desiredState.interfaces[0].description: there is no table `nic`: the policy has no tables",
        ),
        (
            json!({"desiredState": desired("a{{ pool.x }}")}),
            "spec.desiredState.interfaces[0].description: there is no pool `x`: the policy has no pools",
        ),
        (
            json!({"desiredState": desired("{{ capture.y.interfaces }}"), "capture": {"x": "interfaces.name==\"a\""}}),
            "spec.desiredState.interfaces[0].description: there is no capture `y`: the policy has the captures x",
        ),
        (
            json!({"desiredState": desired("{{ nod.name }}")}),
            "spec.desiredState.interfaces[0].description: `{{ nod.name }}` is none of node.name, node.labels.KEY, table.NAME, pool.NAME, pool.NAME.prefix, capture.NAME.…",
        ),
        (
            json!({"desiredState": desired("{{ node.name")}),
            "spec.desiredState.interfaces[0].description: `{{ node.name` has no `}}` at its end",
        ),
        (pool(json!({"name": "p"})), "spec.kiln.parameters.pools[0]: needs `cidr` or `ranges`"),
        (
            pool(json!({"name": "p", "cidr": "10.0.0.0"})),
            "spec.kiln.parameters.pools[0].cidr: `10.0.0.0` is not a network",
        ),
        (
            pool(json!({"name": "p", "cidr": "10.0.0.0/24", "exclude": ["10.0.0.0/8"]})),
            "spec.kiln.parameters.pools[0]: has no address left after `exclude`",
        ),
        (
            pool(json!({"name": "p", "cidr": "10.0.0.0/24", "exclude": ["fd00::1"]})),
            "spec.kiln.parameters.pools[0]: mixes IPv4 and IPv6",
        ),
        (
            pool(json!({"name": "p", "ranges": ["10.0.0.9-10.0.0.1"]})),
            "spec.kiln.parameters.pools[0].ranges[0]: `10.0.0.9-10.0.0.1` is not an address, a range such as 10.0.0.1-10.0.0.9, or a network",
        ),
        (table(json!({"name": "t", "by": "Label", "values": {}})), "spec.kiln.parameters.tables[0].label: is missing"),
        (
            table(json!({"name": "t", "values": {"a": []}})),
            "spec.kiln.parameters.tables[0].values.a: must be text or a number",
        ),
        (
            table(json!({"name": "t", "values": {"a": "{{ node.name }}"}})),
            "spec.kiln.parameters.tables[0].values.a: must not be a template itself",
        ),
        (
            table(json!({"name": "a.b", "values": {}})),
            "spec.kiln.parameters.tables[0].name: must be 1 to 63 letters, digits, `-` and `_`",
        ),
    ] {
        let error = NetworkPolicy::read(&json!({"metadata": {"name": "p"}, "spec": spec})).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

fn addresses(allocations: &Allocations) -> Vec<String> {
    allocations["storage"]["storage"].iter().map(|(node, address)| format!("{node} {address}")).collect()
}

#[test]
fn addresses_stay_and_are_taken_back_only_when_nothing_else_is_left() {
    let (policies, labels) = ([storage()], BTreeMap::new());
    let nodes = |names: &'static [&'static str]| names.iter().map(|name| (*name, &labels)).collect::<Vec<_>>();
    let (first, refused) = allocate(&policies, nodes(&["c", "b", "a"]), &Allocations::new());
    assert_eq!(addresses(&first), ["a 10.20.0.2", "b 10.20.0.3", "c 10.20.0.4"]);
    assert_eq!(refused, []);
    let (second, _) = allocate(&policies, nodes(&["c", "0", "d"]), &first);
    assert_eq!(addresses(&second), ["0 10.20.0.5", "a 10.20.0.2", "b 10.20.0.3", "c 10.20.0.4", "d 10.20.0.6"]);
    let (third, refused) = allocate(&policies, nodes(&["c", "0", "d", "e", "f", "g"]), &second);
    assert_eq!(addresses(&third), ["0 10.20.0.5", "c 10.20.0.4", "d 10.20.0.6", "e 10.20.0.2", "f 10.20.0.3"]);
    assert_eq!(refused[0].1.to_string(), "spec.kiln.parameters.pools[0]: pool `storage` has no address left for g");
    let mut smaller = storage();
    smaller.options.parameters.pools = policy("p", json!({"kiln": {"parameters": {"pools": [{"name": "storage", "ranges": ["10.20.0.4-10.20.0.5", "10.20.0.9"]}]}}})).options.parameters.pools;
    let (moved, _) = allocate(&[smaller], nodes(&["c", "0", "d"]), &second);
    assert_eq!(
        addresses(&moved),
        ["0 10.20.0.5", "c 10.20.0.4", "d 10.20.0.9"],
        "what is no longer of the pool is given anew"
    );
}

#[test]
fn what_does_not_fit_together_in_a_fleet_is_told() {
    let address = |ip: &str| json!({"enabled": true, "address": [{"ip": ip, "prefix-length": 24}]});
    let one = json!({"interfaces": [
        {"name": "eth0", "mtu": 1500, "ipv4": address("10.0.0.1")},
        {"name": "eth0.7", "type": "vlan", "mtu": 9000, "vlan": {"id": 7, "base-iface": "eth0"}},
        {"name": "seven", "type": "vlan", "vlan": {"id": 7, "base-iface": "eth0"}},
        {"name": "old", "type": "vlan", "state": "absent", "vlan": {"id": 7, "base-iface": "eth0"}},
    ], "routes": {"config": [
        {"destination": "0.0.0.0/0", "next-hop-address": "10.0.1.1", "next-hop-interface": "eth0"},
        {"destination": "10.9.0.0/16", "next-hop-address": "10.0.0.254", "next-hop-interface": "eth0"},
    ]}});
    let two = json!({"interfaces": [
        {"name": "eth9", "ipv4": address("10.0.0.1"), "ipv6": {"enabled": false, "address": [{"ip": "fd00::1", "prefix-length": 64}]}},
    ]});
    let three = json!({"interfaces": [{"name": "eth9", "ipv6": {"enabled": true, "address": [{"ip": "fd00::1", "prefix-length": 64}]}}]});
    let found = lint([("a", &one), ("b", &two), ("c", &three)]);
    let words: Vec<String> = found.iter().map(|flaw| format!("{flaw} [{}]", flaw.fields[0].1)).collect();
    assert_eq!(
        words,
        [
            "`eth0.7` and `seven` of node `a` are both VLAN 7 on `eth0` [interfaces[seven].vlan.id]",
            "`eth0.7` of node `a` has MTU 9000, and `eth0` below it 1500 [interfaces[eth0.7].mtu]",
            "gateway 10.0.1.1 of node `a` is in no subnet of `eth0` [routes.config[destination=0.0.0.0/0 next-hop-address=10.0.1.1 next-hop-interface=eth0]]",
            "nodes `a` and `b` both get the address 10.0.0.1 [interfaces[eth9].ipv4.address]",
        ]
    );
}

pub(super) fn state() -> Value {
    json!({
        "interfaces": [
            {"name": "eth0", "type": "ethernet", "state": "up", "mac-address": "52:54:00:AA:00:01", "mtu": 1500,
             "ipv4": {"enabled": true, "dhcp": false, "address": [{"ip": "192.0.2.10", "prefix-length": 24}]}, "ipv6": {"enabled": false}},
            {"name": "eth1", "type": "ethernet", "state": "up", "mac-address": "52:54:00:AA:00:02", "mtu": 1500,
             "ipv4": {"enabled": false}, "ipv6": {"enabled": false}},
        ],
        "routes": {
            "running": [{"destination": "0.0.0.0/0", "next-hop-address": "192.0.2.1", "next-hop-interface": "eth0", "table-id": 254}],
            "config": [{"destination": "0.0.0.0/0", "next-hop-address": "192.0.2.1", "next-hop-interface": "eth0", "table-id": 254}],
        },
    })
}

fn previewed(policies: &[NetworkPolicy]) -> (Vec<String>, crate::assignment::Disruption, Vec<String>) {
    let (state, labels, captured, allocations) = (state(), BTreeMap::new(), Captured::new(), Allocations::new());
    let node = Node {
        name: "n0",
        labels: &labels,
        base: None,
        pool: None,
        current: Some(&state),
        captured: &captured,
        allocations: &allocations,
    };
    match preview(&node, policies).outcome {
        Outcome::Changes { lines, disruption, risks } => (lines, disruption, risks.iter().map(Risk::told).collect()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_preview_tells_what_changes_how_much_it_disturbs_and_what_could_go_wrong() {
    use crate::assignment::Disruption;
    let interface = |entry: Value| policy("p", json!({"desiredState": {"interfaces": [entry]}}));
    let address = |ip: &str| json!({"enabled": true, "dhcp": false, "address": [{"ip": ip, "prefix-length": 24}]});
    let nothing = (Vec::<String>::new(), Disruption::None, Vec::<String>::new());
    assert_eq!(previewed(&[]), nothing);
    assert_eq!(previewed(&[interface(json!({"name": "eth1", "type": "ethernet", "mtu": 1500}))]), nothing);
    let (lines, disruption, risks) = previewed(&[interface(json!({"name": "eth1", "type": "ethernet", "mtu": 9000}))]);
    assert_eq!(lines, ["eth1 mtu: 1500 -> 9000"]);
    assert_eq!(disruption, Disruption::Reapply);
    assert_eq!(
        risks,
        [
            "no probe depends on `eth1`: gateway, DNS and hub are reached another way; add a probe of type Tcp, Http or Ping"
        ]
    );
    let (lines, disruption, risks) =
        previewed(&[interface(json!({"name": "eth0", "type": "ethernet", "ipv4": address("192.0.2.11")}))]);
    assert_eq!(lines, ["eth0 ipv4: 192.0.2.10/24 -> 192.0.2.11/24"]);
    assert_eq!(disruption, Disruption::PrimaryPath);
    assert_eq!(
        risks,
        [
            "192.0.2.10, by which the node is known, is no longer configured anywhere on it",
            "`eth0` carries the default route: the node may be cut off until the change is rolled back",
        ]
    );
    let probed = policy(
        "p",
        json!({
            "kiln": {"probes": [{"type": "Ping", "target": "10.0.0.1"}]},
            "desiredState": {"interfaces": [{"name": "eth1", "type": "ethernet", "ipv4": address("10.0.0.2")}]},
        }),
    );
    let (_, disruption, risks) = previewed(&[probed]);
    assert_eq!((disruption, risks), (Disruption::Reapply, vec![]));
}

#[test]
fn large_policies_quarrel_within_bounds() {
    let many = |name: &str, mtu: u32, absent: bool| {
        let interfaces: Vec<Value> =
            (0..1500).map(|index| json!({"name": format!("eth{index}"), "type": "ethernet", "mtu": mtu})).collect();
        let route = |index: u32| match absent {
            true => json!({"state": "absent", "destination": format!("10.{}.{}.0/24", index / 256, index % 256)}),
            false => {
                json!({"destination": format!("10.{}.{}.0/24", index / 256, index % 256), "next-hop-interface": "eth0", "next-hop-address": "192.0.2.1"})
            }
        };
        let routes: Vec<Value> = (0..1500).map(route).collect();
        aged(name, name, json!({"desiredState": {"interfaces": interfaces, "routes": {"config": routes}}}))
    };
    let begin = std::time::Instant::now();
    let composed = composed(&json!({}), &[many("a", 1500, false), many("b", 9000, true)]);
    assert_eq!(composed.conflicts.len(), MAX_CONFLICTS);
    assert_eq!(names(&composed), ["a"]);
    assert!(begin.elapsed() < std::time::Duration::from_secs(20), "{:?}", begin.elapsed());
    let wide: Vec<Value> = (0..=MAX_ROUTES).map(|_| json!({"destination": "10.0.0.0/8"})).collect();
    let refused = NetworkPolicy::read(
        &json!({"metadata": {"name": "p"}, "spec": {"desiredState": {"routes": {"config": wide}}}}),
    )
    .unwrap_err();
    assert_eq!(refused.to_string(), "spec.desiredState.routes.config: has 4097 entries; at most 4096 are taken");
    let mut deep = json!({});
    (0..40).for_each(|_| deep = json!({"a": deep}));
    let refused = NetworkPolicy::read(&json!({"metadata": {"name": "p"}, "spec": {"desiredState": deep}})).unwrap_err();
    assert_eq!(refused.to_string(), "spec.desiredState: nests deeper than 32");
    let captures: serde_json::Map<String, Value> =
        (0..257).map(|index| (format!("c{index}"), "interfaces.name==\"a\"".into())).collect();
    let refused = NetworkPolicy::read(&json!({"metadata": {"name": "p"}, "spec": {"capture": captures}})).unwrap_err();
    assert_eq!(refused.to_string(), "spec.capture: there are 257 captures; at most 256 are taken");
    let long = json!({"metadata": {"name": "p"}, "spec": {"capture": {"c": "a".repeat(5000)}}});
    assert_eq!(
        NetworkPolicy::read(&long).unwrap_err().to_string(),
        "spec.capture.c: the expression has 5000 bytes; at most 4096 are taken"
    );
}
