//! The one thread that writes: whatever waits shares a transaction.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use arc_swap::ArcSwap;
use rusqlite::Transaction;
use tokio::sync::{Notify, mpsc, oneshot};

use super::database::{self, Database};
use super::event_log::{Event, EventKind, EventLogs};
use super::restore::{self, RestoreError, Restored, Source};
use super::snapshot::Snapshot;
use super::{Draft, Key, Stored, Write, WriteError};
use crate::identity::{TokenHash, TokenRecord};
use crate::metrics::StoreFigures;
use crate::packed::Sample;
use crate::secrecy::Sealer;

type Answer = oneshot::Sender<Result<Arc<Stored>, WriteError>>;
/// What the objects of each collection are packed by.
pub(super) type Samples = HashMap<Arc<str>, Sample>;
type TokenAnswer = oneshot::Sender<Result<(), WriteError>>;

/// A change of the tokens, which have no revisions and no watchers.
#[derive(Debug)]
pub(super) enum TokenChange {
    Put(TokenHash, TokenRecord),
    Remove(TokenHash),
}

#[derive(Debug)]
pub(super) enum Command {
    Write { write: Write, answer: Answer },
    Token { change: TokenChange, answer: TokenAnswer },
    Restore { source: Box<Source>, answer: oneshot::Sender<Result<Restored, RestoreError>> },
    Close { answer: oneshot::Sender<()> },
}

/// Writes that share a transaction at most: what one client waits for the others.
const BATCH: usize = 256;

pub(super) struct Writer {
    pub(super) database: Database,
    pub(super) snapshot: Arc<ArcSwap<Snapshot>>,
    pub(super) samples: Samples,
    pub(super) logs: Arc<EventLogs>,
    pub(super) figures: Arc<StoreFigures>,
    pub(super) cleaning: Arc<Notify>,
    pub(super) queue: mpsc::Receiver<Command>,
}

/// What a transaction would change, published once it is committed.
pub(super) struct Batch {
    pub(super) next: Snapshot,
    events: Vec<(Arc<str>, Event)>,
    accepted: Vec<(Answer, Arc<Stored>)>,
    tokens: Vec<TokenAnswer>,
}

impl Writer {
    pub(super) fn run(mut self) {
        let (mut closing, mut next) = (None, None);
        while let Some(first) = next.take().or_else(|| self.queue.blocking_recv()) {
            let first = match first {
                Command::Restore { source, answer } => {
                    let done = self.restore(&source);
                    // The file is gone before the answer.
                    drop(source);
                    let _ = answer.send(done);
                    continue;
                }
                other => other,
            };
            let mut commands = vec![first];
            while commands.len() < BATCH
                && let Ok(more) = self.queue.try_recv()
            {
                // It has a transaction of its own: one that fails must not take others with it.
                if matches!(more, Command::Restore { .. }) {
                    next = Some(more);
                    break;
                }
                commands.push(more);
            }
            closing = self.commit(commands);
            if closing.is_some() {
                break;
            }
        }
        let Writer { database, queue, .. } = self;
        // The lock is released before the answer, so that the folder can be opened again at once.
        drop((database, queue));
        if let Some(answer) = closing {
            let _ = answer.send(());
        }
    }

    /// Carries out what was sent in one transaction. Gives the sender that asked to close.
    fn commit(&mut self, commands: Vec<Command>) -> Option<oneshot::Sender<()>> {
        let mut closing = None;
        let next = Snapshot::clone(&self.snapshot.load());
        let mut batch = Batch { next, events: Vec::new(), accepted: Vec::new(), tokens: Vec::new() };
        let begun = Instant::now();
        match fill(&mut self.database, &mut self.samples, &mut batch, commands, &mut closing) {
            Ok(()) => {
                if !batch.accepted.is_empty() {
                    self.figures.commit.observe(begun.elapsed().as_secs_f64());
                    self.figures.batch.observe(batch.accepted.len() as f64);
                }
                self.figures.healthy.store(true, Ordering::Relaxed);
                let bytes = batch.accepted.iter().map(|(_, stored)| stored.json.len()).sum();
                let objects = batch.accepted.len();
                self.publish(batch);
                let Database { folding, connection, .. } = &mut self.database;
                folding.after_commit(connection, objects, bytes);
            }
            Err(error) => {
                self.figures.failures.fetch_add(1, Ordering::Relaxed);
                self.figures.healthy.store(false, Ordering::Relaxed);
                tracing::error!(%error, "a transaction failed: nothing of it was kept");
                // An answer that cannot be delivered has nobody waiting for it.
                let failed = WriteError::Failed(error.to_string());
                for answer in batch.tokens {
                    let _ = answer.send(Err(failed.clone()));
                }
                for (answer, _) in batch.accepted {
                    let _ = answer.send(Err(failed.clone()));
                }
            }
        }
        closing
    }

