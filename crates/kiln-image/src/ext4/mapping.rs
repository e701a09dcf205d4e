//! Which blocks a file occupies: extent trees, and the older trees of indirect blocks.
//!
//! A map is read as a whole into a list of extents, sorted and proven to lie within the filesystem; an edit changes the
//! list and the tree is rendered anew. Not here: writing maps of indirect blocks; a file that has one gets an extent
//! tree when it is changed.
//!
//! Hostile trees end: logical blocks must rise, the depth is bounded, and so is the number of extents.

use super::checksum::crc32c;
use super::fields::{put_u16, put_u32, u16_at, u32_at};
use super::inode::{Inode, flag};
use super::space::Run;
use super::superblock::Superblock;
use crate::{ImageError, ReadAt};

const MAGIC: u16 = 0xF30A;
/// As deep as the kernel builds them.
const MAX_DEPTH: u16 = 5;
/// A file in more pieces than this is not one Kiln was made for.
const MAX_EXTENTS: usize = 1 << 20;
/// Blocks of an indirect map. Even at 1 KiB they reach 16 GiB.
const MAX_NODES: usize = 1 << 16;
/// A longer written extent does not exist: the length's top bit marks one that was only reserved.
const MAX_LENGTH: u32 = 1 << 15;

/// Neighbouring blocks of a file that are neighbours on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub logical: u64,
    pub physical: u64,
    pub length: u32,
    /// Reserved blocks that were never written read as zeros.
    pub written: bool,
}

impl Extent {
    pub fn end(&self) -> u64 {
        self.logical + u64::from(self.length)
    }

    pub fn physical_end(&self) -> u64 {
        self.physical + u64::from(self.length)
    }
}

/// A file's blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Mapping {
    /// Sorted by logical block, without overlaps.
    pub extents: Vec<Extent>,
    /// The blocks of the tree itself.
    pub nodes: Vec<u64>,
}

impl Mapping {
    /// Reads the map of a regular file, a directory or a long symbolic link.
    pub fn read(disk: &impl ReadAt, superblock: &Superblock, inode: &Inode) -> Result<Self, ImageError> {
        if inode.has_flag(flag::INLINE_DATA | flag::ENCRYPTED) {
            return Err(ImageError::refused(
                inode.part(),
                "it is stored inline or encrypted",
                "make the filesystem without the features inline_data and encrypt",
            ));
        }
        let mut mapping = Mapping::default();
        let reader = Reader { disk, superblock, inode };
        match inode.has_flag(flag::EXTENTS) {
            true => reader.read_extents(inode.map(), None, &mut mapping)?,
            false => reader.read_indirect(&mut mapping)?,
        }
        Ok(mapping)
    }

    /// The extent that holds a block of the file, if it has one.
    pub fn find(&self, logical: u64) -> Option<&Extent> {
        let after = self.extents.partition_point(|extent| extent.logical <= logical);
        self.extents.get(after.checked_sub(1)?).filter(|extent| logical < extent.end())
    }

    /// Adds written blocks at the end, joined to the last extent where they touch it.
    pub fn push(&mut self, logical: u64, mut physical: u64, length: u32) {
        let (mut logical, mut left) = (logical, length);
        if let Some(last) = self.extents.last_mut()
            && last.written
            && last.end() == logical
            && last.physical_end() == physical
        {
            let take = left.min(MAX_LENGTH.saturating_sub(last.length));
            last.length += take;
            (logical, physical, left) = (logical + u64::from(take), physical + u64::from(take), left - take);
        }
        while left > 0 {
            let take = left.min(MAX_LENGTH);
            self.extents.push(Extent { logical, physical, length: take, written: true });
            (logical, physical, left) = (logical + u64::from(take), physical + u64::from(take), left - take);
        }
    }

    /// Cuts the map off before a block of the file. Returns the blocks that are no longer in it.
    pub fn truncate(&mut self, blocks: u64) -> Vec<Run> {
        let mut cut = Vec::new();
        while let Some(last) = self.extents.last_mut().filter(|last| last.end() > blocks) {
            let kept = blocks.saturating_sub(last.logical) as u32;
            cut.push(Run { start: last.physical + u64::from(kept), length: last.length - kept });
            last.length = kept;
            if kept == 0 {
                self.extents.pop();
            }
        }
        cut
    }

