//! Changes as tables: what a node has, what is asked for, what must be done.

use serde_json::{Value, json};

use super::*;

/// A node with three NICs; eth0 has the default route, from a profile somebody wrote by hand.
pub(super) fn node() -> Observed {
    let current = json!({
        "hostname": {"running": "worker-1"},
        "interfaces": [
            {"name": "eth0", "type": "ethernet", "state": "up", "mtu": 1500, "mac-address": "52:54:00:00:00:01",
             "ipv4": {"enabled": true, "address": [{"ip": "192.0.2.10", "prefix-length": 24}]}},
            {"name": "eth1", "type": "ethernet", "state": "up", "mtu": 1500, "mac-address": "52:54:00:00:00:02"},
            {"name": "eth2", "type": "ethernet", "state": "down", "mtu": 1500, "mac-address": "52:54:00:00:00:03"},
        ],
        "routes": {"running": [
            {"destination": "0.0.0.0/0", "next-hop-address": "192.0.2.1", "next-hop-interface": "eth0", "metric": 100, "table-id": 254}]},
    });
    let profiles = vec![
        held("eth0", Some("eth0"), ETH0),
        held(
            "eth1",
            Some("eth1"),
            "[connection]\nid=eth1\nuuid=10000000-0000-4000-8000-000000000001\ntype=ethernet\ninterface-name=eth1\n[ipv4]\nmethod=disabled\n[ipv6]\nmethod=disabled\n",
        ),
    ];
    Observed { current, profiles }
}

pub(super) const ETH0: &str = "# written by hand\n[connection]\nid=uplink\nuuid=10000000-0000-4000-8000-000000000000\ntype=ethernet\ninterface-name=eth0\n[ipv4]\nmethod=manual\naddress1=192.0.2.10/24,192.0.2.1\ndhcp-client-id=kept\n[ipv6]\nmethod=disabled\n";

pub(super) fn held(name: &str, active_on: Option<&str>, text: &str) -> Held {
    let file = ConnectionFile::new(format!("{name}.nmconnection"), Keyfile::parse(text).unwrap());
    Held { place: Some(Place::Persistent), file, active_on: active_on.map(str::to_owned) }
}

fn plan(node: &Observed, document: &Value) -> Change {
    plan_change(node, &Ownership::default(), document, document).unwrap()
}

pub(super) fn file<'c>(change: &'c Change, place: Place, name: &str) -> &'c str {
    let write = change.writes.iter().find(|write| write.place == place && write.name == name);
    write.unwrap_or_else(|| panic!("{name}: {change:#?}")).content.as_deref().unwrap()
}

