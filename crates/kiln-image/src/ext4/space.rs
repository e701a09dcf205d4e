//! Which blocks and inodes are free: bitmaps, counts, groups that were never used.
//!
//! Changes stay here until [`Space::flush`]; the filesystem's counts follow at once. First fit from a goal on, so the
//! same edits of the same image always take the same blocks. A bitmap that disagrees with its checksum or with the
//! count of its group is damage: nothing is taken from it.

use std::collections::BTreeMap;

use super::group::{BLOCK_UNINIT, Group, INODE_UNINIT};
use super::superblock::Superblock;
use crate::{ImageError, Patched, ReadAt};

/// Neighbouring blocks on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub start: u64,
    pub length: u32,
}

impl Run {
    pub fn blocks(&self) -> std::ops::Range<u64> {
        self.start..self.start + u64::from(self.length)
    }
}

/// The groups an edit has looked at.
#[derive(Debug, Default)]
pub(super) struct Space {
    groups: BTreeMap<u32, Usage>,
}

#[derive(Debug)]
struct Usage {
    group: Group,
    blocks: Option<Bitmap>,
    inodes: Option<Bitmap>,
    changed: bool,
}

#[derive(Debug)]
struct Bitmap {
    bytes: Vec<u8>,
    changed: bool,
}

impl Space {
    /// Finds free blocks, nearest after the goal first. Takes nothing.
    pub fn find_blocks<D: ReadAt>(
        &mut self,
        disk: &Patched<D>,
        superblock: &Superblock,
        goal: u64,
        count: u64,
    ) -> Result<Vec<Run>, ImageError> {
        let mut runs = Vec::new();
        let mut left = count;
        if count > superblock.free_blocks() {
            return Err(no_space(superblock, count));
        }
        let goal = if goal < superblock.blocks { goal } else { superblock.group_start(0) };
        let goal = goal.max(superblock.group_start(0)) - superblock.group_start(0);
        let per_group = u64::from(superblock.blocks_per_group());
        let (first, within) = ((goal / per_group) as u32, (goal % per_group) as u32);
        // The goal's group comes twice: from the goal on, and at last up to it.
        let order = (first..superblock.groups).chain(0..=first).enumerate();
        for (turn, index) in order {
            if left == 0 {
                break;
            }
            let from = if turn == 0 { within } else { 0 };
            let size = superblock.group_blocks(index);
            let to = if turn > 0 && index == first { within } else { size };
            let usage = self.usage(disk, superblock, index)?;
            if usage.group.free_blocks() == 0 {
                continue;
            }
            let bitmap = usage.blocks(disk, superblock)?;
            let start = superblock.group_start(index);
            let mut at = from;
            while left > 0 {
                let Some(free) = next_clear(bitmap, at, to) else { break };
                let limit = left.min(u64::from(to - free)) as u32 + free;
                let end = next_set(bitmap, free, limit);
                push_run(&mut runs, start + u64::from(free), end - free);
                left -= u64::from(end - free);
                at = end;
            }
        }
        if left > 0 {
            return Err(no_space(superblock, count));
        }
        Ok(runs)
    }

    /// Marks free blocks as taken.
    pub fn take_blocks<D: ReadAt>(
        &mut self,
        disk: &Patched<D>,
        superblock: &mut Superblock,
        runs: &[Run],
    ) -> Result<(), ImageError> {
        self.mark_blocks(disk, superblock, runs, true)
    }

    /// Gives blocks back.
    pub fn release_blocks<D: ReadAt>(
        &mut self,
        disk: &Patched<D>,
        superblock: &mut Superblock,
        runs: &[Run],
    ) -> Result<(), ImageError> {
        self.mark_blocks(disk, superblock, runs, false)
    }

    /// Whether nobody has this block, which must be one of the filesystem's.
    pub fn is_free<D: ReadAt>(
        &mut self,
        disk: &Patched<D>,
        superblock: &Superblock,
        block: u64,
    ) -> Result<bool, ImageError> {
        let within = block.saturating_sub(superblock.group_start(0));
        let per_group = u64::from(superblock.blocks_per_group());
        let usage = self.usage(disk, superblock, (within / per_group) as u32)?;
        let bit = (within % per_group) as u32;
        Ok(!is_set(usage.blocks(disk, superblock)?, bit))
    }

