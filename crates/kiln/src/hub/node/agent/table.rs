//! What agents are told, in memory: each host's assignments and slot, filled by three watches, and whoever waits for a change.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::runtime::watcher::{self, Event};
use serde_json::Value;
use tokio::sync::Notify;

use super::Agents;
use crate::hub::controllers::kinds;
use crate::hub::machines::records::{MACHINE, MachineSecret};
use crate::hub::network::records::{ASSIGNMENT, AssignmentRecord, SLOT_LABEL, SlotRecord, Stamp};
use crate::hub::pools::LABEL;

/// The wait after the first error; doubled each time.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

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

/// Watches for ever.
pub(in crate::hub::node) async fn observe(client: &Client, agents: &Agents) {
    tokio::join!(
        follow(client, agents, What::Assignments),
        follow(client, agents, What::Slots),
        follow(client, agents, What::Machines)
    );
}

async fn follow(client: &Client, agents: &Agents, what: What) {
    let (api, selector): (Api<DynamicObject>, String) = match what {
        What::Assignments => {
            (Api::all_with(client.clone(), &kinds::SECRET.resource()), format!("{LABEL}={ASSIGNMENT}"))
        }
        What::Machines => (Api::all_with(client.clone(), &kinds::SECRET.resource()), format!("{LABEL}={MACHINE}")),
        What::Slots => {
            let namespace = client.default_namespace();
            (Api::namespaced_with(client.clone(), namespace, &kinds::LEASE.resource()), SLOT_LABEL.into())
        }
    };
    let mut events = pin!(watcher::watcher(api, watcher::Config::default().labels(&selector).page_size(100)));
    let (mut listed, mut first, mut wait) = (HashSet::new(), true, FIRST_WAIT);
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                wait = FIRST_WAIT;
                take(agents, what, event, &mut listed, &mut first);
            }
            Err(error) => {
                tracing::debug!(%error, ?what, "a watch for agents was interrupted");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(LONGEST_WAIT);
            }
        }
    }
}

fn take(agents: &Agents, what: What, event: Event<DynamicObject>, listed: &mut HashSet<String>, first: &mut bool) {
    let value = |object: DynamicObject| serde_json::to_value(object).unwrap_or_default();
    match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => {
            let object = value(object);
            listed.insert(Stamp::of(&object).id());
            put(agents, what, &object);
        }
        Event::InitDone => {
            let names = std::mem::take(listed);
            let known: Vec<String> = {
                let table = agents.table();
                let of = match what {
                    What::Assignments => &table.assignments,
                    What::Slots => &table.slots,
                    What::Machines => &table.machines,
                };
                of.keys().filter(|id| !names.contains(*id)).cloned().collect()
            };
            known.iter().for_each(|id| remove(agents, what, id));
            if std::mem::take(first) {
                agents.unread.fetch_sub(1, Ordering::AcqRel);
            }
        }
        Event::Apply(object) => put(agents, what, &value(object)),
        Event::Delete(object) => remove(agents, what, &Stamp::of(&value(object)).id()),
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
