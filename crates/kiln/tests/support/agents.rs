//! A hub with the rollout of networks on it, and scripted agents. Simulated: no network is changed anywhere.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses its part of this")]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use kiln::hub::controllers::{self, Pace, kinds};
use kiln::hub::node::beacon::key::BeaconKey;
use kiln::hub::node::{NodeEndpoint, NodeLimits, node_router};
use kiln::hub::pools::Settings;
use kiln_apiserver::rate_limit::Rate;
use kiln_apiserver::router;
use kiln_core::agent_token::Bearer;
use kiln_core::assignment::{Assignment, Permit, Probe};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::chaos::{Chaos, on_day};
use super::nodes::{self, Answer, Lab, NAMESPACE};

/// What an agent does with a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// It works.
    Good,
    /// Whatever has this MTU is rolled back.
    Refuses(u64),
    /// It says that it tries, and nothing more.
    DiesTrying,
    /// The same with whatever has this MTU.
    DiesWith(u64),
    /// Its change takes so many milliseconds.
    Slow(u64),
}

/// Who is out, at every instant.
#[derive(Debug, Default, Clone)]
pub struct Watchman {
    out: BTreeSet<String>,
    pub most: usize,
    pub order: Vec<String>,
}

impl Watchman {
    /// A node goes out.
    pub fn leave(&mut self, host: &str) {
        self.out.insert(host.to_owned());
        self.most = self.most.max(self.out.len());
        self.order.push(host.to_owned());
    }

    /// It is back.
    pub fn back(&mut self, host: &str) {
        self.out.remove(host);
    }

    /// What was is not looked at any more.
    pub fn forget(&mut self) {
        *self = Watchman { out: std::mem::take(&mut self.out), ..Watchman::default() };
    }
}

/// A hub.
pub struct Site {
    pub lab: Lab,
    day: Option<Chaos>,
    pub endpoint: Arc<NodeEndpoint>,
    pub router: Router,
    pub watchman: Arc<Mutex<Watchman>>,
    settings: Settings,
    stop: Mutex<watch::Sender<bool>>,
}

/// A scripted agent; it ends when it is dropped.
pub struct Agent {
    applied: Arc<Mutex<Value>>,
    task: tokio::task::JoinHandle<()>,
}

