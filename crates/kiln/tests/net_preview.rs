//! `kiln net preview` as somebody at a shell sees it: with files, and with a hub.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

#[path = "support/served.rs"]
mod served;

use std::fs;
use std::path::Path;
use std::process::Command;

use kiln_testimage::temp_dir::TempDir;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use serde_json::{Value, json};
use served::Hub;

fn state(last: u8) -> Value {
    json!({
        "interfaces": [
            {"name": "eth0", "type": "ethernet", "state": "up", "mac-address": format!("52:54:00:AA:00:{last:02X}"), "mtu": 1500,
             "ipv4": {"enabled": true, "dhcp": false, "address": [{"ip": format!("192.0.2.{last}"), "prefix-length": 24}]}, "ipv6": {"enabled": false}},
            {"name": "eth1", "type": "ethernet", "state": "up", "mac-address": format!("52:54:00:AA:01:{last:02X}"), "mtu": 1500,
             "ipv4": {"enabled": false}, "ipv6": {"enabled": false}},
        ],
        "routes": {
            "running": [{"destination": "0.0.0.0/0", "next-hop-address": "192.0.2.1", "next-hop-interface": "eth0", "table-id": 254}],
            "config": [{"destination": "0.0.0.0/0", "next-hop-address": "192.0.2.1", "next-hop-interface": "eth0", "table-id": 254}],
        },
    })
}

fn kiln(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let run = Command::new(env!("CARGO_BIN_EXE_kiln"))
        .args(["net", "preview"])
        .args(arguments)
        .current_dir(folder)
        .env("KUBECONFIG", "/nowhere")
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (run.status.code().unwrap(), text(run.stdout), text(run.stderr))
}

