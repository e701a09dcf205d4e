//! The superblock: geometry, features, and what of them Kiln reads and edits.
//!
//! The bounds of every number that others are computed from are checked here, once: block size, group sizes, inode
//! size, descriptor size, and that all blocks lie within the image.

use super::checksum::crc32c;
use super::fields::{put_u32, u8_at, u16_at, u32_at};
use crate::{ImageError, ReadAt};

/// Where the primary superblock is, whatever the block size.
const OFFSET: u64 = 1024;
const LENGTH: usize = 1024;

/// Bits of the three feature words.
pub(super) mod feature {
    pub const SPARSE_SUPER2: u32 = 0x200;

    pub const FILETYPE: u32 = 0x2;
    pub const RECOVER: u32 = 0x4;
    pub const JOURNAL_DEVICE: u32 = 0x8;
    pub const META_BG: u32 = 0x10;
    pub const EXTENTS: u32 = 0x40;
    pub const WIDE: u32 = 0x80;
    pub const FLEX_BG: u32 = 0x200;
    pub const CHECKSUM_SEED: u32 = 0x2000;

    pub const SPARSE_SUPER: u32 = 0x1;
    pub const LARGE_FILE: u32 = 0x2;
    pub const HUGE_FILE: u32 = 0x8;
    pub const GDT_CHECKSUM: u32 = 0x10;
    pub const DIR_NLINK: u32 = 0x20;
    pub const EXTRA_ISIZE: u32 = 0x40;
    pub const BIGALLOC: u32 = 0x200;
    pub const METADATA_CHECKSUM: u32 = 0x400;
    pub const VERITY: u32 = 0x8000;
    pub const ORPHAN_PRESENT: u32 = 0x10000;
}
use feature::*;

/// Incompatible features whose files can be read: what a file itself makes unreadable is refused file by file.
const READABLE: u32 = FILETYPE | RECOVER | META_BG | EXTENTS | WIDE | FLEX_BG | CHECKSUM_SEED
    | 0x100 /* mmp */ | 0x400 /* ea_inode */ | 0x4000 /* large_dir */ | 0x8000 /* inline_data */
    | 0x10000 /* encrypt */ | 0x20000 /* casefold */;
const EDITABLE: u32 = FILETYPE | META_BG | EXTENTS | WIDE | FLEX_BG | CHECKSUM_SEED;
const EDITABLE_RO: u32 =
    SPARSE_SUPER | LARGE_FILE | 0x4 | HUGE_FILE | GDT_CHECKSUM | DIR_NLINK | EXTRA_ISIZE | METADATA_CHECKSUM | VERITY;

const INCOMPAT_NAMES: [(u32, &str); 17] = [
    (0x1, "compression"),
    (0x2, "filetype"),
    (0x4, "needs_recovery"),
    (0x8, "journal_dev"),
    (0x10, "meta_bg"),
    (0x40, "extent"),
    (0x80, "64bit"),
    (0x100, "mmp"),
    (0x200, "flex_bg"),
    (0x400, "ea_inode"),
    (0x1000, "dirdata"),
    (0x2000, "metadata_csum_seed"),
    (0x4000, "large_dir"),
    (0x8000, "inline_data"),
    (0x10000, "encrypt"),
    (0x20000, "casefold"),
    (0x40000, "lazytime"),
];
const RO_COMPAT_NAMES: [(u32, &str); 8] = [
    (0x80, "snapshot"),
    (0x100, "quota"),
    (0x200, "bigalloc"),
    (0x800, "replica"),
    (0x1000, "read-only"),
    (0x2000, "project"),
    (0x4000, "shared_blocks"),
    (0x10000, "orphan_present"),
];

const PART: &str = "ext4 superblock";
/// 32 GiB of the smallest blocks. Work and memory grow with the groups, and a hole in a file can claim any number of them.
const MOST_GROUPS: u32 = 4096;

/// The primary superblock, proven to be one.
#[derive(Debug, Clone)]
pub(super) struct Superblock {
    raw: Vec<u8>,
    pub block_size: u32,
    pub blocks: u64,
    pub groups: u32,
    pub descriptor_size: usize,
    pub inode_size: usize,
    /// Where every metadata checksum starts.
    pub seed: u32,
}

