//! What must be written and done so that running nodes get their files and units in the right order. Pure: [`plan_machines`]
//! decides, the shell carries it out in the order of [`Planned`].
//!
//! | the node's last word | what follows |
//! |---|---|
//! | nothing about what it shall have | it is asked to say what would change |
//! | planned, and nobody would notice | it may go |
//! | planned, and it takes more | it asks for a slot with `status.machine.upkeep`; [`kiln_core::rollout`] gives it, from the budget that networks share. Not while the pool is paused or halted |
//! | the same, with a slot | its Node is emptied if that is needed; then it may go |
//! | working, rebooting | everything stays as it is, however long: a node that is not heard of counts as out |
//! | applied, rolled back, refused, drifted | it must not go on; its Node takes pods again; its slot ends |
//!
//! As many hosts of a pool that failed as may be out halt the rest of it, until there is something else to be had.
//!
//! **Invariant:** a node is told to go only while it holds a slot, and loses the slot only after it was told to wait and has
//! said how it ended, or that it has not begun.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln_core::assignment::Permit;
use kiln_core::diagnostic::ObjectId;
use kiln_core::machine::{MachinePhase, MachineReport, Needs};
use kiln_core::rollout::{Holder, Upkeep};
use serde_json::{Value, json};

use super::records::{MACHINE, MachineSecret, upkeep_of};
use super::wish::{PoolWish, Wish, Wishes};
use crate::hub::controllers::difference::diff_merge;
use crate::hub::controllers::kinds::{HOST, SECRET};
use crate::hub::controllers::plan_objects::{Action, ObjectChange};
use crate::hub::mirror::StatusPatch;
use crate::hub::network::records::{HOST_ANNOTATION, HostRecord};
use crate::hub::network::seen::Seen;
use crate::hub::pools::{HOST_LABEL, LABEL, label};

/// How long after a permit a change may begin, in milliseconds; the node asks again before.
pub(super) const WINDOW: u64 = 60_000;
/// Said to a node that has what it shall have.
const SETTLED: &str = "nothing is to be changed";

/// Where a host stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It has what it shall have.
    Settled,
    /// It may go, for nobody will notice.
    Free,
    /// It has not said what would change.
    Unheard,
    /// It waits, and why.
    Waiting(String),
    /// It holds a slot, and its Node is being emptied.
    Emptying,
    /// It holds a slot and may go.
    Going,
    /// It is at it.
    Working,
    /// It did not work here, and why.
    Failed(String),
    /// Others changed it since.
    Drifted(Vec<String>),
}

impl Standing {
    /// The word for it, in figures.
    pub const fn name(&self) -> &'static str {
        match self {
            Standing::Settled => "settled",
            Standing::Free | Standing::Going => "going",
            Standing::Unheard => "unheard",
            Standing::Waiting(_) => "waiting",
            Standing::Emptying => "emptying",
            Standing::Working => "working",
            Standing::Failed(_) => "failed",
            Standing::Drifted(_) => "drifted",
        }
    }

    /// Whether the node is through with what it was told.
    const fn is_over(&self) -> bool {
        matches!(self, Standing::Settled | Standing::Failed(_) | Standing::Drifted(_))
    }
}

/// A Node that must be emptied before its host may go.
#[derive(Debug, Clone, PartialEq)]
pub struct Emptying {
    /// The host.
    pub host: Arc<HostRecord>,
    /// Name of the pool it is in.
    pub pool: String,
    /// What it shall have.
    pub wish: Wish,
    /// As it is stored.
    pub stored: Option<Arc<MachineSecret>>,
}

/// A host that is through; its Node takes pods again, then its slot ends.
#[derive(Debug, Clone, PartialEq)]
pub struct Freeing {
    /// The host.
    pub host: Arc<HostRecord>,
    /// Name of the pool it is in.
    pub pool: String,
    /// Whether a Node was emptied for it.
    pub emptied: bool,
    /// What its status becomes.
    pub status: StatusPatch,
}

