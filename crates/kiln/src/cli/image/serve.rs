//! `kiln image serve`: the images of a store over HTTP.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::super::{Outcome, output::Failure};

/// What `kiln image serve` takes.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Folder of the store
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// Address and port to listen on
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
}

/// Runs the verb.
pub fn run(args: &ServeArgs) -> Result<Outcome, Failure> {
    let ServeArgs { store: _, listen: _ } = args;
    Err(Failure::refused(anyhow::anyhow!("`kiln image serve` is not built yet")))
}
