//! The SQLite file: one table of objects, one of tokens, and what is to be known about the file.
//!
//! A lock file beside it keeps a second process out; SQLite's own locks would let it in and both would count revisions.

use std::borrow::Cow;
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use rusqlite::{Connection, OptionalExtension, Transaction, params};
use serde_json::json;
use time::OffsetDateTime;

use super::folding::Folding;
use super::migrations::{FORMAT, format_of, migrate};
use super::restore::HandedFile;
use super::snapshot::{Place, Snapshot};
use super::writer::Samples;
use super::{Index, Key, OpenError, Stored, sealing};
use crate::identity::{Identity, TokenHash, TokenRecord, Tokens};
use crate::secrecy::{Sealer, Secrecy, is_sealed};

/// The open file and the lock that guards it.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) folding: Folding,
    pub(super) connection: Connection,
    pub(super) sealer: Option<Sealer>,
    _lock: File,
}

/// What was in the file.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) snapshot: Snapshot,
    pub(super) samples: Samples,
    pub(super) tokens: Tokens,
}

impl Database {
    /// Opens or creates the file and reads everything in it.
    pub(super) fn open(folder: &Path, secrecy: Option<&Secrecy>) -> Result<(Database, Loaded), OpenError> {
        let lock = lock(folder)?;
        // What a hub that was killed did not come to restore from.
        drop(HandedFile::of(folder));
        let path = folder.join("store.db");
        drop(open_private(&path)?);
        let failed = |source| OpenError::Database { path: path.clone(), source };
        let mut connection = Connection::open(&path).map_err(failed)?;
        prepare(&mut connection, &path)?;
        let sealer = sealing::settle(&mut connection, &path, secrecy)?;
        let (snapshot, samples) = load(&connection, &path, sealer.as_ref())?;
        let tokens = load_tokens(&connection).map_err(failed)?;
        let folding = Folding::start(&path).map_err(|source| OpenError::File { path: path.clone(), source })?;
        Ok((Database { folding, connection, sealer, _lock: lock }, Loaded { snapshot, samples, tokens }))
    }
}

impl Drop for Database {
    /// Only tidies up: everything answered is in the write-ahead log already.
    fn drop(&mut self) {
        self.folding.end();
        let _ = self.connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
    }
}

/// What keeps a second program out of a folder.
pub(super) const LOCK: &str = "store.lock";

/// Keeps other processes out for as long as the file is open.
pub(super) fn lock(folder: &Path) -> Result<File, OpenError> {
    let path = folder.join(LOCK);
    let lock = open_private(&path)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path }),
        Err(TryLockError::Error(source)) => Err(OpenError::File { path, source }),
    }
}

/// Brings the file to the format of this program.
pub(super) fn prepare(connection: &mut Connection, path: &Path) -> Result<(), OpenError> {
    let failed = |source| OpenError::Database { path: path.to_owned(), source };
    connection.pragma_update(None, "journal_mode", "WAL").map_err(failed)?;
    // FULL: a commit is on the disk before it is answered, also when the power fails.
    connection.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
    // Nobody waits for that: see `folding`.
    connection.pragma_update(None, "wal_autocheckpoint", 0).map_err(failed)?;
    let found = format_of(connection).map_err(failed)?;
    if found > FORMAT {
        return Err(OpenError::Newer { path: path.to_owned(), found, known: FORMAT });
    }
    migrate(connection, found).map_err(failed)
}

