//! What can be typed: `kiln-firstboot VERB` in an initramfs, `kiln firstboot VERB` elsewhere.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use kiln_core::boot::handover::Policy;

use crate::copy_network::copy_network;
use crate::disk::RealDisk;
use crate::error::FirstbootError;
use crate::propagate::propagate;
use crate::root::Root;

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum FirstbootCommand {
    /// Let the profiles left for the first boot replace those of the kernel arguments
    CopyNetwork(CopyNetworkArgs),
    /// Hand the network of the initramfs over to the real root
    Propagate(PropagateArgs),
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
    /// How: `stock` copies unless the real root has any file, `force` copies over it, `merge` joins both by meaning
    #[arg(long, default_value_t = Policy::Stock, value_name = "stock|force|merge")]
    policy: Policy,
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
            propagate(&Root::new(&place.root), *policy, &mut RealDisk).map(|done| {
                said.extend(done.said);
                said.extend(done.handover.reasons);
            })
        }
    };
    for line in said {
        // A console that is gone must not stop a boot.
        let _ = writeln!(output, "kiln: {line}");
    }
    outcome
}
