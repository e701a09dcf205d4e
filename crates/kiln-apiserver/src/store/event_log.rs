//! What happened lately in each collection, for watches.
//!
//! A watcher is a cursor into the log: it has no buffer of its own, and one that falls behind what is kept is told to
//! list again. The log is bounded in events and in bytes. Its floor rises only when something is dropped, so that a
//! watch on a quiet collection never expires because others are busy.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::{StoreLimits, Stored};

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It is new.
    Added,
    /// It changed.
    Modified,
    /// It is gone.
    Deleted,
}

/// One change.
#[derive(Debug)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The object after the change; its last state for a deletion. Its revision is that of the change.
    pub object: Arc<Stored>,
    /// The object before: a selector that matched it and no longer matches turns a change into a deletion.
    pub previous: Option<Arc<Stored>>,
}

/// The cursor is older than what is kept.
#[derive(Debug, PartialEq, Eq)]
pub struct Expired;

/// The events of one collection.
#[derive(Debug)]
pub struct EventLog {
    kept: Mutex<Kept>,
    newest: watch::Sender<u64>,
    limits: StoreLimits,
}

#[derive(Debug)]
struct Kept {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// Events after this revision are all here.
    floor: u64,
}

impl EventLog {
    fn new(limits: StoreLimits, floor: u64) -> EventLog {
        let kept = Kept { events: VecDeque::new(), bytes: 0, floor };
        EventLog { kept: Mutex::new(kept), newest: watch::Sender::new(floor), limits }
    }

    /// Up to `limit` events with revisions above `cursor`, oldest first.
    pub fn read_after(&self, cursor: u64, limit: usize) -> Result<Vec<Arc<Event>>, Expired> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if cursor < kept.floor {
            return Err(Expired);
        }
        let first = kept.events.partition_point(|event| event.object.revision <= cursor);
        Ok(kept.events.iter().skip(first).take(limit).cloned().collect())
    }

    /// Changes whenever there is a new event.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    pub(super) fn append(&self, event: Event) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += weight(&event);
        kept.events.push_back(Arc::new(event));
        while kept.events.len() > self.limits.log_events || kept.bytes > self.limits.log_bytes {
            let Some(dropped) = kept.events.pop_front() else { break };
            kept.bytes -= weight(&dropped);
            kept.floor = dropped.object.revision;
        }
    }

    pub(super) fn wake(&self, revision: u64) {
        self.newest.send_replace(revision);
    }
}

fn weight(event: &Event) -> usize {
    event.object.json.len() + event.previous.as_ref().map_or(0, |previous| previous.json.len())
}

/// The logs of all collections.
#[derive(Debug)]
pub(super) struct EventLogs {
    logs: Mutex<HashMap<Arc<str>, Arc<EventLog>>>,
    limits: StoreLimits,
    /// What happened before the start is not known.
    floor: u64,
}

impl EventLogs {
    pub(super) fn new(limits: StoreLimits, floor: u64) -> EventLogs {
        EventLogs { logs: Mutex::default(), limits, floor }
    }

    pub(super) fn of(&self, collection: &str) -> Arc<EventLog> {
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = logs.get(collection) {
            return Arc::clone(log);
        }
        let log = Arc::new(EventLog::new(self.limits, self.floor));
        logs.insert(collection.into(), Arc::clone(&log));
        log
    }
}
