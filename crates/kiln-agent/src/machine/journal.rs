//! The journal of a change of files and units: everything that is needed to put the old machine back, on the disk before the
//! first write.
//!
//! One that is there means that the change was not remembered as done yet; its [`Stage`] says how far it came. What is not known
//! before the first write is added before the step that does it: the network as it was, services, kernel arguments. It holds
//! contents of files: mode 0600 in a folder with mode 0700.
//!
//! Paths in it are written to by root, so [`Journal::parse`] takes absolute ones in their simplest form only.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use kiln_core::machine::Action;
use kiln_core::machine::wish::{KernelArguments, MachineChange, UnitStep};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::place::{Place, missing_folders, read_place};
use super::{Site, observe};
use crate::AgentError;
use crate::files::{replace, sync_folder};

/// How many bytes of old files a journal holds at most.
const LARGEST_CONTENTS: usize = 256 << 20;
/// The largest journal that is read: the contents in base64, and some.
const LARGEST: u64 = 400 << 20;
/// The only version there is. It is not read by a program that knows another one.
const VERSION: u32 = 1;
const FILE: &str = "machine-journal.json";

/// What was there before a change, and how far the change is.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Journal {
    version: u32,
    /// Of the assignment.
    pub revision: String,
    /// In which boot it began.
    pub boot: String,
    /// How far it is.
    pub stage: Stage,
    /// What was at each path that is written or removed.
    pub files: Vec<(String, Place)>,
    /// Folders that are made for them, the outermost first.
    pub folders: Vec<String>,
    /// What `systemctl is-enabled` said of each unit that is changed.
    pub units: Vec<(String, String)>,
    /// Whether systemd reads its units again.
    pub daemon_reload: bool,
    /// What was done to services, or was about to be.
    pub acted: Vec<Action>,
    /// Kernel arguments that were removed and appended, or were about to be.
    pub kernel_arguments: Option<(Vec<String>, Vec<String>)>,
    /// The OS image that was asked for, or was about to be.
    pub os_image: Option<String>,
    /// The network as it was, when profiles change: a [`crate::journal::Journal`].
    pub network: Option<Value>,
}

/// How far a change is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// Being made: whoever finds it puts everything back.
    Changing,
    /// Made; the machine has to boot, and is verified afterwards.
    Rebooting,
    /// Made, verified and to be remembered.
    Kept,
}

/// Contents are not shown.
impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let paths: Vec<&String> = self.files.iter().map(|(path, _)| path).collect();
        let mut shown = f.debug_struct("Journal");
        shown.field("revision", &self.revision).field("stage", &self.stage).field("files", &paths);
        shown.field("units", &self.units).field("acted", &self.acted).finish_non_exhaustive()
    }
}

impl Journal {
    /// Looks at everything a change will touch.
    pub async fn before(site: &Site<'_>, change: &MachineChange, revision: &str) -> Result<Journal, AgentError> {
        let (mut files, mut folders, mut contents) = (Vec::new(), Vec::<String>::new(), 0);
        for (path, wish) in &change.writes {
            let place = read_place(&site.root.at(path))?;
            if let Place::File { bytes, .. } = &place {
                contents += bytes.len();
            }
            if contents > LARGEST_CONTENTS {
                let source = io::Error::other(format!("the files before it have {LARGEST_CONTENTS} bytes together"));
                return Err(AgentError::File { doing: "keep a copy of", path: site.root.at(path), source });
            }
            if wish.is_some() {
                let missing = missing_folders(site.root, path);
                let new: Vec<String> = missing.into_iter().filter(|folder| !folders.contains(folder)).collect();
                folders.extend(new);
            }
            files.push((path.clone(), place));
        }
        let steps = change.units_before.iter().chain(&change.units);
        let names = steps.map(UnitStep::unit).cloned().collect();
        Ok(Journal {
            version: VERSION,
            revision: revision.to_owned(),
            boot: site.root.boot_id()?,
            stage: Stage::Changing,
            files,
            folders,
            units: observe::observe_units(site.root, &names).await?.into_iter().collect(),
            daemon_reload: change.daemon_reload,
            acted: Vec::new(),
            kernel_arguments: None,
            os_image: None,
            network: None,
        })
    }

    /// What was asked of the boot loader.
    pub fn asked_arguments(&self) -> Option<KernelArguments> {
        let (remove, append) = self.kernel_arguments.clone()?;
        Some(KernelArguments { remove, append })
    }