pub(super) fn steps(change: &Change) -> String {
    let word = |step: &Step| match step {
        Step::Activate { interface, .. } => format!("activate {interface}"),
        Step::Reapply { interface, .. } => format!("reapply {interface}"),
        Step::Remove { interface } => format!("remove {interface}"),
    };
    change
        .stages
        .iter()
        .map(|stage| stage.iter().map(word).collect::<Vec<_>>().join(" + "))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The node after a change, as NetworkManager would have it.
pub(super) fn after(mut node: Observed, change: &Change) -> Observed {
    for write in &change.writes {
        node.profiles.retain(|held| !(held.place == Some(write.place) && held.file.name == write.name));
        let Some(text) = &write.content else { continue };
        let mut held = held("", None, text);
        (held.place, held.file.name) = (Some(write.place), write.name.clone());
        node.profiles.push(held);
    }
    for step in change.stages.iter().flatten() {
        let (uuid, interface) = match step {
            Step::Activate { uuid, interface } | Step::Reapply { uuid, interface } => (Some(uuid), interface),
            Step::Remove { interface } => (None, interface),
        };
        for held in &mut node.profiles {
            let this = uuid.is_some_and(|uuid| held.file.keyfile.get("connection", "uuid").as_deref() == Some(uuid));
            // A runtime profile with the same UUID hides the persistent one.
            if this {
                held.active_on = Some(interface.clone());
            } else if held.active_on.as_ref() == Some(interface) {
                held.active_on = None;
            }
        }
    }
    let runtime: Vec<_> = node.profiles.iter().filter(|held| held.place == Some(Place::Runtime)).cloned().collect();
    node.profiles.retain(|held| {
        held.place == Some(Place::Runtime)
            || runtime.iter().all(|other| {
                other.file.keyfile.get("connection", "uuid") != held.file.keyfile.get("connection", "uuid")
            })
    });
    let mut interfaces = node.current["interfaces"].as_array().unwrap().clone();
    for wanted in change.wanted["interfaces"].as_array().into_iter().flatten() {
        interfaces.retain(|entry| entry["name"] != wanted["name"]);
        if wanted["state"] != "absent" {
            let mut entry = wanted.clone();
            entry["state"] = "up".into();
            interfaces.push(entry);
        }
    }
    node.current["interfaces"] = interfaces.into();
    node
}

#[test]
fn a_document_that_holds_already_changes_nothing() {
    for document in [
        json!({}),
        json!({"interfaces": [{"name": "eth0", "type": "ethernet", "state": "up"}]}),
        json!({"interfaces": [{"name": "eth0", "type": "ethernet", "state": "up",
            "ipv4": {"enabled": true, "dhcp": false, "address": [{"ip": "192.0.2.10", "prefix-length": 24}]}}]}),
        json!({"hostname": {"config": "worker-1"}}),
    ] {
        let change = plan(&node(), &document);
        assert!(change.is_empty(), "{document}: {change:#?}");
        assert_eq!((change.disruption, change.lines), (Disruption::None, vec![]), "{document}");
    }
}

#[test]
fn what_a_document_does_not_mention_stays_in_the_profile() {
    let change =
        plan(&node(), &json!({"interfaces": [{"name": "eth0", "type": "ethernet", "state": "up", "mtu": 1400}]}));
    let text = file(&change, Place::Persistent, "eth0.nmconnection");
    for kept in
        ["# written by hand", "id=uplink", "address1=192.0.2.10/24,192.0.2.1", "dhcp-client-id=kept", "mtu=1400"]
    {
        assert!(text.contains(kept), "{kept}\n{text}");
    }
    assert_eq!(steps(&change), "reapply eth0");
    assert_eq!(change.disruption, Disruption::PrimaryPath);
    assert!(change.lines.contains(&"eth0 mtu: 1500 -> 1400".to_owned()), "{:?}", change.lines);
}

#[test]
fn a_bridge_takes_its_port_from_the_profile_it_had() {
    let document = json!({"interfaces": [{"name": "br1", "type": "linux-bridge", "state": "up",
        "bridge": {"options": {"stp": {"enabled": false}}, "port": [{"name": "eth1"}]},
        "ipv4": {"enabled": true, "dhcp": false, "address": [{"ip": "198.51.100.1", "prefix-length": 24}]}}]});
    let change = plan(&node(), &document);
    let port = file(&change, Place::Persistent, "eth1.nmconnection");
    assert!(port.contains("master=br1") && port.contains("uuid=10000000-0000-4000-8000-000000000001"), "{port}");
    assert!(!port.contains("[ipv4]"), "{port}");
    // NetworkManager brings the port up with the bridge.
    assert_eq!(steps(&change), "activate br1");
    let again = plan_change(&after(node(), &change), &change.ownership, &document, &document).unwrap();
    assert_eq!(again.writes, [], "{again:#?}");
}

#[test]
fn a_nic_that_becomes_a_port_leaves_its_routes_to_the_bridge() {
    let document = json!({"interfaces": [{"name": "br-ex", "type": "linux-bridge", "state": "up",
        "bridge": {"port": [{"name": "eth0"}]},
        "ipv4": {"enabled": true, "dhcp": false, "address": [{"ip": "192.0.2.10", "prefix-length": 24}]}}],
        "routes": {"config": [{"destination": "0.0.0.0/0", "next-hop-address": "192.0.2.1", "next-hop-interface": "br-ex"}]}});
    let change = plan(&node(), &document);
    let port = file(&change, Place::Persistent, "eth0.nmconnection");
    assert!(port.contains("master=br-ex") && !port.contains("192.0.2.1"), "{port}");
    let bridge = file(&change, Place::Persistent, "br-ex.nmconnection");
    assert!(bridge.contains("192.0.2.10/24") && bridge.contains("192.0.2.1"), "{bridge}");
}

#[test]
fn what_nobody_speaks_of_any_more_is_given_back() {
    let document = json!({"interfaces": [
        {"name": "eth1", "type": "ethernet", "state": "up", "mtu": 9000,
         "ipv4": {"enabled": true, "dhcp": false, "address": [{"ip": "198.51.100.7", "prefix-length": 24}]}},
        {"name": "br1", "type": "linux-bridge", "state": "up", "bridge": {"port": []}}]});
    let change = plan(&node(), &document);
    assert_eq!(steps(&change), "activate br1 + reapply eth1");
    let changed = after(node(), &change);
    let nothing = json!({});
    let back = plan_change(&changed, &change.ownership, &nothing, &nothing).unwrap();
    let original = node().profiles[1].file.keyfile.render();
    assert_eq!(file(&back, Place::Persistent, "eth1.nmconnection"), original);
    let removed: Vec<_> = back.writes.iter().filter(|write| write.content.is_none()).map(|write| &write.name).collect();
    assert_eq!(removed, ["br1.nmconnection"]);
    assert_eq!(steps(&back), "remove br1 + activate eth1");
    assert_eq!(back.ownership, Ownership::default());
    // Only the MTU is no longer asked for: the address stays, the MTU goes back.
    let less = json!({"interfaces": [{"name": "eth1", "type": "ethernet", "state": "up",
        "ipv4": {"enabled": true, "dhcp": false, "address": [{"ip": "198.51.100.7", "prefix-length": 24}]}}]});
    let less = plan_change(&changed, &change.ownership, &less, &less).unwrap();
    let text = file(&less, Place::Persistent, "eth1.nmconnection");
    assert!(text.contains("198.51.100.7/24") && !text.contains("mtu"), "{text}");
}

#[test]
fn a_runtime_layer_leaves_the_disk_as_it_is() {
    let network = json!({"interfaces": [{"name": "eth1", "type": "ethernet", "state": "up", "mtu": 9000}]});
    let change = plan_change(&node(), &Ownership::default(), &network, &json!({})).unwrap();
    assert!(change.writes.iter().all(|write| write.place == Place::Runtime), "{change:#?}");
    assert!(file(&change, Place::Runtime, "eth1.nmconnection").contains("mtu=9000"));
    assert_eq!(steps(&change), "reapply eth1");
    // Made persistent later: the same contents on the disk, the runtime file goes.
    let changed = after(node(), &change);
    let lasting = plan_change(&changed, &change.ownership, &network, &network).unwrap();
    assert!(file(&lasting, Place::Persistent, "eth1.nmconnection").contains("mtu=9000"));
    assert!(
        lasting.writes.iter().any(|write| write.place == Place::Runtime && write.content.is_none()),
        "{lasting:#?}"
    );
}

#[test]
fn interfaces_come_up_before_what_stands_on_them() {
    let document = json!({"interfaces": [
        {"name": "bond0.100", "type": "vlan", "state": "up", "vlan": {"base-iface": "bond0", "id": 100}},
        {"name": "br1", "type": "linux-bridge", "state": "up", "bridge": {"port": [{"name": "bond0.100"}]}},
        {"name": "bond0", "type": "bond", "state": "up", "link-aggregation": {"mode": "active-backup", "port": ["eth1", "eth2"]}}]});
    let change = plan(&node(), &document);
    assert_eq!(steps(&change), "activate bond0, activate br1");
    assert_eq!(change.writes.len(), 5, "{change:#?}");
    assert_eq!(change.disruption, Disruption::Reapply);
}

#[test]
fn an_absent_bridge_goes_with_its_profile() {
    let mut node = node();
    node.current["interfaces"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "br1", "type": "linux-bridge", "state": "up"}));
    node.profiles.push(held(
        "br1",
        Some("br1"),
        "[connection]\nid=br1\nuuid=10000000-0000-4000-8000-00000000000b\ntype=bridge\ninterface-name=br1\n",
    ));
    let change = plan(&node, &json!({"interfaces": [{"name": "br1", "type": "linux-bridge", "state": "absent"}]}));
    assert_eq!(steps(&change), "remove br1");
    assert_eq!(change.writes, [Write { place: Place::Persistent, name: "br1.nmconnection".into(), content: None }]);
    assert_eq!(change.disruption, Disruption::LinkBounce);
}

