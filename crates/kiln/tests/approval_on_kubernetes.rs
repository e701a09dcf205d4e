//! The approver against a real cluster: kube-apiserver takes the approval and kube-controller-manager signs.
//!
//! Runs when `KUBEBUILDER_ASSETS` names a folder with etcd, kube-apiserver and kube-controller-manager; building them takes longer
//! than all tests together, so without it one line says so.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/lab.rs"]
mod lab;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cluster::{Cluster, Setup};
use kiln::hub::approval::{self, Approver};
use kiln::hub::boot_secrets::{hash_token, render_record};
use kiln::hub::controllers;
use kiln::hub::node::beacon::key::{BeaconKey, SECRET};
use kiln::hub::timeline::now;
use kiln_apiserver::router;
use kiln_core::beacon_token::Bearer;
use kiln_core::boot_token::BootRecord;
use kiln_core::certificate_request::parse_certificate_pem;
use kiln_testimage::oracle;
use kiln_testimage::temp_dir::TempDir;
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use lab::{Embedded, SHARED_GROUPS, SHARED_USER, ago, api, create, key, key_hash, request, until};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};
use tokio::sync::watch;

/// A cluster that signs what is approved, knows bootstrap tokens and lets everybody do everything.
fn start(test: &str, folder: &Path) -> Option<Cluster> {
    let kubectl = oracle::kubectl(test)?;
    signing_authority(folder);
    let path = |name: &str| folder.join(name).display().to_string();
    // The shared user has one group more than it is given here: everybody recognised.
    let shared = SHARED_GROUPS[..2].join(",");
    let setup = Setup {
        tokens: format!("shared,{SHARED_USER},2,\"{shared}\"\nnode,system:node:w0,3,system:nodes\n"),
        server: vec!["--authorization-mode=AlwaysAllow".into(), "--enable-bootstrap-token-auth=true".into()],
        controllers: "csrsigning",
        manager: vec![
            format!("--cluster-signing-cert-file={}", path("signer.crt")),
            format!("--cluster-signing-key-file={}", path("signer.key")),
        ],
    };
    Cluster::start_with(test, &folder.join("cluster"), &kubectl, setup)
}

async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// A hub with the approver, which has the cluster's kubeconfig.
async fn hub(name: &str, kubeconfig: &str) -> (Embedded, watch::Sender<bool>) {
    let hub = Embedded::start(name).await;
    let approver = Approver::new(controllers::in_process(router(Arc::clone(&hub.server)), "system:kiln:approver"));
    let (stop, stopping) = watch::channel(false);
    tokio::spawn(approver.following().run(approver.hub.clone()));
    tokio::spawn(approval::run(approver, stopping));
    create(&hub.client, json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "lab-admin-kubeconfig", "namespace": "default"},
        "stringData": {"kubeconfig": kubeconfig}})).await;
    (hub, stop)
}

