//! Network policies for running nodes: which nodes they choose, what they become on a node, and one document of all of them.
//!
//! [`NetworkPolicy::read`] takes a NodeNetworkConfigurationPolicy as the API stores it; kubernetes-nmstate's fields mean what
//! they mean there, `spec.kiln` adds the rest. [`compose`] lays the host's own network, the pool's and the policies over each
//! other, field by field, and says of each field whose it is. Deterministic, and independent of the order policies come in.
//!
//! How layers are laid over each other: host < pool < policies by rising `priority`; within a priority by `after` and by what
//! stands on what (a VLAN on its bond), then by name. Interfaces are the same by name, mappings are merged, other values are
//! replaced by the later layer; routes and rules are added. Name servers of a policy replace those of the host, policies of
//! one priority add theirs to each other.
//! Two policies of one priority that want different values of one field: the one that was created first stays in force, the
//! other is refused on that node as a whole, with [`Conflict`]s that name both. Half a policy is never applied.
//!
//! Not here: when a node may change ([`crate::rollout`]), what has to change on it ([`crate::change`]), where captures and
//! addresses that were given out are kept (the caller does that).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;

use crate::assignment::{DriftAction, PolicyReference, Probe, Proof};

mod captures;
mod choice;
mod compose;
mod error;
mod fields;
mod lint;
mod order;
mod parameters;
mod pool;
mod preview;
mod read;
mod stack;
mod template;
mod trunk;

pub use choice::{NodeChoice, Operator, Requirement};
pub use compose::compose;
pub use error::PolicyError;
pub use lint::{Flaw, FlawKind, lint};
pub use parameters::{Parameters, Table, TableKey};
pub use pool::{AddressPool, allocate};
pub use preview::{Outcome, Preview, Risk, preview};
pub use trunk::add_trunks;

/// How many captures a policy may have.
pub const MAX_CAPTURES: usize = 256;
/// How long one capture expression may be, in bytes.
pub const MAX_EXPRESSION: usize = 4096;
/// How many values a desired state may hold, mappings and lists included.
pub const MAX_VALUES: usize = 100_000;
/// How many routes, and how many rules, a desired state may have.
pub const MAX_ROUTES: usize = 4096;
/// How many conflicts are told about one policy on one node.
pub const MAX_CONFLICTS: usize = 100;
/// How deep a desired state may nest.
pub const MAX_DEPTH: usize = 32;

/// The longest of each time a policy may ask for (`timeout`, `soak`, `checkpoint`), in milliseconds.
pub const LONGEST_TIME: u64 = 60 * 60 * 1000;
/// A checkpoint lasts at least so many milliseconds longer than the proof: one that ends before would undo what was about to be kept.
pub const AFTER_PROOF: u64 = 10_000;
/// How many ports of a node one policy may have the hub dial.
pub const MAX_PORTS: usize = 8;

/// A policy, ready to be composed.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkPolicy {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// `metadata.creationTimestamp`, as written; the older policy wins a conflict.
    pub created: String,
    /// Which nodes.
    pub selector: NodeChoice,
    /// Capture expressions by name.
    pub captures: BTreeMap<String, String>,
    /// `spec.desiredState`, a mapping, perhaps with templates.
    pub desired: Value,
    /// `spec.maxUnavailable` as written: a number or a percentage.
    pub max_unavailable: Option<String>,
    /// `spec.kiln`.
    pub options: Options,
}

/// What `spec.kiln` adds to a policy.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// Policies that must be in force on a node before this one, where they select it too.
    pub after: Vec<String>,
    /// A higher one is laid over a lower one and wins. 0 unless written.
    pub priority: i64,
    /// What templates stand for.
    pub parameters: Parameters,
    /// Probes, when written; else those of [`Proof::default`].
    pub probes: Option<Vec<Probe>>,
    /// Milliseconds for the probes to pass first.
    pub within: Option<u64>,
    /// Milliseconds they must go on passing.
    pub soak: Option<u64>,
    /// Milliseconds until NetworkManager itself goes back.
    pub checkpoint: Option<u64>,
    /// Whether a reboot undoes it.
    pub persistence: Persistence,
    /// What is done about drift, when written.
    pub drift: Option<DriftAction>,
    /// Whether nodes shall not begin with it. It is part of the composition all the same: what it changed already stays.
    pub paused: bool,
    /// In which steps nodes get it.
    pub rollout: RolloutWish,
}

/// Whether a reboot undoes a policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Persistence {
    /// It is still there.
    #[default]
    Persistent,
    /// It is gone until the agent applies it again.
    Runtime,
}

