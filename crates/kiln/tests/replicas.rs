//! Pools that say how many hosts they have: taken and let go over the embedded API, on a good day and on a bad one.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

#[path = "support/chaos.rs"]
mod chaos;
#[path = "support/lab.rs"]
mod lab;
#[path = "support/pods.rs"]
mod pods;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use chaos::{Chaos, on_day, on_each_day};
use kiln::hub::boot_secrets::{hash_token, parse_record, render_record};
use kiln::hub::controllers::{self, Pace};
use kiln::hub::health::repair::OFF;
use kiln::hub::pools::Settings;
use kiln::hub::pools::drain::DRAINING;
use kiln::hub::timeline::{now, record};
use kiln_apiserver::router;
use kiln_core::boot_token::BootRecord;
use kiln_core::replicas::{HOLD, MARK};
use kiln_core::timeline::{Entry, Stage};
use kube::api::{ListParams, Patch, PatchParams};
use lab::{Embedded, Known, api, create, until};
use pods::{SharedPods, with_pods};
use serde_json::{Value, json};
use tokio::sync::watch;

on_each_day! { 11:
    a_pool_takes_and_lets_go_as_many_hosts_as_it_says,
    a_host_that_is_held_or_wrong_is_not_taken_and_says_why,
    a_cluster_that_does_not_answer_keeps_the_host_in_service,
    pods_are_evicted_before_a_node_goes_and_its_machine_is_switched_off,
    a_node_goes_with_its_pods_when_the_time_to_drain_it_is_over,
}

/// A hub with controllers, and the cluster its hosts join.
struct Site {
    hub: Embedded,
    cluster: Embedded,
    pods: SharedPods,
    stop: watch::Sender<bool>,
}

impl Site {
    async fn start(name: &str, chaos: Option<Chaos>) -> Site {
        let hub = Embedded::start(&format!("replicas-{name}")).await;
        let cluster = Embedded::start(&format!("replicas-{name}-cluster")).await;
        let theirs = on_day(chaos.as_ref(), router(Arc::clone(&hub.server)));
        let pods = SharedPods::default();
        let joined = controllers::in_process(with_pods(router(Arc::clone(&cluster.server)), &pods), "test");
        let known = HashMap::from([("target".to_owned(), (joined, Vec::new()))]);
        let settings = Settings {
            clusters: Some(Arc::new(Known(known))),
            patrol: Duration::from_millis(200),
            ..Settings::default()
        };
        let (stop, stopping) = watch::channel(false);
        let pace = Pace { retry: Duration::from_millis(50), ..Pace::default() };
        let client = controllers::in_process(theirs, "system:kiln:controllers");
        tokio::spawn(controllers::run_with(client, pace, settings, stopping));
        Site { hub, cluster, pods, stop }
    }

