//! MachineConfigs on running nodes from outside: an edit of a MachineConfig, and what four nodes hear of it. The agents are
//! simulated: they write no file, they only say what a node would say, over the endpoints a node uses. So are the pods of the
//! cluster that they join.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

#[path = "support/agents.rs"]
mod agents;
#[path = "support/chaos.rs"]
mod chaos;
#[path = "support/lab.rs"]
mod lab;
#[path = "support/machine_agents.rs"]
mod machine_agents;
#[path = "support/nodes.rs"]
mod nodes;
#[path = "support/pods.rs"]
mod pods;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use agents::{Behaviour, Site};
use kiln::hub::controllers;
use kiln::hub::pools::Settings;
use kiln::hub::pools::drain::{CLOSED_BEFORE, DRAINING};
use kiln_apiserver::router;
use lab::{Embedded, Known};
use machine_agents::{FILE, MachineAgent, file};
use pods::{SharedPods, with_pods};
use serde_json::{Value, json};

/// A MachineConfig whose one file has this text.
fn config(text: &str) -> Value {
    json!({"metadata": {"name": "50-app", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"config": {"ignition": {"version": "3.2.0"},
            "storage": {"files": [{"path": FILE, "mode": 420, "contents": {"source": format!("data:,{text}")}}]}}}})
}

async fn edit(site: &Site, text: &str) {
    site.edit("MachineConfig", "50-app", json!({"spec": config(text)["spec"]})).await;
}

/// Hosts of pool `worker` with agents that have what they shall have.
async fn fleet(site: &Site, count: usize, pool: Value) -> Vec<MachineAgent> {
    site.create("Pool", json!({"metadata": {"name": "worker"}, "spec": pool})).await;
    settle(site, count).await
}

async fn settle(site: &Site, count: usize) -> Vec<MachineAgent> {
    site.create("MachineConfig", config("service-0")).await;
    let mut agents = Vec::new();
    for number in 0..count {
        let name = format!("w{number}");
        site.host(&name, json!({})).await;
        agents.push(MachineAgent::start(site, &name, "service-0").await);
    }
    until_all(site, count, "settled").await;
    agents
}

async fn machine(site: &Site, host: &str) -> Value {
    site.host_status(host).await["machine"].clone()
}

/// Waits until every host has what it shall have, and nobody is out.
async fn until_all(site: &Site, count: usize, what: &str) {
    site.until(what, async || {
        let mut done = 0;
        for number in 0..count {
            let machine = machine(site, &format!("w{number}")).await;
            let applied = machine["revision"].is_string() && machine["applied"]["revision"] == machine["revision"];
            done += usize::from(applied && machine["upkeep"].is_null() && machine["report"]["phase"] == "applied");
        }
        done == count
    })
    .await;
}

/// Waits until every agent has this text.
async fn until_texts(site: &Site, agents: &[MachineAgent], text: &str) {
    site.until(&format!("everybody has {text}"), async || agents.iter().all(|agent| agent.text() == text)).await;
    until_all(site, agents.len(), "everybody says so").await;
    site.until("no slot is left", async || site.slots().await.is_empty()).await;
}

async fn condition(site: &Site, kind: &str, name: &str) -> Value {
    let pool = site.api(kind).get("worker").await.unwrap();
    let conditions = pool.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == name).unwrap_or_default()
}

async fn an_edit_reaches_two_of_four_nodes_at_a_time(site: Site) {
    let agents = fleet(&site, 4, json!({"maxUnavailable": 2})).await;
    assert_eq!(site.most_out(), 0, "what nobody notices needs no slot");
    edit(&site, "service-1").await;
    until_texts(&site, &agents, "service-1").await;
    assert_eq!(site.most_out(), 2, "{:?}", site.watchman.lock().unwrap());
    let status = site.host_status("w0").await;
    let revision = status["machine"]["revision"].as_str().unwrap()[..8].to_owned();
    let told = format!("machine config {revision} applied in 12 ms: ~ /etc/app.conf");
    let entries = status["timeline"].as_array().unwrap().clone();
    assert!(entries.iter().any(|entry| entry["stage"] == "Changed" && entry["cause"] == told.as_str()), "{entries:?}");
    site.until("the pool says so", async || {
        condition(&site, "Pool", "Updated").await["message"] == "All 4 nodes are updated"
    })
    .await;
}

