//! Bytes of files and inodes: reserving blocks, writing into them, writing the map that leads to them.

use super::Editor;
use crate::ext4::inode::{Inode, flag};
use crate::ext4::mapping::Mapping;
use crate::ext4::space::Run;
use crate::{ImageError, ReadAt};

/// Blocks that were taken for a file, and its map with them.
pub(super) struct Reserved {
    pub mapping: Mapping,
    /// The new blocks for content, in order.
    pub data: Vec<Run>,
    /// All new blocks, those of the map among them.
    pub taken: Vec<Run>,
    /// Blocks of the old map that the new one does not need.
    surplus: Vec<Run>,
}

impl<D: ReadAt> Editor<D> {
    /// Takes blocks to follow a file's first ones. Refused as a whole where there are not enough.
    pub(super) fn reserve(
        &mut self,
        old: Mapping,
        logical: u64,
        count: u64,
        goal: u64,
    ) -> Result<Reserved, ImageError> {
        let superblock = &self.fs.superblock;
        let mut runs = self.space.find_blocks(&self.fs.disk, superblock, goal, count)?;
        let mut mapping = old;
        let mut next = logical;
        for run in &runs {
            mapping.push(next, run.start, run.length);
            next += u64::from(run.length);
        }
        let data = runs.clone();
        let nodes = mapping.node_count(superblock);
        let further = nodes.saturating_sub(mapping.nodes.len()) as u64;
        if further > 0 {
            // The same search finds the same blocks first.
            runs = self.space.find_blocks(&self.fs.disk, superblock, goal, count + further)?;
            mapping.nodes.extend(runs.iter().flat_map(Run::blocks).skip(count as usize));
        }
        let surplus = mapping.nodes.drain(nodes.min(mapping.nodes.len())..);
        let surplus = surplus.map(|block| Run { start: block, length: 1 }).collect();
        self.take(&runs)?;
        Ok(Reserved { mapping, data, taken: runs, surplus })
    }

    /// Writes a file's map and counts its blocks. The inode is changed, but not written yet.
    pub(super) fn store_mapping(&mut self, inode: &mut Inode, reserved: &Reserved) -> Result<(), ImageError> {
        let superblock = &self.fs.superblock;
        let block_size = u64::from(superblock.block_size);
        let mapping = &reserved.mapping;
        let (root, nodes) = mapping.render(superblock, inode, &mapping.nodes);
        let attributes = u64::from(inode.attribute_block() != 0);
        let blocks: u64 = mapping.extents.iter().map(|extent| u64::from(extent.length)).sum();
        let blocks = blocks + mapping.nodes.len() as u64 + attributes;
        inode.add_flag(flag::EXTENTS);
        inode.set_map(&root);
        inode.set_sectors(blocks * (block_size / 512));
        for (block, bytes) in nodes {
            self.write_changed(block * block_size, &bytes)?;
        }
        self.release(&reserved.surplus)
    }

    /// Leaves a deleted file without blocks.
    pub(super) fn clear_mapping(&mut self, inode: &mut Inode) {
        let (root, _) = Mapping::default().render(&self.fs.superblock, inode, &[]);
        inode.add_flag(flag::EXTENTS);
        inode.set_map(&root);
    }

    /// Fills new blocks; what is left of the last one becomes zero.
    pub(super) fn write_runs(&mut self, runs: &[Run], bytes: &[u8]) -> Result<(), ImageError> {
        let block_size = u64::from(self.fs.superblock.block_size);
        let mut left = bytes;
        for run in runs {
            let room = u64::from(run.length) * block_size;
            let (piece, rest) = left.split_at(room.min(left.len() as u64) as usize);
            self.write_padded(run.start * block_size, piece, room as usize)?;
            left = rest;
        }
        Ok(())
    }

    /// Writes bytes and zeros behind them.
    pub(super) fn write_padded(&mut self, offset: u64, bytes: &[u8], length: usize) -> Result<(), ImageError> {
        self.write(offset, bytes)?;
        let zeros = vec![0; length.saturating_sub(bytes.len())];
        self.write(offset + bytes.len() as u64, &zeros)
    }

    pub(super) fn take_inode(&mut self, number: u32, directory: bool) -> Result<(), ImageError> {
        let untouched = self.space.take_inode(&self.fs.disk, &mut self.fs.superblock, number, directory)?;
        if untouched.is_empty() {
            return Ok(());
        }
        // A table that was never written may hold anything.
        let offset = self.fs.inode_offset(untouched.start)?;
        let zeros = vec![0; untouched.len() * self.fs.superblock.inode_size];
        self.write_changed(offset, &zeros)
    }

    pub(super) fn write_inode(&mut self, inode: &mut Inode) -> Result<(), ImageError> {
        let offset = self.fs.inode_offset(inode.number)?;
        let bytes = inode.render(&self.fs.superblock).to_vec();
        self.write_changed(offset, &bytes)
    }

    /// Writes only what differs, which keeps the patch small.
    pub(super) fn write_changed(&mut self, offset: u64, bytes: &[u8]) -> Result<(), ImageError> {
        let now = self.fs.disk.read_vec(offset, bytes.len()).map_err(ImageError::read("ext4 metadata"))?;
        let differs = |(old, new): (&u8, &u8)| old != new;
        let Some(first) = now.iter().zip(bytes).position(differs) else { return Ok(()) };
        let last = now.iter().zip(bytes).rposition(differs).unwrap_or(first);
        self.write(offset + first as u64, &bytes[first..=last])
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), ImageError> {
        self.fs.disk.write_at(offset, bytes).map_err(ImageError::read("ext4 block"))
    }
}
