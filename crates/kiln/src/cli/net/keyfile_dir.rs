//! A folder of keyfiles on disk: read within bounds; written completely or not at all, mode 0600 from the first byte.
//!
//! What is written never mixes with other files: NetworkManager would load whatever lies beside it.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use kiln_core::keyfile::{ConnectionFile, Keyfile, KeyfileError, LONGEST_TEXT};

use super::super::output::Failure;

/// Keyfiles that were read, and those that are none.
pub struct ReadKeyfiles {
    /// By name.
    pub files: Vec<ConnectionFile>,
    /// Path and reason.
    pub unreadable: Vec<(PathBuf, KeyfileError)>,
}

/// Reads all keyfiles of a folder, or the one keyfile that `path` is. Folders in the folder are passed over, as
/// NetworkManager does.
pub fn read_keyfiles(path: &Path) -> anyhow::Result<ReadKeyfiles> {
    let found = fs::metadata(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let mut paths = vec![path.to_owned()];
    if found.is_dir() {
        let entries = fs::read_dir(path).with_context(|| format!("cannot read the folder `{}`", path.display()))?;
        paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
        paths.sort();
    }
    let mut read = ReadKeyfiles { files: Vec::new(), unreadable: Vec::new() };
    for path in paths {
        // Only plain files: opening a pipe would wait for ever.
        let metadata = fs::metadata(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        if !metadata.is_file() {
            continue;
        }
        let mut bytes = Vec::new();
        let file = File::open(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        file.take(LONGEST_TEXT as u64 + 1)
            .read_to_end(&mut bytes)
            .with_context(|| format!("cannot read `{}`", path.display()))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match Keyfile::parse_bytes(&bytes) {
            Ok(keyfile) => {
                read.files.push(ConnectionFile { name, mode: metadata.permissions().mode() & 0o7777, keyfile });
            }
            Err(reason) => read.unreadable.push((path, reason)),
        }
    }
    Ok(read)
}

/// Writes every file under a temporary name, then gives all of them their names. Returns the paths.
///
/// Temporary names begin with a dot, so that a NetworkManager watching the folder does not read them.
pub fn write_keyfiles(folder: &Path, files: &[ConnectionFile]) -> Result<Vec<PathBuf>, Failure> {
    refuse_foreign_files(folder, files)?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make the folder `{}`", folder.display()))?;
    let mut written = Unfinished(Vec::new());
    for file in files {
        let temporary = folder.join(format!(".{}.{}.unfinished", file.name, std::process::id()));
        let path = folder.join(&file.name);
        write_new(&temporary, file).with_context(|| format!("cannot write `{}`", path.display()))?;
        written.0.push((temporary, path));
    }
    let mut paths = Vec::new();
    for (temporary, path) in std::mem::take(&mut written.0) {
        fs::rename(&temporary, &path).with_context(|| format!("cannot write `{}`", path.display()))?;
        paths.push(path);
    }
    Ok(paths)
}

/// An earlier result has files of the same names only; anything else must not come to lie beside the new one.
fn refuse_foreign_files(out: &Path, files: &[ConnectionFile]) -> Result<(), Failure> {
    let shown = out.display();
    let entries = match fs::read_dir(out) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            return Err(Failure::refused(anyhow!("`{shown}` is not a folder; choose another with --out")));
        }
        Err(error) => return Err(anyhow!(error).context(format!("cannot read the folder `{shown}`")).into()),
    };
    for entry in entries {
        let name = entry.with_context(|| format!("cannot read the folder `{shown}`"))?.file_name();
        if !files.iter().any(|file| name == file.name.as_str()) {
            return Err(Failure::refused(anyhow!(
                "`{shown}` already has `{}`, which is not part of the result; remove it or choose another folder with --out",
                name.to_string_lossy(),
            )));
        }
    }
    Ok(())
}

fn write_new(path: &Path, file: &ConnectionFile) -> std::io::Result<()> {
    let create = || OpenOptions::new().write(true).create_new(true).mode(file.mode).open(path);
    let mut target = match create() {
        // What an earlier run of the same process id left behind.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => fs::remove_file(path).and_then(|()| create()),
        other => other,
    }?;
    target.write_all(file.keyfile.render().as_bytes())
}

/// Temporary files that are removed unless they got their names.
struct Unfinished(Vec<(PathBuf, PathBuf)>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        for (temporary, _) in &self.0 {
            let _ = fs::remove_file(temporary);
        }
    }
}
