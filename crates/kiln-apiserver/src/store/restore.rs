//! A backup put into a store that is in use: one transaction makes it equal to the backup.
//!
//! Whoever restores puts the database of a backup into the store's folder, under a [name](HANDED_OVER) that is always the
//! same, and says what it hashes to. It is opened beside the store and read row by row by the writer: nothing is in
//! memory that will not stay there. What differs gets a new revision, so that watchers see ordinary changes (or that they
//! must list again, when there were too many for the log) and no revision means two things. What is the same keeps its own.
//!
//! A crash leaves the old state or the new one. The file is removed in every case: when [`Source`] is dropped, or by the
//! next start.
//!
//! Not here: the manifest of a backup and the folder of a hub that does not run, see [`super::backup`].

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, Transaction, params};
use serde_json::Value;
use tokio::sync::oneshot;

use super::backup::{GAP, HIGHEST, RestoredTokens, hash_file};
use super::database::{self, Database, load_tokens, read_revision};
use super::migrations::{FORMAT, format_of, migrate};
use super::writer::{Batch, Change, Command, Samples, record};
use super::{Draft, EventKind, Index, Key, OpenError, Store, Stored, WriteError, sealing};
use crate::identity::Tokens;
use crate::secrecy::{KeyError, Sealer, Secrecy, is_sealed};

/// What the database of a backup is called in the folder of the store that is to become equal to it.
pub const HANDED_OVER: &str = "restore.db";

/// Why the store is as it was.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// Nothing was put there.
    #[error("there is no {HANDED_OVER} in the data folder: `kiln restore` puts it there")]
    NoFile,
    /// Another one was put there.
    #[error("the {HANDED_OVER} in the data folder is another one than announced: does another `kiln restore` run?")]
    AnotherFile,
    /// Sealed objects stay closed.
    #[error(
        "Secrets in the backup are sealed with another key than the hub's: stop the hub, restore, and start it with that key"
    )]
    AnotherKey,
    /// It cannot be opened.
    #[error("the backup cannot be opened")]
    Open(#[from] OpenError),
    /// It cannot be read.
    #[error("the backup cannot be read")]
    Read(#[source] rusqlite::Error),
    /// A row is not an object.
    #[error("the backup is damaged: {collection} {namespace}/{name} cannot be read as an object")]
    Damaged {
        /// The collection of the row.
        collection: String,
        /// The namespace of the row, empty for cluster-wide objects.
        namespace: String,
        /// The name in the row.
        name: String,
    },
    /// Its revision is beyond all that can be.
    #[error("the backup is damaged: nobody comes to its revision {0}")]
    Revision(u64),
    /// The store itself refused.
    #[error("the store refused")]
    Write(#[from] WriteError),
}

/// What became of the store.
#[derive(Debug, Clone)]
pub struct Restored {
    /// The revision of the backup.
    pub from: u64,
    /// Objects that were not there.
    pub created: usize,
    /// Objects that were otherwise.
    pub changed: usize,
    /// Objects that are not in the backup.
    pub deleted: usize,
    /// The revision of the last change.
    pub revision: u64,
    /// The tokens there are now.
    pub tokens: Tokens,
}

/// A database that was handed over, ready to be read.
#[derive(Debug)]
pub(super) struct Source {
    connection: Connection,
    sealer: Option<Sealer>,
    revision: u64,
    tokens: RestoredTokens,
    /// Removed after the connection is closed.
    _file: HandedFile,
}

/// The file under its fixed name; dropped, it is gone.
#[derive(Debug)]
pub(super) struct HandedFile(PathBuf);

impl HandedFile {
    /// That of a folder, whether it is there or not.
    pub(super) fn of(folder: &Path) -> HandedFile {
        HandedFile(folder.join(HANDED_OVER))
    }
}

impl Drop for HandedFile {
    fn drop(&mut self) {
        for end in ["", "-journal", "-wal", "-shm"] {
            let mut name = self.0.as_os_str().to_owned();
            name.push(end);
            match fs::remove_file(&name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(%error, path = %Path::new(&name).display(), "cannot remove what was restored from");
                }
                _ => {}
            }
        }
    }
}

impl Source {
    /// Opens what was handed over, brings it to the format of this program and sees whether its objects can be unsealed.
    /// The file is gone at the end, also when it is refused.
    pub(super) fn open(
        folder: &Path,
        secrecy: Option<&Secrecy>,
        sha256: &str,
        tokens: RestoredTokens,
    ) -> Result<Source, RestoreError> {
        let file = HandedFile::of(folder);
        let path = &file.0;
        let failed = |source| RestoreError::Open(OpenError::Database { path: path.clone(), source });
        let (_, found) = hash_file(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => RestoreError::NoFile,
            _ => RestoreError::Open(OpenError::File { path: path.clone(), source: error }),
        })?;
        if found != sha256 {
            return Err(RestoreError::AnotherFile);
        }
        let mut connection = Connection::open(path).map_err(failed)?;
        let found = format_of(&connection).map_err(failed)?;
        if found > FORMAT {
            return Err(OpenError::Newer { path: path.clone(), found, known: FORMAT }.into());
        }
        migrate(&mut connection, found).map_err(failed)?;
        let sealer = sealing::open(&connection, path, secrecy).map_err(|error| match error {
            OpenError::Key(KeyError::Wrong { .. } | KeyError::Needed) => RestoreError::AnotherKey,
            other => RestoreError::Open(other),
        })?;
        let revision = read_revision(&connection).map_err(failed)?;
        if revision > HIGHEST {
            return Err(RestoreError::Revision(revision));
        }
        Ok(Source { connection, sealer, revision, tokens, _file: file })
    }
}

