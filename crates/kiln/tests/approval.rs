//! The approver between a hub and a cluster, both embedded: requests are real, and so are the answers.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

#[path = "support/lab.rs"]
mod lab;
#[path = "support/oracle.rs"]
mod oracle;

use std::collections::HashMap;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use kiln::hub::approval::kubelet::Dialled;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use lab::{Known, Lab, ago, api, create, key, key_hash, request, until};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;

fn node(name: &str, ready: bool) -> Value {
    let status = if ready { "True" } else { "False" };
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"theirs": "1"}},
        "status": {"conditions": [{"type": "Ready", "status": status, "reason": "KubeletReady", "message": "m", "lastTransitionTime": ago(0)}]}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_goes_from_its_first_request_to_ready_without_a_hand_on_it() {
    let lab = Lab::start("approval-way").await;
    lab.pool("p", json!({"nodeLabels": {"lab.dev/pool": "p"}})).await;
    let user = "system:serviceaccount:default:host-w0";
    lab.host("w0", "p", json!({"generation": 1, "fetchedAt": ago(60), "source": "127.0.0.1", "bootstrapUser": user}))
        .await;
    let key = key();
    lab.ask("csr-client", lab::CLIENT, user, &["system:authenticated"], &request("w0", &[], &key)).await;
    let decision = lab.decision("csr-client").await;
    assert!(decision.starts_with("Approved KilnApproved identity: asked by the host's own user"), "{decision}");
    let entry = lab.verdict("w0", "csr-client", "Approved").await;
    assert_eq!(entry["check"], "identity");
    assert_eq!(entry["key"], key_hash(&key).as_str());
    assert_eq!((entry["signer"].as_str(), entry["generation"].as_i64()), (Some(lab::CLIENT), Some(1)));

    create(&lab.cluster.client, node("w0", false)).await;
    let nodes = api(&lab.cluster.client, "Node", "");
    let labels = until("labels as declared", async || {
        let labels = nodes.get("w0").await.unwrap().metadata.labels.unwrap_or_default();
        (labels.len() >= 3).then_some(labels)
    });
    let labels = labels.await;
    let expected = [("lab.dev/pool", "p"), ("lab.dev/rack", "r7"), ("theirs", "1")];
    assert_eq!(labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect::<Vec<_>>(), expected);

    lab.ask_serving("csr-serving", "w0", &request("w0", &["w0", "127.0.0.1"], &key)).await;
    let decision = lab.decision("csr-serving").await;
    assert_eq!(decision, "Approved KilnApproved addresses: w0, 127.0.0.1 are declared for this host");
    let ready = json!({"status": node("w0", true)["status"]});
    nodes.patch_status("w0", &PatchParams::default(), &Patch::Merge(ready)).await.unwrap();
    let stages = until("it is Ready", async || {
        let status = lab.host_status("w0").await;
        let timeline = status["timeline"].as_array()?.clone();
        let reached = |entry: &Value| Some(format!("{}: {}", entry["stage"].as_str()?, entry["source"].as_str()?));
        let stages: Vec<String> = timeline.iter().filter_map(reached).collect();
        stages.iter().any(|stage| stage.starts_with("Ready")).then_some(stages)
    });
    let mut stages = stages.await;
    stages.sort();
    assert_eq!(
        stages,
        [
            "ClientCSR: CertificateSigningRequest csr-client",
            "Ready: Node w0",
            "Registered: Node w0",
            "ServingCSR: CertificateSigningRequest csr-serving",
        ]
    );
    until("it is healthy", async || {
        let status = lab.host_status("w0").await;
        let conditions = status["conditions"].as_array()?.clone();
        conditions.into_iter().find(|condition| condition["type"] == "Healthy" && condition["status"] == "True")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shared_user_waits_until_the_host_reports_its_key_and_a_wrong_key_is_denied() {
    let lab = Lab::start("approval-key").await;
    lab.pool("p", json!({})).await;
    lab.host("w0", "p", json!({"generation": 1, "fetchedAt": ago(60)})).await;
    let (right, wrong) = (key(), key());
    lab.ask_shared("csr-right", &request("w0", &[], &right)).await;
    let held = lab.verdict("w0", "csr-right", "Held").await;
    assert_eq!(held["check"], "identity");
    lab.status("w0", json!({"provision": {"spki": [key_hash(&right)]}})).await;
    assert!(lab.decision("csr-right").await.starts_with("Approved KilnApproved key: for the key the host reported"));
    lab.ask_shared("csr-wrong", &request("w0", &[], &wrong)).await;
    assert_eq!(lab.decision("csr-wrong").await, "Denied KilnDenied key: its key is not one the host reported");
    let denied = lab.verdict("w0", "csr-wrong", "Denied").await;
    assert_eq!(denied["message"], "its key is not one the host reported");
    let events: Api<DynamicObject> = Api::namespaced_with(
        lab.hub.client.clone(),
        "default",
        &kube::api::ApiResource {
            group: String::new(),
            version: "v1".into(),
            api_version: "v1".into(),
            kind: "Event".into(),
            plural: "events".into(),
        },
    );
    let event = until("an Event tells of it", async || {
        let events = events.list(&ListParams::default()).await.unwrap();
        events.items.into_iter().find(|event| event.data["reason"] == "CertificateDenied")
    });
    let event = event.await;
    assert_eq!(event.data["message"], "request csr-wrong: key: its key is not one the host reported");
    assert_eq!(event.data["involvedObject"]["name"], "w0");
    let failed = until("the timeline tells of it", async || {
        let status = lab.host_status("w0").await;
        status["timeline"].as_array()?.iter().find(|entry| entry["outcome"] == "Failed").cloned()
    });
    assert_eq!(failed.await["cause"], "key: its key is not one the host reported");
    // Another host's request and a person's own are nobody's business here.
    lab.ask_shared("csr-foreign", &request("elsewhere", &[], &wrong)).await;
    lab.ask_shared("csr-last", &request("w0", &[], &wrong)).await;
    lab.decision("csr-last").await;
    let foreign = api(&lab.cluster.client, "CertificateSigningRequest", "").get("csr-foreign").await.unwrap();
    assert!(foreign.data["status"]["conditions"].as_array().is_none_or(Vec::is_empty), "{:?}", foreign.data);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_machines_at_once_never_both_become_the_host() {
    let lab = Lab::start("approval-race").await;
    lab.pool("p", json!({"certificates": {"mode": "auto", "proof": "fetched"}})).await;
    lab.host("w0", "p", json!({"generation": 1, "fetchedAt": ago(60)})).await;
    // By two users, so that neither is superseded by the other.
    let token = ["system:bootstrappers", "system:authenticated"];
    let (first, second) = (key(), key());
    let (first, second) = (request("w0", &[], &first), request("w0", &[], &second));
    tokio::join!(
        lab.ask_shared("csr-1", &first),
        lab.ask("csr-2", lab::CLIENT, "system:bootstrap:abcdef", &token, &second),
    );
    let decisions = [lab.decision("csr-1").await, lab.decision("csr-2").await];
    let approved = decisions.iter().filter(|decision| decision.starts_with("Approved")).count();
    assert_eq!(approved, 1, "{decisions:?}");
    assert!(decisions.iter().any(|decision| decision.starts_with("Denied KilnDenied generation: ")), "{decisions:?}");
    // A new generation may have one again.
    lab.status("w0", json!({"provision": {"generation": 2, "fetchedAt": ago(0)}})).await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    lab.ask_shared("csr-3", &request("w0", &[], &key())).await;
    assert!(lab.decision("csr-3").await.starts_with("Approved"), "a new generation");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_vouches_for_what_waits_and_superseded_requests_are_denied() {
    let lab = Lab::start("approval-hold").await;
    lab.pool("p", json!({"certificates": {"mode": "hold"}})).await;
    let key = key();
    lab.host("w0", "p", json!({"generation": 1, "fetchedAt": ago(60), "spki": [key_hash(&key)]})).await;
    lab.ask_shared("csr-1", &request("w0", &[], &key)).await;
    let held = lab.verdict("w0", "csr-1", "Held").await;
    assert_eq!(held["check"], "mode");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    lab.ask_shared("csr-2", &request("w0", &[], &key)).await;
    assert_eq!(lab.decision("csr-1").await, "Denied KilnDenied superseded: request csr-2 of the same node is newer");
    lab.verdict("w0", "csr-2", "Held").await;
    let vouch = json!({"metadata": {"annotations": {"kiln.dev/approve-certificates": "csr-2"}}});
    api(&lab.hub.client, "Host", "default").patch("w0", &PatchParams::default(), &Patch::Merge(vouch)).await.unwrap();
    assert!(lab.decision("csr-2").await.starts_with("Approved KilnApproved key: "));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_does_not_answer_keeps_nobody_else_waiting() {
    let lab = Lab::start("approval-silent").await;
    lab.pool("silent", json!({"kubeconfig": {"name": "nowhere"}})).await;
    lab.host("a0", "silent", Value::Null).await;
    lab.pool("p", json!({})).await;
    let key = key();
    lab.host("w0", "p", json!({"generation": 1, "fetchedAt": ago(60), "spki": [key_hash(&key)]})).await;
    lab.ask_shared("csr-1", &request("w0", &[], &key)).await;
    assert!(lab.decision("csr-1").await.starts_with("Approved"));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_openssl_are_read_like_those_of_kubelets() {
    if !oracle::present("requests_of_openssl_are_read_like_those_of_kubelets", "openssl", "openssl") {
        return;
    }
    let lab = Lab::start("approval-openssl").await;
    lab.pool("p", json!({"certificates": {"mode": "auto", "proof": "fetched"}})).await;
    let made = |subject: &str, algorithm: &str, extension: Option<&str>| {
        let mut command = Command::new("openssl");
        command.args(["req", "-new", "-nodes", "-newkey", algorithm, "-keyout", "/dev/null", "-subj", subject]);
        if algorithm == "ec" {
            command.args(["-pkeyopt", "ec_paramgen_curve:P-256"]);
        }
        if let Some(extension) = extension {
            command.args(["-addext", extension]);
        }
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        process.stdin.take().unwrap().write_all(b"").unwrap();
        String::from_utf8(process.wait_with_output().unwrap().stdout).unwrap()
    };
    let cases = [
        ("o1", "/O=system:nodes/CN=system:node:o1", "ec", None, "Approved KilnApproved state: "),
        ("o2", "/O=system:nodes/CN=system:node:o2", "rsa:2048", None, "Approved KilnApproved state: "),
        (
            "o3",
            "/O=system:nodes/O=system:masters/CN=system:node:o3",
            "ec",
            None,
            "Denied KilnDenied organization: its organizations are [\"system:nodes\", \"system:masters\"] and not exactly",
        ),
        ("o4", "/O=system:nodes/CN=system:node:o4", "ec", Some("subjectAltName=DNS:o4"), "Denied KilnDenied names: "),
        (
            "o5",
            "/O=system:nodes/CN=system:node:o5",
            "ec",
            Some("basicConstraints=critical,CA:TRUE"),
            "Denied KilnDenied content: it asks for the rights of an authority",
        ),
        (
            "o6",
            "/O=system:nodes/OU=lab/CN=system:node:o6",
            "ec",
            None,
            "Denied KilnDenied content: its subject has more",
        ),
        ("o7", "/O=system:nodes/CN=system:node:o7", "ed25519", None, "Approved KilnApproved state: "),
    ];
    for (host, subject, algorithm, extension, _) in &cases {
        lab.host(host, "p", json!({"generation": 1, "fetchedAt": ago(60)})).await;
        lab.ask_shared(&format!("csr-{host}"), &made(subject, algorithm, *extension)).await;
    }
    for (host, .., expected) in cases {
        let decision = lab.decision(&format!("csr-{host}")).await;
        assert!(decision.starts_with(expected), "{host}: {decision}");
    }
}

/// A kubelet that serves a certificate of an authority.
struct Served {
    port: u16,
    authority: CertificateDer<'static>,
}

impl Served {
    async fn start(names: &[&str]) -> Served {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let authority = params.self_signed(&key).unwrap().der().clone();
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = lab::subject("w0");
        params.subject_alt_names = names.iter().map(|name| lab::san(name)).collect();
        let certificate = params.signed_by(&key, &issuer).unwrap().der().clone();
        let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], private)
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = acceptor.accept(stream).await;
            }
        });
        Served { port, authority }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_is_for_the_names_the_kubelet_serves_and_the_cluster_signed() {
    let served = Served::start(&["w0", "192.0.2.77"]).await;
    for (trusted, expected) in [
        (
            true,
            "Approved KilnApproved renewal: it renews the certificate its kubelet serves, for the same names: w0, 192.0.2.77",
        ),
        (
            false,
            "Denied KilnDenied addresses: 192.0.2.77 is not declared for this host; the certificate it serves was not read: 127.0.0.1: invalid peer certificate: BadSignature",
        ),
    ] {
        let other = Served::start(&["w0"]).await;
        let authority = if trusted { served.authority.clone() } else { other.authority };
        let port = served.port;
        let cluster = lab::Embedded::start("approval-renewal-target").await;
        let client = cluster.client.clone();
        let mut lab = Lab::start_with("approval-renewal", |approver| {
            approver.kubelet = Arc::new(Dialled { port });
            approver.connect = Arc::new(Known(HashMap::from([("target".to_owned(), (client, vec![authority]))])));
        })
        .await;
        lab.cluster = cluster;
        lab.pool("p", json!({})).await;
        lab.host("w0", "p", Value::Null).await;
        lab.ask_serving("csr-1", "w0", &request("w0", &["w0", "192.0.2.77"], &key())).await;
        assert_eq!(lab.decision("csr-1").await, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_host_loses_its_token_and_a_new_generation_is_wanted() {
    let lab = Lab::start("approval-late").await;
    let health =
        json!({"stages": {"RealRoot": "1s", "ClientCSR": "1s"}, "repair": {"policy": "Reprovision", "attempts": 1}});
    lab.pool("p", json!({"health": health})).await;
    create(
        &lab.hub.client,
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kiln.dev/boot-token",
        "metadata": {"name": "boot-token-w0", "namespace": "default"}, "stringData": {"generation": "1"}}),
    )
    .await;
    lab.host("w0", "p", json!({"generation": 1, "fetchedAt": ago(600)})).await;
    let entry = json!({"stage": "IgnitionFetched", "outcome": "Reached", "time": ago(600), "source": "test", "cause": "fetched"});
    lab.status("w0", json!({"timeline": [entry]})).await;
    let wanted = until("a new generation is wanted", async || {
        let wanted = lab.host_status("w0").await["provision"]["wanted"].clone();
        wanted.is_object().then_some(wanted)
    });
    let wanted = wanted.await;
    assert_eq!(
        (&wanted["action"], &wanted["attempt"], &wanted["stage"]),
        (&json!("Reprovision"), &json!(1), &json!("ClientCSR"))
    );
    let token = api(&lab.hub.client, "Secret", "default").get("boot-token-w0").await.unwrap();
    assert!(token.data["data"]["revoked"].is_string(), "{:?}", token.data);
    // Its Node is ready in the end: nothing is wanted any more.
    create(&lab.cluster.client, node("w0", false)).await;
    let ready = json!({"status": node("w0", true)["status"]});
    api(&lab.cluster.client, "Node", "")
        .patch_status("w0", &PatchParams::default(), &Patch::Merge(ready))
        .await
        .unwrap();
    until("nothing is wanted any more", async || {
        lab.host_status("w0").await["provision"]["wanted"].is_null().then_some(())
    })
    .await;
}
