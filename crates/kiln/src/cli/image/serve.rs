//! `kiln image serve`: the images of a store over HTTP.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use kiln_image::store::Store;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;

use super::super::{Outcome, output, output::Failure};
use crate::image_server::tls::read_tls_config;
use crate::image_server::{Limits, Server, Service};

/// What `kiln image serve` takes.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Folder of the store
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// Address and port to listen on
    #[arg(long, value_name = "ADDR", default_value = "[::]:8080")]
    listen: SocketAddr,
    /// Certificate chain in PEM format; with it, only HTTPS is spoken
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate in PEM format
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Connections served at once; more wait
    #[arg(long, value_name = "NUMBER", default_value = "1024", value_parser = clap::value_parser!(u16).range(1..))]
    max_connections: u16,
}

/// Runs the verb until SIGTERM or SIGINT.
pub fn run(args: &ServeArgs) -> Result<Outcome, Failure> {
    let ServeArgs { store, listen, tls_cert, tls_key, max_connections } = args;
    let store = Store::open(store).map_err(Failure::refused)?;
    let tls = match (tls_cert, tls_key) {
        (Some(certificate), Some(key)) => Some(read_tls_config(certificate, key).map_err(Failure::refused)?),
        _ => None,
    };
    // Before any thread is started: they all inherit the mask, so that the signals arrive here alone.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    signals.thread_block()?;
    let stop = SignalFd::new(&signals)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let key = store.url_key()?;
    let limits = Limits { connections: usize::from(*max_connections), ..Limits::default() };
    let service = Service { store, key, tls, limits, log: Box::new(|line| output::complain(&format!("{line}\n"))) };
    let server = Server::bind(*listen, service)
        .map_err(|error| anyhow::Error::new(error).context(format!("cannot listen on {listen}")))?;
    output::complain(&format!("serving on {scheme}://{}/\n", server.address()?));
    server.run(&stop);
    // This one is dealt with: it must not arrive again when the mask is taken off.
    stop.read_signal()?;
    // A second signal, while answers under way are not finished, ends the process at once.
    signals.thread_unblock()?;
    server.finish();
    Ok(Outcome::Done)
}
