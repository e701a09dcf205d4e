//! The listener: who is recognised by the handshake, and how it ends.

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
use std::time::Duration;

use kiln_apiserver::identity::ADMINISTRATORS;
use kiln_apiserver::tls::{self, Authority, Credentials};
use kiln_apiserver::{Limits, Server, Tokens, router};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("kiln-tls-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The status line of the answer to a GET, or nothing when the connection was refused.
async fn get(
    address: SocketAddr,
    authority: &Authority,
    credentials: Option<&Credentials>,
    path: &str,
) -> Option<String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    let config = match credentials {
        None => builder.with_no_client_auth(),
        Some(Credentials { certificate, key }) => builder
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap(),
    };
    let stream = TcpStream::connect(address).await.ok()?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok()?;
    Some(String::from_utf8_lossy(&answer).lines().next()?.to_owned())
}

#[tokio::test]
async fn only_certificates_of_our_own_are_recognised_and_the_listener_ends_when_asked() {
    let (folder, other_folder) = (Folder::new("own"), Folder::new("other"));
    let server = Server::open(&folder.0, Tokens::default(), Limits::default()).await.unwrap();
    let authority = Authority::open(&folder.0).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let config = authority.server_config(&["localhost".into()]).unwrap();
    let serving = tokio::spawn(tls::serve(listener, router(Arc::clone(&server)), config, server.stopping()));
    let ours = authority.issue_client("admin", ADMINISTRATORS).unwrap();
    let nobody = authority.issue_client("somebody", "some-group").unwrap();
    let forged = Authority::open(&other_folder.0).unwrap().issue_client("admin", ADMINISTRATORS).unwrap();
    let namespaces = "/api/v1/namespaces";
    for (credentials, path, expected) in [
        (None, "/healthz", Some("HTTP/1.1 200 OK")),
        (None, namespaces, Some("HTTP/1.1 401 Unauthorized")),
        (Some(&ours), namespaces, Some("HTTP/1.1 200 OK")),
        (Some(&nobody), namespaces, Some("HTTP/1.1 403 Forbidden")),
        (Some(&forged), namespaces, None),
    ] {
        assert_eq!(get(address, &authority, credentials, path).await.as_deref(), expected, "{path}");
    }
    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!String::from_utf8_lossy(&answer).contains("200"), "plain HTTP is not answered");
    server.stop();
    tokio::time::timeout(Duration::from_secs(10), serving).await.unwrap().unwrap();
    server.close().await;
}
