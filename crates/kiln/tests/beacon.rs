//! `POST /beacon` from outside: each answer of the contract, both kinds of token, and what becomes of a report.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

#[path = "support/chaos.rs"]
mod chaos;
#[path = "support/lab.rs"]
mod lab;
#[path = "support/nodes.rs"]
mod nodes;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::middleware::Next;
use chaos::Chaos;
use kiln::hub::boot_secrets::{hash_token, make_token, render_record};
use kiln::hub::node::NodeLimits;
use kiln::hub::node::beacon::outcome::Outcome;
use kiln::hub::node::witness::QUEUE;
use kiln::hub::pools::Endpoint;
use kiln::hub::timeline::now;
use kiln_apiserver::rate_limit::Rate;
use kiln_apiserver::router;
use kiln_core::beacon::{CREDENTIALS_PATH, Credentials, LONGEST_REPORT, Report};
use kiln_core::boot_token::{BootRecord, LIFETIME_SECONDS, State};
use kiln_core::ignition::data_url;
use kube::api::DeleteParams;
use nodes::{Answer, Lab, POOL_CONFIG, Replica, bearer, issue, secret, until};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

const HERE: &str = "192.0.2.1";

/// A report as a machine posts it.
fn report(point: &str, more: Value) -> String {
    let mut report = json!({"point": point, "bootId": "6b0fbdb1", "uptimeMs": 9000,
        "interfaces": [{"name": "eth0", "mac": "52:54:00:00:00:01", "up": true, "addresses": ["10.0.0.5/24"]}],
        "defaultRoutes": [{"gateway": "10.0.0.1", "interface": "eth0"}]});
    for (key, value) in more.as_object().into_iter().flatten() {
        report[key] = value.clone();
    }
    assert!(Report::parse(report.to_string().as_bytes()).is_ok());
    report.to_string()
}

async fn post(replica: &Replica, authorization: &str, body: impl Into<Body>) -> Answer {
    let headers = [("authorization", authorization)];
    nodes::send(&replica.router, "POST", "/beacon", &headers, body.into(), HERE).await
}

fn address() -> Endpoint {
    Endpoint { url: "https://hub.lab:22624/".into(), authorities: Some(b"-----BEGIN".to_vec()) }
}

/// A replica that knows where it is reached and has its key.
async fn equipped(lab: &Lab, limits: NodeLimits) -> Replica {
    let replica = lab.replica_within(limits).await;
    replica.endpoint.reached_at(address());
    until("the key", async || replica.endpoint.makes_beacon_tokens()).await;
    replica
}