/// What is to be done, in this order.
#[derive(Debug, Default)]
pub struct Planned {
    /// Assignments.
    pub changes: Vec<ObjectChange>,
    /// Hosts that ask for a slot, and what people are told.
    pub statuses: Vec<StatusPatch>,
    /// Hosts that are through.
    pub freeing: Vec<Freeing>,
    /// Nodes to be emptied.
    pub emptying: Vec<Emptying>,
    /// Where each host stands.
    pub standings: BTreeMap<String, Standing>,
}

/// Decides everything.
pub fn plan_machines(seen: &Seen, wishes: &Wishes) -> Planned {
    let mut planned = Planned::default();
    let halted = halted(seen, wishes);
    let slots: BTreeMap<&str, &Holder> =
        seen.slots.values().map(|record| (record.slot.node.as_str(), &record.slot.holder)).collect();
    for (id, host) in &seen.hosts {
        let stored = seen.machines.get(id);
        let Some(wish) = wishes.hosts.get(id) else {
            if !wishes.unsure.contains(id) {
                leave_alone(host, stored, &mut planned);
            }
            continue;
        };
        let pool = wishes.pools.get(&wish.pool);
        let slot = host.machine.upkeep.filter(|upkeep| slots.get(id.as_str()) == Some(&&Holder::Upkeep(*upkeep)));
        let view = View {
            host,
            wish,
            pool,
            slot,
            stored: stored.map(|stored| &**stored),
            halted: halted.contains(&wish.pool),
        };
        let standing = view.standing();
        view.plan(&standing, wishes, &mut planned);
        planned.standings.insert(id.clone(), standing);
    }
    planned
}

/// Pools in which too many hosts failed with what they shall have.
fn halted<'w>(seen: &Seen, wishes: &'w Wishes) -> BTreeSet<&'w ObjectId> {
    let mut counts: BTreeMap<&ObjectId, (usize, usize)> = BTreeMap::new();
    for (id, wish) in &wishes.hosts {
        let Some(host) = seen.hosts.get(id) else { continue };
        let count = counts.entry(&wish.pool).or_default();
        count.0 += 1;
        let failed = about(host, wish)
            .is_some_and(|report| matches!(report.phase, MachinePhase::RolledBack(_) | MachinePhase::Refused(_)));
        count.1 += usize::from(failed);
    }
    let full = |(pool, (hosts, failed)): (&'w ObjectId, (usize, usize))| {
        let budget = wishes.pools.get(pool)?.budget;
        (failed >= budget.written(hosts)).then_some(pool)
    };
    counts.into_iter().filter_map(full).collect()
}

/// What a host has said about what it shall have.
fn about<'a>(host: &'a HostRecord, wish: &Wish) -> Option<&'a MachineReport> {
    host.machine.told.as_ref().map(|(report, _)| report).filter(|report| report.revision == wish.revision)
}

/// Whether the last thing heard of a host is that it is at something.
fn is_busy(host: &HostRecord) -> bool {
    let told = host.machine.told.as_ref();
    told.is_some_and(|(report, _)| matches!(report.phase, MachinePhase::Working | MachinePhase::Rebooting))
}

/// A host that Kiln does not keep, or no more.
fn leave_alone(host: &Arc<HostRecord>, stored: Option<&Arc<MachineSecret>>, planned: &mut Planned) {
    if is_busy(host) {
        return;
    }
    if let Some(stored) = stored {
        planned.changes.push(ObjectChange {
            kind: &SECRET,
            namespace: stored.at.namespace.clone(),
            name: stored.at.name.clone(),
            action: Action::Delete { uid: stored.at.uid.clone(), revision: stored.at.revision.clone() },
        });
        return;
    }
    let Some(status) = status(host, None, None, None) else { return };
    let pool = host.pool.split_once('/').unwrap_or_default().1.to_owned();
    let emptied = is_emptied(host.machine.upkeep);
    planned.freeing.push(Freeing { host: Arc::clone(host), pool, emptied, status });
}

const fn is_emptied(upkeep: Option<Upkeep>) -> bool {
    matches!(upkeep, Some(Upkeep::Drain | Upkeep::Reboot))
}

struct View<'a> {
    host: &'a Arc<HostRecord>,
    wish: &'a Wish,
    pool: Option<&'a PoolWish>,
    /// The slot it asked for and holds.
    slot: Option<Upkeep>,
    stored: Option<&'a MachineSecret>,
    halted: bool,
}

