//! The node endpoints from outside: a test for each row of the contract, and what they leave in the API.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails loudly")]

#[path = "support/nodes.rs"]
mod nodes;

use std::time::Duration;

use kiln::hub::node::figures::Outcome;
use kiln::hub::node::{NodeLimits, beside};
use kiln::hub::timeline::now;
use kiln_apiserver::rate_limit::Rate;
use kiln_core::boot_token::{BootRecord, RETRY_SECONDS, Refusal};
use kiln_core::timeline::Moment;
use kube::api::DeleteParams;
use nodes::{Lab, NAMESPACE, POOL_CONFIG, ask, bearer, gunzip, issue, overlay, own_files, payload, pool_token, until};
use serde_json::{Value, json};

const UUID: &str = "0f0a3a5c-7a67-4a2b-9b1a-2f6a0a4c1e11";
const OTHER: &str = "6a1c2f7e-9d57-4a43-8d1c-0f0f0f0f0f0f";
const HERE: &str = "192.0.2.1";
const ELSEWHERE: &str = "192.0.2.2";

fn accept(version: &str) -> String {
    format!("application/vnd.coreos.ignition+json;version={version}, */*;q=0.1")
}

/// Without rates, for tests that ask for more than a machine would.
fn unlimited() -> NodeLimits {
    let none = Rate { per_second: 0, burst: 0 };
    NodeLimits { strangers: none, host_token: none, pool_tokens: none, ..NodeLimits::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_shows_nothing_that_could_be_a_token_is_unauthorized() {
    let lab = Lab::start("node-401").await;
    let replica = lab.replica().await;
    let before = lab.revision();
    let encoded = bearer(UUID);
    for authorization in
        [None, Some("Basic YTpi"), Some("bearer YTpi"), Some("Bearer not-base64!"), Some("Bearer"), Some(&encoded[6..])]
    {
        let headers: Vec<(&str, &str)> = authorization.iter().map(|value| ("authorization", *value)).collect();
        let answer = replica.ask("GET", "/ignition", &headers, HERE).await;
        assert_eq!((answer.status, answer.text().as_str()), (401, "Unauthorized\n"), "{authorization:?}");
        assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
    }
    assert_eq!(lab.revision(), before, "strangers write nothing");
    assert_eq!(replica.endpoint.counted(Outcome::Unauthorized), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_not_good_is_511_with_the_truth_in_a_header() {
    let lab = Lab::start("node-511").await;
    lab.declare_pool(POOL_CONFIG).await;
    lab.create("Secret", pool_token("token-dead", "payload-worker-1", UUID, None, Some("2020-01-01T00:00:00Z"))).await;
    lab.create("Secret", pool_token("token-strange", "payload-worker-1", OTHER, None, Some("soon"))).await;
    lab.create("Secret", pool_token("token-early", "payload-worker-2", "early", None, None)).await;
    lab.declare_host("w0").await;
    let expired = issue(&lab.client, "w0", Moment(0), 60).await;
    lab.declare_host("w1").await;
    let revoked = lab.issue("w1").await;
    lab.patch("Secret", "boot-token-w1", json!({"data": {"revoked": "MjAyNi0wMS0wMVQwMDowMDowMFo="}})).await;
    lab.create("Host", json!({"metadata": {"name": "w2"}, "spec": {}})).await;
    let pending = lab.issue("w2").await;
    let replica = lab.replica().await;
    let before = lab.revision();
    for (token, reason, retry) in [
        // the first six belong to nobody in particular
        ("nobody", "unknown", "15"),
        ("", "unknown", "15"),
        (UUID, "expired", "60"),
        (OTHER, "expired", "60"),
        ("early", "pending", "5"),
        (&pending, "pending", "5"),
        (&expired, "expired", "60"),
        (&revoked, "revoked", "60"),
    ] {
        if token == expired {
            assert_eq!(lab.revision(), before, "whoever is not known writes nothing, nor does who only waits");
        }
        let answer = replica.fetch(token, HERE).await;
        assert_eq!((answer.status, answer.text().as_str()), (511, "Token not found\n"), "{reason}");
        assert_eq!((answer.header("x-kiln-reason"), answer.header("retry-after")), (reason, retry));
    }
    // A machine that will never get anything is told to its host, once.
    for host in ["w0", "w1"] {
        until("the story", async || lab.status(host).await["timeline"].is_array()).await;
    }
    for (host, token, why) in
        [("w0", &expired, "expired at 1970-01-01T00:01:00Z"), ("w1", &revoked, "was revoked at 2026-01-01T00:00:00Z")]
    {
        let settled = lab.revision();
        assert_eq!(replica.fetch(token, HERE).await.status, 511);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(lab.revision(), settled, "the same story is told once");
        let entry = lab.status(host).await["timeline"][0].clone();
        let cause = format!(
            "192.0.2.1 shows the boot token of generation 1, which {why}: `kiln token rotate {host}` issues another"
        );
        assert_eq!((&entry["outcome"], &entry["cause"]), (&json!("Failed"), &json!(cause)));
    }
    assert_eq!(replica.endpoint.counted(Outcome::Refused(Refusal::Pending)), 2);
    // What was missing comes, and the token is as good as before.
    lab.create("Secret", overlay("w2", "payload-worker-1", &own_files("w2"), None)).await;
    assert_eq!(replica.fetch_soon(&pending, HERE).await.status, 200);
    lab.create("Secret", payload("payload-worker-2", "worker", POOL_CONFIG)).await;
    assert_eq!(replica.fetch_soon("early", HERE).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_token_gets_the_payload_whatever_the_other_headers_and_the_method_say() {
    let lab = Lab::start("node-200").await;
    lab.declare_pool(POOL_CONFIG).await;
    lab.create(
        "Secret",
        pool_token("token-worker-1", "payload-worker-1", UUID, Some(OTHER), Some("2999-01-01T00:00:00Z")),
    )
    .await;
    let replica = lab.replica().await;
    let version = accept("3.4.0");
    for (method, path, token, more) in [
        ("GET", "/ignition", UUID, ("nodepool", "site/worker")),
        ("GET", "/ignition", OTHER, ("nodepool", "other/other")),
        ("GET", "/ignition-x", UUID, ("targetconfigversionhash", "00000000")),
        ("POST", "/ignition", UUID, ("content-type", "text/plain")),
        ("DELETE", "/ignition?a=b", UUID, ("nodepool", "")),
    ] {
        let headers = [("authorization", &*bearer(token)), ("accept", &*version), more];
        let answer = replica.ask(method, path, &headers, HERE).await;
        assert_eq!((answer.status, answer.text().as_str()), (200, POOL_CONFIG), "{method} {path} {more:?}");
        assert_eq!(answer.header("content-type"), "application/json; charset=utf-8");
        assert_eq!(answer.header("content-length"), POOL_CONFIG.len().to_string());
        assert_eq!(answer.header("cache-control"), "no-store");
    }
    until("the annotation", async || {
        let secret = lab.api("Secret").get("token-worker-1").await.unwrap();
        secret.metadata.annotations.unwrap().get("hypershift.openshift.io/ignition-reached").map(String::as_str)
            == Some("True")
    })
    .await;
    let settled = lab.revision();
    assert_eq!(replica.fetch(UUID, HERE).await.status, 200);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(lab.revision(), settled, "the annotation is written once");
    let figures = replica.endpoint.render_figures();
    assert!(figures.contains("ign_server_get_request{nodePool=\"site/worker\"} 6\n"), "{figures}");
    assert!(figures.contains("kiln_ignition_requests_total{outcome=\"served-pool\"} 6\n"), "{figures}");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_paths_are_404_and_health_is_for_everybody() {
    let lab = Lab::start("node-404").await;
    let replica = lab.replica_at_once(NodeLimits::default());
    let early = replica.ask("GET", "/readyz", &[], HERE).await;
    assert!([200, 500].contains(&early.status));
    until("readiness", async || replica.ask("GET", "/readyz", &[], HERE).await.status == 200).await;
    for path in ["/", "/ignition/", "/ignition/x", "/api/v1/secrets", "/metrics", "/config", "/config/"] {
        let answer = replica.ask("GET", path, &[], HERE).await;
        assert_eq!((answer.status, answer.text().as_str()), (404, "404 page not found\n"), "{path}");
    }
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(replica.ask("GET", path, &[], HERE).await.text(), "ok", "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_that_is_no_config_is_500_and_uses_nothing_up() {
    let lab = Lab::start("node-500").await;
    lab.declare_pool("{\"ignition\":7}").await;
    lab.create("Secret", pool_token("token-worker-1", "payload-worker-1", UUID, None, None)).await;
    lab.declare_host("w0").await;
    let token = lab.issue("w0").await;
    let replica = lab.replica().await;
    for token in [UUID, &token] {
        let answer = replica.fetch(token, HERE).await;
        assert_eq!((answer.status, answer.text().as_str()), (500, "Invalid ignition payload\n"));
        assert_eq!(answer.header("x-kiln-reason"), "invalid-payload");
    }
    assert_eq!(lab.record("w0").await.used, None);
    assert!(replica.endpoint.check().is_ok(), "one broken pool takes nothing from the others");
    let figures = replica.endpoint.render_figures();
    assert!(figures.contains("kiln_ignition_objects{kind=\"unusable-payload\"} 1\n"), "{figures}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_ignition_gets_the_spec_it_reads_and_a_newer_one_what_there_is() {
    let lab = Lab::start("node-versions").await;
    lab.declare_pool(POOL_CONFIG).await;
    lab.create("Secret", pool_token("token-worker-1", "payload-worker-1", UUID, None, None)).await;
    let replica = lab.replica().await;
    for (asked, expected, lost) in [
        (None, "3.2.0", "1"),
        (Some("*/*".to_owned()), "3.2.0", "1"),
        (Some(accept("3.0.0")), "3.0.0", "1"),
        (Some(accept("3.3.0")), "3.3.0", ""),
        (Some(accept("3.4.0")), "3.4.0", ""),
        (Some(accept("3.6.0")), "3.4.0", ""),
    ] {
        let authorization = bearer(UUID);
        let mut headers = vec![("authorization", authorization.as_str())];
        headers.extend(asked.as_deref().map(|asked| ("accept", asked)));
        let answer = replica.ask("GET", "/ignition", &headers, HERE).await;
        assert_eq!(answer.json()["ignition"]["version"], expected, "{asked:?}");
        assert_eq!(answer.header("x-kiln-lost"), lost, "{asked:?}");
        assert_eq!(answer.paths(), ["/etc/pool"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gzip_is_sent_to_who_asks_and_is_the_same_config() {
    let lab = Lab::start("node-gzip").await;
    lab.declare_pool(POOL_CONFIG).await;
    lab.create("Secret", pool_token("token-worker-1", "payload-worker-1", UUID, None, None)).await;
    lab.declare_host("w0").await;
    let token = lab.issue("w0").await;
    let replica = lab.replica().await;
    for token in [UUID, token.as_str()] {
        let authorization = bearer(token);
        let with = |encoding: &'static str| {
            [("authorization", authorization.clone()), ("accept-encoding", encoding.to_owned())]
        };
        let fetch = async |encoding| {
            let headers = with(encoding);
            let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            replica.ask("GET", "/ignition", &headers, HERE).await
        };
        let (plain, packed) = (fetch("identity").await, fetch("gzip").await);
        assert_eq!((plain.header("content-encoding"), packed.header("content-encoding")), ("", "gzip"));
        assert_eq!(packed.header("content-length"), packed.body.len().to_string());
        assert_eq!(gunzip(&packed.body), plain.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_gets_its_own_config_once_and_its_timeline_says_so() {
    let lab = Lab::start("node-host").await;
    lab.declare_pool(POOL_CONFIG).await;
    lab.declare_host("w0").await;
    let token = lab.issue("w0").await;
    let replica = lab.replica().await;
    // A look at the head uses nothing up.
    let head = replica.ask("HEAD", "/ignition", &[("authorization", &bearer(&token))], ELSEWHERE).await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(lab.record("w0").await.used, None);
    let answer = replica.fetch(&token, HERE).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("content-length"), head.header("content-length"));
    assert_eq!(
        answer.paths(),
        ["/etc/pool", "/etc/hostname", "/etc/NetworkManager/system-connections/eth0.nmconnection"]
    );
    let used = lab.record("w0").await.used.expect("it was used before the answer");
    assert_eq!(used.source.to_string(), HERE);
    // The answer may be lost: the same machine asks again, in either form of its token.
    let raw = format!("Bearer {token}");
    let again = replica.ask("GET", "/ignition", &[("authorization", &raw)], "::ffff:192.0.2.1").await;
    assert_eq!((again.status, &again.body), (200, &answer.body));
    assert_eq!(lab.record("w0").await.used, Some(used));
    until("the timeline", async || lab.status("w0").await["timeline"].is_array()).await;
    let status = lab.status("w0").await;
    assert_eq!(status["provision"]["generation"], 1);
    assert_eq!(status["provision"]["source"], HERE);
    assert_eq!(status["provision"]["fetchedAt"], kiln::hub::timeline::render_time(used.at));
    let entry = &status["timeline"][0];
    assert_eq!((&entry["stage"], &entry["outcome"]), (&json!("IgnitionFetched"), &json!("Reached")));
    assert_eq!(entry["cause"], "192.0.2.1 fetched the config of generation 1");
    assert_eq!(entry["source"], "ignition endpoint");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_source_gets_nothing_and_people_are_told() {
    let lab = Lab::start("node-alarm").await;
    lab.declare_pool(POOL_CONFIG).await;
    lab.declare_host("w0").await;
    let token = lab.issue("w0").await;
    let replica = lab.replica().await;
    assert_eq!(replica.fetch(&token, HERE).await.status, 200);
    for _ in 0..20 {
        let answer = replica.fetch(&token, ELSEWHERE).await;
        assert_eq!((answer.status, answer.text().as_str()), (511, "Token not found\n"));
        assert_eq!(answer.header("x-kiln-reason"), "second-source");
    }
    until("the alarm", async || lab.status("w0").await["provision"]["alarm"].is_string()).await;
    let status = lab.status("w0").await;
    let alarm = status["provision"]["alarm"].as_str().unwrap();
    assert!(
        alarm.starts_with("192.0.2.2 showed the boot token of generation 1, which 192.0.2.1 had used at "),
        "{alarm}"
    );
    let failed: Vec<&Value> =
        status["timeline"].as_array().unwrap().iter().filter(|entry| entry["outcome"] == "Failed").collect();
    assert_eq!(failed.len(), 1, "{status}");
    assert_eq!((&failed[0]["stage"], failed[0]["cause"].as_str()), (&json!("IgnitionFetched"), Some(alarm)));
    // The machine it belongs to is still served.
    assert_eq!(replica.fetch(&token, HERE).await.status, 200);
    // A new token is a new generation, without the old alarm.
    let next = lab.issue("w0").await;
    assert_eq!(replica.fetch_soon(&next, ELSEWHERE).await.status, 200);
    until("the new generation", async || lab.status("w0").await["provision"]["generation"] == 2).await;
    assert_eq!(lab.status("w0").await["provision"]["alarm"], Value::Null);
    replica.until_reason(&token, HERE, "unknown").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_used_up_when_the_short_while_is_over() {
    let lab = Lab::start("node-used").await;
    lab.declare_pool(POOL_CONFIG).await;
    lab.declare_host("w0").await;
    let token = lab.issue("w0").await;
    let record = lab.record("w0").await;
    let long_ago = kiln_core::boot_token::Use { at: Moment(now().0 - RETRY_SECONDS), source: HERE.parse().unwrap() };
    let used = BootRecord { used: Some(long_ago), ..record };
    lab.patch("Secret", "boot-token-w0", json!({"data": kiln::hub::boot_secrets::render_record(&used)})).await;
    let replica = lab.replica().await;
    let answer = replica.fetch(&token, HERE).await;
    assert_eq!((answer.status, answer.header("x-kiln-reason")), (511, "used"));
    lab.api("Secret").delete("boot-token-w0", &DeleteParams::default()).await.unwrap();
    replica.until_reason(&token, HERE, "unknown").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overlay_with_a_config_or_a_path_of_the_pools_is_composed() {
    let lab = Lab::start("node-compose").await;
    lab.declare_pool(POOL_CONFIG).await;
    for (host, files, config) in [
        ("plain", own_files("plain"), None),
        ("over", own_files("over"), Some(r#"{"ignition":{"version":"3.2.0"},"passwd":{"users":[{"name":"core"}]}}"#)),
        ("same", json!([{"path": "/etc/pool", "contents": {"source": "data:,own"}}]), None),
    ] {
        lab.create("Host", json!({"metadata": {"name": host}, "spec": {}})).await;
        lab.create("Secret", overlay(host, "payload-worker-1", &files, config)).await;
    }
    let replica = lab.replica().await;
    let fetch = async |host: &str| {
        let token = lab.issue(host).await;
        let answer = replica.fetch_soon(&token, HERE).await;
        assert_eq!(answer.status, 200, "{host}: {answer:?}");
        (answer.paths().len(), answer.json())
    };
    let (count, plain) = fetch("plain").await;
    assert_eq!((count, &plain["passwd"]), (3, &Value::Null));
    let (count, over) = fetch("over").await;
    assert_eq!((count, &over["passwd"]["users"][0]["name"]), (3, &json!("core")));
    let (count, same) = fetch("same").await;
    assert_eq!((count, &same["storage"]["files"][0]["contents"]["source"]), (1, &json!("data:,own")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_served_as_the_machine_config_server_does_but_to_its_own_only() {
    let lab = Lab::start("node-config").await;
    lab.declare_pool(POOL_CONFIG).await;
    lab.create("Secret", payload("payload-infra-1", "infra", POOL_CONFIG)).await;
    lab.create("Secret", pool_token("token-worker-1", "payload-worker-1", UUID, None, None)).await;
    lab.create("Secret", pool_token("token-infra-1", "payload-infra-1", OTHER, None, None)).await;
    lab.declare_host("w0").await;
    let token = lab.issue("w0").await;
    let replica = lab.replica_within(unlimited()).await;
    let get = async |method: &str, path: &str, token: Option<&str>, asked: &str| {
        let authorization = token.map(bearer);
        let mut headers = vec![("accept", asked)];
        headers.extend(authorization.as_deref().map(|value| ("authorization", value)));
        replica.ask(method, path, &headers, HERE).await
    };
    for (asked, status, version) in [
        ("2.2.0", 200, "2.2.0"),
        ("2.4.0", 200, "2.2.0"),
        ("2.1.0", 400, ""),
        ("1.0.0", 400, ""),
        ("3.0.0", 200, "3.0.0"),
        ("3.1.0", 200, "3.1.0"),
        ("3.2.0", 200, "3.2.0"),
        ("3.3.0", 200, "3.3.0"),
        ("3.4.0", 200, "3.4.0"),
        ("3.5.0", 200, "3.5.0"),
        ("3.6.0", 200, "3.6.0"),
        ("3.9.0", 200, "3.6.0"),
        ("4.0.0", 400, ""),
    ] {
        let answer = get("GET", "/config/worker", Some(UUID), &accept(asked)).await;
        assert_eq!(answer.status, status, "{asked}");
        assert_eq!(answer.header("content-length"), answer.body.len().to_string());
        if status == 200 {
            assert_eq!(answer.header("content-type"), "application/json");
            assert_eq!(answer.json()["ignition"]["version"], version, "{asked}");
            let head = get("HEAD", "/config/worker", Some(UUID), &accept(asked)).await;
            assert_eq!(
                (head.status, head.header("content-length"), head.body.len()),
                (200, answer.header("content-length"), 0)
            );
        }
    }
    for asked in ["", "*/*", "text/plain"] {
        assert_eq!(
            get("GET", "/config/worker", Some(UUID), asked).await.json()["ignition"]["version"],
            "2.2.0",
            "{asked}"
        );
    }
    let new = accept("3.4.0");
    for (method, path, token, status, reason) in [
        ("POST", "/config/worker", Some(UUID), 405, ""),
        ("GET", "/config/worker", None, 401, "unauthorized"),
        ("GET", "/config/worker", Some("nobody"), 511, "unknown"),
        ("GET", "/config/worker", Some(OTHER), 403, "other-pool"),
        ("GET", "/config/infra", Some(&token), 403, "other-pool"),
        ("GET", "/config/nothing", Some(UUID), 403, "other-pool"),
    ] {
        let answer = get(method, path, token, &new).await;
        assert_eq!((answer.status, answer.header("x-kiln-reason")), (status, reason), "{method} {path}");
        assert_eq!((answer.body.len(), answer.header("content-length")), (0, "0"));
    }
    assert_eq!(lab.record("w0").await.used, None, "a refusal uses nothing up");
    let own = get("GET", "/config/worker", Some(&token), &new).await;
    assert_eq!((own.status, own.paths().len()), (200, 3));
    assert!(lab.record("w0").await.used.is_some());
    // In spec 2, too, a host has its own files.
    let old = get("GET", "/config/worker", Some(&token), &accept("2.2.0")).await;
    assert_eq!((old.paths().len(), &old.json()["storage"]["files"][1]["filesystem"]), (3, &json!("root")));
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_slowed_down_and_machines_with_tokens_are_not() {
    let lab = Lab::start("node-rate").await;
    lab.declare_pool(POOL_CONFIG).await;
    lab.create("Secret", pool_token("token-worker-1", "payload-worker-1", UUID, None, None)).await;
    let strangers = Rate { per_second: 1, burst: 5 };
    let replica = lab.replica_within(NodeLimits { strangers, ..NodeLimits::default() }).await;
    let mut statuses = Vec::new();
    for _ in 0..8 {
        statuses.push(replica.fetch("guess", HERE).await.status);
    }
    assert_eq!(statuses[..5], [511; 5]);
    let slow = replica.fetch("guess", HERE).await;
    assert_eq!((slow.status, slow.header("x-kiln-reason"), slow.header("retry-after")), (503, "rate", "1"));
    assert_eq!(replica.fetch("guess", ELSEWHERE).await.status, 511, "sources do not share");
    assert_eq!(replica.fetch(UUID, HERE).await.status, 200, "a good token has its own rate");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_never_serve_two_machines_with_one_token_nor_take_tokens_from_each_other() {
    let lab = Lab::start("node-replicas").await;
    lab.declare_pool(POOL_CONFIG).await;
    let (one, two) = (lab.replica_within(unlimited()).await, lab.replica_within(unlimited()).await);
    for round in 0..20 {
        let host = format!("w{round}");
        lab.declare_host(&host).await;
        let token = lab.issue(&host).await;
        for replica in [&one, &two] {
            until("both to know it", async || {
                replica.ask("HEAD", "/ignition", &[("authorization", &bearer(&token))], HERE).await.status == 200
            })
            .await;
        }
        // Two machines at the same instant, each at another replica: one of them wins.
        let (first, second) = tokio::join!(one.fetch(&token, HERE), two.fetch(&token, ELSEWHERE));
        let mut statuses = [first.status, second.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 511], "round {round}: {first:?} {second:?}");
        let (winner, loser) = if first.status == 200 { (HERE, ELSEWHERE) } else { (ELSEWHERE, HERE) };
        assert_eq!(lab.record(&host).await.used.unwrap().source.to_string(), winner);
        // Afterwards both replicas say the same: the winner may ask again anywhere, the loser nowhere.
        for replica in [&one, &two] {
            assert_eq!(replica.fetch(&token, winner).await.status, 200);
            assert_eq!(replica.fetch(&token, loser).await.header("x-kiln-reason"), "second-source");
        }
    }
    // The same machine at both replicas at once is served by both and used once.
    lab.declare_host("again").await;
    let token = lab.issue("again").await;
    for replica in [&one, &two] {
        until("both to know it", async || {
            replica.ask("HEAD", "/ignition", &[("authorization", &bearer(&token))], HERE).await.status == 200
        })
        .await;
    }
    let (first, second) = tokio::join!(one.fetch(&token, HERE), two.fetch(&token, HERE));
    assert_eq!((first.status, second.status), (200, 200));
    assert_eq!(first.body, second.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_was_taken_back_a_moment_ago_is_not_served_by_who_did_not_hear_of_it() {
    let lab = Lab::start("node-revoked").await;
    lab.declare_pool(POOL_CONFIG).await;
    lab.declare_host("w0").await;
    let token = lab.issue("w0").await;
    let replica = lab.replica().await;
    // Written and fetched in one breath: the watch may be late, the write of the use is not.
    lab.patch("Secret", "boot-token-w0", json!({"data": {"revoked": "MjAyNi0wMS0wMVQwMDowMDowMFo="}})).await;
    let answer = replica.fetch(&token, HERE).await;
    assert_eq!((answer.status, answer.header("x-kiln-reason")), (511, "revoked"));
    assert_eq!(lab.record("w0").await.used, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_serves_at_once_and_tells_what_the_crash_swallowed() {
    let lab = Lab::start("node-restart").await;
    lab.declare_pool(POOL_CONFIG).await;
    lab.declare_host("w0").await;
    let token = lab.issue("w0").await;
    let record = lab.record("w0").await;
    // As a replica leaves it that died between the use and the story.
    let used =
        BootRecord { used: Some(kiln_core::boot_token::Use { at: now(), source: HERE.parse().unwrap() }), ..record };
    lab.patch("Secret", "boot-token-w0", json!({"data": kiln::hub::boot_secrets::render_record(&used)})).await;
    let replica = lab.replica().await;
    assert_eq!(replica.fetch(&token, HERE).await.status, 200, "the first request after readiness");
    until("the story", async || lab.status("w0").await["provision"]["generation"] == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hubs_own_listener_has_the_same_paths_beside_the_api() {
    let lab = Lab::start("node-beside").await;
    lab.declare_pool(POOL_CONFIG).await;
    lab.create("Secret", pool_token("token-worker-1", "payload-worker-1", UUID, None, None)).await;
    let replica = lab.replica().await;
    let router =
        beside(std::sync::Arc::clone(&replica.endpoint), kiln_apiserver::router(std::sync::Arc::clone(&lab.server)));
    let headers = [("authorization", &*bearer(UUID))];
    assert_eq!(ask(&router, "GET", "/ignition", &headers, HERE).await.status, 200);
    assert_eq!(ask(&router, "GET", "/config/worker", &headers, HERE).await.status, 200);
    assert_eq!(ask(&router, "GET", "/readyz", &[], HERE).await.text(), "ok");
    // A machine's token opens nothing of the API.
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets");
    assert_eq!(ask(&router, "GET", &path, &headers, HERE).await.status, 401);
    assert_eq!(ask(&router, "GET", "/ignition/x", &[], HERE).await.status, 401);
}
