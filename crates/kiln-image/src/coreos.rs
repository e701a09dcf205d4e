//! What CoreOS keeps on the boot partition of a disk: found here, changed by [`edit`].
//!
//! [`probe`] reads and decides nothing. Everything that a first boot takes from the boot partition is in [`DiskFacts`]:
//! network files, Ignition config, `ignition.firstboot`, kernel arguments and where the image's own script looks for
//! network files.
//!
//! Not here: the root partition. Its xfs is never opened, so `.coreos-aleph-version.json` is not read and the version is
//! taken from the titles of the boot entries.

pub mod edit;
pub mod firstboot;
pub mod layout;

use std::ops::Range;

use crate::bls::{self, BootEntry};
use crate::ext4::{Ext4, FileKind};
use crate::gpt::{Gpt, Partition};
use crate::initrd::appended::find_appended;
use crate::{Carried, ImageError, NamedFile, ReadAt, Window};

pub use edit::{BootEdit, Edited, Part, plan_customization, plan_edit};
pub use layout::{CopyNetwork, KnownInitramfs};

/// Where network files lie on the boot partition.
pub const NETWORK_DIR: &str = "/coreos-firstboot-network";
/// Where the Ignition config of the first boot lies.
pub const IGNITION_DIR: &str = "/ignition";
/// The Ignition config of the first boot.
pub const IGNITION_FILE: &str = "/ignition/config.ign";
/// GRUB reads this file and says `ignition.firstboot` to the kernel; the first boot removes it.
pub const FIRSTBOOT: &str = "/ignition.firstboot";
const ENTRIES: &str = "/loader/entries";
const PLATFORMS: &str = "/coreos/platforms.json";

/// A boot entry, `ignition.firstboot` and the like have a few hundred bytes.
const SMALL: u64 = 1 << 20;
/// Ignition itself refuses nothing, but the installers' limits are far below.
const IGNITION_LIMIT: u64 = 64 << 20;
/// More network files than NetworkManager would ever be given.
const NETWORK_FILES: usize = 10_000;
/// All network files together. A file that is a hole claims any size and takes no room.
const NETWORK_BYTES: usize = 16 << 20;

/// What is on a disk.
#[derive(Debug, Clone)]
pub struct DiskFacts {
    /// 512 or 4096.
    pub sector_size: u64,
    /// In the order of the table.
    pub partitions: Vec<Partition>,
    /// What is on the boot partition.
    pub boot: BootFacts,
}

/// What is on a boot partition.
#[derive(Debug, Clone)]
pub struct BootFacts {
    /// Label of the file system.
    pub label: String,
    /// UUID of the file system.
    pub uuid: String,
    /// Bytes per block.
    pub block_size: u32,
    /// Bytes that are free.
    pub free_bytes: u64,
    /// The boot entries, by file name.
    pub entries: Vec<(String, BootEntry)>,
    /// The arguments `ignition.firstboot` adds to the kernel's; none when the first boot is over.
    pub firstboot: Option<Vec<String>>,
    /// In [`NETWORK_DIR`].
    pub network: Vec<NamedFile>,
    /// Appended to the initramfs.
    pub initramfs_network: Vec<NamedFile>,
    /// In [`IGNITION_FILE`].
    pub ignition: Option<Vec<u8>>,
    /// The platforms that `platforms.json` knows.
    pub platforms: Vec<String>,
}

/// What the title of a boot entry tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// `Fedora CoreOS`.
    pub name: String,
    /// `44.20261101.3.0`.
    pub version: Option<String>,
    /// Fedora CoreOS says it in the third number of its versions.
    pub stream: Option<&'static str>,
}

impl BootFacts {
    /// What the newest entry says it starts. OSTree gives the newest the highest name.
    pub fn release(&self) -> Option<Release> {
        let title = self.entries.iter().rev().find_map(|(_, entry)| entry.title())?;
        Some(Release::parse(title))
    }

