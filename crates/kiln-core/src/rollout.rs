//! Who may change its network now: one budget of nodes that are out, over all policies, reboots and drains.
//!
//! [`plan_rollout`] gets what is stored (slots, reports, wishes) and says which slots are given, which end, who waits and
//! why, and what became of each policy on each node. It keeps nothing: after a restart of the hub the same records give the
//! same answer.
//!
//! **Slots.** A node that changes holds a slot. A slot is *given* by the hub and *taken* by the node, which is written down
//! before the node hears of it.
//!
//! | slot | ends |
//! |---|---|
//! | given, not taken | when its time is over, when the wish is another one, when its policy is paused or halted: nothing was begun |
//! | taken | when the node says how its revision ended |
//! | taken, time over, node silent | it is free for others: the node is *lost*. The record stays until the node is heard of again, or goes with its Host: it is a failure of the generations it tried, and takes a place of their budget, so that a change that kills nodes stops at the limit |
//! | taken, time over, node back with the same revision untried | at once; it may try again, but not for ever: the caller counts ([`Rollout::failures`]) |
//! | taken, node answers about a newer revision | at once: a node tells of one revision at a time, so it no longer tries the old one |
//! | reboot, drain, restart of services | when it is no longer asked for; a node that is not back half an hour after its time is lost, too |
//!
//! **Budgets.** A node is *out* when it holds a taken or given slot or says that it tries. A slot is given only if, with it,
//! no more nodes are out than each of these allows: the node's pool, and every policy that selects the node or is still in
//! force on it. A node that is dead or not ready counts where it may be the change that made it so: for a policy whose present
//! generation it has or tried; and for upkeep, as in upstream's pools. Nothing else waits for the dead. A node on which the
//! present generation of a policy failed, or that was lost with it, keeps its place among those that get this generation: one
//! that is bad for nodes harms no more of them than may be out. Of two or more nodes that live one always stays, whatever
//! is written. A pool that says nothing lets one node at a time go for upkeep, as
//! upstream's pools do. A change without effect ([`Disruption::None`]) needs no slot.
//!
//! **Order.** Canary nodes first, then waves by a label, one after the other; a node that is not ready is skipped. As many
//! failures as the budget allows nodes (one on a canary) halt a policy. Policies whose stages wait for each other are told
//! apart by name: the first one's stages hold, so that nothing waits for ever.
//!
//! Not here: clocks and objects, see `kiln::hub::network`; what a node's network shall be, see [`crate::policy`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use crate::assignment::{Disruption, Phase, PolicyReference};
use crate::timeline::Moment;

mod budget;
pub mod conditions;
mod decide;
#[cfg(test)]
mod simulation;

pub use budget::Budget;
pub use decide::plan_rollout;

/// A node with an agent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Node {
    /// Unique among all.
    pub id: String,
    /// Empty without.
    pub pool: String,
    /// For waves.
    pub labels: BTreeMap<String, String>,
    /// Whether it does its work, as far as anybody knows.
    pub ready: bool,
    /// What its network shall be; none until that is known.
    pub wished: Option<Wished>,
    /// Policies in force on it.
    pub applied: Vec<PolicyReference>,
    /// Its last report.
    pub told: Option<Told>,
    /// What it was lost with, and came back without.
    pub lost: Option<Lost>,
    /// Policies that select it and are not in its wish, and why.
    pub refused: BTreeMap<String, String>,
    /// Somebody wants to take it out.
    pub upkeep: Option<Upkeep>,
}

/// That a node was lost with a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// With which.
    pub loss: Loss,
    /// So often that it is not tried again.
    pub given_up: bool,
}

/// A change a node came back without. The same policies may come again in another revision: they are as dangerous there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// The revision it was to.
    pub revision: String,
    /// The policies that were new to the node.
    pub policies: Vec<PolicyReference>,
}

/// What a node's network shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wished {
    /// Of the assignment.
    pub revision: String,
    /// What is in it.
    pub policies: Vec<PolicyReference>,
    /// Whether drift is repaired.
    pub repair: bool,
}

/// A node's last report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// About which revision.
    pub revision: String,
    /// How far it is.
    pub phase: Phase,
    /// The strongest effect of the change.
    pub disruption: Disruption,
    /// When it arrived.
    pub at: Moment,
}

/// Why else a node is taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Upkeep {
    /// It boots.
    Reboot,
    /// Its pods go elsewhere.
    Drain,
    /// Services of it start anew.
    Service,
}

impl Upkeep {
    /// All there are.
    pub const ALL: [Upkeep; 3] = [Upkeep::Reboot, Upkeep::Drain, Upkeep::Service];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Upkeep::Reboot => "reboot",
            Upkeep::Drain => "drain",
            Upkeep::Service => "service",
        }
    }

    /// What a word stands for.
    pub fn parse(word: &str) -> Option<Upkeep> {
        Upkeep::ALL.into_iter().find(|upkeep| upkeep.name() == word)
    }
}

/// Who holds a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// A change of the network.
    Change {
        /// To which revision.
        revision: String,
        /// With which policies in it.
        policies: Vec<PolicyReference>,
    },
    /// Something else.
    Upkeep(Upkeep),
}

/// A record that a node may be out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Which node.
    pub node: String,
    /// What for.
    pub holder: Holder,
    /// Whether the node was told.
    pub taken: bool,
    /// When it was given, taken or renewed last.
    pub renewed: Moment,
    /// When it is over without a word of the node.
    pub expires: Moment,
}

