//! Taking an edit back: what the header said before, kept in a header extension of the edited file.
//!
//! An edit replaces the header and appends; everything else of the original is still there. [`Undo`] is the original's first
//! bytes and length, so that writing the former and cutting at the latter gives the original file, byte for byte.
//!
//! A virtual machine that was started from the edited file has written into it, and cutting that would give something that
//! was never there. So there are two checksums: in the record, of the original's header, L1 table and refcount table, which is
//! the same for all edits of a base; and in the file's last bytes, of the tail and the original's refcount blocks. Whoever
//! takes or frees a cluster changes a refcount block, and that is either an old one or in the tail; a guest that mounts what
//! was edited changes a cluster in the tail. Such a file is refused. The record speaks only of what lies at the beginning of
//! files that `qemu-img convert` writes: a compressed base is then hashed in the same pass that inflates it.
//! Not noticed: a write over clusters that were in use before and that the edit left alone, if there was no other write.

use super::Qcow2;
use super::header::{EXTENSION_UNDO, Header, PART, be_u32, be_u64, entries};
use super::refcounts::{check_distinct, read_block};
use crate::ImageError;
use crate::patch::{Patch, Patched};
use crate::read_at::{ReadAt, Window};

/// Places of the L1 table, refcount table and its clusters, checksum, autoclear bits, length.
const RECORD: usize = 40;
/// The record as an extension, and the mark behind it.
pub(super) const ROOM: usize = 8 + RECORD + 8;
/// What precedes the checksum at the end of the file. qemu writes there when it takes the next cluster.
const TRAILER: &[u8; 8] = b"KILNTAIL";

/// What turns an edited file back into the original.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undo {
    /// The original's first bytes, to be written over the edited ones.
    pub header: Vec<u8>,
    /// The original's length, to which the file is cut.
    pub length: u64,
}

impl<D: ReadAt> Qcow2<D> {
    /// How to take back the edit of a file, or none where no edit was recorded.
    pub fn undo(disk: &D) -> Result<Option<Undo>, ImageError> {
        let bytes = Header::read_bytes(disk)?;
        let header = Header::parse(&bytes, disk.len())?;
        let Some(place) = header.extension(EXTENSION_UNDO) else { return Ok(None) };
        let start = place.start - 8;
        // Whoever rewrote the header put the extension elsewhere.
        if place.len() != RECORD || place.end != header.extensions_end || bytes.len() < start + ROOM {
            return Err(written_since());
        }
        let record = &bytes[place];
        let mut original = bytes[..start + ROOM].to_vec();
        original[start..].fill(0);
        original[40..48].copy_from_slice(&record[0..8]);
        original[48..60].copy_from_slice(&record[8..20]);
        if header.version == 3 {
            original[88..96].copy_from_slice(&record[24..32]);
        }
        let undo = Undo { header: original, length: be_u64(record, 32) };
        let view = undo.original(disk).map_err(|_| written_since())?;
        let fits = || -> Result<bool, ImageError> {
            Ok(checksum(&view, &undo.header)? == be_u32(record, 20)
                && trailer_fits(disk, undo.length, checksum_of_blocks(&view, &undo.header)?)?)
        };
        match fits() {
            Ok(true) => Ok(Some(undo)),
            Err(error @ ImageError::Read { .. }) => Err(error),
            _ => Err(written_since()),
        }
    }
}

impl Undo {
    /// The original file, read out of the edited one.
    pub fn original<D: ReadAt>(&self, disk: D) -> Result<Patched<Window<D>>, ImageError> {
        let window = Window::new(disk, 0, self.length).map_err(ImageError::read("qcow2 file"))?;
        let mut patch = Patch::new();
        patch.write(0, &self.header);
        Ok(Patched::with(window, patch))
    }
}

/// A file as it was before Kiln edited it: all of it where no edit was recorded. An edit that starts from here does not pile
/// up on the one before.
pub fn original<D: ReadAt>(disk: D) -> Result<Patched<Window<D>>, ImageError> {
    match Qcow2::undo(&disk)? {
        Some(undo) => undo.original(disk),
        None => {
            let length = disk.len();
            let window = Window::new(disk, 0, length).map_err(ImageError::read("qcow2 file"))?;
            Ok(Patched::new(window))
        }
    }
}

