//! Folders of keyfiles and configs, read within bounds.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Context;
use kiln_core::boot::folder::{Content, NetworkFile};
use kiln_core::ignition::unpack_gzip;

use super::output::Failure;

/// More than any keyfile or Ignition config has; what is larger is not one.
const LARGEST_FILE: u64 = 64 << 20;

/// Every entry of a folder with its mode, sorted by name.
pub fn read_folder(folder: &Path) -> Result<Vec<NetworkFile>, Failure> {
    let listing = fs::read_dir(folder)
        .with_context(|| format!("cannot read folder `{}`", folder.display()))
        .map_err(Failure::Refused)?;
    let mut files = Vec::new();
    for entry in listing {
        let entry = entry.with_context(|| format!("cannot read folder `{}`", folder.display()))?;
        let path = entry.path();
        let metadata = fs::metadata(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        let content = if metadata.is_dir() { Content::Directory } else { Content::Bytes(read_bounded(&path)?) };
        let name = entry.file_name().to_string_lossy().into_owned();
        files.push(NetworkFile { name, mode: metadata.permissions().mode() & 0o7777, content });
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(files)
}

/// An Ignition config's text; `-` is standard input, gzip is undone.
pub fn read_config(path: &Path) -> Result<String, Failure> {
    let bytes = read_bounded(path)?;
    let bytes =
        unpack_gzip(&bytes).with_context(|| format!("cannot read `{}`", path.display())).map_err(Failure::Refused)?;
    String::from_utf8(bytes.into_owned())
        .with_context(|| format!("`{}` is not text", path.display()))
        .map_err(Failure::Refused)
}

/// A whole file, refused when it is too large. `-` is standard input.
pub fn read_bounded(path: &Path) -> Result<Vec<u8>, Failure> {
    let cannot = || format!("cannot read `{}`", path.display());
    let input: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(fs::File::open(path).with_context(cannot).map_err(Failure::Refused)?)
    };
    let mut bytes = Vec::new();
    input.take(LARGEST_FILE + 1).read_to_end(&mut bytes).with_context(cannot).map_err(Failure::Refused)?;
    if bytes.len() as u64 > LARGEST_FILE {
        let limit = LARGEST_FILE >> 20;
        return Err(Failure::refused(anyhow::anyhow!("`{}` is larger than {limit} MiB", path.display())));
    }
    Ok(bytes)
}