const STORAGE: &str = "\
apiVersion: nmstate.io/v1
kind: NodeNetworkConfigurationPolicy
metadata: {name: storage}
spec:
  kiln:
    parameters: {pools: [{name: storage, cidr: 10.20.0.0/29}]}
    nodes: {names: [w0, w1]}
  desiredState:
    interfaces:
    - name: eth1
      type: ethernet
      state: up
      mtu: 9000
      ipv4: {enabled: true, dhcp: false, address: [{ip: \"{{ pool.storage }}\", prefix-length: 29}]}
";

#[test]
fn the_network_of_a_pool_is_a_layer_with_an_owner() {
    let folder = TempDir::new("preview-pool");
    let write = |name: &str, text: String| fs::write(folder.path().join(name), text).unwrap();
    write("w0.json", state(10).to_string());
    write("storage.yaml", STORAGE.to_owned());
    write(
        "site.yaml",
        "apiVersion: kiln.dev/v1alpha1\nkind: Host\nmetadata: {name: w0}\nspec: {pool: edge}\n---\n\
        apiVersion: kiln.dev/v1alpha1\nkind: Pool\nmetadata: {name: edge, namespace: default}\nspec:\n  network:\n    interfaces:\n    \
        - {name: eth1, type: ethernet, state: up, mtu: 1400, lldp: {enabled: true}}\n"
            .to_owned(),
    );
    let (exit, told, complaints) =
        kiln(folder.path(), &["storage.yaml", "site.yaml", "--state", "w0=w0.json", "-o", "json"]);
    assert_eq!((exit, complaints.as_str()), (0, ""));
    let told: Value = serde_json::from_str(&told).unwrap();
    let owners = &told["nodes"][0]["owners"];
    assert_eq!(
        (&owners["interfaces[eth1].mtu"], &owners["interfaces[eth1].lldp.enabled"]),
        (&json!("policy/storage"), &json!("pool"))
    );
    assert_eq!(told["nodes"][0]["network"]["interfaces"][0]["mtu"], 9000);
}

#[test]
fn each_node_is_told_what_would_change_and_what_could_go_wrong() {
    let folder = TempDir::new("preview");
    let write = |name: &str, text: String| fs::write(folder.path().join(name), text).unwrap();
    fs::create_dir(folder.path().join("states")).unwrap();
    for (index, node) in ["w0", "w1", "w2"].into_iter().enumerate() {
        write(&format!("states/{node}.yaml"), state(10 + u8::try_from(index).unwrap()).to_string());
    }
    write("storage.yaml", STORAGE.to_owned());
    let (exit, told, complaints) = kiln(folder.path(), &["storage.yaml", "--state-dir", "states"]);
    let risk = "  risk: no probe depends on `eth1`: gateway, DNS and hub are reached another way; add a probe of type Tcp, Http or Ping\n";
    let expected = format!(
        "w0: no link goes down, risk medium\n  eth1 mtu: 1500 -> 9000\n  eth1 ipv4: no address -> 10.20.0.1/29\n{risk}\
        w1: no link goes down, risk medium\n  eth1 mtu: 1500 -> 9000\n  eth1 ipv4: no address -> 10.20.0.2/29\n{risk}\
        2 of 3 nodes chosen, 2 would change\n"
    );
    assert_eq!((exit, told.as_str(), complaints.as_str()), (0, expected.as_str(), ""));

    // One that takes the way to the gateway away, on one node of a NodeNetworkState.
    let nns = json!({"apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkState", "metadata": {"name": "w0"}, "status": {"currentState": state(10)}});
    write("w0.json", nns.to_string());
    write(
        "primary.yaml",
        "kind: NodeNetworkConfigurationPolicy\napiVersion: nmstate.io/v1\nmetadata: {name: primary}\nspec:\n  desiredState:\n    \
        interfaces: [{name: eth0, type: ethernet, ipv4: {enabled: true, dhcp: false, address: [{ip: 192.0.2.99, prefix-length: 24}]}}]\n"
            .to_owned(),
    );
    let (exit, told, _) = kiln(folder.path(), &["primary.yaml", "--state", "w0=w0.json", "-o", "json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    let node = &told["nodes"][0];
    assert_eq!(exit, 0);
    assert_eq!(
        (node["disruption"].as_str(), node["risk"].as_str(), &node["changes"]),
        (Some("primaryPath"), Some("high"), &json!(["eth0 ipv4: 192.0.2.10/24 -> 192.0.2.99/24"]))
    );
    assert_eq!(
        node["risks"],
        json!([
            "192.0.2.10, by which the node is known, is no longer configured anywhere on it",
            "`eth0` carries the default route: the node may be cut off until the change is rolled back"
        ])
    );
    assert_eq!(node["owners"]["interfaces[eth0].ipv4.address"], "policy/primary");

    // Beside one that is in force and wants something else.
    write(
        "old.yaml",
        STORAGE
            .replace("{name: storage}", "{name: old, creationTimestamp: '2026-01-01T00:00:00Z'}")
            .replace("9000", "1400"),
    );
    let (exit, told, _) = kiln(folder.path(), &["storage.yaml", "--with", "old.yaml", "--state", "w0=states/w0.yaml"]);
    let expected =
        "w0: no link goes down, risk medium\n  eth1 mtu: 1500 -> 1400\n  eth1 ipv4: no address -> 10.20.0.1/29\n"
            .to_owned()
            + risk
            + "  policy `storage` is refused: interfaces[eth1].mtu: policy `old` is older and wants `1400`, this one wants `9000`\n\
        1 of 1 nodes chosen, 1 would change\n";
    assert_eq!((exit, told), (1, expected));
}

#[test]
fn what_cannot_be_previewed_is_refused_with_the_reason() {
    let folder = TempDir::new("preview-refused");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("storage.yaml", STORAGE);
    write("typo.yaml", &STORAGE.replace("pool.storage }}", "pool.storrage }}"));
    write("state.yaml", &state(10).to_string());
    write("nic.yaml", &STORAGE.replace("name: eth1", "name: eth7"));
    let complaints = |arguments: &[&str]| {
        let (exit, output, complaints) = kiln(folder.path(), arguments);
        assert_eq!(exit, 1, "{output}{complaints}");
        output + &complaints
    };
    assert_eq!(
        complaints(&["typo.yaml", "--state", "w0=state.yaml"]),
        "error: policy `storage` is refused on every node\n  caused by: spec.desiredState.interfaces[0].ipv4.address[0].ip: there is \
        no pool `storrage`: the policy has the pools storage\n"
    );
    assert_eq!(complaints(&["storage.yaml", "--state", "w0"]), "error: `--state w0` is not NODE=FILE\n");
    assert_eq!(
        complaints(&["storage.yaml", "--state", "w0=storage.yaml"]),
        "error: `storage.yaml` is neither a NodeNetworkState nor the output of `nmstatectl show`\n"
    );
    assert_eq!(
        complaints(&["state.yaml", "--state", "w0=state.yaml"]),
        "error: the files hold no NodeNetworkConfigurationPolicy\n"
    );
    assert_eq!(
        complaints(&["nic.yaml", "--state", "w0=state.yaml"]),
        "w0: cannot be done: the node has no interface `eth7`\n1 of 1 nodes chosen, 0 would change\n"
    );
}

fn kind(version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: "nmstate.io".into(),
        version: version.into(),
        api_version: format!("nmstate.io/{version}"),
        kind: kind.into(),
        plural: plural.into(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn states_policies_and_labels_are_taken_from_the_hub() {
    let folder = TempDir::new("preview-hub");
    let hub = Hub::start(folder.path());
    let client = hub.client().await;
    let states: Api<DynamicObject> =
        Api::all_with(client.clone(), &kind("v1beta1", "NodeNetworkState", "nodenetworkstates"));
    let object = json!({"apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkState", "metadata": {"name": "w0"}});
    states.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    let status = json!({"status": {"currentState": state(10)}});
    states.patch_status("w0", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let policies: Api<DynamicObject> = Api::all_with(
        client.clone(),
        &kind("v1", "NodeNetworkConfigurationPolicy", "nodenetworkconfigurationpolicies"),
    );
    let mtu = json!({"apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy", "metadata": {"name": "mtu"},
        "spec": {"desiredState": {"interfaces": [{"name": "eth1", "type": "ethernet", "mtu": 1400}]}}});
    policies.create(&PostParams::default(), &serde_json::from_value(mtu).unwrap()).await.unwrap();
    let file = folder.path().join("storage.yaml");
    fs::write(&file, STORAGE).unwrap();
    let (exit, told, complaints) = hub.kiln(&["net", "preview", file.to_str().unwrap()]);
    assert_eq!(exit, 1, "{told}{complaints}");
    assert!(told.contains("eth1 mtu: 1500 -> 1400\n"), "{told}");
    assert!(
        told.contains("policy `storage` is refused: interfaces[eth1].mtu: policy `mtu` is older and wants `1400`"),
        "{told}"
    );
    fs::write(&file, STORAGE.replace("    nodes: {names: [w0, w1]}", "    priority: 7")).unwrap();
    let (exit, told, complaints) = hub.kiln(&["net", "preview", file.to_str().unwrap()]);
    assert_eq!(exit, 0, "{told}{complaints}");
    assert!(told.contains("eth1 mtu: 1500 -> 9000\n"), "{told}");

    // Which node a Host becomes, its labels and its own network.
    let hosts: Api<DynamicObject> =
        Api::namespaced_with(client, "default", &kiln::hub::controllers::kinds::HOST.resource());
    let host = json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Host", "metadata": {"name": "rack1", "namespace": "default"},
        "spec": {"hostname": "w0", "role": "worker", "nodeLabels": {"zone": "a"},
            "network": {"interfaces": [{"name": "eth1", "type": "ethernet", "state": "up", "mtu": 1450}]}}});
    hosts.create(&PostParams::default(), &serde_json::from_value(host).unwrap()).await.unwrap();
    let chosen = STORAGE.replace(
        "    nodes: {names: [w0, w1]}",
        "    nodes: {matchLabels: {zone: a}, matchExpressions: [{key: node-role.kubernetes.io/worker, operator: Exists}]}\n    priority: 7",
    );
    fs::write(&file, chosen.replace("      mtu: 9000\n", "")).unwrap();
    let (_, told, complaints) = hub.kiln(&["net", "preview", file.to_str().unwrap(), "-o", "json"]);
    let told: Value = serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {told}{complaints}"));
    let node = told["nodes"].as_array().unwrap().iter().find(|node| node["node"] == "w0").unwrap();
    assert_eq!(node["chosen"], true, "{node:#}");
    assert_eq!(
        node["owners"]["interfaces[eth1].mtu"], "policy/mtu",
        "the policy in force is over the host's own network"
    );
    assert_eq!(node["owners"]["interfaces[eth1].ipv4.address"], "policy/storage");
    assert_eq!(node["network"]["interfaces"][0]["mtu"], 1400);
}
