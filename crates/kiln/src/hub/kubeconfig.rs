//! The file kubectl reads: where the server is, how to recognise it and how to be recognised.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// A kubeconfig with one cluster and one user, everything inside.
pub fn render(url: &str, authority: &str, certificate: &str, key: &str) -> String {
    let [authority, certificate, key] = [authority, certificate, key].map(|pem| STANDARD.encode(pem));
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: kiln
  cluster:
    server: {url}
    certificate-authority-data: {authority}
users:
- name: kiln-admin
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: kiln
  context:
    cluster: kiln
    user: kiln-admin
    namespace: default
current-context: kiln
"
    )
}