    /// The initramfs files that the entries start, each once.
    pub fn initramfs_paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = Vec::new();
        for (_, entry) in &self.entries {
            // Of several the last one wins where files have the same path.
            if let Some(path) = entry.initrds().last()
                && !paths.iter().any(|other| other == path)
            {
                paths.push((*path).to_owned());
            }
        }
        paths
    }

    /// The kernel arguments of the newest entry.
    pub fn kargs(&self) -> Vec<String> {
        let newest = self.entries.last();
        newest.map(|(_, entry)| entry.kargs().iter().map(|&karg| karg.to_owned()).collect()).unwrap_or_default()
    }

    /// What is in the image that not everybody may read.
    pub fn carried(&self) -> Carried {
        Carried { network: self.all_network(), config: self.ignition.is_some() }
    }

    /// Every network file in the image, each once.
    pub fn all_network(&self) -> Vec<NamedFile> {
        let mut files = self.network.clone();
        files.extend(self.initramfs_network.iter().filter(|file| !self.network.contains(file)).cloned());
        files.sort_by(|one, other| one.name.cmp(&other.name));
        files
    }
}

impl Release {
    fn parse(title: &str) -> Release {
        let title = title.split(" (ostree").next().unwrap_or(title).trim();
        let version = title.split_whitespace().rfind(|word| word.starts_with(|first: char| first.is_ascii_digit()));
        let name = version.map_or(title, |version| title.split(version).next().unwrap_or(title)).trim();
        let third = version.and_then(|version| version.split('.').nth(2));
        let stream = match (name.contains("Fedora"), third) {
            (true, Some("3")) => Some("stable"),
            (true, Some("2")) => Some("testing"),
            (true, Some("1")) => Some("next"),
            _ => None,
        };
        Release { name: name.to_owned(), version: version.map(str::to_owned), stream }
    }
}

/// Where the parts of a disk are that Kiln looks at.
#[derive(Debug, Clone)]
pub struct Places {
    /// The partition table.
    pub gpt: Gpt,
    /// The boot partition.
    pub boot: Range<u64>,
}

impl Places {
    /// Finds the boot partition.
    pub fn find(disk: &impl ReadAt) -> Result<Places, ImageError> {
        let gpt = Gpt::read(disk)?;
        let Some(boot) = gpt.find("boot") else {
            let names: Vec<&str> = gpt.partitions().iter().map(|partition| partition.name.as_str()).collect();
            return Err(ImageError::refused(
                "disk",
                format!(
                    "it has no partition `boot` (found: {})",
                    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
                ),
                "give the image of a CoreOS",
            ));
        };
        let boot = boot.start..boot.start + boot.length;
        Ok(Places { gpt, boot })
    }

    /// The boot partition, to be read.
    pub fn window<D: ReadAt>(&self, disk: D) -> Result<Window<D>, ImageError> {
        Window::new(disk, self.boot.start, self.boot.end - self.boot.start).map_err(ImageError::read("boot partition"))
    }
}

/// Reads everything that a first boot takes from the boot partition. The initramfs is not inflated; see [`layout::probe`].
pub fn probe(disk: &impl ReadAt) -> Result<DiskFacts, ImageError> {
    let places = Places::find(disk)?;
    let boot = probe_boot(&Ext4::open(places.window(disk)?)?)?;
    Ok(DiskFacts { sector_size: places.gpt.sector_size(), partitions: places.gpt.partitions().to_vec(), boot })
}

/// The same for the file system alone.
pub fn probe_boot<D: ReadAt>(fs: &Ext4<D>) -> Result<BootFacts, ImageError> {
    let mut facts = probe_files(fs)?;
    for path in facts.initramfs_paths() {
        if !fs.exists(&path)? {
            continue;
        }
        for member in find_appended(&fs.open_file(&path)?)? {
            let files = member.embedded.network.into_iter().map(|(name, bytes)| NamedFile { name, bytes });
            for file in files {
                facts.initramfs_network.retain(|other| other.name != file.name);
                facts.initramfs_network.push(file);
            }
        }
    }
    Ok(facts)
}

