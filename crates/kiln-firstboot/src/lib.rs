//! The node's side of a first boot: [`copy_network`], [`propagate`](mod@propagate) and the [`witness`] that reports.
//!
//! What is decided is decided by `kiln_core::boot`; here files are read and written. Everything works below a
//! [`Root`](root::Root), so that a test runs the same code on a folder as a machine runs in its initramfs.
//! **Invariant:** nothing that Tokio, kube or axum brings: the program is linked statically and lies in an initramfs.

pub mod boot_partition;
pub mod command;
pub mod copy_network;
pub mod disk;
pub mod error;
pub mod folder;
pub mod links;
pub mod propagate;
pub mod root;
pub mod witness;

pub use command::{FirstbootCommand, run};
