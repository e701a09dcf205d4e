//! Where NetworkManager's profiles lie, and the one way they are written: a temporary name, mode, fsync, rename, fsync of
//! the folder. NetworkManager passes over names that begin with a dot, so a half-written file is never a profile.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use kiln_core::change::Place;
use kiln_core::keyfile::LONGEST_TEXT;

use crate::AgentError;

/// The folders and files the agent may change.
#[derive(Debug, Clone)]
pub struct Folders {
    /// `/etc/NetworkManager/system-connections`.
    pub persistent: PathBuf,
    /// `/run/NetworkManager/system-connections`.
    pub runtime: PathBuf,
    /// `/etc/hostname`.
    pub hostname: PathBuf,
    /// `/proc/sys/kernel/hostname`.
    pub running_hostname: PathBuf,
}

impl Default for Folders {
    fn default() -> Self {
        Folders {
            persistent: "/etc/NetworkManager/system-connections".into(),
            runtime: "/run/NetworkManager/system-connections".into(),
            hostname: "/etc/hostname".into(),
            running_hostname: "/proc/sys/kernel/hostname".into(),
        }
    }
}

impl Folders {
    /// Where a profile's file lies.
    pub fn path(&self, place: Place, name: &str) -> PathBuf {
        self.folder(place).join(name)
    }

    /// The folder of a place.
    pub fn folder(&self, place: Place) -> &Path {
        match place {
            Place::Persistent => &self.persistent,
            Place::Runtime => &self.runtime,
        }
    }

    /// Place and name of a path NetworkManager gave.
    pub fn locate(&self, path: &Path) -> Option<(Place, String)> {
        let name = path.file_name()?.to_str()?.to_owned();
        let parent = path.parent()?;
        let place = [Place::Persistent, Place::Runtime].into_iter().find(|place| self.folder(*place) == parent)?;
        Some((place, name))
    }
}

/// A file as it was: what is needed to make it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its permission bits.
    pub mode: u32,
}

/// Reads a file with its mode; None when there is none.
pub fn read_image(path: &Path) -> Result<Option<Image>, AgentError> {
    let failed = |source| AgentError::File { doing: "read", path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let about = file.metadata().map_err(failed)?;
    let mode = about.permissions().mode() & 0o7777;
    // Room for it at once, or it is read in ever larger pieces.
    let mut bytes = Vec::with_capacity(about.len().min(LONGEST_TEXT as u64) as usize + 1);
    file.take(LONGEST_TEXT as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > LONGEST_TEXT {
        return Err(failed(io::Error::other(format!("it has more than {LONGEST_TEXT} bytes"))));
    }
    Ok(Some(Image { bytes, mode }))
}

/// Makes the file so, or makes it absent. Says whether anything had to be done.
pub fn write_image(path: &Path, image: Option<&Image>) -> Result<bool, AgentError> {
    if read_image(path).ok().as_ref().is_some_and(|found| found.as_ref() == image) {
        return Ok(false);
    }
    let failed = |doing| move |source| AgentError::File { doing, path: path.to_owned(), source };
    match image {
        Some(image) => replace(path, &image.bytes, image.mode).map_err(failed("write"))?,
        None => match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("remove")(error)),
            _ => {}
        },
    }
    Ok(true)
}

/// Makes what was renamed or removed in a folder survive a power cut.
pub fn sync_folder(folder: &Path) -> Result<(), AgentError> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    match synced {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|source| AgentError::File { doing: "sync", path: folder.to_owned(), source }),
    }
}

/// Whose a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// Number of the user.
    pub user: u32,
    /// Number of the group.
    pub group: u32,
}

/// Writes beside, then renames. The folder itself is not synced: see [`sync_folder`].
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    replace_owned(path, bytes, mode, None)
}

/// The same; without an owner it is whoever runs this.
pub fn replace_owned(path: &Path, bytes: &[u8], mode: u32, owner: Option<Owner>) -> io::Result<()> {
    let beside = beside(path)?;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    // One that is left of an earlier process may belong to somebody else.
    let _ = fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    let owned = |file: &File| match owner {
        Some(Owner { user, group }) => fchown(file, Some(user), Some(group)),
        None => Ok(()),
    };
    let written = file
        .write_all(bytes)
        .and_then(|()| owned(&file))
        .and_then(|()| file.set_permissions(Permissions::from_mode(mode)))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // The first error is the one to tell; what is left beside is no profile to NetworkManager.
        let _ = fs::remove_file(&beside);
    }
    written
}

/// The name something has until it is whole. Long names are cut: the file system has a limit.
pub fn beside(path: &Path) -> io::Result<PathBuf> {
    const LONGEST: usize = 200;
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("a file needs a folder and a name"));
    };
    let name = name.to_string_lossy();
    let kept = name.char_indices().take_while(|(at, _)| *at < LONGEST).map(|(_, letter)| letter).collect::<String>();
    Ok(folder.join(format!(".kiln-{kept}.tmp")))
}
