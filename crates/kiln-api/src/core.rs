//! The core group (v1): namespaces, nodes, secrets and config maps.
//!
//! Event, Lease and CertificateSigningRequest are made by machines and declare nothing: [`crate::kinds`] carries them.

pub(crate) mod config_map;
pub(crate) mod namespace;
pub(crate) mod node;
pub(crate) mod secret;
