//! The hub: started, watched over and ended.
//!
//! [`run`] opens the store, listens, and starts everything that runs as long as the hub does as one of [`Tasks`]: the
//! API, its garbage collection, and whatever joins them. When one of them ends, the hub ends and says which. They
//! are told to end by [`Server::stopping`]. Before, the [definitions](definitions) of Kiln's kinds are installed, and from
//! then on the [rules](admission) of `kiln check` judge what is applied.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kiln_apiserver::admission::Admission;
use kiln_apiserver::audit::{AuditLimits, AuditLog};
use kiln_apiserver::health::Weight;
use kiln_apiserver::identity::ADMINISTRATORS;
use kiln_apiserver::secrecy::{Secrecy, Unlock};
use kiln_apiserver::store::OpenError;
use kiln_apiserver::tls::{self, Authority, Credentials, Renewal, TlsError};
use kiln_apiserver::{Limits, Server, Settings, router};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use admission::Rules;
use approval::Approver;
use background::Background;
use definitions::Policy;
use node::listener::{ListenError, NodeListen, NodeListener, connection_limits};
use node::{NodeEndpoint, NodeLimits};
use pools::Endpoint;
use tasks::Tasks;

pub mod admission;
pub mod approval;
mod background;
pub mod beacon;
pub mod boot_secrets;
pub mod controllers;
pub mod definitions;
mod folder;
pub mod following;
pub mod health;
pub mod kubeconfig;
pub mod lease;
pub mod machines;
pub mod memory;
pub mod mirror;
pub mod network;
pub mod node;
pub mod policy;
pub mod pools;
mod report;
mod systemd;
mod tasks;
pub mod timeline;
pub mod world;
mod yaml;

/// What is sealed on the disk.
const SEALED_COLLECTIONS: [&str; 1] = ["secrets"];
/// The key that is made when none is named.
const OWN_KEY: &str = "encryption.key";

/// What the hub is told.
#[derive(Debug, Clone)]
pub struct HubConfig {
    /// State, keys and kubeconfig.
    pub data_dir: PathBuf,
    /// Where the API listens.
    pub listen: SocketAddr,
    /// Where machines are listened to besides, and nothing else is served.
    pub node: Option<NodeListen>,
    /// Where machines reach the hub; without, where it listens.
    pub node_url: Option<String>,
    /// PEM file of the authorities machines trust there; without, the hub's own.
    pub node_ca: Option<PathBuf>,
    /// More names for the server's certificate.
    pub tls_names: Vec<String>,
    /// Where the key of sealed objects comes from; without, it is made in the data folder.
    pub unlock: Option<Unlock>,
    /// The key before that one.
    pub previous: Option<Unlock>,
    /// How large the audit log becomes.
    pub audit: AuditLimits,
    /// How long requests may take after the hub was asked to end.
    pub shutdown: Duration,
    /// What may be done to definitions.
    pub install_definitions: Policy,
}

/// The hub answers from now on.
#[derive(Debug)]
pub struct Ready {
    /// Where it listens.
    pub address: SocketAddr,
    /// Where it listens to machines only.
    pub node: Option<SocketAddr>,
    /// The administrator's credentials.
    pub kubeconfig: PathBuf,
}

