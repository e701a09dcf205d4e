//! Random access to what a .gz holds: checkpoints from which inflating can start, and the one pass that learns them.
//!
//! [`scan`] inflates a file once, checks every CRC and takes the digests on the way; [`GzDisk`] reads anywhere, with a
//! scan's checkpoints or with those it finds as it goes, so looking at the beginning of an image does not inflate the
//! rest. Both need memory for checkpoints (a window of 32 KiB, itself compressed, every 8 MiB) and a few buffers, however
//! large the image is.
//!
//! Block boundaries are not kept: the few that a splice needs are found again from the checkpoint before them.

mod disk;
mod saved;
mod scan;

pub use disk::GzDisk;
pub(crate) use saved::{put_number, take_number};
pub use scan::{Scan, scan};

use std::ops::Range;

use crate::ImageError;
use crate::deflate::WINDOW;
use crate::gzip::GzStream;
use crate::read_at::ReadAt;

/// How far apart checkpoints are while an image is worked on.
pub(crate) const DENSE: u64 = 8 << 20;

/// What is known of a .gz after all of it was inflated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GzIndex {
    /// The length of the file.
    pub gz_len: u64,
    /// The length of what it holds.
    pub inflated_len: u64,
    /// The CRC-32 of what it holds, all members together.
    pub crc32: u32,
    /// Its members, usually one.
    pub members: Vec<Member>,
    /// Places to start from, in order. Beginnings of members are not among them.
    pub checkpoints: Vec<Checkpoint>,
}

/// One member of a .gz.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// The first byte of its deflate stream.
    pub data: u64,
    /// The first bit of its last block.
    pub last_block: u64,
    /// The first bit after its last block.
    pub end: u64,
    /// What it holds of the whole.
    pub inflated: (u64, u64),
}

/// A block boundary with all that is needed to start there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The first bit of the block.
    pub bit: u64,
    /// How many bytes were inflated before it.
    pub offset: u64,
    /// The 32 KiB before it, deflated.
    window: Vec<u8>,
}

impl Checkpoint {
    pub(crate) fn new(bit: u64, offset: u64, window: &[u8]) -> Self {
        Checkpoint { bit, offset, window: pack(window, flate2::Compression::new(1)) }
    }

    /// Starts here.
    pub(crate) fn start(&self, gz: &(impl ReadAt + ?Sized)) -> Result<GzStream, ImageError> {
        GzStream::at(gz, self.bit, self.offset, &self.unpacked()?)
    }

    fn unpacked(&self) -> Result<Vec<u8>, ImageError> {
        let mut window = Vec::with_capacity(WINDOW + 1);
        let mut inflate = flate2::Decompress::new(false);
        match inflate.decompress_vec(&self.window, &mut window, flate2::FlushDecompress::Finish) {
            Ok(flate2::Status::StreamEnd) if window.len() <= WINDOW => Ok(window),
            _ => Err(ImageError::damaged("gzip index", format!("the window at {} cannot be inflated", self.offset))),
        }
    }
}

impl GzIndex {
    /// The best place to start from in order to read at an offset.
    pub(crate) fn start(&self, gz: &(impl ReadAt + ?Sized), offset: u64) -> Result<GzStream, ImageError> {
        match self.places(offset) {
            (member, Some(checkpoint)) if member.is_none_or(|member| member.inflated.0 <= checkpoint.offset) => {
                checkpoint.start(gz)
            }
            (Some(member), _) => GzStream::at(gz, member.data * 8, member.inflated.0, &[]),
            _ => GzStream::new(gz),
        }
    }

    /// Where [`GzIndex::start`] starts.
    pub(crate) fn start_of(&self, offset: u64) -> u64 {
        let (member, checkpoint) = self.places(offset);
        let member = member.map_or(0, |member| member.inflated.0);
        checkpoint.map_or(member, |checkpoint| checkpoint.offset.max(member))
    }

    fn places(&self, offset: u64) -> (Option<&Member>, Option<&Checkpoint>) {
        let members = self.members.partition_point(|member| member.inflated.0 <= offset);
        let checkpoints = self.checkpoints.partition_point(|checkpoint| checkpoint.offset <= offset);
        (self.members[..members].last(), self.checkpoints[..checkpoints].last())
    }

    /// The index with fewer checkpoints, to be saved: one per `interval`, and the nearest before each of the places that
    /// will be needed often.
    pub fn thinned(&self, interval: u64, near: &[Range<u64>]) -> Result<GzIndex, ImageError> {
        let mut kept: Vec<Checkpoint> = Vec::new();
        let mut previous = 0;
        for (number, checkpoint) in self.checkpoints.iter().enumerate() {
            let next = self.checkpoints.get(number + 1).map_or(self.inflated_len, |next| next.offset);
            let wanted = near.iter().any(|range| range.start < next && checkpoint.offset < range.end);
            if wanted || checkpoint.offset >= previous + interval {
                previous = checkpoint.offset;
                let window = pack(&checkpoint.unpacked()?, flate2::Compression::best());
                kept.push(Checkpoint { window, ..*checkpoint });
            }
        }
        Ok(GzIndex { checkpoints: kept, members: self.members.clone(), ..*self })
    }
}

fn pack(window: &[u8], level: flate2::Compression) -> Vec<u8> {
    let mut packed = Vec::with_capacity(window.len() + window.len() / 8 + 64);
    let mut deflate = flate2::Compress::new(level, false);
    // Into memory with room for the worst case: it cannot fail and cannot end early.
    let _ = deflate.compress_vec(window, &mut packed, flate2::FlushCompress::Finish);
    packed.shrink_to_fit();
    packed
}

#[cfg(test)]
mod tests;
