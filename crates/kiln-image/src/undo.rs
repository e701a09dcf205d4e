//! The way back for raw disks: what an edit replaced, kept in the gap between partition table and first partition.
//!
//! Nobody owns that gap: GRUB on GPT has a partition of its own, and CoreOS moves only the tables on its first boot. The
//! record holds the original bytes of every range the edit changes, so applying it gives the original disk to the byte,
//! the record itself included. It also holds a checksum of the edited bytes: a disk that was booted since no longer fits
//! and is refused instead of being mixed from two states.
//!
//! qcow2, gzip, ISO and initrd have ways of their own; see their modules.

use std::io::{Read, Write};
use std::ops::Range;

use crate::{ImageError, Patch, ReadAt};

const MAGIC: &[u8; 8] = b"KILNUNDO";
const VERSION: u32 = 1;
/// Magic, version, packed and unpacked length, checksums of the packed bytes and of the edited ranges.
const HEAD: usize = 8 + 4 * 5;
/// The most an edit may replace and still be recorded.
const UNPACKED_LIMIT: usize = 64 << 20;
const PART: &str = "undo record";

/// Adds the record of an edit to it. False when there is no room for one or the gap is in use: such an edit cannot be
/// taken back exactly.
pub fn record(disk: &impl ReadAt, gap: Range<u64>, patch: &mut Patch) -> Result<bool, ImageError> {
    let available = gap.end.saturating_sub(gap.start);
    if patch.byte_count() > UNPACKED_LIMIT as u64 || available < HEAD as u64 {
        return Ok(false);
    }
    let mut ranges = Vec::new();
    let mut edited = crc32fast::Hasher::new();
    for (offset, bytes) in patch.pieces() {
        ranges.extend_from_slice(&offset.to_le_bytes());
        ranges.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        ranges.extend_from_slice(&disk.read_vec(offset, bytes.len()).map_err(ImageError::read("disk"))?);
        edited.update(bytes);
    }
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    let packed = encoder.write_all(&ranges).and_then(|()| encoder.finish());
    let packed = packed.map_err(|source| ImageError::Write { what: PART.to_owned(), source })?;
    if HEAD as u64 + packed.len() as u64 > available {
        return Ok(false);
    }
    let mut bytes = MAGIC.to_vec();
    let numbers = [VERSION, packed.len() as u32, ranges.len() as u32, crc32fast::hash(&packed), edited.finalize()];
    numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
    bytes.extend_from_slice(&packed);
    let there =
        disk.read_vec(gap.start, bytes.len()).map_err(ImageError::read("the gap behind the partition table"))?;
    if there.iter().any(|&byte| byte != 0) {
        return Ok(false);
    }
    patch.write(gap.start, &bytes);
    Ok(true)
}

