//! `kiln agent run`: the node's side of day 2, until it is told to stop.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use clap::Args;
use kiln_agent::hub::Hub;
use kiln_agent::run::{Settings, run as run_agent};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::super::output::Failure;
use super::{Outcome, StateDir};

/// What `kiln agent run` takes.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Address of the hub, https://HOST:PORT; without it, what the variable KILN_HUB says
    #[arg(long, value_name = "URL")]
    hub: Option<String>,
    /// Certificates the hub's must be signed by
    #[arg(long, value_name = "FILE", default_value = "/etc/kiln/hub-ca.crt")]
    ca: PathBuf,
    /// File with this host's token, as `kiln token agent` writes it; nobody else may read it
    #[arg(long, value_name = "FILE", default_value = "/etc/kiln/agent.token")]
    token_file: PathBuf,
    #[command(flatten)]
    state: StateDir,
}

/// Runs until SIGTERM or SIGINT.
pub fn run(args: &RunArgs) -> Result<Outcome, Failure> {
    let address = args.hub.clone().or_else(|| std::env::var("KILN_HUB").ok());
    let address = address.ok_or_else(|| Failure::refused(anyhow!("no hub is named; give --hub or set KILN_HUB")))?;
    let hub = Hub::new(&address, &args.ca, &read_token(args)?).map_err(|error| Failure::refused(anyhow!(error)))?;
    let settings =
        Settings { hub, state_dir: args.state.state_dir.clone(), version: env!("CARGO_PKG_VERSION").to_owned() };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false).with_ansi(false).init();
    super::runtime()?.block_on(async {
        let (stop, stopping) = watch::channel(false);
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let told = async {
            tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
            stop.send_replace(true);
            // What is under way ends the run, not the signal.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            ended = run_agent(settings, stopping) => ended.map_err(Failure::from),
            () = told => Ok(()),
        }
    })?;
    Ok(Outcome::Done)
}

fn read_token(args: &RunArgs) -> Result<String, Failure> {
    use std::os::unix::fs::PermissionsExt as _;

    let shown = args.token_file.display();
    let metadata = std::fs::metadata(&args.token_file).with_context(|| format!("cannot read `{shown}`"));
    let mode = metadata.map_err(Failure::refused)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let help = format!("`{shown}` has mode {mode:04o}: others may read the token; chmod 600 {shown}");
        return Err(Failure::refused(anyhow!(help)));
    }
    let token = std::fs::read_to_string(&args.token_file).with_context(|| format!("cannot read `{shown}`"));
    token.map_err(Failure::refused)
}
