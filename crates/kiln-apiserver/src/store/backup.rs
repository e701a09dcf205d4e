//! Backups: one file with everything the store holds, taken while it is in use, and put back into a folder that is not.
//!
//! ```text
//! kiln-backup 1
//! {"revision":…,"parts":[{"name":"store.db","bytes":…,"sha256":"…"},…]}
//! the parts, one after the other
//! ```
//!
//! The copy is made by SQLite (`VACUUM INTO`) in one read transaction of a second connection: what was committed before
//! it began is in it as a whole, and the writer is not held up. Sealed objects stay sealed, and the key is never in it.
//! A restored store goes on [far beyond](GAP) the revision of the backup, because the hub went on after it: a revision
//! that was given out once must not mean something else, and whoever watched from one is told to list again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;

use super::database::{LOCK, lock, prepare, put_revision, read_revision};
use super::migrations::format_of;
use super::restore::HANDED_OVER;
use super::{OpenError, temporary_beside};
use crate::timestamp::render_timestamp;

/// The first line.
const MARK: &str = "kiln-backup 1";
/// Bytes of the manifest at most.
const LONGEST_MANIFEST: u64 = 64 << 10;
/// What a restored store's revision is ahead of the backup's: more than any hub writes between two backups.
pub const GAP: u64 = 1 << 32;

/// No hub comes this far, at a million writes in a second.
pub(super) const HIGHEST: u64 = 1 << 62;

const STORE: &str = "store.db";
const AUTHORITY: [&str; 2] = ["ca.crt", "ca.key"];

/// Why there is no backup, or why it was not put back.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file cannot be read or written.
    #[error("cannot use `{}`", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// SQLite refused.
    #[error("SQLite refused to copy `{}`", path.display())]
    Database {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
    /// There is no store.
    #[error("`{}` holds no store: there is no store.db", folder.display())]
    NoStore {
        /// Where it should be.
        folder: PathBuf,
    },
    /// The file is no backup, or one of a newer program.
    #[error("`{}` is not a backup that this program reads: {why}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// What is in the file is not what was put into it.
    #[error("`{}` is damaged: {part} is not what was backed up; nothing was restored", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Which part.
        part: String,
    },
    /// There is something in the folder.
    #[error("`{}` is not empty: give --replace to replace what the hub has there", folder.display())]
    NotEmpty {
        /// Which folder.
        folder: PathBuf,
    },
    /// The backup has no authority.
    #[error("`{}` holds no authority: it was made without --with-authority", path.display())]
    NoAuthority {
        /// Which file.
        path: PathBuf,
    },
    /// The store is in use, or newer than this program.
    #[error("the store was not restored")]
    Store(#[from] OpenError),
}

/// Whether the authority's key is in a backup. Whoever has it can make certificates for anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithAuthority {
    /// Yes.
    Yes,
    /// No.
    No,
}

/// Which authority a restored folder has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoredAuthority {
    /// The one in the folder; if there is none that of the backup, if that has one; otherwise a new one.
    Keep,
    /// That of the backup.
    FromBackup,
    /// A new one, at the next start.
    New,
}

/// Whether tokens come back, also those that were revoked since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoredTokens {
    /// Yes.
    Keep,
    /// None.
    Forget,
}

/// What a backup says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// When it was made.
    pub created: String,
    /// The revision of the store.
    pub revision: u64,
    /// The format of the database.
    pub format: i64,
    /// Whether it holds sealed objects.
    pub sealed: bool,
    /// What is in it.
    pub parts: Vec<Part>,
}

/// One file in a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its name in the data folder.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Of its bytes, in hexadecimal digits.
    pub sha256: String,
}

/// Writes everything in the store of `folder` to `target`, also while it is served.
pub fn write_backup(folder: &Path, target: &Path, authority: WithAuthority) -> Result<Manifest, BackupError> {
    let store = folder.join(STORE);
    if !store.exists() {
        return Err(BackupError::NoStore { folder: folder.to_owned() });
    }
    let copy = Temporary(temporary_beside(target, "store"));
    copy_database(&store, &copy.0)?;
    let (revision, format, sealed) = describe(&copy.0)?;
    let mut sources = vec![(STORE, copy.0.clone())];
    if authority == WithAuthority::Yes {
        sources.extend(AUTHORITY.map(|name| (name, folder.join(name))));
    }
    let mut parts = Vec::new();
    for (name, path) in &sources {
        let (bytes, sha256) = hash_file(path).map_err(|error| file_error(path, error))?;
        parts.push(Part { name: (*name).to_owned(), bytes, sha256 });
    }
    let created = render_timestamp(OffsetDateTime::now_utc());
    let manifest = Manifest { created, revision, format, sealed, parts };
    let file = Temporary(temporary_beside(target, "backup"));
    let written = |source| BackupError::File { path: file.0.clone(), source };
    let mut output = BufWriter::new(create_private(&file.0)?);
    writeln!(output, "{MARK}\n{}", manifest.render()).map_err(written)?;
    for (_, path) in &sources {
        let mut part = open(path)?;
        io::copy(&mut part, &mut output).map_err(written)?;
    }
    let output = output.into_inner().map_err(|error| written(error.into_error()))?;
    output.sync_all().map_err(written)?;
    fs::rename(&file.0, target).map_err(|source| BackupError::File { path: target.to_owned(), source })?;
    sync_folder(target);
    Ok(manifest)
}

