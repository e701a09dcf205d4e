//! `kiln serve --kubernetes`: the same controllers over a real API server, one leader among the replicas.
//!
//! Besides machines, nothing is listened to unless `--metrics-listen` says so; what listens there has figures and health and
//! nothing else, so it has neither TLS nor identities.

use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use axum::Router;
use axum::routing::get;
use kiln_apiserver::metrics::{Metrics, MoreFigures};
use kiln_apiserver::tls::Authority;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::config::{Layer, SettledKubernetes};
use crate::cli::Outcome;
use crate::cli::output::{Failure, complain};
use crate::hub::controllers::figures::Figures;
use crate::hub::node::listener::{NodeListen, NodeListener, connection_limits};
use crate::hub::node::{NodeEndpoint, NodeLimits, node_router};
use crate::hub::pools::{Endpoint, Settings};
use crate::hub::{controllers, definitions};

/// How long requests of machines may take after it was asked to stop.
const LAST_REQUESTS: Duration = Duration::from_secs(5);

/// Runs until SIGTERM or SIGINT; then the Lease is let go, so that the next replica need not wait.
pub fn run(kubeconfig: Option<&Path>, layer: Layer, endpoint: Option<Endpoint>) -> Result<Outcome, Failure> {
    let settled = layer.settle_kubernetes().map_err(|why| Failure::refused(anyhow!(why)))?;
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false).with_max_level(settled.log).init();
    for name in &settled.does_nothing {
        tracing::warn!("{name} is set and means nothing with --kubernetes");
    }
    tokio::runtime::Runtime::new()?.block_on(serve(kubeconfig, &settled, endpoint))?;
    complain("kiln stopped\n");
    Ok(Outcome::Done)
}

async fn serve(
    kubeconfig: Option<&Path>,
    settled: &SettledKubernetes,
    endpoint: Option<Endpoint>,
) -> Result<(), Failure> {
    let client = client(kubeconfig).await.map_err(Failure::Refused)?;
    let installed = definitions::install(&client, settled.install_definitions).await.map_err(anyhow::Error::from)?;
    tracing::info!(policy = ?settled.install_definitions, ?installed, "definitions of Kiln's kinds");
    let identity = identity();
    let mut terminated = signal(SignalKind::terminate())?;
    let (stop, stopping) = watch::channel(false);
    let figures = Arc::new(Figures::default());
    let of_machines = Arc::new(MoreFigures::default());
    let mut telling = pin!(tell(settled.metrics_listen, Arc::clone(&figures), Arc::clone(&of_machines)));
    complain(&format!(
        "kiln {} serves as {identity}; the leader holds lease {}/{}\n",
        env!("CARGO_PKG_VERSION"),
        client.default_namespace(),
        controllers::LEASE
    ));
    let nodes = match &settled.node {
        Some(listen) => Some(serve_nodes(client.clone(), listen, endpoint.clone(), &of_machines, &stopping).await?),
        None => None,
    };
    let pools = Settings { endpoint, ..Settings::default() };
    let mut elected = pin!(controllers::run_elected(client, &identity, pools, stopping, figures));
    tokio::select! {
        () = &mut elected => return Err(Failure::Failed(anyhow!("the controllers ended by themselves; the log says why"))),
        told = &mut telling => return told.and_then(|()| Err(Failure::Failed(anyhow!("the listener for figures ended")))),
        _ = terminated.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    stop.send_replace(true);
    elected.await;
    if let Some(nodes) = nodes {
        let _ = tokio::join!(nodes.0, nodes.1);
    }
    Ok(())
}

/// Serves figures and health for ever; without an address, waits for ever.
async fn tell(address: Option<SocketAddr>, figures: Arc<Figures>, more: Arc<MoreFigures>) -> Result<(), Failure> {
    let Some(address) = address else { return std::future::pending().await };
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}"))
        .map_err(Failure::Refused)?;
    let kind = [("content-type", "text/plain; version=0.0.4; charset=utf-8")];
    let router = Router::new()
        .route("/metrics", get(move || async move { (kind, figures.render() + &more.render()) }))
        .route("/healthz", get(async || "ok"))
        // A replica that waits for its turn is as ready as the leader.
        .route("/readyz", get(async || "ok"));
    tracing::info!("figures are at http://{}/metrics", listener.local_addr()?);
    axum::serve(listener, router).await?;
    Ok(())
}

/// Machines are served by every replica, whoever leads.
async fn serve_nodes(
    client: Client,
    listen: &NodeListen,
    reached: Option<Endpoint>,
    figures: &MoreFigures,
    stopping: &watch::Receiver<bool>,
) -> Result<(JoinHandle<()>, JoinHandle<()>), Failure> {
    type Names = fn(SocketAddr) -> Vec<String>;
    let nobody: Option<(Authority, Names)> = None;
    let listener = NodeListener::bind(listen, nobody).await.map_err(Failure::refused)?;
    complain(&format!("  machines fetch https://{}/ignition\n", listener.address));
    let nodes = NodeEndpoint::new(client, NodeLimits::default());
    reached.into_iter().for_each(|reached| nodes.reached_at(reached));
    let (limits, metrics) = (connection_limits(LAST_REQUESTS), Arc::new(Metrics::default()));
    let (counted, turned) = (Arc::clone(&nodes), Arc::clone(&metrics));
    figures.add(move || counted.render_figures() + &turned.render_turned());
    let serving = listener.serve(node_router(Arc::clone(&nodes)), limits, metrics, stopping.clone());
    Ok((tokio::spawn(nodes.run(stopping.clone())), tokio::spawn(serving)))
}

/// The named file; else what a pod has, or KUBECONFIG.
async fn client(kubeconfig: Option<&Path>) -> Result<Client, anyhow::Error> {
    let config = match kubeconfig {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path).with_context(|| format!("cannot use `{}`", path.display()))?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                .await
                .context("the kubeconfig does not lead to a server")?
        }
        None => Config::infer().await.context("neither a pod's service account nor a kubeconfig was found")?,
    };
    Client::try_from(config).context("cannot connect")
}

/// A pod's name is its host's name; on one machine the process tells replicas apart.
fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}-{}", host.trim(), std::process::id())
}
