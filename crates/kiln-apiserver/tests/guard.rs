//! Everything around the verbs: rights, tokens, the audit log, limits, health and figures; and clients that are slow,
//! greedy or broken, over real sockets.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::field_reassign_with_default,
    reason = "a test fails loudly and says what it skips"
)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use http_body_util::BodyExt;
use kiln_apiserver::audit::{AuditLimits, AuditLog};
use kiln_apiserver::health::Weight;
use kiln_apiserver::identity::{ADMINISTRATORS, Identity, Tokens, VIEWERS};
use kiln_apiserver::policy::{Policy, Reach, Role, Rule, Users, Wanted};
use kiln_apiserver::rate_limit::Rate;
use kiln_apiserver::secrecy::{Secrecy, Unlock};
use kiln_apiserver::tls::{self, Authority};
use kiln_apiserver::{Limits, Server, Settings, router};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower::ServiceExt;

const OWN: Rule = Rule {
    verbs: &["get", "list", "watch"],
    groups: &[""],
    resources: &["configmaps"],
    except: &[],
    reach: Reach::Own,
    requires: &[],
};
/// Whoever is called after a ConfigMap may read it and tell events about it.
const OWNERS: Role = Role {
    group: "owners",
    users: Users::Owners { prefix: "owner:" },
    rules: &[
        OWN,
        Rule {
            verbs: &["create"],
            resources: &["events"],
            reach: Reach::OwnNamespace,
            requires: &[("/involvedObject/name", Wanted::OwnName)],
            ..OWN
        },
    ],
    paths: &[],
};

struct Api {
    router: Router,
    server: Arc<Server>,
    folder: PathBuf,
}

