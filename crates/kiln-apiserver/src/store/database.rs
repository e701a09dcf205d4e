//! The SQLite file: one table of objects, one of facts about the file.
//!
//! A lock file beside it keeps a second process out; SQLite's own locks would let it in and both would count revisions.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::snapshot::{Place, Snapshot};
use super::{Index, Key, OpenError, Stored};

/// Counts up with each change of the tables; older ones are converted when they are opened.
const FORMAT: i64 = 1;

/// The open file and the lock that guards it.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) connection: Connection,
    _lock: File,
}

impl Database {
    /// Opens or creates the file and reads everything in it.
    pub(super) fn open(folder: &Path) -> Result<(Database, Snapshot), OpenError> {
        let lock_path = folder.join("store.lock");
        let lock = open_private(&lock_path)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse { path: lock_path }),
            Err(TryLockError::Error(source)) => return Err(OpenError::File { path: lock_path, source }),
        }
        let path = folder.join("store.db");
        drop(open_private(&path)?);
        let failed = |source| OpenError::Database { path: path.clone(), source };
        let connection = Connection::open(&path).map_err(failed)?;
        let format = prepare(&connection).map_err(failed)?;
        if format > FORMAT {
            return Err(OpenError::Newer { path, found: format, known: FORMAT });
        }
        let snapshot = load(&connection, &path)?;
        Ok((Database { connection, _lock: lock }, snapshot))
    }
}

/// Writes one object within a transaction.
pub(super) fn put(transaction: &Transaction<'_>, collection: &str, stored: &Stored) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT OR REPLACE INTO objects (collection, namespace, name, json) VALUES (?, ?, ?, ?)")?
        .execute(params![collection, &*stored.place.namespace, &*stored.place.name, &*stored.json])
        .map(drop)
}

/// Removes one object within a transaction.
pub(super) fn remove(transaction: &Transaction<'_>, key: &Key) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("DELETE FROM objects WHERE collection = ? AND namespace = ? AND name = ?")?
        .execute(params![&*key.collection, &*key.place.namespace, &*key.place.name])
        .map(drop)
}

/// Remembers the newest revision within a transaction, since a deletion leaves no row that has it.
pub(super) fn put_revision(transaction: &Transaction<'_>, revision: u64) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT OR REPLACE INTO facts (name, value) VALUES ('revision', ?)")?
        .execute([i64::try_from(revision).unwrap_or(i64::MAX)])
        .map(drop)
}

fn open_private(path: &PathBuf) -> Result<File, OpenError> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
        .map_err(|source| OpenError::File { path: path.clone(), source })
}

fn prepare(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // FULL: a commit is on the disk before it is answered, also when the power fails.
    connection.pragma_update(None, "synchronous", "FULL")?;
    // 32 MB of log before it is folded into the database: folding stops the writer, and pays per page that changed.
    connection.pragma_update(None, "wal_autocheckpoint", 8000)?;
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
         CREATE TABLE IF NOT EXISTS objects (
             collection TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, json BLOB NOT NULL,
             PRIMARY KEY (collection, namespace, name)) WITHOUT ROWID;
         INSERT OR IGNORE INTO facts (name, value) VALUES ('format', 1), ('revision', 1);",
    )?;
    connection.query_row("SELECT value FROM facts WHERE name = 'format'", [], |row| row.get(0))
}

fn load(connection: &Connection, path: &Path) -> Result<Snapshot, OpenError> {
    let failed = |source| OpenError::Database { path: path.to_owned(), source };
    let revision: Option<i64> = connection
        .query_row("SELECT value FROM facts WHERE name = 'revision'", [], |row| row.get(0))
        .optional()
        .map_err(failed)?;
    let mut snapshot = Snapshot::empty(revision.and_then(|value| u64::try_from(value).ok()).unwrap_or(1));
    let mut query =
        connection.prepare("SELECT collection, namespace, name, json FROM objects ORDER BY 1").map_err(failed)?;
    let mut rows = query.query([]).map_err(failed)?;
    let mut collection: Arc<str> = "".into();
    while let Some(row) = rows.next().map_err(failed)? {
        let read = |index| row.get::<_, String>(index).map_err(failed);
        let (name_of_collection, namespace, name) = (read(0)?, read(1)?, read(2)?);
        let json: Vec<u8> = row.get(3).map_err(failed)?;
        if *collection != *name_of_collection {
            collection = name_of_collection.as_str().into();
        }
        let Some((revision, index)) = Index::read(&json) else {
            return Err(OpenError::Damaged { path: path.to_owned(), collection: name_of_collection, namespace, name });
        };
        let place = Place { namespace: namespace.into(), name: name.into() };
        snapshot.revision = snapshot.revision.max(revision);
        snapshot.put(&collection, Arc::new(Stored { place, revision, json: Bytes::from(json), index }));
    }
    Ok(snapshot)
}
