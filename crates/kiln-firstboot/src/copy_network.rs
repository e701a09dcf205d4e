//! `copy-network`: profiles an installer or Kiln left for the first boot replace those of the kernel arguments.
//!
//! On a live image they are in `/etc/coreos-firstboot-network`. On an installed machine they are in the folder of that
//! name on the boot partition or, since coreos-installer 0.27, in the initramfs too; the boot partition is asked first,
//! because that is where every older image looks. As `cp dir/* run/` does it: any entry makes the folder count, hidden
//! files are not copied, modes stay, and a folder inside makes the copy fail.
//!
//! Surprising: the profiles of the kernel arguments are deleted completely, whatever they were about.

use std::fs;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use kiln_core::boot::folder::{Content, NetworkFile};

use crate::boot_partition::{Access, BootPartition};
use crate::error::{FirstbootError, at};
use crate::folder::{RUN_CONNECTIONS, read_folder};
use crate::root::Root;

const FOLDER: &str = "coreos-firstboot-network";

/// Copies, and says what was done.
pub fn copy_network(root: &Root, boot: Option<&Path>) -> Result<Vec<String>, FirstbootError> {
    root.require_initramfs()?;
    let mut said = Vec::new();
    let Some((folder, files)) = find(root, boot, &mut said)? else { return Ok(said) };
    let target = root.at(RUN_CONNECTIONS);
    remove_all(&target, &mut said)?;
    fs::create_dir_all(&target).map_err(at("make", &target))?;
    let visible: Vec<&NetworkFile> = files.iter().filter(|file| !file.is_hidden()).collect();
    if visible.is_empty() {
        return Err(FirstbootError::OnlyHidden { path: folder });
    }
    // Like `cp`, the files beside a folder are copied before it fails.
    for file in &visible {
        if let Some(bytes) = file.bytes() {
            write_new(&target.join(&file.name), &bytes, file.mode)?;
            said.push(format!("`{}` is copied to {RUN_CONNECTIONS}", folder.join(&file.name).display()));
        }
    }
    match visible.iter().find(|file| file.content == Content::Directory) {
        Some(inner) => Err(FirstbootError::Folder { path: folder.join(&inner.name) }),
        None => Ok(said),
    }
}

/// The folder that counts: the first one with any entry.
fn find(
    root: &Root,
    boot: Option<&Path>,
    said: &mut Vec<String>,
) -> Result<Option<(PathBuf, Vec<NetworkFile>)>, FirstbootError> {
    let mut missing = None;
    if root.is_live() {
        said.push("this is a live image: the boot partition is not asked".to_owned());
    } else if Root::is_iscsi(&root.kargs()) {
        said.push("the root is on iSCSI: the boot partition cannot be read before there is a network".to_owned());
    } else {
        match BootPartition::open(root, boot, Access::Read) {
            Ok(partition) => {
                let folder = partition.folder().join(FOLDER);
                let files = read_folder(&folder)?;
                if !files.is_empty() {
                    return Ok(Some((folder, files)));
                }
                said.push(format!("the boot partition has no files in {FOLDER}"));
            }
            Err(error) => missing = Some(error),
        }
    }
    let folder = root.at("/etc").join(FOLDER);
    let files = read_folder(&folder)?;
    match missing {
        // Nobody knows what it would have said, and a boot without its network must not look like a good one.
        Some(error) if files.is_empty() => Err(error),
        Some(error) => {
            said.push(error.to_string());
            Ok(Some((folder, files)))
        }
        None if files.is_empty() => {
            said.push(format!("/etc/{FOLDER} has no files: the profiles of the kernel arguments stay"));
            Ok(None)
        }
        None => Ok(Some((folder, files))),
    }
}

fn remove_all(folder: &Path, said: &mut Vec<String>) -> Result<(), FirstbootError> {
    // `rm -f run/*` leaves hidden files alone.
    for file in read_folder(folder)?.iter().filter(|file| !file.is_hidden()) {
        let path = folder.join(&file.name);
        match file.content {
            Content::Directory => fs::remove_dir_all(&path),
            _ => fs::remove_file(&path),
        }
        .map_err(at("remove", &path))?;
        said.push(format!("`{}` of the kernel arguments is deleted", file.name));
    }
    Ok(())
}

fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<(), FirstbootError> {
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| {
        std::io::Write::write_all(&mut file, bytes)?;
        file.set_permissions(fs::Permissions::from_mode(mode))
    })
    .map_err(at("write", path))
}
