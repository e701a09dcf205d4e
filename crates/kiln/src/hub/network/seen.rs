//! What the rollout knows: records of the objects its watches see.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::Notify;

use super::records::{
    ASSIGNMENT, AssignmentRecord, EnactmentRecord, HostRecord, NodeRecord, PolicyRecord, PoolRecord, SLOT_LABEL,
    SlotRecord, Stamp,
};
use crate::hub::controllers::kinds::{
    ENACTMENT, HOST, LEASE, NETWORK_POLICY, NETWORK_STATE, NODE, POOL, SECRET, Watched,
};
use crate::hub::controllers::summary::POOL_NAMESPACE;
use crate::hub::following::{Follower, Following, Place, Query, place};
use crate::hub::machines::records::{MACHINE, MachineSecret};
use crate::hub::pools::LABEL;

/// Records by `namespace/name`.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Hosts with agents.
    pub hosts: BTreeMap<String, Arc<HostRecord>>,
    /// Policies by name.
    pub policies: BTreeMap<String, Arc<PolicyRecord>>,
    /// Names of all policies, also of those that others drive.
    pub declared: BTreeMap<String, ()>,
    /// Slots.
    pub slots: BTreeMap<String, Arc<SlotRecord>>,
    /// Assignments by `namespace/host`.
    pub assignments: BTreeMap<String, Arc<AssignmentRecord>>,
    /// Enactments by name.
    pub enactments: BTreeMap<String, Arc<EnactmentRecord>>,
    /// Nodes by name.
    pub nodes: HashMap<String, Arc<NodeRecord>>,
    /// Networks as nodes see them, by name, as JSON.
    pub states: HashMap<String, Arc<str>>,
    /// Pools by `namespace/name`.
    pub pools: BTreeMap<String, PoolRecord>,
    /// What hosts' files and units shall be, by `namespace/host`.
    pub machines: BTreeMap<String, Arc<MachineSecret>>,
}

/// A kind and what is read of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Hosts,
    Policies,
    Slots,
    Assignments,
    Enactments,
    Nodes,
    States,
    Pools,
    Machines,
}

const ALL: [What; 9] = [
    What::Hosts,
    What::Policies,
    What::Slots,
    What::Assignments,
    What::Enactments,
    What::Nodes,
    What::States,
    What::Pools,
    What::Machines,
];

impl What {
    const fn kind(self) -> Watched {
        match self {
            What::Hosts => HOST,
            What::Policies => NETWORK_POLICY,
            What::Slots => LEASE,
            What::Assignments | What::Machines => SECRET,
            What::Enactments => ENACTMENT,
            What::Nodes => NODE,
            What::States => NETWORK_STATE,
            What::Pools => POOL,
        }
    }

    /// Slots lie where the hub is.
    fn query(self, namespace: &str) -> Query {
        let all = Query::all(self.kind());
        match self {
            What::Slots => all.within(namespace).labelled(SLOT_LABEL),
            What::Assignments => all.labelled(&format!("{LABEL}={ASSIGNMENT}")),
            What::Machines => all.labelled(&format!("{LABEL}={MACHINE}")),
            _ => all,
        }
    }
}

impl Seen {
    /// Takes an object. Says whether anything is new.
    pub(super) fn put(&mut self, what: What, object: &Value) -> bool {
        let id = id(&place(object));
        match what {
            What::Hosts => {
                let known = self.hosts.get(&id).filter(|known| known.at.uid == Stamp::of(object).uid);
                let known = known.map(|known| known.at.revision.clone());
                !is_older(object, known.as_deref())
                    && replace(&mut self.hosts, id, HostRecord::read(object).map(Arc::new))
            }
            What::Policies => {
                self.declared.insert(id.clone(), ());
                replace(&mut self.policies, id, PolicyRecord::read(object).map(Arc::new))
            }
            What::Slots => {
                let record = SlotRecord::read(object).map(Arc::new);
                let known = self.slots.get(&id).map(|known| known.at.revision.clone());
                !is_older(object, known.as_deref()) && replace(&mut self.slots, id, record)
            }
            What::Assignments => {
                let record = AssignmentRecord::read(object).map(Arc::new);
                let host = record.as_ref().map(|record| record.host.clone());
                replace(&mut self.assignments, host.unwrap_or(id), record)
            }
            What::Enactments => replace(&mut self.enactments, id, Some(Arc::new(EnactmentRecord::read(object)))),
            What::Nodes => {
                let record = Arc::new(NodeRecord::read(object));
                self.nodes.insert(id, Arc::clone(&record)).as_ref() != Some(&record)
            }
            What::States => {
                let state: Arc<str> = object["status"]["currentState"].to_string().into();
                let news = self.states.insert(id, Arc::clone(&state)).as_ref() != Some(&state);
                // Only captures look at it.
                let captures =
                    |record: &Arc<PolicyRecord>| record.policy.as_ref().is_ok_and(|policy| !policy.captures.is_empty());
                news && self.policies.values().any(captures)
            }
            What::Pools => replace(&mut self.pools, id, Some(PoolRecord::read(object))),
            What::Machines => {
                let record = MachineSecret::read(object).map(Arc::new);
                let host = record.as_ref().map(|record| record.host.clone()).unwrap_or(id);
                let known = self.machines.get(&host).filter(|known| known.at.uid == Stamp::of(object).uid);
                let known = known.map(|known| known.at.revision.clone());
                !is_older(object, known.as_deref()) && replace(&mut self.machines, host, record)
            }
        }
    }