    /// All blocks that belong to the file, those of the tree among them.
    pub fn runs(&self) -> Vec<Run> {
        let content = self.extents.iter().map(|extent| Run { start: extent.physical, length: extent.length });
        content.chain(self.nodes.iter().map(|block| Run { start: *block, length: 1 })).collect()
    }

    /// How many blocks of its own the tree needs.
    pub fn node_count(&self, superblock: &Superblock) -> usize {
        let (mut count, mut entries) = (0, self.extents.len());
        while entries > ROOT_ENTRIES {
            entries = entries.div_ceil(node_entries(superblock));
            count += entries;
        }
        count
    }

    /// Renders the tree into these blocks: the root for the inode, and each block with its bytes.
    pub fn render(&self, superblock: &Superblock, inode: &Inode, nodes: &[u64]) -> (Vec<u8>, Vec<(u64, Vec<u8>)>) {
        let mut entries: Vec<(u32, [u8; 12])> = self.extents.iter().map(render_leaf_entry).collect();
        let mut free = nodes.iter().copied();
        let mut blocks = Vec::new();
        let mut depth = 0;
        while entries.len() > ROOT_ENTRIES {
            let mut above = Vec::new();
            for (chunk, block) in entries.chunks(node_entries(superblock)).zip(&mut free) {
                let mut bytes = render_node(chunk, node_entries(superblock), depth, superblock.block_size as usize);
                if superblock.metadata_checksums() {
                    let end = 12 + 12 * node_entries(superblock);
                    let checksum = crc32c(inode.seed(superblock), &bytes[..end]);
                    put_u32(&mut bytes, end, checksum);
                }
                let first = chunk.first().map_or(0, |(logical, _)| *logical);
                above.push((first, render_index_entry(first, block)));
                blocks.push((block, bytes));
            }
            entries = above;
            depth += 1;
        }
        (render_node(&entries, ROOT_ENTRIES, depth, 60), blocks)
    }
}

/// What fits into the inode.
const ROOT_ENTRIES: usize = 4;

/// What fits into a block; the checksum takes the bytes that are left over.
fn node_entries(superblock: &Superblock) -> usize {
    (superblock.block_size as usize - 12) / 12
}

fn render_node(entries: &[(u32, [u8; 12])], room: usize, depth: u16, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    put_u16(&mut bytes, 0, MAGIC);
    put_u16(&mut bytes, 2, entries.len() as u16);
    put_u16(&mut bytes, 4, room as u16);
    put_u16(&mut bytes, 6, depth);
    for ((_, entry), place) in entries.iter().zip(bytes[12..].chunks_exact_mut(12)) {
        place.copy_from_slice(entry);
    }
    bytes
}

fn render_leaf_entry(extent: &Extent) -> (u32, [u8; 12]) {
    let mut entry = [0; 12];
    put_u32(&mut entry, 0, extent.logical as u32);
    put_u16(&mut entry, 4, extent.length as u16 + if extent.written { 0 } else { MAX_LENGTH as u16 });
    put_u16(&mut entry, 6, (extent.physical >> 32) as u16);
    put_u32(&mut entry, 8, extent.physical as u32);
    (extent.logical as u32, entry)
}

fn render_index_entry(logical: u32, block: u64) -> [u8; 12] {
    let mut entry = [0; 12];
    put_u32(&mut entry, 0, logical);
    put_u32(&mut entry, 4, block as u32);
    put_u16(&mut entry, 8, (block >> 32) as u16);
    entry
}

struct Reader<'a, D> {
    disk: &'a D,
    superblock: &'a Superblock,
    inode: &'a Inode,
}