impl View<'_> {
    fn standing(&self) -> Standing {
        if is_busy(self.host) {
            return Standing::Working;
        }
        let Some(report) = about(self.host, self.wish) else { return Standing::Unheard };
        match &report.phase {
            MachinePhase::Applied => Standing::Settled,
            MachinePhase::RolledBack(why) | MachinePhase::Refused(why) => Standing::Failed(why.clone()),
            MachinePhase::Drifted(lines) => Standing::Drifted(lines.clone()),
            MachinePhase::Working | MachinePhase::Rebooting => Standing::Working,
            MachinePhase::Planned => self.of_planned(report.needs),
        }
    }

    fn of_planned(&self, needs: Needs) -> Standing {
        if needs == Needs::Nothing {
            return Standing::Free;
        }
        // A slot for something lighter is given back for one for this.
        let enough = self.slot.filter(|slot| Some(*slot) == stronger(Some(*slot), upkeep_of(needs)));
        match (enough, needs) {
            (Some(_), Needs::Service) => Standing::Going,
            (Some(_), _) if self.told_to_go() => Standing::Going,
            (Some(_), _) => Standing::Emptying,
            (None, _) => Standing::Waiting(self.reason()),
        }
    }

    /// Why it has no slot.
    fn reason(&self) -> String {
        let pool = &self.wish.pool.name;
        if self.halted {
            return format!("the config failed on other nodes of pool {pool}; change it");
        }
        match self.pool {
            Some(PoolWish { paused: true, .. }) => format!("pool {pool} is paused"),
            _ if self.host.asked => "somebody else wants the node out (annotation kiln.dev/upkeep)".to_owned(),
            _ => format!("waits for a slot: too many nodes of pool {pool} or of a policy are out"),
        }
    }

    fn may_ask(&self) -> bool {
        !self.halted && !self.host.asked && self.pool.is_some_and(|pool| !pool.paused)
    }

    fn told_to_go(&self) -> bool {
        self.stored.is_some_and(|stored| {
            stored.assignment.revision == self.wish.revision && matches!(stored.assignment.permit, Permit::Go(_))
        })
    }

    /// What it is told. None: whoever empties its Node says it.
    fn permit(&self, standing: &Standing) -> Option<Permit> {
        let wait = |why: &str| Some(Permit::Wait(why.to_owned()));
        match standing {
            Standing::Settled => wait(SETTLED),
            Standing::Free | Standing::Going => Some(Permit::Go(WINDOW)),
            Standing::Unheard => wait("say what would change"),
            Standing::Waiting(why) => wait(why),
            Standing::Emptying => None,
            Standing::Working if self.told_to_go() => Some(Permit::Go(WINDOW)),
            Standing::Working => wait("finish what was begun"),
            Standing::Failed(_) => wait("it failed on this node; change the config"),
            Standing::Drifted(_) => wait("others have changed what was applied; a new config goes over it"),
        }
    }

    fn plan(&self, standing: &Standing, wishes: &Wishes, planned: &mut Planned) {
        let permit = self.permit(standing);
        let change = permit.and_then(|permit| assignment(self.host, self.wish, wishes, self.stored, permit));
        let told = change.is_none();
        planned.changes.extend(change);
        let upkeep = self.upkeep(standing);
        let waits = match standing {
            Standing::Waiting(why) => Some(why.clone()),
            Standing::Emptying => match self.stored.map(|stored| &stored.assignment) {
                Some(known) if known.revision == self.wish.revision => match &known.permit {
                    Permit::Wait(why) => Some(why.clone()),
                    Permit::Go(_) => None,
                },
                _ => None,
            },
            _ => None,
        };
        let pool = self.wish.pool.name.clone();
        if *standing == Standing::Emptying {
            let stored = self.stored.cloned().map(Arc::new);
            let (host, wish) = (Arc::clone(self.host), self.wish.clone());
            planned.emptying.push(Emptying { host, pool: pool.clone(), wish, stored });
        }
        let Some(status) = status(self.host, Some(&self.wish.revision), upkeep, waits.as_deref()) else { return };
        match self.host.machine.upkeep.is_some() && upkeep.is_none() {
            false => planned.statuses.push(status),
            // First it hears that it must not go on.
            true if told => {
                let emptied = is_emptied(self.host.machine.upkeep);
                planned.freeing.push(Freeing { host: Arc::clone(self.host), pool, emptied, status });
            }
            true => {}
        }
    }

    /// What it asks a slot for, or holds one for.
    fn upkeep(&self, standing: &Standing) -> Option<Upkeep> {
        let before = self.host.machine.upkeep;
        let needs = about(self.host, self.wish).map(|report| report.needs).unwrap_or_default();
        match standing {
            standing if standing.is_over() => None,
            Standing::Free => None,
            // What it holds stays its own until it has said that it does not need it.
            Standing::Unheard => before,
            Standing::Emptying | Standing::Going => before,
            // Without a slot only when somebody took the record away: it is out all the same.
            Standing::Working => before.or_else(|| self.busy_with()),
            Standing::Waiting(_) if self.may_ask() || self.slot.is_some() => stronger(before, upkeep_of(needs)),
            _ => None,
        }
    }

    fn busy_with(&self) -> Option<Upkeep> {
        self.host.machine.told.as_ref().and_then(|(report, _)| upkeep_of(report.needs))
    }
}

