//! The journal of a try: everything that is needed to put the old network back, on the disk before the first write.
//!
//! It covers what a checkpoint of NetworkManager does not: the exact bytes and modes of the files, profiles that are new,
//! the hostname, and all of it after a power cut. A journal that is there means that the try was not confirmed.
//! It can hold secrets of profiles: mode 0600 in a folder with mode 0700.
//!
//! Names in it become paths that root writes to, so [`Journal::parse`] takes plain file names only.

use std::collections::{HashMap, HashSet};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kiln_core::change::{Change, Place, Step};
use kiln_core::keyfile::Keyfile;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::AgentError;
use crate::files::{Folders, Image, read_image, replace, sync_folder};
use crate::machine::Root;
use crate::nm::{Checkpoint, Snapshot, seconds};

/// The largest journal that is read.
const LARGEST: usize = 64 << 20;

/// What was there before a try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    /// Of the document that was tried.
    pub revision: String,
    /// In which boot.
    pub boot: String,
    /// The checkpoint on the bus; empty when there is none, or its name is not known yet.
    pub checkpoint: String,
    /// What is known of a checkpoint that has been asked for, until its name is.
    pub asked: Option<Asked>,
    /// Each file that is written or removed, as it was.
    pub files: Vec<Before>,
    /// UUIDs of all profiles the try writes or removes.
    pub profiles: Vec<String>,
    /// `/etc/hostname` and the running hostname, when the try sets one.
    pub hostname: Option<HostnameBefore>,
    /// Which profile (UUID) was in force on which interface, where the try touches something.
    pub active: Vec<(String, String)>,
    /// Interfaces that the try makes.
    pub made: Vec<String>,
    /// Interfaces that the try removes and makes anew: what it made must go before the old one can come back.
    pub remade: Vec<String>,
}

/// A checkpoint between the question and the answer. An agent that dies there leaves one that nobody has the name of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// When, in milliseconds since the boot.
    pub at: i64,
    /// For how many seconds.
    pub seconds: u32,
}

impl Asked {
    /// Just now.
    pub fn now(timeout: Duration) -> Result<Asked, AgentError> {
        Ok(Asked { at: milliseconds_since_boot()?, seconds: seconds(timeout) })
    }

    /// The checkpoint that was made for it: the first of its length since. There was no other one then, and while it waits
    /// NetworkManager makes none that shares a device with it.
    pub fn find<'c>(&self, checkpoints: &'c [Checkpoint]) -> Option<&'c Checkpoint> {
        /// The clocks are one, but read with different grain.
        const GRAIN: i64 = 20;
        /// NetworkManager makes it when it reads the question. One that is later may be another program's; it ends by itself.
        const LATEST: i64 = 3000;
        let span = self.at - GRAIN..self.at + LATEST;
        let fitting = checkpoints.iter().filter(|it| it.timeout == self.seconds && span.contains(&it.created));
        fitting.min_by_key(|it| it.created)
    }
}

/// One file as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Before {
    /// Which folder.
    pub place: Place,
    /// Its name there.
    pub name: String,
    /// None: there was none.
    pub image: Option<Image>,
}

/// The hostname as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostnameBefore {
    /// `/etc/hostname`.
    pub file: Option<Image>,
    /// The kernel's.
    pub running: String,
}

/// Why bytes are no journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Not the JSON it should be.
    #[error("it is not a journal of this version: {0}")]
    Json(#[from] serde_json::Error),
    /// Larger than any real one.
    #[error("it has more than {LARGEST} bytes")]
    Large,
    /// Not written by Kiln.
    #[error("`{0}` is no plain file name")]
    Name(String),
    /// Not written by Kiln.
    #[error("the bytes of `{0}` are not hexadecimal")]
    Bytes(String),
}