/// Writes one object within a transaction.
pub(super) fn put(
    transaction: &Transaction<'_>,
    sealer: Option<&Sealer>,
    collection: &str,
    stored: &Stored,
    json: &[u8],
) -> rusqlite::Result<()> {
    let place = &stored.place;
    let mut insert = transaction
        .prepare_cached("INSERT OR REPLACE INTO objects (collection, namespace, name, json) VALUES (?, ?, ?, ?)")?;
    match sealer.filter(|sealer| sealer.seals(collection)) {
        None => insert.execute(params![collection, &*place.namespace, &*place.name, json]),
        Some(sealer) => {
            let sealed = sealer
                .seal([collection, &place.namespace, &place.name], json)
                .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
            insert.execute(params![collection, &*place.namespace, &*place.name, sealed])
        }
    }
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

/// The newest revision a database remembers.
pub(super) fn read_revision(connection: &Connection) -> rusqlite::Result<u64> {
    let revision: Option<i64> =
        connection.query_row("SELECT value FROM facts WHERE name = 'revision'", [], |row| row.get(0)).optional()?;
    Ok(revision.and_then(|value| u64::try_from(value).ok()).unwrap_or(1))
}

/// Keeps a token within a transaction, and forgets those that have expired.
pub(super) fn put_token(transaction: &Transaction<'_>, hash: &TokenHash, record: &TokenRecord) -> rusqlite::Result<()> {
    let TokenRecord { id, identity: Identity { user, groups }, issued, expires } = record;
    let seconds = |at: OffsetDateTime| at.unix_timestamp();
    transaction.execute("DELETE FROM tokens WHERE expires <= ?", [seconds(*issued)])?;
    transaction
        .execute(
            "INSERT INTO tokens (hash, id, user, member_of, issued, expires) VALUES (?, ?, ?, ?, ?, ?)",
            params![hash, id, user, json!(groups).to_string(), seconds(*issued), expires.map(seconds)],
        )
        .map(drop)
}

/// Forgets a token within a transaction.
pub(super) fn remove_token(transaction: &Transaction<'_>, hash: &TokenHash) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM tokens WHERE hash = ?", [hash]).map(drop)
}

/// Every token of a database.
pub(super) fn load_tokens(connection: &Connection) -> rusqlite::Result<Tokens> {
    let mut tokens = Tokens::default();
    let mut query = connection.prepare("SELECT hash, id, user, member_of, issued, expires FROM tokens")?;
    let mut rows = query.query([])?;
    let at = |seconds: i64| OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    while let Some(row) = rows.next()? {
        let groups: String = row.get(3)?;
        let identity = Identity { user: row.get(2)?, groups: serde_json::from_str(&groups).unwrap_or_default() };
        let expires = row.get::<_, Option<i64>>(5)?.map(at);
        tokens.insert_record(row.get(0)?, TokenRecord { id: row.get(1)?, identity, issued: at(row.get(4)?), expires });
    }
    Ok(tokens)
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

/// Objects that wait for one of the threads that read them.
const AHEAD: usize = 64;

/// One object as it is in the file.
struct Row {
    collection: Arc<str>,
    namespace: String,
    name: String,
    bytes: Vec<u8>,
}

/// What one thread has read.
#[derive(Default)]
struct Part {
    objects: Vec<(Arc<str>, Arc<Stored>)>,
    samples: Samples,
}

/// Reads everything: the file on this thread, what the objects say on others.
fn load(connection: &Connection, path: &Path, sealer: Option<&Sealer>) -> Result<(Snapshot, Samples), OpenError> {
    let failed = |source| OpenError::Database { path: path.to_owned(), source };
    let damaged = |row: Row| OpenError::Damaged {
        path: path.to_owned(),
        collection: row.collection.to_string(),
        namespace: row.namespace,
        name: row.name,
    };
    let mut snapshot = Snapshot::empty(read_revision(connection).map_err(failed)?);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
    let parts = std::thread::scope(|scope| {
        let mut readers = Vec::new();
        for _ in 0..threads {
            let (sender, rows) = sync_channel::<Row>(AHEAD);
            readers.push((sender, scope.spawn(move || read_rows(rows, sealer))));
        }
        let read = read_file(connection, |number, row| {
            // A reader that has met a damaged object takes no more.
            let _ = readers[number % threads].0.send(row);
        });
        let joined = readers.into_iter().map(|(sender, reader)| {
            drop(sender);
            // A panic of a reader is a panic of whoever opens the store.
            reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(damaged)
        });
        let parts: Vec<Result<Part, OpenError>> = joined.collect();
        read.map_err(failed).and_then(|()| parts.into_iter().collect::<Result<Vec<Part>, OpenError>>())
    })?;
    let mut samples = Samples::new();
    for part in parts {
        samples.extend(part.samples);
        for (collection, stored) in part.objects {
            snapshot.revision = snapshot.revision.max(stored.revision);
            snapshot.put(&collection, stored);
        }
    }
    Ok((snapshot, samples))
}

/// Every row of the file, with its number.
fn read_file(connection: &Connection, mut take: impl FnMut(usize, Row)) -> rusqlite::Result<()> {
    let mut query = connection.prepare("SELECT collection, namespace, name, json FROM objects ORDER BY 1")?;
    let mut rows = query.query([])?;
    let mut collection: Arc<str> = "".into();
    let mut number = 0;
    while let Some(row) = rows.next()? {
        let name_of_collection: String = row.get(0)?;
        if *collection != *name_of_collection {
            collection = name_of_collection.into();
        }
        let collection = Arc::clone(&collection);
        take(number, Row { collection, namespace: row.get(1)?, name: row.get(2)?, bytes: row.get(3)? });
        number += 1;
    }
    Ok(())
}

/// Opens, reads and packs objects; gives the one that cannot be read.
fn read_rows(rows: Receiver<Row>, sealer: Option<&Sealer>) -> Result<Part, Row> {
    let mut part = Part::default();
    for row in rows {
        let opened = match is_sealed(&row.bytes) {
            false => Some(Cow::Borrowed(&row.bytes)),
            true => sealer
                .and_then(|sealer| sealer.open([&row.collection, &row.namespace, &row.name], &row.bytes))
                .map(Cow::Owned),
        };
        let Some((json, (revision, index))) = opened.and_then(|json| Index::read(&json).map(|found| (json, found)))
        else {
            return Err(row);
        };
        let json = match part.samples.get_mut(&row.collection) {
            Some(sample) => sample.pack(&json),
            None => part.samples.entry(Arc::clone(&row.collection)).or_default().pack(&json),
        };
        let place = Place { namespace: row.namespace.into(), name: row.name.into() };
        part.objects.push((row.collection, Arc::new(Stored { place, revision, json, index })));
    }
    Ok(part)
}
