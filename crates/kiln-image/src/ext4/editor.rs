//! Edits of an ext4 filesystem, collected into a patch.
//!
//! Same image, same calls, same bytes: first fit, root as owner, one given time for everything. A call that is refused
//! has changed nothing; after one that found damage midway the edit cannot be finished, so a half-made change never
//! leaves. Before blocks are taken it is known that all of them are there.
//!
//! Not here: the journal, which a clean filesystem does not look at, and the backups of superblock and descriptors,
//! which the kernel does not keep up to date either. Hashed directories become plain ones when a name is added: their
//! index is only a shortcut, and the kernel and e2fsck take a directory without it.

use std::collections::BTreeSet;
use std::ops::Deref;

use super::inode::{Inode, flag};
use super::mapping::Mapping;
use super::space::{Run, Space};
use super::{Ext4, FileKind, LastLink, ROOT, Walked, missing, shown};
use crate::{ImageError, Patch, Patched, ReadAt};

mod names;
mod storage;

use storage::Reserved;

/// The kernel's bound on names of a file, and on directories within one.
const MAX_LINKS: u16 = 65000;
/// What is wiped is kept in memory until it is written: files of a few megabytes, not whole partitions.
const MOST_WIPED: u64 = 64 << 20;

/// A filesystem under edit. Reads, which come from [`Ext4`], see what was changed so far.
#[derive(Debug)]
pub struct Editor<D> {
    fs: Ext4<Patched<D>>,
    space: Space,
    timestamp: u32,
    /// A call began to change things and has not ended well.
    midway: bool,
    /// Blocks that were given back and are to be wiped, if anybody asked for that.
    wiped: Option<Vec<Run>>,
}

impl<D> Deref for Editor<D> {
    type Target = Ext4<Patched<D>>;

    fn deref(&self) -> &Self::Target {
        &self.fs
    }
}

impl<D: ReadAt> Editor<D> {
    pub(super) fn new(disk: D, timestamp: u32) -> Result<Self, ImageError> {
        let fs = Ext4::open(Patched::new(disk))?;
        fs.superblock.check_editable()?;
        Ok(Editor { fs, space: Space::default(), timestamp, midway: false, wiped: None })
    }

    /// From now on blocks that are given back are filled with zeros, unless they are taken again. Otherwise what was in a
    /// removed file can still be read from the image.
    pub fn wipe_freed(&mut self) {
        self.wiped.get_or_insert_default();
    }

    /// Makes a directory in one that exists. A directory that is there already stays as it is.
    pub fn create_dir(&mut self, path: impl AsRef<[u8]>, mode: u16) -> Result<(), ImageError> {
        self.check_whole()?;
        let path = path.as_ref();
        let walked = self.fs.walk(path, LastLink::Follow)?;
        match &walked.found {
            Some(found) if found.kind() == FileKind::Directory => return Ok(()),
            Some(_) => {
                return Err(ImageError::refused(
                    shown(path),
                    "it exists and is no directory",
                    "remove it, or choose another name",
                ));
            }
            None => {}
        }
        let (mut parent, name) = place(path, walked)?;
        self.check_parent(&parent)?;
        if parent.links() >= MAX_LINKS {
            return Err(ImageError::refused(shown(path), "its directory holds too many directories", "use another"));
        }
        let number = self.find_inode(&parent)?;
        let mut inode = Inode::create(&self.fs.superblock, number, 0x4000 | mode & 0o7777, self.timestamp);
        let reserved = self.reserve(Mapping::default(), 0, 1, self.goal(number))?;
        self.add_name_or_give_back(&mut parent, &name, &inode, &reserved)?;
        let block_size = self.fs.superblock.block_size as usize;
        let content = self.fs.layout(&inode).render_new(block_size, Some((number, parent.number)));
        self.write_runs(&reserved.data, &content)?;
        inode.set_size(block_size as u64);
        inode.set_links(2);
        self.take_inode(number, true)?;
        self.store_mapping(&mut inode, &reserved)?;
        self.write_inode(&mut inode)?;
        if parent.links() > 1 {
            parent.set_links(parent.links() + 1);
        }
        self.write_inode(&mut parent)?;
        self.midway = false;
        Ok(())
    }

    /// Makes a file, or replaces the content, permissions and owner of one that exists.
    ///
    /// A file that is replaced keeps its inode, its other names and its extended attributes, as a security label.
    pub fn write_file(&mut self, path: impl AsRef<[u8]>, bytes: &[u8], mode: u16) -> Result<(), ImageError> {
        self.check_whole()?;
        let path = path.as_ref();
        let mut walked = self.fs.walk(path, LastLink::Follow)?;
        match walked.found.take() {
            Some(inode) => self.replace_file(path, inode, bytes, mode),
            None => self.create_file(path, walked, bytes, mode),
        }
    }

