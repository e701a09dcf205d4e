//! The listener for machines: HTTPS with a certificate that is followed while it serves.
//!
//! The certificate is one of the hub's own authority, made anew long before it ends, or comes from two files that
//! somebody else renews (cert-manager, certbot): they are looked at every few seconds, and a pair that does not fit is
//! told and not taken.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Router;
use kiln_apiserver::metrics::Metrics;
use kiln_apiserver::tls::{self, Authority, ConnectionLimits, Credentials, ServedCertificate, TlsError};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(5);
/// How often a certificate of one's own is made anew; it is valid for a year.
const RENEW: Duration = Duration::from_secs(30 * 24 * 3600);

/// Where machines are listened to, and what they are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeListen {
    /// Address and port.
    pub address: SocketAddr,
    /// A certificate chain and its key in PEM; without, the hub's own authority signs one.
    pub files: Option<CertificateFiles>,
}

/// Two PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain, the server's first.
    pub certificate: PathBuf,
    /// The key of the first. Secret.
    pub key: PathBuf,
}

/// Why machines cannot be listened to.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Address {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A file cannot be read.
    #[error("cannot read `{}`", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The certificate cannot be used.
    #[error("the certificate for machines cannot be used")]
    Tls(#[from] TlsError),
    /// Nobody to sign and no file.
    #[error("there is no certificate for machines: give --tls-certificate FILE and --tls-key FILE")]
    NoCertificate,
}

/// A listener that is bound and has its certificate.
#[derive(Debug)]
pub struct NodeListener {
    listener: TcpListener,
    certificate: Arc<ServedCertificate>,
    renewal: Renewal,
    /// Where it listens.
    pub address: SocketAddr,
}

#[derive(Debug)]
enum Renewal {
    Files(CertificateFiles, Seen),
    Own(Box<Authority>, Vec<String>),
}

/// When the files were last written.
type Seen = [Option<SystemTime>; 2];

impl NodeListener {
    /// Binds and reads or makes the certificate. `own` signs when there are no files, for the names it gets the address for.
    pub async fn bind(
        listen: &NodeListen,
        own: Option<(Authority, impl FnOnce(SocketAddr) -> Vec<String>)>,
    ) -> Result<NodeListener, ListenError> {
        let failed = |source| ListenError::Address { address: listen.address, source };
        let listener = TcpListener::bind(listen.address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (certificate, renewal) = match (&listen.files, own) {
            (Some(files), _) => {
                let seen = look(files);
                let (chain, key) = read(files)?;
                (ServedCertificate::parse(&chain, &key)?, Renewal::Files(files.clone(), seen))
            }
            (None, Some((authority, names))) => {
                let names = names(address);
                let Credentials { certificate, key } = authority.issue_server(&names)?;
                let served = ServedCertificate::parse(certificate.as_bytes(), key.as_bytes())?;
                (served, Renewal::Own(Box::new(authority), names))
            }
            (None, None) => return Err(ListenError::NoCertificate),
        };
        Ok(NodeListener { listener, certificate, renewal, address })
    }

    /// Serves until `stopping`, and keeps the certificate fresh.
    pub async fn serve(
        self,
        router: Router,
        limits: ConnectionLimits,
        metrics: Arc<Metrics>,
        stopping: watch::Receiver<bool>,
    ) {
        let NodeListener { listener, certificate, renewal, address: _ } = self;
        let config = match certificate.server_config() {
            Ok(config) => config,
            Err(error) => return tracing::error!(%error, "TLS for machines was not set up"),
        };
        tokio::select! {
            () = tls::serve_within(limits, metrics, listener, router, config, stopping) => {}
            () = follow(&certificate, renewal, LOOK) => {}
        }
    }
}

/// What the listener for machines takes on: many that come at once and stay for a moment.
pub fn connection_limits(last_requests: Duration) -> ConnectionLimits {
    ConnectionLimits {
        headers: Duration::from_secs(10),
        unread: Duration::from_secs(30),
        header_bytes: 16 << 10,
        last_requests,
        ..ConnectionLimits::default()
    }
}

/// Never ends.
async fn follow(certificate: &ServedCertificate, renewal: Renewal, look_every: Duration) {
    match renewal {
        Renewal::Own(authority, names) => loop {
            tokio::time::sleep(RENEW).await;
            let renewed = authority
                .issue_server(&names)
                .and_then(|fresh| certificate.replace(fresh.certificate.as_bytes(), fresh.key.as_bytes()));
            match renewed {
                Ok(()) => tracing::info!("the certificate for machines was made anew"),
                Err(error) => tracing::error!(%error, "the certificate for machines was not made anew"),
            }
        },
        Renewal::Files(files, mut seen) => loop {
            tokio::time::sleep(look_every).await;
            let now = look(&files);
            if now == seen {
                continue;
            }
            seen = now;
            let replaced = read(&files).and_then(|(chain, key)| Ok(certificate.replace(&chain, &key)?));
            match replaced {
                Ok(()) => {
                    tracing::info!(file = %files.certificate.display(), "the certificate for machines was read anew")
                }
                // One file was replaced and the other not yet: the next look sees both.
                Err(error) => {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::warn!(%error, cause, "the certificate for machines stays as it was");
                }
            }
        },
    }
}

fn look(files: &CertificateFiles) -> Seen {
    let written = |path: &Path| std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    [written(&files.certificate), written(&files.key)]
}

fn read(files: &CertificateFiles) -> Result<(Vec<u8>, Vec<u8>), ListenError> {
    let read = |path: &Path| std::fs::read(path).map_err(|source| ListenError::File { path: path.to_owned(), source });
    Ok((read(&files.certificate)?, read(&files.key)?))
}
