//! A base that is being imported: a folder out of sight until it is complete.
//!
//! Its owner holds a lock in it that the system takes back when the process dies, so the next import can tell an abandoned
//! folder from one that another process is filling. The lock of the store is held while one is made or published: whoever
//! holds that and finds a folder without a lock knows that its owner died.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::record::BaseRecord;
use super::write::{UNFINISHED, create_file, create_folder, hold_bases, replace_file, sync_folder, unfinished_beside};
use super::{BaseName, Store, cannot_write};
use crate::error::ImageError;

/// The folder. Dropped before it is published, it is removed.
#[derive(Debug)]
pub(super) struct Staging {
    store: PathBuf,
    folder: PathBuf,
    published: PathBuf,
    lock: File,
}

impl Staging {
    /// Makes an empty one and removes those that nobody fills any more.
    pub(super) fn begin(store: &Store, name: &BaseName) -> Result<Staging, ImageError> {
        let published = store.base_folder(name);
        let _held = hold_bases(&store.root)?;
        remove_abandoned(&store.root.join("bases"));
        let folder = unfinished_beside(&published);
        create_folder(&folder)?;
        let lock = create_file(&folder.join("lock"))?;
        lock.lock().map_err(cannot_write(&folder))?;
        Ok(Staging { store: store.root.clone(), folder, published, lock })
    }

    /// Where one of its files goes.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A new file in it, to be synced by whoever writes it.
    pub(super) fn create(&self, name: &str) -> Result<File, ImageError> {
        create_file(&self.path(name))
    }

    /// Shows the base to everybody.
    pub(super) fn publish(self, record: &BaseRecord) -> Result<(), ImageError> {
        let json = serde_json::to_vec_pretty(record)
            .map_err(|error| cannot_write(&self.published)(io::Error::other(error)))?;
        replace_file(&self.path("base.json"), &[&json, b"\n"])?;
        sync_folder(&self.folder)?;
        let _held = hold_bases(&self.store)?;
        let lock = self.path("lock");
        fs::remove_file(&lock).map_err(cannot_write(&lock))?;
        // Fails when another process has published a base of this name meanwhile.
        fs::rename(&self.folder, &self.published).map_err(cannot_write(&self.published))?;
        sync_folder(self.published.parent().unwrap_or(Path::new("/")))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // After `publish` the folder has another name, and there is nothing here.
        let _ = fs::remove_dir_all(&self.folder);
        let _ = self.lock.unlock();
    }
}

/// Nothing here may fail an import: what cannot be removed stays out of sight.
fn remove_abandoned(bases: &Path) {
    let Ok(entries) = fs::read_dir(bases) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            continue;
        }
        let is_filled = match File::open(entry.path().join("lock")) {
            Ok(lock) => lock.try_lock().is_err(),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        };
        if !is_filled {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