/// What a backup says about itself; its parts are not read.
pub fn read_manifest(source: &Path) -> Result<Manifest, BackupError> {
    open_backup(source).map(|(manifest, _)| manifest)
}

/// Puts a backup into a folder whose store is not in use. Gives what it said and the revision the store goes on from.
pub fn restore_backup(
    source: &Path,
    folder: &Path,
    replace: bool,
    authority: RestoredAuthority,
    tokens: RestoredTokens,
) -> Result<(Manifest, u64), BackupError> {
    let (manifest, mut input) = open_backup(source)?;
    let has = |name: &str| manifest.parts.iter().any(|part| part.name == name);
    if !has(STORE) {
        return Err(unreadable(source, "it has no store.db"));
    }
    let with_authority = AUTHORITY.iter().all(|name| has(name));
    if authority == RestoredAuthority::FromBackup && !with_authority {
        return Err(BackupError::NoAuthority { path: source.to_owned() });
    }
    // Held until the end: a hub that starts meanwhile is refused.
    let _lock = lock(folder)?;
    give_to_owner_of(folder, &folder.join(LOCK))?;
    if !replace && !is_empty(folder)? {
        return Err(BackupError::NotEmpty { folder: folder.to_owned() });
    }
    let mut unpacked = Vec::new();
    for part in &manifest.parts {
        let path = Temporary(temporary_beside(&folder.join(&part.name), "restored"));
        unpack(source, &mut input, part, &path.0)?;
        give_to_owner_of(folder, &path.0)?;
        unpacked.push((part.name.as_str(), path));
    }
    check_end(source, &mut input)?;
    let find = |name: &str| unpacked.iter().find(|(known, _)| *known == name).map(|(_, path)| &path.0);
    let Some(new_store) = find(STORE) else { return Err(unreadable(source, "it has no store.db")) };
    let store = folder.join(STORE);
    let before = settle_old(&store)?;
    let revision = manifest.revision.max(before) + GAP;
    settle_new(new_store, source, revision, tokens)?;
    rename(new_store, &store)?;
    let own = AUTHORITY.iter().all(|name| folder.join(name).exists());
    match authority {
        RestoredAuthority::Keep if own || !with_authority => {}
        RestoredAuthority::Keep | RestoredAuthority::FromBackup => {
            for name in AUTHORITY {
                if let Some(path) = find(name) {
                    rename(path, &folder.join(name))?;
                }
            }
        }
        RestoredAuthority::New => {
            for name in AUTHORITY {
                remove(&folder.join(name))?;
            }
        }
    }
    sync_folder(&store);
    Ok((manifest, revision))
}

/// Puts the database of a backup where the hub that serves `folder` looks for it when it is asked to restore. Every byte
/// was checked against the manifest before. The file goes when the second value is dropped, unless the hub was faster.
pub fn hand_over(source: &Path, folder: &Path) -> Result<(Manifest, HandedOver), BackupError> {
    let (manifest, mut input) = open_backup(source)?;
    let path = folder.join(HANDED_OVER);
    let copy = Temporary(temporary_beside(&path, "restored"));
    let mut sha256 = None;
    for part in &manifest.parts {
        if part.name == STORE {
            unpack(source, &mut input, part, &copy.0)?;
            sha256 = Some(part.sha256.clone());
        } else {
            let read = copy_hashed(&mut (&mut input).take(part.bytes), &mut io::sink());
            let (bytes, sha256) = read.map_err(|error| file_error(source, error))?;
            check(source, part, bytes, &sha256)?;
        }
    }
    check_end(source, &mut input)?;
    let Some(sha256) = sha256 else { return Err(unreadable(source, "it has no store.db")) };
    give_to_owner_of(folder, &copy.0)?;
    rename(&copy.0, &path)?;
    Ok((manifest, HandedOver { sha256, _file: Temporary(path) }))
}

