//! Inodes: one file's mode, owner, size, times and the root of its block map.

use super::checksum::crc32c;
use super::fields::{put, put_u16, put_u32, u16_at, u32_at};
use super::superblock::{Superblock, feature};
use super::{FileKind, Metadata};
use crate::ImageError;

/// Bits of `i_flags`.
pub(super) mod flag {
    pub const IMMUTABLE: u32 = 0x10;
    pub const APPEND_ONLY: u32 = 0x20;
    pub const ENCRYPTED: u32 = 0x800;
    pub const INDEXED: u32 = 0x1000;
    pub const HUGE_FILE: u32 = 0x4_0000;
    pub const EXTENTS: u32 = 0x8_0000;
    pub const VERITY: u32 = 0x10_0000;
    pub const INLINE_DATA: u32 = 0x1000_0000;
}

/// The block map's root, or the target of a short symbolic link.
const MAP: std::ops::Range<usize> = 0x28..0x64;

/// One inode as it is on disk.
#[derive(Debug, Clone)]
pub(super) struct Inode {
    pub number: u32,
    raw: Vec<u8>,
}

impl Inode {
    /// Takes an inode's bytes and proves their checksum.
    pub fn parse(superblock: &Superblock, number: u32, raw: Vec<u8>) -> Result<Self, ImageError> {
        let inode = Inode { number, raw };
        let extra = usize::from(inode.extra_size());
        if inode.raw.len() > 128 && (extra % 4 != 0 || 128 + extra > inode.raw.len()) {
            return Err(inode.damaged(format!("{extra} bytes of further fields do not fit into it")));
        }
        if superblock.metadata_checksums() {
            let checksum = inode.checksum(superblock);
            let low = u32::from(u16_at(&inode.raw, 0x7C));
            let (stored, checksum) = match inode.has_high_checksum() {
                true => (low | u32::from(u16_at(&inode.raw, 0x82)) << 16, checksum),
                false => (low, checksum & 0xFFFF),
            };
            if stored != checksum {
                return Err(inode.damaged("its checksum does not match"));
            }
        }
        Ok(inode)
    }

    /// A new inode of root's, with an empty extent map and no links yet.
    pub fn create(superblock: &Superblock, number: u32, mode: u16, timestamp: u32) -> Self {
        let mut inode = Inode { number, raw: vec![0; superblock.inode_size] };
        put_u16(&mut inode.raw, 0x0, mode);
        if inode.raw.len() > 128 {
            put_u16(&mut inode.raw, 0x80, superblock.extra_inode_size());
        }
        inode.set_flags(flag::EXTENTS);
        inode.touch(timestamp);
        inode.put_time(0x8, 0x8C, timestamp);
        if inode.extra_size() >= 0x98 - 0x80 {
            inode.put_time(0x90, 0x94, timestamp);
        }
        inode
    }

    /// The bytes with their checksum.
    pub fn render(&mut self, superblock: &Superblock) -> &[u8] {
        if superblock.metadata_checksums() {
            let checksum = self.checksum(superblock);
            put_u16(&mut self.raw, 0x7C, checksum as u16);
            if self.has_high_checksum() {
                put_u16(&mut self.raw, 0x82, (checksum >> 16) as u16);
            }
        }
        &self.raw
    }

    /// Where the checksums of this file's directory and extent blocks start.
    pub fn seed(&self, superblock: &Superblock) -> u32 {
        crc32c(crc32c(superblock.seed, &self.number.to_le_bytes()), &self.raw[0x64..0x68])
    }

    pub fn metadata(&self) -> Metadata {
        Metadata {
            inode: self.number,
            kind: self.kind(),
            mode: self.mode() & 0o7777,
            uid: u32::from(u16_at(&self.raw, 0x2)) | u32::from(u16_at(&self.raw, 0x78)) << 16,
            gid: u32::from(u16_at(&self.raw, 0x18)) | u32::from(u16_at(&self.raw, 0x7A)) << 16,
            size: self.size(),
            links: self.links(),
        }
    }

    pub fn kind(&self) -> FileKind {
        match self.mode() >> 12 {
            0x8 => FileKind::File,
            0x4 => FileKind::Directory,
            0xA => FileKind::Symlink,
            _ => FileKind::Special,
        }
    }

    pub fn mode(&self) -> u16 {
        u16_at(&self.raw, 0x0)
    }

    /// Changes the permissions and gives the file to root.
    pub fn own_by_root(&mut self, permissions: u16) {
        let mode = (self.mode() & 0xF000) | (permissions & 0o7777);
        put_u16(&mut self.raw, 0x0, mode);
        for owner in [0x2, 0x18, 0x78, 0x7A] {
            put_u16(&mut self.raw, owner, 0);
        }
    }

    pub fn size(&self) -> u64 {
        u64::from(u32_at(&self.raw, 0x4)) | u64::from(u32_at(&self.raw, 0x6C)) << 32
    }

    pub fn set_size(&mut self, size: u64) {
        put_u32(&mut self.raw, 0x4, size as u32);
        put_u32(&mut self.raw, 0x6C, (size >> 32) as u32);
    }

