//! GUID partition tables: where the partitions of a disk are.
//!
//! [`Gpt::read`] believes nothing: checksums of header and entries must fit, and every partition lies within the disk and
//! beside the others. What it returns can be cut out with [`crate::Window`] without further checks.
//!
//! Not here: writing tables, and the protective MBR, which nobody needs to find a partition.
//! The backup table is not read: CoreOS cloud images keep it where the image ended before it was enlarged, and the first
//! boot moves it. The sector size is nowhere in the table; it shows in the place of the header, which is sector 1.

use std::fmt;
use std::ops::Range;

use crate::ImageError;
use crate::read_at::ReadAt;

/// Where systemd's boot loader specification puts kernels; CoreOS gives its `boot` partition this type.
pub const XBOOTLDR: Guid = Guid::of(0xbc13_c2ff, 0x59e6, 0x4262, [0xa3, 0x52, 0xb2, 0x75, 0xfd, 0x6f, 0x71, 0x72]);

/// The specification wants at least 128 entries of 128 bytes; real tools write that or a little more.
const MAX_ENTRIES_BYTES: u64 = 1 << 20;

/// A partition table that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpt {
    sector_size: u64,
    disk_guid: Guid,
    entries_end: u64,
    partitions: Vec<Partition>,
}

/// One used entry of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// As in `/dev/sda3`: the place in the table, from 1.
    pub number: u32,
    /// The label in the table, which is not the label of the filesystem.
    pub name: String,
    /// What it is for.
    pub type_guid: Guid,
    /// The first byte on the disk.
    pub start: u64,
    /// How many bytes.
    pub length: u64,
}

/// A GUID as it lies on the disk: the first three groups are little-endian.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Guid([u8; 16]);

impl Gpt {
    /// Reads and checks the table of a disk.
    pub fn read(disk: &impl ReadAt) -> Result<Gpt, ImageError> {
        for sector_size in [512, 4096] {
            let Ok(sector) = disk.read_vec(sector_size, 512) else { continue };
            if sector.starts_with(b"EFI PART") {
                return parse(disk, sector_size, &sector);
            }
        }
        Err(ImageError::refused(
            "disk",
            "it has no GPT partition table",
            "use the image of a whole CoreOS disk (qemu, openstack, metal or metal4k)",
        ))
    }

    /// 512 or 4096.
    pub fn sector_size(&self) -> u64 {
        self.sector_size
    }

    /// The disk's own identifier.
    pub fn disk_guid(&self) -> Guid {
        self.disk_guid
    }

    /// In the order of the table.
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// The first partition of this label; for `boot` also the first of type XBOOTLDR.
    pub fn find(&self, name: &str) -> Option<&Partition> {
        self.partitions
            .iter()
            .find(|partition| partition.name == name)
            .or_else(|| self.partitions.iter().find(|partition| name == "boot" && partition.type_guid == XBOOTLDR))
    }

    /// The bytes between the table and the first partition, which belong to nobody. Empty where there are none.
    pub fn unused_gap(&self) -> Range<u64> {
        let end = self.partitions.iter().map(|partition| partition.start).min().unwrap_or(self.entries_end);
        self.entries_end..end.max(self.entries_end)
    }
}

impl Guid {
    const fn of(first: u32, second: u16, third: u16, rest: [u8; 8]) -> Guid {
        let (a, b, c, d) = (first.to_le_bytes(), second.to_le_bytes(), third.to_le_bytes(), rest);
        Guid([a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]])
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, index) in [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15].into_iter().enumerate() {
            if [4, 6, 8, 10].contains(&place) {
                formatter.write_str("-")?;
            }
            write!(formatter, "{:02x}", self.0[index])?;
        }
        Ok(())
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