impl Superblock {
    pub fn read(disk: &impl ReadAt) -> Result<Self, ImageError> {
        let raw = disk.read_vec(OFFSET, LENGTH).map_err(ImageError::read(PART))?;
        let damaged = |problem: String| Err(ImageError::damaged(PART, problem));
        if u16_at(&raw, 0x38) != 0xEF53 {
            return damaged("this is no ext2, ext3 or ext4 filesystem (no magic number)".into());
        }
        let incompat = u32_at(&raw, 0x60);
        if incompat & JOURNAL_DEVICE != 0 {
            return Err(ImageError::refused(
                PART,
                "this is the external journal of another filesystem",
                "name the image of the filesystem itself",
            ));
        }
        if incompat & !READABLE != 0 {
            return Err(ImageError::refused(
                PART,
                format!("its features {} are not known", names(incompat & !READABLE, &INCOMPAT_NAMES)),
                "make the filesystem without them",
            ));
        }
        let checksummed = u32_at(&raw, 0x64) & METADATA_CHECKSUM != 0;
        if checksummed && crc32c(!0, &raw[..0x3FC]) != u32_at(&raw, 0x3FC) {
            return damaged("its checksum does not match".into());
        }
        let log_block_size = u32_at(&raw, 0x18);
        if log_block_size > 6 {
            return damaged(format!("a block size of 2^{} KiB does not exist", log_block_size));
        }
        let block_size = 1024u32 << log_block_size;
        let wide = incompat & WIDE != 0;
        let descriptor_size = if wide { usize::from(u16_at(&raw, 0xFE)) } else { 32 };
        let least = if wide { 64 } else { 32 };
        if !descriptor_size.is_power_of_two() || descriptor_size < least || descriptor_size > 1024 {
            return damaged(format!("group descriptors of {descriptor_size} bytes do not exist"));
        }
        let inode_size = if u32_at(&raw, 0x4C) == 0 { 128 } else { usize::from(u16_at(&raw, 0x58)) };
        if !inode_size.is_power_of_two() || inode_size < 128 || inode_size > block_size as usize {
            return damaged(format!("inodes of {inode_size} bytes do not exist"));
        }
        let high = if wide { u64::from(u32_at(&raw, 0x150)) << 32 } else { 0 };
        let blocks = high | u64::from(u32_at(&raw, 0x4));
        if blocks > disk.len() / u64::from(block_size) {
            return damaged(format!(
                "it speaks of {blocks} blocks of {block_size} bytes, but the image has {} bytes",
                disk.len()
            ));
        }
        let mut superblock = Superblock { raw, block_size, blocks, groups: 0, descriptor_size, inode_size, seed: 0 };
        let first = u64::from(superblock.first_data_block());
        let (per_group, inodes) = (superblock.blocks_per_group(), superblock.inodes_per_group());
        if first >= blocks || first != u64::from(block_size == 1024 && !superblock.has_ro_compat(BIGALLOC)) {
            return damaged(format!("its first data block is {first} of {blocks}"));
        }
        if per_group == 0 || (per_group > block_size * 8 && !superblock.has_ro_compat(BIGALLOC)) || per_group % 8 != 0 {
            return damaged(format!("{per_group} blocks per group do not exist"));
        }
        let inodes_per_block = block_size / inode_size as u32;
        if inodes == 0 || inodes > block_size * 8 || inodes % inodes_per_block != 0 {
            return damaged(format!("{inodes} inodes per group do not exist"));
        }
        let groups = (blocks - first).div_ceil(u64::from(per_group));
        superblock.groups = match u32::try_from(groups) {
            Ok(groups) if u64::from(groups) * u64::from(inodes) == u64::from(superblock.inodes()) => groups,
            _ => {
                return damaged(format!("{groups} groups of {inodes} inodes are not {} inodes", superblock.inodes()));
            }
        };
        if superblock.groups > MOST_GROUPS {
            return Err(ImageError::refused(
                PART,
                format!("{groups} groups are more than the boot partition of a CoreOS has"),
                "give an image as it was downloaded",
            ));
        }
        superblock.seed = match superblock.has_incompat(CHECKSUM_SEED) {
            true => u32_at(&superblock.raw, 0x270),
            false => crc32c(!0, superblock.uuid()),
        };
        Ok(superblock)
    }

