//! MachineConfigs on running nodes, from end to end: the real hub, real agents beside a real NetworkManager each, the real kubectl.
//! The nodes have no systemd; services, units and reboots are tried in a virtual machine (`day2_vm`).

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

#[path = "support/fleet.rs"]
mod fleet;

use fleet::Fleet;

const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

/// What a change of the file takes, in upstream's words.
const RULES: &str = "apiVersion: operator.openshift.io/v1
kind: MachineConfiguration
metadata: {name: cluster}
spec:
  nodeDisruptionPolicy:
    files:
    - path: /etc/edge.conf
      actions: [{type: None}]
";

const POOL: &str = "apiVersion: kiln.dev/v1alpha1
kind: Pool
metadata: {name: edge, namespace: default}
spec: {maxUnavailable: 1}
";

/// A bridge with an address.
const BRIDGE: &str = "[connection]\nid=br9\nuuid=99000000-0000-4000-8000-000000000001\ntype=bridge\ninterface-name=br9\n\n[bridge]\nstp=false\n\n[ipv4]\nmethod=manual\naddress1=198.51.100.9/24\n\n[ipv6]\nmethod=disabled\n";
/// The way out of every node, with an address that leads nowhere.
const LOST: &str = "[connection]\nid=uplink\nuuid=66000000-0000-4000-8000-0000000000ff\ntype=ethernet\ninterface-name=eth0\nautoconnect-priority=50\n\n[ipv4]\nmethod=manual\naddress1=10.99.0.5/24\n\n[ipv6]\nmethod=disabled\n";

/// A MachineConfig with these files: path, mode, contents.
fn config(files: &[(&str, u32, &str)]) -> String {
    let entry = |(path, mode, text): &(&str, u32, &str)| {
        let escaped: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
        format!("{{path: {path}, mode: {mode}, overwrite: true, contents: {{source: 'data:,{escaped}'}}}}")
    };
    let files: Vec<String> = files.iter().map(entry).collect();
    format!(
        "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {{name: 50-edge, labels: {{machineconfiguration.openshift.io/role: edge}}}}\nspec: {{config: {{ignition: {{version: 3.2.0}}, storage: {{files: [{}]}}}}}}\n",
        files.join(", ")
    )
}

const FILE: &str = "/etc/edge.conf";
const BR9: &str = "/etc/NetworkManager/system-connections/br9.nmconnection";
const ETH0: &str = "/etc/NetworkManager/system-connections/wrong.nmconnection";

/// `status.machine` of a Host: the field as kubectl prints it.
fn machine(fleet: &Fleet, node: &str, field: &str) -> String {
    fleet.kubectl(&format!("get host {node} -n default -o jsonpath='{{.status.machine.{field}}}'")).output
}

/// Waits until every node says that it has what it shall have, and that this is not what it had before. Returns what they have.
fn until_applied(fleet: &Fleet, before: &[String]) -> Vec<String> {
    let applied = |(index, node): (usize, &&str)| {
        fleet.until(&format!("{node} has its config"), 120, || {
            let wished = machine(fleet, node, "revision");
            let (report, phase) = (machine(fleet, node, "report.revision"), machine(fleet, node, "report.phase"));
            let settled = report == wished && phase == "applied" && machine(fleet, node, "upkeep").is_empty();
            match settled && !wished.is_empty() && before.get(index) != Some(&wished) {
                true => Ok(()),
                false => Err(format!("{}\n{}", machine(fleet, node, "*"), fleet.node(node).agent_log())),
            }
        });
        machine(fleet, node, "revision")
    };
    NODES.iter().enumerate().map(applied).collect()
}

#[test]
fn machine_configs_reach_running_nodes_and_what_cuts_them_off_is_put_back() {
    let name = "machine_configs_reach_running_nodes_and_what_cuts_them_off_is_put_back";
    let Some(fleet) = Fleet::start(name, &NODES) else { return };
    fleet.join(&NODES, ", pool: edge");
    for manifest in [RULES, POOL, &config(&[(FILE, 0o640, "one\n")])] {
        fleet.apply(manifest);
    }
    let first = until_applied(&fleet, &[]);
    for node in NODES {
        assert_eq!(fleet.node(node).ok("stat -c %a /etc/edge.conf; cat /etc/edge.conf"), "640\none\n");
    }

    // A file and the network in one edit, without a reboot.
    let good = config(&[(FILE, 0o640, "two\n"), (BR9, 0o600, BRIDGE)]);
    fleet.apply(&good);
    let second = until_applied(&fleet, &first);
    let before: Vec<String> = NODES.iter().map(|node| fleet.node(node).snapshot()).collect();
    for node in NODES {
        let seen = fleet.node(node).ok("cat /etc/edge.conf; ip -o -4 addr show br9; stat -c %a /etc/NetworkManager/system-connections/br9.nmconnection");
        assert!(seen.starts_with("two\n") && seen.contains("198.51.100.9/24") && seen.ends_with("600\n"), "{seen}");
    }

    // What cuts a node off is put back, with the file beside it, and nobody else tries it.
    fleet.apply(&config(&[(FILE, 0o640, "three\n"), (BR9, 0o600, BRIDGE), (ETH0, 0o600, LOST)]));
    fleet.until("one node has failed and the others are held back", 180, || {
        let phases: Vec<String> = NODES.iter().map(|node| machine(&fleet, node, "report.phase")).collect();
        let waits: Vec<String> = NODES.iter().map(|node| machine(&fleet, node, "waits")).collect();
        let failed = phases.iter().filter(|phase| phase.contains("rolledBack")).count();
        let held = waits.iter().filter(|why| why.contains("failed on other nodes of pool edge")).count();
        if (failed, held) == (1, 2) {
            Ok(())
        } else {
            Err(format!("{phases:?} {waits:?}\n{}", fleet.node(NODES[0]).agent_log()))
        }
    });
    for (node, before) in NODES.iter().zip(&before) {
        assert_eq!(fleet.node(node).snapshot(), *before, "{node}");
        assert_eq!(fleet.node(node).ok("cat /etc/edge.conf"), "two\n", "{node}");
    }
    fleet.apply(&good);
    fleet.until("every node has what it had", 120, || {
        let back = |(node, revision): (&&str, &String)| {
            machine(&fleet, node, "report.revision") == *revision && machine(&fleet, node, "report.phase") == "applied"
        };
        if NODES.iter().zip(&second).all(back) { Ok(()) } else { Err(machine(&fleet, NODES[0], "*")) }
    });

    // Somebody edits by hand: it is told, and the next config goes over it. What a config no longer has goes.
    fleet.node(NODES[0]).ok("echo mine > /etc/edge.conf");
    fleet.until("the drift is told", 30, || {
        let phase = machine(&fleet, NODES[0], "report.phase");
        if phase.contains("/etc/edge.conf has other contents") { Ok(()) } else { Err(phase) }
    });
    fleet.apply(&RULES.replace("/etc/edge.conf", "/etc"));
    fleet.apply(&config(&[("/etc/edge.d/more", 0o644, "four\n")]));
    until_applied(&fleet, &second);
    for node in NODES {
        fleet.until(&format!("{node} has only what the config has"), 30, || {
            let said = fleet.node(node).run("cat /etc/edge.d/more; ls /etc/edge.conf /sys/class/net/br9");
            let gone = said.output.starts_with("four") && said.output.matches("No such file").count() == 2;
            if gone { Ok(()) } else { Err(format!("{}\n{}", said.output, fleet.node(node).agent_log())) }
        });
    }
}
