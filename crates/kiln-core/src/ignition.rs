//! Ignition configs: reading, validation, merge, conversion, pointers.
//!
//! [`Config`] is a config whose every field has the right type and whose keys are in the spec's own letter case; it keeps
//! the place of each value. What Ignition would say about it is [`validate::validate`]. The structs of the
//! `ignition-config` crate are reached by [`Config::typed`]; they have neither places nor rules, so the work is done on
//! nodes and the typed form is for those who need fields by name.

mod config;
mod conform;
pub mod convert;
pub mod data_url;
mod files;
mod go_url;
pub mod merge;
pub mod negotiation;
pub mod pointer;
pub mod provenance;
pub mod schema;
mod unit_file;
pub mod validate;
mod version;

pub use config::{Config, ReadConfigError, TypedError, unpack_gzip};
pub use files::{ConfigDirectory, ConfigFile, ConfigLink, Contents, Owner};
pub use version::{SpecVersion, VersionError};
