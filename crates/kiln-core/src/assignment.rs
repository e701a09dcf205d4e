//! What the hub asks of a running node, and what the node answers: the words both sides of `/agent/v1/network` speak.
//!
//! The hub composes one document per node from the host's own network, its pool and the policies that select it, and gives
//! the node an [`Assignment`]. The node compares it with what it has, tries the difference under a checkpoint, proves it and
//! answers with a [`Report`]. The hub alone decides who may try and when ([`Permit`]); the node alone decides whether it worked.
//!
//! Not here: how a document is composed ([`crate::policy`]), who may go first ([`crate::rollout`]), what must change on
//! the node ([`crate::change`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What one node's network shall be, and how a change of it is proved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Assignment {
    /// Names everything below except `permit`: a node does not try a revision again that failed on it.
    pub revision: String,
    /// The whole nmstate document, with every layer.
    pub network: Value,
    /// The same without the layers that a reboot shall undo. Equal to `network` when there is none.
    pub persistent: Value,
    /// Which policies are in it, in the order they were laid over each other.
    pub policies: Vec<PolicyReference>,
    /// How the change is proved.
    pub proof: Proof,
    /// What is done when the node's network is no longer what was applied.
    pub drift: DriftAction,
    /// The same for interfaces of which the policies that own their fields say something else, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub drift_of: BTreeMap<String, DriftAction>,
    /// Whether it may be tried now.
    pub permit: Permit,
}

impl Assignment {
    /// What is done about drift on these interfaces: the strictest of what is said about each. A node changes as a whole.
    pub fn drift_on<'n>(&self, interfaces: impl Iterator<Item = &'n str>) -> DriftAction {
        let said = interfaces.map(|name| self.drift_of.get(name).copied().unwrap_or(self.drift));
        said.max().unwrap_or(self.drift)
    }
}

/// A policy at the generation that was composed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyReference {
    /// Of the NodeNetworkConfigurationPolicy.
    pub name: String,
    /// `metadata.generation`.
    pub generation: i64,
}

/// What must hold before a change is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Proof {
    /// Each must pass after the change. Gateway, name servers, hub and API server need not when they failed before it already;
    /// what is named (TCP, HTTP, ping) must in any case: perhaps only the new network reaches it.
    pub probes: Vec<Probe>,
    /// Milliseconds the probes have to pass for the first time.
    pub within: u64,
    /// Milliseconds they must go on passing.
    pub soak: u64,
    /// Milliseconds after which NetworkManager itself goes back, when the agent has died.
    pub checkpoint: u64,
}

impl Default for Proof {
    fn default() -> Self {
        Proof { probes: vec![Probe::Gateway, Probe::Dns, Probe::Hub], within: 20_000, soak: 2_000, checkpoint: 60_000 }
    }
}

/// One thing that must still work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Probe {
    /// The default gateway answers (ARP or neighbour discovery, then ICMP).
    Gateway,
    /// A resolver of the node answers a query, whatever the answer.
    Dns,
    /// A new TLS connection to the hub, which says that it sees the node.
    Hub,
    /// The hub opens a TCP connection to this port of the node, at the address the node asks it from.
    FromHub(u16),
    /// A TCP connection to the API server of the cluster, `HOST:PORT`.
    ApiServer(String),
    /// A TCP connection to `HOST:PORT`.
    Tcp(String),
    /// A GET of the URL is answered with a status below 400.
    Http(String),
    /// The address answers an ICMP echo.
    Ping(String),
}

/// What is done about a network that somebody else changed, the strictest last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum DriftAction {
    /// Take it for right until the document changes.
    Adopt,
    /// Say so.
    #[default]
    Report,
    /// Apply the document again, under the same proof.
    Repair,
}

/// Whether a node may try.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Permit {
    /// Not yet, and why. The node plans and reports the plan.
    Wait(String),
    /// For so many milliseconds from the moment it is received; the node asks again before they are over.
    Go(u64),
}

/// How far a node is with a revision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Report {
    /// Of the assignment.
    pub revision: String,
    /// How far.
    pub phase: Phase,
    /// The strongest effect the change has, or had.
    pub disruption: Disruption,
    /// What would change or has changed, a line for people each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// Milliseconds from the first write to the end, when it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took: Option<u64>,
    /// Milliseconds in which a probe that had passed did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<u64>,
}

/// The stages of a try.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Phase {
    /// Compared and checked; nothing was touched. Waits for a permit.
    Planned,
    /// Written under a checkpoint, being proved.
    Trying,
    /// Kept. Also when nothing had to change.
    Applied,
    /// Put back, and why.
    RolledBack(String),
    /// Not tried: it cannot work on this node, and why.
    Refused(String),
    /// Applied once, and no longer so: what differs.
    Drifted(Vec<String>),
}

/// The strongest effect of a change, in rising order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Disruption {
    /// Nothing changes.
    #[default]
    None,
    /// Profiles are reapplied, or interfaces are added, and no link goes down.
    Reapply,
    /// A link that is in use goes down and up again.
    LinkBounce,
    /// The same for the way to the default gateway or to the hub.
    PrimaryPath,
    /// It takes a reboot.
    Reboot,
}

/// The network of a node as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeState {
    /// nmstate's document of the running system, with routes, rules, DNS and hostname.
    pub current: Value,
    /// As NetworkManager says it.
    pub network_manager_version: String,
    /// Of this program.
    pub agent_version: String,
    /// The revision that is in force, if one was ever applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<String>,
}