/// What lies on the disk.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    revision: String,
    boot: String,
    checkpoint: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked: Option<Asked>,
    files: Vec<StoredFile>,
    profiles: Vec<String>,
    hostname: Option<StoredHostname>,
    active: Vec<(String, String)>,
    made: Vec<String>,
    remade: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredFile {
    runtime: bool,
    name: String,
    image: Option<StoredImage>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredImage {
    mode: u32,
    bytes: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredHostname {
    file: Option<StoredImage>,
    running: String,
}

/// The only version there is. It is not read by a program that knows another one.
const VERSION: u32 = 1;

impl Journal {
    /// Looks at everything a change will touch.
    pub fn before(
        change: &Change,
        revision: &str,
        folders: &Folders,
        snapshot: &Snapshot,
    ) -> Result<Journal, AgentError> {
        let mut profiles = Vec::new();
        let mut files = Vec::new();
        for write in &change.writes {
            let image = read_image(&folders.path(write.place, &write.name))?;
            profiles.extend(image.as_ref().and_then(|image| uuid_of(&image.bytes)));
            profiles.extend(write.content.as_ref().and_then(|content| uuid_of(content.as_bytes())));
            files.push(Before { place: write.place, name: write.name.clone(), image });
        }
        profiles.sort_unstable();
        profiles.dedup();
        let hostname = match change.hostname {
            Some(_) => {
                let running = read_image(&folders.running_hostname)?.map(|image| image.bytes).unwrap_or_default();
                let running = String::from_utf8_lossy(&running).trim().to_owned();
                Some(HostnameBefore { file: read_image(&folders.hostname)?, running })
            }
            None => None,
        };
        let active = affected(change, &profiles, snapshot);
        let exists = |interface: &str| snapshot.device(interface).is_some_and(|device| device.real);
        let made = change.stages.iter().flatten().filter_map(|step| match step {
            Step::Activate { interface, .. } if !exists(interface) => Some(interface.clone()),
            _ => None,
        });
        let steps = || change.stages.iter().flatten();
        let activated =
            |name: &str| steps().any(|step| matches!(step, Step::Activate { interface, .. } if interface == name));
        let remade = steps().filter_map(|step| match step {
            Step::Remove { interface } if activated(interface) => Some(interface.clone()),
            _ => None,
        });
        Ok(Journal {
            revision: revision.to_owned(),
            boot: boot_id()?,
            checkpoint: String::new(),
            asked: None,
            files,
            profiles,
            hostname,
            active,
            made: made.collect(),
            remade: remade.collect(),
        })
    }

    /// Reads the bytes of a journal.
    pub fn parse(bytes: &[u8]) -> Result<Journal, JournalError> {
        if bytes.len() > LARGEST {
            return Err(JournalError::Large);
        }
        let stored: Stored = serde_json::from_slice(bytes)?;
        if stored.version != VERSION {
            return Err(JournalError::Json(serde::de::Error::custom(format!("version {}", stored.version))));
        }
        let file = |file: StoredFile| -> Result<Before, JournalError> {
            let plain = !file.name.is_empty() && file.name != "." && file.name != ".." && file.name.len() < 256;
            if !plain || file.name.contains(['/', '\0']) {
                return Err(JournalError::Name(file.name));
            }
            let place = if file.runtime { Place::Runtime } else { Place::Persistent };
            let image = file.image.map(|image| take_image(&file.name, &image)).transpose()?;
            Ok(Before { place, name: file.name, image })
        };
        let hostname = |before: StoredHostname| -> Result<HostnameBefore, JournalError> {
            let file = before.file.map(|image| take_image("hostname", &image)).transpose()?;
            Ok(HostnameBefore { file, running: before.running })
        };
        Ok(Journal {
            revision: stored.revision,
            boot: stored.boot,
            checkpoint: stored.checkpoint,
            asked: stored.asked,
            files: stored.files.into_iter().map(file).collect::<Result<_, _>>()?,
            profiles: stored.profiles,
            hostname: stored.hostname.map(hostname).transpose()?,
            active: stored.active,
            made: stored.made,
            remade: stored.remade,
        })
    }

    /// The bytes on the disk.
    pub fn render(&self) -> Result<Vec<u8>, JournalError> {
        let file = |before: &Before| StoredFile {
            runtime: before.place == Place::Runtime,
            name: before.name.clone(),
            image: before.image.as_ref().map(store_image),
        };
        let hostname = |before: &HostnameBefore| StoredHostname {
            file: before.file.as_ref().map(store_image),
            running: before.running.clone(),
        };
        let stored = Stored {
            version: VERSION,
            revision: self.revision.clone(),
            boot: self.boot.clone(),
            checkpoint: self.checkpoint.clone(),
            asked: self.asked,
            files: self.files.iter().map(file).collect(),
            profiles: self.profiles.clone(),
            hostname: self.hostname.as_ref().map(hostname),
            active: self.active.clone(),
            made: self.made.clone(),
            remade: self.remade.clone(),
        };
        Ok(serde_json::to_vec_pretty(&stored)?)
    }

    /// Puts it on the disk, for good.
    pub fn write(&self, state_dir: &Path) -> Result<(), AgentError> {
        let path = place(state_dir);
        let bytes = self.render().map_err(|source| AgentError::Journal { path: path.clone(), source })?;
        replace(&path, &bytes, 0o600).map_err(|source| AgentError::File { doing: "write", path, source })?;
        sync_folder(state_dir)
    }
}

/// The journal of a state folder, if a try was not confirmed.
pub fn read(state_dir: &Path) -> Result<Option<Journal>, AgentError> {
    let path = place(state_dir);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(AgentError::File { doing: "read", path, source }),
    };
    Journal::parse(&bytes).map(Some).map_err(|source| AgentError::Journal { path, source })
}

/// Confirms: the journal is gone, also after a power cut.
pub fn remove(state_dir: &Path) -> Result<(), AgentError> {
    let path = place(state_dir);
    match fs::remove_file(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(AgentError::File { doing: "remove", path, source })
        }
        _ => sync_folder(state_dir),
    }
}

