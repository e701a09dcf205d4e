//! `kiln status`, `why` and `watch` against a real `kiln serve`: the very words people see.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

#[path = "support/served.rs"]
mod served;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kiln::hub::controllers::kinds;
use kiln_testimage::temp_dir::TempDir;
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::{Value, json};
use served::Hub;

fn host(name: &str, mac: &str) -> Value {
    json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Host", "metadata": {"name": name, "namespace": "default"}, "spec": {"macAddress": mac}})
}

async fn apply(hub: &Hub, object: Value) {
    let api: Api<DynamicObject> = Api::namespaced_with(hub.client().await, "default", &kinds::HOST.resource());
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
