//! The hub: the embedded API, started and stopped.
//!
//! Not here yet: controllers and the endpoints for nodes. They will use the same router in this process.

use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kiln_apiserver::identity::{ADMINISTRATORS, Tokens};
use kiln_apiserver::store::OpenError;
use kiln_apiserver::tls::{self, Authority, Credentials, TlsError};
use kiln_apiserver::{Limits, Server, router};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

pub mod definitions;
mod kubeconfig;
pub mod world;

/// What the hub is told.
#[derive(Debug, Clone)]
pub struct HubConfig {
    /// State, keys and kubeconfig.
    pub data_dir: PathBuf,
    /// Where the API listens.
    pub listen: SocketAddr,
    /// More names for the server's certificate.
    pub tls_names: Vec<String>,
}

/// The hub answers from now on.
#[derive(Debug)]
pub struct Ready {
    /// Where it listens.
    pub address: SocketAddr,
    /// The administrator's credentials.
    pub kubeconfig: PathBuf,
}

/// Why the hub did not start.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The data folder cannot be used.
    #[error("cannot use the data folder `{}`", path.display())]
    DataDir {
        /// Which folder or file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// Which address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The store did not open.
    #[error("the store did not open")]
    Store(#[from] OpenError),
    /// TLS was not set up.
    #[error("TLS was not set up")]
    Tls(#[from] TlsError),
}

/// Starts the hub, says when it answers, and ends it on SIGTERM or SIGINT.
pub async fn run(config: &HubConfig, ready: impl FnOnce(&Ready)) -> Result<(), HubError> {
    make_private_folder(&config.data_dir)?;
    let server = Server::open(&config.data_dir, Tokens::default(), Limits::default()).await?;
    let authority = Authority::open(&config.data_dir)?;
    let listen_error = |source| HubError::Listen { address: config.listen, source };
    let listener = TcpListener::bind(config.listen).await.map_err(listen_error)?;
    let address = listener.local_addr().map_err(listen_error)?;
    let tls = authority.server_config(&certificate_names(address.ip(), &config.tls_names))?;
    let kubeconfig = write_kubeconfig(config, &authority, address)?;
    let mut terminated = signal(SignalKind::terminate()).map_err(listen_error)?;
    let janitor = tokio::spawn(Arc::clone(&server).run_janitor());
    let serving = tokio::spawn(tls::serve(listener, router(Arc::clone(&server)), tls, server.stopping()));
    ready(&Ready { address, kubeconfig });
    tokio::select! {
        _ = terminated.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    // Watches end first, then the requests that have begun, then the store.
    server.stop();
    let _ = serving.await;
    let _ = janitor.await;
    server.close().await;
    Ok(())
}

/// What clients may call the server.
fn certificate_names(listened: IpAddr, more: &[String]) -> Vec<String> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1", "kubernetes.default.svc"].map(String::from).into();
    if !listened.is_unspecified() {
        names.push(listened.to_string());
    }
    names.extend_from_slice(more);
    names.sort();
    names.dedup();
    names
}

fn write_kubeconfig(config: &HubConfig, authority: &Authority, address: SocketAddr) -> Result<PathBuf, HubError> {
    let Credentials { certificate, key } = authority.issue_client("kiln-admin", ADMINISTRATORS)?;
    // Whoever listens everywhere is reached by name, or on this machine.
    let host = match (config.tls_names.first(), address.ip()) {
        (Some(name), _) => name.clone(),
        (None, ip) if ip.is_unspecified() => "127.0.0.1".into(),
        (None, IpAddr::V6(ip)) => format!("[{ip}]"),
        (None, ip) => ip.to_string(),
    };
    let url = format!("https://{host}:{}", address.port());
    let path = config.data_dir.join("kubeconfig");
    let text = kubeconfig::render(&url, authority.certificate(), &certificate, &key);
    write_private(&path, &text).map_err(|source| HubError::DataDir { path: path.clone(), source })?;
    Ok(path)
}

fn make_private_folder(path: &Path) -> Result<(), HubError> {
    let failed = |source| HubError::DataDir { path: path.to_owned(), source };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(failed)
}

/// Under a temporary name first, so that nobody reads half of it.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}