/// The same without a look at the initramfs, of which the last 32 MiB would be searched.
fn probe_files<D: ReadAt>(fs: &Ext4<D>) -> Result<BootFacts, ImageError> {
    let mut facts = BootFacts {
        label: fs.label(),
        uuid: fs.uuid(),
        block_size: fs.block_size(),
        free_bytes: fs.free_bytes(),
        entries: read_entries(fs)?,
        firstboot: None,
        network: read_network(fs)?,
        initramfs_network: Vec::new(),
        ignition: None,
        platforms: Vec::new(),
    };
    if fs.exists(FIRSTBOOT)? {
        let text = fs.read_file(FIRSTBOOT, SMALL)?;
        facts.firstboot = Some(firstboot::kargs(&String::from_utf8_lossy(&text)));
    }
    if fs.exists(IGNITION_FILE)? {
        facts.ignition = Some(fs.read_file(IGNITION_FILE, IGNITION_LIMIT)?);
    }
    if fs.exists(PLATFORMS)? {
        let json: serde_json::Value = serde_json::from_slice(&fs.read_file(PLATFORMS, SMALL)?).unwrap_or_default();
        facts.platforms = json.as_object().map(|platforms| platforms.keys().cloned().collect()).unwrap_or_default();
    }
    Ok(facts)
}

fn read_entries<D: ReadAt>(fs: &Ext4<D>) -> Result<Vec<(String, BootEntry)>, ImageError> {
    if !fs.exists(ENTRIES)? {
        return Err(ImageError::refused(
            "boot partition",
            format!("it has no boot entries ({ENTRIES})"),
            "give the image of a CoreOS",
        ));
    }
    let mut entries = Vec::new();
    for found in fs.read_dir(ENTRIES)? {
        let name = found.text();
        if name.ends_with(".conf") {
            let bytes = fs.read_file(format!("{ENTRIES}/{name}"), SMALL)?;
            entries.push((name.clone(), BootEntry::parse(&name, bytes)?));
        }
    }
    if entries.is_empty() {
        return Err(ImageError::damaged(bls::part("*.conf"), format!("there is none in {ENTRIES}")));
    }
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(entries)
}

fn read_network<D: ReadAt>(fs: &Ext4<D>) -> Result<Vec<NamedFile>, ImageError> {
    let mut files = Vec::new();
    let mut total = 0;
    if !fs.exists(NETWORK_DIR)? {
        return Ok(files);
    }
    for found in fs.read_dir(NETWORK_DIR)?.into_iter().filter(|found| found.metadata.kind == FileKind::File) {
        if files.len() == NETWORK_FILES {
            return Err(ImageError::damaged(NETWORK_DIR, format!("it has more than {NETWORK_FILES} files")));
        }
        let path = [NETWORK_DIR.as_bytes(), b"/", &found.name].concat();
        let bytes = fs.read_file(path, SMALL)?;
        total += bytes.len();
        if total > NETWORK_BYTES {
            return Err(ImageError::damaged(NETWORK_DIR, format!("its files have more than {NETWORK_BYTES} bytes")));
        }
        files.push(NamedFile { name: found.text(), bytes });
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_tell_name_version_and_stream() {
        let titles = [
            ("Fedora CoreOS 44.20261101.3.0 (ostree:0)", "Fedora CoreOS", Some("44.20261101.3.0"), Some("stable")),
            (
                "Red Hat Enterprise Linux CoreOS 418.94.202501221327-0 (ostree:0)",
                "Red Hat Enterprise Linux CoreOS",
                Some("418.94.202501221327-0"),
                None,
            ),
            ("CentOS Stream CoreOS (ostree:1)", "CentOS Stream CoreOS", None, None),
        ];
        for (title, name, version, stream) in titles {
            let expected = Release { name: name.to_owned(), version: version.map(str::to_owned), stream };
            assert_eq!(Release::parse(title), expected);
        }
    }
}
