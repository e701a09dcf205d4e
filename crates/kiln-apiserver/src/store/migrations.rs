//! The tables of each format, and how one becomes the next.
//!
//! The format is SQLite's `user_version`. The first format did not set it and said 1 in the table `facts`; that number
//! is still kept up, because programs of that time look only there and must refuse what is newer.

use rusqlite::{Connection, OptionalExtension, Transaction};

/// The newest format.
pub(super) const FORMAT: i64 = 2;

type Migration = fn(&Transaction<'_>) -> rusqlite::Result<()>;

/// The first makes the tables of format 1, the next turns format 1 into 2, and so on.
const MIGRATIONS: [Migration; 2] = [make_objects, add_tokens_and_sealing];

/// The format of a database; 0 for an empty one.
pub(super) fn format_of(connection: &Connection) -> rusqlite::Result<i64> {
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version != 0 {
        return Ok(version);
    }
    let facts: Option<i64> = connection
        .query_row("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'facts'", [], |row| row.get(0))
        .optional()?;
    match facts {
        None => Ok(0),
        Some(_) => connection.query_row("SELECT value FROM facts WHERE name = 'format'", [], |row| row.get(0)),
    }
}

/// Brings an older database to the newest format, all of it or nothing.
pub(super) fn migrate(connection: &mut Connection, from: i64) -> rusqlite::Result<()> {
    let first = usize::try_from(from).unwrap_or(MIGRATIONS.len());
    if first >= MIGRATIONS.len() {
        return Ok(());
    }
    let transaction = connection.transaction()?;
    for migration in MIGRATIONS.iter().skip(first) {
        migration(&transaction)?;
    }
    transaction.pragma_update(None, "user_version", FORMAT)?;
    transaction.execute("UPDATE facts SET value = ? WHERE name = 'format'", [FORMAT])?;
    transaction.commit()?;
    if from > 0 {
        tracing::info!(from, to = FORMAT, "the database was brought to the format of this program");
    }
    Ok(())
}

fn make_objects(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute_batch(
        "CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
         CREATE TABLE objects (
             collection TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, json BLOB NOT NULL,
             PRIMARY KEY (collection, namespace, name)) WITHOUT ROWID;
         INSERT INTO facts (name, value) VALUES ('format', 1), ('revision', 1);",
    )
}

fn add_tokens_and_sealing(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute_batch(
        "CREATE TABLE tokens (
             hash BLOB PRIMARY KEY, id TEXT NOT NULL UNIQUE, user TEXT NOT NULL, member_of TEXT NOT NULL,
             issued INTEGER NOT NULL, expires INTEGER) WITHOUT ROWID;
         CREATE TABLE sealing (
             id INTEGER PRIMARY KEY CHECK (id = 1), salt BLOB NOT NULL, rounds INTEGER NOT NULL, wrapped BLOB NOT NULL);",
    )
}
