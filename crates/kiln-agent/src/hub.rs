//! The hub as a node sees it: `/agent/v1/network` and `/agent/v1/machine` over HTTPS, with the node's own token.
//!
//! Every request has a connection of its own: what is asked is whether the network works now, not whether an old connection
//! still does. Answers are bounded. The token is sent to the hub the authority vouches for and to nobody else; it is in no
//! message of an error and in no log.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, HOST, IF_NONE_MATCH};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use kiln_core::assignment::{Assignment, NodeState, Report};
use kiln_core::machine::{MachineAssignment, MachineReport};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The longest answer that is read: a document of a few thousand interfaces.
const LONGEST_ANSWER: usize = 8 << 20;
/// The longest config that is read.
const LONGEST_CONFIG: usize = 16 << 20;
/// How long the hub may take to answer, beyond what it was told to wait.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a config may take.
const PATIENCE_CONFIG: Duration = Duration::from_secs(60);

/// The hub, and who asks.
#[derive(Clone)]
pub struct Hub {
    address: Uri,
    authorization: Arc<str>,
    tls: TlsConnector,
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Why the hub could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// What is given on the node is not usable.
    #[error("{0}")]
    Setup(String),
    /// The way there: connecting, TLS, the connection ending.
    #[error("cannot reach the hub: {0}")]
    Unreachable(String),
    /// It answered with something else than was asked for.
    #[error("the hub answered {status}: {reason}")]
    Refused {
        /// Status code.
        status: StatusCode,
        /// The beginning of its text.
        reason: String,
    },
    /// It did not answer in time.
    #[error("the hub did not answer within {} s", .0.as_secs())]
    Silent(Duration),
}

/// What the hub said when it was asked for an assignment.
#[derive(Debug)]
pub enum News<T> {
    /// This one, known as the text.
    Assignment(Box<T>, String),
    /// Still the one that is known.
    Unchanged,
    /// The hub asks nothing of this node.
    Nothing,
}