    /// Adds bytes at the end of a file that exists.
    pub fn append_file(&mut self, path: impl AsRef<[u8]>, bytes: &[u8]) -> Result<(), ImageError> {
        self.check_whole()?;
        let path = path.as_ref();
        let mut inode = self.fs.resolve(path)?;
        self.check_writable(path, &inode)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let block_size = u64::from(self.fs.superblock.block_size);
        let old_size = inode.size();
        let size = old_size.saturating_add(bytes.len() as u64);
        let blocks = size.div_ceil(block_size);
        if blocks > u64::from(u32::MAX) {
            return Err(ImageError::refused(shown(path), "it would be too long for ext4", "append less"));
        }
        let mut mapping = self.fs.read_mapping(&inode)?;
        // Blocks that were reserved behind the end are not needed, nor is a last block that was never written.
        let within = (old_size % block_size) as usize;
        let last = old_size / block_size;
        let last_is_written = within > 0 && mapping.find(last).is_some_and(|extent| extent.written);
        let kept = if last_is_written { last + 1 } else { last };
        let dropped = mapping.truncate(kept);
        self.midway = true;
        self.release(&dropped)?;
        let goal = mapping.extents.last().map_or(self.goal(inode.number), |extent| extent.physical_end());
        let reserved = match self.reserve(mapping, kept, blocks - kept, goal) {
            Ok(reserved) => reserved,
            Err(refusal) => {
                self.take(&dropped)?;
                self.midway = false;
                return Err(refusal);
            }
        };
        let mut bytes = bytes;
        let mut joined = Vec::new();
        if last_is_written {
            let room = (block_size as usize - within).min(bytes.len());
            let (head, rest) = bytes.split_at(room);
            let extent = reserved.mapping.find(last).copied();
            let block = extent.map(|extent| extent.physical + (last - extent.logical));
            let block = block.ok_or_else(|| inode.damaged("its last block is missing"))?;
            self.write_padded(block * block_size + within as u64, head, block_size as usize - within)?;
            bytes = rest;
        } else if within > 0 {
            // The hole at the end becomes a block that begins with zeros.
            joined.resize(within, 0);
            joined.extend_from_slice(bytes);
            bytes = &joined;
        }
        self.write_runs(&reserved.data, bytes)?;
        self.set_size(&mut inode, size);
        self.store_mapping(&mut inode, &reserved)?;
        inode.touch(self.timestamp);
        self.write_inode(&mut inode)?;
        self.midway = false;
        Ok(())
    }

    /// Cuts a file off. What it has less of must have been in it.
    pub fn truncate_file(&mut self, path: impl AsRef<[u8]>, size: u64) -> Result<(), ImageError> {
        self.check_whole()?;
        let path = path.as_ref();
        let mut inode = self.fs.resolve(path)?;
        self.check_writable(path, &inode)?;
        if size >= inode.size() {
            return Ok(());
        }
        let block_size = u64::from(self.fs.superblock.block_size);
        let kept = size.div_ceil(block_size);
        let mut mapping = self.fs.read_mapping(&inode)?;
        let dropped = mapping.truncate(kept);
        let last = mapping.find(kept.saturating_sub(1)).copied().filter(|extent| extent.written);
        self.midway = true;
        self.release(&dropped)?;
        let reserved = self.reserve(mapping, kept, 0, self.goal(inode.number))?;
        if let Some(extent) = last.filter(|_| !size.is_multiple_of(block_size)) {
            // Behind the end of a file its last block is zero.
            let block = extent.physical + (kept - 1 - extent.logical);
            let within = size % block_size;
            self.write_changed(block * block_size + within, &vec![0; (block_size - within) as usize])?;
        }
        self.set_size(&mut inode, size);
        self.store_mapping(&mut inode, &reserved)?;
        inode.touch(self.timestamp);
        self.write_inode(&mut inode)?;
        self.midway = false;
        Ok(())
    }

