//! The few ways the real root is changed, each complete and durable or not at all.
//!
//! [`RealDisk`] is the kernel. Tests put a disk between that stops at any operation and forgets what was not synced.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

/// Mode and owner of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits.
    pub mode: u32,
    /// User and group, when they are not those of this process.
    pub owner: Option<(u32, u32)>,
}

/// Changes of a file system.
pub trait Disk {
    /// Makes a folder and those above it, mode 0755.
    fn make_folder(&mut self, path: &Path) -> io::Result<()>;
    /// Writes a new file and waits until it is on the disk. A power cut may leave a part of it.
    fn write(&mut self, path: &Path, bytes: &[u8], attributes: Attributes) -> io::Result<()>;
    /// Puts a file in the place of another.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&mut self, path: &Path) -> io::Result<()>;
    /// Removes an empty folder.
    fn remove_folder(&mut self, path: &Path) -> io::Result<()>;
    /// Waits until what was renamed, made and removed in a folder is on the disk.
    fn sync_folder(&mut self, path: &Path) -> io::Result<()>;
}

/// The kernel's file systems.
#[derive(Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn make_folder(&mut self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)?;
        path.parent().map_or(Ok(()), |parent| self.sync_folder(parent))
    }

    fn write(&mut self, path: &Path, bytes: &[u8], attributes: Attributes) -> io::Result<()> {
        let Attributes { mode, owner } = attributes;
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(bytes)?;
        if let Some((user, group)) = owner {
            fchown(&file, Some(user), Some(group))?;
        }
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_folder(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn sync_folder(&mut self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }
}
