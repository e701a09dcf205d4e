//! Group descriptors: where a group's bitmaps and inode table are, and what is free in it.

use super::checksum::{crc16, crc32c};
use super::fields::{put_u16, u16_at, u32_at};
use super::superblock::{Superblock, feature};
use crate::{ImageError, ReadAt};

/// The group's inode bitmap was never written.
pub(super) const INODE_UNINIT: u16 = 0x1;
/// The group's block bitmap was never written.
pub(super) const BLOCK_UNINIT: u16 = 0x2;

/// One group's descriptor.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub index: u32,
    raw: Vec<u8>,
}

impl Group {
    /// Reads a descriptor and proves its checksum and that what it points at lies within the filesystem.
    pub fn read(disk: &impl ReadAt, superblock: &Superblock, index: u32) -> Result<Self, ImageError> {
        let part = || format!("ext4 group descriptor {index}");
        if index >= superblock.groups {
            return Err(ImageError::damaged(part(), format!("there are {} groups", superblock.groups)));
        }
        let raw = disk
            .read_vec(superblock.descriptor_offset(index), superblock.descriptor_size)
            .map_err(ImageError::read(part()))?;
        let group = Group { index, raw };
        if superblock.lazy_groups() && group.checksum(superblock) != u16_at(&group.raw, 0x1E) {
            return Err(ImageError::damaged(part(), "its checksum does not match"));
        }
        let table_bytes = u64::from(superblock.inodes_per_group()) * superblock.inode_size as u64;
        let table = table_bytes / u64::from(superblock.block_size);
        for (first, length) in [(group.block_bitmap(), 1), (group.inode_bitmap(), 1), (group.inode_table(), table)] {
            if first == 0 || first.checked_add(length).is_none_or(|end| end > superblock.blocks) {
                return Err(ImageError::damaged(part(), format!("block {first} is not in the filesystem")));
            }
        }
        Ok(group)
    }

    pub fn block_bitmap(&self) -> u64 {
        self.wide(0x0, 0x20)
    }

    pub fn inode_bitmap(&self) -> u64 {
        self.wide(0x4, 0x24)
    }

    pub fn inode_table(&self) -> u64 {
        self.wide(0x8, 0x28)
    }

    pub fn free_blocks(&self) -> u32 {
        self.count(0xC, 0x2C)
    }

    pub fn set_free_blocks(&mut self, count: u32) {
        self.set_count(0xC, 0x2C, count);
    }

    pub fn free_inodes(&self) -> u32 {
        self.count(0xE, 0x2E)
    }

    pub fn set_free_inodes(&mut self, count: u32) {
        self.set_count(0xE, 0x2E, count);
    }

    pub fn directories(&self) -> u32 {
        self.count(0x10, 0x30)
    }

    pub fn set_directories(&mut self, count: u32) {
        self.set_count(0x10, 0x30, count);
    }

    /// How many inodes at the end of the table were never used.
    pub fn unused_inodes(&self) -> u32 {
        self.count(0x1C, 0x32)
    }

    pub fn set_unused_inodes(&mut self, count: u32) {
        self.set_count(0x1C, 0x32, count);
    }

    pub fn has_flag(&self, flag: u16) -> bool {
        u16_at(&self.raw, 0x12) & flag != 0
    }

    pub fn clear_flag(&mut self, flag: u16) {
        let flags = u16_at(&self.raw, 0x12) & !flag;
        put_u16(&mut self.raw, 0x12, flags);
    }

    /// Whether a bitmap has the checksum that the descriptor says.
    pub fn block_bitmap_matches(&self, superblock: &Superblock, bitmap: &[u8]) -> bool {
        self.bitmap_matches(0x18, 0x38, bitmap_checksum(superblock, bitmap, superblock.blocks_per_group()))
    }

    pub fn inode_bitmap_matches(&self, superblock: &Superblock, bitmap: &[u8]) -> bool {
        self.bitmap_matches(0x1A, 0x3A, bitmap_checksum(superblock, bitmap, superblock.inodes_per_group()))
    }

    pub fn seal_block_bitmap(&mut self, superblock: &Superblock, bitmap: &[u8]) {
        self.set_count(0x18, 0x38, bitmap_checksum(superblock, bitmap, superblock.blocks_per_group()));
    }

    pub fn seal_inode_bitmap(&mut self, superblock: &Superblock, bitmap: &[u8]) {
        self.set_count(0x1A, 0x3A, bitmap_checksum(superblock, bitmap, superblock.inodes_per_group()));
    }

    /// The bytes with their checksum, and where they belong.
    pub fn render(&mut self, superblock: &Superblock) -> (u64, &[u8]) {
        if superblock.lazy_groups() {
            let checksum = self.checksum(superblock);
            put_u16(&mut self.raw, 0x1E, checksum);
        }
        (superblock.descriptor_offset(self.index), &self.raw)
    }

    fn checksum(&self, superblock: &Superblock) -> u16 {
        let (before, rest) = self.raw.split_at(0x1E);
        let after = &rest[2..];
        if superblock.metadata_checksums() {
            let crc = crc32c(superblock.seed, &self.index.to_le_bytes());
            return crc32c(crc32c(crc32c(crc, before), &[0; 2]), after) as u16;
        }
        let crc = crc16(crc16(crc16(!0, superblock.uuid()), &self.index.to_le_bytes()), before);
        if superblock.has_incompat(feature::WIDE) { crc16(crc, after) } else { crc }
    }

    fn bitmap_matches(&self, low: usize, high: usize, checksum: u32) -> bool {
        match self.raw.len() > 32 {
            true => self.count(low, high) == checksum,
            false => u32::from(u16_at(&self.raw, low)) == checksum & 0xFFFF,
        }
    }

    fn wide(&self, low: usize, high: usize) -> u64 {
        let high = if self.raw.len() > 32 { u64::from(u32_at(&self.raw, high)) << 32 } else { 0 };
        high | u64::from(u32_at(&self.raw, low))
    }

    fn count(&self, low: usize, high: usize) -> u32 {
        let high = if self.raw.len() > 32 { u32::from(u16_at(&self.raw, high)) << 16 } else { 0 };
        high | u32::from(u16_at(&self.raw, low))
    }

    fn set_count(&mut self, low: usize, high: usize, count: u32) {
        put_u16(&mut self.raw, low, count as u16);
        if self.raw.len() > 32 {
            put_u16(&mut self.raw, high, (count >> 16) as u16);
        }
    }
}

fn bitmap_checksum(superblock: &Superblock, bitmap: &[u8], bits: u32) -> u32 {
    crc32c(superblock.seed, bitmap.get(..(bits as usize).div_ceil(8)).unwrap_or(bitmap))
}