    /// Finds the first free inode, the given group's first. Takes nothing.
    pub fn find_inode<D: ReadAt>(
        &mut self,
        disk: &Patched<D>,
        superblock: &Superblock,
        near: u32,
    ) -> Result<u32, ImageError> {
        let per_group = superblock.inodes_per_group();
        for index in (near..superblock.groups).chain(0..near) {
            let usage = self.usage(disk, superblock, index)?;
            if usage.group.free_inodes() == 0 {
                continue;
            }
            let reserved = superblock.first_inode().saturating_sub(1).saturating_sub(index.saturating_mul(per_group));
            let bitmap = usage.inodes(disk, superblock)?;
            if let Some(bit) = next_clear(bitmap, reserved.min(per_group), per_group) {
                return Ok(index * per_group + bit + 1);
            }
        }
        Err(ImageError::refused(
            "ext4 filesystem",
            format!("all of its {} inodes are in use", superblock.inodes()),
            "remove files that are not needed, or use an image with a larger boot partition",
        ))
    }

    /// Marks an inode as taken. Returns which inodes of the group's table hold no file yet and must become zero.
    pub fn take_inode<D: ReadAt>(
        &mut self,
        disk: &Patched<D>,
        superblock: &mut Superblock,
        number: u32,
        directory: bool,
    ) -> Result<std::ops::Range<u32>, ImageError> {
        let per_group = superblock.inodes_per_group();
        let (index, bit) = ((number - 1) / per_group, (number - 1) % per_group);
        let usage = self.usage(disk, superblock, index)?;
        set_bit(usage.inodes_mut(disk, superblock)?, bit, true)
            .ok_or_else(|| ImageError::damaged(format!("ext4 inode {number}"), "it is in use already"))?;
        usage.group.clear_flag(INODE_UNINIT);
        usage.group.set_free_inodes(usage.group.free_inodes().saturating_sub(1));
        if directory {
            usage.group.set_directories(usage.group.directories() + 1);
        }
        let mut untouched = 0..0;
        if superblock.lazy_groups() {
            let used = per_group - usage.group.unused_inodes().min(per_group);
            if bit >= used {
                // The whole block of the table is made fit to be read, as the kernel does it.
                let per_block = superblock.block_size / superblock.inode_size as u32;
                let end = (bit + 1).next_multiple_of(per_block).min(per_group);
                untouched = index * per_group + used + 1..index * per_group + end + 1;
                usage.group.set_unused_inodes(per_group - bit - 1);
            }
        }
        superblock.set_free_inodes(superblock.free_inodes().saturating_sub(1));
        Ok(untouched)
    }

    /// Gives an inode back.
    pub fn release_inode<D: ReadAt>(
        &mut self,
        disk: &Patched<D>,
        superblock: &mut Superblock,
        number: u32,
        directory: bool,
    ) -> Result<(), ImageError> {
        let per_group = superblock.inodes_per_group();
        let usage = self.usage(disk, superblock, (number - 1) / per_group)?;
        set_bit(usage.inodes_mut(disk, superblock)?, (number - 1) % per_group, false)
            .ok_or_else(|| ImageError::damaged(format!("ext4 inode {number}"), "it is in use, but marked as free"))?;
        usage.group.set_free_inodes(usage.group.free_inodes() + 1);
        if directory {
            usage.group.set_directories(usage.group.directories().saturating_sub(1));
        }
        superblock.set_free_inodes(superblock.free_inodes().saturating_add(1));
        Ok(())
    }

    /// All that changed: bitmaps and descriptors, and where they belong.
    pub fn flush(&mut self, superblock: &Superblock) -> Vec<(u64, Vec<u8>)> {
        let mut writes = Vec::new();
        let block_size = u64::from(superblock.block_size);
        for usage in self.groups.values_mut().filter(|usage| usage.changed) {
            let group = &mut usage.group;
            if let Some(bitmap) = usage.blocks.as_ref().filter(|bitmap| bitmap.changed) {
                if superblock.metadata_checksums() {
                    group.seal_block_bitmap(superblock, &bitmap.bytes);
                }
                writes.push((group.block_bitmap() * block_size, bitmap.bytes.clone()));
            }
            if let Some(bitmap) = usage.inodes.as_ref().filter(|bitmap| bitmap.changed) {
                if superblock.metadata_checksums() {
                    group.seal_inode_bitmap(superblock, &bitmap.bytes);
                }
                writes.push((group.inode_bitmap() * block_size, bitmap.bytes.clone()));
            }
            let (offset, bytes) = group.render(superblock);
            writes.push((offset, bytes.to_vec()));
        }
        writes
    }