    /// Refuses what cannot be edited safely.
    pub fn check_editable(&self) -> Result<(), ImageError> {
        let refuse = |problem: &str, fix: &str| Err(ImageError::refused("ext4 filesystem", problem, fix));
        if self.has_incompat(RECOVER) {
            return refuse(
                "its journal holds changes that are not in place yet (needs_recovery)",
                "replay it with `e2fsck -fy` on the partition, or shut the machine down cleanly",
            );
        }
        if u16_at(&self.raw, 0x3A) & 3 != 1 {
            return refuse("it is marked as not clean", "repair it with `e2fsck -fy` on the partition");
        }
        if u32_at(&self.raw, 0xE8) != 0 || self.has_ro_compat(ORPHAN_PRESENT) {
            return refuse(
                "it has files that were deleted while open (orphans)",
                "repair it with `e2fsck -fy` on the partition",
            );
        }
        let incompat = u32_at(&self.raw, 0x60) & !EDITABLE;
        let ro_compat = u32_at(&self.raw, 0x64) & !EDITABLE_RO;
        if incompat != 0 || ro_compat != 0 {
            let mut list = Vec::new();
            list.extend((incompat != 0).then(|| names(incompat, &INCOMPAT_NAMES)));
            list.extend((ro_compat != 0).then(|| names(ro_compat, &RO_COMPAT_NAMES)));
            let problem = format!("files with its features {} cannot be edited", list.join(", "));
            return refuse(&problem, "make the filesystem without them");
        }
        if !self.has_incompat(EXTENTS) {
            return refuse(
                "it has no extents (ext2 or ext3), which can be read but not edited",
                "make it as ext4, or convert it with `tune2fs -O extent`",
            );
        }
        if self.has_ro_compat(METADATA_CHECKSUM) && u8_at(&self.raw, 0x175) != 1 {
            return refuse("its checksums are of an unknown kind", "make the filesystem with crc32c checksums");
        }
        Ok(())
    }

    pub fn has_compat(&self, bits: u32) -> bool {
        u32_at(&self.raw, 0x5C) & bits != 0
    }

    pub fn has_incompat(&self, bits: u32) -> bool {
        u32_at(&self.raw, 0x60) & bits != 0
    }

    pub fn has_ro_compat(&self, bits: u32) -> bool {
        u32_at(&self.raw, 0x64) & bits != 0
    }

    pub fn metadata_checksums(&self) -> bool {
        self.has_ro_compat(METADATA_CHECKSUM)
    }

    /// Whether groups can say that their bitmaps and inode tables were never written.
    pub fn lazy_groups(&self) -> bool {
        self.has_ro_compat(METADATA_CHECKSUM | GDT_CHECKSUM)
    }

    pub fn uuid(&self) -> &[u8] {
        &self.raw[0x68..0x78]
    }

    pub fn label(&self) -> &[u8] {
        let label = &self.raw[0x78..0x88];
        label.split(|byte| *byte == 0).next().unwrap_or(label)
    }

    pub fn inodes(&self) -> u32 {
        u32_at(&self.raw, 0x0)
    }

    pub fn first_data_block(&self) -> u32 {
        u32_at(&self.raw, 0x14)
    }

    pub fn blocks_per_group(&self) -> u32 {
        u32_at(&self.raw, 0x20)
    }

    pub fn inodes_per_group(&self) -> u32 {
        u32_at(&self.raw, 0x28)
    }

    /// The first inode that files may have.
    pub fn first_inode(&self) -> u32 {
        if u32_at(&self.raw, 0x4C) == 0 { 11 } else { u32_at(&self.raw, 0x54) }
    }

    pub fn free_blocks(&self) -> u64 {
        let high = if self.has_incompat(WIDE) { u64::from(u32_at(&self.raw, 0x158)) << 32 } else { 0 };
        high | u64::from(u32_at(&self.raw, 0xC))
    }

    pub fn set_free_blocks(&mut self, count: u64) {
        put_u32(&mut self.raw, 0xC, count as u32);
        if self.has_incompat(WIDE) {
            put_u32(&mut self.raw, 0x158, (count >> 32) as u32);
        }
    }

