//! `kiln ignition`: Ignition configs.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Outcome, PrintFormat, check::ReportFormat, output::Failure};

mod convert;
mod merge;
mod pointer;
pub(super) mod read;
mod render;
mod validate;

/// The verbs of `kiln ignition`.
#[derive(Debug, Subcommand)]
pub enum IgnitionCommand {
    /// Find every mistake in Ignition configs, with line and column
    Validate(ValidateArgs),
    /// Merge configs as Ignition does; later files win
    Merge(MergeArgs),
    /// Convert between spec versions and list what is lost
    Convert(ConvertArgs),
    /// Print a pointer config that makes a node fetch its real config
    Pointer(PointerArgs),
    /// Render a pool's MachineConfigs as the machine-config-operator does
    Render(RenderArgs),
}

/// What `kiln ignition validate` takes.
#[derive(Debug, Args)]
pub struct ValidateArgs {
    /// Ignition configs; `-` reads standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// How findings are printed
    #[arg(long, value_enum, default_value = "human")]
    format: ReportFormat,
}

/// What `kiln ignition merge` takes.
#[derive(Debug, Args)]
pub struct MergeArgs {
    /// Ignition configs, parent first
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Also say which file each entry came from
    #[arg(long)]
    provenance: bool,
}

/// What `kiln ignition convert` takes.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// Ignition config; `-` reads standard input
    file: PathBuf,
    /// Spec version to write, such as 3.4.0 or 2.2.0
    #[arg(long, value_name = "VERSION")]
    to: String,
}

/// What `kiln ignition pointer` takes.
#[derive(Debug, Args)]
pub struct PointerArgs {
    /// Where the real config is
    #[arg(long, value_name = "URL")]
    source: String,
    /// PEM file with the authorities to trust
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Request header `Name: value`; `Name: @FILE` reads the value from a file, so that secrets stay out of argv
    #[arg(long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// Replace the node's config instead of merging into it
    #[arg(long)]
    replace: bool,
    /// sha512-… or sha256-… of the config
    #[arg(long, value_name = "HASH")]
    verification: Option<String>,
    /// Spec version to write
    #[arg(long, default_value = "3.2.0", value_name = "VERSION")]
    spec: String,
}

/// What `kiln ignition render` takes.
#[derive(Debug, Args)]
pub struct RenderArgs {
    /// Files and folders with MachineConfigs and pools
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The pool to render
    #[arg(long, default_value = "worker", value_name = "NAME")]
    pool: String,
    /// `human` prints the Ignition config and tells the rest on standard error; the others print one document
    #[arg(short, long, value_enum, default_value = "human", value_name = "FORMAT")]
    output: PrintFormat,
}

/// Runs one verb.
pub fn run(command: &IgnitionCommand) -> Result<Outcome, Failure> {
    match command {
        IgnitionCommand::Validate(args) => validate::run(args),
        IgnitionCommand::Merge(args) => merge::run(args),
        IgnitionCommand::Convert(args) => convert::run(args),
        IgnitionCommand::Pointer(args) => pointer::run(args),
        IgnitionCommand::Render(args) => render::run(args),
    }
}
