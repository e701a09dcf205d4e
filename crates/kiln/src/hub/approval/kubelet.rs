//! The certificate a kubelet serves now, read over TLS: what a renewal is compared with.
//!
//! It counts only when an authority of the cluster signed it for this node: anybody may answer at an address.
//! Not here: the comparison, see `kiln_core::certificate_request`.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kiln_core::certificate_request::{Current, parse_certificate};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Where kubelets answer.
pub const PORT: u16 = 10250;
/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many addresses are tried.
const MOST_ADDRESSES: usize = 4;

/// How the certificate of a kubelet is read. Tests have their own way.
pub trait Kubelet: Send + Sync {
    /// Reads it from the first address that answers, within a few seconds.
    fn current<'a>(
        &'a self,
        node: &'a str,
        addresses: Vec<IpAddr>,
        authorities: &'a [CertificateDer<'static>],
    ) -> BoxFuture<'a, Current>;
}

/// Over the network.
#[derive(Debug, Clone, Copy)]
pub struct Dialled {
    /// The port kubelets answer at.
    pub port: u16,
}

impl Default for Dialled {
    fn default() -> Self {
        Dialled { port: PORT }
    }
}

impl Kubelet for Dialled {
    fn current<'a>(
        &'a self,
        node: &'a str,
        addresses: Vec<IpAddr>,
        authorities: &'a [CertificateDer<'static>],
    ) -> BoxFuture<'a, Current> {
        Box::pin(async move {
            let read = tokio::time::timeout(PATIENCE, read_any(node, &addresses, self.port, authorities)).await;
            match read {
                Ok(Ok(der)) => parse_certificate(&der)
                    .map_or_else(|| Current::Unreadable("it cannot be read".into()), Current::Served),
                Ok(Err(why)) => Current::Unreadable(why),
                Err(_) => Current::Unreadable(format!("no answer within {} s", PATIENCE.as_secs())),
            }
        })
    }
}

async fn read_any(
    node: &str,
    addresses: &[IpAddr],
    port: u16,
    authorities: &[CertificateDer<'static>],
) -> Result<Vec<u8>, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities.iter().cloned());
    if roots.is_empty() {
        return Err("the cluster's authority is not known".into());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let name = ServerName::try_from(node.to_owned()).map_err(|_| format!("`{node}` is no name for TLS"))?;
    let mut last = "no address is declared".to_owned();
    for address in addresses.iter().take(MOST_ADDRESSES) {
        let reached = async {
            let stream = TcpStream::connect(SocketAddr::new(*address, port)).await?;
            connector.connect(name.clone(), stream).await
        };
        match reached.await {
            Ok(stream) => {
                let (_, session) = stream.get_ref();
                let first = session.peer_certificates().and_then(|chain| chain.first());
                return first.map(|der| der.to_vec()).ok_or_else(|| format!("{address} showed no certificate"));
            }
            Err(error) => last = format!("{address}: {error}"),
        }
    }
    Err(last)
}