    /// The pool a host is in. That of a MachineConfigPool is in `default`, wherever its hosts are.
    pub fn pool_of(&self, host: &HostRecord) -> String {
        let (_, name) = host.pool.split_once('/').unwrap_or_default();
        let elsewhere = format!("{POOL_NAMESPACE}/{name}");
        match !self.pools.contains_key(&host.pool) && self.pools.contains_key(&elsewhere) {
            true => elsewhere,
            false => host.pool.clone(),
        }
    }

    /// Forgets an object.
    pub(super) fn remove(&mut self, what: What, id: &str) -> bool {
        match what {
            What::Hosts => self.hosts.remove(id).is_some(),
            What::Policies => {
                self.policies.remove(id);
                self.declared.remove(id).is_some()
            }
            What::Slots => self.slots.remove(id).is_some(),
            What::Assignments => {
                let before = self.assignments.len();
                self.assignments.retain(|_, record| record.at.id() != id);
                self.assignments.len() != before
            }
            What::Enactments => self.enactments.remove(id).is_some(),
            What::Nodes => self.nodes.remove(id).is_some(),
            What::States => {
                self.states.remove(id);
                false
            }
            What::Pools => self.pools.remove(id).is_some(),
            What::Machines => {
                let before = self.machines.len();
                self.machines.retain(|_, record| record.at.id() != id);
                self.machines.len() != before
            }
        }
    }

    /// The API said that this slot is gone.
    pub(super) fn forget_slot(&mut self, id: &str) -> bool {
        self.slots.remove(id).is_some()
    }

    fn ids(&self, what: What) -> Vec<String> {
        match what {
            What::Hosts => self.hosts.keys().cloned().collect(),
            What::Policies => self.declared.keys().cloned().collect(),
            What::Slots => self.slots.keys().cloned().collect(),
            What::Assignments => self.assignments.values().map(|record| record.at.id()).collect(),
            What::Enactments => self.enactments.keys().cloned().collect(),
            What::Nodes => self.nodes.keys().cloned().collect(),
            What::States => self.states.keys().cloned().collect(),
            What::Pools => self.pools.keys().cloned().collect(),
            What::Machines => self.machines.values().map(|record| record.at.id()).collect(),
        }
    }
}

/// Lists may be older than what is known: a slot that was taken must not look free again. Where revisions are no numbers,
/// whatever comes last counts.
fn is_older(object: &Value, known: Option<&str>) -> bool {
    let number = |revision: &str| revision.parse::<u64>().ok();
    let new = object["metadata"]["resourceVersion"].as_str().and_then(number);
    matches!((new, known.and_then(number)), (Some(new), Some(known)) if new < known)
}

fn replace<T: PartialEq>(all: &mut BTreeMap<String, T>, id: String, new: Option<T>) -> bool {
    match new {
        None => all.remove(&id).is_some(),
        Some(new) => match all.get(&id) {
            Some(known) if *known == new => false,
            _ => {
                all.insert(id, new);
                true
            }
        },
    }
}

/// What the watches and the controller share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    state: Mutex<(Seen, usize)>,
    pub(super) changed: Notify,
    /// The same, for whoever keeps files and units.
    pub(crate) changed_for_machines: Notify,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, (Seen, usize)> {
        // Every change is one call.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known, when everything was read once.
    pub(crate) fn seen(&self) -> Option<Seen> {
        let state = self.lock();
        (state.1 >= ALL.len()).then(|| state.0.clone())
    }

    /// Whether the hub's own API has a Node of this name.
    pub(crate) fn has_node(&self, name: &str) -> bool {
        self.lock().0.nodes.contains_key(name)
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut Seen) -> bool) {
        if change(&mut self.lock().0) {
            self.tell();
        }
    }

    fn first_list_is_read(&self) {
        self.lock().1 += 1;
        self.tell();
    }

    fn tell(&self) {
        self.changed.notify_one();
        self.changed_for_machines.notify_one();
    }
}

/// One kind of what is known.
struct OfKind {
    what: What,
    shared: Arc<Shared>,
}

/// Follows everything that the rollout knows.
pub(crate) fn follow(following: &mut Following, shared: &Arc<Shared>, namespace: &str) {
    for what in ALL {
        following.add(what.query(namespace), Arc::new(OfKind { what, shared: Arc::clone(shared) }));
    }
}

impl Follower for OfKind {
    fn put(&self, object: &Value) {
        self.shared.update(|seen| seen.put(self.what, object));
    }

    fn remove(&self, object: &Value) {
        self.shared.update(|seen| seen.remove(self.what, &id(&place(object))));
    }

    fn retain(&self, listed: &HashSet<Place>) {
        // A slot that an old list does not have is ended by whoever asks for that very slot.
        if self.what == What::Slots {
            return;
        }
        let listed: HashSet<String> = listed.iter().map(id).collect();
        self.shared.update(|seen| {
            let gone: Vec<String> = seen.ids(self.what).into_iter().filter(|id| !listed.contains(id)).collect();
            gone.iter().filter(|id| seen.remove(self.what, id)).count() > 0
        });
    }

    fn read_once(&self) {
        self.shared.first_list_is_read();
    }
}

/// `namespace/name`, or the name alone.
fn id((namespace, name): &Place) -> String {
    if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") }
}