async fn one_failure_halts_the_rest_and_an_edit_goes_over_it(site: Site) {
    let agents = fleet(&site, 4, json!({})).await;
    edit(&site, "bad-1").await;
    let halted = "the config failed on other nodes of pool worker; change it";
    site.until("the others wait", async || {
        let mut waiting = 0;
        for number in 0..4 {
            waiting += usize::from(machine(&site, &format!("w{number}")).await["waits"] == halted);
        }
        waiting == 3 && site.slots().await.is_empty()
    })
    .await;
    let tried = site.watchman.lock().unwrap().order.clone();
    assert_eq!(tried.len(), 1, "nobody else tried: {tried:?}");
    assert!(agents.iter().all(|agent| agent.text() == "service-0"));
    site.until("the pool is degraded", async || {
        let said = condition(&site, "Pool", "NodeDegraded").await["message"].clone();
        let by = format!("Node {} is reporting: \"crio.service did not start\"", tried[0]);
        said == format!("1 node is reporting degraded status on sync. {by}")
    })
    .await;
    edit(&site, "service-2").await;
    until_texts(&site, &agents, "service-2").await;
    assert_eq!(site.most_out(), 1, "a pool that says nothing lets one go at a time");
}

async fn network_and_files_share_one_budget(site: Site) {
    let agents = fleet(&site, 3, json!({"maxUnavailable": 1})).await;
    let _networks: Vec<agents::Agent> =
        (0..3).map(|number| site.agent(&format!("w{number}"), Behaviour::Slow(100))).collect();
    site.until("they have their own networks", async || {
        let mut settled = 0;
        for number in 0..3 {
            settled +=
                usize::from(site.host_status(&format!("w{number}")).await["network"]["report"]["phase"] == "applied");
        }
        settled == 3 && site.slots().await.is_empty()
    })
    .await;
    site.watchman.lock().unwrap().forget();
    let mtu = json!({"interfaces": [{"name": "eth0", "type": "ethernet", "state": "up", "mtu": 1400}]});
    site.policy("mtu", json!({"desiredState": mtu, "maxUnavailable": 3})).await;
    edit(&site, "service-1").await;
    until_texts(&site, &agents, "service-1").await;
    site.until_condition("mtu", "Available", "3/3 nodes successfully configured").await;
    let watchman = site.watchman.lock().unwrap().clone();
    assert_eq!((watchman.most, watchman.order.len()), (1, 6), "{watchman:?}");
}

async fn a_leader_that_begins_goes_on_where_the_one_before_was(site: Site) {
    let agents = fleet(&site, 4, json!({"maxUnavailable": 1})).await;
    edit(&site, "service-1").await;
    for _ in 0..3 {
        site.until("a slot", async || !site.slots().await.is_empty()).await;
        site.replace_leader();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    until_texts(&site, &agents, "service-1").await;
    assert!(site.most_out() <= 1, "{:?}", site.watchman.lock().unwrap());
}

chaos::on_each_day!(17:
    an_edit_reaches_two_of_four_nodes_at_a_time,
    one_failure_halts_the_rest_and_an_edit_goes_over_it,
    network_and_files_share_one_budget,
    a_leader_that_begins_goes_on_where_the_one_before_was,
);

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_machine_config_pool_waits_and_counts_in_upstreams_words() {
    let site = Site::start("machines-paused", None).await;
    site.create(
        "MachineConfigPool",
        json!({"metadata": {"name": "worker"}, "spec": {"paused": true, "maxUnavailable": "50%",
        "machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": "worker"}}}}),
    )
    .await;
    let agents = settle(&site, 2).await;
    edit(&site, "service-1").await;
    site.until("both wait", async || {
        let mut waiting = 0;
        for number in 0..2 {
            waiting += usize::from(machine(&site, &format!("w{number}")).await["waits"] == "pool worker is paused");
        }
        waiting == 2
    })
    .await;
    let updating = async || condition(&site, "MachineConfigPool", "Updating").await;
    site.until("it says so", async || updating().await["message"] == "2 of 2 nodes are not updated yet: w0, w1").await;
    assert!(agents.iter().all(|agent| agent.text() == "service-0"));
    site.edit("MachineConfigPool", "worker", json!({"spec": {"paused": false}})).await;
    until_texts(&site, &agents, "service-1").await;
    assert_eq!(site.most_out(), 1);
    site.until("the pool is updated", async || {
        let status = site.api("MachineConfigPool").get("worker").await.unwrap().data["status"].clone();
        let counts = [
            "machineCount",
            "updatedMachineCount",
            "readyMachineCount",
            "unavailableMachineCount",
            "degradedMachineCount",
        ];
        let counts: Vec<Value> = counts.iter().map(|key| status[*key].clone()).collect();
        condition(&site, "MachineConfigPool", "Updated").await["status"] == "True" && counts == [2, 2, 2, 0, 0]
    })
    .await;
    for (name, status) in
        [("Updating", "False"), ("Degraded", "False"), ("NodeDegraded", "False"), ("RenderDegraded", "False")]
    {
        assert_eq!(condition(&site, "MachineConfigPool", name).await["status"], status, "{name}");
    }
}