    /// Removes a file or a symbolic link. What a link points at stays.
    pub fn remove_file(&mut self, path: impl AsRef<[u8]>) -> Result<(), ImageError> {
        self.check_whole()?;
        let path = path.as_ref();
        let mut walked = self.fs.walk(path, LastLink::Keep)?;
        let inode = walked.found.take().ok_or_else(|| missing(path))?;
        if inode.kind() == FileKind::Directory {
            return Err(ImageError::refused(shown(path), "it is a directory", "remove it as one"));
        }
        let (mut parent, name) = place(path, walked)?;
        self.check_parent(&parent)?;
        inode.check_editable(&self.fs.superblock)?;
        self.midway = true;
        self.remove_name(&mut parent, &name)?;
        self.drop_name(inode)?;
        self.write_inode(&mut parent)?;
        self.midway = false;
        Ok(())
    }

    /// Removes a directory and all that is in it. Symbolic links in it are removed, not followed.
    pub fn remove_dir_all(&mut self, path: impl AsRef<[u8]>) -> Result<(), ImageError> {
        self.check_whole()?;
        let path = path.as_ref();
        let mut walked = self.fs.walk(path, LastLink::Keep)?;
        let top = walked.found.take().ok_or_else(|| missing(path))?;
        if top.kind() != FileKind::Directory || top.number == ROOT {
            return Err(ImageError::refused(shown(path), "it is no directory below the root", "name a directory"));
        }
        let (mut parent, name) = place(path, walked)?;
        self.check_parent(&parent)?;
        let mut seen = BTreeSet::from([parent.number]);
        let (mut directories, mut files, mut waiting) = (Vec::new(), Vec::new(), vec![top]);
        while let Some(directory) = waiting.pop() {
            if !seen.insert(directory.number) {
                return Err(directory.damaged("two names lead to this directory"));
            }
            self.check_parent(&directory)?;
            for (_, number) in self.fs.read_names(&directory)?.into_iter().filter(|(name, _)| !is_dots(name)) {
                let inode = self.fs.used_inode(number)?;
                inode.check_editable(&self.fs.superblock)?;
                match inode.kind() {
                    FileKind::Directory => waiting.push(inode),
                    _ => files.push(number),
                }
            }
            directories.push(directory);
        }
        self.midway = true;
        for number in files {
            let inode = self.fs.used_inode(number)?;
            self.drop_name(inode)?;
        }
        for directory in directories {
            self.delete(directory)?;
        }
        self.remove_name(&mut parent, &name)?;
        if parent.links() > 2 {
            parent.set_links(parent.links() - 1);
        }
        self.write_inode(&mut parent)?;
        self.midway = false;
        Ok(())
    }

    /// All that differs from the image now.
    pub fn finish(mut self) -> Result<Patch, ImageError> {
        self.check_whole()?;
        self.wipe()?;
        for (offset, bytes) in self.space.flush(&self.fs.superblock) {
            self.write_changed(offset, &bytes)?;
        }
        let (offset, bytes) = self.fs.superblock.render();
        let bytes = bytes.to_vec();
        self.write_changed(offset, &bytes)?;
        Ok(self.fs.disk.into_patch())
    }

    /// Fills blocks with zeros that were given back and that nobody took since.
    fn wipe(&mut self) -> Result<(), ImageError> {
        let block_size = u64::from(self.fs.superblock.block_size);
        let zeros = vec![0; block_size as usize];
        let mut wiped = 0;
        for block in self.wiped.take().unwrap_or_default().iter().flat_map(Run::blocks) {
            let free = self.space.is_free(&self.fs.disk, &self.fs.superblock, block)?;
            if !free || self.fs.read_block(block)? == zeros {
                continue;
            }
            self.write_changed(block * block_size, &zeros)?;
            wiped += block_size;
            if wiped > MOST_WIPED {
                return Err(ImageError::refused(
                    "ext4 filesystem",
                    format!("more than {} MiB would have to be wiped", MOST_WIPED >> 20),
                    "take the image as it was downloaded",
                ));
            }
        }
        Ok(())
    }

    /// After damage was found midway nothing can be built on what was done.
    fn check_whole(&self) -> Result<(), ImageError> {
        if !self.midway {
            return Ok(());
        }
        Err(ImageError::refused(
            "ext4 filesystem",
            "an edit of it failed midway",
            "repair the filesystem with `e2fsck -fy` on the partition, and edit it again",
        ))
    }

    fn create_file(&mut self, path: &[u8], walked: Walked, bytes: &[u8], mode: u16) -> Result<(), ImageError> {
        let (mut parent, name) = place(path, walked)?;
        self.check_parent(&parent)?;
        let number = self.find_inode(&parent)?;
        let mut inode = Inode::create(&self.fs.superblock, number, 0x8000 | mode & 0o7777, self.timestamp);
        let reserved = self.reserve(Mapping::default(), 0, self.blocks_of(bytes), self.goal(number))?;
        self.add_name_or_give_back(&mut parent, &name, &inode, &reserved)?;
        self.write_runs(&reserved.data, bytes)?;
        self.set_size(&mut inode, bytes.len() as u64);
        inode.set_links(1);
        self.take_inode(number, false)?;
        self.store_mapping(&mut inode, &reserved)?;
        self.write_inode(&mut inode)?;
        self.write_inode(&mut parent)?;
        self.midway = false;
        Ok(())
    }

