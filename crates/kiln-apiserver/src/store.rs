//! The store: objects as JSON bytes, durable in SQLite, read from immutable snapshots in memory.
//!
//! A write is answered only after the transaction that holds it is on the disk (`synchronous=FULL`). One thread writes;
//! whatever waits when it begins shares a transaction, so many clients cost one fsync. Readers never lock: they hold
//! a [`Snapshot`], in which every collection is as of one revision. Watches read the bounded [`EventLog`] of their
//! collection.
//!
//! Revisions come from one counter for everything, are persisted with each commit and never go back: a deletion takes
//! one of its own, because a client that saw a deletion resumes from the revision in it.
//!
//! Not here: what an object means. A collection is a name, an object is bytes with an [`Index`].

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use serde_json::Value;
use tokio::sync::{Notify, mpsc, oneshot};

pub use event_log::{Event, EventKind, EventLog, Expired};
pub use index::Index;
pub use snapshot::{Key, Place, Snapshot, Stored};

use crate::identity::{TokenHash, TokenRecord, Tokens};
use crate::metrics::StoreFigures;
use crate::secrecy::{KeyError, Secrecy};
use event_log::EventLogs;
use writer::{Command, TokenChange};

pub mod backup;
mod database;
mod event_log;
mod folding;
mod index;
mod migrations;
pub mod restore;
mod sealing;
mod snapshot;
mod writer;

/// How much the store keeps in memory for watches.
#[derive(Debug, Clone, Copy)]
pub struct StoreLimits {
    /// Events kept per collection.
    pub log_events: usize,
    /// Bytes of objects kept per collection's log.
    pub log_bytes: usize,
}

impl Default for StoreLimits {
    fn default() -> Self {
        StoreLimits { log_events: 20_000, log_bytes: 16 << 20 }
    }
}

/// Why the store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("`{}` is in use by another process: stop it first", path.display())]
    InUse {
        /// The lock file.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("cannot open `{}`", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// SQLite refused.
    #[error("cannot open the database `{}`", path.display())]
    Database {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
    /// The database was written by a newer program.
    #[error("`{}` has format {found}, this program reads up to {known}: use the newer program", path.display())]
    Newer {
        /// Which file.
        path: PathBuf,
        /// The format in the file.
        found: i64,
        /// The newest format known here.
        known: i64,
    },
    /// Sealed objects stay closed.
    #[error("the store's sealed objects cannot be opened")]
    Key(#[from] KeyError),
    /// A row is not an object.
    #[error("`{}`: {collection} {namespace}/{name} cannot be read as an object: restore a backup", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// The collection of the row.
        collection: String,
        /// The namespace of the row, empty for cluster-wide objects.
        namespace: String,
        /// The name in the row.
        name: String,
    },
}

/// One change. The revision is given by the store.
#[derive(Debug)]
pub enum Write {
    /// The object must not exist; what it `requires` must, and must not be under deletion.
    Create {
        /// Where.
        key: Key,
        /// What.
        draft: Draft,
        /// What must exist at that moment: the namespace it goes to, the definition of its kind.
        requires: Vec<Key>,
    },
    /// The object must have this revision.
    Update {
        /// Where.
        key: Key,
        /// The revision the change was computed from.
        expected: u64,
        /// What.
        draft: Draft,
    },
    /// The object must have this revision; watchers get `draft` as its last state.
    Delete {
        /// Where.
        key: Key,
        /// The revision the decision was taken on.
        expected: u64,
        /// The last state.
        draft: Draft,
        /// A collection that must have no objects at that moment: the one a definition defines.
        empty: Option<Arc<str>>,
    },
}

/// Why a change was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// An object of that name exists.
    #[error("exists already")]
    Exists,
    /// No object of that name exists.
    #[error("does not exist")]
    Missing,
    /// The object was changed since it was read.
    #[error("was changed meanwhile, its revision is {current}")]
    Conflict {
        /// The revision it has now.
        current: u64,
    },
    /// What it requires does not exist.
    #[error("requires an object that does not exist")]
    RequirementMissing(Key),
    /// What it requires is under deletion: who empties it must not meet anything new.
    #[error("requires an object that is under deletion")]
    RequirementLeaving(Key),
    /// The collection that must be empty is not.
    #[error("has objects")]
    NotEmpty,
    /// The disk or SQLite refused; nothing of it was kept.
    #[error("the database refused the transaction: {0}")]
    Failed(String),
    /// The store is shut down.
    #[error("the store is shut down")]
    Closed,
}

/// An object's JSON with a gap where the revision goes, so that the writer need not parse it.
#[derive(Debug, Clone)]
pub struct Draft {
    /// Everything before the digits of `metadata.resourceVersion`.
    pub before: Vec<u8>,
    /// Everything after them.
    pub after: Vec<u8>,
    /// What selectors and the garbage collector ask about it.
    pub index: Index,
}

