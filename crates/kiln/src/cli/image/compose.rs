//! `kiln image compose`: one host's image from a base in the store.

use std::path::PathBuf;

use clap::Args;

use super::super::{Outcome, output::Failure};

/// What `kiln image compose` takes.
#[derive(Debug, Args)]
pub struct ComposeArgs {
    /// Folder of the store
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// Name of the base
    #[arg(long, value_name = "NAME")]
    base: String,
    /// Name of the host
    #[arg(long, value_name = "NAME")]
    host: String,
    #[command(flatten)]
    wish: super::WishArgs,
    /// Also write the whole image to a file
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
}

/// Runs the verb.
pub fn run(args: &ComposeArgs) -> Result<Outcome, Failure> {
    let ComposeArgs { store: _, base: _, host: _, wish: _, output: _ } = args;
    Err(Failure::refused(anyhow::anyhow!("`kiln image compose` is not built yet")))
}