impl Agent {
    /// What the node was left with.
    pub async fn network(&self) -> Value {
        self.applied.lock().unwrap().clone()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Site {
    pub async fn start(name: &str, day: Option<Chaos>) -> Site {
        Site::start_with(name, day, Settings::default()).await
    }

    pub async fn start_with(name: &str, day: Option<Chaos>, settings: Settings) -> Site {
        let lab = Lab::start(name).await;
        let limits = NodeLimits { agents: Rate { per_second: 1000, burst: 1000 }, ..NodeLimits::default() };
        let api = on_day(day.as_ref(), router(Arc::clone(&lab.server)));
        let endpoint = NodeEndpoint::new(controllers::in_process(api, "system:kiln:node"), limits);
        let (stop, stopping) = watch::channel(false);
        tokio::spawn(Arc::clone(&endpoint).run(stopping));
        nodes::until("the key", async || endpoint.makes_beacon_tokens()).await;
        let site = Site {
            router: node_router(Arc::clone(&endpoint)),
            lab,
            day,
            endpoint,
            watchman: Arc::default(),
            settings,
            stop: Mutex::new(stop),
        };
        site.lead();
        site
    }

    fn lead(&self) {
        let (stop, stopping) = watch::channel(false);
        let before = std::mem::replace(&mut *self.stop.lock().unwrap(), stop);
        // The endpoints go on; only the leader is another one.
        std::mem::forget(before);
        let api = on_day(self.day.as_ref(), router(Arc::clone(&self.lab.server)));
        let client = controllers::in_process(api, "system:kiln:controllers");
        let pace = Pace {
            quiet: Duration::from_millis(5),
            longest: Duration::from_millis(50),
            retry: Duration::from_millis(20),
        };
        tokio::spawn(controllers::run_with(client, pace, self.settings.clone(), stopping));
    }

    /// The leader dies, and another one begins with nothing but the API.
    pub fn replace_leader(&self) {
        self.stop.lock().unwrap().send_replace(true);
        self.lead();
    }

    pub fn api(&self, kind: &str) -> Api<DynamicObject> {
        let resource = kinds::find(kind).unwrap().resource();
        match kind {
            "Host" | "Pool" | "Secret" | "ConfigMap" | "NodePool" => {
                Api::namespaced_with(self.lab.client.clone(), NAMESPACE, &resource)
            }
            "Lease" => Api::namespaced_with(self.lab.client.clone(), "default", &resource),
            _ => Api::all_with(self.lab.client.clone(), &resource),
        }
    }

    pub async fn create(&self, kind: &str, mut object: Value) {
        let watched = kinds::find(kind).unwrap();
        object["apiVersion"] = watched.api_version().into();
        object["kind"] = kind.into();
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        self.api(kind).create(&PostParams::default(), &object).await.unwrap();
    }

    /// A host with one NIC and these labels of its Node.
    pub async fn host(&self, name: &str, labels: Value) {
        let network = json!({"interfaces": [{"name": "eth0", "type": "ethernet", "state": "up",
            "ipv4": {"enabled": true, "dhcp": true}}]});
        let spec = json!({"pool": "worker", "network": network, "nodeLabels": labels});
        self.create("Host", json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    pub async fn policy(&self, name: &str, spec: Value) {
        self.create("NodeNetworkConfigurationPolicy", json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    pub async fn edit(&self, kind: &str, name: &str, patch: Value) {
        self.api(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub async fn delete(&self, kind: &str, name: &str) {
        self.api(kind).delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn token(&self, host: &str) -> String {
        let secrets: Api<DynamicObject> =
            Api::namespaced_with(self.lab.client.clone(), "default", &kinds::SECRET.resource());
        let secret = secrets.get("kiln-beacon-key").await.unwrap();
        let key = BeaconKey::read(&serde_json::to_value(secret).unwrap(), "default").unwrap();
        let uid = self.api("Host").get(host).await.unwrap().metadata.uid.unwrap();
        key.agent_token(&Bearer { namespace: NAMESPACE.into(), host: host.into(), uid, generation: 1 })
    }

    pub async fn host_status(&self, host: &str) -> Value {
        self.api("Host").get(host).await.unwrap().data["status"].clone()
    }

    pub async fn slots(&self) -> Vec<String> {
        let options = ListParams::default().labels("kiln.dev/slot");
        let leases = self.api("Lease").list(&options).await.unwrap();
        leases.items.into_iter().map(|lease| lease.metadata.name.unwrap()).collect()
    }

    pub async fn enactment(&self, node: &str, policy: &str) -> Option<Value> {
        let found = self.api("NodeNetworkConfigurationEnactment").get_opt(&format!("{node}.{policy}")).await.unwrap();
        found.map(|found| serde_json::to_value(found).unwrap())
    }

    pub async fn enactments(&self, policy: &str) -> BTreeMap<String, String> {
        let options = ListParams::default().labels(&format!("nmstate.io/policy={policy}"));
        let list = self.api("NodeNetworkConfigurationEnactment").list(&options).await.unwrap();
        let tell = |item: DynamicObject| {
            let item = serde_json::to_value(item).unwrap();
            (item["metadata"]["labels"]["nmstate.io/node"].as_str().unwrap().to_owned(), told(&item))
        };
        list.items.into_iter().map(tell).collect()
    }

    pub async fn until(&self, what: &str, wished: impl AsyncFn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(90);
        while !wished().await {
            assert!(Instant::now() < deadline, "{what} did not come about");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What is known, for a test that failed.
    async fn everything(&self, policy: &str) -> String {
        let leases = self.api("Lease").list(&ListParams::default().labels("kiln.dev/slot")).await.unwrap();
        let hosts = self.api("Host").list(&ListParams::default()).await.unwrap();
        let mut told = format!("{:#?}", self.enactments(policy).await);
        for lease in leases {
            told += &format!("\n{:?} {:?} {}", lease.metadata.name, lease.metadata.annotations, lease.data["spec"]);
        }
        for host in hosts {
            told += &format!("\n{:?} {}", host.metadata.name, host.data["status"]["network"]);
        }
        told
    }

    /// Waits until a policy's true condition says this.
    pub async fn until_condition(&self, policy: &str, kind: &str, message: &str) {
        let deadline = Instant::now() + Duration::from_secs(90);
        loop {
            let object = self.api("NodeNetworkConfigurationPolicy").get(policy).await.unwrap();
            let said = told(&serde_json::to_value(&object).unwrap());
            let wished = said.starts_with(kind) && said.ends_with(message);
            let present = object.data["status"]["conditions"].is_array();
            if wished && present {
                return;
            }
            if Instant::now() >= deadline {
                panic!("{policy}: {kind} {message} did not come about: {said}, {}", self.everything(policy).await);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Asks as an agent would, from one address.
    pub async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        nodes::send(&self.router, method, path, headers, Body::from(body.to_owned()), "192.0.2.1").await
    }

    /// Starts a scripted agent.
    pub fn agent(&self, host: &str, behaviour: Behaviour) -> Agent {
        self.agent_with(host, behaviour, Arc::default())
    }

    /// Starts an agent on a node that was left with this.
    pub fn agent_with(&self, host: &str, behaviour: Behaviour, applied: Arc<Mutex<Value>>) -> Agent {
        let script = Script {
            client: self.lab.client.clone(),
            router: self.router.clone(),
            host: host.to_owned(),
            behaviour,
            watchman: Arc::clone(&self.watchman),
            applied: Arc::clone(&applied),
        };
        Agent { applied, task: tokio::spawn(script.run()) }
    }

    pub fn most_out(&self) -> usize {
        self.watchman.lock().unwrap().most
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop.lock().unwrap().send_replace(true);
        self.lab.server.stop();
    }
}

/// The condition of upstream's that is true: `Available SuccessfullyConfigured message`.
pub fn told(object: &Value) -> String {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let text = |condition: &Value, key: &str| condition[key].as_str().unwrap_or_default().to_owned();
    let upstreams =
        |condition: &&Value| condition["status"] == "True" && !text(condition, "type").starts_with("kiln.dev/");
    let told = conditions.iter().filter(upstreams).map(|condition| {
        format!("{} {} {}", text(condition, "type"), text(condition, "reason"), text(condition, "message"))
    });
    told.collect::<Vec<_>>().join(" | ")
}

struct Script {
    client: Client,
    router: Router,
    host: String,
    behaviour: Behaviour,
    watchman: Arc<Mutex<Watchman>>,
    applied: Arc<Mutex<Value>>,
}

impl Script {
    async fn run(self) {
        let token = self.token().await;
        let (mut etag, mut said, mut done) = (String::new(), HashMap::<String, Value>::new(), String::new());
        loop {
            let headers = [("authorization", token.as_str()), ("if-none-match", etag.as_str())];
            let answer = self.send("GET", "/agent/v1/network?wait=2", &headers, Value::Null).await;
            if answer.status != 200 {
                tokio::time::sleep(Duration::from_millis(if answer.status == 304 { 0 } else { 20 })).await;
                continue;
            }
            etag = answer.header("etag").to_owned();
            let assignment: Assignment = serde_json::from_slice(&answer.body).unwrap();
            let revision = assignment.revision.clone();
            if revision == done {
                // Another leader may have asked for something else in between: the hub hears once more what the node has.
                if let Some(last) = said.get(&revision) {
                    self.tell(&token, last).await;
                }
                continue;
            }
            // What failed is said once more: the hub may not have heard.
            if let Some(last) = said.get(&revision).filter(|last| last["phase"].is_object()) {
                self.tell(&token, last).await;
                continue;
            }
            let planned =
                json!({"revision": revision, "phase": "planned", "disruption": "linkBounce", "changes": ["~ eth0"]});
            match &assignment.permit {
                Permit::Wait(_) => {
                    said.insert(revision, planned.clone());
                    self.tell(&token, &planned).await;
                }
                Permit::Go(_) => {
                    let last = self.go(&token, &assignment).await;
                    if last["phase"] == "applied" {
                        done = revision.clone();
                    }
                    said.insert(revision, last);
                }
            }
        }
    }

    async fn go(&self, token: &str, assignment: &Assignment) -> Value {
        self.watchman.lock().unwrap().leave(&self.host);
        let trying = json!({"revision": assignment.revision, "phase": "trying", "disruption": "linkBounce"});
        self.tell(token, &trying).await;
        let takes = if let Behaviour::Slow(millis) = self.behaviour { millis } else { 30 };
        tokio::time::sleep(Duration::from_millis(takes)).await;
        let mtu = assignment.network["interfaces"][0]["mtu"].as_u64();
        let lost = self.prove_from_hub(token, assignment).await.err();
        let mut last = json!({"revision": assignment.revision, "disruption": "linkBounce", "changes": ["~ eth0"], "took": 12, "outage": 3});
        match self.behaviour {
            Behaviour::DiesTrying => std::future::pending().await,
            Behaviour::DiesWith(bad) if mtu == Some(bad) => std::future::pending().await,
            _ if lost.is_some() => last["phase"] = json!({"rolledBack": lost}),
            Behaviour::Refuses(bad) if mtu == Some(bad) => {
                last["phase"] = json!({"rolledBack": "the gateway did not answer"});
            }
            _ => {
                last["phase"] = "applied".into();
                *self.applied.lock().unwrap() = assignment.network.clone();
            }
        }
        // It works again before anybody hears of it.
        self.watchman.lock().unwrap().back(&self.host);
        self.tell(token, &last).await;
        last
    }

    /// Asks the hub about each port it must reach, as the real agent does.
    async fn prove_from_hub(&self, token: &str, assignment: &Assignment) -> Result<(), String> {
        for probe in &assignment.proof.probes {
            let Probe::FromHub(port) = probe else { continue };
            let path = format!("/agent/v1/network/seen?port={port}");
            let answer = self.send("GET", &path, &[("authorization", token)], Value::Null).await;
            if answer.status != 200 {
                return Err(format!("port {port} from the hub did not answer"));
            }
        }
        Ok(())
    }

    /// Says something until it is heard.
    async fn tell(&self, token: &str, report: &Value) {
        loop {
            let headers = [("authorization", token)];
            let answer = self.send("POST", "/agent/v1/network/report", &headers, report.clone()).await;
            if answer.status == 204 {
                return;
            }
            assert!(answer.status >= 429, "{}: {}", answer.status, answer.text());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Value) -> Answer {
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        nodes::send(&self.router, method, path, headers, body, "127.0.0.1").await
    }

    async fn token(&self) -> String {
        let secrets: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), "default", &kinds::SECRET.resource());
        let secret = secrets.get("kiln-beacon-key").await.unwrap();
        let key = BeaconKey::read(&serde_json::to_value(secret).unwrap(), "default").unwrap();
        let hosts: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), NAMESPACE, &kinds::HOST.resource());
        let uid = hosts.get(&self.host).await.unwrap().metadata.uid.unwrap();
        let bearer = Bearer { namespace: NAMESPACE.into(), host: self.host.clone(), uid, generation: 1 };
        format!("Bearer {}", key.agent_token(&bearer))
    }
}