#[test]
fn routes_and_name_servers_go_to_the_profile_that_carries_them() {
    let document = json!({
        "routes": {"config": [{"destination": "10.0.0.0/8", "next-hop-address": "192.0.2.254", "next-hop-interface": "eth0"}]},
        "dns-resolver": {"config": {"server": ["192.0.2.53"]}}});
    let change = plan(&node(), &document);
    let text = file(&change, Place::Persistent, "eth0.nmconnection");
    for part in ["10.0.0.0/8,192.0.2.254", "0.0.0.0/0,192.0.2.1", "dns=192.0.2.53", "192.0.2.10/24"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert_eq!(steps(&change), "reapply eth0");
}

#[test]
fn a_nic_that_is_not_there_is_refused_with_the_nearest_name() {
    let document = json!({"interfaces": [{"name": "eht1", "type": "ethernet", "state": "up"}]});
    let error = plan_change(&node(), &Ownership::default(), &document, &document).unwrap_err();
    assert_eq!(error.to_string(), "the node has no interface `eht1`; did you mean `eth1`?");
}

#[test]
fn a_profile_for_any_nic_is_copied_and_left_alone() {
    let mut node = node();
    node.profiles[1] = held(
        "any",
        Some("eth1"),
        "[connection]\nid=any\nuuid=10000000-0000-4000-8000-00000000000a\ntype=ethernet\nmulti-connect=3\n[ipv4]\nmethod=auto\n[ipv6]\nmethod=auto\n",
    );
    let change =
        plan(&node, &json!({"interfaces": [{"name": "eth1", "type": "ethernet", "state": "up", "mtu": 9000}]}));
    let text = file(&change, Place::Persistent, "kiln-eth1.nmconnection");
    assert!(
        text.contains("interface-name=eth1") && text.contains("mtu=9000") && text.contains("[ipv4]\nmethod=auto"),
        "{text}"
    );
    assert_eq!(change.writes.len(), 1, "{change:#?}");
    let back = plan_change(&after(node, &change), &change.ownership, &json!({}), &json!({})).unwrap();
    assert_eq!(back.writes, [Write { place: Place::Persistent, name: "kiln-eth1.nmconnection".into(), content: None }]);
    assert!(matches!(&back.stages[0][0], Step::Activate { uuid, .. } if uuid.ends_with("0a")), "{back:#?}");
}

#[test]
fn what_a_device_is_made_with_takes_a_new_device() {
    let mut node = node();
    let vlan = json!({"name": "eth1.5", "type": "vlan", "state": "up", "vlan": {"base-iface": "eth1", "id": 5}});
    node.current["interfaces"].as_array_mut().unwrap().push(vlan.clone());
    let text = "[connection]\nid=eth1.5\nuuid=10000000-0000-4000-8000-000000000005\ntype=vlan\ninterface-name=eth1.5\n[vlan]\nid=5\nparent=eth1\n[ipv4]\nmethod=disabled\n[ipv6]\nmethod=disabled\n";
    node.profiles.push(held("eth1.5", Some("eth1.5"), text));
    assert!(plan(&node, &json!({"interfaces": [vlan.clone()]})).is_empty());
    let mut other = vlan;
    other["vlan"]["id"] = 6.into();
    let change = plan(&node, &json!({"interfaces": [other]}));
    assert_eq!(steps(&change), "remove eth1.5, activate eth1.5");
    assert!(file(&change, Place::Persistent, "eth1.5.nmconnection").contains("id=6"));
    assert_eq!(change.disruption, Disruption::LinkBounce);
}

#[test]
fn a_rule_that_somebody_took_away_is_drift_of_the_profile_that_brings_it() {
    let rule = json!({"ip-from": "192.0.2.0/24", "priority": 1000, "route-table": 77});
    let document = json!({
        "interfaces": [{"name": "eth0", "type": "ethernet", "state": "up"}],
        "routes": {"config": [{"destination": "203.0.113.0/24", "next-hop-address": "192.0.2.1", "next-hop-interface": "eth0", "table-id": 77}]},
        "route-rules": {"config": [rule]}});
    let mut observed = node();
    observed.current["route-rules"] = json!({"config": []});
    let change = plan(&observed, &document);
    assert!(file(&change, Place::Persistent, "eth0.nmconnection").contains("routing-rule"), "{change:#?}");
    let mut changed = after(observed, &change);
    let running = changed.current["routes"]["running"].as_array_mut().unwrap();
    running.push(document["routes"]["config"][0].clone());
    let again = |changed: &Observed| plan_change(changed, &change.ownership, &document, &document).unwrap();
    let drifted = again(&changed);
    assert_eq!(drifted.lines, ["rule from 192.0.2.0/24 priority 1000 table 77: absent -> there"]);
    assert_eq!(steps(&drifted), "activate eth0");
    changed.current["route-rules"] = document["route-rules"].clone();
    assert!(again(&changed).is_empty(), "{:#?}", again(&changed));
}
