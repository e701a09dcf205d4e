//! A node's day beside a real NetworkManager: what the real agent does about drift, about a reboot, about a wish that changes
//! while it tries, and what it publishes. One hub, one node.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

#[path = "support/fleet.rs"]
mod fleet;

use fleet::{Fleet, Place};
use serde_json::Value;

const NODE: &str = "node-1";

/// A site with a hub and one node that has joined.
fn site(test: &str) -> Option<Fleet> {
    let fleet = Fleet::start(test, &[NODE])?;
    fleet.join(&[NODE], "");
    Some(fleet)
}

/// A policy with these lines of `spec.kiln` and of `desiredState`.
fn policy(kiln: &str, state: &str) -> String {
    format!(
        "apiVersion: nmstate.io/v1\nkind: NodeNetworkConfigurationPolicy\nmetadata: {{name: day}}\nspec:\n  kiln: {{{kiln}}}\n  \
         desiredState:\n    {state}\n"
    )
}

/// eth1 with an address.
fn address(ip: &str) -> String {
    format!(
        "interfaces: [{{name: eth1, type: ethernet, state: up, mtu: 1400, ipv4: {{enabled: true, dhcp: false, \
         address: [{{ip: {ip}, prefix-length: 24}}]}}, ipv6: {{enabled: false}}}}]"
    )
}

fn phase(fleet: &Fleet) -> Value {
    let said = fleet.kubectl(&format!("get host {NODE} -o json")).output;
    let host: Value = serde_json::from_str(&said).unwrap_or_default();
    host["status"]["network"]["report"]["phase"].clone()
}

fn until_phase(fleet: &Fleet, what: &str, wished: impl Fn(&Value) -> bool) -> Value {
    let mut found = Value::Null;
    fleet.until(what, 60, || {
        found = phase(fleet);
        if wished(&found) { Ok(()) } else { Err(format!("{found}\n{}", fleet.node(NODE).agent_log())) }
    });
    found
}

/// Asks the node until it says yes.
fn until_node(fleet: &Fleet, what: &str, seconds: u64, script: &str) {
    let node = fleet.node(NODE);
    fleet.until(what, seconds, || match node.run(script) {
        said if said.code == 0 => Ok(()),
        said => Err(format!("{}\n{}\n{}", said.output, node.ok("ip addr; ip rule; ip route"), node.agent_log())),
    });
}

/// Applies a policy and waits until this generation of it is in force.
fn apply(fleet: &Fleet, manifest: &str) {
    fleet.apply(manifest);
    let generation = fleet.kubectl("get nncp day -o jsonpath='{.metadata.generation}'").output;
    fleet.until("the policy is in force", 60, || {
        let applied = "jsonpath='{.status.network.applied.policies[?(@.name==\"day\")].generation}'";
        let said = fleet.kubectl(&format!("get host {NODE} -o {applied}")).output;
        if said == generation { Ok(()) } else { Err(format!("{said}\n{}", fleet.node(NODE).agent_log())) }
    });
    until_phase(fleet, "applied", |phase| phase == "applied");
}

fn profile(node: &Place<'_>) -> String {
    node.ok("sha256sum /etc/NetworkManager/system-connections/eth1.nmconnection")
}

