//! `kiln net`: network documents and keyfiles.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{Outcome, output::Failure};

mod capture;
mod diff;
pub(super) mod keyfile_dir;
mod merge;
mod preview;
pub(super) mod render;

/// The verbs of `kiln net`.
#[derive(Debug, Subcommand)]
pub enum NetCommand {
    /// Render nmstate YAML, NMStateConfigs or policies to keyfiles
    Render(RenderArgs),
    /// Merge two folders of keyfiles by meaning; the overlay wins where both speak
    ///
    /// The same connection is found by UUID, else by interface or MAC address and type, else by id, and joined key by
    /// key. Addresses and name servers are replaced, routes are added. Everything decided is printed. When a keyfile is
    /// broken, nothing is written.
    Merge(MergeArgs),
    /// Compare two folders of keyfiles by meaning
    ///
    /// Order, comments, file names, UUIDs and spelling do not matter. As with diff, the exit code is 0 when both mean the
    /// same, 1 when they differ and 2 when they cannot be compared.
    Diff(DiffArgs),
    /// Turn a configured machine's profiles into clean keyfiles or nmstate YAML
    Capture(CaptureArgs),
    /// Show what NodeNetworkConfigurationPolicies would change on each node, how much it disturbs and what could go wrong
    ///
    /// The states of the nodes come from files, else from the hub. Nothing is written. Exit code 1 when a policy is refused on a node.
    Preview(preview::PreviewArgs),
}

/// What `kiln net render` takes.
#[derive(Debug, Args)]
pub struct RenderArgs {
    /// nmstate YAML, NMStateConfig or NodeNetworkConfigurationPolicy
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Folder the keyfiles are written to: a new one, an empty one, or one with an earlier result
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// What `kiln net merge` takes.
#[derive(Debug, Args)]
pub struct MergeArgs {
    /// Keyfiles to start from
    base_dir: PathBuf,
    /// Keyfiles that win
    overlay_dir: PathBuf,
    /// Folder the result is written to: a new one, an empty one, or one with an earlier result
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// What `kiln net diff` takes.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// One folder or keyfile
    a: PathBuf,
    /// The other
    b: PathBuf,
}

/// What `kiln net capture` takes.
#[derive(Debug, Args)]
pub struct CaptureArgs {
    /// Root of the machine's file system
    #[arg(long, default_value = "/", value_name = "DIR")]
    root: PathBuf,
    /// What to print
    #[arg(short, long, value_enum, default_value = "nmstate")]
    output: CaptureOutput,
    /// Folder the keyfiles are written to instead of being printed: a new one, an empty one, or one with an earlier result
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// What `kiln net capture` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CaptureOutput {
    /// One nmstate document.
    Nmstate,
    /// Cleaned keyfiles, one after the other with their names.
    Keyfiles,
}

/// Runs one verb.
pub fn run(command: &NetCommand) -> Result<Outcome, Failure> {
    match command {
        NetCommand::Render(args) => render::run(args),
        NetCommand::Merge(args) => merge::run(args),
        NetCommand::Diff(args) => diff::run(args),
        NetCommand::Capture(args) => capture::run(args),
        NetCommand::Preview(args) => preview::run(args),
    }
}
