//! What an image is and what has been put into it, as one value for people and programs.
//!
//! Images inside gzip are inflated only as far as the boot partition reaches. No secret is in an [`Inspection`]: network
//! files and Ignition configs are told by name and size; [`network_files`] hands them out to whoever asks for them.

use serde::Serialize;

use crate::compression::Compression;
use crate::coreos::{self, BootFacts, CopyNetwork, DiskFacts, layout};
use crate::format::{Content, Format};
use crate::gpt::Gpt;
use crate::gz_index::GzDisk;
use crate::initrd::appended::find_appended;
use crate::kargs_line::{self, missing};
use crate::live_iso::LiveIso;
use crate::qcow2::{self, Qcow2};
use crate::{Composed, ImageError, NamedFile, Patched, ReadAt, splice, undo};

/// Everything `kiln image inspect` tells.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspection {
    /// What the file is.
    pub content: Content,
    /// What is around it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<&'static str>,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of the disk in it, where they are known without inflating everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// Which system it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<System>,
    /// What is particular to disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<Disk>,
    /// What is particular to live ISOs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_iso: Option<Iso>,
    /// What was put into it.
    pub customized: Customized,
}

/// Which system an image starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct System {
    /// `Fedora CoreOS`.
    pub name: String,
    /// `44.20261101.3.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// `stable`, `testing` or `next`, where the version says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<&'static str>,
}

/// A disk and its boot partition.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// 512 or 4096.
    pub sector_size: u64,
    /// In the order of the table.
    pub partitions: Vec<Partition>,
    /// Label of the boot file system.
    pub boot_label: String,
    /// Bytes per block of the boot file system.
    pub boot_block_size: u32,
    /// Free bytes on the boot file system.
    pub boot_free_bytes: u64,
    /// Whether the next boot is the first one.
    pub first_boot_pending: bool,
    /// Where the image's own script looks for network files.
    pub copy_network: CopyNetwork,
    /// Platforms the image knows.
    pub platforms: Vec<String>,
    /// What is started.
    pub boot_entries: Vec<Entry>,
}

/// One partition.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Partition {
    /// As in `/dev/sda3`.
    pub number: u32,
    /// The label in the table.
    pub name: String,
    /// What it is for.
    pub type_guid: String,
    /// The first byte.
    pub start: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// One boot entry.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Its file.
    pub name: String,
    /// What the menu shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The kernel arguments.
    pub kernel_arguments: Vec<String>,
}

/// A live ISO.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Iso {
    /// The label of the volume.
    pub label: String,
    /// Bytes for Ignition config and network files.
    pub area_bytes: u64,
    /// Bytes of them that are used.
    pub area_used: u64,
    /// Whether the area was made larger by Kiln.
    pub area_grown: bool,
    /// Whether keyfiles in the initrd are honoured.
    pub reads_network: bool,
    /// Whether a minimal ISO can be made of it.
    pub has_miniso: bool,
    /// The kernel arguments of the live system; none where the ISO has no place for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_arguments: Option<String>,
}

/// What was put into an image, by whomever.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Customized {
    /// Network files.
    pub network: Vec<Network>,
    /// Bytes of the Ignition config.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignition_bytes: Option<u64>,
    /// Kernel arguments that the original has not; known where the image remembers its original.
    pub appended_kernel_arguments: Vec<String>,
    /// Kernel arguments that only the original has.
    pub deleted_kernel_arguments: Vec<String>,
    /// Kernel arguments of the first boot alone.
    pub first_boot_kernel_arguments: Vec<String>,
    /// Whether `kiln image reset` gives the original bytes back.
    pub remembers_original: bool,
}

impl Customized {
    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        let Customized {
            network,
            ignition_bytes,
            appended_kernel_arguments,
            deleted_kernel_arguments,
            first_boot_kernel_arguments,
            remembers_original,
        } = self;
        network.is_empty()
            && ignition_bytes.is_none()
            && appended_kernel_arguments.is_empty()
            && deleted_kernel_arguments.is_empty()
            && first_boot_kernel_arguments.is_empty()
            && !remembers_original
    }
}

/// One network file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Where it lies.
    pub place: Place,
}