/// Who holds it may try or recover. The kernel takes it back when its holder dies.
pub fn lock(state_dir: &Path) -> Result<Flock<fs::File>, AgentError> {
    let path = state_dir.join("lock");
    let failed = |source| AgentError::File { doing: "open", path: path.clone(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(state_dir).map_err(failed)?;
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(failed)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| AgentError::Busy(path.clone()))
}

/// The kernel's name for this boot.
pub fn boot_id() -> Result<String, AgentError> {
    Root::machine().boot_id()
}

/// The clock NetworkManager dates its checkpoints by.
fn milliseconds_since_boot() -> Result<i64, AgentError> {
    let path = Path::new("/proc/uptime");
    let failed = |source| AgentError::File { doing: "read", path: path.to_owned(), source };
    let text = fs::read_to_string(path).map_err(failed)?;
    let seconds: Option<f64> = text.split(' ').next().and_then(|text| text.parse().ok());
    let seconds = seconds.ok_or_else(|| failed(io::Error::new(io::ErrorKind::InvalidData, "it has no number")))?;
    Ok((seconds * 1000.0) as i64)
}

/// `connection.uuid` of a keyfile's bytes.
pub fn uuid_of(bytes: &[u8]) -> Option<String> {
    Some(Keyfile::parse_bytes(bytes).ok()?.get("connection", "uuid")?.into_owned())
}

/// What is in force where the change touches something: its interfaces and profiles, and the ports of its interfaces. What is
/// in force elsewhere is nobody's to bring back.
fn affected(change: &Change, profiles: &[String], snapshot: &Snapshot) -> Vec<(String, String)> {
    let mut interfaces: HashSet<&str> = change
        .stages
        .iter()
        .flatten()
        .map(|step| match step {
            Step::Activate { interface, .. } | Step::Reapply { interface, .. } | Step::Remove { interface } => {
                interface.as_str()
            }
        })
        .collect();
    let in_force: Vec<(&str, &str)> = snapshot
        .active
        .iter()
        .filter_map(|active| Some((active.uuid.as_str(), snapshot.interface_of(active)?)))
        .collect();
    interfaces.extend(in_force.iter().filter(|(uuid, _)| profiles.iter().any(|own| own == uuid)).map(|(_, name)| name));
    // Without the kernel's word every profile counts as a port.
    let links = crate::kernel::read_kernel().unwrap_or_default();
    let controllers: HashMap<&str, &str> = links["interfaces"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|link| Some((link["name"].as_str()?, link["controller"].as_str()?)))
        .collect();
    let touched = |name: &str| {
        let controller = controllers.get(name).is_some_and(|controller| interfaces.contains(controller));
        interfaces.contains(name) || controller || links.is_null()
    };
    let kept = in_force.into_iter().filter(|(_, name)| touched(name));
    kept.map(|(uuid, name)| (uuid.to_owned(), name.to_owned())).collect()
}

fn place(state_dir: &Path) -> PathBuf {
    state_dir.join("journal.json")
}

fn store_image(image: &Image) -> StoredImage {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value & 15)]);
    let bytes = image.bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect();
    StoredImage { mode: image.mode, bytes }
}