/// The database of a backup where a hub finds it.
#[derive(Debug)]
pub struct HandedOver {
    /// What it hashes to: the hub takes no other.
    pub sha256: String,
    _file: Temporary,
}

impl Manifest {
    fn render(&self) -> Value {
        let Manifest { created, revision, format, sealed, parts } = self;
        let parts: Vec<Value> = parts
            .iter()
            .map(|Part { name, bytes, sha256 }| json!({"name": name, "bytes": bytes, "sha256": sha256}))
            .collect();
        json!({"created": created, "revision": revision, "format": format, "sealed": sealed, "parts": parts})
    }

    /// Reads the two lines a backup begins with; the parts follow. Or says what is wrong with them.
    pub fn read(input: &mut impl BufRead) -> Result<Manifest, String> {
        let mut line = || {
            let mut text = String::new();
            input.take(LONGEST_MANIFEST).read_line(&mut text).map_err(|error| error.to_string())?;
            Ok::<_, String>(text)
        };
        let mark = line()?;
        if mark.trim_end() != MARK {
            let newer = mark.starts_with("kiln-backup ");
            return Err(if newer { "it is of a newer program" } else { "it begins otherwise" }.into());
        }
        Manifest::parse(line()?.trim_end()).ok_or_else(|| "its manifest is damaged".into())
    }

    fn parse(line: &str) -> Option<Manifest> {
        let value: Value = serde_json::from_str(line).ok()?;
        let mut parts: Vec<Part> = Vec::new();
        for part in value["parts"].as_array()? {
            let name = part["name"].as_str()?;
            // A name from a file must not lead out of the folder.
            if name != STORE && !AUTHORITY.contains(&name) || parts.iter().any(|part| part.name == name) {
                return None;
            }
            let (bytes, sha256) = (part["bytes"].as_u64()?, part["sha256"].as_str()?.to_owned());
            parts.push(Part { name: name.to_owned(), bytes, sha256 });
        }
        Some(Manifest {
            created: value["created"].as_str()?.to_owned(),
            // The store goes on from there and must have somewhere to go.
            revision: value["revision"].as_u64().filter(|revision| *revision <= HIGHEST)?,
            format: value["format"].as_i64()?,
            sealed: value["sealed"].as_bool()?,
            parts,
        })
    }
}

/// A file that is removed unless it was renamed.
#[derive(Debug)]
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn copy_database(store: &Path, copy: &Path) -> Result<(), BackupError> {
    drop(create_private(copy)?);
    let failed = |source| BackupError::Database { path: store.to_owned(), source };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(store, flags).map_err(failed)?;
    connection.busy_timeout(Duration::from_secs(30)).map_err(failed)?;
    let target = copy.to_str().ok_or_else(|| file_error(copy, io::Error::other("the path is not UTF-8")))?;
    connection.execute("VACUUM INTO ?", [target]).map(drop).map_err(failed)
}

fn describe(copy: &Path) -> Result<(u64, i64, bool), BackupError> {
    let failed = |source| BackupError::Database { path: copy.to_owned(), source };
    let connection = Connection::open(copy).map_err(failed)?;
    let format = format_of(&connection).map_err(failed)?;
    let sealed: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_master WHERE name = 'sealing'", [], |row| row.get(0))
        .and_then(|tables: i64| match tables {
            0 => Ok(0),
            _ => connection.query_row("SELECT count(*) FROM sealing", [], |row| row.get(0)),
        })
        .map_err(failed)?;
    Ok((read_revision(&connection).map_err(failed)?, format, sealed > 0))
}

fn open_backup(source: &Path) -> Result<(Manifest, BufReader<File>), BackupError> {
    let mut input = BufReader::new(open(source)?);
    let manifest = Manifest::read(&mut input).map_err(|why| unreadable(source, &why))?;
    Ok((manifest, input))
}

fn unpack(source: &Path, input: &mut impl Read, part: &Part, target: &Path) -> Result<(), BackupError> {
    let mut output = create_private(target)?;
    let (bytes, sha256) =
        copy_hashed(&mut input.take(part.bytes), &mut output).map_err(|error| file_error(target, error))?;
    check(source, part, bytes, &sha256)?;
    output.sync_all().map_err(|error| file_error(target, error))
}

/// A file for its user alone is the hub's, who may be another than whoever restores: root, for example.
fn give_to_owner_of(folder: &Path, path: &Path) -> Result<(), BackupError> {
    let of = |path: &Path| fs::metadata(path).map_err(|error| file_error(path, error));
    let owner = of(folder)?;
    if of(path)?.uid() == owner.uid() {
        return Ok(());
    }
    chown(path, Some(owner.uid()), Some(owner.gid())).map_err(|error| file_error(path, error))
}

