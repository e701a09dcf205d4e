//! A plain HTTPS client with one kept-alive connection, so that tests see exactly what the server sends.

#![allow(dead_code, reason = "each test program uses its part")]

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use kiln_apiserver::tls::{Authority, Credentials};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Whatever ended the connection.
pub type Lost = Box<dyn Error + Send + Sync>;

/// How to recognise the server, and who asks.
pub fn client_config(authority: &Authority, credentials: Option<&Credentials>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    Arc::new(match credentials {
        None => builder.with_no_client_auth(),
        Some(Credentials { certificate, key }) => builder
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap(),
    })
}

/// One connection.
pub struct Connection(SendRequest<Full<Bytes>>);

impl Connection {
    /// Connects and greets.
    pub async fn open(address: SocketAddr, config: Arc<ClientConfig>) -> Result<Connection, Lost> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let stream = TlsConnector::from(config).connect(ServerName::try_from("localhost")?, stream).await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            // Whoever waits for an answer hears of it.
            let _ = connection.await;
        });
        Ok(Connection(sender))
    }

    /// Asks; gives the status and the body as it comes.
    pub async fn ask(
        &mut self,
        method: &str,
        path: &str,
        media: &str,
        body: impl Into<Bytes>,
    ) -> Result<(u16, Incoming), Lost> {
        let request = hyper::Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("content-type", media)
            .header("user-agent", "test")
            .body(Full::new(body.into()))?;
        self.0.ready().await?;
        let answer = self.0.send_request(request).await?;
        Ok((answer.status().as_u16(), answer.into_body()))
    }

    /// Asks; gives the status and the whole answer.
    pub async fn call(&mut self, method: &str, path: &str, media: &str, body: &Value) -> Result<(u16, Value), Lost> {
        let sent = if body.is_null() { String::new() } else { body.to_string() };
        let (status, answer) = self.ask(method, path, media, sent).await?;
        let bytes = answer.collect().await?.to_bytes();
        Ok((status, serde_json::from_slice(&bytes)?))
    }

    /// Gets.
    pub async fn get(&mut self, path: &str) -> Result<(u16, Value), Lost> {
        self.call("GET", path, "application/json", &Value::Null).await
    }
}

/// A stream of lines, whatever frames they come in.
pub struct Lines {
    body: Incoming,
    buffer: Vec<u8>,
}

impl Lines {
    /// The lines of a body.
    pub fn of(body: Incoming) -> Lines {
        Lines { body, buffer: Vec::new() }
    }

    /// The next line that came whole; nothing at the end.
    pub async fn next(&mut self) -> Result<Option<Value>, Lost> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => {
                    if let Some(data) = frame?.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
            }
        }
    }
}

/// Numbers that look random and are the same for the same seed.
#[derive(Clone)]
pub struct Dice(pub u64);

impl Dice {
    /// A number below `sides`.
    pub fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }
}
