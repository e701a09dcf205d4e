//! A GET that is answered with a status below 400, over a new connection each time. `https` trusts what the machine trusts.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::Uri;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::target::{connect, resolve};

/// Where distributions keep the authorities they trust.
const AUTHORITIES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"];

/// A request that can be sent again.
pub struct Request {
    uri: Uri,
    host: String,
    addresses: Vec<SocketAddr>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Request {
    /// None for a URL that is none, or a host nobody knows.
    pub async fn prepare(url: &str) -> Option<Request> {
        let uri: Uri = url.parse().ok()?;
        let host = uri.host()?.trim_matches(['[', ']']).to_owned();
        let (secure, usual) = match uri.scheme_str()? {
            "http" => (false, 80),
            "https" => (true, 443),
            _ => return None,
        };
        let at = match host.contains(':') {
            true => format!("[{host}]:{}", uri.port_u16().unwrap_or(usual)),
            false => format!("{host}:{}", uri.port_u16().unwrap_or(usual)),
        };
        let tls = match secure {
            true => Some((connector()?, ServerName::try_from(host.clone()).ok()?)),
            false => None,
        };
        let host = uri.authority()?.as_str().rsplit('@').next()?.to_owned();
        Some(Request { uri, host, addresses: resolve(&at).await?, tls })
    }

    /// Sends it.
    pub async fn answered(&self) -> bool {
        let Some(stream) = connect(&self.addresses).await else { return false };
        match &self.tls {
            None => self.send(stream).await,
            Some((connector, name)) => match connector.connect(name.clone(), stream).await {
                Ok(stream) => self.send(stream).await,
                Err(_) => false,
            },
        }
    }

    async fn send<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static>(&self, stream: S) -> bool {
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let request = hyper::Request::get(path).header("host", &self.host).header("user-agent", "kiln-agent");
        let Ok(request) = request.body(Empty::<Bytes>::new()) else { return false };
        let Ok((mut sender, connection)) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await else {
            return false;
        };
        // The body is not read: the connection ends with this function. A server may answer and close in one breath, so the end
        // of the connection is no answer; without one the request itself fails.
        let driving = async {
            let _ = connection.await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            response = sender.send_request(request) => response.is_ok_and(|response| response.status().as_u16() < 400),
            () = driving => false,
        }
    }
}

fn connector() -> Option<TlsConnector> {
    let mut roots = RootCertStore::empty();
    let bundle = AUTHORITIES.into_iter().find(|path| Path::new(path).exists())?;
    for certificate in CertificateDer::pem_file_iter(bundle).ok()?.flatten() {
        // One that rustls does not like is one less to trust.
        let _ = roots.add(certificate);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
    Some(TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_status_below_400_passes() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/healthz?x=1", listener.local_addr().unwrap());
        let request = Request::prepare(&url).await.unwrap();
        for (status, expected) in [("200 OK", true), ("302 Found", true), ("404 Not Found", false), ("nonsense", false)]
        {
            let serve = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut seen = vec![0; 1024];
                let length = stream.read(&mut seen).await.unwrap();
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
                String::from_utf8_lossy(&seen[..length]).into_owned()
            };
            let (passed, seen) = futures::future::join(request.answered(), serve).await;
            assert_eq!(passed, expected, "{status}");
            assert!(seen.starts_with("GET /healthz?x=1 HTTP/1.1\r\nhost: 127.0.0.1:"), "{seen}");
        }
        for url in ["ftp://127.0.0.1/", "nonsense", "http://"] {
            assert!(Request::prepare(url).await.is_none(), "{url}");
        }
    }
}