    pub fn links(&self) -> u16 {
        u16_at(&self.raw, 0x1A)
    }

    pub fn set_links(&mut self, links: u16) {
        put_u16(&mut self.raw, 0x1A, links);
    }

    /// What the file occupies, in units of 512 bytes.
    pub fn sectors(&self) -> u64 {
        u64::from(u32_at(&self.raw, 0x1C)) | u64::from(u16_at(&self.raw, 0x74)) << 32
    }

    pub fn set_sectors(&mut self, sectors: u64) {
        put_u32(&mut self.raw, 0x1C, sectors as u32);
        put_u16(&mut self.raw, 0x74, (sectors >> 32) as u16);
    }

    pub fn has_flag(&self, flags: u32) -> bool {
        u32_at(&self.raw, 0x20) & flags != 0
    }

    pub fn add_flag(&mut self, flags: u32) {
        self.set_flags(u32_at(&self.raw, 0x20) | flags);
    }

    pub fn clear_flag(&mut self, flags: u32) {
        self.set_flags(u32_at(&self.raw, 0x20) & !flags);
    }

    pub fn map(&self) -> &[u8] {
        &self.raw[MAP]
    }

    /// Replaces the root of the block map; what is left of it becomes zero.
    pub fn set_map(&mut self, map: &[u8]) {
        self.raw[MAP].fill(0);
        put(&mut self.raw, MAP.start, &map[..map.len().min(MAP.len())]);
    }

    /// The block of extended attributes outside the inode, or 0.
    pub fn attribute_block(&self) -> u64 {
        u64::from(u32_at(&self.raw, 0x68)) | u64::from(u16_at(&self.raw, 0x76)) << 32
    }

    /// Sets the times of change.
    pub fn touch(&mut self, timestamp: u32) {
        self.put_time(0xC, 0x84, timestamp);
        self.put_time(0x10, 0x88, timestamp);
    }

    /// Marks a file without names as deleted. A time that could be an inode's number would make it a link in the list
    /// of orphans, so the time is never that early.
    pub fn delete(&mut self, superblock: &Superblock, timestamp: u32) {
        self.set_links(0);
        self.set_size(0);
        self.set_sectors(0);
        put_u32(&mut self.raw, 0x14, timestamp.max(superblock.inodes()));
        put_u32(&mut self.raw, 0x68, 0);
        put_u16(&mut self.raw, 0x76, 0);
    }

    /// A short target lies in the inode itself, which then has no block but that of its attributes.
    pub fn has_short_target(&self, superblock: &Superblock) -> bool {
        let attributes = if self.attribute_block() == 0 { 0 } else { u64::from(superblock.block_size / 512) };
        self.kind() == FileKind::Symlink && self.sectors() == attributes && self.size() < MAP.len() as u64
    }

    /// Refuses to change a file whose content other rules govern.
    pub fn check_editable(&self, superblock: &Superblock) -> Result<(), ImageError> {
        let reason = if self.has_flag(flag::IMMUTABLE | flag::APPEND_ONLY) {
            "it is marked immutable or append-only (chattr)"
        } else if self.has_flag(flag::ENCRYPTED | flag::INLINE_DATA) {
            "it is encrypted or stored inline"
        } else if self.has_flag(flag::HUGE_FILE) && superblock.has_ro_compat(feature::HUGE_FILE) {
            "it is counted in whole blocks (a file of more than 2 TiB)"
        } else {
            return Ok(());
        };
        Err(ImageError::refused(self.part(), reason, "choose another file, or replace it when the image is built"))
    }

    pub fn part(&self) -> String {
        format!("ext4 inode {}", self.number)
    }

    pub fn damaged(&self, problem: impl Into<String>) -> ImageError {
        ImageError::damaged(self.part(), problem)
    }

    fn set_flags(&mut self, flags: u32) {
        put_u32(&mut self.raw, 0x20, flags);
    }

    fn extra_size(&self) -> u16 {
        if self.raw.len() > 128 { u16_at(&self.raw, 0x80) } else { 0 }
    }

    fn has_high_checksum(&self) -> bool {
        self.extra_size() >= 4
    }

    /// Seconds since 1970; from 2038 on the carry goes into a further field, where the inode has it.
    fn put_time(&mut self, at: usize, extra: usize, timestamp: u32) {
        put_u32(&mut self.raw, at, timestamp);
        if usize::from(self.extra_size()) + 128 >= extra + 4 {
            put_u32(&mut self.raw, extra, timestamp >> 31);
        }
    }

    fn checksum(&self, superblock: &Superblock) -> u32 {
        let (first, rest) = self.raw.split_at(128);
        let mut crc = crc32c(self.seed(superblock), &first[..0x7C]);
        crc = crc32c(crc32c(crc, &[0; 2]), &first[0x7E..]);
        if self.has_high_checksum() {
            crc = crc32c(crc32c(crc, &rest[..2]), &[0; 2]);
            return crc32c(crc, &rest[4..]);
        }
        crc32c(crc, rest)
    }
}