    fn mark_blocks<D: ReadAt>(
        &mut self,
        disk: &Patched<D>,
        superblock: &mut Superblock,
        runs: &[Run],
        taken: bool,
    ) -> Result<(), ImageError> {
        for block in runs.iter().flat_map(Run::blocks) {
            let wrong = |problem| ImageError::damaged(format!("ext4 block {block}"), problem);
            let within = block.checked_sub(superblock.group_start(0)).filter(|_| block < superblock.blocks);
            let within = within.ok_or_else(|| wrong("it is not in the filesystem"))?;
            let per_group = u64::from(superblock.blocks_per_group());
            let usage = self.usage(disk, superblock, (within / per_group) as u32)?;
            set_bit(usage.blocks_mut(disk, superblock)?, (within % per_group) as u32, taken).ok_or_else(|| {
                wrong(if taken { "it is in use already" } else { "a file uses it, but it is marked as free" })
            })?;
            let free = usage.group.free_blocks();
            usage.group.set_free_blocks(if taken { free.saturating_sub(1) } else { free + 1 });
            usage.group.clear_flag(BLOCK_UNINIT);
            let free = superblock.free_blocks();
            superblock.set_free_blocks(if taken { free.saturating_sub(1) } else { free.saturating_add(1) });
        }
        Ok(())
    }

    fn usage<D: ReadAt>(
        &mut self,
        disk: &Patched<D>,
        superblock: &Superblock,
        index: u32,
    ) -> Result<&mut Usage, ImageError> {
        use std::collections::btree_map::Entry;
        match self.groups.entry(index) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let group = Group::read(disk, superblock, index)?;
                Ok(entry.insert(Usage { group, blocks: None, inodes: None, changed: false }))
            }
        }
    }
}

impl Usage {
    fn blocks<D: ReadAt>(&mut self, disk: &Patched<D>, superblock: &Superblock) -> Result<&[u8], ImageError> {
        Ok(&self.load_blocks(disk, superblock)?.bytes)
    }

    fn blocks_mut<D: ReadAt>(&mut self, disk: &Patched<D>, superblock: &Superblock) -> Result<&mut [u8], ImageError> {
        self.changed = true;
        let bitmap = self.load_blocks(disk, superblock)?;
        bitmap.changed = true;
        Ok(&mut bitmap.bytes)
    }

    fn inodes<D: ReadAt>(&mut self, disk: &Patched<D>, superblock: &Superblock) -> Result<&[u8], ImageError> {
        Ok(&self.load_inodes(disk, superblock)?.bytes)
    }

    fn inodes_mut<D: ReadAt>(&mut self, disk: &Patched<D>, superblock: &Superblock) -> Result<&mut [u8], ImageError> {
        self.changed = true;
        let bitmap = self.load_inodes(disk, superblock)?;
        bitmap.changed = true;
        Ok(&mut bitmap.bytes)
    }

    fn load_blocks<D: ReadAt>(
        &mut self,
        disk: &Patched<D>,
        superblock: &Superblock,
    ) -> Result<&mut Bitmap, ImageError> {
        let bitmap = match self.blocks.take() {
            Some(bitmap) => bitmap,
            None => {
                let part = format!("ext4 block bitmap of group {}", self.group.index);
                let bytes = match superblock.lazy_groups() && self.group.has_flag(BLOCK_UNINIT) {
                    true => first_block_bitmap(disk, superblock, self.group.index)?,
                    false => {
                        let bytes = read_bitmap(disk, superblock, self.group.block_bitmap(), &part)?;
                        if superblock.metadata_checksums() && !self.group.block_bitmap_matches(superblock, &bytes) {
                            return Err(ImageError::damaged(part, "its checksum does not match"));
                        }
                        bytes
                    }
                };
                let free = count_clear(&bytes, superblock.group_blocks(self.group.index));
                check_count(&part, free, self.group.free_blocks(), "blocks")?;
                Bitmap { bytes, changed: false }
            }
        };
        Ok(self.blocks.insert(bitmap))
    }

    fn load_inodes<D: ReadAt>(
        &mut self,
        disk: &Patched<D>,
        superblock: &Superblock,
    ) -> Result<&mut Bitmap, ImageError> {
        let bitmap = match self.inodes.take() {
            Some(bitmap) => bitmap,
            None => {
                let part = format!("ext4 inode bitmap of group {}", self.group.index);
                let bytes = match superblock.lazy_groups() && self.group.has_flag(INODE_UNINIT) {
                    true => padded(superblock, superblock.inodes_per_group()),
                    false => {
                        let bytes = read_bitmap(disk, superblock, self.group.inode_bitmap(), &part)?;
                        if superblock.metadata_checksums() && !self.group.inode_bitmap_matches(superblock, &bytes) {
                            return Err(ImageError::damaged(part, "its checksum does not match"));
                        }
                        bytes
                    }
                };
                let free = count_clear(&bytes, superblock.inodes_per_group());
                check_count(&part, free, self.group.free_inodes(), "inodes")?;
                Bitmap { bytes, changed: false }
            }
        };
        Ok(self.inodes.insert(bitmap))
    }
}

