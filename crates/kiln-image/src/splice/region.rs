//! Which blocks of a base must be compressed anew for a patch.

use std::ops::Range;

use crate::ImageError;
use crate::deflate::WINDOW;
use crate::gz_index::GzIndex;
use crate::gzip::{Event, GzStream};
use crate::patch::Patch;
use crate::read_at::ReadAt;

/// More than this is not a small edit any more, and it is held in memory.
const MOST: usize = 48 << 20;

/// Blocks of one member that are replaced.
#[derive(Debug)]
pub(super) struct Region {
    /// Which member.
    pub(super) member: usize,
    /// The first bit of the first replaced block.
    pub(super) start: u64,
    /// The first bit of the first block kept again, unless the member ends before.
    pub(super) end: Option<u64>,
    /// What is replaced, as bytes of the whole.
    pub(super) inflated: Range<u64>,
    /// The bytes that were there.
    pub(super) old: Vec<u8>,
    /// The bytes with the patch over them.
    pub(super) new: Vec<u8>,
}

/// The regions in order. They do not touch.
pub(super) fn find(gz: &(impl ReadAt + ?Sized), index: &GzIndex, patch: &Patch) -> Result<Vec<Region>, ImageError> {
    let mut regions: Vec<Region> = Vec::new();
    let mut cursor: Option<Cursor> = None;
    let mut pieces = pieces(index, patch)?.into_iter().peekable();
    while let Some(piece) = pieces.next() {
        let mut walk = match cursor.take() {
            Some(cursor) if cursor.member == piece.member && cursor.stream.offset() >= index.start_of(piece.start) => {
                cursor
            }
            _ => Cursor { member: piece.member, stream: index.start(gz, piece.start)?, bit: 0, offset: 0 },
        };
        let mut old = Vec::new();
        let mut end = piece.end;
        let kept_again = loop {
            let event = walk.stream.step(gz)?;
            old.extend_from_slice(walk.stream.chunk());
            match event {
                Event::Block(block) if block.offset <= piece.start => {
                    (walk.bit, walk.offset) = (block.bit, block.offset);
                    old.clear();
                }
                Event::Block(block) => {
                    let near = |next: &Piece| next.member == piece.member && next.start <= block.offset;
                    while let Some(next) = pieces.next_if(near) {
                        end = next.end;
                    }
                    if block.offset >= end + WINDOW as u64 {
                        break Some(block);
                    }
                }
                Event::MemberEnd(_) => break None,
                Event::End => return Err(foreign_index()),
                Event::Chunk | Event::Member(_) => {}
            }
            if old.len() > MOST {
                return Err(too_large(walk.offset));
            }
        };
        if kept_again.is_none() {
            while pieces.next_if(|next| next.member == piece.member).is_some() {}
        }
        let inflated = walk.offset..walk.offset + old.len() as u64;
        let member_end = index.members.get(piece.member).map(|member| member.inflated.1);
        if kept_again.is_none() && member_end != Some(inflated.end) {
            return Err(foreign_index());
        }
        let mut new = old.clone();
        patch.apply(inflated.start, &mut new);
        let (start, end) = (walk.bit, kept_again.map(|block| block.bit));
        regions.push(Region { member: piece.member, start, end, inflated, old, new });
        cursor = kept_again.map(|block| Cursor { bit: block.bit, offset: block.offset, ..walk });
    }
    Ok(regions)
}

/// An inflater on its way, and the last block boundary it passed.
struct Cursor {
    member: usize,
    stream: GzStream,
    bit: u64,
    offset: u64,
}

/// A stretch of changed bytes within one member.
struct Piece {
    member: usize,
    start: u64,
    end: u64,
}

fn pieces(index: &GzIndex, patch: &Patch) -> Result<Vec<Piece>, ImageError> {
    let mut pieces = Vec::new();
    for (start, bytes) in patch.pieces() {
        let end = start + bytes.len() as u64;
        if end > index.inflated_len {
            return Err(ImageError::refused(
                "patch",
                format!("it reaches to byte {end} of an image of {} bytes", index.inflated_len),
                "append what lies behind the end as a tail",
            ));
        }
        for (number, member) in index.members.iter().enumerate() {
            let (start, end) = (start.max(member.inflated.0), end.min(member.inflated.1));
            if start < end {
                pieces.push(Piece { member: number, start, end });
            }
        }
    }
    Ok(pieces)
}

fn foreign_index() -> ImageError {
    ImageError::damaged("gzip index", "it does not belong to this file: its lengths differ")
}

fn too_large(at: u64) -> ImageError {
    ImageError::refused(
        format!("gzip data at {at}"),
        format!("more than {} MiB would have to be compressed again, because its blocks are too large", MOST >> 20),
        "compress the image again with gzip or pigz",
    )
}
