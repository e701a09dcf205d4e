//! What the hub asks of a running node beyond its network: the files, units and kernel arguments its pool declares; and what
//! the node answers. The words both sides of `/agent/v1/machine` speak.
//!
//! The hub names a revision ([`MachineAssignment`]); the config itself, the very one Ignition would get, is fetched apart. The node
//! compares it with what it has, says what the difference takes ([`Needs`]), and does it when it may: the hub alone decides when
//! ([`Permit`]) and empties the node before, the node alone decides whether it worked ([`MachineReport`]).
//!
//! Not here: the network that policies ask for ([`crate::assignment`]), who may be out ([`crate::rollout`]).

use serde::{Deserialize, Serialize};

use crate::assignment::{Permit, Proof};

pub mod config;
pub mod plan;
pub mod rules;
pub mod unit;
pub mod wish;

/// What a node's files and units shall be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MachineAssignment {
    /// Names the config and everything below except `permit`: what failed on a node is not tried again.
    pub revision: String,
    /// What Ignition has no word for.
    #[serde(default)]
    pub system: System,
    /// What each change takes, besides what is built in.
    #[serde(default)]
    pub rules: Rules,
    /// How a change of profiles is proved.
    #[serde(default)]
    pub proof: Proof,
    /// Whether it may be done now.
    pub permit: Permit,
}

/// What MachineConfigs say about the operating system and Ignition cannot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct System {
    /// The OS image; none means that nobody says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os_image_url: Option<String>,
    /// RHCOS extensions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
    /// A kernel other than the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_type: Option<String>,
    /// Whether FIPS mode is asked for.
    pub fips: bool,
}

/// What changes take, in the words of upstream's `nodeDisruptionPolicy`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Rules {
    /// By path: a file, or a folder and everything below it. The longest one counts.
    pub files: Vec<FileRule>,
    /// By name.
    pub units: Vec<UnitRule>,
}

/// What a change of files takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileRule {
    /// Of a file or a folder.
    pub path: String,
    /// In this order.
    pub actions: Vec<Action>,
}

/// What a change of a unit takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UnitRule {
    /// `crio.service`.
    pub name: String,
    /// In this order.
    pub actions: Vec<Action>,
}

/// What puts a change into force.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Action {
    /// Nothing: whoever uses it reads it again.
    None,
    /// systemd reads its units again.
    DaemonReload,
    /// A service reads its configuration again.
    Reload(String),
    /// A service is started anew.
    Restart(String),
    /// Pods go elsewhere before.
    Drain,
    /// The machine boots.
    Reboot,
}

/// The strongest thing a change takes, in rising order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Needs {
    /// Nobody notices.
    #[default]
    Nothing,
    /// Services are reloaded or restarted, or profiles brought into force.
    Service,
    /// The same, after the pods have gone.
    Drain,
    /// A reboot, after the pods have gone.
    Reboot,
}

/// How far a node is with a revision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MachineReport {
    /// Of the assignment.
    pub revision: String,
    /// How far.
    pub phase: MachinePhase,
    /// What it takes, or took.
    #[serde(default)]
    pub needs: Needs,
    /// What would change or has changed, a line for people each, without contents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// Milliseconds from the first write to the end, when it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took: Option<u64>,
}

/// The stages of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum MachinePhase {
    /// Compared; nothing was touched. Waits for a permit.
    Planned,
    /// Being done.
    Working,
    /// Everything is written; the machine boots now.
    Rebooting,
    /// Done and verified. Also when nothing had to change.
    Applied,
    /// Put back, and why.
    RolledBack(String),
    /// Not tried: it cannot be done on a running node, and why.
    Refused(String),
    /// Applied once, and no longer so: what differs.
    Drifted(Vec<String>),
}

/// Why a config cannot be applied to a running node. Never quotes contents: they may be secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// Not a config.
    #[error("this is no Ignition config: {0}")]
    NotRead(String),
    /// Ignition would not take it.
    #[error("Ignition would refuse the config: {0}")]
    Refused(String),
    /// What a running node cannot be given, a mistake each.
    #[error("the config cannot be applied to a running node: {}", .0.join("; "))]
    Unfit(Vec<String>),
    /// What only an installation changes, by section.
    #[error("only an installation changes {}: take the change back, or install the machine anew with this config", .0.join(", "))]
    Irreconcilable(Vec<String>),
}
