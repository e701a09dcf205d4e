//! `kiln image import`: a base image is read once and indexed.

use std::path::PathBuf;

use clap::Args;

use super::super::{Outcome, output::Failure};

/// What `kiln image import` takes.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Raw disk, qcow2 or live ISO, also compressed
    image: PathBuf,
    /// Folder of the store
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
}

/// Runs the verb.
pub fn run(args: &ImportArgs) -> Result<Outcome, Failure> {
    let ImportArgs { image: _, store: _ } = args;
    Err(Failure::refused(anyhow::anyhow!("`kiln image import` is not built yet")))
}