#[test]
fn drift_is_reported_repaired_or_adopted_as_the_policy_says() {
    let Some(fleet) = site("drift_is_reported_repaired_or_adopted_as_the_policy_says") else { return };
    let node = fleet.node(NODE);
    apply(&fleet, &policy("drift: Report", &address("192.0.2.10")));
    let written = profile(&node);

    // Told, with what differs, and left alone.
    node.ok("ip link set eth1 mtu 1300");
    let told = until_phase(&fleet, "drift is told", |phase| phase["drifted"].is_array());
    assert!(told["drifted"].to_string().contains("eth1 mtu: 1300 -> 1400"), "{told}");
    node.ok("sleep 2; ip -o link show eth1 | grep 'mtu 1300'");
    node.ok("ip link set eth1 mtu 1400");
    until_phase(&fleet, "drift is over", |phase| phase == "applied");

    // Put right: a rule, the link, and the address somebody took away.
    let rule = "routes: {config: [{destination: 203.0.113.0/24, next-hop-address: 192.0.2.1, next-hop-interface: eth1, table-id: 77}]}
    route-rules: {config: [{ip-from: 192.0.2.0/24, priority: 1077, route-table: 77}]}";
    apply(&fleet, &policy("drift: Repair, soak: 200ms", &format!("{}\n    {rule}", address("192.0.2.10"))));
    node.ok("ip rule | grep '1077:.*lookup 77' && ip rule del priority 1077");
    until_node(&fleet, "the rule is repaired", 60, "ip rule | grep '1077:.*lookup 77'");
    apply(&fleet, &policy("drift: Repair, soak: 200ms", &address("192.0.2.10")));
    node.ok("ip link set eth1 mtu 1300; ip addr del 192.0.2.10/24 dev eth1");
    let right = "ip -o link show eth1 | grep 'mtu 1400' && ip -o -4 addr show eth1 | grep ' 192.0.2.10/24'";
    until_node(&fleet, "drift is repaired", 60, right);
    until_phase(&fleet, "applied again", |phase| phase == "applied");
    assert_eq!(profile(&node), written, "the profile was right all the time");
    // And a profile that somebody edits.
    node.ok("nmcli connection modify eth1 ipv4.addresses 192.0.2.99/24 && nmcli connection up eth1 > /dev/null");
    until_node(&fleet, "the profile is repaired", 60, right);
    assert_eq!(profile(&node), written);

    // Taken for right, until the policy is another one.
    apply(&fleet, &policy("drift: Adopt", &address("192.0.2.10")));
    node.ok("ip link set eth1 mtu 1300; sleep 3; ip -o link show eth1 | grep 'mtu 1300'");
    assert_eq!(phase(&fleet), "applied");
    apply(&fleet, &policy("drift: Adopt", &address("192.0.2.11")));
    until_node(
        &fleet,
        "the next generation",
        60,
        "ip -o link show eth1 | grep 'mtu 1400' && ip -o -4 addr show eth1 | grep ' 192.0.2.11/24'",
    );
}

