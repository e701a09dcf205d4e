//! The rules of `kiln check` while more is written than they keep up with.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use futures::StreamExt;
use kiln::hub::admission::Rules;
use kiln::hub::controllers;
use kiln::hub::definitions::{self, Policy};
use kiln_apiserver::admission::Admission;
use kiln_apiserver::identity::{ADMINISTRATORS, Identity};
use kiln_apiserver::{Limits, Server, Tokens, router};
use kiln_testimage::temp_dir::TempDir;
use serde_json::{Value, json};
use tower::ServiceExt;

const HOSTS: &str = "/apis/kiln.dev/v1alpha1/namespaces/default/hosts";

/// Status, warnings and body of the answer to a create.
async fn create(api: &Router, path: &str, object: &Value) -> (StatusCode, Vec<String>, String) {
    let mut request = Request::post(path).header("Content-Type", "application/json");
    request.extensions_mut().unwrap().insert(Identity::member("somebody", ADMINISTRATORS));
    let answer = api.clone().oneshot(request.body(Body::from(object.to_string())).unwrap()).await.unwrap();
    let warnings = answer.headers().get_all("warning").iter().map(|value| value.to_str().unwrap().to_owned()).collect();
    let (status, body) = (answer.status(), to_bytes(answer.into_body(), 1 << 20).await.unwrap());
    (status, warnings, String::from_utf8_lossy(&body).into_owned())
}

fn host(name: &str, mac: &str) -> Value {
    json!({"apiVersion": "kiln.dev/v1alpha1", "kind": "Host", "metadata": {"name": name, "namespace": "default"},
        "spec": {"macAddress": mac, "bmc": {"address": "redfish+https://192.0.2.1/redfish/v1/Systems/1", "credentialsName": "missing"}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_is_taken_with_a_word_about_it_and_what_is_refused_stays_refused() {
    let folder = TempDir::new("admission-flood");
    let server = Server::open(folder.path(), Tokens::default(), Limits::default()).await.unwrap();
    let api = router(Arc::clone(&server));
    definitions::install(&controllers::in_process(api.clone(), "system:test"), Policy::Own).await.unwrap();
    server.judge_with(Arc::new(Rules::default()) as Arc<dyn Admission>);

    let (status, warnings, _) = create(&api, HOSTS, &host("first", "52:54:00:00:00:01")).await;
    assert_eq!(status, StatusCode::CREATED);
    assert!(warnings.iter().any(|warning| warning.contains("KLN")), "{warnings:?}");

    let path = "/api/v1/namespaces/default/configmaps";
    let maps = (0..2000)
        .map(|number| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("map-{number}")}}));
    let told: Vec<bool> = futures::stream::iter(maps)
        .map(|map| {
            let api = &api;
            async move {
                let (status, warnings, body) = create(api, path, &map).await;
                assert_eq!(status, StatusCode::CREATED, "{body}");
                warnings.iter().any(|warning| warning.contains("more is written at once"))
            }
        })
        .buffered(16)
        .collect()
        .await;
    assert!(told[..400].iter().all(|told| !told), "a folder is judged");
    assert!(told.iter().any(|told| *told), "a flood is not");

    let (status, warnings, _) = create(&api, HOSTS, &host("second", "52:54:00:00:00:01")).await;
    assert_eq!(status, StatusCode::CREATED);
    assert!(matches!(&warnings[..], [only] if only.contains("in its conditions")), "{warnings:?}");
    let third = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": "third"},
        "spec": {"online": true, "bmc": {"address": "carrier-pigeon://192.0.2.1", "credentialsName": "missing"}}});
    let (status, _, body) = create(&api, "/apis/metal3.io/v1alpha1/namespaces/default/baremetalhosts", &third).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{body}");
    assert!(body.contains("KLN0321") && body.contains("spec.bmc.address"), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_refused_for_a_slip_in_what_kiln_adds_and_warned_about_a_quarrel() {
    let folder = TempDir::new("admission-policies");
    let server = Server::open(folder.path(), Tokens::default(), Limits::default()).await.unwrap();
    let api = router(Arc::clone(&server));
    definitions::install(&controllers::in_process(api.clone(), "system:test"), Policy::Own).await.unwrap();
    server.judge_with(Arc::new(Rules::default()) as Arc<dyn Admission>);
    let path = "/apis/nmstate.io/v1/nodenetworkconfigurationpolicies";
    let policy = |name: &str, mtu: u32, kiln: Value| {
        json!({"apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy", "metadata": {"name": name},
            "spec": {"kiln": kiln, "desiredState": {"interfaces": [{"name": "eth1", "type": "ethernet", "state": "up", "mtu": mtu}]}}})
    };
    // The schema lets any text be a time; the reader knows better.
    let (status, _, body) = create(&api, path, &policy("slip", 9000, json!({"soak": "5"}))).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{body}");
    assert!(body.contains("KLN0609") && body.contains("spec.kiln.soak"), "{body}");
    let (status, _, body) = create(&api, path, &policy("word", 9000, json!({"drift": "Ignore"}))).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{body}");
    let (status, _, body) = create(&api, path, &policy("jumbo", 9000, json!({"soak": "5s"}))).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    let (status, warnings, body) = create(&api, path, &policy("plain", 1500, Value::Null)).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    let quarrel =
        |warning: &String| warning.contains("KLN0600") && warning.contains("jumbo") && warning.contains("plain");
    assert!(warnings.iter().any(quarrel), "{warnings:?}");
    let (_, warnings, _) = create(&api, path, &policy("urgent", 1400, json!({"priority": 5}))).await;
    assert!(!warnings.iter().any(|warning| warning.contains("urgent") && warning.contains("KLN0600")), "{warnings:?}");
}