/// The edit that takes the recorded one back, or none where nothing was recorded.
pub fn original(disk: &impl ReadAt, gap: Range<u64>) -> Result<Option<Patch>, ImageError> {
    let available = gap.end.saturating_sub(gap.start);
    if available < HEAD as u64 {
        return Ok(None);
    }
    let head = disk.read_vec(gap.start, HEAD).map_err(ImageError::read(PART))?;
    let Some(head) = head.strip_prefix(MAGIC) else { return Ok(None) };
    let number = |at: usize| {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&head[at * 4..at * 4 + 4]);
        u32::from_le_bytes(bytes)
    };
    let damaged = |problem: &str| ImageError::damaged(PART, problem);
    if number(0) != VERSION {
        let problem = format!("it was written by another Kiln (version {} of the record)", number(0));
        return Err(ImageError::refused(PART, problem, "use that Kiln, or take the original image"));
    }
    let (packed_length, length) = (number(1), number(2) as usize);
    if u64::from(packed_length) > available - HEAD as u64 || length > UNPACKED_LIMIT + (1 << 20) {
        return Err(damaged("it is longer than the gap it lies in"));
    }
    let packed = disk.read_vec(gap.start + HEAD as u64, packed_length as usize).map_err(ImageError::read(PART))?;
    if crc32fast::hash(&packed) != number(3) {
        return Err(damaged("its checksum does not fit"));
    }
    let mut ranges = Vec::new();
    flate2::read::DeflateDecoder::new(packed.as_slice())
        .take(length as u64 + 1)
        .read_to_end(&mut ranges)
        .map_err(|_| damaged("it cannot be inflated"))?;
    if ranges.len() != length {
        return Err(damaged("it inflates to another length than it says"));
    }
    let mut patch = Patch::new();
    let mut edited = crc32fast::Hasher::new();
    let mut rest = ranges.as_slice();
    while let Some((numbers, bytes)) = rest.split_first_chunk::<16>() {
        let offset = u64::from_le_bytes(std::array::from_fn(|at| numbers[at]));
        let length = u64::from_le_bytes(std::array::from_fn(|at| numbers[at + 8]));
        let length = usize::try_from(length).map_err(|_| damaged("it contradicts itself"))?;
        let (old, after) = bytes.split_at_checked(length).ok_or_else(|| damaged("it contradicts itself"))?;
        edited.update(&disk.read_vec(offset, length).map_err(ImageError::read("a range of the undo record"))?);
        patch.write(offset, old);
        rest = after;
    }
    if !rest.is_empty() {
        return Err(damaged("it contradicts itself"));
    }
    if edited.finalize() != number(4) {
        return Err(ImageError::refused(
            "disk",
            "it was written to after Kiln edited it, by a machine that booted from it or by another program",
            "take the original image instead",
        ));
    }
    patch.write(gap.start, &vec![0; HEAD + packed.len()]);
    Ok(Some(patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Patched;

    const GAP: Range<u64> = 100..1000;

    fn disk() -> Vec<u8> {
        (0..5000u64).map(|at| if GAP.contains(&at) { 0 } else { (at * 7 / 3) as u8 }).collect()
    }

    fn edited(disk: &[u8]) -> Vec<u8> {
        let disk = disk.to_vec();
        let mut patch = Patch::new();
        patch.write(3000, b"new bytes");
        patch.write(4000, &[9; 700]);
        assert!(record(&disk, GAP, &mut patch).unwrap());
        let length = disk.len();
        Patched::with(disk, patch).read_vec(0, length).unwrap()
    }

    #[test]
    fn an_edit_is_taken_back_to_the_byte() {
        let edited = edited(&disk());
        let back = original(&edited, GAP).unwrap().unwrap();
        assert_eq!(Patched::with(&edited, back).read_vec(0, edited.len()).unwrap(), disk());
        assert_eq!(original(&disk(), GAP).unwrap(), None);
        assert_eq!(original(&disk(), 100..100).unwrap(), None);
    }

    #[test]
    fn a_disk_that_changed_since_is_not_mixed_from_two_states() {
        let mut edited = edited(&disk());
        edited[4100] ^= 1;
        let problem = original(&edited, GAP).unwrap_err().to_string();
        let expected = "disk: it was written to after Kiln edited it, by a machine that booted from it or by another program; \
                        take the original image instead";
        assert_eq!(problem, expected);
        edited[4100] ^= 1;
        for at in 100..100 + HEAD + 20 {
            let mut flipped = edited.clone();
            flipped[at] ^= 0x55;
            assert!(!matches!(original(&flipped, GAP), Ok(Some(_))), "byte {at}");
        }
    }

    #[test]
    fn a_gap_that_is_used_or_too_small_is_left_alone() {
        let mut used = disk();
        used[110] = 1;
        let mut patch = Patch::new();
        patch.write(3000, b"new bytes");
        let before = patch.clone();
        assert!(!record(&used, GAP, &mut patch).unwrap());
        assert!(!record(&disk(), 100..130, &mut patch).unwrap());
        assert_eq!(patch, before);
    }
}