impl Store {
    /// Makes everything equal to the database that was handed over; returns when that is on the disk. Until then others who
    /// write wait. An error means that nothing was changed.
    pub async fn restore(&self, sha256: String, tokens: RestoredTokens) -> Result<Restored, RestoreError> {
        let (folder, secrecy) = (self.folder.clone(), self.secrecy.clone());
        let opened =
            tokio::task::spawn_blocking(move || Source::open(&folder, secrecy.as_ref(), &sha256, tokens)).await;
        // It panicked, which was printed.
        let source = opened.map_err(|error| WriteError::Failed(error.to_string()))??;
        let (answer, answered) = oneshot::channel();
        let command = Command::Restore { source: Box::new(source), answer };
        self.commands.send(command).await.map_err(|_| WriteError::Closed)?;
        answered.await.map_err(|_| WriteError::Closed)?
    }
}

/// One transaction that makes the store equal to the backup; `batch` is what is to be published after it.
pub(super) fn commit(
    source: &Source,
    database: &mut Database,
    samples: &mut Samples,
    batch: &mut Batch,
) -> Result<Restored, RestoreError> {
    let Database { connection, sealer, .. } = database;
    let transaction = connection.transaction().map_err(refused)?;
    // A store that had come further gave out revisions, too.
    if source.revision > batch.next.revision {
        batch.next.revision = source.revision + GAP;
    }
    let mut writing = Writing { transaction: &transaction, sealer: sealer.as_ref(), samples, batch };
    let deleted = writing.delete_others(source)?;
    let Differences { created, changed, replaced } = writing.put_all(source)?;
    let tokens = writing.replace_tokens(source)?;
    let revision = batch.next.revision;
    database::put_revision(&transaction, revision).map_err(refused)?;
    transaction.commit().map_err(refused)?;
    let (created, deleted) = (created + replaced, deleted + replaced);
    Ok(Restored { from: source.revision, created, changed, deleted, revision, tokens })
}

struct Writing<'a> {
    transaction: &'a Transaction<'a>,
    sealer: Option<&'a Sealer>,
    samples: &'a mut Samples,
    batch: &'a mut Batch,
}

#[derive(Default)]
struct Differences {
    created: usize,
    changed: usize,
    /// Another object of the same name.
    replaced: usize,
}

