//! Small images laid out as CoreOS lays them out, for tests and benchmarks.
//!
//! [`Disk`] writes a partitioned disk with a real ext4 boot partition, [`LiveIso`] a live ISO with its embed areas,
//! [`Initramfs`] an initrd of several members, [`Archive`] a cpio. They need no root, no loop device and no network: the
//! file systems are made by `mke2fs -d` and `genisoimage`. Programs that may be missing are asked for with [`require`].
//!
//! Not here: anything of `kiln-image`. What judges Kiln must not be built with Kiln's own code.
//!
//! A helper that fails is a failed test, so everything here panics with the output of the program that failed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a helper that fails is a failed test"
)]

pub mod bond_vlan;
pub mod boot;
pub mod cpio;
pub mod disk;

pub mod filling;
mod gpt;
pub mod initramfs;
pub mod live_iso;
pub mod oracle;
pub mod packing;
pub mod temp_dir;

pub use boot::{Boot, write_tree};
pub use cpio::Archive;
pub use disk::{Disk, Layout};
pub use initramfs::{CopyNetwork, Initramfs};
pub use live_iso::{Headers, LiveIso};
pub use oracle::{coreos_installer, kubectl, require, require_all, run, skip};
pub use packing::{Packing, Qcow2Options, pack, to_qcow2, unpack};
pub use temp_dir::TempDir;
