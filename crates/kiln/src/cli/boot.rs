//! `kiln boot`: what stock CoreOS will end up with, and what Kiln would make of it.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use kiln_core::boot::initrd::diagnose;
use kiln_core::boot::kargs::Kargs;
use kiln_core::boot::simulate::{CopyLayout, FirstBoot, compose, simulate};
use kiln_core::boot::teardown::RealRoot;
use kiln_core::source::SourceMap;

use super::check::ReportFormat;
use super::ignition::read::read_config;
use super::output::{self, Failure};
use super::{Outcome, PrintFormat, report};
use read::{read_folder, read_real_root};

mod print;
pub(super) mod read;

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
    /// Where the image looks for them, when it is not where they were put
    #[arg(long, value_enum, value_name = "LAYOUT")]
    image_reads: Option<Layout>,
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

impl From<Layout> for CopyLayout {
    fn from(layout: Layout) -> Self {
        match layout {
            Layout::Boot => CopyLayout::Boot,
            Layout::Initrd => CopyLayout::Initrd,
        }
    }
}

/// Runs one verb.
pub fn run(command: &BootCommand) -> Result<Outcome, Failure> {
    let BootCommand::Simulate(args) = command;
    let Some(real_root) = real_root(args)? else { return Ok(Outcome::Refused) };
    let boot = FirstBoot {
        kargs: Kargs::parse(&args.kargs),
        copied_network: args.firstboot_network.as_deref().map_or(Ok(Vec::new()), read_folder)?,
        written_to: args.layout.into(),
        read_from: args.image_reads.unwrap_or(args.layout).into(),
        real_root,
    };
    let prediction = simulate(&boot);
    report::print(&SourceMap::default(), &diagnose(&prediction.dropped, None), ReportFormat::Human)?;
    let composed = compose(&prediction.declared(), &boot.real_root.system_connections);
    output::print(&print::render(&prediction, &composed, args.output))?;
    Ok(Outcome::Done)
}

/// The real root after Ignition; none when the config was refused and the findings are printed.
fn real_root(args: &SimulateArgs) -> Result<Option<RealRoot>, Failure> {
    match (&args.ignition, &args.real_root) {
        (Some(config), _) => from_ignition(config),
        (None, Some(root)) => read_real_root(root).map(Some),
        (None, None) => Ok(Some(RealRoot::default())),
    }
}

fn from_ignition(path: &Path) -> Result<Option<RealRoot>, Failure> {
    let (mut sources, mut findings) = (SourceMap::default(), Vec::new());
    let config = read_config(path, &mut sources, &mut findings)?;
    report::print(&sources, &findings, ReportFormat::Human)?;
    Ok(config.map(|config| RealRoot::from_config(&config)))
}
