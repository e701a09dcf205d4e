//! Edits inside a .gz without compressing it again: the base's own deflate blocks are kept bit for bit.
//!
//! [`open`] returns the composed file up to the place where a tail goes: always a single member, because coreos-installer
//! refuses files with more and several readers silently stop after the first. [`close`] compresses a tail and ends the
//! file. Only blocks that hold changed bytes, or may refer back to them (32 KiB), are compressed anew; where the base
//! cannot be kept again before its end, it is compressed anew up to there, so bases of any size follow the same rule.
//!
//! The original bytes of what was replaced fit into the gzip header; [`restore`] makes the original file from them.
//! Surprising: blocks begin at any bit of a byte. The bit is reached with blocks that have no content.

mod compose;
mod region;
mod undo;

pub use undo::restore;

use crate::ImageError;
use crate::digest::crc32_combine;
use crate::gz_index::GzIndex;
use crate::patch::Patch;
use crate::read_at::ReadAt;
use crate::segment::Segment;

/// A composed .gz without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenStream {
    /// All bytes up to the tail.
    pub segments: Vec<Segment>,
    /// The CRC-32 of what they hold.
    pub crc32: u32,
    /// The length of what they hold.
    pub inflated_len: u64,
    /// Whether [`restore`] will work.
    pub can_be_restored: bool,
}

/// Whether the composed file carries what it takes to get the original back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undo {
    /// In the header, if it fits there (65,000 bytes). busybox cannot read the file if it has more than 16 KiB.
    Keep,
    /// No: the base is at hand.
    Omit,
}

/// Puts a patch over what a .gz holds. The result depends on nothing but the arguments.
pub fn open(gz: &(impl ReadAt + ?Sized), index: &GzIndex, patch: &Patch, undo: Undo) -> Result<OpenStream, ImageError> {
    let regions = region::find(gz, index, patch)?;
    let mut crc32 = index.crc32;
    for region in &regions {
        // CRC-32 is linear: the difference of a stretch, moved over all that follows it.
        let difference = crc32fast::hash(&region.old) ^ crc32fast::hash(&region.new);
        crc32 ^= crc32_combine(difference, 0, index.inflated_len - region.inflated.end);
    }
    let body = compose::body(gz, index, &regions)?;
    let record = match undo {
        Undo::Keep => undo::record(gz, &body)?,
        Undo::Omit => None,
    };
    let mut segments = vec![Segment::Own(undo::header(record.as_deref()))];
    segments.extend(body);
    Ok(OpenStream { segments, crc32, inflated_len: index.inflated_len, can_be_restored: record.is_some() })
}

/// Compresses what comes last and ends the file: these bytes follow those of [`open`].
pub fn close(crc32: u32, inflated_len: u64, tail: &[u8]) -> Result<Vec<u8>, ImageError> {
    let mut bytes = Vec::new();
    compose::deflate(tail, flate2::FlushCompress::Finish, &mut bytes)?;
    let crc32 = crc32_combine(crc32, crc32fast::hash(tail), tail.len() as u64);
    bytes.extend_from_slice(&crc32.to_le_bytes());
    bytes.extend_from_slice(&((inflated_len + tail.len() as u64) as u32).to_le_bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests;
