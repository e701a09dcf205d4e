//! The kinds Kiln reads, and their translation into [`kiln_core::world::World`].
//!
//! Each kind is a serde type in `<group>/<kind>.rs`, read from a document by [`kiln_core::document::read()`], which keeps
//! the place of every field. Nothing here reads files: the `kiln` crate hands in documents.
//! **Invariant:** no decision is taken here. Whatever is wrong with the meaning of an object is found by
//! `kiln_core::check` on the world; only what cannot be read at all is reported from here.

mod agent_install;
mod carried;
mod cluster_management;
mod core;
pub mod definitions;
mod hive;
mod hypershift;
mod intake;
mod kiln;
mod kinds;
mod machine_config;
mod manifest;
mod metadata;
mod metal3;
mod nmstate_io;
mod operator;
mod ovn;
mod ran;
mod redaction;
mod rendering;
mod required;
mod siteconfig;
mod value;

pub use intake::build_world;
pub use kinds::{NATIVE_GROUP, is_read};