fn signing_authority(folder: &Path) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    fs::write(folder.join("signer.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(folder.join("signer.key"), key.serialize_pem()).unwrap();
}

async fn ask(client: &Client, name: &str, signer: &str, pem: &str) {
    let purpose = if signer == lab::CLIENT { "client auth" } else { "server auth" };
    create(
        client,
        json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"request": STANDARD.encode(pem), "signerName": signer, "usages": ["digital signature", "key encipherment", purpose]}}),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_approved_is_signed_and_the_certificate_is_the_nodes() {
    let folder = TempDir::new("approval-kubernetes");
    let test = "what_is_approved_is_signed_and_the_certificate_is_the_nodes";
    let Some(cluster) = start(test, folder.path()) else { return };
    let kubeconfig = fs::read_to_string(&cluster.kubeconfig).unwrap();
    let admin = client(&kubeconfig).await;
    let requests = api(&admin, "CertificateSigningRequest", "");
    let (hub, stop) = hub("approval-kubernetes-hub", &kubeconfig).await;
    create(&hub.client, json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Host", "metadata": {"name": "w0", "namespace": "default"},
        "spec": {"cluster": {"name": "lab"}, "nodeLabels": {"node-role.kubernetes.io/infra": ""},
            "network": {"interfaces": [{"name": "eth0", "type": "ethernet", "state": "up", "ipv4": {"enabled": true, "address": [{"ip": "192.0.2.10", "prefix-length": 24}]}}]}}})).await;
    let key = key();
    let hosts = api(&hub.client, "Host", "default");
    let provision = json!({"status": {"provision": {"generation": 1, "fetchedAt": ago(30), "spki": [key_hash(&key)]}}});
    hosts.patch_status("w0", &Default::default(), &kube::api::Patch::Merge(provision)).await.unwrap();

    let shared = client(&cluster.kubeconfig_of("shared")).await;
    ask(&shared, "csr-client", lab::CLIENT, &request("w0", &[], &key)).await;
    let issued = until("the client certificate is signed", async || certificate(&requests, "csr-client").await);
    let issued = issued.await;
    let read = parse_certificate_pem(&issued).unwrap();
    assert_eq!((read.common_name.as_str(), read.key.to_string()), ("system:node:w0", key_hash(&key)));

    create(&admin, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w0"}})).await;
    let node = client(&cluster.kubeconfig_of("node")).await;
    ask(&node, "csr-serving", lab::SERVING, &request("w0", &["w0", "192.0.2.10"], &key)).await;
    ask(&node, "csr-wrong", lab::SERVING, &request("w0", &["w0", "192.0.2.66"], &lab::key())).await;
    let decided = until("the wrong one is denied", async || {
        requests.get("csr-wrong").await.unwrap().data["status"]["conditions"].as_array()?.first().cloned()
    });
    let decided = decided.await;
    assert_eq!(
        (decided["type"].as_str(), decided["reason"].as_str()),
        (Some("Denied"), Some("KilnDenied")),
        "{decided}"
    );
    // The wrong one is newer: the right one was superseded, or signed before that.
    let first = until("the other is decided", async || {
        requests.get("csr-serving").await.unwrap().data["status"]["conditions"].as_array()?.first().cloned()
    });
    if first.await["type"] == "Denied" {
        ask(&node, "csr-serving-2", lab::SERVING, &request("w0", &["w0", "192.0.2.10"], &key)).await;
    }
    let issued =
        until("the serving certificate is signed", async || match certificate(&requests, "csr-serving").await {
            Some(pem) => Some(pem),
            None => certificate(&requests, "csr-serving-2").await,
        });
    assert_eq!(parse_certificate_pem(&issued.await).unwrap().names.to_string(), "w0, 192.0.2.10");
    let labels = until("the Node has its label", async || {
        let labels = api(&admin, "Node", "").get("w0").await.unwrap().metadata.labels.unwrap_or_default();
        labels.contains_key("node-role.kubernetes.io/infra").then_some(labels)
    });
    labels.await;
    let ends = until("the hub knows when the certificate ends", async || {
        let status = hosts.get("w0").await.unwrap().data["status"].clone();
        let entry = status["certificates"].as_array()?.iter().find(|entry| entry["request"] == "csr-client")?.clone();
        entry["expires"].as_str().map(str::to_owned)
    });
    assert_eq!(kiln::hub::timeline::parse_time(&ends.await), Some(read.ends));
    stop.send_replace(true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hosts_own_bootstrap_token_is_good_until_it_has_its_certificate() {
    let folder = TempDir::new("approval-bootstrap");
    let test = "a_hosts_own_bootstrap_token_is_good_until_it_has_its_certificate";
    let Some(cluster) = start(test, folder.path()) else { return };
    let kubeconfig = fs::read_to_string(&cluster.kubeconfig).unwrap();
    let requests = api(&client(&kubeconfig).await, "CertificateSigningRequest", "");
    let (hub, stop) = hub("approval-bootstrap-hub", &kubeconfig).await;
    let secret = |name: &str, data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"}, "data": data});
    let key_secret = secret(SECRET, json!({"key": STANDARD.encode([7; 32])}));
    let record = BootRecord::issue(hash_token("kiln-test"), None, now(), 3600);
    let bearer = Bearer { namespace: "default".into(), host: "w0".into(), generation: record.generation };
    let token = BeaconKey::read(&key_secret, "default").unwrap().bootstrap_token(&bearer, &record.hash);
    let mut data = render_record(&record);
    data.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    create(&hub.client, key_secret).await;
    create(&hub.client, secret("boot-token-w0", data)).await;
    create(
        &hub.client,
        json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Host", "metadata": {"name": "w0", "namespace": "default"},
        "spec": {"cluster": {"name": "lab"}}}),
    )
    .await;
    let provision = json!({"generation": record.generation, "fetchedAt": ago(30), "bootstrapUser": token.user()});
    let patch = kube::api::Patch::Merge(json!({"status": {"provision": provision}}));
    let hosts = api(&hub.client, "Host", "default");
    hosts.patch_status("w0", &Default::default(), &patch).await.unwrap();

    let host = client(&cluster.kubeconfig_of(&format!("{}.{}", token.id(), token.secret()))).await;
    let its_requests = api(&host, "CertificateSigningRequest", "");
    until("its token is good", async || its_requests.list(&Default::default()).await.ok()).await;
    ask(&host, "csr-own", lab::CLIENT, &request("w0", &[], &key())).await;
    until("it is signed", async || certificate(&requests, "csr-own").await).await;
    let username = requests.get("csr-own").await.unwrap().data["spec"]["username"].clone();
    assert_eq!(username, token.user());
    until("its token is good no more", async || match its_requests.list(&Default::default()).await {
        Err(kube::Error::Api(status)) if status.code == 401 => Some(()),
        _ => None,
    })
    .await;
    stop.send_replace(true);
}

async fn certificate(requests: &kube::Api<kube::api::DynamicObject>, name: &str) -> Option<Vec<u8>> {
    let object = requests.get_opt(name).await.unwrap()?;
    let status: &Value = &object.data["status"];
    STANDARD.decode(status["certificate"].as_str()?).ok()
}
