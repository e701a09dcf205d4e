//! The approver against a real cluster: kube-apiserver takes the approval and kube-controller-manager signs.
//!
//! Runs when `KUBEBUILDER_ASSETS` names a folder with etcd, kube-apiserver and kube-controller-manager; building them takes longer
//! than all tests together, so without it one line says so.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests may fail loudly; a skipped test is told")]

#[path = "support/lab.rs"]
mod lab;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln::hub::approval::{self, Approver};
use kiln::hub::controllers;
use kiln_apiserver::router;
use kiln_core::certificate_request::parse_certificate_pem;
use kiln_testimage::temp_dir::TempDir;
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use lab::{Embedded, SHARED_GROUPS, SHARED_USER, ago, api, create, key, key_hash, request, until};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};
use tokio::sync::watch;

/// A cluster without nodes that signs what is approved; dropped, it is killed.
struct Cluster {
    processes: Vec<Child>,
    port: u16,
    authority: String,
}

impl Cluster {
    fn start(test: &str, folder: &Path) -> Option<Cluster> {
        let programs = ["etcd", "kube-apiserver", "kube-controller-manager"];
        let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
        let Some(assets) = assets.filter(|assets| programs.iter().all(|program| assets.join(program).is_file())) else {
            println!("skipped: {test}: KUBEBUILDER_ASSETS names no folder with {}", programs.join(", "));
            return None;
        };
        let [client, peer, port] = [free_port(), free_port(), free_port()];
        let (etcd, peers) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let path = |name: &str| folder.join(name).display().to_string();
        // The shared user has one group more than it is given here: everybody recognised.
        let shared = SHARED_GROUPS[..2].join(",");
        let tokens = format!(
            "admin,kiln-admin,1,system:masters\nshared,{SHARED_USER},2,\"{shared}\"\nnode,system:node:w0,3,system:nodes\n"
        );
        fs::write(folder.join("tokens.csv"), tokens).unwrap();
        let accounts = KeyPair::generate().unwrap();
        fs::write(folder.join("accounts.key"), accounts.serialize_pem()).unwrap();
        fs::write(folder.join("accounts.pub"), accounts.public_key_pem()).unwrap();
        signing_authority(folder);
        let mut cluster = Cluster { processes: Vec::new(), port, authority: String::new() };
        let etcd_flags = [
            format!("--data-dir={}", path("etcd")),
            format!("--listen-client-urls={etcd}"),
            format!("--advertise-client-urls={etcd}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster=default={peers}"),
        ];
        cluster.spawn(&assets, folder, "etcd", &etcd_flags);
        let server_flags = [
            format!("--etcd-servers={etcd}"),
            "--bind-address=127.0.0.1".into(),
            "--advertise-address=127.0.0.1".into(),
            format!("--secure-port={port}"),
            format!("--cert-dir={}", path("certificates")),
            format!("--token-auth-file={}", path("tokens.csv")),
            "--authorization-mode=AlwaysAllow".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-signing-key-file={}", path("accounts.key")),
            format!("--service-account-key-file={}", path("accounts.pub")),
            "--service-cluster-ip-range=10.0.0.0/24".into(),
            "--disable-admission-plugins=ServiceAccount".into(),
        ];
        cluster.spawn(&assets, folder, "kube-apiserver", &server_flags);
        // It makes its certificate on the first start; the authority that signed it comes second in the file.
        let certificates = folder.join("certificates/apiserver.crt");
        wait("kube-apiserver made no certificate", || {
            fs::read_to_string(&certificates).is_ok_and(|text| text.matches("END CERTIFICATE").count() == 2)
        });
        let chain = fs::read_to_string(&certificates).unwrap();
        cluster.authority = chain[chain.rfind("-----BEGIN").unwrap()..].to_owned();
        fs::write(folder.join("kubeconfig"), cluster.kubeconfig("admin")).unwrap();
        let version = Command::new(assets.join("kube-apiserver")).arg("--version").output().unwrap();
        let version = String::from_utf8(version.stdout).unwrap();
        let minor: u32 = version.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or_default();
        let manager_flags = [
            format!("--kubeconfig={}", path("kubeconfig")),
            "--controllers=csrsigning".into(),
            format!("--cluster-signing-cert-file={}", path("signer.crt")),
            format!("--cluster-signing-key-file={}", path("signer.key")),
            "--leader-elect=false".into(),
            "--secure-port=0".into(),
            // A second port that later versions do not have.
            "--port=0".into(),
        ];
        let flags = if minor < 23 { &manager_flags[..] } else { &manager_flags[..6] };
        cluster.spawn(&assets, folder, "kube-controller-manager", flags);
        Some(cluster)
    }