/// Why the hub did not start, or ended.
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
    /// Machines cannot be listened to.
    #[error("machines cannot be listened to")]
    Node(#[from] ListenError),
    /// No threads for what nobody waits for.
    #[error("the threads of the controllers did not start")]
    Threads(#[source] io::Error),
    /// Something that must not end has ended.
    #[error("the hub ended because one of its tasks did: {0}")]
    Ended(String),
    /// The definitions of Kiln's kinds are not there.
    #[error("the definitions of Kiln's kinds were not installed")]
    Definitions(#[from] definitions::InstallError),
}

/// Starts the hub, says when it answers, and ends it on SIGTERM or SIGINT.
pub async fn run(config: &HubConfig, ready: impl FnOnce(&Ready)) -> Result<(), HubError> {
    folder::make_private(&config.data_dir)
        .map_err(|source| HubError::DataDir { path: config.data_dir.clone(), source })?;
    let server = Server::open_with(&config.data_dir, settings(config)?).await?;
    let client = controllers::in_process(router(Arc::clone(&server)), "system:kiln:definitions");
    let installed = definitions::install(&client, config.install_definitions).await?;
    tracing::info!(?installed, "definitions of Kiln's kinds");
    let rules = Arc::new(Rules::default());
    server.judge_with(Arc::clone(&rules) as Arc<dyn Admission>);
    let authority = Authority::open(&config.data_dir)?;
    let listen_error = |source| HubError::Listen { address: config.listen, source };
    let listener = TcpListener::bind(config.listen).await.map_err(listen_error)?;
    let address = listener.local_addr().map_err(listen_error)?;
    let names = certificate_names(address.ip(), &config.tls_names);
    let renewal = Renewal::begin(Authority::open(&config.data_dir)?, names, tls::VALIDITY)?;
    let tls = renewal.server_config()?;
    let kubeconfig = write_kubeconfig(config, &authority, address)?;
    let nodes = serve_nodes(&server);
    let node_listener = listen_to_nodes(config).await?;
    let node = node_listener.as_ref().map(|listener| listener.address);
    let reached = endpoint(config, &authority, address, node)?;
    nodes.reached_at(reached.clone());
    let pools = pools::Settings { endpoint: Some(reached), ..pools::Settings::default() };
    let mut terminated = signal(SignalKind::terminate()).map_err(listen_error)?;

    let background = Background::start().map_err(HubError::Threads)?;
    let mut tasks = Tasks::default();
    let approver = Approver { endpoint: pools.endpoint.clone(), ..approver(&server) };
    let behind = &background.handle;
    let restores = (server.restores(), server.stopping());
    tasks.spawn_on(behind, "definitions", definitions::follow(client, config.install_definitions, restores));
    tasks.spawn_on(behind, "garbage collection", Arc::clone(&server).run_janitor());
    tasks.spawn_on(behind, "rules", rules.follow(Arc::clone(&server)));
    let following = approver.following();
    tasks.spawn_on(behind, "controllers", controllers::run_embedded(Arc::clone(&server), pools, following));
    tasks.spawn_on(behind, "certificates", approval::run(approver, server.stopping()));
    tasks.spawn("certificate of the API", renew(renewal, config.clone(), address, server.stopping()));
    tasks.spawn("node endpoints", Arc::clone(&nodes).run(server.stopping()));
    if let Some(listener) = node_listener {
        let (router, limits) = (node::node_router(Arc::clone(&nodes)), connection_limits(config.shutdown));
        let metrics = Arc::clone(server.metrics());
        tasks.spawn("node listener", listener.serve(router, limits, metrics, server.stopping()));
    }
    let router = node::beside(nodes, router(Arc::clone(&server)));
    tasks.spawn("API", tls::serve_bounded(Arc::clone(&server), listener, router, tls));

    ready(&Ready { address, node, kubeconfig });
    systemd::tell(systemd::State::Ready);
    let ended = tokio::select! {
        _ = terminated.recv() => None,
        _ = tokio::signal::ctrl_c() => None,
        task = tasks.first_ended() => Some(task),
    };
    systemd::tell(systemd::State::Stopping);
    tracing::info!("stopping; requests that have begun have {} s", config.shutdown.as_secs());
    // Watches end first, then the requests that have begun, then the store.
    server.stop();
    // The listener ends by itself when the time is over; the rest is for those that do not.
    if !tasks.all_ended(config.shutdown + Duration::from_secs(2)).await {
        tracing::warn!("some tasks did not end in time");
    }
    server.close().await;
    ended.map_or(Ok(()), |task| Err(HubError::Ended(task)))
}

/// Keeps the certificate of the API fresh, and that of the administrator, until the hub stops.
async fn renew(renewal: Renewal, config: HubConfig, address: SocketAddr, mut stopping: watch::Receiver<bool>) {
    let write = |authority: &Authority| {
        if let Err(error) = write_kubeconfig(&config, authority, address) {
            tracing::error!(%error, "the kubeconfig was not written anew");
        }
    };
    tokio::select! {
        () = renewal.run(write) => {}
        _ = stopping.wait_for(|stop| *stop) => {}
    }
}

/// Whoever decides about the certificates of nodes, with its figures among the server's.
fn approver(server: &Arc<Server>) -> Approver {
    let approver = Approver::new(controllers::in_process(router(Arc::clone(server)), "system:kiln:approver"));
    let (verdicts, stages) = (Arc::clone(&approver.figures), Arc::clone(&approver.stages));
    server.add_figures(move || verdicts.render() + &stages.render());
    approver
}

fn settings(config: &HubConfig) -> Result<Settings, HubError> {
    let audit_path = config.data_dir.join("audit.log");
    let audit = AuditLog::open(&audit_path, config.audit)
        .map_err(|source| HubError::DataDir { path: audit_path.clone(), source })?;
    let own_key = || Unlock::KeyFile { path: config.data_dir.join(OWN_KEY), make: true };
    let mut limits = Limits::default();
    limits.connections.last_requests = config.shutdown;
    Ok(Settings {
        limits,
        policy: policy::policy(),
        secrecy: Some(Secrecy {
            collections: SEALED_COLLECTIONS.map(String::from).into(),
            unlock: config.unlock.clone().unwrap_or_else(own_key),
            previous: config.previous.clone(),
        }),
        audit: Some(audit),
        yaml: Some(yaml::parse_body),
        ..Settings::default()
    })
}

/// The node endpoints over the embedded API, among its checks and figures.
fn serve_nodes(server: &Arc<Server>) -> Arc<NodeEndpoint> {
    let client = controllers::in_process(router(Arc::clone(server)), "system:kiln:node");
    let nodes = NodeEndpoint::new(client, NodeLimits::default());
    let (checked, counted) = (Arc::clone(&nodes), Arc::clone(&nodes));
    // The API does not wait for what machines fetch; whoever sends machines here asks for this check.
    server.add_check("ignition", Weight::Informs, move || checked.check());
    server.add_figures(move || counted.render_figures());
    nodes
}

async fn listen_to_nodes(config: &HubConfig) -> Result<Option<NodeListener>, HubError> {
    let Some(listen) = &config.node else { return Ok(None) };
    let authority = Authority::open(&config.data_dir)?;
    let names = |address: SocketAddr| certificate_names(address.ip(), &config.tls_names);
    Ok(Some(NodeListener::bind(listen, Some((authority, names))).await?))
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
    let url = own_url(config, address);
    let path = config.data_dir.join("kubeconfig");
    let text = kubeconfig::render(&url, authority.certificate(), &certificate, &key);
    folder::write_private(&path, &text).map_err(|source| HubError::DataDir { path: path.clone(), source })?;
    Ok(path)
}

/// Where machines reach the hub: a listener of their own, if there is one.
fn endpoint(
    config: &HubConfig,
    authority: &Authority,
    address: SocketAddr,
    node: Option<SocketAddr>,
) -> Result<Endpoint, HubError> {
    let url = config.node_url.clone().unwrap_or_else(|| own_url(config, node.unwrap_or(address)));
    if let Some(path) = &config.node_ca {
        let read = Endpoint::read(url, Some(path));
        return read.map_err(|source| ListenError::File { path: path.clone(), source }.into());
    }
    // A certificate of somebody else's is signed by an authority that machines must know already.
    let foreign = config.node.as_ref().is_some_and(|listen| listen.files.is_some());
    let authorities = (!foreign).then(|| authority.certificate().into());
    Ok(Endpoint { url, authorities })
}

/// Where the hub is reached.
fn own_url(config: &HubConfig, address: SocketAddr) -> String {
    // Whoever listens everywhere is reached by name, or on this machine.
    let host = match (config.tls_names.first(), address.ip()) {
        (Some(name), _) => name.clone(),
        (None, ip) if ip.is_unspecified() => "127.0.0.1".into(),
        (None, IpAddr::V6(ip)) => format!("[{ip}]"),
        (None, ip) => ip.to_string(),
    };
    format!("https://{host}:{}", address.port())
}
