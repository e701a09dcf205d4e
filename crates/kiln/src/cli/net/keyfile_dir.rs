//! A folder of keyfiles on disk: written completely or not at all, mode 0600 from the first byte.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use kiln_core::keyfile::ConnectionFile;

/// Writes every file under a temporary name, then gives all of them their names. Returns the paths.
///
/// Temporary names begin with a dot, so that a NetworkManager watching the folder does not read them.
pub fn write_keyfiles(folder: &Path, files: &[ConnectionFile]) -> anyhow::Result<Vec<PathBuf>> {
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

fn write_new(path: &Path, file: &ConnectionFile) -> std::io::Result<()> {
    // What an earlier run of the same process id left behind.
    let _ = fs::remove_file(path);
    let mut target = OpenOptions::new().write(true).create_new(true).mode(file.mode).open(path)?;
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
