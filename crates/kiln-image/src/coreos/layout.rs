//! Where an image's own script looks for network files when it first boots from disk.
//!
//! Until autumn 2026 every image looks in `/coreos-firstboot-network` of the boot partition and nowhere else; images made
//! for coreos-installer 0.27 look in `/etc/coreos-firstboot-network` of the initramfs and nowhere else. Files in the wrong
//! place are ignored in silence, so the script itself is asked.

use serde::{Deserialize, Serialize};

use super::{Places, probe_boot};
use crate::ext4::Ext4;
use crate::initrd::find_file;
use crate::{ImageError, ReadAt};

/// Where network files have to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopyNetwork {
    /// On the boot partition.
    BootPartition,
    /// In the initramfs, appended.
    Initramfs,
    /// The script was not found, or it is unlike both: files go to both places.
    Unknown,
}

/// What was found out about a disk's initramfs files once, so that edits need not read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownInitramfs {
    /// Where the script in them looks.
    pub looks_in: CopyNetwork,
    /// Whether somebody has appended network files.
    pub has_network: bool,
}

impl KnownInitramfs {
    /// Finds it out: [`probe`], and a search in the last 32 MiB of each.
    pub fn probe(disk: &impl ReadAt) -> Result<KnownInitramfs, ImageError> {
        let facts = probe_boot(&Ext4::open(Places::find(disk)?.window(disk)?)?)?;
        Ok(KnownInitramfs { looks_in: probe(disk)?, has_network: !facts.initramfs_network.is_empty() })
    }
}

const SCRIPTS: [&str; 4] = [
    "usr/sbin/coreos-copy-firstboot-network",
    "usr/bin/coreos-copy-firstboot-network",
    "sbin/coreos-copy-firstboot-network",
    "bin/coreos-copy-firstboot-network",
];
const SCRIPT_LIMIT: u64 = 1 << 20;

/// Inflates the initramfs files until their script is found, which takes a second or two for a real image.
pub fn probe(disk: &impl ReadAt) -> Result<CopyNetwork, ImageError> {
    let fs = Ext4::open(Places::find(disk)?.window(disk)?)?;
    let mut found: Option<CopyNetwork> = None;
    for path in probe_boot(&fs)?.initramfs_paths() {
        let layout = match find_file(fs.open_file(&path)?, &SCRIPTS, SCRIPT_LIMIT) {
            Ok(Some((_, script))) => judge(&String::from_utf8_lossy(&script)),
            Ok(None) => CopyNetwork::Unknown,
            Err(error @ ImageError::Read { .. }) => return Err(error),
            // A compression only the kernel knows is no reason to refuse: files go to both places.
            Err(_) => CopyNetwork::Unknown,
        };
        if found.is_some_and(|other| other != layout) {
            return Ok(CopyNetwork::Unknown);
        }
        found = Some(layout);
    }
    Ok(found.unwrap_or(CopyNetwork::Unknown))
}

/// What a script says, comments aside.
fn judge(script: &str) -> CopyNetwork {
    let code = || script.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let mentions = |text: &str| code().any(|line| line.contains(text));
    if mentions("boot_partition") || mentions("by-label/boot") {
        CopyNetwork::BootPartition
    } else if mentions("/etc/coreos-firstboot-network") {
        CopyNetwork::Initramfs
    } else {
        CopyNetwork::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_says_where_it_looks() {
        let old = "#!/bin/bash\nbootmnt=/mnt/boot_partition\nmount -o ro /dev/disk/by-label/boot ${bootmnt}\n\
                   initramfs_firstboot_network_dir=/etc/coreos-firstboot-network\n";
        let new = "#!/bin/bash\n# not from /dev/disk/by-label/boot any more\nsource=/etc/coreos-firstboot-network\ncp -v ${source}/* x\n";
        assert_eq!(judge(old), CopyNetwork::BootPartition);
        assert_eq!(judge(new), CopyNetwork::Initramfs);
        assert_eq!(judge("#!/bin/sh\nexit 0\n"), CopyNetwork::Unknown);
    }
}
