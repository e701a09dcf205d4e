//! Node endpoints over an embedded API, and the Secrets a controller would make for them.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses its part of this")]

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln::hub::boot_secrets::{hash_token, make_token, parse_record, render_record};
use kiln::hub::controllers::{self, kinds};
use kiln::hub::definitions::{self, Policy};
use kiln::hub::node::{NodeEndpoint, NodeLimits, node_router};
use kiln::hub::timeline::now;
use kiln_apiserver::guard::Peer;
use kiln_apiserver::{Limits, Server, Tokens, router};
use kiln_core::boot_token::{BootRecord, LIFETIME_SECONDS};
use kiln_core::timeline::Moment;
use kiln_testimage::temp_dir::TempDir;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::ServiceExt;

pub const NAMESPACE: &str = "site";
/// The config of pool `worker`.
pub const POOL_CONFIG: &str = r#"{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/pool","mode":420,"contents":{"source":"data:,pool"}}]},"kernelArguments":{"shouldExist":["quiet"]}}"#;

/// An embedded API without a socket.
pub struct Lab {
    pub client: Client,
    pub server: Arc<Server>,
    pub folder: TempDir,
}

/// The node endpoints of one replica.
pub struct Replica {
    pub endpoint: Arc<NodeEndpoint>,
    pub router: Router,
    stop: watch::Sender<bool>,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The paths of its files.
    pub fn paths(&self) -> Vec<String> {
        let json = self.json();
        let files = json["storage"]["files"].as_array().unwrap().clone();
        files.iter().map(|file| file["path"].as_str().unwrap().to_owned()).collect()
    }
}

impl Lab {
    pub async fn start(name: &str) -> Lab {
        let folder = TempDir::new(name);
        let server = Server::open(folder.path(), Tokens::default(), Limits::default()).await.unwrap();
        let client = controllers::in_process(router(Arc::clone(&server)), "test");
        definitions::install(&client, Policy::Own).await.unwrap();
        let lab = Lab { client, server, folder };
        lab.create("Namespace", json!({"metadata": {"name": NAMESPACE}})).await;
        lab
    }

    /// Another replica over the same API, when it has read everything.
    pub async fn replica(&self) -> Replica {
        self.replica_within(NodeLimits::default()).await
    }

    pub async fn replica_within(&self, limits: NodeLimits) -> Replica {
        let replica = self.replica_at_once(limits);
        until("the first list", async || replica.endpoint.check().is_ok()).await;
        replica
    }

    pub fn replica_at_once(&self, limits: NodeLimits) -> Replica {
        Replica::over(router(Arc::clone(&self.server)), limits)
    }

    pub fn api(&self, kind: &str) -> Api<DynamicObject> {
        api(&self.client, kind)
    }

    pub async fn create(&self, kind: &str, object: Value) {
        create(&self.client, kind, object).await;
    }

    /// A payload of pool `worker`, an overlay of host `w0` with two files, and the Host.
    pub async fn declare_host(&self, host: &str) {
        declare_host(&self.client, host).await;
    }

    pub async fn declare_pool(&self, config: &str) {
        create(&self.client, "Secret", payload("payload-worker-1", "worker", config)).await;
    }

    /// A token for a host: its text.
    pub async fn issue(&self, host: &str) -> String {
        issue(&self.client, host, now(), LIFETIME_SECONDS).await
    }

    pub async fn record(&self, host: &str) -> BootRecord {
        let secret = self.api("Secret").get(&format!("boot-token-{host}")).await.unwrap();
        parse_record(&secret.data["data"]).unwrap()
    }

    pub async fn patch(&self, kind: &str, name: &str, patch: Value) {
        self.api(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub async fn status(&self, host: &str) -> Value {
        self.api("Host").get(host).await.unwrap().data["status"].clone()
    }

    /// The revision of the store: it changes with every write of anybody.
    pub fn revision(&self) -> u64 {
        self.server.snapshot().revision
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.server.stop();
    }
}

impl Replica {
    /// The node endpoints over an API.
    pub fn over(api: Router, limits: NodeLimits) -> Replica {
        let endpoint = NodeEndpoint::new(controllers::in_process(api, "system:kiln:node"), limits);
        let (stop, stopping) = watch::channel(false);
        tokio::spawn(Arc::clone(&endpoint).run(stopping));
        Replica { router: node_router(Arc::clone(&endpoint)), endpoint, stop }
    }

    pub async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], source: &str) -> Answer {
        ask(&self.router, method, path, headers, source).await
    }

    /// `GET /ignition` with a token, from an address.
    pub async fn fetch(&self, token: &str, source: &str) -> Answer {
        self.ask("GET", "/ignition", &[("authorization", &bearer(token))], source).await
    }