    /// Reads the bytes of a journal.
    pub fn parse(bytes: &[u8]) -> Result<Journal, String> {
        let journal: Journal = serde_json::from_slice(bytes).map_err(|error| {
            // The parser's own words may quote contents.
            format!("line {}, column {} is not as it should be", error.line(), error.column())
        })?;
        if journal.version != VERSION {
            return Err(format!("it is of version {}, not {VERSION}", journal.version));
        }
        let paths = journal.files.iter().map(|(path, _)| path).chain(&journal.folders);
        match paths.into_iter().find(|path| !is_plain(path)) {
            Some(path) => Err(format!("`{}` is no plain path", path.escape_debug())),
            None => Ok(journal),
        }
    }

    /// Puts it on the disk, for good.
    pub fn write(&self, state_dir: &Path) -> Result<(), AgentError> {
        let path = place(state_dir);
        let failed = |source| AgentError::File { doing: "write", path: path.clone(), source };
        let bytes = serde_json::to_vec(self).map_err(|error| failed(io::Error::other(error)))?;
        replace(&path, &bytes, 0o600).map_err(failed)?;
        sync_folder(state_dir)
    }
}

/// The journal of a state folder, if there is one.
pub fn read(state_dir: &Path) -> Result<Option<Journal>, AgentError> {
    let path = place(state_dir);
    let length = match fs::metadata(&path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(AgentError::File { doing: "read", path, source }),
    };
    if length > LARGEST {
        return Err(AgentError::MachineJournal { path, why: format!("it has more than {LARGEST} bytes") });
    }
    let bytes = fs::read(&path).map_err(|source| AgentError::File { doing: "read", path: path.clone(), source })?;
    Journal::parse(&bytes).map(Some).map_err(|why| AgentError::MachineJournal { path, why })
}

/// The end of a change: the journal is gone, also after a power cut.
pub fn remove(state_dir: &Path) -> Result<(), AgentError> {
    let path = place(state_dir);
    match fs::remove_file(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(AgentError::File { doing: "remove", path, source })
        }
        _ => sync_folder(state_dir),
    }
}

fn place(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}

/// Absolute and in its simplest form.
fn is_plain(path: &str) -> bool {
    let plain = |name: &str| !matches!(name, "" | "." | "..");
    !path.contains('\0') && path.strip_prefix('/').is_some_and(|below| below.split('/').all(plain))
}

/// Bytes as text.
pub(super) mod base64_text {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn journal() -> Journal {
        Journal {
            version: VERSION,
            revision: "r1".into(),
            boot: "b".into(),
            stage: Stage::Changing,
            files: vec![
                ("/etc/a".into(), Place::Nothing),
                ("/etc/b".into(), Place::File { bytes: b"secret\xff".to_vec(), mode: 0o600, user: 0, group: 7 }),
                ("/etc/c".into(), Place::Link("/dev/null".into())),
            ],
            folders: vec!["/etc/new".into()],
            units: vec![("a.service".into(), "enabled".into())],
            daemon_reload: true,
            acted: vec![Action::Restart("a.service".into())],
            kernel_arguments: Some((vec!["quiet".into()], vec!["debug".into()])),
            os_image: None,
            network: None,
        }
    }

    #[test]
    fn a_journal_is_private_reads_back_and_shows_no_contents() {
        let folder = std::env::temp_dir().join(format!("kiln-machine-journal-{}", std::process::id()));
        drop(crate::journal::lock(&folder).unwrap());
        assert_eq!(read(&folder).unwrap(), None);
        journal().write(&folder).unwrap();
        assert_eq!(read(&folder).unwrap(), Some(journal()));
        assert_eq!(fs::metadata(place(&folder)).unwrap().permissions().mode() & 0o777, 0o600);
        remove(&folder).unwrap();
        remove(&folder).unwrap();
        assert_eq!(read(&folder).unwrap(), None);
        fs::remove_dir_all(&folder).unwrap();
        let shown = format!("{:?}", journal());
        assert!(!shown.contains("secret") && shown.contains("/etc/b"), "{shown}");
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        let text = serde_json::to_string(&journal()).unwrap();
        for (path, expected) in [
            ("etc/b", "`etc/b` is no plain path"),
            ("/etc/../b", "`/etc/../b` is no plain path"),
            ("/etc//b", "`/etc//b` is no plain path"),
            ("/", "`/` is no plain path"),
        ] {
            assert_eq!(Journal::parse(text.replace("/etc/b", path).as_bytes()).unwrap_err(), expected);
        }
        let other = text.replace("\"version\":1", "\"version\":2");
        assert_eq!(Journal::parse(other.as_bytes()).unwrap_err(), "it is of version 2, not 1");
        assert_eq!(
            Journal::parse(text.replace("c2Vj", "!!!!").as_bytes()).unwrap_err(),
            "line 1, column 130 is not as it should be"
        );
    }
}