impl<D: ReadAt> Reader<'_, D> {
    /// Reads one node and what hangs below it. `expected` is the depth its parent promised.
    fn read_extents(&self, node: &[u8], expected: Option<u16>, mapping: &mut Mapping) -> Result<(), ImageError> {
        let (count, room, depth) = (u16_at(node, 2), u16_at(node, 4), u16_at(node, 6));
        if u16_at(node, 0) != MAGIC || count > room || 12 + 12 * usize::from(room) > node.len() {
            return Err(self.inode.damaged("its extent tree has a broken header"));
        }
        if depth > MAX_DEPTH || expected.is_some_and(|expected| expected != depth) {
            return Err(self.inode.damaged("its extent tree has a wrong depth"));
        }
        for entry in node[12..].chunks_exact(12).take(usize::from(count)) {
            let logical = u64::from(u32_at(entry, 0));
            if depth > 0 {
                let block = u64::from(u32_at(entry, 4)) | u64::from(u16_at(entry, 8)) << 32;
                if mapping.extents.last().is_some_and(|last| logical < last.end()) {
                    return Err(self.inode.damaged("its extents are not in order"));
                }
                let below = self.read_node(block, mapping)?;
                let first = mapping.extents.len();
                self.check_node(&below)?;
                self.read_extents(&below, Some(depth - 1), mapping)?;
                if mapping.extents.get(first).is_none_or(|extent| extent.logical < logical) {
                    return Err(self.inode.damaged("its extent tree has an empty or misplaced node"));
                }
                continue;
            }
            let stored = u32::from(u16_at(entry, 4));
            let written = stored <= MAX_LENGTH;
            let length = if written { stored } else { stored - MAX_LENGTH };
            let physical = u64::from(u32_at(entry, 8)) | u64::from(u16_at(entry, 6)) << 32;
            self.add(mapping, Extent { logical, physical, length, written })?;
        }
        Ok(())
    }

    fn check_node(&self, node: &[u8]) -> Result<(), ImageError> {
        let end = 12 + 12 * usize::from(u16_at(node, 4));
        let matches = || {
            let covered = node.get(..end)?;
            (crc32c(self.inode.seed(self.superblock), covered) == u32_at(node, end)).then_some(())
        };
        if self.superblock.metadata_checksums() && matches().is_none() {
            return Err(self.inode.damaged("the checksum of a block of its extent tree does not match"));
        }
        Ok(())
    }

    fn read_indirect(&self, mapping: &mut Mapping) -> Result<(), ImageError> {
        let mut logical = 0;
        for (slot, entry) in self.inode.map().chunks_exact(4).enumerate() {
            let levels = slot.saturating_sub(11).min(3) as u32;
            self.read_pointer(u32_at(entry, 0), levels, &mut logical, mapping)?;
        }
        Ok(())
    }

    /// Follows one pointer to a block of data (level 0) or of pointers.
    fn read_pointer(
        &self,
        block: u32,
        levels: u32,
        logical: &mut u64,
        mapping: &mut Mapping,
    ) -> Result<(), ImageError> {
        let covered = u64::from(self.superblock.block_size / 4).pow(levels);
        if block == 0 {
            *logical += covered;
            return Ok(());
        }
        if levels > 0 {
            let pointers = self.read_node(u64::from(block), mapping)?;
            for pointer in pointers.chunks_exact(4) {
                self.read_pointer(u32_at(pointer, 0), levels - 1, logical, mapping)?;
            }
            return Ok(());
        }
        let physical = u64::from(block);
        let extent = Extent { logical: *logical, physical, length: 1, written: true };
        *logical += 1;
        match mapping.extents.last_mut() {
            Some(last)
                if last.end() == extent.logical
                    && last.physical_end() == physical
                    && last.length < MAX_LENGTH
                    && physical < self.superblock.blocks =>
            {
                last.length += 1;
                Ok(())
            }
            _ => self.add(mapping, extent),
        }
    }

    fn read_node(&self, block: u64, mapping: &mut Mapping) -> Result<Vec<u8>, ImageError> {
        if block == 0 || block >= self.superblock.blocks {
            return Err(self.inode.damaged(format!("its block map names block {block}, which does not exist")));
        }
        if mapping.nodes.len() >= MAX_NODES {
            return Err(self.inode.damaged("its block map does not end"));
        }
        mapping.nodes.push(block);
        let size = self.superblock.block_size;
        self.disk.read_vec(block * u64::from(size), size as usize).map_err(ImageError::read(self.inode.part()))
    }

    fn add(&self, mapping: &mut Mapping, extent: Extent) -> Result<(), ImageError> {
        let end = extent.physical + u64::from(extent.length);
        if extent.length == 0 || extent.physical == 0 || end > self.superblock.blocks {
            return Err(self.inode.damaged(format!("its block {} is not in the filesystem", extent.logical)));
        }
        if mapping.extents.last().is_some_and(|last| extent.logical < last.end()) {
            return Err(self.inode.damaged("its extents are not in order"));
        }
        if mapping.extents.len() >= MAX_EXTENTS {
            return Err(ImageError::refused(
                self.inode.part(),
                format!("it lies in more than {MAX_EXTENTS} pieces"),
                "copy the file to put it into one piece",
            ));
        }
        mapping.extents.push(extent);
        Ok(())
    }
}
