//! `kiln ignition`: Ignition configs.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::status::connection::Connection;
use super::{Outcome, PrintFormat, check::ReportFormat, output::Failure};

mod convert;
mod merge;
mod pointer;
pub(super) mod read;
mod render;
mod user_data;
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
    Pointer(Box<PointerArgs>),
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
    #[arg(long, value_name = "URL", required_unless_present_any = ["hosts", "pool", "name"], conflicts_with_all = ["hosts", "pool", "name"])]
    source: Option<String>,
    /// A host of the hub, which gets a new boot token of its own: NAME or NAMESPACE/NAME; may be given several times
    #[arg(long = "host", value_name = "HOST", conflicts_with = "pool")]
    hosts: Vec<String>,
    /// A pool of the hub, whose machines share its token: NAME or NAMESPACE/NAME
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
    /// Names of machines from a pattern such as worker-{}: hosts of the hub, or with --pool only names for the command
    #[arg(long, value_name = "PATTERN")]
    name: Option<String>,
    /// How many machines the pattern stands for
    #[arg(long, value_name = "N", default_value_t = 1, requires = "name", value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,
    /// Also print the command that makes the machines: aws, azure, gcp, hetzner, ibmcloud, kubevirt, metal, openstack, qemu, vmware
    #[arg(long, value_name = "PLATFORM", conflicts_with = "source")]
    platform: Option<String>,
    /// The image in that command
    #[arg(long, value_name = "IMAGE", requires = "platform")]
    image: Option<String>,
    /// Where machines reach the hub [default: the server of the kubeconfig]
    #[arg(long, value_name = "URL", conflicts_with_all = ["source", "pool"])]
    endpoint: Option<String>,
    /// Write the pointer here, readable by you alone; a folder for several; `-` is standard output [default with --platform: HOST.ign]
    #[arg(long, value_name = "PATH", conflicts_with = "source")]
    out: Option<PathBuf>,
    /// Replace files that exist
    #[arg(long, conflicts_with = "source")]
    force: bool,
    #[command(flatten)]
    connection: Connection,
    /// PEM file with the authorities to trust [default with --host: the hub's]
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
    #[arg(required_unless_present = "overlay", value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Print a MachineConfig that keeps profiles written at run time in memory: a reboot returns to what MachineConfigs own
    #[arg(long, conflicts_with = "paths")]
    overlay: bool,
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