impl Hub {
    /// The hub at `address` (`https://HOST:PORT`), whose certificate the authorities in `authority` vouch for.
    pub fn new(address: &str, authority: &Path, token: &str) -> Result<Hub, HubError> {
        let setup = |text: String| HubError::Setup(text);
        let address: Uri = address.parse().map_err(|error| setup(format!("`{address}` is no address: {error}")))?;
        if address.scheme_str() != Some("https") || address.host().is_none() {
            return Err(setup(format!("`{address}` must be https://HOST:PORT: a token goes nowhere without TLS")));
        }
        let unreadable =
            |error: String| setup(format!("cannot read certificates from `{}`: {error}", authority.display()));
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(authority).map_err(|error| unreadable(error.to_string()))? {
            let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
            roots.add(certificate).map_err(|error| unreadable(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(unreadable("it has none".into()));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| setup(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let authorization = format!("Bearer {}", token.trim());
        if authorization.bytes().any(|byte| !(0x20..0x7f).contains(&byte)) || token.trim().is_empty() {
            return Err(setup("the token is empty or has characters no token has".into()));
        }
        Ok(Hub { address, authorization: authorization.into(), tls: TlsConnector::from(Arc::new(config)) })
    }

    /// Asks for the assignment; waits up to `wait` while it is still the one known as `known`.
    pub async fn assignment(&self, known: Option<&str>, wait: Duration) -> Result<News<Assignment>, HubError> {
        self.poll("/agent/v1/network", known, wait).await
    }

    /// The same for files and units. An older hub asks nothing.
    pub async fn machine_assignment(
        &self,
        known: Option<&str>,
        wait: Duration,
    ) -> Result<News<MachineAssignment>, HubError> {
        self.poll("/agent/v1/machine", known, wait).await
    }

    /// The config of a revision; none when another one is wanted by now. It may hold secrets.
    pub async fn machine_config(&self, revision: &str) -> Result<Option<Bytes>, HubError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
        if revision.is_empty() || !revision.bytes().all(plain) {
            return Err(HubError::Setup("the hub names a revision with characters no revision has".into()));
        }
        let request = self.request(Method::GET, &format!("/agent/v1/machine/config?revision={revision}"));
        let answer = self.send_for(request, Bytes::new(), PATIENCE_CONFIG, LONGEST_CONFIG).await?;
        match answer.status {
            StatusCode::OK => Ok(Some(answer.body)),
            StatusCode::NOT_FOUND | StatusCode::CONFLICT => Ok(None),
            _ => Err(answer.refusal()),
        }
    }

    /// Says how far the node is with files and units.
    pub async fn report_machine(&self, report: &MachineReport) -> Result<(), HubError> {
        self.post("/agent/v1/machine/report", report).await
    }

    async fn poll<T: DeserializeOwned>(
        &self,
        path: &str,
        known: Option<&str>,
        wait: Duration,
    ) -> Result<News<T>, HubError> {
        let mut request = self.request(Method::GET, &format!("{path}?wait={}", wait.as_secs()));
        if let Some(known) = known {
            request = request.header(IF_NONE_MATCH, known);
        }
        let answer = self.send(request, Bytes::new(), wait + PATIENCE).await?;
        match answer.status {
            StatusCode::OK => {
                let assignment = serde_json::from_slice(&answer.body).map_err(|error| HubError::Refused {
                    status: answer.status,
                    reason: format!("an assignment this version does not understand: {error}"),
                })?;
                Ok(News::Assignment(Box::new(assignment), answer.tag))
            }
            StatusCode::NOT_MODIFIED => Ok(News::Unchanged),
            StatusCode::NOT_FOUND | StatusCode::NO_CONTENT => Ok(News::Nothing),
            _ => Err(answer.refusal()),
        }
    }

    /// Says how far the node is.
    pub async fn report(&self, report: &Report) -> Result<(), HubError> {
        self.post("/agent/v1/network/report", report).await
    }

    /// Publishes the node's network.
    pub async fn publish(&self, state: &NodeState) -> Result<(), HubError> {
        self.post("/agent/v1/network/state", state).await
    }

    /// Whether the hub sees this node, on a new connection. The probe of a change.
    pub async fn sees_node(&self) -> Result<(), HubError> {
        let request = self.request(Method::GET, "/agent/v1/network/seen");
        let answer = self.send(request, Bytes::new(), PATIENCE).await?;
        if answer.status.is_success() { Ok(()) } else { Err(answer.refusal()) }
    }

    /// Whether the hub reaches a port of this node that its assignment names.
    pub async fn reaches_node(&self, port: u16) -> Result<(), HubError> {
        let request = self.request(Method::GET, &format!("/agent/v1/network/seen?port={port}"));
        let answer = self.send(request, Bytes::new(), PATIENCE).await?;
        if answer.status.is_success() { Ok(()) } else { Err(answer.refusal()) }
    }

    async fn post(&self, path: &str, body: &impl serde::Serialize) -> Result<(), HubError> {
        let body = serde_json::to_vec(body).map_err(|error| HubError::Setup(error.to_string()))?;
        let request = self.request(Method::POST, path).header(CONTENT_TYPE, "application/json");
        let answer = self.send(request, body.into(), PATIENCE).await?;
        if answer.status.is_success() { Ok(()) } else { Err(answer.refusal()) }
    }

    fn request(&self, method: Method, path: &str) -> hyper::http::request::Builder {
        let authority = self.address.authority().map(|it| it.as_str().to_owned()).unwrap_or_default();
        Request::builder().method(method).uri(path).header(HOST, authority).header(AUTHORIZATION, &*self.authorization)
    }

    async fn send(
        &self,
        request: hyper::http::request::Builder,
        body: Bytes,
        patience: Duration,
    ) -> Result<Answer, HubError> {
        self.send_for(request, body, patience, LONGEST_ANSWER).await
    }

    async fn send_for(
        &self,
        request: hyper::http::request::Builder,
        body: Bytes,
        patience: Duration,
        longest: usize,
    ) -> Result<Answer, HubError> {
        let request = request.body(Full::new(body)).map_err(|error| HubError::Setup(error.to_string()))?;
        match tokio::time::timeout(patience, self.exchange(request, longest)).await {
            Ok(answer) => answer,
            Err(_) => Err(HubError::Silent(patience)),
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>, longest: usize) -> Result<Answer, HubError> {
        fn unreachable(error: impl fmt::Display) -> HubError {
            HubError::Unreachable(error.to_string())
        }
        let host = self.address.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = self.address.port_u16().unwrap_or(443);
        let stream = TcpStream::connect((host, port)).await.map_err(unreachable)?;
        let name = ServerName::try_from(host.to_owned()).map_err(unreachable)?;
        let stream = self.tls.connect(name, stream).await.map_err(unreachable)?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(unreachable)?;
        // The sender ends with the exchange, and the connection with the sender.
        let exchange = async move {
            let answer = sender.send_request(request).await.map_err(unreachable)?;
            let (head, body) = answer.into_parts();
            let tag = head.headers.get(ETAG).and_then(|tag| tag.to_str().ok()).unwrap_or_default().to_owned();
            let body = Limited::new(body, longest).collect().await.map_err(unreachable)?.to_bytes();
            Ok(Answer { status: head.status, tag, body })
        };
        let (answer, _ended) = futures::future::join(exchange, connection).await;
        answer
    }
}

struct Answer {
    status: StatusCode,
    tag: String,
    body: Bytes,
}

impl Answer {
    fn refusal(&self) -> HubError {
        const SHOWN: usize = 300;
        let text = String::from_utf8_lossy(&self.body);
        let reason: String = text.chars().filter(|letter| !letter.is_control()).take(SHOWN).collect();
        HubError::Refused { status: self.status, reason }
    }
}