fn take_image(name: &str, stored: &StoredImage) -> Result<Image, JournalError> {
    let wrong = || JournalError::Bytes(name.to_owned());
    let digits: Option<Vec<u32>> = stored.bytes.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0).ok_or_else(wrong)?;
    let bytes = digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect();
    Ok(Image { bytes, mode: stored.mode & 0o7777 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal() -> Journal {
        let image = Image { bytes: vec![0, 10, 255, b'a'], mode: 0o600 };
        Journal {
            revision: "r1".to_owned(),
            boot: "b".to_owned(),
            checkpoint: "/c/1".to_owned(),
            asked: Some(Asked { at: 1_000_000, seconds: 60 }),
            files: vec![
                Before { place: Place::Persistent, name: "a.nmconnection".to_owned(), image: Some(image.clone()) },
                Before { place: Place::Runtime, name: "b.nmconnection".to_owned(), image: None },
            ],
            profiles: vec!["u".to_owned()],
            hostname: Some(HostnameBefore { file: Some(image), running: "node".to_owned() }),
            active: vec![("u".to_owned(), "eth0".to_owned())],
            made: vec!["br0".to_owned()],
            remade: vec!["bond0.5".to_owned()],
        }
    }

    #[test]
    fn what_was_rendered_is_read_again() {
        assert_eq!(Journal::parse(&journal().render().unwrap()).unwrap(), journal());
    }

    #[test]
    fn a_journal_of_an_earlier_version_is_read() {
        let old = Journal { asked: None, ..journal() };
        let text = String::from_utf8(old.render().unwrap()).unwrap();
        assert!(!text.contains("asked"), "{text}");
        assert_eq!(Journal::parse(text.as_bytes()).unwrap(), old);
    }

    #[test]
    fn a_checkpoint_whose_name_was_not_heard_is_found_by_its_time() {
        let checkpoint = |number: u32, created, timeout| Checkpoint {
            path: format!("/c/{number}").try_into().unwrap(),
            created,
            timeout,
        };
        let asked = Asked { at: 1_000_000, seconds: 60 };
        for (there, expected) in [
            (vec![], None),
            (vec![checkpoint(1, 1_000_005, 60)], Some("/c/1")),
            (vec![checkpoint(2, 1_000_900, 60), checkpoint(1, 999_995, 60)], Some("/c/1")),
            // Of another length, from before, from long after.
            (vec![checkpoint(1, 1_000_005, 30)], None),
            (vec![checkpoint(1, 990_000, 60)], None),
            (vec![checkpoint(1, 1_090_000, 60)], None),
        ] {
            assert_eq!(asked.find(&there).map(|it| it.path.as_str()), expected, "{there:?}");
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for (name, expected) in [
            ("../../passwd", "`../../passwd` is no plain file name"),
            ("..", "`..` is no plain file name"),
            ("", "`` is no plain file name"),
            ("a/b", "`a/b` is no plain file name"),
        ] {
            let text = String::from_utf8(journal().render().unwrap()).unwrap().replace("b.nmconnection", name);
            assert_eq!(Journal::parse(text.as_bytes()).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn bytes_that_are_not_hexadecimal_are_refused() {
        let text = String::from_utf8(journal().render().unwrap()).unwrap();
        for broken in ["000aff6", "000affzz"] {
            let text = text.replacen("000aff61", broken, 1);
            let expected = "the bytes of `a.nmconnection` are not hexadecimal";
            assert_eq!(Journal::parse(text.as_bytes()).unwrap_err().to_string(), expected);
        }
        assert!(Journal::parse(text.replace("\"version\": 1", "\"version\": 2").as_bytes()).is_err());
    }

    #[test]
    fn a_journal_is_private_and_gone_after_the_confirmation() {
        use std::os::unix::fs::PermissionsExt;
        let folder = std::env::temp_dir().join(format!("kiln-journal-{}", std::process::id()));
        let lock = lock(&folder).unwrap();
        assert!(matches!(super::lock(&folder), Err(AgentError::Busy(_))));
        drop(lock);
        assert_eq!(read(&folder).unwrap(), None);
        journal().write(&folder).unwrap();
        assert_eq!(read(&folder).unwrap(), Some(journal()));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&place(&folder))), (0o700, 0o600));
        remove(&folder).unwrap();
        remove(&folder).unwrap();
        assert_eq!(read(&folder).unwrap(), None);
        fs::remove_dir_all(&folder).unwrap();
    }
}
