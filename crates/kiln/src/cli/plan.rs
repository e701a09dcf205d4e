//! `kiln plan`: each host's network at every phase, and the steps.

use std::path::PathBuf;

use clap::Args;

use super::{Outcome, PrintFormat, output::Failure};

/// What `kiln plan` takes.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// File or folder of manifests
    path: PathBuf,
    /// Only this host
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// How the plan is printed
    #[arg(short, long, value_enum, default_value = "human")]
    output: PrintFormat,
}

/// Plans and prints.
pub fn run(args: &PlanArgs) -> Result<Outcome, Failure> {
    let PlanArgs { path: _, host: _, output: _ } = args;
    Err(anyhow::anyhow!("not yet").into())
}
