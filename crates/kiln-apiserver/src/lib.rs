//! A Kubernetes-compatible API over an embedded store. It knows nothing of hosts.
//!
//! [`Server::open`] opens the store, [`router`] is the whole API as an axum router, which controllers in the same
//! process use without a socket by laying their [`Identity`] over it. [`tls`] has the certificates and the listener for
//! everybody else.
//!
//! Pure: [`change`] (what a write makes of an object), [`patch`], [`schema`], [`selector`], [`table`], [`json_path`],
//! [`protobuf`]. Effects: [`store`], `server/`, [`tls`].

pub mod admission;
pub mod apply;
pub mod audit;
pub mod change;
pub mod definition;
pub mod discovery;
pub mod duplicates;
pub mod error;
pub mod field_set;
pub mod field_walk;
pub mod guard;
pub mod health;
pub mod http;
pub mod identity;
pub mod json_path;
mod kinds;
pub mod managed_fields;
mod metadata;
pub mod metrics;
pub mod names;
pub mod openapi;
pub mod openapi_v2;
pub mod packed;
pub mod patch;
pub mod policy;
pub mod protobuf;
pub mod rate_limit;
pub mod registry;
pub mod request;
pub mod resource;
mod reviews;
pub mod scale;
pub mod schema;
pub mod secrecy;
pub mod selector;
pub mod server;
pub mod store;
pub mod table;
#[cfg(test)]
mod testing;
pub mod timestamp;
pub mod tls;

pub use guard::Settings;
pub use http::router;
pub use identity::{Identity, Tokens};
pub use server::{Limits, Server};