/// A policy as far as order and budget go.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// The nodes it selects.
    pub members: BTreeSet<String>,
    /// How many of them may be out.
    pub budget: Budget,
    /// Who goes first.
    pub canary: Option<Canary>,
    /// In which order the others go.
    pub waves: Option<Waves>,
    /// Nobody else begins.
    pub paused: bool,
    /// When it is halted, nodes that have it get back what they had.
    pub revert: bool,
    /// This generation was taken back.
    pub withdrawn: bool,
}

/// Who goes first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Canary {
    /// So many, by name.
    Count(usize),
    /// These.
    Nodes(BTreeSet<String>),
}

/// Waves by the value of a label. Values that are not listed come after those that are, nodes without the label last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waves {
    /// The label.
    pub label: String,
    /// Values in order.
    pub order: Vec<String>,
}

/// Everything a decision looks at.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// The present.
    pub now: Moment,
    /// All nodes with agents.
    pub nodes: &'a [Node],
    /// All slots.
    pub slots: &'a [Slot],
    /// All policies.
    pub policies: &'a [Policy],
    /// Budgets of pools that say one.
    pub pools: &'a BTreeMap<String, Budget>,
}

/// What is decided.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rollout {
    /// Slots that are given now, by node.
    pub grants: BTreeMap<String, Holder>,
    /// Slots that end, by node, and why.
    pub releases: BTreeMap<String, Ended>,
    /// Changes that nodes came back without, to be counted.
    pub failures: BTreeMap<String, Loss>,
    /// Where each node stands.
    pub nodes: BTreeMap<String, Standing>,
    /// What became of a policy on a node, by policy and node. Nothing about nodes that are skipped.
    pub enactments: BTreeMap<String, BTreeMap<String, Enactment>>,
    /// What became of each policy.
    pub policies: BTreeMap<String, Progress>,
    /// Generations to take back.
    pub withdraw: Vec<PolicyReference>,
    /// When something ends by itself.
    pub next: Option<Moment>,
}

/// Why a slot ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The node said how it ended.
    Finished,
    /// The node never took it.
    NotTaken,
    /// The node is back without its change.
    CameBack,
    /// The Host is gone.
    Gone,
    /// It is no longer asked for.
    NotAsked,
}

/// Where a node stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It has what it shall have.
    Settled,
    /// It holds a slot.
    Going,
    /// It may go without one: nothing changes.
    Free,
    /// It tried, and why it did not work.
    Failed(String),
    /// It took a slot and was not heard of since.
    Lost,
    /// It has not said what it would change.
    Unheard,
    /// It waits.
    Waiting(Reason),
}

/// Why a node waits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// It is not ready.
    NotReady,
    /// Too many are out.
    Budget {
        /// `policy bond0`, `pool site/worker`.
        of: String,
        /// How many may be.
        limit: usize,
    },
    /// Others go first.
    Canary(String),
    /// A wave before it is not done.
    Wave {
        /// Which policy.
        policy: String,
        /// The wave that is under way.
        wave: String,
    },
    /// Somebody paused the policy.
    Paused(String),
    /// The policy failed elsewhere.
    Halted(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NotReady => f.write_str("the node is not ready"),
            Reason::Budget { of, limit: 1 } => write!(f, "waits for a slot: of {of} one node may be out at a time"),
            Reason::Budget { of, limit } => write!(f, "waits for a slot: of {of} {limit} nodes may be out at a time"),
            Reason::Canary(policy) => write!(f, "waits for the canary nodes of policy {policy}"),
            Reason::Wave { policy, wave } => write!(f, "waits for wave {wave} of policy {policy}"),
            Reason::Paused(policy) => write!(f, "policy {policy} is paused"),
            Reason::Halted(policy) => write!(f, "policy {policy} failed on other nodes; edit it"),
        }
    }
}

/// What became of a policy on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enactment {
    /// In force.
    Available,
    /// On its way; what is done.
    Progressing(&'static str),
    /// It waits.
    Pending(Reason),
    /// It did not work.
    Failing(String),
    /// It is not tried, because it failed elsewhere.
    Aborted,
    /// This generation was taken back.
    Withdrawn,
}

/// A policy in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Selected nodes with agents.
    pub matching: usize,
    /// Those that are ready.
    pub ready: usize,
    /// Where it is in force.
    pub available: usize,
    /// Where it failed.
    pub failed: usize,
    /// Where it is not tried any more.
    pub aborted: usize,
    /// Where it waits.
    pub pending: usize,
    /// Nodes that are out, for whatever reason.
    pub out: usize,
    /// Whether it was halted.
    pub halted: bool,
}

impl Node {
    /// Policies of the wish that are not in force.
    fn changing(&self) -> impl Iterator<Item = &PolicyReference> {
        let wished = self.wished.iter().flat_map(|wished| &wished.policies);
        wished.filter(|policy| !self.applied.contains(policy))
    }

    fn has(&self, policy: &Policy) -> bool {
        self.applied.iter().any(|applied| applied.name == policy.name && applied.generation == policy.generation)
    }

    fn tells_of(&self, revision: &str) -> Option<&Told> {
        self.told.as_ref().filter(|told| told.revision == revision)
    }
}

/// Whether nothing more is to be expected of a report.
pub fn is_final(phase: &Phase) -> bool {
    matches!(phase, Phase::Applied | Phase::RolledBack(_) | Phase::Refused(_))
}

type ById<'a> = HashMap<&'a str, &'a Node>;