fn parse(disk: &impl ReadAt, sector_size: u64, sector: &[u8]) -> Result<Gpt, ImageError> {
    let header = |problem: String| ImageError::damaged("GPT header", problem);
    let header_size = le_u32(sector, 12) as usize;
    if !(92..=512).contains(&header_size) {
        return Err(header(format!("it says it is {header_size} bytes long, not 92 to 512")));
    }
    let mut checked = sector[..header_size].to_vec();
    checked[16..20].fill(0);
    if crc32fast::hash(&checked) != le_u32(sector, 16) {
        return Err(header("its checksum does not fit".into()));
    }
    if le_u64(sector, 24) != 1 {
        return Err(header(format!("it says it lies in sector {}, not 1", le_u64(sector, 24))));
    }
    let (count, entry_size) = (le_u32(sector, 80), le_u32(sector, 84));
    let bytes = u64::from(count) * u64::from(entry_size);
    if !(128..=4096).contains(&entry_size) || !entry_size.is_power_of_two() || bytes > MAX_ENTRIES_BYTES {
        return Err(header(format!("{count} entries of {entry_size} bytes are not a table that any tool writes")));
    }
    let first_entry = le_u64(sector, 72);
    let start = first_entry.checked_mul(sector_size).filter(|&start| start >= 2 * sector_size);
    let start = start.ok_or_else(|| header(format!("the entries cannot begin in sector {first_entry}")))?;
    let entries = disk.read_vec(start, bytes as usize).map_err(ImageError::read("GPT entry table"))?;
    if crc32fast::hash(&entries) != le_u32(sector, 88) {
        return Err(ImageError::damaged("GPT entry table", "its checksum does not fit"));
    }
    let mut partitions = Vec::new();
    for (number, entry) in (1..).zip(entries.chunks_exact(entry_size as usize)) {
        if let Some(partition) = parse_entry(number, entry, sector_size, disk.len())? {
            partitions.push(partition);
        }
    }
    let entries_end = start + bytes;
    check_places(&partitions, start..entries_end)?;
    Ok(Gpt { sector_size, disk_guid: guid(sector, 56), entries_end, partitions })
}

fn parse_entry(number: u32, entry: &[u8], sector_size: u64, disk: u64) -> Result<Option<Partition>, ImageError> {
    let type_guid = guid(entry, 0);
    if type_guid == Guid([0; 16]) {
        return Ok(None);
    }
    let (first, last) = (le_u64(entry, 32), le_u64(entry, 40));
    let sectors = last.checked_sub(first).and_then(|sectors| sectors.checked_add(1));
    let length = sectors.and_then(|sectors| sectors.checked_mul(sector_size));
    let start = first.checked_mul(sector_size);
    let (Some(start), Some(length)) = (start, length) else {
        return Err(ImageError::damaged(
            format!("GPT partition {number}"),
            format!("it goes from sector {first} to {last}"),
        ));
    };
    if start.checked_add(length).is_none_or(|end| end > disk) {
        return Err(ImageError::damaged(
            format!("GPT partition {number}"),
            format!("it ends in sector {last}, but the disk has {}", disk / sector_size),
        ));
    }
    let units: Vec<u16> = entry[56..128]
        .chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
        .take_while(|&unit| unit != 0)
        .collect();
    Ok(Some(Partition { number, name: String::from_utf16_lossy(&units), type_guid, start, length }))
}

/// Partitions that share sectors with each other or with the table: writing into one would change the other.
fn check_places(partitions: &[Partition], entries: Range<u64>) -> Result<(), ImageError> {
    let mut places: Vec<(u64, u64, String)> = partitions
        .iter()
        .map(|partition| (partition.start, partition.length, format!("GPT partition {}", partition.number)))
        .collect();
    places.push((0, 1, "the boot sector".into()));
    places.push((entries.start, entries.end - entries.start, "the GPT entry table".into()));
    places.sort();
    for pair in places.windows(2) {
        if pair[0].0 + pair[0].1 > pair[1].0 {
            return Err(ImageError::damaged(&pair[1].2, format!("it overlaps {}", pair[0].2)));
        }
    }
    Ok(())
}

fn le_u32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |field| u32::from_le_bytes([field[0], field[1], field[2], field[3]]))
}

fn le_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from(le_u32(bytes, at)) | u64::from(le_u32(bytes, at + 4)) << 32
}