/// A pod on a Node.
fn pod(pods: &SharedPods, name: &str, node: &str) {
    let metadata = json!({"name": name, "namespace": "lab", "ownerReferences": [{"kind": "ReplicaSet", "name": "x", "controller": true}]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": "Running"}});
    pods.lock().unwrap().all.insert(name.to_owned(), pod);
}

async fn node(cluster: &Embedded, name: &str) -> Value {
    let node = lab::api(&cluster.client, "Node", "").get(name).await.unwrap();
    json!({"annotations": node.metadata.annotations, "closed": node.data["spec"]["unschedulable"] == true})
}

/// A cluster with ready Nodes, some of them closed, and the hub that reaches it by the name `target`.
async fn with_cluster(name: &str, nodes: &[(&str, bool)], pods: &SharedPods) -> (Embedded, Site) {
    let cluster = Embedded::start(&format!("{name}-cluster")).await;
    let joined = controllers::in_process(with_pods(router(Arc::clone(&cluster.server)), pods), "test");
    let known = HashMap::from([("target".to_owned(), (joined, Vec::new()))]);
    let settings =
        Settings { clusters: Some(Arc::new(Known(known))), patrol: Duration::from_millis(100), ..Settings::default() };
    let site = Site::start_with(name, None, settings).await;
    for (name, closed) in nodes {
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        lab::create(
            &cluster.client,
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"unschedulable": closed}}),
        )
        .await;
        let parameters = kube::api::PatchParams::default();
        let patch = kube::api::Patch::Merge(json!({"status": ready}));
        lab::api(&cluster.client, "Node", "").patch_status(name, &parameters, &patch).await.unwrap();
    }
    (cluster, site)
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_leave_before_a_reboot_as_their_budget_allows_and_may_come_back() {
    let pods = SharedPods::default();
    let (cluster, site) = with_cluster("machines-drain", &[("w0", false), ("w1", true)], &pods).await;
    let agents = fleet(&site, 2, json!({"kubeconfig": {"name": "target"}})).await;
    pod(&pods, "web", "w0");
    pods.lock().unwrap().guarded.insert("web".to_owned());
    edit(&site, "reboot-1").await;
    site.until("the budget of its pods is waited for", async || {
        let waits = machine(&site, "w0").await["waits"].as_str().unwrap_or_default().to_owned();
        waits.contains("pods left on Node w0: 1") && waits.contains("would violate the pod's disruption budget")
    })
    .await;
    let told = node(&cluster, "w0").await;
    assert!(told["closed"] == true && told["annotations"][DRAINING].is_string(), "{told}");
    assert!(agents.iter().all(|agent| agent.text() == "service-0"), "nobody went before it was empty");
    pods.lock().unwrap().guarded.clear();
    until_texts(&site, &agents, "reboot-1").await;
    assert_eq!(site.watchman.lock().unwrap().order, ["w0", "w1"]);
    assert!(pods.lock().unwrap().all.is_empty(), "the pod was evicted");
    for (name, closed) in [("w0", false), ("w1", true)] {
        let told = node(&cluster, name).await;
        assert_eq!(told["closed"], closed, "{name} is as it was: {told}");
        assert!(told["annotations"][DRAINING].is_null() && told["annotations"][CLOSED_BEFORE].is_null(), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_goes_with_its_pods_when_the_time_to_drain_it_is_over() {
    let pods = SharedPods::default();
    let (cluster, site) = with_cluster("machines-drain-limit", &[("w0", false)], &pods).await;
    let agents = fleet(&site, 1, json!({"kubeconfig": {"name": "target"}, "drainTimeout": "3s"})).await;
    pod(&pods, "web", "w0");
    pods.lock().unwrap().guarded.insert("web".to_owned());
    let began = std::time::Instant::now();
    edit(&site, "reboot-1").await;
    site.until("its pods are waited for", async || {
        machine(&site, "w0").await["waits"].as_str().is_some_and(|why| why.contains("pods left on Node w0: 1"))
    })
    .await;
    assert_eq!(agents[0].text(), "service-0");
    until_texts(&site, &agents, "reboot-1").await;
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
    assert!(pods.lock().unwrap().all.contains_key("web"), "nobody took it away by force");
    let told = node(&cluster, "w0").await;
    assert!(told["closed"] == false && told["annotations"][DRAINING].is_null(), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_a_cluster_that_nobody_names_waits_and_a_machine_without_a_node_goes() {
    let site = Site::start("machines-no-cluster", None).await;
    // The hub's own API knows the Node of w0; of the others nobody has one.
    site.create("Node", json!({"metadata": {"name": "w0"}})).await;
    let agents = fleet(&site, 3, json!({"maxUnavailable": 2})).await;
    edit(&site, "reboot-1").await;
    let why = "nobody says how its cluster is reached: set spec.kubeconfig of pool worker";
    site.until("w0 waits", async || {
        machine(&site, "w0").await["waits"].as_str().is_some_and(|waits| waits.ends_with(why))
    })
    .await;
    site.until("the others went", async || agents[1..].iter().all(|agent| agent.text() == "reboot-1")).await;
    assert_eq!(agents[0].text(), "service-0");
    assert_eq!(site.watchman.lock().unwrap().order, ["w1", "w2"]);
    site.delete("Node", "w0").await;
    until_texts(&site, &agents, "reboot-1").await;
}

/// A NodePool whose config is this text.
fn node_pool(upgrade: &str) -> Value {
    json!({"metadata": {"name": "worker", "namespace": "site"},
        "spec": {"clusterName": "hc", "config": [{"name": "config"}], "platform": {"type": "None"},
            "management": {"upgradeType": upgrade, "inPlace": {"maxUnavailable": 1}},
            "release": {"image": "quay.io/openshift-release-dev/ocp-release:4.14.3-x86_64"}}})
}

/// The ConfigMap with it.
fn config_map(text: &str) -> Value {
    let mut manifest = config(text);
    manifest["apiVersion"] = "machineconfiguration.openshift.io/v1".into();
    manifest["kind"] = "MachineConfig".into();
    json!({"metadata": {"name": "config", "namespace": "site"}, "data": {"config": manifest.to_string()}})
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_a_node_pool_follow_in_place_and_those_that_are_replaced_stay_as_they_are() {
    for (upgrade, follows) in [("InPlace", true), ("Replace", false)] {
        let site = Site::start(&format!("machines-node-pool-{upgrade}"), None).await;
        site.create("ConfigMap", config_map("service-0")).await;
        site.create("NodePool", node_pool(upgrade)).await;
        let mut agents = Vec::new();
        for name in ["w0", "w1", "w2"] {
            site.host(name, json!({})).await;
            agents.push(MachineAgent::start(&site, name, "service-0").await);
        }
        if follows {
            until_all(&site, 3, "settled").await;
        }
        site.edit("ConfigMap", "config", json!({"data": config_map("service-1")["data"]})).await;
        if follows {
            until_texts(&site, &agents, "service-1").await;
            assert_eq!(site.most_out(), 1, "{:?}", site.watchman.lock().unwrap());
            continue;
        }
        // Long enough for the others to have gone.
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(agents.iter().all(|agent| agent.text() == "service-0"));
        for name in ["w0", "w1", "w2"] {
            assert!(machine(&site, name).await.is_null(), "nothing is asked of {name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_node_gets_what_a_new_machine_would_fetch() {
    let site = Site::start("machines-config", None).await;
    let _agents = fleet(&site, 1, json!({})).await;
    let token = format!("Bearer {}", site.token("w0").await);
    let header = [("authorization", token.as_str())];
    let assignment = async || site.ask("GET", "/agent/v1/machine", &header, "").await;
    site.until("the permit goes with its use", async || {
        assignment().await.json()["permit"] == json!({"wait": "nothing is to be changed"})
    })
    .await;
    let revision = assignment().await.json()["revision"].as_str().unwrap().to_owned();
    let path = format!("/agent/v1/machine/config?revision={revision}");
    let boot = site.lab.issue("w0").await;
    let config = site.ask("GET", &path, &header, "").await;
    assert_eq!((config.status, config.header("content-type")), (200, "application/json"));
    assert_eq!(site.lab.record("w0").await.used, None, "no token was used for it");
    let boot = format!("Bearer {boot}");
    let fetched = site.ask("GET", "/ignition", &[("authorization", &boot)], "").await;
    assert_eq!(fetched.status, 200, "{}", fetched.text());
    assert_eq!(config.text(), fetched.text());
    assert_eq!(file(&config.json(), FILE), "service-0");
    for (path, authorization, status, reason) in [
        ("/agent/v1/machine/config?revision=0123", token.as_str(), 409, "superseded"),
        ("/agent/v1/machine/config", &token, 409, "superseded"),
        (&path, &boot, 401, "unauthorized"),
        ("/agent/v1/machine", "", 401, "unauthorized"),
        ("/agent/v1/machine/report", &token, 405, "method"),
    ] {
        let answer = site.ask("GET", path, &[("authorization", authorization)], "").await;
        assert_eq!((answer.status, answer.header("x-kiln-reason")), (status, reason), "{path}");
    }
    let answer = site.ask("POST", "/agent/v1/machine/report", &header, "{}").await;
    assert_eq!((answer.status, answer.header("x-kiln-reason")), (400, "not-read"));
}
