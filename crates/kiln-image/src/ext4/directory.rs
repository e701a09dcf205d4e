//! Blocks of directories: the entries in them, adding one, taking one away.
//!
//! A hashed directory is read like a plain one: its index hides in records that hold no names. With metadata_csum the
//! last twelve bytes of a block look like one more record without a name and hold the checksum; blocks of the index
//! keep theirs elsewhere.

use super::FileKind;
use super::checksum::crc32c;
use super::fields::{put, put_u16, put_u32, u8_at, u16_at, u32_at};

const TAIL: usize = 12;
const TAIL_MARK: u8 = 0xDE;

/// A name in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub inode: u32,
    pub name: &'a [u8],
}

/// How the blocks of one directory are laid out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    /// Whether records say the kind of file.
    pub kinds: bool,
    /// Where checksums start, if there are any.
    pub seed: Option<u32>,
}

/// What a block is by its shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Leaf,
    /// An index block; its count and limit are here.
    Index(usize),
}

impl Layout {
    /// Proves a block's checksum. Returns what is wrong with it.
    pub fn verify(&self, block: &[u8], indexed: bool) -> Result<(), &'static str> {
        let Some(seed) = self.seed else { return Ok(()) };
        const WRONG: &str = "the checksum of a block does not match";
        match shape(block, indexed) {
            Shape::Leaf => {
                let (body, tail) = block.split_at(block.len() - TAIL);
                if u32_at(tail, 0) != 0 || u16_at(tail, 4) != TAIL as u16 || u8_at(tail, 7) != TAIL_MARK {
                    return Err("a block has no room for its checksum");
                }
                if crc32c(seed, body) == u32_at(tail, 8) { Ok(()) } else { Err(WRONG) }
            }
            Shape::Index(at) => {
                let (limit, count) = (usize::from(u16_at(block, at)), usize::from(u16_at(block, at + 2)));
                let tail = at + 8 * limit;
                if count > limit || tail + 8 > block.len() {
                    return Err("its index is larger than its block");
                }
                let crc = crc32c(crc32c(seed, &block[..at + 8 * count]), &block[tail..tail + 4]);
                if crc32c(crc, &[0; 4]) == u32_at(block, tail + 4) { Ok(()) } else { Err(WRONG) }
            }
        }
    }

    /// An empty block, or with the first two records the first block of a new directory.
    pub fn render_new(&self, block_size: usize, dots: Option<(u32, u32)>) -> Vec<u8> {
        let mut block = vec![0; block_size];
        let end = block_size - self.tail();
        match dots {
            None => set_length(&mut block, 0, end),
            Some((own, parent)) => {
                self.put_record(&mut block, 0, 12, own, b".", FileKind::Directory);
                self.put_record(&mut block, 12, end - 12, parent, b"..", FileKind::Directory);
            }
        }
        self.seal(&mut block);
        block
    }

    /// Puts a name where there is room. False when there is none.
    pub fn insert(&self, block: &mut [u8], name: &[u8], inode: u32, kind: FileKind) -> Result<bool, &'static str> {
        let needed = record_length(name.len());
        let places: Vec<(usize, usize, usize)> = positions(block)
            .map(|position| {
                let (at, length) = position?;
                let used = if u32_at(block, at) == 0 { 0 } else { record_length(usize::from(u8_at(block, at + 6))) };
                Ok((at, length, if self.is_tail(block, at) { length } else { used }))
            })
            .collect::<Result<_, &'static str>>()?;
        let Some((at, length, used)) = places.into_iter().find(|(_, length, used)| length - used >= needed) else {
            return Ok(false);
        };
        if used > 0 {
            set_length(block, at, used);
        }
        self.put_record(block, at + used, length - used, inode, name, kind);
        self.seal(block);
        Ok(true)
    }

    /// Takes a name away; its room goes to the record before it. False when the name is not here.
    pub fn remove(&self, block: &mut [u8], name: &[u8]) -> Result<bool, &'static str> {
        let mut before: Option<(usize, usize)> = None;
        let mut found = None;
        for position in positions(block) {
            let (at, length) = position?;
            if record(block, at, length)?.is_some_and(|record| record.name == name) {
                found = Some((at, length));
                break;
            }
            before = Some((at, length));
        }
        let Some((at, length)) = found else { return Ok(false) };
        match before {
            Some((previous, previous_length)) => {
                block[at..at + length].fill(0);
                set_length(block, previous, previous_length + length);
            }
            None => {
                block[at..at + length].fill(0);
                set_length(block, at, length);
            }
        }
        self.seal(block);
        Ok(true)
    }

    /// Turns a block of a hashed directory into one that a plain directory may have. True when that changed it.
    pub fn flatten(&self, block: &mut [u8]) -> bool {
        let Shape::Index(at) = shape(block, true) else { return false };
        // Without checksums the kernel reads these blocks as they are; only the space for the sum is missing.
        let end = block.len() - self.tail();
        if at == 8 {
            block.fill(0);
            set_length(block, 0, end);
        } else {
            block[24..].fill(0);
            set_length(block, 12, end - 12);
        }
        self.seal(block);
        true
    }

    fn tail(&self) -> usize {
        if self.seed.is_some() { TAIL } else { 0 }
    }

    fn is_tail(&self, block: &[u8], at: usize) -> bool {
        self.seed.is_some() && at + TAIL == block.len()
    }

    fn put_record(&self, block: &mut [u8], at: usize, length: usize, inode: u32, name: &[u8], kind: FileKind) {
        put_u32(block, at, inode);
        set_length(block, at, length);
        let kind = match kind {
            _ if !self.kinds => 0,
            FileKind::File => 1,
            FileKind::Directory => 2,
            FileKind::Symlink => 7,
            FileKind::Special => 0,
        };
        put(block, at + 6, &[name.len() as u8, kind]);
        put(block, at + 8, name);
    }

    /// Computes the checksum of a plain block anew.
    fn seal(&self, block: &mut [u8]) {
        let Some(seed) = self.seed else { return };
        let tail = block.len() - TAIL;
        put(block, tail, &[0, 0, 0, 0, TAIL as u8, 0, 0, TAIL_MARK]);
        let checksum = crc32c(seed, &block[..tail]);
        put_u32(block, tail + 8, checksum);
    }
}

