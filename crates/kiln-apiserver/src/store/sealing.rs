//! Sealed collections in the database: opened, sealed for the first time, or sealed anew under another key.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::OpenError;
use crate::secrecy::{self, Derivation, Key32, KeyError, Sealer, Secrecy};

/// What the database remembers of its keys.
struct Known {
    derivation: Derivation,
    wrapped: Vec<u8>,
}

/// The sealer of this database, after everything that must be sealed is.
pub(super) fn settle(
    connection: &mut Connection,
    path: &Path,
    secrecy: Option<&Secrecy>,
) -> Result<Option<Sealer>, OpenError> {
    let failed = |source| OpenError::Database { path: path.to_owned(), source };
    let known = read_known(connection).map_err(failed)?;
    let Some(secrecy) = secrecy else {
        return match known {
            None => Ok(None),
            Some(_) => Err(KeyError::Needed.into()),
        };
    };
    let opened = known.as_ref().map(|known| unwrap_data_key(known, secrecy)).transpose()?;
    let (data, old) = match opened {
        Some(Opened::Current(data)) => (data, None),
        Some(Opened::Previous(old)) => (Key32::random()?, Some(old)),
        None => (Key32::random()?, None),
    };
    let sealer = Sealer::new(&data, &secrecy.collections)?;
    let old = old.map(|old| Sealer::new(&old, &secrecy.collections)).transpose()?;
    let transaction = connection.transaction().map_err(failed)?;
    if known.is_none() || old.is_some() {
        if let secrecy::Unlock::KeyFile { path, make: true } = &secrecy.unlock {
            secrecy::make_key_file(path)?;
        }
        let derivation = Derivation::new(&secrecy.unlock)?;
        let outer = secrecy::read_outer_key(&secrecy.unlock, &derivation)?;
        let outer = outer.ok_or_else(|| KeyError::Wrong { path: secrecy.unlock.path().to_owned() })?;
        let wrapped = secrecy::wrap(&outer, &data)?;
        write_known(&transaction, &Known { derivation, wrapped }).map_err(failed)?;
    }
    let sealed = seal_rows(&transaction, path, &sealer, old.as_ref())?;
    transaction.commit().map_err(failed)?;
    if sealed > 0 {
        // Pages that were left behind still hold what was written before.
        connection.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)").map_err(failed)?;
        tracing::info!(objects = sealed, "objects were sealed under the new key");
    }
    Ok(Some(sealer))
}

/// The sealer of a database that is only read; none when nothing in it is sealed.
pub(super) fn open(
    connection: &Connection,
    path: &Path,
    secrecy: Option<&Secrecy>,
) -> Result<Option<Sealer>, OpenError> {
    let known = read_known(connection).map_err(|source| OpenError::Database { path: path.to_owned(), source })?;
    match (known, secrecy) {
        (None, _) => Ok(None),
        (Some(_), None) => Err(KeyError::Needed.into()),
        (Some(known), Some(secrecy)) => {
            let (Opened::Current(data) | Opened::Previous(data)) = unwrap_data_key(&known, secrecy)?;
            Ok(Some(Sealer::new(&data, &secrecy.collections)?))
        }
    }
}

enum Opened {
    Current(Key32),
    Previous(Key32),
}

fn unwrap_data_key(known: &Known, secrecy: &Secrecy) -> Result<Opened, KeyError> {
    let open = |unlock| {
        let outer = secrecy::read_outer_key(unlock, &known.derivation)?;
        Ok::<_, KeyError>(outer.and_then(|outer| secrecy::unwrap(&outer, &known.wrapped)))
    };
    let wrong = |unlock: &secrecy::Unlock| KeyError::Wrong { path: unlock.path().to_owned() };
    let Some(previous) = &secrecy.previous else {
        return open(&secrecy.unlock)?.map(Opened::Current).ok_or_else(|| wrong(&secrecy.unlock));
    };
    // The new key file may not exist yet, and after the change the old one may be gone.
    match open(&secrecy.unlock) {
        Ok(Some(data)) => Ok(Opened::Current(data)),
        Ok(None) | Err(KeyError::Missing { .. }) => {
            open(previous)?.map(Opened::Previous).ok_or_else(|| wrong(previous))
        }
        Err(error) => Err(error),
    }
}

/// Seals rows that are plain, and those sealed under an old key anew. Says how many.
fn seal_rows(
    transaction: &Transaction<'_>,
    path: &Path,
    sealer: &Sealer,
    old: Option<&Sealer>,
) -> Result<usize, OpenError> {
    let failed = |source| OpenError::Database { path: path.to_owned(), source };
    let mut rows = Vec::new();
    if old.is_some() {
        rows.extend(read_rows(transaction, "substr(json, 1, 1) = x'01'", []).map_err(failed)?);
    }
    for collection in sealer.collections() {
        // The usual start finds nothing here; it reads the sealed collections only.
        let plain = read_rows(transaction, "collection = ? AND substr(json, 1, 1) <> x'01'", [collection]);
        rows.extend(plain.map_err(failed)?);
    }
    let mut update = transaction
        .prepare("UPDATE objects SET json = ? WHERE collection = ? AND namespace = ? AND name = ?")
        .map_err(failed)?;
    for Row { collection, namespace, name, json } in &rows {
        let place = [collection.as_str(), namespace, name];
        let sealed = match old.filter(|_| secrecy::is_sealed(json)) {
            None => sealer.seal(place, json)?,
            Some(old) => {
                let plain = old.open(place, json).ok_or_else(|| OpenError::Damaged {
                    path: path.to_owned(),
                    collection: collection.clone(),
                    namespace: namespace.clone(),
                    name: name.clone(),
                })?;
                sealer.seal(place, &plain)?
            }
        };
        update.execute(params![sealed, collection, namespace, name]).map_err(failed)?;
    }
    Ok(rows.len())
}

struct Row {
    collection: String,
    namespace: String,
    name: String,
    json: Vec<u8>,
}

fn read_rows(transaction: &Transaction<'_>, which: &str, values: impl rusqlite::Params) -> rusqlite::Result<Vec<Row>> {
    let mut query =
        transaction.prepare(&format!("SELECT collection, namespace, name, json FROM objects WHERE {which}"))?;
    let rows = query.query_map(values, |row| {
        Ok(Row { collection: row.get(0)?, namespace: row.get(1)?, name: row.get(2)?, json: row.get(3)? })
    })?;
    rows.collect()
}

fn read_known(connection: &Connection) -> rusqlite::Result<Option<Known>> {
    connection
        .query_row("SELECT salt, rounds, wrapped FROM sealing", [], |row| {
            Ok(Known { derivation: Derivation { salt: row.get(0)?, rounds: row.get(1)? }, wrapped: row.get(2)? })
        })
        .optional()
}

fn write_known(transaction: &Transaction<'_>, known: &Known) -> rusqlite::Result<()> {
    let Known { derivation: Derivation { salt, rounds }, wrapped } = known;
    transaction
        .execute(
            "INSERT OR REPLACE INTO sealing (id, salt, rounds, wrapped) VALUES (1, ?, ?, ?)",
            params![salt, rounds, wrapped],
        )
        .map(drop)
}
