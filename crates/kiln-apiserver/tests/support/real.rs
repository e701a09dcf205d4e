//! A real API server to compare with.
//!
//! Named by `KILN_ORACLE_APISERVER=https://…` with `KILN_ORACLE_CERT` and `KILN_ORACLE_KEY`, the files of an administrator's client
//! certificate; an apiextensions-apiserver is enough.

use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::Value;

/// A real API server.
pub struct Real(kube::Client);

impl Real {
    /// The one that is named; if none is, says so in one line. The test set-up has none: building one
    /// takes longer than all tests together.
    pub fn find(test: &str) -> Option<Real> {
        let Ok(address) = std::env::var("KILN_ORACLE_APISERVER") else {
            println!("skipped: {test}: KILN_ORACLE_APISERVER names no real API server (docs/oracles.md)");
            return None;
        };
        let mut config = kube::Config::new(address.parse().unwrap());
        config.accept_invalid_certs = true;
        config.auth_info.client_certificate = std::env::var("KILN_ORACLE_CERT").ok();
        config.auth_info.client_key = std::env::var("KILN_ORACLE_KEY").ok();
        Some(Real(kube::Client::try_from(config).unwrap()))
    }

    /// Applies a definition and waits until its objects are served.
    pub async fn define(&self, definition: &Value, path: &str) {
        self.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "application/json", definition)
            .await;
        for _ in 0..100 {
            if self.call("GET", path, "application/json", &Value::Null).await.0 == 200 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{path} is not served");
    }

    pub async fn call(&self, method: &str, path: &str, media: &str, body: &Value) -> (u16, Value) {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = axum::http::Request::builder().method(method).uri(path).header("content-type", media);
        let request = request.header("accept", "application/json").body(kube::client::Body::from(bytes)).unwrap();
        let response = self.0.send(request).await.unwrap();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }
}
