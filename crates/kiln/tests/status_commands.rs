//! `kiln status`, `why` and `watch` against a real `kiln serve`: the very words people see.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

#[path = "support/served.rs"]
mod served;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use axum::http::Request;
use kiln::hub::controllers::kinds;
use kiln_testimage::temp_dir::TempDir;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use served::Hub;

fn host(name: &str, mac: &str) -> Value {
    json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Host", "metadata": {"name": name, "namespace": "default"}, "spec": {"macAddress": mac}})
}

async fn apply(hub: &Hub, object: Value) {
    let kind = kinds::find(object["kind"].as_str().unwrap()).unwrap();
    let api: Api<DynamicObject> = Api::namespaced_with(hub.client().await, "default", &kind.resource());
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// Asks until the answer is as wished: the controllers need a moment.
fn until(hub: &Hub, arguments: &[&str], wished: impl Fn(&str) -> bool) -> String {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let (exit, output, complaints) = hub.kiln(arguments);
        if exit == 0 && wished(&output) {
            return output;
        }
        assert!(Instant::now() < deadline, "kiln {arguments:?}: {exit}\n{output}{complaints}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The same text with `TIME` for each time.
fn without_times(text: &str) -> String {
    let is_time = |word: &str| word.len() == 20 && word.ends_with('Z') && word.as_bytes()[10] == b'T';
    let line = |line: &str| {
        line.split(' ').map(|word| if is_time(word) { "TIME" } else { word }).collect::<Vec<_>>().join(" ")
    };
    text.lines().map(|text| line(text) + "\n").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn status_and_why_tell_where_a_host_stands() {
    let folder = TempDir::new("status");
    let hub = Hub::start(folder.path());
    let (exit, output, complaints) = hub.kiln(&["status"]);
    assert_eq!(
        (exit, output.as_str(), complaints.as_str()),
        (0, "no hosts are declared; apply a BareMetalHost, an NMStateConfig or a Host\n", "")
    );
    apply(&hub, host("w0", "52:54:00:00:00:01")).await;
    let told = until(&hub, &["status"], |output| output.contains("Declared"));
    assert_eq!(
        told.lines().next().unwrap().split_whitespace().collect::<Vec<_>>(),
        ["NAMESPACE", "HOST", "STAGE", "VALID", "READY", "FINDINGS"]
    );
    let why = without_times(&until(&hub, &["why", "w0"], |output| output.contains("missing")));
    let expected = "\
default/w0
  TIME  Declared         the object was created (Host default/w0)

missing: PoweredOn, for ";
    assert!(why.starts_with(expected), "{why}");
    let json: Value = serde_json::from_str(&until(&hub, &["why", "default/w0", "-o", "json"], |_| true)).unwrap();
    assert_eq!((json["missing"].as_str(), json["likelihood"].as_str()), (Some("PoweredOn"), Some("known")));
    let yaml = until(&hub, &["status", "w0", "-o", "yaml"], |_| true);
    assert!(yaml.starts_with("namespace: default\nname: w0\nstage: Declared\n"), "{yaml}");
    let (exit, _, complaints) = hub.kiln(&["why", "w9"]);
    assert_eq!((exit, complaints.as_str()), (1, "error: there is no host `w9`; there are default/w0\n"));
    drop(hub);
    let run =
        Command::new(env!("CARGO_BIN_EXE_kiln")).args(["status", "--data-dir"]).arg(folder.path()).output().unwrap();
    assert_eq!(run.status.code(), Some(2), "a hub that does not answer is a failure");
    let run = Command::new(env!("CARGO_BIN_EXE_kiln")).args(["status", "--kubeconfig", "/nowhere"]).output().unwrap();
    assert_eq!(run.status.code(), Some(1), "a kubeconfig that is not there is a refusal");
}

/// What a machine of the pool sends: status and body.
async fn send(hub: &Hub, method: &str, path: &str, authorization: &str, body: String) -> (u16, Vec<u8>) {
    let request = Request::builder().method(method).uri(path).header("authorization", authorization);
    let answer =
        hub.client().await.send(request.body(kube::client::Body::from(body.into_bytes())).unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    let body = axum::body::Body::new(answer.into_body());
    (status, axum::body::to_bytes(body, 1 << 20).await.unwrap().to_vec())
}

/// The story of a worker whose pool writes one file too many: from what the machine said, to the object that is to blame.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_network_is_explained_by_the_object_that_lost_it() {
    let folder = TempDir::new("why-lost");
    let hub = Hub::start(folder.path());
    let config = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: 50-network-dumy, labels: {machineconfiguration.openshift.io/role: worker}}\nspec:\n  config:\n    ignition: {version: 3.2.0}\n    storage: {files: [{path: /etc/NetworkManager/system-connections/dummy0.nmconnection, mode: 420, contents: {source: \"data:,%5Bconnection%5D%0Aid=dummy0%0Atype=dummy%0Ainterface-name=dummy0%0A\"}}]}\n";
    apply(&hub, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config", "namespace": "default"}, "data": {"config": config}})).await;
    apply(
        &hub,
        json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Pool", "metadata": {"name": "edge", "namespace": "default"},
        "spec": {"config": [{"name": "config"}], "firstBootNetwork": "stock"}}),
    )
    .await;
    let network = json!({"interfaces": [{"name": "eth0", "type": "ethernet", "state": "up",
        "ipv4": {"enabled": true, "dhcp": false, "address": [{"ip": "10.0.11.11", "prefix-length": 24}]}}]});
    let mut worker = host("w0", "52:54:00:00:00:01");
    (worker["spec"]["pool"], worker["spec"]["network"]) = ("edge".into(), network);
    apply(&hub, worker).await;
    let pointer = folder.path().join("w0.ign");
    let made = hub.kiln(&["ignition", "pointer", "--host", "w0", "--out", pointer.to_str().unwrap()]);
    assert_eq!(made.0, 0, "{made:?}");
    let pointer: Value = serde_json::from_str(&std::fs::read_to_string(&pointer).unwrap()).unwrap();
    let headers = pointer["ignition"]["config"]["merge"][0]["httpHeaders"].as_array().unwrap().clone();
    let authorization =
        headers.iter().find(|header| header["name"] == "Authorization").unwrap()["value"].as_str().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let config: Value = loop {
        let (status, body) = send(&hub, "GET", "/ignition", authorization, String::new()).await;
        if status == 200 {
            break serde_json::from_slice(&body).unwrap();
        }
        assert!(status == 511 && Instant::now() < deadline, "{status}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let files: Vec<&str> =
        config["storage"]["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!(
        files,
        ["/etc/NetworkManager/system-connections/dummy0.nmconnection", "/etc/hostname", "/etc/kiln/beacon.json",],
        "the pool's file as it is, and none of the host's"
    );
    let report = json!({"point": "Leaving", "bootId": "b", "uptimeMs": 9000,
        "interfaces": [{"name": "bond0.110", "up": true, "addresses": ["10.0.11.11/24"]}],
        "defaultRoutes": [{"gateway": "10.0.11.1", "interface": "bond0.110"}],
        "propagation": {"policy": "stock", "outcome": "blocked", "blockedBy": [files[0]]}});
    assert_eq!(send(&hub, "POST", "/beacon", authorization, report.to_string()).await, (204, vec![]));
    until(&hub, &["why", "w0"], |told| {
        told.contains("so far: last seen in the initramfs with 10.0.11.11 on bond0.110; RealRoot may take 10 minutes")
    });
    // An hour passes.
    let api: Api<DynamicObject> = Api::namespaced_with(hub.client().await, "default", &kinds::HOST.resource());
    let mut boot = api.get("w0").await.unwrap().data["status"]["boot"].clone();
    let then = kiln_core::timeline::Moment(kiln::hub::timeline::now().0 - 3600);
    boot["reports"][0]["time"] = kiln::hub::timeline::render_time(then).into();
    let patch = Patch::Merge(json!({"status": {"boot": boot}}));
    api.patch_status("w0", &PatchParams::default(), &patch).await.unwrap();
    let told = without_times(&until(&hub, &["why", "w0"], |told| told.contains("cause")));
    let expected = "
reports of its newest boot
  TIME  Leaving          bond0.110 has 10.0.11.11/24, default route via 10.0.11.1 (after 9 s)
";
    assert!(told.contains(expected), "{told}");
    let expected = "
cause: last seen in the initramfs with 10.0.11.11 on bond0.110; the real root never reported; MachineConfig 50-network-dumy puts dummy0.nmconnection into system-connections, so the initramfs network was not kept
next step: take the file out of MachineConfig 50-network-dumy, or let Kiln compose both (`firstBootNetwork: composed` in the Pool), or keep the initramfs network with the kernel argument coreos.force_persist_ip; then `kiln token rotate w0` and boot it again
";
    assert!(told.ends_with(expected), "{told}");
    let json: Value = serde_json::from_str(&until(&hub, &["why", "w0", "-o", "json"], |_| true)).unwrap();
    assert_eq!((json["likelihood"].as_str(), json["missing"].as_str()), (Some("known"), Some("RealRoot")));
    assert_eq!(json["boot"]["writtenBy"][0]["object"], "MachineConfig 50-network-dumy", "the evidence comes along");
    // The machine's own program, with the pointer it booted with and then with the config it got.
    let machine = folder.path().join("machine");
    let put = |path: &str, bytes: &[u8]| {
        let path = machine.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    put("proc/sys/kernel/random/boot_id", b"6b0fbdb1\n");
    put("proc/uptime", b"8.12 3.00\n");
    put("sys/class/net/eth0/address", b"52:54:00:00:00:01\n");
    put("sys/class/net/eth0/carrier", b"1\n");
    put("usr/lib/ignition/user.ign", pointer.to_string().as_bytes());
    let report = |point: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
        let run = command.args(["firstboot", "report", "--point", point, "--root"]).arg(&machine).output().unwrap();
        let said = String::from_utf8([run.stdout, run.stderr].concat()).unwrap();
        assert!(said.contains("taken by https://") && !said.contains("kb1."), "{said}");
    };
    report("network");
    until(&hub, &["why", "w0"], |told| told.contains("so far: last seen in the initramfs without an address"));
    let own = config["storage"]["files"][2]["contents"]["source"].as_str().unwrap();
    put("etc/kiln/beacon.json", &kiln_core::ignition::data_url::decode(own).unwrap());
    std::fs::remove_file(machine.join("usr/lib/ignition/user.ign")).unwrap();
    put("proc/uptime", b"20.00 3.00\n");
    report("real-root");
    let cause =
        "cause: the real root runs, but 10.0.11.11/24 is declared for eth0 and missing: no interface has an address";
    until(&hub, &["why", "w0"], |told| told.contains(cause));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_goes_on_over_a_restart_of_the_hub() {
    let folder = TempDir::new("watch");
    let hub = Hub::start(folder.path());
    let address = hub.address();
    apply(&hub, host("w0", "52:54:00:00:00:01")).await;
    let mut watching = Command::new(env!("CARGO_BIN_EXE_kiln"))
        .args(["watch", "-o", "json", "--data-dir"])
        .arg(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut next = |wished: &str| loop {
        let line = lines.next().unwrap().unwrap();
        let change: Value = serde_json::from_str(&line).unwrap();
        let text = format!("{} {}", change["name"].as_str().unwrap(), change["change"].as_str().unwrap());
        if text.starts_with(wished) {
            return text;
        }
    };
    assert_eq!(next("w0 Declared"), "w0 Declared: the object was created (Host default/w0)");
    drop(hub);
    let hub = Hub::start_at(folder.path(), &address);
    apply(&hub, host("w1", "52:54:00:00:00:02")).await;
    assert_eq!(next("w1 Declared"), "w1 Declared: the object was created (Host default/w1)");
    watching.kill().unwrap();
    watching.wait().unwrap();
}