impl Writing<'_> {
    /// Deletes what is not in the backup; says how much that was.
    fn delete_others(&mut self, source: &Source) -> Result<usize, RestoreError> {
        let before = self.batch.next.clone();
        let mut known = source
            .connection
            .prepare("SELECT 1 FROM objects WHERE collection = ? AND namespace = ? AND name = ?")
            .map_err(RestoreError::Read)?;
        let mut deleted = 0;
        for (collection, stored) in before.all() {
            let place = &stored.place;
            if !known.exists(params![&**collection, &*place.namespace, &*place.name]).map_err(RestoreError::Read)? {
                self.delete(Key { collection: Arc::clone(collection), place: place.clone() }, stored)?;
                deleted += 1;
            }
        }
        Ok(deleted)
    }

    /// Writes what is in the backup and is not there, or is otherwise.
    fn put_all(&mut self, source: &Source) -> Result<Differences, RestoreError> {
        let mut query = source
            .connection
            .prepare("SELECT collection, namespace, name, json FROM objects ORDER BY 1, 2, 3")
            .map_err(RestoreError::Read)?;
        let mut rows = query.query([]).map_err(RestoreError::Read)?;
        let mut differences = Differences::default();
        let mut collection: Arc<str> = "".into();
        while let Some(row) = rows.next().map_err(RestoreError::Read)? {
            let text = |column: usize| row.get::<_, String>(column).map_err(RestoreError::Read);
            let (of, namespace, name) = (text(0)?, text(1)?, text(2)?);
            if *collection != *of {
                collection = of.into();
            }
            let bytes: Vec<u8> = row.get(3).map_err(RestoreError::Read)?;
            let key = Key::new(&collection, &namespace, &name);
            let damaged = || RestoreError::Damaged { collection: collection.to_string(), namespace, name };
            let json = unseal(source.sealer.as_ref(), &key, bytes).ok_or_else(damaged)?;
            self.put(key, &json, &mut differences)?;
        }
        Ok(differences)
    }

    fn put(&mut self, key: Key, json: &[u8], differences: &mut Differences) -> Result<(), RestoreError> {
        let damaged = || RestoreError::Damaged {
            collection: key.collection.to_string(),
            namespace: key.place.namespace.to_string(),
            name: key.place.name.to_string(),
        };
        let (revision, _) = Index::read(json).ok_or_else(damaged)?;
        let present = self.batch.next.get(&key).cloned();
        if present.as_ref().is_some_and(|stored| stored.revision == revision && stored.json == *json) {
            return Ok(());
        }
        let object: Value = serde_json::from_slice(json).map_err(|_| damaged())?;
        let draft = Draft::new(&object);
        let previous = match present {
            None => {
                differences.created += 1;
                None
            }
            Some(stored) if is_same(stored.value(), object) => return Ok(()),
            // A watcher must not take one for the other.
            Some(stored) if stored.index.uid != draft.index.uid => {
                self.delete(key.clone(), &stored)?;
                differences.replaced += 1;
                None
            }
            Some(stored) => {
                differences.changed += 1;
                Some(stored)
            }
        };
        let kind = if previous.is_some() { EventKind::Modified } else { EventKind::Added };
        self.write(key, kind, draft, previous)
    }

    fn delete(&mut self, key: Key, stored: &Arc<Stored>) -> Result<(), RestoreError> {
        self.write(key, EventKind::Deleted, Draft::new(&stored.value()), Some(Arc::clone(stored)))
    }

    fn write(
        &mut self,
        key: Key,
        kind: EventKind,
        draft: Draft,
        previous: Option<Arc<Stored>>,
    ) -> Result<(), RestoreError> {
        let change = Change::new(self.batch.next.revision + 1, self.samples, key, kind, draft, previous);
        record(self.transaction, self.sealer, self.batch, change).map_err(refused)
    }

    fn replace_tokens(&mut self, source: &Source) -> Result<Tokens, RestoreError> {
        self.transaction.execute("DELETE FROM tokens", []).map_err(refused)?;
        let tokens = match source.tokens {
            RestoredTokens::Forget => Tokens::default(),
            RestoredTokens::Keep => load_tokens(&source.connection).map_err(RestoreError::Read)?,
        };
        for (hash, token) in tokens.iter() {
            database::put_token(self.transaction, hash, token).map_err(refused)?;
        }
        Ok(tokens)
    }
}

/// The bytes of an object; nothing when they do not open.
fn unseal(sealer: Option<&Sealer>, key: &Key, bytes: Vec<u8>) -> Option<Vec<u8>> {
    match is_sealed(&bytes) {
        false => Some(bytes),
        true => sealer?.open([&key.collection, &key.place.namespace, &key.place.name], &bytes),
    }
}

/// Whether two objects differ in nothing but their revisions.
fn is_same(mut one: Value, mut other: Value) -> bool {
    for object in [&mut one, &mut other] {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.shift_remove("resourceVersion");
        }
    }
    one == other
}

fn refused(error: rusqlite::Error) -> RestoreError {
    RestoreError::Write(WriteError::Failed(error.to_string()))
}

#[cfg(test)]
mod tests;