    pub fn free_inodes(&self) -> u32 {
        u32_at(&self.raw, 0x10)
    }

    pub fn set_free_inodes(&mut self, count: u32) {
        put_u32(&mut self.raw, 0x10, count);
    }

    /// Files of 2 GiB and more need this mark.
    pub fn allow_large_files(&mut self) {
        let features = u32_at(&self.raw, 0x64) | LARGE_FILE;
        put_u32(&mut self.raw, 0x64, features);
    }

    /// How many bytes beyond the first 128 a new inode uses for fields.
    pub fn extra_inode_size(&self) -> u16 {
        let room = self.inode_size as u16 - 128;
        let wanted = match self.has_ro_compat(EXTRA_ISIZE) {
            true => u16_at(&self.raw, 0x15C).max(u16_at(&self.raw, 0x15E)),
            false => 32,
        };
        if wanted < 32 || wanted % 4 != 0 { room.min(32) } else { room.min(wanted) }
    }

    /// The first block of a group.
    pub fn group_start(&self, group: u32) -> u64 {
        u64::from(self.first_data_block()) + u64::from(group) * u64::from(self.blocks_per_group())
    }

    /// How many blocks a group has: the last one may be short.
    pub fn group_blocks(&self, group: u32) -> u32 {
        let left = self.blocks.saturating_sub(self.group_start(group));
        left.min(u64::from(self.blocks_per_group())) as u32
    }

    /// The byte at which a group's descriptor begins.
    pub fn descriptor_offset(&self, group: u32) -> u64 {
        let per_block = self.descriptors_per_block();
        let table = group / per_block;
        let within = u64::from(group % per_block) * self.descriptor_size as u64;
        let block = match self.has_incompat(META_BG) && table >= self.first_meta_group() {
            true => self.group_start(table * per_block) + u64::from(self.has_superblock(table * per_block)),
            // Behind the superblock, which lies in the second KiB.
            false => u64::from(self.block_size == 1024) + 1 + u64::from(table),
        };
        block * u64::from(self.block_size) + within
    }

    /// How many blocks at the start of a group hold a superblock and descriptors, copies or not.
    pub fn group_overhead(&self, group: u32) -> u32 {
        let per_block = self.descriptors_per_block();
        let copy = u32::from(self.has_superblock(group));
        if self.has_incompat(META_BG) && group / per_block >= self.first_meta_group() {
            let place = group % per_block;
            return copy + u32::from(place == 0 || place == 1 || place == per_block - 1);
        }
        if copy == 0 {
            return 0;
        }
        let tables = match self.has_incompat(META_BG) {
            true => self.first_meta_group(),
            false => self.groups.div_ceil(per_block),
        };
        tables.saturating_add(1).saturating_add(u32::from(u16_at(&self.raw, 0xCE)))
    }

    /// The bytes with their checksum, and where they belong.
    pub fn render(&mut self) -> (u64, &[u8]) {
        if self.metadata_checksums() {
            let checksum = crc32c(!0, &self.raw[..0x3FC]);
            put_u32(&mut self.raw, 0x3FC, checksum);
        }
        (OFFSET, &self.raw)
    }

    fn descriptors_per_block(&self) -> u32 {
        self.block_size / self.descriptor_size as u32
    }

    fn first_meta_group(&self) -> u32 {
        u32_at(&self.raw, 0x104)
    }

    fn has_superblock(&self, group: u32) -> bool {
        if self.has_compat(SPARSE_SUPER2) {
            return group == 0 || group == u32_at(&self.raw, 0x24C) || group == u32_at(&self.raw, 0x250);
        }
        if !self.has_ro_compat(SPARSE_SUPER) || group <= 1 {
            return true;
        }
        [3u32, 5, 7].iter().any(|base| {
            let mut power = u64::from(*base);
            while power < u64::from(group) {
                power *= u64::from(*base);
            }
            power == u64::from(group)
        })
    }
}

fn names(bits: u32, known: &[(u32, &str)]) -> String {
    let mut list: Vec<String> =
        known.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| (*name).to_owned()).collect();
    let unknown = known.iter().fold(bits, |left, (bit, _)| left & !bit);
    if unknown != 0 {
        list.push(format!("{unknown:#x}"));
    }
    list.join(", ")
}