/// What a fetched config tells the witness.
fn credentials(config: &Answer) -> Credentials {
    let files = config.json()["storage"]["files"].as_array().unwrap().clone();
    let file = files.iter().find(|file| file["path"] == CREDENTIALS_PATH).unwrap();
    assert_eq!((&file["mode"], &file["overwrite"]), (&json!(0o600), &json!(true)));
    serde_json::from_slice(&data_url::decode(file["contents"]["source"].as_str().unwrap()).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_answer_of_the_contract() {
    let lab = Lab::start("beacon-answers").await;
    lab.declare_pool(POOL_CONFIG).await;
    lab.declare_host("w0").await;
    let token = lab.issue("w0").await;
    let replica = equipped(&lab, NodeLimits::default()).await;
    let good = bearer(&token);
    let before = lab.revision();
    let whole = report("Network", Value::Null);
    let just = format!("{whole}{}", " ".repeat(LONGEST_REPORT - whole.len()));
    let long = format!("{just} ");
    let unknown = bearer("kiln-unknown");
    for (authorization, body, status, reason, said) in [
        ("", whole.as_str(), 401, "unauthorized", "Unauthorized\n"),
        ("Basic YTpi", &whole, 401, "unauthorized", "Unauthorized\n"),
        (&unknown, &whole, 401, "unauthorized", "Unauthorized\n"),
        ("Bearer kb1.c2l0ZS93MC8x.q6s", &whole, 401, "unauthorized", "Unauthorized\n"),
        ("Bearer kb1.nonsense", &whole, 401, "unauthorized", "Unauthorized\n"),
        (&unknown, &long, 401, "unauthorized", "Unauthorized\n"),
        (&good, "", 400, "no-report", "this is no report of a boot: EOF while parsing a value at line 1 column 0\n"),
        (&good, "{}", 400, "no-report", "this is no report of a boot: missing field `point` at line 1 column 2\n"),
        (&good, &long, 413, "too-long", "a report has at most 65536 bytes\n"),
    ] {
        let answer = post(&replica, authorization, body.to_owned()).await;
        assert_eq!((answer.status, answer.text().as_str()), (status, said), "{authorization} {}", body.len());
        assert_eq!(answer.header("x-kiln-reason"), reason);
    }
    // Without a length it is counted while it comes, and what breaks off is no report.
    let parts = |number: usize, end: Result<Bytes, std::io::Error>| {
        let part = Bytes::from(vec![b' '; 1024]);
        let all = (0..number).map(move |_| Ok(part.clone())).chain([end]);
        Body::from_stream(futures::stream::iter(all))
    };
    let answer = post(&replica, &good, parts(LONGEST_REPORT / 1024 + 1, Ok(Bytes::new()))).await;
    assert_eq!(answer.status, 413);
    let answer = post(&replica, &good, parts(1, Err(std::io::Error::other("gone")))).await;
    assert_eq!((answer.status, answer.text().as_str()), (400, "the report broke off\n"));
    let answer = replica.ask("GET", "/beacon", &[("authorization", &good)], HERE).await;
    assert_eq!((answer.status, answer.header("allow")), (405, "POST"));
    assert_eq!(lab.revision(), before, "nothing of that was written");
    let answer = post(&replica, &good, just).await;
    assert_eq!((answer.status, answer.text().as_str(), answer.header("content-type")), (204, "", ""));
    until("it is written", async || lab.status("w0").await["boot"]["id"] == "6b0fbdb1").await;
    let figures = replica.endpoint.render_figures();
    for line in [
        "{outcome=\"taken\"} 1",
        "{outcome=\"unauthorized\"} 6",
        "{outcome=\"no-report\"} 3",
        "{outcome=\"too-long\"} 2",
    ] {
        assert!(figures.contains(&format!("kiln_beacon_reports_total{line}\n")), "{line}: {figures}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_reports_and_too_many_strangers_are_told_to_wait() {
    let lab = Lab::start("beacon-rates").await;
    lab.declare_host("w0").await;
    lab.declare_host("w1").await;
    let (token, other) = (lab.issue("w0").await, lab.issue("w1").await);
    let few = Rate { per_second: 1, burst: 2 };
    let replica = equipped(&lab, NodeLimits { reports: few, strangers: few, ..NodeLimits::default() }).await;
    for (authorization, taken) in [(bearer(&token), 204), (bearer("nobody"), 401)] {
        let mut answers = Vec::new();
        for _ in 0..4 {
            answers.push(post(&replica, &authorization, report("Network", Value::Null)).await);
        }
        assert_eq!((answers[0].status, answers[3].status), (taken, 429));
        assert_eq!((answers[3].header("retry-after"), answers[3].header("x-kiln-reason")), ("1", "rate"));
    }
    assert_eq!(post(&replica, &bearer(&other), report("Network", Value::Null)).await.status, 204, "each has its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn when_too_many_reports_wait_to_be_written_machines_are_told_to_come_again() {
    let lab = Lab::start("beacon-full").await;
    lab.declare_host("w0").await;
    let token = bearer(&lab.issue("w0").await);
    // An API that answers nobody who asks about hosts.
    let silence = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&silence);
    let silent = move |request: Request, next: Next| {
        let held = Arc::clone(&held);
        async move {
            if request.uri().path().contains("/hosts/") {
                drop(held.acquire().await);
            }
            next.run(request).await
        }
    };
    let api = router(Arc::clone(&lab.server)).layer(axum::middleware::from_fn(silent));
    let unlimited = Rate { per_second: 0, burst: 0 };
    let replica = Replica::over(api, NodeLimits { reports: unlimited, ..NodeLimits::default() });
    until("the first list", async || replica.endpoint.check().is_ok()).await;
    let body = report("Network", Value::Null);
    let mut taken = 0;
    let full = loop {
        let answer = post(&replica, &token, body.clone()).await;
        if answer.status != 204 {
            break answer;
        }
        taken += 1;
        assert!(taken <= 2 * QUEUE, "the queue has no bound");
    };
    assert_eq!((full.status, full.text().as_str()), (503, "too many reports wait to be written\n"));
    assert_eq!((full.header("retry-after"), full.header("x-kiln-reason")), ("5", "busy"));
    assert!(taken >= QUEUE, "{taken}");
    assert!(lab.status("w0").await["boot"].is_null());
    // The API answers again: what was taken is written, and the next report is taken.
    silence.close();
    until("it is written", async || lab.status("w0").await["boot"]["id"] == "6b0fbdb1").await;
    until("there is room", async || post(&replica, &token, body.clone()).await.status == 204).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_boot_token_reports_before_and_after_the_fetch_and_is_not_used_up_by_it() {
    let lab = Lab::start("beacon-boot-token").await;
    lab.declare_pool(POOL_CONFIG).await;
    lab.declare_host("w0").await;
    let token = lab.issue("w0").await;
    let replica = equipped(&lab, NodeLimits::default()).await;
    // As Ignition sends it, and as it is.
    for authorization in [bearer(&token), format!("Bearer {token}")] {
        assert_eq!(post(&replica, &authorization, report("Network", Value::Null)).await.status, 204);
    }
    assert_eq!(lab.record("w0").await.state(now()), State::Unused);
    assert_eq!(replica.fetch(&token, HERE).await.status, 200);
    let failed = json!({"ignitionError": "disk is gone", "uptimeMs": 9500});
    assert_eq!(post(&replica, &bearer(&token), report("IgnitionFailed", failed)).await.status, 204);
    let status =
        until_status(&lab, "w0", |status| status["boot"]["reports"].as_array().is_some_and(|all| all.len() == 2)).await;
    let failed =
        status["timeline"].as_array().unwrap().iter().find(|entry| entry["outcome"] == "Failed").unwrap().clone();
    assert_eq!(
        (&failed["stage"], &failed["source"], &failed["cause"]),
        (&json!("RealRoot"), &json!("the machine itself"), &json!("Ignition failed: disk is gone"))
    );
    // The key of a kubelet is another matter: user-data may be read by others.
    let key = json!({"kubeletKey": "ab".repeat(32)});
    let answer = post(&replica, &bearer(&token), report("KubeletKey", key)).await;
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (401, "the key of a kubelet is taken with the token in /etc/kiln/beacon.json only\n")
    );
    // Taken back, it is good for nothing.
    lab.patch("Secret", "boot-token-w0", json!({"data": {"revoked": "MjAyNi0wMS0wMVQwMDowMDowMFo="}})).await;
    until("it is revoked", async || {
        post(&replica, &bearer(&token), report("Network", Value::Null)).await.status == 401
    })
    .await;
}

async fn until_status(lab: &Lab, host: &str, wished: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let status = lab.status(host).await;
        if wished(&status) {
            return status;
        }
        assert!(Instant::now() < deadline, "{status:#}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_reports_with_what_it_fetched_until_the_next_generation() {
    let lab = Lab::start("beacon-token").await;
    lab.declare_pool(POOL_CONFIG).await;
    lab.declare_host("w0").await;
    let token = lab.issue("w0").await;
    let replica = equipped(&lab, NodeLimits::default()).await;
    let config = replica.fetch(&token, HERE).await;
    let Credentials { url, authorities, token: first } = credentials(&config);
    assert_eq!((url.as_str(), authorities.as_str()), ("https://hub.lab:22624/beacon", "-----BEGIN"));
    assert!(first.starts_with("kb1."));
    assert_eq!(credentials(&replica.fetch(&token, HERE).await).token, first, "a retry gets the same");
    let first = format!("Bearer {first}");
    assert_eq!(post(&replica, &first, report("RealRoot", Value::Null)).await.status, 204);
    let status = until_status(&lab, "w0", |status| status["boot"]["id"].is_string()).await;
    let arrived =
        status["timeline"].as_array().unwrap().iter().find(|entry| entry["stage"] == "RealRoot").unwrap().clone();
    assert_eq!(
        (&arrived["outcome"], &arrived["cause"]),
        (&json!("Reached"), &json!("eth0 has 10.0.0.5/24, default route via 10.0.0.1"))
    );
    let (revision, told) = (lab.revision(), replica.endpoint.reports(Outcome::Taken));
    assert_eq!(post(&replica, &first, report("RealRoot", Value::Null)).await.status, 204);
    assert_eq!(replica.endpoint.reports(Outcome::Taken), told + 1);
    // Another, to see that the one before was looked at.
    assert_eq!(post(&replica, &first, report("Leaving", json!({"uptimeMs": 8000}))).await.status, 204);
    until_status(&lab, "w0", |status| status["boot"]["reports"][0]["point"] == "Leaving").await;
    assert_eq!(lab.revision(), revision + 1, "the same again is not written");
    // The next generation: the old token is worth nothing, the new one comes with the new config.
    let next = lab.issue("w0").await;
    until("the new one", async || replica.fetch(&next, HERE).await.status == 200).await;
    let answer = post(&replica, &first, report("RealRoot", Value::Null)).await;
    assert_eq!((answer.status, answer.header("x-kiln-reason")), (401, "unauthorized"));
    let second = format!("Bearer {}", credentials(&replica.fetch(&next, HERE).await).token);
    assert_ne!(second, first);
    assert_eq!(post(&replica, &second, report("RealRoot", json!({"bootId": "next"}))).await.status, 204);
    until_status(&lab, "w0", |status| status["boot"]["id"] == "next" && status["boot"]["generation"] == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_address_nobody_is_told_where_to_report() {
    let lab = Lab::start("beacon-nowhere").await;
    lab.declare_pool(POOL_CONFIG).await;
    lab.declare_host("w0").await;
    let token = lab.issue("w0").await;
    let replica = lab.replica().await;
    until("the key", async || replica.endpoint.makes_beacon_tokens()).await;
    let paths = replica.fetch(&token, HERE).await.paths();
    assert!(!paths.iter().any(|path| path == CREDENTIALS_PATH), "{paths:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_make_one_key_and_a_key_that_is_taken_away_takes_every_token_with_it() {
    let lab = Lab::start("beacon-replicas").await;
    lab.declare_pool(POOL_CONFIG).await;
    lab.declare_host("w0").await;
    let token = lab.issue("w0").await;
    let replicas = [lab.replica_at_once(NodeLimits::default()), lab.replica_at_once(NodeLimits::default())];
    for replica in &replicas {
        replica.endpoint.reached_at(address());
        until("the key", async || replica.endpoint.makes_beacon_tokens() && replica.endpoint.check().is_ok()).await;
    }
    let first = format!("Bearer {}", credentials(&replicas[0].fetch(&token, HERE).await).token);
    assert_eq!(post(&replicas[1], &first, report("RealRoot", Value::Null)).await.status, 204, "one key for both");
    // A key in somebody else's namespace is nobody's.
    let mut foreign = secret("kiln-beacon-key", "beacon-key", json!({}), &[("key", &[7; 32])]);
    foreign["type"] = "Opaque".into();
    lab.create("Secret", foreign).await;
    let keys = lab::api(&lab.client, "Secret", "default");
    keys.delete("kiln-beacon-key", &DeleteParams::default()).await.unwrap();
    for replica in &replicas {
        until("another key", async || post(replica, &first, report("RealRoot", Value::Null)).await.status == 401).await;
        until("another key", async || replica.endpoint.makes_beacon_tokens()).await;
    }
    let second = format!("Bearer {}", credentials(&replicas[0].fetch(&token, HERE).await).token);
    assert_ne!(second, first);
    for replica in &replicas {
        assert_eq!(post(replica, &second, report("RealRoot", Value::Null)).await.status, 204);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_report_is_written_on_a_bad_day_too() {
    let lab = Lab::start("beacon-bad-day").await;
    let hosts: Vec<String> = (0..12).map(|number| format!("w{number}")).collect();
    let mut tokens = Vec::new();
    for host in &hosts {
        lab.declare_host(host).await;
        tokens.push(issue(&lab.client, host, now(), LIFETIME_SECONDS).await);
    }
    let chaos = Chaos::new(11);
    let replica = Replica::over(chaos.over(router(Arc::clone(&lab.server))), NodeLimits::default());
    until("the first list", async || replica.endpoint.check().is_ok()).await;
    for (point, uptime) in [("Network", 5000), ("Leaving", 8000), ("RealRoot", 12_000)] {
        for token in &tokens {
            let body = report(point, json!({"uptimeMs": uptime}));
            // A stale list may make it forget a token for a moment.
            until("it is taken", async || post(&replica, &bearer(token), body.clone()).await.status == 204).await;
        }
    }
    for host in &hosts {
        let status = until_status(&lab, host, |status| {
            let reports = status["boot"]["reports"].as_array().map_or(0, Vec::len);
            reports == 3 && status["timeline"].as_array().is_some_and(|entries| !entries.is_empty())
        });
        let status = status.await;
        let points: Vec<&str> = status["boot"]["reports"]
            .as_array()
            .unwrap()
            .iter()
            .map(|report| report["point"].as_str().unwrap())
            .collect();
        assert_eq!(points, ["Network", "Leaving", "RealRoot"]);
    }
    chaos.was_bad();
}

/// A report of the kubelet's key leads to a certificate for that key and no other, with nobody's hand on it.
async fn a_reported_key_is_the_proof(name: &str, chaos: Option<Chaos>) {
    let lab = lab::Lab::start(name).await;
    lab.pool("p", json!({})).await;
    lab.host("w0", "p", Value::Null).await;
    let client = &lab.hub.client;
    let in_default = |mut object: Value| {
        (object["apiVersion"], object["kind"]) = ("v1".into(), "Secret".into());
        object["metadata"]["namespace"] = "default".into();
        object
    };
    lab::create(client, in_default(nodes::payload("payload-worker-1", "worker", POOL_CONFIG))).await;
    lab::create(client, in_default(nodes::overlay("w0", "payload-worker-1", &nodes::own_files("w0"), None))).await;
    let token = make_token().unwrap();
    let record = BootRecord::issue(hash_token(token.text()), None, now(), LIFETIME_SECONDS);
    let mut object = in_default(secret("boot-token-w0", "boot-token", json!({"kiln.dev/host": "w0"}), &[]));
    object["data"] = render_record(&record);
    object["data"].as_object_mut().unwrap().retain(|_, value| !value.is_null());
    lab::create(client, object).await;
    let api = chaos::on_day(chaos.as_ref(), router(Arc::clone(&lab.hub.server)));
    let replica = Replica::over(api, NodeLimits::default());
    replica.endpoint.reached_at(address());
    until("the key", async || replica.endpoint.makes_beacon_tokens() && replica.endpoint.check().is_ok()).await;
    let (right, wrong) = (lab::key(), lab::key());
    lab.ask_shared("csr-right", &lab::request("w0", &[], &right)).await;
    let fetched = loop {
        let answer = replica.fetch(token.text(), HERE).await;
        if answer.status == 200 {
            break answer;
        }
        assert!([503, 511].contains(&answer.status), "{answer:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    lab.verdict("w0", "csr-right", "Held").await;
    let reporter = format!("Bearer {}", credentials(&fetched).token);
    let body = report("KubeletKey", json!({"kubeletKey": lab::key_hash(&right)}));
    until("the key is taken", async || post(&replica, &reporter, body.clone()).await.status == 204).await;
    let decision = lab.decision("csr-right").await;
    assert!(decision.starts_with("Approved KilnApproved key: for the key the host reported"), "{decision}");
    lab.ask_shared("csr-wrong", &lab::request("w0", &[], &wrong)).await;
    assert_eq!(lab.decision("csr-wrong").await, "Denied KilnDenied key: its key is not one the host reported");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reported_key_is_the_proof_a_client_certificate_waits_for() {
    a_reported_key_is_the_proof("beacon-key", None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reported_key_is_the_proof_on_a_bad_day_too() {
    let chaos = Chaos::new(5);
    a_reported_key_is_the_proof("beacon-key-bad-day", Some(chaos.clone())).await;
    chaos.was_bad();
}