    fn spawn(&mut self, assets: &Path, folder: &Path, program: &str, flags: &[String]) {
        let log = fs::File::create(folder.join(format!("{program}.log"))).unwrap();
        let mut command = Command::new(assets.join(program));
        self.processes
            .push(command.args(flags).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap());
    }

    fn kubeconfig(&self, token: &str) -> String {
        let (port, authority) = (self.port, STANDARD.encode(&self.authority));
        format!(
            "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: \"https://127.0.0.1:{port}\", certificate-authority-data: {authority}}}}}]\nusers: [{{name: u, user: {{token: {token}}}}}]\ncontexts: [{{name: x, context: {{cluster: c, user: u, namespace: default}}}}]\ncurrent-context: x\n"
        )
    }

    async fn client(&self, token: &str) -> Client {
        let kubeconfig = Kubeconfig::from_yaml(&self.kubeconfig(token)).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        Client::try_from(config).unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn signing_authority(folder: &Path) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    fs::write(folder.join("signer.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(folder.join("signer.key"), key.serialize_pem()).unwrap();
}

fn wait(what: &str, wished: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(180);
    while !wished() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
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
    let Some(cluster) = Cluster::start("what_is_approved_is_signed_and_the_certificate_is_the_nodes", folder.path())
    else {
        return;
    };
    let admin = cluster.client("admin").await;
    let requests = api(&admin, "CertificateSigningRequest", "");
    until("the cluster answers", async || requests.list(&Default::default()).await.ok()).await;
    let hub = Embedded::start("approval-kubernetes-hub").await;
    let approver = Approver::new(controllers::in_process(router(Arc::clone(&hub.server)), "system:kiln:approver"));
    let (stop, stopping) = watch::channel(false);
    tokio::spawn(approval::run(approver, stopping));
    create(&hub.client, json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "lab-admin-kubeconfig", "namespace": "default"},
        "stringData": {"kubeconfig": cluster.kubeconfig("admin")}})).await;
    create(&hub.client, json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Host", "metadata": {"name": "w0", "namespace": "default"},
        "spec": {"cluster": {"name": "lab"}, "nodeLabels": {"node-role.kubernetes.io/infra": ""},
            "network": {"interfaces": [{"name": "eth0", "type": "ethernet", "state": "up", "ipv4": {"enabled": true, "address": [{"ip": "192.0.2.10", "prefix-length": 24}]}}]}}})).await;
    let key = key();
    let hosts = api(&hub.client, "Host", "default");
    let provision = json!({"status": {"provision": {"generation": 1, "fetchedAt": ago(30), "spki": [key_hash(&key)]}}});
    hosts.patch_status("w0", &Default::default(), &kube::api::Patch::Merge(provision)).await.unwrap();

    let shared = cluster.client("shared").await;
    ask(&shared, "csr-client", lab::CLIENT, &request("w0", &[], &key)).await;
    let issued = until("the client certificate is signed", async || certificate(&requests, "csr-client").await);
    let issued = issued.await;
    let read = parse_certificate_pem(&issued).unwrap();
    assert_eq!((read.common_name.as_str(), read.key.to_string()), ("system:node:w0", key_hash(&key)));

    create(&admin, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w0"}})).await;
    let node = cluster.client("node").await;
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

async fn certificate(requests: &kube::Api<kube::api::DynamicObject>, name: &str) -> Option<Vec<u8>> {
    let object = requests.get_opt(name).await.unwrap()?;
    let status: &Value = &object.data["status"];
    STANDARD.decode(status["certificate"].as_str()?).ok()
}