fn read_bitmap<D: ReadAt>(
    disk: &Patched<D>,
    superblock: &Superblock,
    block: u64,
    part: &str,
) -> Result<Vec<u8>, ImageError> {
    let size = superblock.block_size;
    disk.read_vec(block * u64::from(size), size as usize).map_err(ImageError::read(part))
}

/// The bitmap of a group that was never used: only what describes the filesystem itself is taken.
fn first_block_bitmap<D: ReadAt>(
    disk: &Patched<D>,
    superblock: &Superblock,
    index: u32,
) -> Result<Vec<u8>, ImageError> {
    let blocks = superblock.group_blocks(index);
    let mut bitmap = padded(superblock, blocks);
    let start = superblock.group_start(index);
    let mut take = |first: u64, length: u64| {
        let from = first.clamp(start, start + u64::from(blocks)) - start;
        let to = first.saturating_add(length).clamp(start, start + u64::from(blocks)) - start;
        for bit in from..to {
            set_bit(&mut bitmap, bit as u32, true);
        }
    };
    take(start, u64::from(superblock.group_overhead(index)));
    let table_bytes = u64::from(superblock.inodes_per_group()) * superblock.inode_size as u64;
    let table = table_bytes / u64::from(superblock.block_size);
    // With flex_bg the tables of other groups may lie here.
    for other in 0..superblock.groups {
        let group = Group::read(disk, superblock, other)?;
        take(group.block_bitmap(), 1);
        take(group.inode_bitmap(), 1);
        take(group.inode_table(), table);
    }
    Ok(bitmap)
}

/// A bitmap with nothing taken. The bits behind the last one that means something are set.
fn padded(superblock: &Superblock, bits: u32) -> Vec<u8> {
    let mut bitmap = vec![0xFF; superblock.block_size as usize];
    for bit in 0..bits {
        set_bit(&mut bitmap, bit, false);
    }
    bitmap
}

fn check_count(part: &str, found: u32, counted: u32, what: &str) -> Result<(), ImageError> {
    if found == counted {
        return Ok(());
    }
    Err(ImageError::damaged(part, format!("{found} {what} are free in it, but its group counts {counted}")))
}

fn no_space(superblock: &Superblock, wanted: u64) -> ImageError {
    let block_size = u64::from(superblock.block_size);
    let lacking = wanted.saturating_sub(superblock.free_blocks()).max(1).saturating_mul(block_size);
    ImageError::refused(
        "ext4 filesystem",
        format!("it is full: {lacking} more bytes are needed than are free"),
        "remove files that are not needed, or use an image with a larger boot partition",
    )
}

fn push_run(runs: &mut Vec<Run>, start: u64, length: u32) {
    match runs.last_mut() {
        Some(last) if last.start + u64::from(last.length) == start => last.length += length,
        _ => runs.push(Run { start, length }),
    }
}

/// Changes a bit. Nothing when it had that value already.
fn set_bit(bitmap: &mut [u8], bit: u32, value: bool) -> Option<()> {
    let byte = bitmap.get_mut(bit as usize / 8)?;
    let mask = 1 << (bit % 8);
    if (*byte & mask != 0) == value {
        return None;
    }
    *byte ^= mask;
    Some(())
}

fn is_set(bitmap: &[u8], bit: u32) -> bool {
    bitmap.get(bit as usize / 8).is_none_or(|byte| byte & 1 << (bit % 8) != 0)
}

fn next_clear(bitmap: &[u8], mut from: u32, to: u32) -> Option<u32> {
    while from < to {
        if from.is_multiple_of(8) && bitmap.get(from as usize / 8) == Some(&0xFF) {
            from += 8;
        } else if is_set(bitmap, from) {
            from += 1;
        } else {
            return Some(from);
        }
    }
    None
}

fn next_set(bitmap: &[u8], from: u32, to: u32) -> u32 {
    (from..to).find(|bit| is_set(bitmap, *bit)).unwrap_or(to)
}

fn count_clear(bitmap: &[u8], bits: u32) -> u32 {
    (0..bits).filter(|bit| !is_set(bitmap, *bit)).count() as u32
}