impl Draft {
    /// Splits an object where its revision goes. The type comes first, then the revision, so that the bytes before it
    /// do not depend on what the object holds.
    pub fn new(object: &Value) -> Draft {
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
        let mut before = br#"{"apiVersion":"#.to_vec();
        append(&mut before, text("apiVersion"));
        before.extend_from_slice(br#","kind":"#);
        append(&mut before, text("kind"));
        before.extend_from_slice(br#","metadata":{"resourceVersion":""#);
        let mut after = b"\"".to_vec();
        let metadata = object.get("metadata").and_then(Value::as_object);
        for (key, value) in metadata.into_iter().flatten().filter(|(key, _)| *key != "resourceVersion") {
            append_field(&mut after, key, value);
        }
        after.push(b'}');
        let own = ["apiVersion", "kind", "metadata"];
        for (key, value) in object.as_object().into_iter().flatten().filter(|(key, _)| !own.contains(&key.as_str())) {
            append_field(&mut after, key, value);
        }
        after.push(b'}');
        Draft { before, after, index: Index::of(object) }
    }
}

fn append_field(json: &mut Vec<u8>, key: &str, value: &Value) {
    json.push(b',');
    append(json, key);
    json.push(b':');
    append(json, value);
}

/// Writing JSON to memory does not fail.
fn append(json: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
    let _ = serde_json::to_writer(json, value);
}

/// The open store. Dropping it ends the writer after what it has accepted.
#[derive(Debug)]
pub struct Store {
    snapshot: Arc<ArcSwap<Snapshot>>,
    logs: Arc<EventLogs>,
    commands: mpsc::Sender<Command>,
    figures: Arc<StoreFigures>,
    cleaning: Arc<Notify>,
    /// Where the database is, and how it is unsealed: a backup is put there.
    folder: PathBuf,
    secrecy: Option<Secrecy>,
}

/// Writes that may wait for the writer; a client beyond that waits before its request is accepted.
const QUEUE: usize = 1024;

impl Store {
    /// Opens or creates the database in `folder` and starts the writer. Nothing is sealed.
    pub fn open(folder: &Path, limits: StoreLimits) -> Result<Store, OpenError> {
        Store::open_sealed(folder, limits, None).map(|(store, _)| store)
    }

    /// The same with sealed collections; gives the tokens that were kept, too.
    pub fn open_sealed(
        folder: &Path,
        limits: StoreLimits,
        secrecy: Option<&Secrecy>,
    ) -> Result<(Store, Tokens), OpenError> {
        let (database, loaded) = database::Database::open(folder, secrecy)?;
        let database::Loaded { snapshot, samples, tokens } = loaded;
        let logs = Arc::new(EventLogs::new(limits, snapshot.revision));
        let snapshot = Arc::new(ArcSwap::from_pointee(snapshot));
        let (commands, queue) = mpsc::channel(QUEUE);
        let figures = Arc::new(StoreFigures::default());
        let cleaning = Arc::new(Notify::new());
        let writer = writer::Writer {
            database,
            snapshot: Arc::clone(&snapshot),
            samples,
            logs: Arc::clone(&logs),
            figures: Arc::clone(&figures),
            cleaning: Arc::clone(&cleaning),
            queue,
        };
        std::thread::Builder::new()
            .name("store".into())
            .spawn(move || writer.run())
            .map_err(|source| OpenError::File { path: folder.to_owned(), source })?;
        let (folder, secrecy) = (folder.to_owned(), secrecy.cloned());
        Ok((Store { snapshot, logs, commands, figures, cleaning, folder, secrecy }, tokens))
    }

    /// What was counted.
    pub fn figures(&self) -> &StoreFigures {
        &self.figures
    }

    /// Whether writes can be expected to succeed: the writer lives, and the last transaction was committed.
    pub fn is_healthy(&self) -> bool {
        !self.commands.is_closed() && self.figures.healthy.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Keeps a token; returns when it is on the disk.
    pub async fn put_token(&self, hash: TokenHash, record: TokenRecord) -> Result<(), WriteError> {
        self.change_tokens(TokenChange::Put(hash, record)).await
    }

    /// Forgets a token; returns when that is on the disk.
    pub async fn remove_token(&self, hash: TokenHash) -> Result<(), WriteError> {
        self.change_tokens(TokenChange::Remove(hash)).await
    }

    async fn change_tokens(&self, change: TokenChange) -> Result<(), WriteError> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(Command::Token { change, answer }).await.map_err(|_| WriteError::Closed)?;
        answered.await.map_err(|_| WriteError::Closed)?
    }

    /// Everything as of the last commit.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// The events of one collection.
    pub fn log(&self, collection: &str) -> Arc<EventLog> {
        self.logs.of(collection)
    }

    /// Told whenever a change may have left something to clean up: a deletion, a finalizer, an owner.
    pub(crate) fn cleaning(&self) -> &Notify {
        &self.cleaning
    }

    /// Makes one change; returns when it is on the disk.
    pub async fn write(&self, write: Write) -> Result<Arc<Stored>, WriteError> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(Command::Write { write, answer }).await.map_err(|_| WriteError::Closed)?;
        answered.await.map_err(|_| WriteError::Closed)?
    }

    /// Ends the writer and folds the write-ahead log into the database. Later writes fail.
    pub async fn close(&self) {
        let (answer, answered) = oneshot::channel();
        if self.commands.send(Command::Close { answer }).await.is_ok() {
            // An error means that it is closed already.
            let _ = answered.await;
        }
    }
}

/// A name beside a file that no other process takes.
fn temporary_beside(path: &Path, what: &str) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{what}-{}", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests;
