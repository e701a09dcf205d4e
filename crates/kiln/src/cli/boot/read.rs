//! The folders of a first boot, read within bounds and with their modes, which decide.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Context;
use kiln_core::boot::folder::{Content, NetworkFile};
use kiln_core::boot::teardown::RealRoot;
use kiln_core::keyfile::LONGEST_TEXT;

use super::super::output::Failure;

/// The parts of a root file system that decide about propagation.
pub fn read_real_root(root: &Path) -> Result<RealRoot, Failure> {
    if !root.is_dir() {
        return Err(Failure::refused(anyhow::anyhow!("`{}` is not a folder", root.display())));
    }
    let below = |path: &str| -> Result<Vec<NetworkFile>, Failure> {
        let folder = root.join(path);
        if folder.is_dir() { read_folder(&folder) } else { Ok(Vec::new()) }
    };
    let hostname = root.join("etc/hostname");
    let hostname = hostname.is_file().then(|| read_start(&hostname)).transpose()?;
    Ok(RealRoot {
        system_connections: below("etc/NetworkManager/system-connections")?,
        network_scripts: below("etc/sysconfig/network-scripts")?,
        hostname: hostname.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()),
    })
}

/// Every entry of a folder, sorted by name.
pub fn read_folder(folder: &Path) -> Result<Vec<NetworkFile>, Failure> {
    let cannot = || format!("cannot read the folder `{}`", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(cannot).map_err(Failure::Refused)? {
        let entry = entry.with_context(cannot).map_err(Failure::Refused)?;
        let path = entry.path();
        let metadata = fs::metadata(&path)
            .with_context(|| format!("cannot read `{}`", path.display()))
            .map_err(Failure::Refused)?;
        let content = if metadata.is_file() {
            Content::Bytes(read_start(&path)?)
        } else if metadata.is_dir() {
            Content::Directory
        } else {
            // A pipe or a device is an entry like any other; opening it might wait for ever.
            Content::Bytes(Vec::new())
        };
        let name = entry.file_name().to_string_lossy().into_owned();
        files.push(NetworkFile { name, mode: metadata.permissions().mode() & 0o7777, content });
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(files)
}

/// A file up to one byte more than a keyfile may have: the parser then says that it is too long.
fn read_start(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LONGEST_TEXT as u64 + 1).read_to_end(&mut bytes))
        .with_context(|| format!("cannot read `{}`", path.display()))
        .map_err(Failure::Refused)?;
    Ok(bytes)
}
