//! What is true about a node's network, its first boot and its Ignition config.
//!
//! Everything here is a function of its arguments: same input, same output.
//! **Invariant:** no I/O, no clock, no randomness, no global state. Reading files and asking machines
//! is done by the `kiln` crate, translating upstream kinds by `kiln-api`.

pub mod agent_token;
pub mod assignment;
pub mod beacon;
pub mod beacon_token;
pub mod boot;
pub mod boot_token;
pub mod bootstrap_token;
pub mod certificate_request;
pub mod change;
pub mod check;
pub mod diagnostic;
pub mod doctor;
pub mod document;
pub mod health;
pub mod ignition;
pub mod keyfile;
pub mod machine;
pub mod machine_config;
pub mod net;
pub mod network;
pub mod nmstate;
pub mod payload;
pub mod plan;
pub mod policy;
pub mod pool_token;
pub mod provision;
pub mod replicas;
pub mod rollout;
pub mod signed_token;
pub mod small_set;
pub mod source;
pub mod timeline;
pub mod user_data;
pub mod world;