/// The names in a block.
pub(super) fn records(block: &[u8]) -> impl Iterator<Item = Result<Record<'_>, &'static str>> {
    positions(block).filter_map(move |position| match position {
        Ok((at, length)) => record(block, at, length).transpose(),
        Err(problem) => Some(Err(problem)),
    })
}

fn record(block: &[u8], at: usize, length: usize) -> Result<Option<Record<'_>>, &'static str> {
    let inode = u32_at(block, at);
    if inode == 0 {
        return Ok(None);
    }
    let name_length = usize::from(u8_at(block, at + 6));
    if name_length == 0 || record_length(name_length) > length {
        return Err("a name is longer than its record");
    }
    Ok(Some(Record { inode, name: &block[at + 8..at + 8 + name_length] }))
}

/// Places and lengths of the records of a block, in use or not.
fn positions(block: &[u8]) -> impl Iterator<Item = Result<(usize, usize), &'static str>> {
    let size = block.len();
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= size {
            return None;
        }
        let length = length_at(block, at);
        if length < 12 || !length.is_multiple_of(4) || length > size - at {
            at = size;
            return Some(Err("a record has a wrong length"));
        }
        let position = (at, length);
        at += length;
        Some(Ok(position))
    })
}

fn shape(block: &[u8], indexed: bool) -> Shape {
    if !indexed {
        return Shape::Leaf;
    }
    if u32_at(block, 0) == 0 && length_at(block, 0) == block.len() {
        return Shape::Index(8);
    }
    // "." and ".." fill the first block, and what the second hides says how long its own description is.
    let root = length_at(block, 0) == 12 && length_at(block, 12) + 12 == block.len();
    if root && u32_at(block, 24) == 0 && u8_at(block, 29) == 8 {
        return Shape::Index(32);
    }
    Shape::Leaf
}

fn record_length(name: usize) -> usize {
    (8 + name).next_multiple_of(4)
}

/// Lengths are 16 bits; those of 64 KiB blocks use the two low bits, which are otherwise zero.
fn length_at(block: &[u8], at: usize) -> usize {
    let stored = usize::from(u16_at(block, at + 4));
    if block.len() < 1 << 16 {
        return stored;
    }
    if stored == 0xFFFF || stored == 0 { block.len() } else { (stored & !3) | (stored & 3) << 16 }
}

fn set_length(block: &mut [u8], at: usize, length: usize) {
    let stored = if length >= 1 << 16 { 0xFFFF } else { length as u16 };
    put_u16(block, at + 4, stored);
}
