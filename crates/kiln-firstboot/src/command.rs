//! What can be typed: `kiln-firstboot VERB` in an initramfs, `kiln firstboot VERB` elsewhere.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use kiln_core::beacon::Point;
use kiln_core::boot::handover::Policy;

use crate::copy_network::copy_network;
use crate::disk::RealDisk;
use crate::error::FirstbootError;
use crate::propagate::propagate;
use crate::root::Root;
use crate::witness::{self, SENDING, Task, WAITING_FOR_KEY};

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum FirstbootCommand {
    /// Let the profiles left for the first boot replace those of the kernel arguments
    CopyNetwork(CopyNetworkArgs),
    /// Hand the network of the initramfs over to the real root
    Propagate(PropagateArgs),
    /// Tell the hub and the console how far this boot has come; never fails and never takes long
    Report(ReportArgs),
    /// Send the reports that earlier boots left on the boot partition
    Deliver(DeliverArgs),
}

/// What `copy-network` takes.
#[derive(Debug, Args)]
pub struct CopyNetworkArgs {
    #[command(flatten)]
    place: PlaceArgs,
}

/// What `propagate` takes.
#[derive(Debug, Args)]
pub struct PropagateArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// How: `stock` copies unless the real root has any file, `force` copies over it, `merge` joins both by meaning; by default what
    /// the kernel argument `kiln.firstboot=` says, or `stock`
    #[arg(long, value_name = "stock|force|merge")]
    policy: Option<Policy>,
}

/// What `report` takes.
#[derive(Debug, Args)]
pub struct ReportArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// How far the boot has come
    #[arg(long, value_enum)]
    point: PointName,
    /// The policy that `propagate` will have, for `leaving`; by default as there
    #[arg(long, value_name = "stock|force|merge")]
    policy: Option<Policy>,
    /// How long sending may take, in seconds (20); with `kubelet-key`, how long the key may take (600)
    #[arg(long, value_name = "SECONDS")]
    time_limit: Option<u64>,
}

/// What `deliver` takes.
#[derive(Debug, Args)]
pub struct DeliverArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// How long it may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = SENDING.as_secs())]
    time_limit: u64,
}

/// The points of a boot as they are typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PointName {
    /// In the initramfs: the network was tried, Ignition is about to fetch
    Network,
    /// In the initramfs: Ignition failed
    IgnitionFailed,
    /// In the initramfs: Ignition is done, the network is about to be handed over
    Leaving,
    /// The real root runs
    RealRoot,
    /// The kubelet has made the key it will ask a certificate for; waits for it
    KubeletKey,
}

impl From<PointName> for Point {
    fn from(name: PointName) -> Self {
        match name {
            PointName::Network => Point::Network,
            PointName::IgnitionFailed => Point::IgnitionFailed,
            PointName::Leaving => Point::Leaving,
            PointName::RealRoot => Point::RealRoot,
            PointName::KubeletKey => Point::KubeletKey,
        }
    }
}

/// Where the machine is.
#[derive(Debug, Args)]
struct PlaceArgs {
    /// Folder that stands for the machine; its real root is DIR/sysroot, its boot partition DIR/boot-partition
    #[arg(long, default_value = "/", value_name = "DIR")]
    root: PathBuf,
    /// Folder with the files of the boot partition
    #[arg(long, value_name = "DIR")]
    boot: Option<PathBuf>,
}

/// Runs one verb; what it says goes to `output`.
pub fn run(command: &FirstbootCommand, output: &mut dyn Write) -> Result<(), FirstbootError> {
    let mut said = Vec::new();
    let outcome = match command {
        FirstbootCommand::CopyNetwork(CopyNetworkArgs { place }) => {
            copy_network(&Root::new(&place.root), place.boot.as_deref()).map(|done| said.extend(done))
        }
        FirstbootCommand::Propagate(PropagateArgs { place, policy }) => {
            let root = Root::new(&place.root);
            propagate(&root, policy.unwrap_or_else(|| root.policy()), &mut RealDisk).map(|done| {
                said.extend(done.said);
                said.extend(done.handover.reasons);
            })
        }
        FirstbootCommand::Report(ReportArgs { place, point, policy, time_limit }) => {
            let point = Point::from(*point);
            let usual = if point == Point::KubeletKey { WAITING_FOR_KEY } else { SENDING };
            let time_limit = time_limit.map_or(usual, Duration::from_secs);
            let root = Root::new(&place.root);
            let policy = policy.unwrap_or_else(|| root.policy());
            witness::report(&Task { root, boot: place.boot.clone(), point, policy, time_limit }, output);
            Ok(())
        }
        FirstbootCommand::Deliver(DeliverArgs { place, time_limit }) => {
            let time_limit = Duration::from_secs(*time_limit);
            witness::deliver(&Root::new(&place.root), place.boot.as_deref(), time_limit, output);
            Ok(())
        }
    };
    for line in said {
        // A console that is gone must not stop a boot.
        let _ = writeln!(output, "kiln: {line}");
    }
    outcome
}
