//! A hub with the approver on it, and requests as kubelets make them.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses its part of this")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use kiln::hub::approval::connect::{Connect, Connected};
use kiln::hub::approval::fleet::Target;
use kiln::hub::approval::kubelet::Kubelet;
use kiln::hub::approval::{self, Approver};
use kiln::hub::controllers::{self, kinds};
use kiln::hub::definitions::{self, Policy as Installed};
use kiln_apiserver::identity::{AUTHENTICATED, Identity};
use kiln_apiserver::policy::{Policy, Reach, Role, Rule, Users};
use kiln_apiserver::{Server, Settings, router};
use kiln_testimage::temp_dir::TempDir;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::watch;
use tower::ServiceExt;

pub const SHARED_USER: &str = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper";
pub const SHARED_GROUPS: [&str; 3] =
    ["system:serviceaccounts:openshift-machine-config-operator", "system:serviceaccounts", "system:authenticated"];
pub const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub const SERVING: &str = "kubernetes.io/kubelet-serving";

/// Whoever was recognised may ask for certificates, as in a cluster.
const ASKING: Role = Role {
    group: AUTHENTICATED,
    users: Users::All,
    rules: &[Rule {
        verbs: &["create"],
        groups: &["certificates.k8s.io"],
        resources: &["certificatesigningrequests"],
        except: &[],
        reach: Reach::All,
        requires: &[],
    }],
    paths: &[],
};

/// An embedded API.
pub struct Embedded {
    pub server: Arc<Server>,
    pub client: Client,
    _folder: TempDir,
}

impl Embedded {
    pub async fn start(name: &str) -> Embedded {
        let folder = TempDir::new(name);
        let settings = Settings { policy: Policy::with(&[ASKING]), ..Settings::default() };
        let server = Server::open_with(folder.path(), settings).await.unwrap();
        tokio::spawn(Arc::clone(&server).run_janitor());
        let client = controllers::in_process(router(Arc::clone(&server)), "test");
        definitions::install(&client, Installed::Own).await.unwrap();
        Embedded { server, client, _folder: folder }
    }

    /// A client that is somebody.
    pub fn client_of(&self, user: &str, groups: &[&str]) -> Client {
        let identity = Identity { user: user.into(), groups: groups.iter().map(|group| (*group).into()).collect() };
        let router = router(Arc::clone(&self.server));
        let service = tower::service_fn(move |mut request: axum::http::Request<kube::client::Body>| {
            request.extensions_mut().insert(identity.clone());
            router.clone().oneshot(request)
        });
        Client::new(service, "default")
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.server.stop();
    }
}