#[test]
fn what_is_not_to_last_comes_back_when_the_agent_starts_after_a_reboot() {
    let Some(fleet) = site("what_is_not_to_last_comes_back_when_the_agent_starts_after_a_reboot") else { return };
    let node = fleet.node(NODE);
    let before = node.snapshot();
    apply(&fleet, &policy("persistence: Runtime, soak: 200ms", &address("192.0.2.10")));
    node.ok("ls /run/NetworkManager/system-connections/eth1.nmconnection; ! ls /etc/NetworkManager/system-connections/eth1.nmconnection");

    // As a reboot leaves it: no runtime profiles, another boot.
    node.kill_agent();
    node.ok("rm /run/NetworkManager/system-connections/eth1.nmconnection; nmcli connection reload
        nmcli device disconnect eth1 > /dev/null; ip link set eth1 mtu 1500
        sed -i 's/\"boot\":\"[^\"]*\"/\"boot\":\"an earlier one\"/' /var/lib/kiln/agent/memory.json");
    assert_eq!(node.snapshot(), before);
    node.start_agent(&fleet.folder().join(format!("{NODE}.token")), "");
    until_node(
        &fleet,
        "it is there again",
        60,
        "ip -o -4 addr show eth1 | grep ' 192.0.2.10/24' && ls /run/NetworkManager/system-connections/eth1.nmconnection",
    );
    until_phase(&fleet, "applied again", |phase| phase == "applied");
}

#[test]
fn the_network_is_published_whole_and_within_seconds() {
    let Some(fleet) = site("the_network_is_published_whole_and_within_seconds") else { return };
    let node = fleet.node(NODE);
    let state = || -> Value {
        serde_json::from_str(&fleet.kubectl(&format!("get nns {NODE} -o json")).output).unwrap_or_default()
    };
    let first = state();
    let current = &first["status"]["currentState"];
    let has = |list: &Value, wanted: &[(&str, &str)]| {
        let fits = |entry: &Value| wanted.iter().all(|(key, value)| entry[*key] == *value);
        list.as_array().is_some_and(|entries| entries.iter().any(fits))
    };
    let default = [("destination", "0.0.0.0/0"), ("next-hop-address", "10.66.0.1"), ("next-hop-interface", "eth0")];
    assert!(has(&current["routes"]["running"], &default), "{current:#}");
    assert!(has(&current["routes"]["config"], &default), "{current:#}");
    assert_eq!(current["dns-resolver"]["running"]["server"], serde_json::json!(["10.66.0.1"]), "{current:#}");
    assert!(!current["hostname"]["running"].as_str().unwrap_or_default().is_empty(), "{current:#}");

    for (change, back, there) in [
        (
            "ip addr add 198.51.100.9/24 dev eth2",
            "ip addr del 198.51.100.9/24 dev eth2",
            &(|state: &Value| state.to_string().contains("198.51.100.9")) as &dyn Fn(&Value) -> bool,
        ),
        ("ip rule add from 198.51.100.0/24 lookup 77 priority 1077", "ip rule del priority 1077", &|state: &Value| {
            state["route-rules"].to_string().contains("198.51.100.0/24")
        }),
        ("ip link add stranger0 type bridge", "ip link del stranger0", &|state: &Value| {
            has(&state["interfaces"], &[("name", "stranger0")])
        }),
    ] {
        node.ok(change);
        fleet.until(change, 10, || match &state()["status"]["currentState"] {
            now if there(now) => Ok(()),
            now => Err(now.to_string()),
        });
        node.ok(back);
        fleet.until(back, 10, || match &state()["status"]["currentState"] {
            now if there(now) => Err(now.to_string()),
            _ => Ok(()),
        });
    }
}

#[test]
fn a_wish_that_changes_during_a_try_puts_it_back_and_counts_for_nothing() {
    let Some(fleet) = site("a_wish_that_changes_during_a_try_puts_it_back_and_counts_for_nothing") else { return };
    // It would soak for half an hour.
    fleet.apply(&policy("soak: 1800s", &address("192.0.2.10")));
    until_node(&fleet, "it is tried", 60, "ip -o -4 addr show eth1 | grep ' 192.0.2.10/24'");
    assert_eq!(until_phase(&fleet, "it is told", |phase| phase == "trying"), "trying");
    // What it is trying is seen meanwhile.
    fleet.until("it is published", 20, || {
        let said = fleet.kubectl(&format!("get nns {NODE} -o json")).output;
        if said.contains("192.0.2.10") { Ok(()) } else { Err(said) }
    });
    fleet.apply(&policy("soak: 200ms", &address("192.0.2.11")));
    until_node(&fleet, "the new wish", 60, "ip -o -4 addr show eth1 | grep ' 192.0.2.11/24'");
    until_phase(&fleet, "it is kept", |phase| phase == "applied");
    // And the one before is a wish like any other.
    apply(&fleet, &policy("soak: 300ms", &address("192.0.2.10")));
    until_node(&fleet, "the first wish again", 60, "ip -o -4 addr show eth1 | grep ' 192.0.2.10/24'");
    let timeline = fleet.kubectl(&format!("get host {NODE} -o jsonpath='{{.status.timeline}}'")).output;
    assert!(!timeline.contains("rolled back"), "{timeline}");
}

#[test]
fn a_checkpoint_of_another_program_is_waited_for_and_no_failure() {
    let Some(fleet) = site("a_checkpoint_of_another_program_is_waited_for_and_no_failure") else { return };
    let node = fleet.node(NODE);
    node.ok("busctl call org.freedesktop.NetworkManager /org/freedesktop/NetworkManager org.freedesktop.NetworkManager CheckpointCreate aouu 0 8 0");
    fleet.apply(&policy("soak: 200ms", &address("192.0.2.10")));
    until_phase(&fleet, "it is planned", |phase| phase == "planned");
    node.ok("sleep 2; ! ip -o -4 addr show eth1 | grep ' 192.0.2.10/24'");
    until_node(
        &fleet,
        "it is tried when the other program is done",
        60,
        "ip -o -4 addr show eth1 | grep ' 192.0.2.10/24'",
    );
    until_phase(&fleet, "it is kept", |phase| phase == "applied");
    // An agent that dies with its checkpoint just made: the next one knows it and goes on.
    node.kill_agent();
    let token = fleet.folder().join(format!("{NODE}.token"));
    node.start_agent(&token, "KILN_AGENT_DIE_AT=checkpoint");
    fleet.apply(&policy("soak: 200ms", &address("192.0.2.11")));
    fleet.until("the agent is dead", 60, || {
        // Nobody in the site asks how it ended.
        let dead = node.run(&format!(
            "! grep -q '^State:.[^Z]' /proc/$(cat {}/{NODE}/agent.pid)/status 2> /dev/null",
            fleet.folder().display()
        ));
        if dead.code == 0 { Ok(()) } else { Err(node.agent_log()) }
    });
    node.start_agent(&token, "");
    until_node(&fleet, "it is tried again at once", 25, "ip -o -4 addr show eth1 | grep ' 192.0.2.11/24'");
    until_phase(&fleet, "it is kept", |phase| phase == "applied");
}
