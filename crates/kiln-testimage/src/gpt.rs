//! A GUID partition table with its protective MBR and its copy at the end, for sectors of 512 or 4096 bytes.
//!
//! sfdisk would do for 512; images for drives with 4096-byte sectors need the whole table in those units.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// One partition, in bytes.
pub(crate) struct Partition {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) start: u64,
    pub(crate) length: u64,
}

const ENTRIES: usize = 128;
const ENTRY_BYTES: usize = 128;
/// coreos-assembler's own; machines get a new one at first boot.
const DISK_GUID: &str = "00000000-0000-4000-a000-000000000001";

/// Writes both tables; the disk ends where the second one does.
pub(crate) fn write(disk: &File, disk_length: u64, sector: u64, partitions: &[Partition]) -> io::Result<()> {
    let mut entries = vec![0; ENTRIES * ENTRY_BYTES];
    for (number, (partition, entry)) in partitions.iter().zip(entries.chunks_mut(ENTRY_BYTES)).enumerate() {
        entry[..16].copy_from_slice(&guid(partition.kind));
        entry[16..32].copy_from_slice(&guid(&format!("00000000-0000-4000-b000-{:012x}", number + 1)));
        entry[32..40].copy_from_slice(&(partition.start / sector).to_le_bytes());
        entry[40..48].copy_from_slice(&((partition.start + partition.length) / sector - 1).to_le_bytes());
        for (letter, place) in partition.name.encode_utf16().zip(entry[56..].chunks_mut(2)) {
            place.copy_from_slice(&letter.to_le_bytes());
        }
    }
    let table_sectors = entries.len() as u64 / sector;
    let last = disk_length / sector - 1;
    let header = |own: u64, other: u64, table: u64| {
        let mut header = vec![0; sector as usize];
        header[..8].copy_from_slice(b"EFI PART");
        header[8..16].copy_from_slice(&[0, 0, 1, 0, 92, 0, 0, 0]);
        let first_usable = 2 + table_sectors;
        for (at, value) in [(24, own), (32, other), (40, first_usable), (48, last - table_sectors - 1), (72, table)] {
            header[at..at + 8].copy_from_slice(&u64::to_le_bytes(value));
        }
        header[56..72].copy_from_slice(&guid(DISK_GUID));
        for (at, value) in [(80, ENTRIES as u32), (84, ENTRY_BYTES as u32), (88, crc32fast::hash(&entries))] {
            header[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        let checksum = crc32fast::hash(&header[..92]);
        header[16..20].copy_from_slice(&checksum.to_le_bytes());
        header
    };
    disk.write_all_at(&protective_mbr(last), 0)?;
    disk.write_all_at(&header(1, last, 2), sector)?;
    disk.write_all_at(&entries, 2 * sector)?;
    disk.write_all_at(&entries, (last - table_sectors) * sector)?;
    disk.write_all_at(&header(last, 1, last - table_sectors), last * sector)
}

fn protective_mbr(last_sector: u64) -> [u8; 512] {
    let mut mbr = [0; 512];
    // One partition of type EE over the whole disk, so that tools of the old kind leave it alone.
    mbr[446..454].copy_from_slice(&[0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff]);
    mbr[454..458].copy_from_slice(&1u32.to_le_bytes());
    mbr[458..462].copy_from_slice(&u32::try_from(last_sector).unwrap_or(u32::MAX).to_le_bytes());
    mbr[510..].copy_from_slice(&[0x55, 0xaa]);
    mbr
}

/// The first three groups of a GUID are stored with the low byte first, the others as they are read.
fn guid(text: &str) -> [u8; 16] {
    let digits: String = text.chars().filter(|letter| *letter != '-').collect();
    let mut bytes = u128::from_str_radix(&digits, 16).unwrap().to_be_bytes();
    bytes[..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
    bytes
}
