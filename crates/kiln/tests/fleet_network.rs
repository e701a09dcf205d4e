//! Day 2 on a fleet: eight nodes with a real NetworkManager and the real agent each, rolled out to by the real hub, driven by
//! the real kubectl. Gateway, name server and hub are lost, agents and the hub are killed; everything is back as it was, and
//! what others have on the nodes stays.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

#[path = "support/fleet.rs"]
mod fleet;

use fleet::{Fleet, Place};

const NODES: [&str; 8] = ["node-1", "node-2", "node-3", "node-4", "node-5", "node-6", "node-7", "node-8"];

/// A bridge over eth1 on every node. Without the trunk a port has by default: not every kernel filters VLANs on bridges.
const BRIDGE: &str = "apiVersion: nmstate.io/v1
kind: NodeNetworkConfigurationPolicy
metadata: {name: storage-bridge}
spec:
  maxUnavailable: 2
  desiredState:
    interfaces:
    - name: br1
      type: linux-bridge
      state: up
      bridge: {options: {stp: {enabled: false}}, port: [{name: eth1, vlan: {}}]}
      ipv4: {enabled: true, dhcp: false, address: [{ip: 198.51.100.10, prefix-length: 24}]}
      ipv6: {enabled: false}
";

/// What belongs to others: a bridge made without NetworkManager, which sees it all the same, a profile that waits and one that is
/// in use.
fn add_what_belongs_to_others(node: &Place<'_>) {
    node.ok("ip link add cni0 type bridge && ip addr add 10.244.0.1/24 dev cni0 && ip link set cni0 up
        nmcli connection add type ethernet con-name theirs ifname eth9 autoconnect no > /dev/null
        nmcli connection add type bridge con-name in-use ifname theirs0 bridge.stp no ipv4.method manual \
            ipv4.addresses 10.245.0.1/24 ipv6.method disabled > /dev/null
        nmcli connection up in-use > /dev/null
        tries=100
        until nmcli -g GENERAL.STATE device show cni0 | grep -q 100; do
            tries=$((tries - 1)); [ $tries -gt 0 ] || { nmcli device; exit 1; }
            sleep 0.1
        done");
}

/// Which activation of the profile that is in use this is.
fn activation(node: &Place<'_>) -> String {
    node.ok("nmcli -g GENERAL.DBUS-PATH connection show in-use")
}

fn condition(fleet: &Fleet, kind: &str, condition: &str) -> String {
    fleet.kubectl(&format!("get {kind} -o jsonpath='{{.status.conditions[?(@.type==\"{condition}\")].status}}'")).output
}

fn wait_for(fleet: &Fleet, object: &str, wished: &str, seconds: u64) {
    fleet.until(&format!("{object} is {wished}"), seconds, || match condition(fleet, object, wished).as_str() {
        "True" => Ok(()),
        _ => Err(fleet
            .kubectl(&format!(
                "get {object} -o jsonpath='{{.status}}'; kubectl --kubeconfig {}/hub/kubeconfig get nnce -o jsonpath='{{.items[*].status.conditions[?(@.status==\"True\")].message}}'",
                fleet.folder().display()
            ))
            .output),
    });
}

#[test]
fn a_policy_comes_to_every_node_and_goes_again() {
    let Some(fleet) = Fleet::start("a_policy_comes_to_every_node_and_goes_again", &NODES) else { return };
    fleet.join(&NODES, "");
    NODES.iter().for_each(|node| add_what_belongs_to_others(&fleet.node(node)));
    let before: Vec<String> = NODES.iter().map(|node| fleet.node(node).snapshot()).collect();
    let activations: Vec<String> = NODES.iter().map(|node| activation(&fleet.node(node))).collect();

    fleet.apply(BRIDGE);
    wait_for(&fleet, "nncp/storage-bridge", "Available", 120);
    for node in NODES {
        let seen = fleet.node(node).ok(
            "ip -o -4 addr show br1; ls /sys/class/net/br1/brif; ip -o -4 addr show cni0; ip -o -4 addr show theirs0; nmcli -g NAME connection",
        );
        for part in ["198.51.100.10/24", "eth1", "10.244.0.1/24", "10.245.0.1/24", "theirs", "in-use"] {
            assert!(seen.contains(part), "{node}: {part} in {seen}");
        }
    }
    // The hub is killed while a change is under way everywhere: it goes on where it was.
    fleet.apply(&BRIDGE.replace("198.51.100.10", "198.51.100.20"));
    fleet.kill_hub();
    fleet.start_hub();
    fleet.until("every node has the new address", 180, || {
        let without: Vec<_> = NODES
            .iter()
            .filter(|node| !fleet.node(node).run("ip -o -4 addr show br1").output.contains("198.51.100.20/24"))
            .collect();
        if without.is_empty() { Ok(()) } else { Err(format!("{without:?}")) }
    });
    wait_for(&fleet, "nncp/storage-bridge", "Available", 60);

    assert_eq!(fleet.kubectl("delete nncp storage-bridge").code, 0);
    for (node, before) in NODES.iter().zip(before) {
        until_as_it_was(&fleet, node, &before, "the policy");
    }
    for (node, before) in NODES.iter().zip(activations) {
        assert_eq!(activation(&fleet.node(node)), before, "{node}: nobody touched the profile that is in use");
    }
}

#[test]
fn agents_that_are_killed_in_the_middle_leave_the_old_network_or_the_new_one_and_the_rollout_goes_on() {
    let nodes = &NODES[..4];
    let test = "agents_that_are_killed_in_the_middle_leave_the_old_network_or_the_new_one_and_the_rollout_goes_on";
    let Some(fleet) = Fleet::start(test, nodes) else { return };
    fleet.join(nodes, "");
    nodes.iter().for_each(|node| add_what_belongs_to_others(&fleet.node(node)));
    let before: Vec<String> = nodes.iter().map(|node| fleet.node(node).snapshot()).collect();
    let has_it = |node: &str| fleet.node(node).run("ip -o -4 addr show br1").output.contains("198.51.100.10/24");
    fleet.apply(&BRIDGE.replace("spec:\n", "spec:\n  kiln: {timeout: 5s, soak: 15s, checkpoint: 30s}\n"));
    // Two may be out; both are killed while they prove.
    let mut proving = vec![nodes[0], nodes[1]];
    fleet.until("two have it and prove it", 60, || {
        proving.retain(|node| {
            let trying = has_it(node);
            if trying {
                fleet.node(node).kill_agent();
            }
            !trying
        });
        if proving.is_empty() { Ok(()) } else { Err(fleet.node(proving[0]).agent_log()) }
    });
    // One is back at once, puts the old network back and tries again; the other stays dead until its checkpoint is over.
    fleet.node(nodes[0]).restart_agent();
    // What NetworkManager takes back by itself is eth1; the bridge, which was new, is the agent's to remove.
    let ports = "ls /sys/class/net/br1/brif";
    fleet.until("NetworkManager went back by itself", 90, || match fleet.node(nodes[1]).run(ports).output {
        ports if ports.contains("eth1") => Err(fleet.node(nodes[1]).ok("nmcli connection")),
        _ => Ok(()),
    });
    for node in [nodes[2], nodes[3], nodes[0]] {
        fleet.until(&format!("{node} has it, although {} is dead", nodes[1]), 180, || match has_it(node) {
            true => Ok(()),
            false => Err(fleet.kubectl("get nnce").output + &fleet.node(node).agent_log()),
        });
    }
    fleet.node(nodes[1]).restart_agent();
    wait_for(&fleet, "nncp/storage-bridge", "Available", 240);
    assert!(nodes.iter().all(|node| has_it(node)), "{}", fleet.kubectl("get nnce").output);
    assert_eq!(fleet.kubectl("delete nncp storage-bridge").code, 0);
    for (node, before) in nodes.iter().zip(before) {
        until_as_it_was(&fleet, node, &before, "the policy");
    }
}

/// Waits until a node is as it was before something.
fn until_as_it_was(fleet: &Fleet, node: &str, before: &str, what: &str) {
    fleet.until(&format!("{node} is as before {what}"), 120, || {
        let now = fleet.node(node).snapshot();
        if now == before { Ok(()) } else { Err(format!("{now}\n--- not\n{before}\n{}", fleet.node(node).agent_log())) }
    });
}

#[test]
fn what_cuts_a_node_off_is_put_back_and_stops_the_rollout() {
    let nodes = &NODES[..3];
    let Some(fleet) = Fleet::start("what_cuts_a_node_off_is_put_back_and_stops_the_rollout", nodes) else { return };
    fleet.join(nodes, "");
    nodes.iter().for_each(|node| add_what_belongs_to_others(&fleet.node(node)));
    for node in nodes {
        // A service that listens at the one address the node has now.
        let place = fleet.node(node);
        place.ok(&format!(
            "dnsmasq --no-daemon --conf-file=/dev/null --no-resolv --no-hosts --port=2222 --listen-address={} \
            --bind-interfaces --pid-file= --user=root > /dev/null 2>&1 &",
            place.address()
        ));
    }
    for (name, options, state, lost) in [
        // Another address, and the gateway and the hub are gone.
        (
            "no-gateway",
            "",
            "interfaces: [{name: eth0, type: ethernet, state: up, ipv4: {enabled: true, dhcp: false, address: [{ip: 10.99.0.5, prefix-length: 24}]}}]",
            "the default gateway",
        ),
        // The hub and the gateway are reached, the name server is nobody.
        ("no-dns", "", "dns-resolver: {config: {server: [10.66.99.99]}}", "DNS did not answer"),
        // The gateway is on the site, but the address of the hub, which is also the name server, leads nowhere.
        (
            "no-hub",
            "",
            "routes: {config: [{destination: 10.66.0.1/32, next-hop-interface: eth1}]}\n    interfaces: [{name: eth1, type: ethernet, state: up, ipv4: {enabled: true, dhcp: false, address: [{ip: 192.0.2.2, prefix-length: 24}]}}]",
            "the hub did not answer",
        ),
        // The hub is reached, and the node asks it from an address at which its service does not listen.
        (
            "no-service",
            ", probes: [{type: FromHub, target: 2222}]",
            "interfaces: [{name: eth0, type: ethernet, state: up, ipv4: {enabled: true, dhcp: false, address: [{ip: 10.66.0.200, prefix-length: 16}]}}]",
            "port 2222 from the hub did not answer",
        ),
    ] {
        let before: Vec<String> = nodes.iter().map(|node| fleet.node(node).snapshot()).collect();
        let activations: Vec<String> = nodes.iter().map(|node| activation(&fleet.node(node))).collect();
        fleet.apply(&format!(
            "apiVersion: nmstate.io/v1\nkind: NodeNetworkConfigurationPolicy\nmetadata: {{name: {name}}}\nspec:\n  maxUnavailable: 1\n  kiln: {{timeout: 4s, soak: 500ms{options}}}\n  desiredState:\n    {state}\n"
        ));
        wait_for(&fleet, &format!("nncp/{name}"), "Degraded", 120);
        let failed = fleet.kubectl("get nnce -o jsonpath='{range .items[*]}{.metadata.name} {.status.conditions[?(@.type==\"Failing\")].status} {.status.conditions[?(@.type==\"Aborted\")].status}{\"\\n\"}{end}'").output;
        assert_eq!(
            failed.lines().filter(|line| line.contains(name) && line.contains(" True False")).count(),
            1,
            "{name}: {failed}"
        );
        let told = fleet.kubectl("get nnce -o jsonpath='{range .items[*]}{.metadata.name} {.status.conditions[?(@.type==\"Failing\")].message}{\"\\n\"}{end}'").output;
        let why = told
            .lines()
            .filter(|line| line.contains(name))
            .filter_map(|line| line.split_once(' '))
            .find(|why| !why.1.is_empty());
        assert!(why.is_some_and(|(_, why)| why.contains(lost)), "{name}: `{lost}` is named in {told}");
        for (node, before) in nodes.iter().zip(before) {
            until_as_it_was(&fleet, node, &before, name);
        }
        for (node, before) in nodes.iter().zip(activations) {
            assert_eq!(
                activation(&fleet.node(node)),
                before,
                "{name} {node}: nobody touched the profile that is in use"
            );
        }
        assert_eq!(fleet.kubectl(&format!("delete nncp {name}")).code, 0);
        fleet.until("the policy is gone", 60, || {
            let left = fleet.kubectl("get nnce --no-headers").output;
            if left.contains(name) { Err(left) } else { Ok(()) }
        });
    }
}

/// The shapes kubernetes-nmstate documents, as far as this kernel can make them (`day2_vm` has the bond and the VLAN): what is
/// asked for, and what `ip` shows then.
const SHAPES: [(&str, &str, &str, &str); 6] = [
    (
        "static-address",
        "",
        "interfaces:
    - {name: eth1, type: ethernet, state: up, ipv4: {dhcp: false, enabled: true, address: [{ip: 192.168.122.250, prefix-length: 24}]}}",
        "ip -o -4 addr show eth1 | grep 192.168.122.250/24",
    ),
    (
        "routes",
        "",
        "interfaces:
    - {name: eth1, type: ethernet, state: up, ipv4: {dhcp: false, enabled: true, address: [{ip: 192.0.2.251, prefix-length: 24}]}}
    routes:
      config: [{destination: 198.51.100.0/24, metric: 150, next-hop-address: 192.0.2.1, next-hop-interface: eth1, table-id: 254}]",
        "ip route show 198.51.100.0/24 | grep 'via 192.0.2.1 dev eth1 proto static metric 150'",
    ),
    (
        "name-servers",
        "",
        "dns-resolver: {config: {search: [example.com], server: [10.66.0.1]}}",
        "grep -q example.com /etc/resolv.conf && grep 10.66.0.1 /etc/resolv.conf",
    ),
    (
        "linux-bridge",
        "",
        "interfaces:
    - name: br1
      description: Linux bridge with eth1 as a port
      type: linux-bridge
      state: up
      ipv4: {dhcp: false, enabled: false}
      bridge: {options: {stp: {enabled: false}}, port: [{name: eth1, vlan: {}}]}",
        "ls /sys/class/net/br1/brif | grep eth1",
    ),
    (
        "vxlan",
        "",
        "interfaces:
    - {name: vxlan5, type: vxlan, state: up, vxlan: {base-iface: eth0, id: 5, remote: 10.66.0.1, destination-port: 4789}, ipv4: {enabled: false}, ipv6: {enabled: false}}",
        "ip -d link show vxlan5 | grep 'vxlan id 5 remote 10.66.0.1'",
    ),
    // The NIC with the default route becomes the port of a bridge that takes its address and its routes.
    (
        "capture",
        "capture:
    default-gw: routes.running.destination==\"0.0.0.0/0\"
    base-iface: interfaces.name==capture.default-gw.routes.running.0.next-hop-interface
    base-iface-routes: routes.running.next-hop-interface==capture.base-iface.interfaces.0.name
    bridge-routes: capture.base-iface-routes | routes.running.next-hop-interface:=\"br-ex\"
  ",
        "interfaces:
    - name: br-ex
      type: linux-bridge
      state: up
      mac-address: \"{{ capture.base-iface.interfaces.0.mac-address }}\"
      ipv4: \"{{ capture.base-iface.interfaces.0.ipv4 }}\"
      bridge: {options: {stp: {enabled: false}}, port: [{name: \"{{ capture.base-iface.interfaces.0.name }}\", vlan: {}}]}
    routes:
      config: \"{{ capture.bridge-routes.routes.running }}\"",
        "ip -o -4 addr show br-ex | grep 10.66.0.11/16 && ip route show default | grep 'via 10.66.0.1 dev br-ex' && ls /sys/class/net/br-ex/brif | grep eth0",
    ),
];

#[test]
fn policies_of_kubernetes_nmstate_are_applied_unchanged() {
    let nodes = &NODES[..1];
    let Some(fleet) = Fleet::start("policies_of_kubernetes_nmstate_are_applied_unchanged", nodes) else { return };
    fleet.join(nodes, "");
    let node = fleet.node(nodes[0]);
    let before = node.snapshot();
    for (name, capture, state, check) in SHAPES {
        fleet.apply(&format!(
            "apiVersion: nmstate.io/v1\nkind: NodeNetworkConfigurationPolicy\nmetadata: {{name: {name}}}\nspec:\n  {capture}desiredState:\n    {state}\n"
        ));
        wait_for(&fleet, &format!("nncp/{name}"), "Available", 60);
        let seen = node.run(check);
        assert_eq!(
            seen.code,
            0,
            "{name}: {}\n{}\n{}",
            seen.output,
            node.ok("ip -d addr; ip route; cat /etc/resolv.conf"),
            node.agent_log()
        );
        // Deleted, it leaves nothing behind.
        assert_eq!(fleet.kubectl(&format!("delete nncp {name}")).code, 0);
        fleet.until(&format!("the node is as before {name}"), 60, || {
            let now = node.snapshot();
            if now == before { Ok(()) } else { Err(format!("{now}\n--- not\n{before}\n{}", node.agent_log())) }
        });
    }
}