/// In which steps nodes get a policy.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RolloutWish {
    /// Who goes first.
    pub canary: Option<Canary>,
    /// The label whose values are the waves, as in `topology.kubernetes.io/zone`.
    pub by: Option<String>,
    /// What a failure does to the others.
    pub on_failure: OnFailure,
}

/// Who goes first.
#[derive(Debug, Clone, PartialEq)]
pub enum Canary {
    /// So many nodes.
    Count(u32),
    /// These.
    Nodes(NodeChoice),
}

/// What a failure does to the other nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// No further node begins.
    #[default]
    Halt,
    /// And those that have changed go back.
    Revert,
}

/// What is known of a node.
#[derive(Debug, Clone, Copy)]
pub struct Node<'a> {
    /// Of the Node object.
    pub name: &'a str,
    /// Of the Node object.
    pub labels: &'a BTreeMap<String, String>,
    /// The host's own network.
    pub base: Option<&'a Value>,
    /// The pool's.
    pub pool: Option<&'a Value>,
    /// Its NodeNetworkState, as last published.
    pub current: Option<&'a Value>,
    /// What captures found on it when they were first asked: `[policy][capture]`.
    pub captured: &'a Captured,
    /// Which addresses of pools were given out: `[policy][pool][node]`.
    pub allocations: &'a Allocations,
}

/// What captures found on a node, by policy: a mapping from the capture's name to an nmstate document.
pub type Captured = BTreeMap<String, Value>;

/// Addresses given to nodes: `[policy][pool][node]`.
pub type Allocations = BTreeMap<String, BTreeMap<String, BTreeMap<String, IpAddr>>>;

/// The network of one node, made of its layers.
#[derive(Debug, Clone, PartialEq)]
pub struct Composed {
    /// Every layer.
    pub network: Value,
    /// Without the policies that a reboot undoes, and those that stand on them.
    pub persistent: Value,
    /// Whose each field is: `interfaces[bond0].mtu` to `host`, `pool` or `policy/NAME`.
    pub owners: BTreeMap<String, String>,
    /// The policies that are in it, in the order they were laid over each other.
    pub policies: Vec<PolicyReference>,
    /// What captures of these policies found, to be kept and passed again.
    pub captured: Captured,
    /// Policies that choose the node and are not in it, with the reason, by name.
    pub refused: Vec<(String, PolicyError)>,
    /// Where policies of one priority want different things.
    pub conflicts: Vec<Conflict>,
    /// How a change is proved: what all the policies ask for together.
    pub proof: Proof,
    /// What is done about drift of what belongs to no interface.
    pub drift: DriftAction,
    /// What is done about drift of interfaces, where it is something else: what the policies that own their fields say.
    pub drift_of: BTreeMap<String, DriftAction>,
    /// Which layers own fields of each interface.
    pub layers: BTreeMap<String, BTreeSet<String>>,
    /// SHA-256 over everything above that counts for the node, and the generations of the policies.
    pub revision: String,
}

/// Two policies of one priority and the field they quarrel about.
#[derive(Debug, Clone, PartialEq)]
pub struct Conflict {
    /// `interfaces[bond0].mtu`.
    pub field: String,
    /// The older policy, which stays in force.
    pub kept: String,
    /// What it wants.
    pub kept_value: Value,
    /// The newer policy, which is refused.
    pub refused: String,
    /// What it wants.
    pub refused_value: Value,
}

impl NetworkPolicy {
    /// Whether it means nothing on a node that has not published its state: it has captures, or a table by MAC address.
    pub fn needs_state(&self) -> bool {
        let by_mac = self.options.parameters.tables.iter().any(|table| table.by == TableKey::Mac);
        !self.captures.is_empty() || by_mac
    }
}

impl Composed {
    /// Whether the node must keep what it has: a policy in force on it is refused now (an edit with a mistake, say), and
    /// the composition without it would take its fields away.
    pub fn is_held(&self, applied: &[PolicyReference]) -> bool {
        self.refused.iter().any(|(refused, _)| applied.iter().any(|policy| policy.name == *refused))
    }
}

/// Whether a policy chooses a node.
pub fn select(policy: &NetworkPolicy, node: &Node<'_>) -> bool {
    policy.selector.matches(node.name, node.labels)
}

/// The policies `spec.kiln.after` leads in circles, each circle with its first name repeated at the end.
pub fn cycles(policies: &[NetworkPolicy]) -> Vec<Vec<String>> {
    order::cycles(policies)
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
