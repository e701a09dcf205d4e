//! `kiln boot`: what stock CoreOS will end up with.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{Outcome, PrintFormat, output::Failure};

/// The verbs of `kiln boot`.
#[derive(Debug, Subcommand)]
pub enum BootCommand {
    /// Predict the network of each boot phase, and why
    Simulate(SimulateArgs),
}

/// What `kiln boot simulate` takes.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// Kernel command line of the first boot
    #[arg(long, default_value = "", value_name = "KARGS")]
    kargs: String,
    /// Keyfiles in the first-boot network area (copy-network)
    #[arg(long, value_name = "DIR")]
    firstboot_network: Option<PathBuf>,
    /// Ignition config that writes the real root
    #[arg(long, value_name = "FILE", conflicts_with = "real_root")]
    ignition: Option<PathBuf>,
    /// Real root as it is after Ignition
    #[arg(long, value_name = "DIR")]
    real_root: Option<PathBuf>,
    /// Where copy-network puts its files: `boot` before coreos-installer 0.27, `initrd` since
    #[arg(long, value_enum, default_value = "boot")]
    layout: Layout,
    /// How the prediction is printed
    #[arg(short, long, value_enum, default_value = "human")]
    output: PrintFormat,
}

/// Where copy-network puts its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// `/boot/coreos-firstboot-network`.
    Boot,
    /// `/etc/coreos-firstboot-network` in an appended initrd.
    Initrd,
}

/// Runs one verb.
pub fn run(command: &BootCommand) -> Result<Outcome, Failure> {
    let BootCommand::Simulate(SimulateArgs {
        kargs: _,
        firstboot_network: _,
        ignition: _,
        real_root: _,
        layout: _,
        output: _,
    }) = command;
    Err(anyhow::anyhow!("not yet").into())
}
