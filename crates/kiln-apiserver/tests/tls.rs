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
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kiln_apiserver::identity::ADMINISTRATORS;
use kiln_apiserver::tls::{self, Authority, Credentials, Renewal};
use kiln_apiserver::{Limits, Server, Tokens, router};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

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

/// A connection, or nothing when it was refused.
async fn connect(
    address: SocketAddr,
    authority: &Authority,
    credentials: Option<&Credentials>,
) -> Option<TlsStream<TcpStream>> {
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
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()
}

/// The status line of the answer to a GET, or nothing when the connection was refused.
async fn get(
    address: SocketAddr,
    authority: &Authority,
    credentials: Option<&Credentials>,
    path: &str,
) -> Option<String> {
    let mut stream = connect(address, authority, credentials).await?;
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

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const BODY: &[u8] = br#"{"metadata":{"name":"slow"}}"#;

/// A server whose listener waits so long for the last requests, with a request whose body has come in half.
async fn with_half_a_request(
    folder: &Folder,
    last_requests: Duration,
) -> (Arc<Server>, SocketAddr, tokio::task::JoinHandle<()>, TlsStream<TcpStream>) {
    let mut limits = Limits::default();
    limits.connections.last_requests = last_requests;
    let server = Server::open(&folder.0, Tokens::default(), limits).await.unwrap();
    let authority = Authority::open(&folder.0).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let config = authority.server_config(&["localhost".into()]).unwrap();
    let serving = tokio::spawn(tls::serve_bounded(Arc::clone(&server), listener, router(Arc::clone(&server)), config));
    let admin = authority.issue_client("admin", ADMINISTRATORS).unwrap();
    let mut stream = connect(address, &authority, Some(&admin)).await.unwrap();
    let length = BODY.len();
    let head = format!(
        "POST {MAPS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // Said when the body is asked for: the request has begun.
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).await.unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(&BODY[..10]).await.unwrap();
    (server, address, serving, stream)
}

#[tokio::test]
async fn a_request_that_has_begun_is_answered_after_the_server_was_asked_to_stop() {
    let folder = Folder::new("last-request");
    let (server, address, serving, mut stream) = with_half_a_request(&folder, Duration::from_secs(30)).await;
    server.stop();
    // Nobody else comes in.
    for _ in 0..200 {
        if TcpStream::connect(address).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(TcpStream::connect(address).await.is_err(), "it still listens");
    assert!(!serving.is_finished(), "it did not wait for the request");
    stream.write_all(&BODY[10..]).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.starts_with("HTTP/1.1 201 Created\r\n"), "{answer}");
    tokio::time::timeout(Duration::from_secs(10), serving).await.unwrap().unwrap();
    assert_eq!(server.snapshot().count("configmaps"), 1);
    server.close().await;
}

#[tokio::test]
async fn a_request_that_does_not_end_in_time_is_cut_off() {
    let folder = Folder::new("cut-off");
    let last_requests = Duration::from_millis(500);
    let (server, _, serving, mut stream) = with_half_a_request(&folder, last_requests).await;
    server.stop();
    let begun = Instant::now();
    tokio::time::timeout(Duration::from_secs(10), serving).await.unwrap().unwrap();
    assert!(begun.elapsed() >= last_requests, "it waited only {:?}", begun.elapsed());
    // The server still runs: what ends is the connection.
    let mut answer = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut answer)).await;
    assert!(ended.is_ok(), "the connection is still open");
    assert_eq!((String::from_utf8_lossy(&answer).as_ref(), server.snapshot().count("configmaps")), ("", 0));
    server.close().await;
}

#[tokio::test]
async fn the_certificate_of_a_server_that_runs_for_long_never_ends() {
    let folder = Folder::new("renewal");
    let server = Server::open(&folder.0, Tokens::default(), Limits::default()).await.unwrap();
    let authority = Authority::open(&folder.0).unwrap();
    let serve = async |validity: time::Duration, renewals: Option<Arc<AtomicUsize>>| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let own = Authority::open(&folder.0).unwrap();
        let renewal = Renewal::begin(own, vec!["localhost".into()], validity).unwrap();
        let config = renewal.server_config().unwrap();
        tokio::spawn(tls::serve(listener, router(Arc::clone(&server)), config, server.stopping()));
        if let Some(count) = renewals {
            tokio::spawn(renewal.run(move |_| {
                count.fetch_add(1, Ordering::Relaxed);
            }));
        }
        address
    };
    let count = Arc::new(AtomicUsize::new(0));
    let validity = time::Duration::seconds(3);
    let (renewed, left_alone) = (serve(validity, Some(Arc::clone(&count))).await, serve(validity, None).await);
    let ask = async |address| get(address, &authority, None, "/healthz").await;
    assert_eq!(ask(renewed).await.as_deref(), Some("HTTP/1.1 200 OK"));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(ask(left_alone).await, None, "a certificate that nobody renews has ended by now");
    assert_eq!(ask(renewed).await.as_deref(), Some("HTTP/1.1 200 OK"));
    assert!((2..=6).contains(&count.load(Ordering::Relaxed)), "{count:?}");
    server.close().await;
}
