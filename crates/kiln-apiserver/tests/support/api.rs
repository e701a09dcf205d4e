//! The API over its router, as the tests use it: no socket, a folder of its own, an administrator and a viewer.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use http_body_util::BodyExt;
use kiln_apiserver::identity::{ADMINISTRATORS, Identity, Tokens, VIEWERS};
use kiln_apiserver::{Limits, Server, router};
use serde_json::{Value, json};
use tower::ServiceExt;

pub struct Api {
    router: Router,
    pub server: Arc<Server>,
    folder: std::path::PathBuf,
}

impl Drop for Api {
    fn drop(&mut self) {
        self.server.stop();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Api {
    pub async fn start(name: &str) -> Api {
        Api::start_with(name, Limits::default()).await
    }

    pub async fn start_with(name: &str, limits: Limits) -> Api {
        let folder = std::env::temp_dir().join(format!("kiln-http-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut tokens = Tokens::default();
        tokens.insert("admin", Identity::member("admin", ADMINISTRATORS));
        tokens.insert("viewer", Identity::member("viewer", VIEWERS));
        let server = Server::open(&folder, tokens, limits).await.unwrap();
        tokio::spawn(Arc::clone(&server).run_janitor());
        Api { router: router(Arc::clone(&server)), server, folder }
    }

    pub async fn send(&self, request: Request<Body>) -> Response<Body> {
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub async fn call_as(&self, token: &str, method: &str, path: &str, kind: &str, body: String) -> (u16, Value) {
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let request = request.header("authorization", format!("Bearer {token}")).body(Body::from(body)).unwrap();
        let response = self.send(request).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    pub async fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.call_as("admin", method, path, kind, body).await
    }

    /// Server-side apply as this manager.
    pub async fn apply(&self, path: &str, manager: &str, body: &Value) -> (u16, Value) {
        let path = format!("{path}?fieldManager={manager}");
        self.call_as("admin", "PATCH", &path, "application/apply-patch+yaml", body.to_string()).await
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        self.call("GET", path, Value::Null).await
    }

    pub async fn table(&self, path: &str) -> Value {
        let request = Request::get(path).header("authorization", "Bearer admin");
        let request = request.header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io").body(Body::empty());
        let bytes = self.send(request.unwrap()).await.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&bytes).unwrap()
    }

    /// Opens a watch; each call of the result gives the next event.
    pub async fn watch(&self, path: &str) -> Watch {
        let request = Request::get(path).header("authorization", "Bearer admin").body(Body::empty()).unwrap();
        let response = self.send(request).await;
        assert_eq!(response.status(), 200, "{path}");
        Watch { body: response.into_body(), text: String::new() }
    }

    pub async fn define_widgets(&self) {
        let (code, answer) = self.call("POST", DEFINITIONS, definition()).await;
        assert_eq!(code, 201, "{answer}");
    }

    pub async fn until_gone(&self, path: &str) {
        for _ in 0..200 {
            if self.get(path).await.0 == 404 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{path} is still there: {}", self.get(path).await.1);
    }
}

pub struct Watch {
    body: Body,
    text: String,
}

impl Watch {
    /// `ADDED w1 17`, or nothing when the stream has ended.
    pub async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((line, rest)) = self.text.split_once('\n') {
                let event: Value = serde_json::from_str(line).unwrap();
                self.text = rest.to_owned();
                return Some((event["type"].as_str().unwrap().to_owned(), event["object"].clone()));
            }
            let frame = tokio::time::timeout(Duration::from_secs(10), self.body.frame()).await.unwrap()?;
            self.text.push_str(std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap());
        }
    }

    pub async fn brief(&mut self) -> String {
        match self.next().await {
            None => "end".into(),
            Some((kind, object)) => format!("{kind} {}", object["metadata"]["name"].as_str().unwrap_or("-")),
        }
    }
}

pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub const WIDGETS: &str = "/apis/example.org/v1/namespaces/default/widgets";
pub const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.org"},
        "spec": {"group": "example.org", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                 "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                 "selectableFields": [{"jsonPath": ".spec.color"}],
                 "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": {
                    "spec": {"type": "object", "required": ["size"], "properties": {
                        "size": {"type": "integer", "minimum": 0}, "color": {"type": "string"},
                        "mode": {"type": "string", "enum": ["fast", "slow"], "default": "slow"}}},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}},
                {"name": "v1beta1", "served": true, "storage": false,
                 "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
            ]},
    })
}

pub fn widget(name: &str, size: i64) -> Value {
    json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": size}})
}

pub fn config_map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": "b"}})
}
