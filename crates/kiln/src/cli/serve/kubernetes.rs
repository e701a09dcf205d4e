//! `kiln serve --kubernetes`: the same controllers over a real API server, one leader among the replicas.

use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use kiln_apiserver::tls::Authority;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cli::Outcome;
use crate::cli::output::{Failure, complain};
use crate::hub::controllers;
use crate::hub::node::listener::{NodeListen, NodeListener, connection_limits};
use crate::hub::node::{NodeEndpoint, NodeLimits, node_router};
use crate::hub::pools::{Endpoint, Settings};

/// How long requests of machines may take after it was asked to stop.
const LAST_REQUESTS: Duration = Duration::from_secs(5);

/// Runs until SIGTERM or SIGINT; then the Lease is let go, so that the next replica need not wait.
pub fn run(
    kubeconfig: Option<&Path>,
    log: Option<&str>,
    node: Option<&NodeListen>,
    endpoint: Option<Endpoint>,
) -> Result<Outcome, Failure> {
    let level = log.unwrap_or("info").parse::<tracing::Level>();
    let level = level.map_err(|_| Failure::refused(anyhow!("--log takes error, warn, info, debug or trace")))?;
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false).with_max_level(level).init();
    tokio::runtime::Runtime::new()?.block_on(serve(kubeconfig, node, endpoint))?;
    complain("kiln stopped\n");
    Ok(Outcome::Done)
}

async fn serve(
    kubeconfig: Option<&Path>,
    node: Option<&NodeListen>,
    endpoint: Option<Endpoint>,
) -> Result<(), Failure> {
    let client = client(kubeconfig).await.map_err(Failure::Refused)?;
    let identity = identity();
    let mut terminated = signal(SignalKind::terminate())?;
    let (stop, stopping) = watch::channel(false);
    complain(&format!(
        "kiln {} serves as {identity}; the leader holds lease {}/{}\n",
        env!("CARGO_PKG_VERSION"),
        client.default_namespace(),
        controllers::LEASE
    ));
    let nodes = match node {
        Some(listen) => Some(serve_nodes(client.clone(), listen, &stopping).await?),
        None => None,
    };
    let pools = Settings { endpoint, ..Settings::default() };
    let mut elected = pin!(controllers::run_elected(client, &identity, pools, stopping));
    tokio::select! {
        () = &mut elected => return Err(Failure::Failed(anyhow!("the controllers ended by themselves; the log says why"))),
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

/// Machines are served by every replica, whoever leads.
async fn serve_nodes(
    client: Client,
    listen: &NodeListen,
    stopping: &watch::Receiver<bool>,
) -> Result<(JoinHandle<()>, JoinHandle<()>), Failure> {
    type Names = fn(SocketAddr) -> Vec<String>;
    let nobody: Option<(Authority, Names)> = None;
    let listener = NodeListener::bind(listen, nobody).await.map_err(Failure::refused)?;
    complain(&format!("  machines fetch https://{}/ignition\n", listener.address));
    let nodes = NodeEndpoint::new(client, NodeLimits::default());
    let limits = connection_limits(LAST_REQUESTS);
    let serving = listener.serve(node_router(Arc::clone(&nodes)), limits, Arc::default(), stopping.clone());
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
