//! Many files change together: staged, announced, moved into place one by one.
//!
//! 1. Every new file is written beside the folders it is for, and synced.
//! 2. The journal, which names them all, gets its name. From here on the change is decided.
//! 3. Files are renamed into place, others removed, folders synced, labels set.
//! 4. The journal goes away.
//!
//! Whoever finds a staging folder without a journal throws it away: nothing was touched. Whoever finds a journal does
//! what is left of steps 3 and 4; doing it twice does no harm.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use kiln_core::beacon::Handover;
use serde::{Deserialize, Serialize};

use super::{INTERFACE_NAMES, relabel};
use crate::disk::{Attributes, Disk};
use crate::error::{FirstbootError, at};
use crate::folder::{ETC_CONNECTIONS, read_bounded};
use crate::root::Root;

/// On the file system of what is changed, and where neither NetworkManager nor a boot script looks.
const STAGING: &str = "/etc/NetworkManager/.kiln-propagate";
const JOURNAL: &str = "journal.json";
const UNFINISHED: &str = "journal.unfinished";
const LARGEST_JOURNAL: usize = 1 << 20;

/// One file of the real root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Its new contents.
    Install { path: String, bytes: Vec<u8>, attributes: Attributes },
    /// It goes away.
    Remove { path: String },
}

/// What an earlier run had left.
#[derive(Debug)]
pub enum Recovery {
    Nothing,
    Discarded,
    Completed(Handover),
}

#[derive(Serialize, Deserialize)]
struct Journal {
    /// Name in the staging folder, path in the real root.
    install: Vec<(String, String)>,
    remove: Vec<String>,
    handover: Handover,
}

/// Makes all changes.
pub fn execute(
    root: &Root,
    changes: &[Change],
    handover: &Handover,
    disk: &mut dyn Disk,
) -> Result<(), FirstbootError> {
    if changes.is_empty() {
        return Ok(());
    }
    let staging = root.real(STAGING);
    disk.make_folder(&staging).map_err(at("make", &staging))?;
    let mut journal = Journal { install: Vec::new(), remove: Vec::new(), handover: handover.clone() };
    for change in changes {
        match change {
            Change::Install { path, bytes, attributes } => {
                let name = journal.install.len().to_string();
                let staged = staging.join(&name);
                disk.write(&staged, bytes, *attributes).map_err(at("write", &staged))?;
                journal.install.push((name, path.clone()));
            }
            Change::Remove { path } => journal.remove.push(path.clone()),
        }
    }
    let (unfinished, place) = (staging.join(UNFINISHED), staging.join(JOURNAL));
    let text = serde_json::to_vec(&journal).map_err(io::Error::from).map_err(at("write", &place))?;
    disk.write(&unfinished, &text, Attributes { mode: 0o600, owner: None }).map_err(at("write", &unfinished))?;
    disk.rename(&unfinished, &place).map_err(at("write", &place))?;
    disk.sync_folder(&staging).map_err(at("sync", &staging))?;
    complete(root, &journal, disk)
}

/// Ends what an earlier run began.
pub fn recover(root: &Root, disk: &mut dyn Disk) -> Result<Recovery, FirstbootError> {
    let staging = root.real(STAGING);
    if fs::symlink_metadata(&staging).is_err() {
        return Ok(Recovery::Nothing);
    }
    let journal = read_bounded(&staging.join(JOURNAL), LARGEST_JOURNAL).ok();
    let journal = journal.and_then(|bytes| serde_json::from_slice::<Journal>(&bytes).ok()).filter(Journal::is_ours);
    match journal {
        Some(journal) => {
            complete(root, &journal, disk)?;
            Ok(Recovery::Completed(journal.handover))
        }
        None => {
            discard(&staging, disk)?;
            Ok(Recovery::Discarded)
        }
    }
}

impl Journal {
    /// Whether it names only what this program changes: the disk may be somebody else's.
    fn is_ours(&self) -> bool {
        let plain = |name: &str| !name.is_empty() && !name.contains('/') && name != ".." && name != ".";
        let known = |path: &str| {
            let below = path.strip_prefix(ETC_CONNECTIONS).and_then(|rest| rest.strip_prefix('/'));
            path == "/etc/hostname" || path == INTERFACE_NAMES || below.is_some_and(plain)
        };
        self.install.iter().all(|(staged, path)| plain(staged) && known(path))
            && self.remove.iter().all(|path| known(path))
    }
}

fn complete(root: &Root, journal: &Journal, disk: &mut dyn Disk) -> Result<(), FirstbootError> {
    let staging = root.real(STAGING);
    let mut folders = BTreeSet::new();
    for (staged, path) in &journal.install {
        let (staged, place) = (staging.join(staged), root.real(path));
        if let Some(folder) = place.parent() {
            if !folder.exists() {
                disk.make_folder(folder).map_err(at("make", folder))?;
            }
            folders.insert(folder.to_owned());
        }
        // What is not staged any more is in its place already.
        if staged.exists() {
            disk.rename(&staged, &place).map_err(at("replace", &place))?;
        }
    }
    for path in &journal.remove {
        let place = root.real(path);
        if fs::symlink_metadata(&place).is_ok() {
            disk.remove(&place).map_err(at("remove", &place))?;
        }
        folders.extend(place.parent().map(Path::to_owned));
    }
    for folder in &folders {
        disk.sync_folder(folder).map_err(at("sync", folder))?;
    }
    relabel::relabel(root, journal.install.iter().map(|(_, path)| path.as_str()));
    let place = staging.join(JOURNAL);
    disk.remove(&place).map_err(at("remove", &place))?;
    disk.sync_folder(&staging).map_err(at("sync", &staging))?;
    discard(&staging, disk)
}

fn discard(staging: &Path, disk: &mut dyn Disk) -> Result<(), FirstbootError> {
    for entry in fs::read_dir(staging).map_err(at("read", staging))?.flatten() {
        disk.remove(&entry.path()).map_err(at("remove", &entry.path()))?;
    }
    disk.remove_folder(staging).map_err(at("remove", staging))
}
