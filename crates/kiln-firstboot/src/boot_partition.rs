//! The boot partition: found by its label, mounted where nobody else sees it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

use crate::error::{FirstbootError, at};
use crate::root::Root;

/// How udev calls the partition CoreOS boots from.
const DEVICE: &str = "/dev/disk/by-label/boot";
/// Where it is mounted, in a mount namespace of this process.
const PLACE: &str = "/run/kiln/boot-partition";
/// What boot partitions are made with.
const FILE_SYSTEMS: [&str; 3] = ["ext4", "xfs", "vfat"];

/// How it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Only read.
    Read,
    /// Written too.
    Write,
}

/// The boot partition as a folder, for as long as this lives.
#[derive(Debug)]
pub struct BootPartition {
    folder: PathBuf,
    at_the_end: AtTheEnd,
}

/// What must be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AtTheEnd {
    Nothing,
    Unmount,
    /// Somebody else has it mounted read-only, and it is the same file system.
    MakeReadOnlyAgain,
}

impl BootPartition {
    /// Opens it: the folder that is given; `boot-partition` below a root that is no machine; or the device.
    pub fn open(root: &Root, given: Option<&Path>, access: Access) -> Result<BootPartition, FirstbootError> {
        let folder = match given {
            Some(folder) => folder.to_owned(),
            None if !root.is_machine() => root.at("/boot-partition"),
            None => return mount_privately(access),
        };
        Ok(BootPartition { folder, at_the_end: AtTheEnd::Nothing })
    }

    /// Where its files are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for BootPartition {
    fn drop(&mut self) {
        if self.at_the_end == AtTheEnd::MakeReadOnlyAgain {
            let _ = remount(&self.folder, MsFlags::MS_RDONLY);
        }
        if self.at_the_end != AtTheEnd::Nothing {
            let _ = umount2(&self.folder, MntFlags::MNT_DETACH);
        }
    }
}

fn mount_privately(access: Access) -> Result<BootPartition, FirstbootError> {
    let (device, place) = (Path::new(DEVICE), Path::new(PLACE));
    let failed = |cause: io::Error| FirstbootError::Mount { device: device.to_owned(), cause };
    fs::metadata(device).map_err(failed)?;
    fs::create_dir_all(place).map_err(at("make", place))?;
    unshare(CloneFlags::CLONE_NEWNS).map_err(|error| failed(error.into()))?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .map_err(|error| failed(error.into()))?;
    let (wanted, other) = match access {
        Access::Read => (MsFlags::MS_RDONLY, MsFlags::empty()),
        Access::Write => (MsFlags::empty(), MsFlags::MS_RDONLY),
    };
    let at_the_end = match mount_any(device, place, wanted) {
        Ok(()) => AtTheEnd::Unmount,
        // Mounted already, and the other way: all mounts of one file system are writable or none is.
        Err(Errno::EBUSY) => {
            mount_any(device, place, other).map_err(|error| failed(error.into()))?;
            match access {
                Access::Read => AtTheEnd::Unmount,
                Access::Write => {
                    let remounted = remount(place, MsFlags::empty());
                    remounted.map_err(|error| failed(error.into()))?;
                    AtTheEnd::MakeReadOnlyAgain
                }
            }
        }
        Err(error) => return Err(failed(error.into())),
    };
    Ok(BootPartition { folder: place.to_owned(), at_the_end })
}

/// Mounts with the first file system that fits, and tells what the best fitting one said.
fn mount_any(device: &Path, place: &Path, flags: MsFlags) -> Result<(), Errno> {
    let flags = flags | MsFlags::MS_NODEV | MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    let mut said = Errno::ENODEV;
    for kind in FILE_SYSTEMS {
        match mount(Some(device), place, Some(kind), flags, None::<&str>) {
            Ok(()) => return Ok(()),
            // Not this kind, or the kernel does not know it.
            Err(Errno::EINVAL | Errno::ENODEV) => {}
            Err(error) => said = error,
        }
    }
    Err(said)
}

fn remount(place: &Path, flags: MsFlags) -> Result<(), Errno> {
    mount(None::<&str>, place, None::<&str>, MsFlags::MS_REMOUNT | flags, None::<&str>)
}