    /// Makes everything equal to a backup. An error means that nothing was changed.
    fn restore(&mut self, source: &Source) -> Result<Restored, RestoreError> {
        let begun = Instant::now();
        let next = Snapshot::clone(&self.snapshot.load());
        let mut batch = Batch { next, events: Vec::new(), accepted: Vec::new(), tokens: Vec::new() };
        let restored = restore::commit(source, &mut self.database, &mut self.samples, &mut batch);
        match &restored {
            Ok(_) => {
                self.figures.commit.observe(begun.elapsed().as_secs_f64());
                self.figures.healthy.store(true, Ordering::Relaxed);
                let written = batch.events.iter().filter(|(_, event)| event.kind != EventKind::Deleted);
                let bytes = written.map(|(_, event)| event.object.json.len()).sum();
                let objects = batch.events.len();
                self.publish(batch);
                let Database { folding, connection, .. } = &mut self.database;
                folding.after_commit(connection, objects, bytes);
            }
            Err(error @ RestoreError::Write(why)) => {
                self.figures.failures.fetch_add(1, Ordering::Relaxed);
                self.figures.healthy.store(false, Ordering::Relaxed);
                tracing::error!(%error, %why, "nothing was restored");
            }
            // The backup's fault, not the store's.
            Err(_) => {}
        }
        restored
    }

    /// Logs first, then the snapshot, then the answers: whoever sees a revision finds its events in the log.
    fn publish(&self, batch: Batch) {
        let revision = batch.next.revision;
        let leaves_work = batch.events.iter().any(|(_, event)| leaves_work(event));
        let mut touched = Vec::new();
        for (collection, event) in batch.events {
            let log = self.logs.of(&collection);
            log.append(event);
            if !touched.iter().any(|known| Arc::ptr_eq(known, &log)) {
                touched.push(log);
            }
        }
        self.snapshot.store(Arc::new(batch.next));
        for log in touched {
            log.wake(revision);
        }
        if leaves_work {
            self.cleaning.notify_one();
        }
        for (answer, stored) in batch.accepted {
            let _ = answer.send(Ok(stored));
        }
        for answer in batch.tokens {
            let _ = answer.send(Ok(()));
        }
    }
}

/// Whether somebody must look what follows: for what it owned, for its owners, for its finalizers.
fn leaves_work(event: &Event) -> bool {
    event.kind == EventKind::Deleted || event.object.index.deleting || !event.object.index.owners.is_empty()
}

