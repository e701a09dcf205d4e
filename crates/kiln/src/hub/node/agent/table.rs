//! What agents are told, in memory: each host's assignments and slot, filled by three watches, and whoever waits for a change.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::Notify;

use super::{Agents, NodeEndpoint};
use crate::hub::controllers::kinds;
use crate::hub::following::{Follower, Following, Place, Query};
use crate::hub::machines::records::{MACHINE, MachineSecret};
use crate::hub::network::records::{ASSIGNMENT, AssignmentRecord, SLOT_LABEL, SlotRecord, Stamp};
use crate::hub::pools::LABEL;

/// What one host is told.
#[derive(Debug, Default)]
pub struct Desk {
    state: Mutex<DeskState>,
    /// Something is new.
    pub changed: Notify,
}

/// Assignments and a slot.
#[derive(Debug, Clone, Default)]
pub struct DeskState {
    /// As it is stored.
    pub assignment: Option<Arc<AssignmentRecord>>,
    /// As it is stored.
    pub slot: Option<Arc<SlotRecord>>,
    /// Of files and units, as it is stored.
    pub machine: Option<Arc<MachineSecret>>,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, DeskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known.
    pub fn get(&self) -> DeskState {
        self.lock().clone()
    }

    /// Takes what is new, and tells whoever waits.
    pub fn put(&self, change: impl FnOnce(&mut DeskState)) {
        change(&mut self.lock());
        self.changed.notify_waiters();
    }
}

/// All desks, by `namespace/host`, and which object lies on which.
#[derive(Debug, Default)]
pub struct Table {
    desks: HashMap<String, Arc<Desk>>,
    assignments: HashMap<String, String>,
    slots: HashMap<String, String>,
    machines: HashMap<String, String>,
}

impl Table {
    /// A host's desk.
    pub fn desk(&mut self, host: &str) -> Arc<Desk> {
        Arc::clone(self.desks.entry(host.to_owned()).or_default())
    }
}

/// What is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Assignments,
    Slots,
    Machines,
}

/// How many watches there are.
pub(super) const WATCHES: usize = 3;

/// Follows what agents are told. Ends only when something is wrong with this program.
pub(in crate::hub::node) async fn observe(endpoint: Arc<NodeEndpoint>) {
    let client = endpoint.client.clone();
    let (secrets, leases) = (Query::all(kinds::SECRET).pages_of(100), Query::all(kinds::LEASE).pages_of(100));
    let mut following = Following::default();
    for (what, query) in [
        (What::Assignments, secrets.clone().labelled(&format!("{LABEL}={ASSIGNMENT}"))),
        (What::Slots, leases.within(client.default_namespace()).labelled(SLOT_LABEL)),
        (What::Machines, secrets.labelled(&format!("{LABEL}={MACHINE}"))),
    ] {
        let of_kind = OfKind { what, endpoint: Arc::clone(&endpoint), is_listed: AtomicBool::new(false) };
        following.add(query, Arc::new(of_kind));
    }
    following.run(client).await;
}

/// One kind of what agents are told.
struct OfKind {
    what: What,
    endpoint: Arc<NodeEndpoint>,
    is_listed: AtomicBool,
}

impl Follower for OfKind {
    fn put(&self, object: &Value) {
        put(&self.endpoint.agents, self.what, object);
    }

    fn remove(&self, object: &Value) {
        remove(&self.endpoint.agents, self.what, &Stamp::of(object).id());
    }

    fn retain(&self, listed: &HashSet<Place>) {
        let agents = &self.endpoint.agents;
        let is_gone = |id: &&String| {
            let (namespace, name) = id.split_once('/').unwrap_or_default();
            !listed.contains(&(namespace.to_owned(), name.to_owned()))
        };
        let gone: Vec<String> = {
            let table = agents.table();
            let of = match self.what {
                What::Assignments => &table.assignments,
                What::Slots => &table.slots,
                What::Machines => &table.machines,
            };
            of.keys().filter(is_gone).cloned().collect()
        };
        gone.iter().for_each(|id| remove(agents, self.what, id));
        // What the server does not show is not known to be nothing: until then agents ask again.
        if !self.is_listed.swap(true, Ordering::AcqRel) {
            agents.unread.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn put(agents: &Agents, what: What, object: &Value) {
    let id = Stamp::of(object).id();
    let mut table = agents.table();
    match what {
        What::Assignments => {
            let Some(record) = AssignmentRecord::read(object).map(Arc::new) else { return };
            table.assignments.insert(id, record.host.clone());
            table.desk(&record.host.clone()).put(|state| state.assignment = Some(record));
        }
        What::Slots => {
            let Some(record) = SlotRecord::read(object).map(Arc::new) else { return };
            table.slots.insert(id, record.slot.node.clone());
            table.desk(&record.slot.node.clone()).put(|state| state.slot = Some(record));
        }
        What::Machines => {
            let Some(record) = MachineSecret::read(object).map(Arc::new) else { return };
            table.machines.insert(id, record.host.clone());
            table.desk(&record.host.clone()).put(|state| state.machine = Some(record));
        }
    }
}

fn remove(agents: &Agents, what: What, id: &str) {
    let mut table = agents.table();
    let host = match what {
        What::Assignments => table.assignments.remove(id),
        What::Slots => table.slots.remove(id),
        What::Machines => table.machines.remove(id),
    };
    let Some(host) = host else { return };
    let desk = table.desk(&host);
    desk.put(|state| match what {
        What::Assignments => state.assignment = None,
        What::Slots => state.slot = None,
        What::Machines => state.machine = None,
    });
    // Whoever waits holds the desk; nobody else needs an empty one.
    let DeskState { assignment, slot, machine } = desk.get();
    if assignment.is_none() && slot.is_none() && machine.is_none() && Arc::strong_count(&desk) <= 2 {
        table.desks.remove(&host);
    }
}