    async fn pool(&self, spec: Value) {
        let spec = json!({"kubeconfig": {"name": "target"}})
            .as_object()
            .unwrap()
            .clone()
            .into_iter()
            .chain(spec.as_object().unwrap().clone())
            .collect::<serde_json::Map<_, _>>();
        create(&self.hub.client, json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Pool", "metadata": {"name": "edge", "namespace": "default"}, "spec": spec})).await;
    }

    async fn host(&self, number: u8, annotations: Value) {
        let spec = json!({"pool": "edge", "macAddress": format!("52:54:00:00:00:{number:02x}")});
        create(&self.hub.client, json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Host",
            "metadata": {"name": format!("w{number}"), "namespace": "default", "annotations": annotations}, "spec": spec})).await;
    }

    async fn scale(&self, replicas: u32) {
        let patch = json!({"spec": {"replicas": replicas}});
        let pools = api(&self.hub.client, "Pool", "default");
        pools.patch_scale("edge", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn patch(&self, kind: &str, name: &str, patch: Value) {
        api(&self.hub.client, kind, "default")
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    /// The hosts whose overlays are stored.
    async fn overlays(&self) -> BTreeSet<String> {
        let options = ListParams::default().labels("kiln.dev/ignition=overlay");
        let overlays = api(&self.hub.client, "Secret", "default").list(&options).await.unwrap();
        overlays
            .items
            .iter()
            .filter_map(|secret| Some(secret.metadata.name.as_ref()?.strip_prefix("overlay-")?.to_owned()))
            .collect()
    }

    async fn until_in_service(&self, wished: &[&str]) {
        until(&format!("{wished:?} are in service"), async || {
            let overlays = self.overlays().await;
            overlays.iter().map(String::as_str).eq(wished.iter().copied()).then_some(())
        })
        .await;
    }

    async fn condition(&self, kind: &str, name: &str, condition: &str, wished: impl Fn(&Value) -> bool) -> Value {
        until(&format!("{condition} of {name} is as wished"), async || {
            let object = api(&self.hub.client, kind, "default").get(name).await.unwrap();
            let conditions = object.data["status"]["conditions"].as_array()?.clone();
            conditions.into_iter().find(|found| found["type"] == condition && wished(found))
        })
        .await
    }

    async fn token(&self, host: &str) {
        let mut data = render_record(&BootRecord::issue(hash_token(host), None, now(), 3600));
        data.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        create(
            &self.hub.client,
            json!({"apiVersion": "v1", "kind": "Secret", "type": "kiln.dev/boot-token",
            "metadata": {"name": format!("boot-token-{host}"), "namespace": "default",
                "labels": {"kiln.dev/ignition": "boot-token", "kiln.dev/host": host}}, "data": data}),
        )
        .await;
    }

    /// A pod on the Node of w0.
    fn pod(&self, name: &str, owner: &str) {
        let metadata = json!({"name": name, "namespace": "lab", "ownerReferences": [{"kind": owner, "name": "x", "controller": true}]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": "w0"}, "status": {"phase": "Running"}});
        self.pods.lock().unwrap().all.insert(name.to_owned(), pod);
    }

    async fn node(&self) -> Option<Value> {
        let node = api(&self.cluster.client, "Node", "").get_opt("w0").await.unwrap();
        node.map(|node| serde_json::to_value(node).unwrap())
    }

    async fn kept_off(&self) -> Option<String> {
        let machine = api(&self.hub.client, "BareMetalHost", "default").get("w0").await.unwrap();
        machine.metadata.annotations.unwrap_or_default().get(OFF).cloned()
    }

    async fn ready(&self, host: &str) {
        create(&self.cluster.client, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": host}})).await;
        record(
            &self.hub.client,
            "default",
            host,
            &Entry::reached(Stage::Ready, now(), format!("Node {host}"), "it is"),
        )
        .await
        .unwrap();
        until("the hub says so", async || {
            let status = api(&self.hub.client, "Host", "default").get(host).await.unwrap().data["status"].take();
            (status["stage"] == "Ready").then_some(())
        })
        .await;
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

async fn a_pool_takes_and_lets_go_as_many_hosts_as_it_says(site: Site) {
    site.pool(json!({"replicas": 2})).await;
    for number in 0..3 {
        site.host(number, Value::Null).await;
    }
    // Which of them were declared first is a matter of seconds, and what was taken stays.
    let waits = until("one waits", async || {
        let taken = site.overlays().await;
        let waits = ["w0", "w1", "w2"].into_iter().find(|name| !taken.contains(*name));
        waits.filter(|_| taken.len() == 2)
    })
    .await;
    let full = site.condition("Host", waits, "InService", |found| found["status"] == "False").await;
    assert_eq!(full["reason"], "PoolIsFull");
    assert_eq!(
        full["message"],
        "the pool has the 2 hosts it says; `kubectl scale pool edge --replicas=3` takes another"
    );
    let resized = site.condition("Pool", "edge", "Resized", |found| found["status"] == "True").await;
    assert_eq!(resized["message"], "2 of 2 hosts are in service");

    site.scale(3).await;
    site.until_in_service(&["w0", "w1", "w2"]).await;
    site.condition("Host", waits, "InService", |found| found["status"] == "True").await;
    for host in ["w0", "w1"] {
        site.ready(host).await;
    }
    site.token("w1").await;
    site.patch("Host", "w1", json!({"metadata": {"annotations": {MARK: ""}}})).await;
    site.scale(2).await;
    site.until_in_service(&["w0", "w2"]).await;
    // Its Node is gone, its token dead, and the host begins anew.
    let nodes = api(&site.cluster.client, "Node", "").list(&ListParams::default()).await.unwrap();
    assert_eq!(nodes.items.iter().filter_map(|node| node.metadata.name.as_deref()).collect::<Vec<_>>(), ["w0"]);
    let token = api(&site.hub.client, "Secret", "default").get("boot-token-w1").await.unwrap();
    assert!(parse_record(&token.data["data"]).unwrap().revoked.is_some());
    let status = until("w1 begins anew", async || {
        let status = api(&site.hub.client, "Host", "default").get("w1").await.unwrap().data["status"].take();
        (status["stage"] == "Declared").then_some(status)
    })
    .await;
    assert!(status["provision"]["released"].is_string(), "{status}");
    let told = status["timeline"].as_array().unwrap().iter().any(|entry| {
        entry["source"] == "Pool default/edge" && entry["cause"] == "out of service: the pool was scaled to 2"
    });
    assert!(told, "{status}");
    // The one that is not ready goes before the one that is.
    site.scale(1).await;
    site.until_in_service(&["w0"]).await;
    let pool = until("the pool says so", async || {
        let status = api(&site.hub.client, "Pool", "default").get("edge").await.unwrap().data["status"].take();
        (status["replicas"] == 1).then_some(status)
    })
    .await;
    assert_eq!((&pool["hosts"], &pool["readyReplicas"]), (&json!(3), &json!(1)));
    // Without a number every host is in service, also the marked one.
    site.patch("Pool", "edge", json!({"spec": {"replicas": null}})).await;
    site.until_in_service(&["w0", "w1", "w2"]).await;
}

async fn a_host_that_is_held_or_wrong_is_not_taken_and_says_why(site: Site) {
    site.host(0, json!({HOLD: "burn-in"})).await;
    site.host(1, Value::Null).await;
    site.pool(json!({"replicas": 2})).await;
    site.until_in_service(&["w1"]).await;
    let held = site.condition("Host", "w0", "InService", |found| found["status"] == "False").await;
    assert_eq!(held["message"], "it is held by the annotation kiln.dev/hold: burn-in");
    let few = site.condition("Pool", "edge", "Resized", |found| found["reason"] == "TooFewHosts").await;
    assert_eq!(
        few["message"],
        "1 of 2 hosts are in service and no other is available: w0: it is held by the annotation kiln.dev/hold: burn-in"
    );
    site.patch("Host", "w0", json!({"metadata": {"annotations": {HOLD: null}}})).await;
    site.until_in_service(&["w0", "w1"]).await;
    // A hold on a host in service takes it away from nobody.
    site.patch("Host", "w0", json!({"metadata": {"annotations": {HOLD: "later"}}})).await;
    site.scale(1).await;
    site.until_in_service(&["w0"]).await;
}

async fn a_cluster_that_does_not_answer_keeps_the_host_in_service(site: Site) {
    site.host(0, Value::Null).await;
    site.token("w0").await;
    site.pool(json!({"replicas": 1, "kubeconfig": {"name": "target", "key": "k"}})).await;
    site.until_in_service(&["w0"]).await;
    // As with the real way to clusters, a kubeconfig that is not there is an answer; silence is given up after a while.
    site.patch("Pool", "edge", json!({"spec": {"kubeconfig": {"name": "silent"}, "replicas": 0}})).await;
    let silent = "the pool was scaled to 0: its token is revoked, its Node drained and deleted, which did not work yet: cluster default/silent: it does not answer";
    site.condition("Host", "w0", "InService", |found| found["message"] == silent).await;
    assert_eq!(site.overlays().await.len(), 1);
    site.patch("Pool", "edge", json!({"spec": {"kubeconfig": {"name": "target"}}})).await;
    site.until_in_service(&[]).await;
}

async fn pods_are_evicted_before_a_node_goes_and_its_machine_is_switched_off(site: Site) {
    let metadata = json!({"name": "w0", "namespace": "default",
        "annotations": {"bmac.agent-install.openshift.io/machine-config-pool": "edge"}});
    let spec = json!({"online": true, "bootMACAddress": "52:54:00:00:00:01"});
    let machine =
        json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": metadata, "spec": spec});
    create(&site.hub.client, machine).await;
    site.pool(json!({"replicas": 1})).await;
    site.until_in_service(&["w0"]).await;
    site.ready("w0").await;
    for (name, owner) in [("web", "ReplicaSet"), ("database", "StatefulSet"), ("agent", "DaemonSet")] {
        site.pod(name, owner);
    }
    site.pods.lock().unwrap().guarded.insert("database".into());
    site.scale(0).await;
    let waits = "the pool was scaled to 0: its token is revoked, its Node drained and deleted, which did not work yet: cluster default/target: pods left on Node w0: 1; 1 refused, the first is lab/database: Cannot evict pod as it would violate the pod's disruption budget.";
    site.condition("Host", "w0", "InService", |found| found["message"] == waits).await;
    let node = site.node().await.unwrap();
    assert!(node["spec"]["unschedulable"] == true && node["metadata"]["annotations"][DRAINING].is_string(), "{node}");
    assert_eq!((site.overlays().await.len(), site.kept_off().await), (1, None));
    let left: Vec<String> = site.pods.lock().unwrap().all.keys().cloned().collect();
    assert_eq!(left, ["agent", "database"]);
    site.pods.lock().unwrap().guarded.clear();
    site.until_in_service(&[]).await;
    assert_eq!(site.node().await, None);
    assert_eq!(site.pods.lock().unwrap().all.keys().collect::<Vec<_>>(), ["agent"], "a DaemonSet's stays");
    assert_eq!(site.kept_off().await.as_deref(), Some(r#"{"mode":"soft"}"#));
    // Back in service its machine is let on again.
    site.scale(1).await;
    site.until_in_service(&["w0"]).await;
    assert_eq!(site.kept_off().await, None);
}

async fn a_node_goes_with_its_pods_when_the_time_to_drain_it_is_over(site: Site) {
    site.host(0, Value::Null).await;
    site.pool(json!({"replicas": 1, "drainTimeout": "2s"})).await;
    site.until_in_service(&["w0"]).await;
    site.ready("w0").await;
    site.pod("database", "StatefulSet");
    site.pods.lock().unwrap().guarded.insert("database".into());
    site.scale(0).await;
    site.until_in_service(&[]).await;
    assert_eq!((site.node().await, site.pods.lock().unwrap().all.len()), (None, 1));
}