fn check(source: &Path, part: &Part, bytes: u64, sha256: &str) -> Result<(), BackupError> {
    match bytes == part.bytes && sha256 == part.sha256 {
        true => Ok(()),
        false => Err(BackupError::Damaged { path: source.to_owned(), part: part.name.clone() }),
    }
}

fn check_end(source: &Path, input: &mut impl Read) -> Result<(), BackupError> {
    match input.read(&mut [0]).map_err(|error| file_error(source, error))? {
        0 => Ok(()),
        _ => Err(BackupError::Damaged { path: source.to_owned(), part: "what follows the last part".into() }),
    }
}

/// Folds the old write-ahead log away, which must not meet the new database. Gives the old revision.
fn settle_old(store: &Path) -> Result<u64, BackupError> {
    if !store.exists() {
        return Ok(0);
    }
    let failed = |source| BackupError::Database { path: store.to_owned(), source };
    // What is replaced may be damaged; its revision is then not known.
    let revision = Connection::open(store).and_then(|connection| {
        connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
        match format_of(&connection)? {
            0 => Ok(0),
            _ => read_revision(&connection),
        }
    });
    for end in ["-wal", "-shm"] {
        let mut name = store.as_os_str().to_owned();
        name.push(end);
        remove(Path::new(&name))?;
    }
    match revision {
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => Err(failed(error)),
        other => Ok(other.unwrap_or(0)),
    }
}

fn settle_new(store: &Path, source: &Path, revision: u64, tokens: RestoredTokens) -> Result<(), BackupError> {
    let failed = |error| BackupError::Database { path: store.to_owned(), source: error };
    let mut connection = Connection::open(store).map_err(failed)?;
    let sound: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).map_err(failed)?;
    if sound != "ok" {
        return Err(BackupError::Damaged { path: source.to_owned(), part: STORE.into() });
    }
    prepare(&mut connection, store)?;
    let transaction = connection.transaction().map_err(failed)?;
    put_revision(&transaction, revision).map_err(failed)?;
    if tokens == RestoredTokens::Forget {
        transaction.execute("DELETE FROM tokens", []).map_err(failed)?;
    }
    transaction.commit().map_err(failed)?;
    // One file again, so that it can be renamed.
    connection.pragma_update(None, "journal_mode", "DELETE").map_err(failed)
}

/// A lock file that was just made does not count.
fn is_empty(folder: &Path) -> Result<bool, BackupError> {
    let failed = |error| file_error(folder, error);
    for entry in fs::read_dir(folder).map_err(failed)? {
        if entry.map_err(failed)?.file_name() != "store.lock" {
            return Ok(false);
        }
    }
    Ok(true)
}

/// How many bytes a file has, and what they hash to.
pub(super) fn hash_file(path: &Path) -> io::Result<(u64, String)> {
    copy_hashed(&mut File::open(path)?, &mut io::sink())
}

fn copy_hashed(input: &mut impl Read, output: &mut impl Write) -> io::Result<(u64, String)> {
    let (mut hasher, mut total, mut buffer) = (Sha256::new(), 0, vec![0; 64 << 10]);
    loop {
        let read = input.read(&mut buffer)?;
        if read == 0 {
            let digits = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
            return Ok((total, digits));
        }
        hasher.update(&buffer[..read]);
        output.write_all(&buffer[..read])?;
        total += read as u64;
    }
}

fn open(path: &Path) -> Result<File, BackupError> {
    File::open(path).map_err(|error| file_error(path, error))
}

fn create_private(path: &Path) -> Result<File, BackupError> {
    let created = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    created.map_err(|error| file_error(path, error))
}

fn rename(from: &Path, to: &Path) -> Result<(), BackupError> {
    fs::rename(from, to).map_err(|error| file_error(to, error))
}

fn remove(path: &Path) -> Result<(), BackupError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file_error(path, error)),
        _ => Ok(()),
    }
}

/// Makes a rename last; where folders cannot be synced, it is as lasting as can be.
fn sync_folder(file: &Path) {
    if let Some(folder) = file.parent() {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
}

fn file_error(path: &Path, source: io::Error) -> BackupError {
    BackupError::File { path: path.to_owned(), source }
}

fn unreadable(path: &Path, why: &str) -> BackupError {
    BackupError::Unreadable { path: path.to_owned(), why: why.to_owned() }
}

#[cfg(test)]
mod tests;
