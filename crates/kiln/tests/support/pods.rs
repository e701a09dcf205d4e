//! The pods of a cluster, which the embedded API has not: a list and evictions, simulated.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses its part of this")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path as UrlPath, RawQuery};
use axum::http::Response;
use axum::routing::{get, post};
use serde_json::{Value, json};

/// The pods.
#[derive(Default)]
pub struct Pods {
    pub all: BTreeMap<String, Value>,
    /// What a PodDisruptionBudget protects.
    pub guarded: BTreeSet<String>,
}

/// Shared with the test.
pub type SharedPods = Arc<Mutex<Pods>>;

/// The cluster's API with pods.
pub fn with_pods(cluster: Router, pods: &SharedPods) -> Router {
    let (listed, evicted) = (Arc::clone(pods), Arc::clone(pods));
    let list = move |RawQuery(asked): RawQuery| async move {
        let asked = asked.unwrap();
        let node = asked.split("fieldSelector=spec.nodeName%3D").nth(1).unwrap().split('&').next().unwrap().to_owned();
        let pods = listed.lock().unwrap();
        let items: Vec<&Value> = pods.all.values().filter(|pod| pod["spec"]["nodeName"] == node).collect();
        answer(200, &json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items}))
    };
    let evict = move |UrlPath((_, name)): UrlPath<(String, String)>, eviction: Bytes| async move {
        let eviction: Value = serde_json::from_slice(&eviction).unwrap();
        assert_eq!((&eviction["kind"], &eviction["apiVersion"]), (&json!("Eviction"), &json!("policy/v1")));
        let mut pods = evicted.lock().unwrap();
        if pods.guarded.contains(&name) {
            let message = "Cannot evict pod as it would violate the pod's disruption budget.";
            return answer(429, &status(429, message));
        }
        match pods.all.remove(&name) {
            Some(_) => answer(201, &status(201, "")),
            None => answer(404, &status(404, "no such pod")),
        }
    };
    Router::new()
        .route("/api/v1/pods", get(list))
        .route("/api/v1/namespaces/{namespace}/pods/{name}/eviction", post(evict))
        .fallback_service(cluster)
}

fn status(code: u16, message: &str) -> Value {
    let word = if code < 300 { "Success" } else { "Failure" };
    json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": word, "message": message, "reason": "Test", "code": code})
}

fn answer(code: u16, body: &Value) -> Response<Body> {
    Response::builder().status(code).header("content-type", "application/json").body(body.to_string().into()).unwrap()
}
