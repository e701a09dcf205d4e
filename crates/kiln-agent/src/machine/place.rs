//! What is at a path, and the one way it is made so: a temporary name in the same folder, owner, mode, fsync, rename.
//!
//! The last part of a path is never followed when it is a link. Links in between are: `/home` is one on many machines.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use kiln_core::machine::wish::FileWish;
use nix::fcntl::OFlag;
use serde::{Deserialize, Serialize};

use super::Root;
use super::journal::base64_text;
use crate::AgentError;
use crate::files::{Owner, beside, replace_owned};

/// The largest file that is read or written.
pub const LARGEST_FILE: u64 = 64 << 20;
/// What folders are made with.
const FOLDER_MODE: u32 = 0o755;

/// What is at a path.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Place {
    /// Nothing.
    Nothing,
    /// A file.
    File {
        /// Its bytes.
        #[serde(with = "base64_text")]
        bytes: Vec<u8>,
        /// Its permission bits.
        mode: u32,
        /// Its owner.
        user: u32,
        /// Its group.
        group: u32,
    },
    /// A link to elsewhere.
    Link(PathBuf),
    /// A folder.
    Folder {
        /// Its permission bits.
        mode: u32,
    },
}

/// Contents are not shown.
impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Nothing => write!(f, "nothing"),
            Place::File { bytes, mode, user, group } => {
                write!(f, "a file of {} bytes, {mode:04o} {user}:{group}", bytes.len())
            }
            Place::Link(to) => write!(f, "a link to {}", to.display()),
            Place::Folder { mode } => write!(f, "a folder, {mode:04o}"),
        }
    }
}

/// Looks at a path. What is neither file, link nor folder, and a file that is too large, is an error.
pub fn read_place(path: &Path) -> Result<Place, AgentError> {
    let failed = |source| AgentError::File { doing: "read", path: path.to_owned(), source };
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        // Something else than a folder on the way there: nothing can be at the path.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Place::Nothing);
        }
        Err(error) => return Err(failed(error)),
    };
    if metadata.is_symlink() {
        return fs::read_link(path).map(Place::Link).map_err(failed);
    }
    if metadata.is_dir() {
        return Ok(Place::Folder { mode: metadata.mode() & 0o7777 });
    }
    // Whatever it has become meanwhile: neither a link is followed nor a pipe waited for.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(failed(io::Error::other("it is no plain file")));
    }
    let mut bytes = Vec::new();
    file.take(LARGEST_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > LARGEST_FILE {
        return Err(failed(io::Error::other(format!("it has more than {LARGEST_FILE} bytes"))));
    }
    Ok(Place::File { bytes, mode: metadata.mode() & 0o7777, user: metadata.uid(), group: metadata.gid() })
}

/// Makes the path so. Says whether anything had to be done.
pub fn write_place(path: &Path, wanted: &Place) -> Result<bool, AgentError> {
    let found = read_place(path);
    if found.as_ref().is_ok_and(|found| found == wanted) {
        return Ok(false);
    }
    let failed = |doing| move |source| AgentError::File { doing, path: path.to_owned(), source };
    if let Ok(Place::Folder { .. }) = found {
        // An empty one makes room; what lies in another one is somebody's.
        fs::remove_dir(path).map_err(failed("remove"))?;
    }
    match wanted {
        Place::Nothing => match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("remove")(error)),
            _ => {}
        },
        Place::File { bytes, mode, user, group } => {
            replace_owned(path, bytes, *mode, Some(Owner { user: *user, group: *group })).map_err(failed("write"))?;
        }
        Place::Link(to) => {
            let linked = beside(path).and_then(|beside| {
                let _ = fs::remove_file(&beside);
                symlink(to, &beside)?;
                fs::rename(&beside, path)
            });
            linked.map_err(failed("write"))?;
        }
        Place::Folder { mode } => {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("remove")(error)),
                _ => {}
            }
            make_folder(path, *mode).map_err(failed("make"))?;
        }
    }
    Ok(true)
}

/// Makes the folders above a path that are missing.
pub fn make_folders(root: &Root, path: &str) -> Result<(), AgentError> {
    for folder in missing_folders(root, path) {
        let folder = root.at(&folder);
        make_folder(&folder, FOLDER_MODE).map_err(|source| AgentError::File { doing: "make", path: folder, source })?;
    }
    Ok(())
}

/// The folders above a path that are missing, the outermost first.
pub fn missing_folders(root: &Root, path: &str) -> Vec<String> {
    let above = Path::new(path).ancestors().skip(1).filter_map(Path::to_str);
    let mut missing: Vec<String> = above.take_while(|path| !root.at(path).is_dir()).map(str::to_owned).collect();
    missing.reverse();
    missing
}

/// The mode does not depend on what the process takes away from it.
fn make_folder(path: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(mode)),
    }
}

/// Users and groups of a machine by name.
#[derive(Debug, Clone, Default)]
pub struct Owners {
    users: BTreeMap<String, u32>,
    groups: BTreeMap<String, u32>,
}

impl Owners {
    /// As the machine has them. Ones that only a directory service knows are not found.
    pub fn read(root: &Root) -> Owners {
        Owners { users: numbers(&root.at("/etc/passwd")), groups: numbers(&root.at("/etc/group")) }
    }

    /// What a wish becomes on this machine; an owner who is not named is whoever runs this, who is root.
    pub fn place(&self, wish: &FileWish) -> Result<Place, String> {
        let FileWish { bytes, mode, user, group } = wish;
        if bytes.len() as u64 > LARGEST_FILE {
            return Err(format!("has more than {LARGEST_FILE} bytes"));
        }
        let user = number(user.as_deref(), &self.users, nix::unistd::geteuid().as_raw(), "user")?;
        let group = number(group.as_deref(), &self.groups, nix::unistd::getegid().as_raw(), "group")?;
        Ok(Place::File { bytes: bytes.clone(), mode: *mode, user, group })
    }
}

fn number(name: Option<&str>, known: &BTreeMap<String, u32>, own: u32, what: &str) -> Result<u32, String> {
    let Some(name) = name else { return Ok(own) };
    let found = name.parse().ok().or_else(|| known.get(name).copied()).or((name == "root").then_some(0));
    found.ok_or_else(|| format!("belongs to the {what} `{name}`, which this machine does not have"))
}

/// Names and numbers of `/etc/passwd` or `/etc/group`.
fn numbers(path: &Path) -> BTreeMap<String, u32> {
    let mut text = String::new();
    let read = fs::File::open(path).and_then(|file| file.take(LARGEST_FILE).read_to_string(&mut text));
    if read.is_err() {
        return BTreeMap::new();
    }
    let entries = text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        Some((fields.next()?.to_owned(), fields.nth(1)?.parse().ok()?))
    });
    entries.collect()
}
