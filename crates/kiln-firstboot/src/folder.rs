//! Reading within bounds: a folder of network files with their modes, and single files.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use kiln_core::boot::folder::{Content, NetworkFile};
use kiln_core::boot::teardown::RealRoot;

use crate::error::{FirstbootError, at};

/// The profiles of the initramfs.
pub const RUN_CONNECTIONS: &str = "/run/NetworkManager/system-connections";
/// The profiles of the real root.
pub const ETC_CONNECTIONS: &str = "/etc/NetworkManager/system-connections";
/// A file of this size is no network file any more.
pub const LARGEST_FILE: usize = 16 << 20;

/// Every entry of a folder, by name; a folder that does not exist has none.
pub fn read_folder(folder: &Path) -> Result<Vec<NetworkFile>, FirstbootError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(at("read", folder))?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(at("read", folder))?;
        let path = entry.path();
        // A link that leads nowhere, or out of the real root, counts as an entry; what it says is not known.
        let metadata = fs::metadata(&path).or_else(|_| fs::symlink_metadata(&path)).map_err(at("read", &path))?;
        let content = if metadata.is_file() {
            Content::Bytes(read_bounded(&path, LARGEST_FILE).map_err(at("read", &path))?)
        } else if metadata.is_symlink() {
            Content::Bytes(Vec::new())
        } else {
            // A pipe or a device is no more copied than a folder; opening it might wait for ever.
            Content::Directory
        };
        let name = entry.file_name().to_string_lossy().into_owned();
        files.push(NetworkFile { name, mode: metadata.permissions().mode() & 0o7777, content });
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(files)
}

/// The parts of a real root that decide about propagation.
pub fn read_real_root(root: &Path) -> Result<RealRoot, FirstbootError> {
    let hostname = root.join("etc/hostname");
    let hostname = match hostname.exists() {
        true => Some(read_bounded(&hostname, 4096).map_err(at("read", &hostname))?),
        false => None,
    };
    Ok(RealRoot {
        system_connections: read_folder(&root.join(ETC_CONNECTIONS.trim_start_matches('/')))?,
        network_scripts: read_folder(&root.join("etc/sysconfig/network-scripts"))?,
        hostname: hostname.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()),
    })
}

/// A whole file; one that is longer is an error, not half a file.
pub fn read_bounded(path: &Path, longest: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(longest as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > longest {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {longest} bytes")));
    }
    Ok(bytes)
}