impl Drop for Api {
    fn drop(&mut self) {
        self.server.stop();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Api {
    async fn start(name: &str, limits: Limits) -> Api {
        let folder = std::env::temp_dir().join(format!("kiln-guard-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Api::open(folder, limits).await
    }

    async fn open(folder: PathBuf, limits: Limits) -> Api {
        let mut tokens = Tokens::default();
        tokens.insert("admin", Identity::member("admin", ADMINISTRATORS));
        tokens.insert("viewer", Identity::member("viewer", VIEWERS));
        tokens.insert("owner", Identity::member("owner:default:mine", "owners"));
        let audit = AuditLog::open(&folder.join("audit.log"), AuditLimits::default()).unwrap();
        let unlock = Unlock::KeyFile { path: folder.join("encryption.key"), make: true };
        let settings = Settings {
            tokens,
            limits,
            policy: Policy::with(&[OWNERS]),
            secrecy: Some(Secrecy { collections: vec!["secrets".into()], unlock, previous: None }),
            audit: Some(audit),
            yaml: None,
        };
        let server = Server::open_with(&folder, settings).await.unwrap();
        Api { router: router(Arc::clone(&server)), server, folder }
    }

    async fn send(&self, token: &str, method: &str, path: &str, body: &str) -> Response<Body> {
        let kind = match method {
            "PATCH" if path.contains("fieldManager=") => "application/apply-patch+yaml",
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let request = request.header("authorization", format!("Bearer {token}")).body(Body::from(body.to_owned()));
        self.router.clone().oneshot(request.unwrap()).await.unwrap()
    }

    async fn call(&self, token: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let response = self.send(token, method, path, &body).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let text = || Value::from(String::from_utf8_lossy(&bytes).into_owned());
        (code, serde_json::from_slice(&bytes).unwrap_or_else(|_| text()))
    }

    /// The lines of the audit log after those of the start, each as `user verb resource namespace/name code`.
    fn audit(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.join("audit.log")).unwrap();
        let mut lines: Vec<String> = text
            .lines()
            .map(|line| {
                let line: Value = serde_json::from_str(line).unwrap();
                let part = |key: &str| line[key].as_str().unwrap_or("-").to_owned();
                let (namespace, name) = (part("namespace"), part("name"));
                let dry = if line["dryRun"] == true { " dry" } else { "" };
                let below = line["subresource"].as_str().map(|name| format!("/{name}")).unwrap_or_default();
                format!(
                    "{} {} {}{below} {namespace}/{name} {}{dry}",
                    part("user"),
                    part("verb"),
                    part("resource"),
                    line["code"]
                )
            })
            .collect();
        let rest = lines.split_off(2);
        let first = ["default", "kube-system"].map(|name| format!("system:apiserver create namespaces -/{name} 201"));
        assert_eq!(lines, first);
        rest
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn an_owner_reaches_its_own_object_and_nothing_else() {
    let api = Api::start("owner", Limits::default()).await;
    for name in ["mine", "yours"] {
        assert_eq!(api.call("admin", "POST", MAPS, json!({"metadata": {"name": name}})).await.0, 201);
    }
    let event = |name: &str| {
        json!({"metadata": {"generateName": "e-"}, "reason": "Seen", "type": "Normal",
            "involvedObject": {"kind": "ConfigMap", "namespace": "default", "name": name}})
    };
    let events = "/api/v1/namespaces/default/events";
    for (method, path, body, expected) in [
        ("GET", format!("{MAPS}/mine"), json!(null), 200),
        ("GET", format!("{MAPS}/yours"), json!(null), 403),
        ("GET", MAPS.into(), json!(null), 403),
        ("GET", format!("{MAPS}?fieldSelector=metadata.name%3Dmine"), json!(null), 200),
        ("GET", format!("{MAPS}?fieldSelector=metadata.name%3Dyours"), json!(null), 403),
        ("GET", format!("{MAPS}?fieldSelector=metadata.name!%3Dmine"), json!(null), 403),
        ("GET", format!("{MAPS}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dmine"), json!(null), 200),
        ("GET", format!("{MAPS}?watch=1&timeoutSeconds=1"), json!(null), 403),
        ("GET", "/api/v1/configmaps?fieldSelector=metadata.name%3Dmine".into(), json!(null), 403),
        ("PUT", format!("{MAPS}/mine"), json!({"metadata": {"name": "mine"}}), 403),
        ("DELETE", format!("{MAPS}?fieldSelector=metadata.name%3Dmine"), json!(null), 403),
        ("POST", events.into(), event("mine"), 201),
        ("POST", events.into(), event("yours"), 403),
        ("POST", "/api/v1/namespaces/kube-system/events".into(), event("mine"), 403),
        ("GET", "/apis".into(), json!(null), 200),
        ("GET", "/metrics".into(), json!(null), 403),
    ] {
        let (code, answer) = api.call("owner", method, &path, body).await;
        assert_eq!(code, expected, "{method} {path}: {answer}");
    }
    let (_, refused) = api.call("owner", "POST", events, event("yours")).await;
    assert_eq!(
        refused["message"],
        "events is forbidden: User \"owner:default:mine\" cannot create resource \"events\" in API group \"\" in the \
         namespace \"default\" unless /involvedObject/name is \"mine\""
    );
    // The listed page holds its own object only, and a review says the same as the request.
    let (_, list) = api.call("owner", "GET", &format!("{MAPS}?fieldSelector=metadata.name%3Dmine"), json!(null)).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let ask = |name: &str| json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "configmaps", "namespace": "default", "name": name}}});
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for (name, expected) in [("mine", true), ("yours", false)] {
        let (_, review) = api.call("owner", "POST", reviews, ask(name)).await;
        assert_eq!(review["status"]["allowed"], expected, "{name}");
    }
}

#[tokio::test]
async fn tokens_are_issued_survive_a_restart_expire_and_are_revoked() {
    let api = Api::start("tokens", Limits::default()).await;
    let admin = Identity::member("root", ADMINISTRATORS);
    let kept = api.server.issue_token(admin.clone(), None).await.unwrap();
    let brief = api.server.issue_token(admin.clone(), Some(time::Duration::seconds(-1))).await.unwrap();
    let revoked = api.server.issue_token(admin, Some(time::Duration::hours(1))).await.unwrap();
    let code = async |api: &Api, token: &str| api.call(token, "GET", "/api/v1/secrets", json!(null)).await.0;
    assert_eq!(code(&api, &kept.text).await, 200);
    assert_eq!(code(&api, &brief.text).await, 401, "it has expired");
    assert_eq!(code(&api, &revoked.text).await, 200);
    assert!(api.server.revoke_token(&revoked.record.id).await.unwrap());
    assert!(!api.server.revoke_token("nothing").await.unwrap());
    assert_eq!(code(&api, &revoked.text).await, 401);
    assert_eq!(code(&api, "kiln_made-up").await, 401);
    api.server.close().await;
    let again = Api::open(api.folder.clone(), Limits::default()).await;
    assert_eq!(code(&again, &kept.text).await, 200);
    assert_eq!(code(&again, &revoked.text).await, 401);
    let ids: Vec<String> = again.server.tokens().into_iter().map(|record| record.id).collect();
    assert!(ids.contains(&kept.record.id) && !ids.contains(&revoked.record.id));
    again.server.close().await;
}

#[tokio::test]
async fn every_write_and_every_denial_is_one_line_without_what_was_written() {
    let api = Api::start("audit", Limits::default()).await;
    let secret = json!({"metadata": {"name": "bmc"}, "stringData": {"password": "hunter2"}});
    api.call("admin", "POST", "/api/v1/namespaces/default/secrets", secret).await;
    api.call("admin", "POST", &format!("{MAPS}?dryRun=All"), json!({"metadata": {"generateName": "gen-"}})).await;
    api.call("admin", "POST", MAPS, json!({"metadata": {"name": "a"}})).await;
    api.call("admin", "POST", MAPS, json!({"metadata": {"name": "a"}})).await;
    api.call("admin", "GET", MAPS, json!(null)).await;
    api.call("admin", "PUT", &format!("{MAPS}/a"), json!({"metadata": {"name": "a"}, "data": {"x": "y"}})).await;
    api.call("admin", "DELETE", &format!("{MAPS}/a"), json!(null)).await;
    api.call("viewer", "GET", "/api/v1/namespaces/default/secrets/bmc", json!(null)).await;
    api.call("stranger", "GET", MAPS, json!(null)).await;
    let answer = api.send("viewer", "GET", "/api/v1/secrets", "").await;
    let lines = api.audit();
    let generated = lines[1].split(['/', ' ']).nth(4).unwrap().to_owned();
    assert!(generated.starts_with("gen-"), "{lines:?}");
    assert_eq!(
        lines,
        [
            "admin create secrets default/bmc 201".into(),
            format!("admin create configmaps default/{generated} 201 dry"),
            "admin create configmaps default/a 201".into(),
            "admin create configmaps default/- 409".into(),
            "admin update configmaps default/a 200".into(),
            "admin delete configmaps default/a 200".into(),
            "viewer get secrets default/bmc 403".into(),
            "- list configmaps default/- 401".into(),
            "viewer list secrets -/- 403".into(),
        ]
    );
    let text = std::fs::read_to_string(api.folder.join("audit.log")).unwrap();
    for word in ["hunter2", "aHVudGVyMg", "Bearer", "stranger"] {
        assert!(!text.contains(word), "{word} is in the audit log");
    }
    let id = answer.headers()["audit-id"].to_str().unwrap();
    assert!(text.lines().last().unwrap().contains(id), "the client's id finds the line");
}

#[tokio::test]
async fn every_way_to_write_has_its_line() {
    let api = Api::start("audit-verbs", Limits::default()).await;
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema,
        "subresources": {"status": {}, "scale": scale}});
    let definition = json!({"metadata": {"name": "sets.example.org"}, "spec": {"group": "example.org", "scope": "Namespaced",
        "names": {"plural": "sets", "kind": "Set"}, "versions": [version]}});
    api.call("admin", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
    let sets = "/apis/example.org/v1/namespaces/default/sets";
    let set =
        json!({"apiVersion": "example.org/v1", "kind": "Set", "metadata": {"name": "s"}, "spec": {"replicas": 1}});
    for (method, path, body) in [
        ("PATCH", format!("{sets}/s?fieldManager=m"), set.clone()),
        ("PATCH", format!("{sets}/s?fieldManager=m&dryRun=All"), set),
        ("PATCH", format!("{sets}/s"), json!({"spec": {"replicas": 2}})),
        ("PATCH", format!("{sets}/s/status"), json!({"status": {"replicas": 2}})),
        ("PATCH", format!("{sets}/s/scale"), json!({"spec": {"replicas": 3}})),
        ("PATCH", format!("{sets}/nothing"), json!({})),
        ("DELETE", format!("{sets}?labelSelector=a%3Db"), json!(null)),
        ("DELETE", sets.into(), json!(null)),
    ] {
        api.call("admin", method, &path, body).await;
    }
    assert_eq!(
        api.audit(),
        [
            "admin create customresourcedefinitions -/sets.example.org 201",
            "admin patch sets default/s 201",
            "admin patch sets default/s 200 dry",
            "admin patch sets default/s 200",
            "admin patch sets/status default/s 200",
            "admin patch sets/scale default/s 200",
            "admin patch sets default/nothing 404",
            "admin deletecollection sets default/- 200",
            "admin deletecollection sets default/- 200",
        ]
    );
}

#[tokio::test]
async fn what_garbage_collection_does_is_told_under_a_name_of_its_own() {
    let api = Api::start("audit-janitor", Limits::default()).await;
    tokio::spawn(Arc::clone(&api.server).run_janitor());
    let (_, owner) = api.call("admin", "POST", MAPS, json!({"metadata": {"name": "owner"}})).await;
    let (_, other) = api.call("admin", "POST", MAPS, json!({"metadata": {"name": "other"}})).await;
    let reference = |object: &Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": object["metadata"]["name"], "uid": object["metadata"]["uid"]});
    let child = |name: &str, owners: Value| json!({"metadata": {"name": name, "ownerReferences": owners}});
    api.call("admin", "POST", MAPS, child("child", json!([reference(&owner)]))).await;
    api.call("admin", "POST", MAPS, child("shared", json!([reference(&owner), reference(&other)]))).await;
    api.call("admin", "POST", "/api/v1/namespaces", json!({"metadata": {"name": "lab"}})).await;
    api.call("admin", "POST", "/api/v1/namespaces/lab/configmaps", json!({"metadata": {"name": "inside"}})).await;
    let asked = api.audit().len();
    api.call("admin", "DELETE", &format!("{MAPS}/owner"), json!(null)).await;
    api.call("admin", "DELETE", "/api/v1/namespaces/lab", json!(null)).await;
    let expected = [
        "admin delete configmaps default/owner 200",
        "admin delete namespaces -/lab 200",
        "system:kiln:garbage-collection delete configmaps default/child 200",
        "system:kiln:garbage-collection delete configmaps lab/inside 200",
        "system:kiln:garbage-collection update configmaps default/shared 200",
        "system:kiln:garbage-collection update namespaces -/lab 200",
    ];
    for _ in 0..200 {
        if api.audit().len() >= asked + expected.len() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let mut told = api.audit().split_off(asked);
    told.sort();
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_is_told_of_all_the_same() {
    let api = Api::start("left", Limits::default()).await;
    let request = Request::post(MAPS).header("authorization", "Bearer admin").body(Body::new(Never)).unwrap();
    let answered = tokio::time::timeout(Duration::from_millis(200), api.router.clone().oneshot(request)).await;
    assert!(answered.is_err(), "the body never comes");
    assert_eq!(api.audit(), ["admin create configmaps default/- 499"]);
}

/// A body that never comes.
struct Never;

impl axum::body::HttpBody for Never {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, Self::Error>>> {
        std::task::Poll::Pending
    }
}

#[tokio::test]
async fn requests_and_watches_beyond_the_limits_get_429_and_a_time() {
    let mut limits = Limits::default();
    limits.guard.identity_rate = Rate { per_second: 1, burst: 5 };
    limits.guard.stranger_rate = Rate { per_second: 1, burst: 3 };
    limits.guard.identity_watches = 2;
    limits.watches = 4;
    let api = Api::start("limits", limits).await;
    let codes = async |token: &str, path: &str, count: usize| {
        let mut codes = Vec::new();
        for _ in 0..count {
            codes.push(api.call(token, "GET", path, json!(null)).await.0);
        }
        codes
    };
    assert_eq!(codes("viewer", MAPS, 7).await, [200, 200, 200, 200, 200, 429, 429]);
    assert_eq!(codes("made-up", MAPS, 5).await, [401, 401, 401, 429, 429]);
    assert!(codes("admin", MAPS, 50).await.iter().all(|code| *code == 200), "administrators have no rate");
    assert!(codes("made-up", "/healthz", 50).await.iter().all(|code| *code == 200), "health is for everybody");
    let refused = api.send("viewer", "GET", MAPS, "").await;
    let (wait, reason) = (refused.headers()["retry-after"].clone(), refused.into_body().collect().await.unwrap());
    assert_eq!(wait, "1");
    let reason: Value = serde_json::from_slice(&reason.to_bytes()).unwrap();
    assert_eq!((&reason["reason"], &reason["details"]["retryAfterSeconds"]), (&json!("TooManyRequests"), &json!(1)));
    let watch = format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Dmine");
    let mut open = Vec::new();
    for (token, expected) in
        [("owner", 200), ("owner", 200), ("owner", 429), ("admin", 200), ("admin", 200), ("admin", 429)]
    {
        let response = api.send(token, "GET", &watch, "").await;
        assert_eq!(response.status(), expected, "{token} with {} watches open", open.len());
        if expected == 200 {
            open.push(response);
        }
    }
    drop(open);
    for _ in 0..100 {
        if api.send("admin", "GET", &watch, "").await.status() == 200 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("watches that were closed are still counted");
}

#[tokio::test]
async fn health_has_names_and_metrics_need_an_identity() {
    let api = Api::start("health", Limits::default()).await;
    let get = async |token: &str, path: &str| api.call(token, "GET", path, json!(null)).await;
    for path in ["/healthz", "/livez", "/readyz", "/readyz/store"] {
        assert_eq!(get("nobody", path).await, (200, "ok".into()), "{path}");
    }
    api.server.add_check("ignition", Weight::Informs, || Err("the payloads are not loaded yet".into()));
    assert_eq!(get("nobody", "/readyz?verbose").await.0, 200, "a part that is not ready keeps nobody from the rest");
    let failed = "[-]ignition failed: reason withheld\nreadyz check failed\n";
    assert_eq!(get("nobody", "/readyz/ignition").await, (500, failed.into()));
    api.server.add_check("controllers", Weight::Decides, || Err("they have not started".into()));
    assert_eq!(
        get("nobody", "/readyz?verbose").await,
        (500, "[+]ping ok\n[+]store ok\n[+]not-stopping ok\n[-]controllers failed: reason withheld\nreadyz check failed\n".into())
    );
    assert_eq!(get("nobody", "/livez").await.0, 200, "not being ready is no reason to be restarted");
    assert_eq!(get("nobody", "/metrics").await.0, 401);
    assert_eq!(get("owner", "/metrics").await.0, 403);
    api.call("admin", "POST", MAPS, json!({"metadata": {"name": "a"}})).await;
    api.call("admin", "GET", "/apis/made.up/v1/whatevers", json!(null)).await;
    let (code, text) = get("viewer", "/metrics").await;
    assert_eq!(code, 200);
    for expected in [
        "kiln_requests_total{verb=\"create\",resource=\"configmaps\",code=\"201\"} 1\n",
        "kiln_requests_total{verb=\"list\",resource=\"other\",code=\"404\"} 1\n",
        "kiln_requests_total{verb=\"get\",resource=\"other\",code=\"401\"} 1\n",
        "kiln_request_seconds_count{verb=\"create\",resource=\"configmaps\"} 1\n",
        "kiln_objects{collection=\"configmaps\"} 1\n",
        "kiln_store_revision 4\n",
        "kiln_commit_writes_count 3\n",
        "kiln_audit_failures_total 0\n",
    ] {
        assert!(text.as_str().unwrap().contains(expected), "{expected} is not in\n{}", text.as_str().unwrap());
    }
}

#[tokio::test]
async fn impersonation_is_refused_instead_of_ignored() {
    let api = Api::start("impersonation", Limits::default()).await;
    let request = Request::get(MAPS).header("authorization", "Bearer admin").header("impersonate-user", "viewer");
    let response = api.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 403);
}

#[tokio::test]
async fn broken_bodies_are_answered_with_what_is_wrong() {
    let api = Api::start("bodies", Limits::default()).await;
    let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep = format!("{{\"metadata\":{{\"name\":\"a\"}},\"data\":{nested}}}");
    let large = format!("{{\"data\":{{\"a\":\"{}\"}}}}", "x".repeat(4 << 20));
    for (body, expected, word) in [
        ("{\"metadata\":", 400, "EOF while parsing"),
        ("{\"metadata\":{\"name\":\"a\"}} trailing", 400, "trailing characters"),
        ("\u{0}", 400, "expected value"),
        (deep.as_str(), 400, "recursion limit exceeded"),
        (large.as_str(), 413, "Request entity too large: limit is 3145728"),
        ("[]", 400, ""),
        ("null", 400, ""),
        ("17", 400, ""),
        ("{\"metadata\":[]}", 400, ""),
        ("{\"metadata\":{\"name\":7}}", 400, "json: cannot unmarshal number into field metadata.name of type string"),
        ("{\"metadata\":{\"name\":\"a\",\"resourceVersion\":7}}", 400, "metadata.resourceVersion of type string"),
        // A schema says where the mistake is, which a real server does for kinds of others only.
        ("{\"metadata\":{\"name\":\"a\"},\"data\":[]}", 422, "data: Invalid value"),
        (
            "{\"metadata\":{\"name\":\"a\",\"labels\":{\"b\":1}}}",
            400,
            "json: cannot unmarshal number into field metadata.labels[b] of type string",
        ),
        ("{\"metadata\":{\"name\":\"a\",\"annotations\":[]}}", 400, "metadata.annotations of type map[string]string"),
        ("{\"kind\":7,\"metadata\":{\"name\":\"a\"}}", 400, ""),
    ] {
        let response = api.send("admin", "POST", MAPS, body).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let status: Value = serde_json::from_slice(&bytes).unwrap();
        let begin: String = body.chars().take(50).collect();
        assert_eq!(code, expected, "{begin}: {status}");
        assert_eq!(status["kind"], "Status", "{begin}");
        assert!(status["message"].as_str().unwrap().contains(word), "{begin}: {status}");
    }
    assert_eq!(api.call("admin", "GET", MAPS, json!(null)).await.1["items"], json!([]), "nothing of it was stored");
}

/// A server on a socket.
struct Served {
    api: Api,
    address: SocketAddr,
    authority: Authority,
}

impl Served {
    async fn start(name: &str, limits: Limits) -> Served {
        let api = Api::start(name, limits).await;
        let authority = Authority::open(&api.folder).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let config = authority.server_config(&["localhost".into()]).unwrap();
        tokio::spawn(tls::serve_bounded(Arc::clone(&api.server), listener, api.router.clone(), config));
        Served { api, address, authority }
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        self.connect_with(&[]).await
    }

    /// How often somebody was turned away for a reason; a connection is counted a moment after it ended.
    async fn turned_away(&self, reason: &str) -> u64 {
        let name = format!("kiln_turned_away_total{{reason=\"{reason}\"}} ");
        for _ in 0..40 {
            let (_, text) = self.api.call("admin", "GET", "/metrics", json!(null)).await;
            let count = text.as_str().unwrap().lines().find_map(|line| line.strip_prefix(&name)).unwrap();
            if count != "0" {
                return count.parse().unwrap();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        0
    }

    async fn connect_with(&self, protocols: &[&[u8]]) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.certificate().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
    }

    /// The status line of the answer to a GET.
    async fn get(&self, path: &str) -> String {
        let mut stream = self.connect().await;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        read_all(&mut stream).await.lines().next().unwrap_or_default().to_owned()
    }
}

async fn read_all(stream: &mut TlsStream<TcpStream>) -> String {
    let mut bytes = Vec::new();
    // A connection that ends without a goodbye has said what it had to say.
    let _ = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut bytes)).await.expect("no end");
    String::from_utf8_lossy(&bytes).into_owned()
}

fn brief_limits() -> Limits {
    let mut limits = Limits::default();
    limits.connections.handshake = Duration::from_millis(300);
    limits.connections.headers = Duration::from_millis(300);
    limits.connections.unread = Duration::from_millis(500);
    limits.guard.body_time = Duration::from_millis(300);
    limits
}

#[tokio::test]
async fn an_oversized_body_is_answered_while_it_is_still_being_sent() {
    let served = Served::start("oversized", Limits::default()).await;
    for announced in [true, false] {
        let mut stream = served.connect().await;
        let length = if announced { "Content-Length: 8388608" } else { "Transfer-Encoding: chunked" };
        let head = format!(
            "POST {MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin\r\n{length}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let piece = vec![b' '; 1 << 20];
        for _ in 0..8 {
            if !announced {
                stream.write_all(b"100000\r\n").await.unwrap();
            }
            stream.write_all(&piece).await.unwrap();
            if !announced {
                stream.write_all(b"\r\n").await.unwrap();
            }
        }
        if !announced {
            stream.write_all(b"0\r\n\r\n").await.unwrap();
        }
        let answer = read_all(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "announced: {announced}: {answer}");
        assert!(answer.contains("RequestEntityTooLarge"));
    }
}

#[tokio::test]
async fn slow_clients_are_given_up_in_every_phase() {
    let served = Served::start("slow", brief_limits()).await;
    let begun = Instant::now();
    // Never shakes hands.
    let mut silent = TcpStream::connect(served.address).await.unwrap();
    assert_eq!(silent.read(&mut [0; 1]).await.unwrap_or(0), 0);
    // Headers drop by drop.
    let mut headers = served.connect().await;
    headers.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    let dripping = async {
        while headers.write_all(b"X: y\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), dripping).await.expect("it may drip for ever");
    // Asks once, then says nothing.
    let mut idle = served.connect().await;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    assert!(read_all(&mut idle).await.starts_with("HTTP/1.1 200"));
    // A body that never ends.
    let mut body = served.connect().await;
    let head =
        format!("POST {MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin\r\nContent-Length: 100\r\n\r\n{{");
    body.write_all(head.as_bytes()).await.unwrap();
    assert!(read_all(&mut body).await.starts_with("HTTP/1.1 408 "));
    // No HTTP at all.
    let mut noise = served.connect().await;
    noise.write_all(b"\x16\x03\x01 what is this\r\n\r\n").await.unwrap();
    assert!(read_all(&mut noise).await.starts_with("HTTP/1.1 400 "));
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert_eq!(served.get(MAPS).await, "HTTP/1.1 200 OK");
    for reason in ["handshake", "headers", "idle", "slow", "malformed"] {
        assert_eq!(served.turned_away(reason).await, 1, "{reason}");
    }
}

#[tokio::test]
async fn an_idle_http2_connection_is_closed() {
    let mut limits = brief_limits();
    limits.connections.idle = Duration::from_millis(300);
    let served = Served::start("idle", limits).await;
    let mut stream = served.connect_with(&[b"h2"]).await;
    // The greeting of HTTP/2 and empty settings; then nothing.
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let begun = Instant::now();
    read_all(&mut stream).await;
    assert!((200..10_000).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
    assert_eq!(served.turned_away("idle").await, 1);
}

#[tokio::test]
async fn a_client_that_never_reads_its_answer_is_given_up() {
    let served = Served::start("unread", brief_limits()).await;
    let data: serde_json::Map<String, Value> =
        (0..20).map(|index| (format!("k{index}"), Value::from("x".repeat(100_000)))).collect();
    for index in 0..8 {
        let map = json!({"metadata": {"name": format!("large-{index}")}, "data": data});
        assert_eq!(served.api.call("admin", "POST", MAPS, map).await.0, 201);
    }
    let mut deaf = served.connect().await;
    let request = format!("GET {MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin\r\n\r\n");
    deaf.write_all(request.as_bytes()).await.unwrap();
    let held = async || {
        let (_, text) = served.api.call("admin", "GET", "/metrics", json!(null)).await;
        text.as_str().unwrap().lines().find(|line| line.starts_with("kiln_connections ")).unwrap().to_owned()
    };
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        if held().await == "kiln_connections 0" {
            assert_eq!(served.turned_away("unread").await, 1);
            return;
        }
    }
    panic!("the connection is still held: {}", held().await);
}

#[tokio::test]
async fn crowds_of_connections_are_bounded_and_others_are_still_answered() {
    let mut limits = brief_limits();
    limits.connections.handshake = Duration::from_secs(30);
    limits.connections.total = 50;
    limits.connections.per_source = 40;
    let served = Served::start("crowd", limits).await;
    let mut crowd = Vec::new();
    for _ in 0..39 {
        crowd.push(TcpStream::connect(served.address).await.unwrap());
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(served.get("/healthz").await, "HTTP/1.1 200 OK");
    for _ in 0..3 {
        crowd.push(TcpStream::connect(served.address).await.unwrap());
    }
    let mut refused = TcpStream::connect(served.address).await.unwrap();
    assert_eq!(refused.read(&mut [0; 1]).await.unwrap_or(0), 0, "the source has its fill");
    drop(crowd);
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let (_, text) = served.api.call("admin", "GET", "/metrics", json!(null)).await;
        if text.as_str().unwrap().contains("\nkiln_connections 0\n") {
            assert!(!text.as_str().unwrap().contains("kiln_turned_away_total{reason=\"connections\"} 0\n"));
            assert_eq!(served.get("/healthz").await, "HTTP/1.1 200 OK");
            return;
        }
    }
    panic!("connections that were closed are still counted");
}

#[tokio::test]
async fn administrators_grant_and_revoke_access_and_nobody_else_does() {
    let api = Api::start("access", Limits::default()).await;
    let wish = json!({"user": "anna", "groups": ["kiln:viewers"], "lifetimeSeconds": 60});
    let (code, granted) = api.call("admin", "POST", "/tokens", wish.clone()).await;
    assert_eq!((code, &granted["user"], &granted["groups"]), (201, &json!("anna"), &json!(["kiln:viewers"])));
    let (token, id) = (granted["token"].as_str().unwrap(), granted["id"].as_str().unwrap());
    for (method, path, expected) in [
        ("GET", MAPS, 200),
        ("GET", "/api/v1/secrets", 403),
        ("POST", MAPS, 403),
        ("GET", "/tokens", 403),
        ("POST", "/tokens", 403),
        ("DELETE", &format!("/tokens/{id}"), 403),
    ] {
        let body = if method == "POST" { wish.clone() } else { json!(null) };
        assert_eq!(api.call(token, method, path, body).await.0, expected, "{method} {path}");
    }
    let (_, listed) = api.call("admin", "GET", "/tokens", json!(null)).await;
    assert_eq!(listed["items"][0]["id"], id);
    assert!(!listed.to_string().contains(token), "its text is told once");
    assert_eq!(api.call("admin", "DELETE", &format!("/tokens/{id}"), json!(null)).await.0, 200);
    assert_eq!(api.call("admin", "DELETE", &format!("/tokens/{id}"), json!(null)).await.0, 404);
    assert_eq!(api.call(token, "GET", MAPS, json!(null)).await.0, 401);
    for (wrong, said) in [
        (json!({"user": "", "groups": ["a"]}), "user: a name of 1 to 253 bytes without spaces is wanted"),
        (json!({"user": "a b", "groups": ["a"]}), "user: a name"),
        (json!({"user": "a", "groups": []}), "groups: 1 to 16 names"),
        (json!({"user": "a", "groups": ["a"], "lifetimeSeconds": 0}), "lifetimeSeconds: 1 to 315360000"),
        (json!({"user": "a", "groups": ["a"], "forEver": true}), "unknown field `forEver`"),
    ] {
        let (code, refused) = api.call("admin", "POST", "/tokens", wrong.clone()).await;
        assert_eq!(code, 400, "{wrong}");
        assert!(refused["message"].as_str().unwrap().contains(said), "{wrong}: {refused}");
    }
    let lines = api.audit();
    assert!(lines.iter().any(|line| line.starts_with("admin post") && line.ends_with("201")), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("admin delete") && line.ends_with("200")), "{lines:?}");
}