fn fill(
    database: &mut Database,
    samples: &mut Samples,
    batch: &mut Batch,
    commands: Vec<Command>,
    closing: &mut Option<oneshot::Sender<()>>,
) -> rusqlite::Result<()> {
    let Database { connection, sealer, .. } = database;
    let transaction = connection.transaction()?;
    let mut failure = None;
    for command in commands {
        match command {
            Command::Close { answer } => *closing = Some(answer),
            // Has a transaction of its own: see `Writer::run`.
            Command::Restore { answer, .. } => {
                let _ = answer.send(Err(WriteError::Closed.into()));
            }
            Command::Write { answer, .. } if closing.is_some() => {
                let _ = answer.send(Err(WriteError::Closed));
            }
            Command::Write { answer, .. } if failure.is_some() => {
                let _ = answer.send(Err(WriteError::Failed("an earlier write of the same transaction failed".into())));
            }
            Command::Token { answer, .. } if closing.is_some() => {
                let _ = answer.send(Err(WriteError::Closed));
            }
            Command::Token { change, answer } => {
                let done = match change {
                    TokenChange::Put(hash, record) => database::put_token(&transaction, &hash, &record),
                    TokenChange::Remove(hash) => database::remove_token(&transaction, &hash),
                };
                if let Err(error) = done {
                    failure = Some(error);
                }
                batch.tokens.push(answer);
            }
            Command::Write { write, answer } => match decide(&batch.next, samples, write) {
                Err(refused) => {
                    let _ = answer.send(Err(refused));
                }
                Ok(change) => {
                    let stored = Arc::clone(&change.event.object);
                    if let Err(error) = record(&transaction, sealer.as_ref(), batch, change) {
                        failure = Some(error);
                    }
                    batch.accepted.push((answer, stored));
                }
            },
        }
    }
    if let Some(error) = failure {
        return Err(error);
    }
    if !batch.accepted.is_empty() {
        database::put_revision(&transaction, batch.next.revision)?;
    }
    transaction.commit()
}

/// What one write makes of one object.
pub(super) struct Change {
    key: Key,
    /// The object's bytes.
    json: Vec<u8>,
    event: Event,
}

impl Change {
    /// The object as of a revision, packed as those of its collection are.
    pub(super) fn new(
        revision: u64,
        samples: &mut Samples,
        key: Key,
        kind: EventKind,
        draft: Draft,
        previous: Option<Arc<Stored>>,
    ) -> Change {
        let Draft { before, after, index } = draft;
        let json = [before.as_slice(), revision.to_string().as_bytes(), after.as_slice()].concat();
        let packed = match samples.get_mut(&key.collection) {
            Some(sample) => sample.pack(&json),
            None => samples.entry(Arc::clone(&key.collection)).or_default().pack(&json),
        };
        let object = Arc::new(Stored { place: key.place.clone(), revision, json: packed, index });
        Change { key, json, event: Event { kind, object, previous } }
    }
}

/// Whether the write may be made on this state, and what it then is.
fn decide(state: &Snapshot, samples: &mut Samples, write: Write) -> Result<Change, WriteError> {
    let revision = state.revision + 1;
    let current = |key: &Key, expected: u64| match state.get(key) {
        None => Err(WriteError::Missing),
        Some(stored) if stored.revision != expected => Err(WriteError::Conflict { current: stored.revision }),
        Some(stored) => Ok(Arc::clone(stored)),
    };
    let (key, kind, draft, previous) = match write {
        Write::Create { key, draft, requires } => {
            if state.get(&key).is_some() {
                return Err(WriteError::Exists);
            }
            state.require(&requires)?;
            (key, EventKind::Added, draft, None)
        }
        Write::Update { key, expected, draft } => {
            let previous = current(&key, expected)?;
            (key, EventKind::Modified, draft, Some(previous))
        }
        Write::Delete { key, expected, draft, empty } => {
            let previous = current(&key, expected)?;
            if empty.is_some_and(|collection| state.count(&collection) > 0) {
                return Err(WriteError::NotEmpty);
            }
            (key, EventKind::Deleted, draft, Some(previous))
        }
    };
    Ok(Change::new(revision, samples, key, kind, draft, previous))
}

/// Writes a change within a transaction, and notes what is to be published after it.
pub(super) fn record(
    transaction: &Transaction<'_>,
    sealer: Option<&Sealer>,
    batch: &mut Batch,
    change: Change,
) -> rusqlite::Result<()> {
    let Change { key, json, event } = change;
    batch.next.revision = event.object.revision;
    if event.kind == EventKind::Deleted {
        database::remove(transaction, &key)?;
        batch.next.remove(&key);
    } else {
        database::put(transaction, sealer, &key.collection, &event.object, &json)?;
        batch.next.put(&key.collection, Arc::clone(&event.object));
    }
    batch.events.push((key.collection, event));
    Ok(())
}
