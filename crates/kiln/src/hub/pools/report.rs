//! What is known of a pool's config, for its status.

use std::collections::{BTreeMap, BTreeSet};

use kiln_core::diagnostic::ObjectId;
use kiln_core::replicas::Fate;
use kiln_core::timeline::Moment;

/// What is known of each pool, by the object that declares it.
pub type PoolReports = BTreeMap<ObjectId, PoolReport>;

/// What is known of one pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolReport {
    /// Its config.
    pub config: ConfigReport,
    /// Whether any machine has fetched with its token.
    pub reached: bool,
    /// Whether the hub knows where nodes reach it.
    pub has_endpoint: bool,
    /// The version its release image names.
    pub release_version: Option<String>,
    /// The payloads its hosts get at present.
    pub payloads: BTreeSet<String>,
    /// How many hosts it has in service; none when it says no number.
    pub replicas: Option<Replicas>,
}

/// How many hosts a pool has in service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replicas {
    /// How many it says.
    pub wanted: u32,
    /// How many it has, without those that go.
    pub in_service: usize,
    /// The others, by namespace and name.
    pub others: BTreeMap<(String, String), OutOfService>,
}

impl Replicas {
    /// Names of the hosts that are going out of service.
    pub fn releasing(&self) -> impl Iterator<Item = (&str, &OutOfService)> {
        let going = self.others.iter().filter(|(_, out)| out.reason == Fate::Released.reason());
        going.map(|((_, name), out)| (name.as_str(), out))
    }
}

/// Why a host is not in service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutOfService {
    /// One word.
    pub reason: &'static str,
    /// One sentence.
    pub message: String,
}

/// What is known of a pool's config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigReport {
    /// Its base is being fetched.
    Pending,
    /// It cannot be had; what was served before is served on.
    Failed(String),
    /// It is rendered.
    Ready {
        /// The hash in the names of its token.
        hash: String,
        /// The Secret with its payload.
        payload: String,
        /// Since when it is the pool's config; none until its token is stored.
        since: Option<Moment>,
        /// What is not in it.
        message: String,
    },
}