/// Where a network file lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// `/boot/coreos-firstboot-network`.
    BootPartition,
    /// `/etc/coreos-firstboot-network` of an initramfs.
    Initramfs,
}

/// Looks at an image. `compression` is what was around the file before it came here.
pub fn inspect(
    file: &(impl ReadAt + Sync),
    format: Format,
    compression: Compression,
) -> Result<Inspection, ImageError> {
    let mut inspection = Inspection {
        content: format.content,
        compression: (compression != Compression::None).then(|| compression.name()),
        file_bytes: file.len(),
        disk_bytes: None,
        system: None,
        disk: None,
        live_iso: None,
        customized: Customized::default(),
    };
    match format.content {
        Content::RawDisk | Content::Qcow2 => inspect_disk(file, format, &mut inspection)?,
        Content::Iso => inspect_iso(file, &mut inspection)?,
        Content::Initrd => inspect_initrd(file, &mut inspection)?,
    }
    Ok(inspection)
}

/// The network files in an image, sorted by name.
pub fn network_files(file: &(impl ReadAt + Sync), format: Format) -> Result<Vec<NamedFile>, ImageError> {
    let named = |(name, bytes)| NamedFile { name, bytes };
    match format.content {
        Content::RawDisk | Content::Qcow2 => {
            Ok(with_disks(file, format, |current, _| coreos::probe(&current))?.boot.all_network())
        }
        Content::Iso => Ok(LiveIso::open(file)?.embedded()?.network.into_iter().map(named).collect()),
        Content::Initrd => {
            let members = find_appended(file)?;
            let mut files: std::collections::BTreeMap<String, Vec<u8>> = std::collections::BTreeMap::new();
            members.into_iter().for_each(|member| files.extend(member.embedded.network));
            Ok(files.into_iter().map(named).collect())
        }
    }
}

/// Opens whatever is around a disk and shows the disk as it is, and as it was where that is remembered.
fn with_disks<T>(
    file: &impl ReadAt,
    format: Format,
    look: impl FnOnce(&dyn ReadAt, Option<&dyn ReadAt>) -> Result<T, ImageError>,
) -> Result<T, ImageError> {
    if format.compression != Compression::Gzip {
        return within_container(file, None, format.content, look);
    }
    let current = GzDisk::new(file);
    match splice::restore(file)? {
        Some(segments) => {
            let original = GzDisk::new(Composed::new(file, segments).map_err(ImageError::read("gzip file"))?);
            within_container(&current, Some(&original), format.content, look)
        }
        None => within_container(&current, None, format.content, look),
    }
}

fn within_container<T>(
    current: &impl ReadAt,
    original: Option<&dyn ReadAt>,
    content: Content,
    look: impl FnOnce(&dyn ReadAt, Option<&dyn ReadAt>) -> Result<T, ImageError>,
) -> Result<T, ImageError> {
    if content == Content::Qcow2 {
        let guest = Qcow2::open(current)?;
        if let Some(original) = original {
            return look(&guest, Some(&Qcow2::open(original)?));
        }
        // A file that was written to since has no way back, which is no reason not to look at it.
        return match Qcow2::undo(&current) {
            Ok(Some(_)) => look(&guest, Some(&Qcow2::open(qcow2::original(current)?)?)),
            _ => look(&guest, None),
        };
    }
    if original.is_some() {
        return look(current, original);
    }
    match undo::original(current, Gpt::read(current)?.unused_gap()) {
        Ok(Some(patch)) => look(current, Some(&Patched::with(current, patch))),
        _ => look(current, None),
    }
}

fn inspect_disk(file: &impl ReadAt, format: Format, inspection: &mut Inspection) -> Result<(), ImageError> {
    with_disks(file, format, |current, original| {
        let facts = coreos::probe(&current)?;
        inspection.disk_bytes = match format {
            // The length of what is in gzip shows at its end only; a qcow2 says the length of its disk.
            Format { compression: Compression::Gzip, content: Content::RawDisk } => None,
            _ => Some(current.len()),
        };
        inspection.system = facts.boot.release().map(|release| System {
            name: release.name,
            version: release.version,
            stream: release.stream,
        });
        inspection.customized = customized(&facts.boot);
        if let Some(original) = original {
            let (before, after) = (coreos::probe(&original)?.boot.kargs(), facts.boot.kargs());
            inspection.customized.appended_kernel_arguments = missing(&after, &before);
            inspection.customized.deleted_kernel_arguments = missing(&before, &after);
            inspection.customized.remembers_original = true;
        }
        inspection.disk = Some(disk(facts, layout::probe(&current)?));
        Ok(())
    })
}