fn guid(bytes: &[u8], at: usize) -> Guid {
    let mut guid = [0; 16];
    if let Some(field) = bytes.get(at..at + 16) {
        guid.copy_from_slice(field);
    }
    Guid(guid)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use kiln_testimage::{Disk, TempDir, disk, require_all, run};
    use proptest::prelude::*;

    use super::*;

    /// A table of 128 entries for these partitions: name, first and last sector.
    fn disk_with(sector: usize, partitions: &[(&str, u64, u64)]) -> Vec<u8> {
        let mut disk = vec![0; 256 * sector];
        disk[sector..sector + 16].copy_from_slice(b"EFI PART\0\0\x01\0\x5c\0\0\0");
        disk[sector + 24] = 1;
        disk[sector + 72] = 2;
        disk[sector + 80] = 128;
        disk[sector + 84] = 128;
        for (number, (name, first, last)) in partitions.iter().enumerate() {
            let entry = &mut disk[2 * sector + 128 * number..][..128];
            entry[..16].copy_from_slice(&XBOOTLDR.0);
            entry[0] ^= u8::from(*name != "other");
            entry[32..40].copy_from_slice(&first.to_le_bytes());
            entry[40..48].copy_from_slice(&last.to_le_bytes());
            for (unit, place) in name.encode_utf16().zip(entry[56..].chunks_exact_mut(2)) {
                place.copy_from_slice(&unit.to_le_bytes());
            }
        }
        seal(&mut disk, sector);
        disk
    }

    /// Makes the checksums fit again.
    fn seal(disk: &mut [u8], sector: usize) {
        let entries = crc32fast::hash(&disk[2 * sector..2 * sector + 128 * 128]);
        disk[sector + 88..sector + 92].copy_from_slice(&entries.to_le_bytes());
        disk[sector + 16..sector + 20].fill(0);
        let header = crc32fast::hash(&disk[sector..sector + 92]);
        disk[sector + 16..sector + 20].copy_from_slice(&header.to_le_bytes());
    }

    #[test]
    fn a_partition_is_found_by_label_or_by_type_in_sectors_of_both_sizes() {
        for sector in [512, 4096] {
            let disk = disk_with(sector as usize, &[("root", 100, 199), ("other", 50, 99)]);
            let gpt = Gpt::read(&disk).unwrap();
            assert_eq!(gpt.sector_size(), sector);
            let root = gpt.find("root").unwrap();
            assert_eq!((root.number, root.start, root.length), (1, 100 * sector, 100 * sector));
            let boot = gpt.find("boot").unwrap();
            assert_eq!((boot.name.as_str(), boot.number, boot.start), ("other", 2, 50 * sector));
            assert_eq!(boot.type_guid.to_string(), "bc13c2ff-59e6-4262-a352-b275fd6f7172");
            assert_eq!(gpt.find("other"), Some(boot));
            assert_eq!(gpt.find("efi"), None);
            assert_eq!(gpt.unused_gap(), 2 * sector + 128 * 128..50 * sector);
        }
        let labelled = disk_with(512, &[("other", 50, 99), ("boot", 100, 199)]);
        assert_eq!(Gpt::read(&labelled).unwrap().find("boot").unwrap().number, 2);
        assert!(Gpt::read(&disk_with(512, &[("boot", 34, 99)])).unwrap().unused_gap().is_empty());
        assert!(Gpt::read(&disk_with(512, &[])).unwrap().unused_gap().is_empty());
    }

    #[test]
    fn tables_that_contradict_themselves_are_refused_with_the_reason() {
        let good = disk_with(512, &[("boot", 50, 99), ("root", 100, 199)]);
        type Change = fn(&mut Vec<u8>);
        let sealed: [(Change, &str); 9] = [
            (|disk| disk[512 + 24] = 2, "GPT header is damaged: it says it lies in sector 2, not 1"),
            (|disk| disk[512 + 72] = 1, "GPT header is damaged: the entries cannot begin in sector 1"),
            (
                |disk| disk[512 + 72 + 7] = 255,
                "GPT header is damaged: the entries cannot begin in sector 18374686479671623682",
            ),
            (
                |disk| disk[512 + 83] = 1,
                "GPT header is damaged: 16777344 entries of 128 bytes are not a table that any tool writes",
            ),
            (
                |disk| disk[512 + 84] = 129,
                "GPT header is damaged: 128 entries of 129 bytes are not a table that any tool writes",
            ),
            (|disk| disk[1024 + 40] = 100, "GPT partition 2 is damaged: it overlaps GPT partition 1"),
            (|disk| disk[1024 + 32] = 20, "GPT partition 1 is damaged: it overlaps the GPT entry table"),
            (|disk| disk[1024 + 32] = 120, "GPT partition 1 is damaged: it goes from sector 120 to 99"),
            (
                |disk| disk[1024 + 128 + 41] = 1,
                "GPT partition 2 is damaged: it ends in sector 455, but the disk has 256",
            ),
        ];
        for (change, expected) in sealed {
            let mut disk = good.clone();
            change(&mut disk);
            seal(&mut disk, 512);
            assert_eq!(Gpt::read(&disk).unwrap_err().to_string(), expected);
        }
        let plain: [(Change, &str); 5] = [
            (|disk| disk[512 + 12] = 91, "GPT header is damaged: it says it is 91 bytes long, not 92 to 512"),
            (|disk| disk[512 + 40] = 9, "GPT header is damaged: its checksum does not fit"),
            (|disk| disk[1024 + 60] = 9, "GPT entry table is damaged: its checksum does not fit"),
            (|disk| disk.truncate(2000), "GPT entry table is damaged: the image ends before it"),
            (
                |disk| disk[512] = 0,
                "disk: it has no GPT partition table; use the image of a whole CoreOS disk (qemu, openstack, metal or metal4k)",
            ),
        ];
        for (change, expected) in plain {
            let mut disk = good.clone();
            change(&mut disk);
            assert_eq!(Gpt::read(&disk).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn coreos_disks_are_read_as_sfdisk_reads_them() {
        let test = "coreos_disks_are_read_as_sfdisk_reads_them";
        if !require_all(test, disk::PROGRAMS) || !require_all(test, &[("sfdisk", "fdisk")]) {
            return;
        }
        let folder = TempDir::new("gpt");
        let path = folder.join("disk");
        for (sector_size, grown_to_mebibytes) in [(512, None), (512, Some(64)), (4096, None)] {
            let made = Disk { sector_size, grown_to_mebibytes, boot_mebibytes: 8, ..Disk::default() };
            let layout = made.write(&path);
            let gpt = Gpt::read(&crate::read_at::ImageFile::new(std::fs::File::open(&path).unwrap()).unwrap()).unwrap();
            assert_eq!(gpt.sector_size(), sector_size);
            assert_eq!(gpt.disk_guid().to_string(), "00000000-0000-4000-a000-000000000001");
            let boot = gpt.find("boot").unwrap();
            assert_eq!(boot.start..boot.start + boot.length, layout.boot);
            assert_eq!(gpt.unused_gap(), 2 * sector_size + 128 * 128..1 << 20);
            if sector_size == 512 {
                let printed = run(Command::new("sfdisk").arg("--json").arg(&path));
                let table: serde_json::Value = serde_json::from_slice(&printed).unwrap();
                let expected: Vec<_> = table["partitiontable"]["partitions"].as_array().unwrap().iter().collect();
                assert_eq!(gpt.partitions().len(), expected.len());
                for (partition, expected) in gpt.partitions().iter().zip(expected) {
                    assert_eq!(partition.name, expected["name"].as_str().unwrap());
                    assert_eq!(partition.type_guid.to_string(), expected["type"].as_str().unwrap().to_lowercase());
                    assert_eq!(partition.start, expected["start"].as_u64().unwrap() * 512);
                    assert_eq!(partition.length, expected["size"].as_u64().unwrap() * 512);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn whatever_the_table_says_partitions_lie_within_the_disk(
            changes in prop::collection::vec((0usize..600, any::<u8>()), 0..6), sealed: bool, length in 0usize..131_072,
        ) {
            let mut disk = disk_with(512, &[("boot", 50, 99), ("root", 100, 199)]);
            for (place, byte) in changes {
                // The header and the first four entries.
                disk[if place < 92 { 512 + place } else { 1024 - 92 + place }] = byte;
            }
            if sealed {
                seal(&mut disk, 512);
            }
            disk.truncate(length);
            if let Ok(gpt) = Gpt::read(&disk) {
                for partition in gpt.partitions() {
                    prop_assert!(crate::Window::new(&disk, partition.start, partition.length).is_ok());
                }
            }
        }
    }
}