/// Puts the record of a file behind its extensions. False where something is in the way.
pub(super) fn write_record(bytes: &mut [u8], original: &Header, length: u64, checksum: u32) -> bool {
    let start = original.extensions_end;
    let Some(room) = bytes.get_mut(start..start + ROOM).filter(|room| room.iter().all(|&byte| byte == 0)) else {
        return false;
    };
    room[0..4].copy_from_slice(&EXTENSION_UNDO.to_be_bytes());
    room[4..8].copy_from_slice(&(RECORD as u32).to_be_bytes());
    let record = &mut room[8..8 + RECORD];
    record[0..8].copy_from_slice(&original.l1_offset.to_be_bytes());
    record[8..16].copy_from_slice(&original.refcount_table_offset.to_be_bytes());
    record[16..20].copy_from_slice(&original.refcount_table_clusters.to_be_bytes());
    record[20..24].copy_from_slice(&checksum.to_be_bytes());
    record[24..32].copy_from_slice(&original.autoclear.to_be_bytes());
    record[32..40].copy_from_slice(&length.to_be_bytes());
    true
}

/// Puts the checksum of a tail behind it. No table refers to these bytes: to qemu they are free.
pub(super) fn write_trailer(tail: &mut Vec<u8>, blocks: u32) {
    let mut sum = crc32fast::Hasher::new();
    sum.update(tail);
    sum.update(&blocks.to_be_bytes());
    tail.extend_from_slice(TRAILER);
    tail.extend_from_slice(&sum.finalize().to_be_bytes());
}

/// Whether the tail that begins here, and the blocks of this checksum, are as they were written.
fn trailer_fits(disk: &impl ReadAt, start: u64, blocks: u32) -> Result<bool, ImageError> {
    let Some(end) =
        disk.len().checked_sub(12).filter(|&end| start <= end && end - start <= super::MAX_TAIL + (2 << 20))
    else {
        return Ok(false);
    };
    let mut sum = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 16];
    let mut at = start;
    while at < end {
        let chunk = &mut buffer[..(end - at).min(1 << 16) as usize];
        disk.read_exact_at(at, chunk).map_err(ImageError::read("qcow2 tail"))?;
        sum.update(chunk);
        at += chunk.len() as u64;
    }
    sum.update(&blocks.to_be_bytes());
    let trailer = disk.read_vec(end, 12).map_err(ImageError::read("qcow2 tail"))?;
    Ok(trailer.starts_with(TRAILER) && be_u32(&trailer, 8) == sum.finalize())
}

/// Of the tables that every edit sets free: see the head of this file.
pub(super) fn checksum(disk: &impl ReadAt, bytes: &[u8]) -> Result<u32, ImageError> {
    let header = Header::parse(bytes, disk.len())?;
    let mut sum = crc32fast::Hasher::new();
    sum.update(bytes);
    let l1 = disk.read_vec(header.l1_offset, header.l1_size as usize * 8).map_err(ImageError::read("L1 table"))?;
    sum.update(&l1);
    sum.update(&read_refcount_table(disk, &header)?);
    Ok(sum.finalize())
}

/// Of the refcount blocks, wherever they lie.
pub(super) fn checksum_of_blocks(disk: &impl ReadAt, bytes: &[u8]) -> Result<u32, ImageError> {
    let header = Header::parse(bytes, disk.len())?;
    let table = entries(&read_refcount_table(disk, &header)?);
    check_distinct(&table)?;
    let mut sum = crc32fast::Hasher::new();
    for offset in table.into_iter().filter(|&offset| offset != 0) {
        sum.update(&read_block(disk, &header, offset)?);
    }
    Ok(sum.finalize())
}

pub(super) fn read_refcount_table(disk: &impl ReadAt, header: &Header) -> Result<Vec<u8>, ImageError> {
    let length = (header.refcount_table_clusters as usize) << header.cluster_bits;
    disk.read_vec(header.refcount_table_offset, length).map_err(ImageError::read("refcount table"))
}

fn written_since() -> ImageError {
    ImageError::refused(
        PART,
        "the file was written to after Kiln edited it, by a virtual machine or another program",
        "take the original image instead",
    )
}
