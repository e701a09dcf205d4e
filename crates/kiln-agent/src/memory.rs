//! What a node remembers between changes: what is in force, what it has taken over, what failed.
//!
//! One file for the network and one for files and units, each written under a temporary name, synced and renamed, mode 0600: it may hold profiles with secrets in them. A file
//! that cannot be read is an error and never an empty memory: without it, nothing could be given back.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use kiln_core::assignment::Report;
use kiln_core::change::Ownership;
use kiln_core::machine::wish::Machine;
use kiln_core::machine::{MachineReport, Needs};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The largest memory of the network that is read: the profiles of some thousand interfaces.
const LARGEST: u64 = 32 << 20;
const FILE: &str = "memory.json";
/// The largest memory of files and units that is read: two configs.
const LARGEST_MACHINE: u64 = 256 << 20;
const MACHINE_FILE: &str = "machine.json";

/// Everything that is remembered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Memory {
    /// What was applied last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<Applied>,
    /// What is Kiln's.
    #[serde(default)]
    pub ownership: Ownership,
    /// What will be Kiln's when the try that is under way is kept. Written before the try, because what was there before can
    /// be seen only then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Ownership>,
    /// What did not work; it is not tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Report>,
}

impl Memory {
    /// After a start: how a try that was under way has ended is known by whether something had to be put back.
    ///
    /// When nothing had to, the try was kept, or it had not begun; what was taken over is kept in mind for both.
    pub fn settle(mut self, put_back: bool) -> Memory {
        if let Some(pending) = self.pending.take().filter(|_| !put_back) {
            self.ownership.join(pending);
        }
        self
    }
}

/// A revision in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Applied {
    /// Of the assignment.
    pub revision: String,
    /// The boot it was applied in: after another one, what was not to last is gone.
    pub boot: String,
    /// Differences somebody made and the policy adopts; empty otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adopted: Vec<String>,
}

/// What is remembered about files and units. A file of its own: it holds whole configs, which are not written anew with every
/// change of the network.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MachineMemory {
    /// The revision in force, and what it wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<(String, Machine)>,
    /// What did not work; it is not tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<MachineReport>,
    /// What will be in force when the change that is under way is kept; the journal knows whether it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<MachinePending>,
}

/// Contents are not shown.
impl std::fmt::Debug for MachineMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let MachineMemory { applied, failed, pending } = self;
        f.debug_struct("MachineMemory")
            .field("applied", &applied.as_ref().map(|(revision, _)| revision))
            .field("failed", failed)
            .field("pending", &pending.as_ref().map(|pending| &pending.revision))
            .finish()
    }
}

/// A change of files and units that is under way.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MachinePending {
    /// Of the assignment.
    pub revision: String,
    /// What it wants.
    pub machine: Machine,
    /// What is Kiln's about the network then, when profiles change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ownership: Option<Ownership>,
    /// What it takes.
    #[serde(default)]
    pub needs: Needs,
    /// What changes, a line for people each.
    #[serde(default)]
    pub changes: Vec<String>,
}

/// Contents are not shown.
impl std::fmt::Debug for MachinePending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MachinePending").field("revision", &self.revision).finish_non_exhaustive()
    }
}

/// Where a memory is kept.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// In this folder, which is made when it is not there.
    pub fn open(folder: &Path) -> io::Result<Store> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        Ok(Store { folder: folder.to_owned() })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What was remembered; nothing on a new machine.
    pub fn load(&self) -> io::Result<Memory> {
        self.read(FILE, LARGEST)
    }

    /// Remembers, and does not return before it is on the disk.
    pub fn save(&self, memory: &Memory) -> io::Result<()> {
        self.write(FILE, memory)
    }

    /// What was remembered about files and units.
    pub fn load_machine(&self) -> io::Result<MachineMemory> {
        self.read(MACHINE_FILE, LARGEST_MACHINE)
    }

    /// Remembers files and units.
    pub fn save_machine(&self, memory: &MachineMemory) -> io::Result<()> {
        self.write(MACHINE_FILE, memory)
    }

    fn read<T: Default + DeserializeOwned>(&self, name: &str, largest: u64) -> io::Result<T> {
        let path = self.folder.join(name);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(T::default()),
            other => other?,
        };
        let mut text = Vec::new();
        file.take(largest).read_to_end(&mut text)?;
        serde_json::from_slice(&text).map_err(|error| {
            let message = format!("`{}` cannot be read: {error}; move it away to begin anew", path.display());
            io::Error::new(io::ErrorKind::InvalidData, message)
        })
    }

    fn write(&self, name: &str, memory: &impl Serialize) -> io::Result<()> {
        let (path, temporary) = (self.folder.join(name), self.folder.join(format!(".{name}")));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(&serde_json::to_vec(memory)?)?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        File::open(&self.folder)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails loudly")]

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_is_saved_is_loaded_and_nobody_else_may_read_it() {
        let folder = std::env::temp_dir().join(format!("kiln-memory-{}", std::process::id()));
        let store = Store::open(&folder.join("agent")).unwrap();
        assert_eq!(store.load().unwrap(), Memory::default());
        let applied = Applied { revision: "r1".into(), boot: "b".into(), adopted: vec![] };
        let memory = Memory { applied: Some(applied), ..Memory::default() };
        store.save(&memory).unwrap();
        assert_eq!(store.load().unwrap(), memory);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder.join("agent")), 0o700);
        assert_eq!(mode(&folder.join("agent").join(FILE)), 0o600);
        fs::write(folder.join("agent").join(FILE), "{").unwrap();
        assert!(store.load().unwrap_err().to_string().contains("move it away"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
