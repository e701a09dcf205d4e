//! The file kubectl reads: where the server is, how to recognise it and how to be recognised.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// For whoever shows a certificate.
pub fn render(url: &str, authority: &str, certificate: &str, key: &str) -> String {
    let [certificate, key] = [certificate, key].map(|pem| STANDARD.encode(pem));
    let credentials = format!("    client-certificate-data: {certificate}\n    client-key-data: {key}");
    render_with(url, authority, "kiln-admin", &credentials)
}

/// For whoever shows a token. `user` is a plain name: it stands in YAML in quotes.
pub fn render_with_token(url: &str, authority: &str, user: &str, token: &str) -> String {
    let user = serde_json::Value::from(user).to_string();
    render_with(url, authority, &user, &format!("    token: {token}"))
}

/// One cluster and one user, everything inside.
fn render_with(url: &str, authority: &str, user: &str, credentials: &str) -> String {
    let authority = STANDARD.encode(authority);
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: kiln
  cluster:
    server: {url}
    certificate-authority-data: {authority}
users:
- name: {user}
  user:
{credentials}
contexts:
- name: kiln
  context:
    cluster: kiln
    user: {user}
    namespace: default
current-context: kiln
"
    )
}