/// The stronger of two.
fn stronger(one: Option<Upkeep>, other: Option<Upkeep>) -> Option<Upkeep> {
    let rank = |upkeep: &Option<Upkeep>| match upkeep {
        None => 0,
        Some(Upkeep::Service) => 1,
        Some(Upkeep::Drain) => 2,
        Some(Upkeep::Reboot) => 3,
    };
    if rank(&one) >= rank(&other) { one } else { other }
}

/// The Secret with a host's assignment.
pub fn secret_name(host: &str) -> String {
    format!("machine-{host}")
}

/// How the Secret of a host gets to say this; nothing when it does.
pub fn assignment(
    host: &HostRecord,
    wish: &Wish,
    wishes: &Wishes,
    stored: Option<&MachineSecret>,
    permit: Permit,
) -> Option<ObjectChange> {
    let at = &host.at;
    let text = serde_json::to_string(&wish.assignment(&wishes.rules, permit)).unwrap_or_default();
    let encode = |text: &str| Value::from(STANDARD.encode(text));
    let name = secret_name(&at.name);
    let data = json!({"assignment": encode(&text), "payload": encode(&wish.payload), "overlay": encode(&wish.overlay)});
    let action = match stored {
        None => Action::Create(json!({"apiVersion": "v1", "kind": "Secret", "type": "kiln.dev/machine",
            "metadata": {"name": name, "namespace": at.namespace,
                "labels": {LABEL: MACHINE, HOST_LABEL: label(&at.name)}, "annotations": {HOST_ANNOTATION: at.id()},
                "ownerReferences": [{"apiVersion": HOST.api_version(), "kind": "Host", "name": at.name, "uid": at.uid}]},
            "data": data})),
        Some(stored) if stored.text == text && stored.payload == wish.payload && stored.overlay == wish.overlay => {
            return None;
        }
        Some(stored) => Action::Patch(json!({"metadata": {"resourceVersion": stored.at.revision}, "data": data})),
    };
    Some(ObjectChange { kind: &SECRET, namespace: at.namespace.clone(), name, action })
}

/// How `status.machine` gets to say this; nothing when it does.
fn status(
    host: &HostRecord,
    revision: Option<&str>,
    upkeep: Option<Upkeep>,
    waits: Option<&str>,
) -> Option<StatusPatch> {
    let known = &host.machine;
    let value = |revision: Option<&str>, upkeep: Option<Upkeep>, waits: Option<&str>| {
        let mut all = json!({"revision": revision, "upkeep": upkeep.map(Upkeep::name), "waits": waits});
        if let Some(fields) = all.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        all
    };
    let before = value(known.revision.as_deref(), known.upkeep, known.waits.as_deref());
    let patch = diff_merge(&before, &value(revision, upkeep, waits))?;
    Some(StatusPatch {
        kind: &HOST,
        namespace: host.at.namespace.clone(),
        name: host.at.name.clone(),
        patch: json!({"metadata": {"resourceVersion": host.at.revision}, "status": {"machine": patch}}),
    })
}

#[cfg(test)]
mod tests;