    /// The same until it is not 511 any more: the watch takes a moment.
    pub async fn fetch_soon(&self, token: &str, source: &str) -> Answer {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let answer = self.fetch(token, source).await;
            if answer.status != 511 || Instant::now() > deadline {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until a token is judged like this.
    pub async fn until_reason(&self, token: &str, source: &str, reason: &str) -> Answer {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let head = self.ask("HEAD", "/ignition", &[("authorization", &bearer(token))], source).await;
            if head.header("x-kiln-reason") == reason {
                return head;
            }
            assert!(Instant::now() < deadline, "never {reason}: {head:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

pub async fn ask(router: &Router, method: &str, path: &str, headers: &[(&str, &str)], source: &str) -> Answer {
    send(router, method, path, headers, Body::empty(), source).await
}

pub async fn send(
    router: &Router,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Body,
    source: &str,
) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let source = SocketAddr::new(source.parse().unwrap(), 40_000);
    let request = request.extension(Peer(source)).body(body).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let body = axum::body::to_bytes(body, 64 << 20).await.unwrap().to_vec();
    Answer { status: head.status.as_u16(), headers: head.headers, body }
}

pub async fn until(what: &str, wished: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(90);
    while !wished().await {
        assert!(Instant::now() < deadline, "{what} did not come about");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub fn bearer(token: &str) -> String {
    format!("Bearer {}", STANDARD.encode(token))
}

pub fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    let resource = kinds::find(kind).unwrap().resource();
    match kind {
        "Namespace" => Api::all_with(client.clone(), &resource),
        _ => Api::namespaced_with(client.clone(), NAMESPACE, &resource),
    }
}

pub async fn create(client: &Client, kind: &str, mut object: Value) {
    let watched = kinds::find(kind).unwrap();
    object["apiVersion"] = watched.api_version().into();
    object["kind"] = kind.into();
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    api(client, kind).create(&PostParams::default(), &object).await.unwrap();
}

/// A Secret for the endpoints.
pub fn secret(name: &str, what: &str, labels: Value, data: &[(&str, &[u8])]) -> Value {
    let data: serde_json::Map<String, Value> =
        data.iter().map(|(key, bytes)| ((*key).to_owned(), STANDARD.encode(bytes).into())).collect();
    let mut object = json!({"type": format!("kiln.dev/{what}"), "metadata": {"name": name, "labels": {"kiln.dev/ignition": what}}, "data": data});
    for (label, value) in labels.as_object().into_iter().flatten() {
        object["metadata"]["labels"][label] = value.clone();
    }
    object
}

pub fn payload(name: &str, pool: &str, config: &str) -> Value {
    let id = hash_token(config).to_string();
    secret(
        name,
        "payload",
        json!({"kiln.dev/pool": pool}),
        &[("id", id.as_bytes()), ("config", &gzip(config.as_bytes()))],
    )
}

pub fn overlay(host: &str, payload: &str, files: &Value, config: Option<&str>) -> Value {
    let (files, id) = (files.to_string(), hash_token(&format!("{files}{config:?}")).to_string());
    let mut data: Vec<(&str, &[u8])> =
        vec![("payload", payload.as_bytes()), ("files", files.as_bytes()), ("id", id.as_bytes())];
    data.extend(config.map(|config| ("config", config.as_bytes())));
    secret(&format!("overlay-{host}"), "overlay", json!({"kiln.dev/host": host}), &data)
}

pub fn own_files(host: &str) -> Value {
    json!([{"path": "/etc/hostname", "mode": 420, "overwrite": true, "contents": {"source": format!("data:,{host}")}},
        {"path": "/etc/NetworkManager/system-connections/eth0.nmconnection", "mode": 384, "contents": {"source": "data:,%5Bconnection%5D%0A"}}])
}

pub async fn declare_host(client: &Client, host: &str) {
    create(client, "Host", json!({"metadata": {"name": host}, "spec": {"pool": "worker"}})).await;
    create(client, "Secret", overlay(host, "payload-worker-1", &own_files(host), None)).await;
}

/// Issues a token, in place of the one before if there is one.
pub async fn issue(client: &Client, host: &str, at: Moment, lifetime: i64) -> String {
    let token = make_token().unwrap();
    let name = format!("boot-token-{host}");
    let before = api(client, "Secret").get_opt(&name).await.unwrap();
    let previous = before.as_ref().and_then(|secret| parse_record(&secret.data["data"]));
    let record = BootRecord::issue(hash_token(token.text()), previous.as_ref(), at, lifetime);
    if before.is_some() {
        let patch = json!({"data": render_record(&record)});
        api(client, "Secret").patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    } else {
        let mut object = secret(&name, "boot-token", json!({"kiln.dev/host": host}), &[]);
        let mut data = render_record(&record);
        data.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        object["data"] = data;
        create(client, "Secret", object).await;
    }
    token.text().to_owned()
}

/// HyperShift's token Secret of a pool.
pub fn pool_token(name: &str, payload: &str, token: &str, old: Option<&str>, expires: Option<&str>) -> Value {
    let mut data: Vec<(&str, &[u8])> = vec![("token", token.as_bytes())];
    data.extend(old.map(|old| ("old_token", old.as_bytes())));
    let mut object = secret(name, "pool-token", json!({"kiln.dev/pool": "worker"}), &data);
    object["type"] = "Opaque".into();
    object["metadata"]["annotations"] = json!({"kiln.dev/payload": payload, "hypershift.openshift.io/nodePool": "site/worker", "hypershift.openshift.io/ignition-config": "true"});
    if let Some(expires) = expires {
        object["metadata"]["annotations"]["hypershift.openshift.io/ignition-token-expiration-timestamp"] =
            expires.into();
    }
    object
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
    plain
}
