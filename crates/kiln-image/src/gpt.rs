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
    let entries = disk.read_vec(start, bytes as usize).map_err(ImageError::read("GPT entries"))?;
    if crc32fast::hash(&entries) != le_u32(sector, 88) {
        return Err(ImageError::damaged("GPT entries", "their checksum does not fit"));
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
    places.push((entries.start, entries.end - entries.start, "GPT entries".into()));
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
