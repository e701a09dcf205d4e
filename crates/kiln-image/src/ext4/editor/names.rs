//! Names of files: adding one to a directory, taking one away, and what happens to a file without names.

use super::Editor;
use super::storage::Reserved;
use crate::ext4::FileKind;
use crate::ext4::checksum::crc32c;
use crate::ext4::fields::{put_u32, u32_at};
use crate::ext4::inode::{Inode, flag};
use crate::ext4::space::Run;
use crate::{ImageError, ReadAt};

/// Where a new name goes.
pub(super) enum Room {
    /// Into a block that has room.
    Block { block: u64, bytes: Vec<u8> },
    /// Into a new block at the end of the directory.
    Grow(Reserved),
}

impl<D: ReadAt> Editor<D> {
    /// Finds room for a name, and reserves a block where there is none. Changes nothing yet.
    pub(super) fn room_for_name(&mut self, directory: &Inode, name: &[u8]) -> Result<Room, ImageError> {
        let layout = self.fs.layout(directory);
        let indexed = directory.has_flag(flag::INDEXED);
        for block in self.fs.directory_blocks(directory)? {
            let mut bytes = self.fs.read_directory_block(directory, block)?;
            if indexed {
                layout.flatten(&mut bytes);
            }
            // Tried on a copy: the block is written with the inode's number once that is taken.
            let fits = layout.insert(&mut bytes.clone(), name, 1, FileKind::File);
            if fits.map_err(|problem| directory.damaged(problem))? {
                return Ok(Room::Block { block, bytes });
            }
        }
        let mapping = self.fs.read_mapping(directory)?;
        let blocks = directory.size() / u64::from(self.fs.superblock.block_size);
        if mapping.extents.last().is_some_and(|extent| extent.end() > blocks) {
            return Err(directory.damaged("the directory has blocks behind its end"));
        }
        let goal = mapping.extents.last().map_or(0, |extent| extent.physical_end());
        Ok(Room::Grow(self.reserve(mapping, blocks, 1, goal)?))
    }

    /// Adds a name where room was found. The directory's inode is changed, but not written yet.
    pub(super) fn add_name(
        &mut self,
        directory: &mut Inode,
        name: &[u8],
        inode: &Inode,
        room: Room,
    ) -> Result<(), ImageError> {
        let layout = self.fs.layout(directory);
        let block_size = u64::from(self.fs.superblock.block_size);
        if directory.has_flag(flag::INDEXED) {
            for block in self.fs.directory_blocks(directory)? {
                let mut bytes = self.fs.read_directory_block(directory, block)?;
                if layout.flatten(&mut bytes) {
                    self.write_changed(block * block_size, &bytes)?;
                }
            }
            directory.clear_flag(flag::INDEXED);
        }
        let (block, mut bytes) = match room {
            Room::Block { block, bytes } => (block, bytes),
            Room::Grow(reserved) => {
                let block = reserved.data.first().map(|run| run.start);
                directory.set_size(directory.size() + block_size);
                self.store_mapping(directory, &reserved)?;
                let block = block.ok_or_else(|| directory.damaged("no block was reserved"))?;
                (block, layout.render_new(block_size as usize, None))
            }
        };
        let added = layout.insert(&mut bytes, name, inode.number, inode.kind());
        if !added.map_err(|problem| directory.damaged(problem))? {
            return Err(directory.damaged("there is no room for a name in an empty block"));
        }
        self.write_changed(block * block_size, &bytes)?;
        directory.touch(self.timestamp);
        Ok(())
    }

    /// Takes a name away. The directory's inode is changed, but not written yet.
    pub(super) fn remove_name(&mut self, directory: &mut Inode, name: &[u8]) -> Result<(), ImageError> {
        let layout = self.fs.layout(directory);
        let block_size = u64::from(self.fs.superblock.block_size);
        for block in self.fs.directory_blocks(directory)? {
            let mut bytes = self.fs.read_directory_block(directory, block)?;
            if layout.remove(&mut bytes, name).map_err(|problem| directory.damaged(problem))? {
                self.write_changed(block * block_size, &bytes)?;
                directory.touch(self.timestamp);
                return Ok(());
            }
        }
        Err(directory.damaged("a name that was found in it is gone"))
    }

    /// One name less leads to a file; the last one takes the file with it.
    pub(super) fn drop_name(&mut self, mut inode: Inode) -> Result<(), ImageError> {
        if inode.links() > 1 {
            inode.set_links(inode.links() - 1);
            inode.touch(self.timestamp);
            return self.write_inode(&mut inode);
        }
        self.delete(inode)
    }

    /// Gives back all that a file or directory occupies.
    pub(super) fn delete(&mut self, mut inode: Inode) -> Result<(), ImageError> {
        let mapped = match inode.kind() {
            FileKind::File | FileKind::Directory => true,
            FileKind::Symlink => !inode.has_short_target(&self.fs.superblock),
            FileKind::Special => false,
        };
        if mapped {
            let runs = self.fs.read_mapping(&inode)?.runs();
            self.release(&runs)?;
        }
        self.release_attributes(&inode)?;
        let directory = inode.kind() == FileKind::Directory;
        self.space.release_inode(&self.fs.disk, &mut self.fs.superblock, inode.number, directory)?;
        if mapped {
            self.clear_mapping(&mut inode);
        }
        inode.delete(&self.fs.superblock, self.timestamp);
        self.write_inode(&mut inode)
    }

    /// Extended attributes outside the inode may be shared by several files.
    fn release_attributes(&mut self, inode: &Inode) -> Result<(), ImageError> {
        let block = inode.attribute_block();
        if block == 0 {
            return Ok(());
        }
        let mut bytes = self.fs.read_block(block)?;
        let checksum = |bytes: &[u8], seed: u32| {
            let crc = crc32c(crc32c(seed, &block.to_le_bytes()), &bytes[..0x10]);
            crc32c(crc32c(crc, &[0; 4]), &bytes[0x14..])
        };
        let seed = self.fs.superblock.metadata_checksums().then_some(self.fs.superblock.seed);
        let users = u32_at(&bytes, 4);
        if u32_at(&bytes, 0) != 0xEA02_0000 || users == 0 {
            return Err(inode.damaged("its extended attributes have no valid header"));
        }
        if seed.is_some_and(|seed| checksum(&bytes, seed) != u32_at(&bytes, 0x10)) {
            return Err(inode.damaged("the checksum of its extended attributes does not match"));
        }
        if users == 1 {
            return self.release(&[Run { start: block, length: 1 }]);
        }
        put_u32(&mut bytes, 4, users - 1);
        if let Some(seed) = seed {
            let checksum = checksum(&bytes, seed);
            put_u32(&mut bytes, 0x10, checksum);
        }
        self.write_changed(block * u64::from(self.fs.superblock.block_size), &bytes)
    }
}