fn customized(boot: &BootFacts) -> Customized {
    let told = |place: Place| {
        move |file: &NamedFile| Network { name: file.name.clone(), bytes: file.bytes.len() as u64, place }
    };
    let network = boot.network.iter().map(told(Place::BootPartition));
    let initramfs = boot.initramfs_network.iter().map(told(Place::Initramfs));
    Customized {
        network: network.chain(initramfs).collect(),
        ignition_bytes: boot.ignition.as_ref().map(|config| config.len() as u64),
        first_boot_kernel_arguments: boot.firstboot.clone().unwrap_or_default(),
        ..Customized::default()
    }
}

fn disk(facts: DiskFacts, copy_network: CopyNetwork) -> Disk {
    let DiskFacts { sector_size, partitions, boot } = facts;
    let partitions = partitions.into_iter().map(|partition| Partition {
        number: partition.number,
        name: partition.name,
        type_guid: partition.type_guid.to_string(),
        start: partition.start,
        bytes: partition.length,
    });
    let entries = boot.entries.iter().map(|(name, entry)| Entry {
        name: name.clone(),
        title: entry.title().map(str::to_owned),
        kernel_arguments: entry.kargs().iter().map(|&karg| karg.to_owned()).collect(),
    });
    Disk {
        sector_size,
        partitions: partitions.collect(),
        boot_label: boot.label.clone(),
        boot_block_size: boot.block_size,
        boot_free_bytes: boot.free_bytes,
        first_boot_pending: boot.firstboot.is_some(),
        copy_network,
        platforms: boot.platforms.clone(),
        boot_entries: entries.collect(),
    }
}

fn inspect_iso(file: &impl ReadAt, inspection: &mut Inspection) -> Result<(), ImageError> {
    let iso = LiveIso::open(file)?;
    inspection.system =
        iso.release().map(|release| System { name: release.name, version: Some(release.version), stream: None });
    let embedded = iso.embedded()?;
    let network = embedded.network.iter();
    inspection.customized.network = network
        .map(|(name, bytes)| Network { name: name.clone(), bytes: bytes.len() as u64, place: Place::Initramfs })
        .collect();
    inspection.customized.ignition_bytes = embedded.ignition.as_ref().map(|config| config.len() as u64);
    let kargs = iso.kargs()?;
    if let Some(kargs) = &kargs {
        let words = |line: &str| -> Vec<String> { kargs_line::split(line).into_iter().map(str::to_owned).collect() };
        let (before, after) = (words(&kargs.default), words(&kargs.current));
        inspection.customized.appended_kernel_arguments = missing(&after, &before);
        inspection.customized.deleted_kernel_arguments = missing(&before, &after);
    }
    let room = iso.room()?;
    inspection.customized.remembers_original = !inspection.customized.is_empty() || room.is_grown;
    inspection.live_iso = Some(Iso {
        label: iso.volume_id().to_owned(),
        area_bytes: room.capacity,
        area_used: room.used,
        area_grown: room.is_grown,
        reads_network: iso.features().live_initrd_network,
        has_miniso: iso.has_miniso()?,
        kernel_arguments: kargs.map(|kargs| kargs.current),
    });
    Ok(())
}

fn inspect_initrd(file: &impl ReadAt, inspection: &mut Inspection) -> Result<(), ImageError> {
    for member in find_appended(file)? {
        let customized = &mut inspection.customized;
        for (name, bytes) in &member.embedded.network {
            customized.network.retain(|other| other.name != *name);
            let bytes = bytes.len() as u64;
            customized.network.push(Network { name: name.clone(), bytes, place: Place::Initramfs });
        }
        if let Some(config) = &member.embedded.ignition {
            customized.ignition_bytes = Some(config.len() as u64);
        }
        customized.remembers_original |= member.own;
    }
    Ok(())
}