/// Clusters by the name of their Secret; any other does not answer.
#[derive(Default, Clone)]
pub struct Known(pub HashMap<String, (Client, Vec<CertificateDer<'static>>)>);

impl Connect for Known {
    fn connect<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Connected, String>> {
        Box::pin(async move {
            match self.0.get(&target.secret) {
                Some((client, authorities)) => Ok(Connected {
                    client: client.clone(),
                    authorities: Arc::new(authorities.clone()),
                    version: "1".into(),
                }),
                // What does not answer keeps whoever asks waiting.
                None => std::future::pending().await,
            }
        })
    }

    fn version<'a>(&'a self, _target: &'a Target) -> BoxFuture<'a, Option<String>> {
        Box::pin(async { Some("1".into()) })
    }
}

/// A hub and one cluster, with the approver between them.
pub struct Lab {
    pub hub: Embedded,
    pub cluster: Embedded,
    stop: watch::Sender<bool>,
}

impl Lab {
    pub async fn start(name: &str) -> Lab {
        Lab::start_with(name, |_| {}).await
    }

    pub async fn start_with(name: &str, change: impl FnOnce(&mut Approver)) -> Lab {
        let (hub, cluster) =
            (Embedded::start(&format!("{name}-hub")).await, Embedded::start(&format!("{name}-cluster")).await);
        let mut approver =
            Approver::new(controllers::in_process(router(Arc::clone(&hub.server)), "system:kiln:approver"));
        let known = HashMap::from([("target".to_owned(), (cluster.client.clone(), Vec::new()))]);
        approver.connect = Arc::new(Known(known));
        change(&mut approver);
        let (stop, stopping) = watch::channel(false);
        tokio::spawn(approver.following().run(approver.hub.clone()));
        tokio::spawn(approval::run(approver, stopping));
        Lab { hub, cluster, stop }
    }

    /// A pool whose kubeconfig is that of the cluster.
    pub async fn pool(&self, name: &str, mut spec: Value) {
        if spec["kubeconfig"].is_null() {
            spec["kubeconfig"] = json!({"name": "target"});
        }
        create(
            &self.hub.client,
            json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Pool",
            "metadata": {"name": name, "namespace": "default"}, "spec": spec}),
        )
        .await;
    }

    /// A host that fetched its config just now.
    pub async fn host(&self, name: &str, pool: &str, provision: Value) {
        let network = json!({"interfaces": [{"name": "eth0", "type": "ethernet", "state": "up", "ipv4": {"enabled": true,
            "address": [{"ip": "127.0.0.1", "prefix-length": 8}]}}]});
        create(
            &self.hub.client,
            json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Host",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"pool": pool, "network": network, "nodeLabels": {"lab.dev/rack": "r7"}}}),
        )
        .await;
        if !provision.is_null() {
            self.status(name, json!({"provision": provision})).await;
        }
    }

    pub async fn status(&self, host: &str, status: Value) {
        let api = api(&self.hub.client, "Host", "default");
        api.patch_status(host, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await.unwrap();
    }

    /// Asks for a certificate on the cluster.
    pub async fn ask(&self, name: &str, signer: &str, user: &str, groups: &[&str], pem: &str) {
        let purpose = if signer == CLIENT { "client auth" } else { "server auth" };
        let object = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
            "spec": {"request": STANDARD.encode(pem), "signerName": signer, "usages": ["digital signature", purpose]}});
        create(&self.cluster.client_of(user, groups), object).await;
    }

    pub async fn ask_shared(&self, name: &str, pem: &str) {
        self.ask(name, CLIENT, SHARED_USER, &SHARED_GROUPS, pem).await;
    }

    pub async fn ask_serving(&self, name: &str, node: &str, pem: &str) {
        self.ask(name, SERVING, &format!("system:node:{node}"), &["system:nodes", "system:authenticated"], pem).await;
    }

    /// Waits until a request is decided: its condition as `Approved KilnApproved message`.
    pub async fn decision(&self, request: &str) -> String {
        let api = api(&self.cluster.client, "CertificateSigningRequest", "");
        until(&format!("{request} is decided"), async || {
            let object = api.get(request).await.unwrap();
            let condition = object.data["status"]["conditions"].as_array()?.first()?.clone();
            let text = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
            Some(format!("{} {} {}", text("type"), text("reason"), text("message")))
        })
        .await
    }

    /// Waits until the Host says something of a request: `Held check: message`.
    pub async fn verdict(&self, host: &str, request: &str, wished: &str) -> Value {
        let api = api(&self.hub.client, "Host", "default");
        until(&format!("{request} is {wished} on {host}"), async || {
            let object = api.get(host).await.unwrap();
            let entries = object.data["status"]["certificates"].as_array()?.clone();
            entries.into_iter().find(|entry| entry["request"] == request && entry["verdict"] == wished)
        })
        .await
    }

    pub async fn host_status(&self, host: &str) -> Value {
        api(&self.hub.client, "Host", "default").get(host).await.unwrap().data["status"].clone()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

pub fn api(client: &Client, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let resource = kinds::find(kind).unwrap().resource();
    match namespace {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    }
}

pub async fn create(client: &Client, object: Value) {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let api = api(client, object["kind"].as_str().unwrap(), &namespace);
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "did not come about: {what}");
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

/// A request as a kubelet makes it.
pub fn request(node: &str, names: &[&str], key: &KeyPair) -> String {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = subject(node);
    params.subject_alt_names = names.iter().map(|name| san(name)).collect();
    params.serialize_request(key).unwrap().pem().unwrap()
}

pub fn subject(node: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, "system:nodes");
    subject.push(DnType::CommonName, format!("system:node:{node}"));
    subject
}

pub fn san(name: &str) -> SanType {
    name.parse().map_or_else(|_| SanType::DnsName(name.try_into().unwrap()), SanType::IpAddress)
}

pub fn key() -> KeyPair {
    KeyPair::generate().unwrap()
}

pub fn key_hash(key: &KeyPair) -> String {
    use rcgen::PublicKeyData;
    kiln_core::certificate_request::KeyHash::of(&key.subject_public_key_info()).to_string()
}

/// The present, or some seconds before it.
pub fn ago(seconds: i64) -> String {
    let time = OffsetDateTime::now_utc() - time::Duration::seconds(seconds);
    time.replace_nanosecond(0).unwrap().format(&Rfc3339).unwrap()
}

/// A way to kubelets, for tests that have none.
pub type AnyKubelet = Arc<dyn Kubelet>;