    fn replace_file(&mut self, path: &[u8], mut inode: Inode, bytes: &[u8], mode: u16) -> Result<(), ImageError> {
        self.check_writable(path, &inode)?;
        let old = self.fs.read_mapping(&inode)?;
        let goal = old.extents.first().map_or(self.goal(inode.number), |extent| extent.physical);
        let old = old.runs();
        self.midway = true;
        self.release(&old)?;
        let reserved = match self.reserve(Mapping::default(), 0, self.blocks_of(bytes), goal) {
            Ok(reserved) => reserved,
            Err(refusal) => {
                self.take(&old)?;
                self.midway = false;
                return Err(refusal);
            }
        };
        self.write_runs(&reserved.data, bytes)?;
        self.set_size(&mut inode, bytes.len() as u64);
        self.store_mapping(&mut inode, &reserved)?;
        inode.own_by_root(mode);
        inode.touch(self.timestamp);
        self.write_inode(&mut inode)?;
        self.midway = false;
        Ok(())
    }

    /// Adds a name; where that is refused, blocks reserved before are given back.
    fn add_name_or_give_back(
        &mut self,
        parent: &mut Inode,
        name: &[u8],
        inode: &Inode,
        reserved: &Reserved,
    ) -> Result<(), ImageError> {
        let room = self.room_for_name(parent, name);
        let refusal = match room {
            Ok(room) => {
                self.midway = true;
                return self.add_name(parent, name, inode, room);
            }
            Err(refusal) => refusal,
        };
        self.release(&reserved.taken)?;
        Err(refusal)
    }

    fn check_parent(&self, directory: &Inode) -> Result<(), ImageError> {
        directory.check_editable(&self.fs.superblock)
    }

    fn check_writable(&self, path: &[u8], inode: &Inode) -> Result<(), ImageError> {
        if inode.kind() != FileKind::File {
            return Err(ImageError::refused(shown(path), "it is no regular file", "name a regular file"));
        }
        if inode.has_flag(flag::VERITY) {
            return Err(ImageError::refused(
                shown(path),
                "its content is sealed (fs-verity)",
                "remove the file and write it anew",
            ));
        }
        inode.check_editable(&self.fs.superblock)
    }

    fn find_inode(&mut self, parent: &Inode) -> Result<u32, ImageError> {
        let near = self.group_of(parent.number);
        self.space.find_inode(&self.fs.disk, &self.fs.superblock, near)
    }

    fn set_size(&mut self, inode: &mut Inode, size: u64) {
        inode.set_size(size);
        if size > i32::MAX as u64 {
            self.fs.superblock.allow_large_files();
        }
    }

    fn blocks_of(&self, bytes: &[u8]) -> u64 {
        (bytes.len() as u64).div_ceil(u64::from(self.fs.superblock.block_size))
    }

    fn group_of(&self, inode: u32) -> u32 {
        (inode - 1) / self.fs.superblock.inodes_per_group()
    }

    /// Where the blocks of a file should be: in the group of its inode.
    fn goal(&self, inode: u32) -> u64 {
        self.fs.superblock.group_start(self.group_of(inode))
    }

    fn release(&mut self, runs: &[Run]) -> Result<(), ImageError> {
        if let Some(wiped) = &mut self.wiped {
            wiped.extend_from_slice(runs);
        }
        self.space.release_blocks(&self.fs.disk, &mut self.fs.superblock, runs)
    }

    fn take(&mut self, runs: &[Run]) -> Result<(), ImageError> {
        self.space.take_blocks(&self.fs.disk, &mut self.fs.superblock, runs)
    }
}

/// The directory and the name that a path would add or remove.
fn place(path: &[u8], walked: Walked) -> Result<(Inode, Vec<u8>), ImageError> {
    if walked.name.is_empty() || is_dots(&walked.name) {
        return Err(ImageError::refused(
            shown(path),
            "the directory it should be in does not exist",
            "make the directory first",
        ));
    }
    if walked.name.len() > 255 {
        return Err(ImageError::refused(shown(path), "its name is longer than 255 bytes", "use a shorter name"));
    }
    Ok((walked.parent, walked.name))
}

fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}
