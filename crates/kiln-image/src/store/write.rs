//! The only place of the store that writes: under another name first, synced, then renamed.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::cannot_write;
use crate::error::ImageError;

/// Unfinished files and folders begin like this; no name of a base or host does.
pub(super) const UNFINISHED: &str = ".unfinished-";

/// Makes a folder for the owner alone, with its parents.
pub(super) fn create_folder(path: &Path) -> Result<(), ImageError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(cannot_write(path))
}

/// Opens a new file for the owner alone.
pub(super) fn create_file(path: &Path) -> Result<File, ImageError> {
    OpenOptions::new().write(true).read(true).create_new(true).mode(0o600).open(path).map_err(cannot_write(path))
}

/// A name beside the final one that nobody else uses.
pub(super) fn unfinished_beside(path: &Path) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{UNFINISHED}{}-{count}-{name}", std::process::id()))
}

/// Whoever holds this may make, show or take away folders of bases. The system takes it back when the process dies.
pub(super) fn hold_bases(root: &Path) -> Result<File, ImageError> {
    let path = root.join("lock");
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    file.and_then(|file| file.lock().map(|()| file)).map_err(cannot_write(&path))
}

/// Puts a file there with these bytes, or leaves what was there.
pub(super) fn replace_file(path: &Path, parts: &[&[u8]]) -> Result<(), ImageError> {
    let unfinished = unfinished_beside(path);
    let written = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        for part in parts {
            file.write_all(part)?;
        }
        file.sync_data()?;
        fs::rename(&unfinished, path)
    };
    written().map_err(|error| {
        let _ = fs::remove_file(&unfinished);
        cannot_write(path)(error)
    })
}

/// Makes a rename in this folder last.
pub(super) fn sync_folder(folder: &Path) -> Result<(), ImageError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(cannot_write(folder))
}

/// Takes a folder away: out of sight first, then its files. True when it was there.
pub(super) fn remove_folder(folder: &Path) -> Result<bool, ImageError> {
    let unfinished = unfinished_beside(folder);
    match fs::rename(folder, &unfinished) {
        Ok(()) => fs::remove_dir_all(&unfinished).map(|()| true).map_err(cannot_write(folder)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(cannot_write(folder)(error)),
    }
}
