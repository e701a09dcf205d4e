//! ext4 filesystems, read and edited without mounting them.
//!
//! [`Ext4`] reads: extent trees and the older indirect maps, plain and hashed directories, blocks of 1 to 64 KiB,
//! metadata_csum with or without its seed. Checksums are proven wherever a structure is used, and a wrong one ends the
//! call. [`Editor`] changes files and returns a [`Patch`]; see there for what it refuses.
//!
//! Paths are absolute, with or without the first slash, and follow symbolic links within the filesystem, as
//! `/loader -> loader.0` of CoreOS needs it.
//!
//! Not here: the journal. A filesystem whose journal holds changes is read as it lies on disk and never edited.
//! CoreOS makes its `/boot` of 384 MiB, for which mke2fs chooses blocks of 1 KiB.

use std::collections::VecDeque;
use std::io::{self, Read};

use crate::read_at::check_range;
use crate::{ImageError, ReadAt};

mod checksum;
mod directory;
mod editor;
mod fields;
mod group;
mod inode;
mod mapping;
mod space;
mod superblock;

pub use editor::Editor;

use directory::{Layout, records};
use group::Group;
use inode::{Inode, flag};
use mapping::Mapping;
use superblock::{Superblock, feature};

const ROOT: u32 = 2;
/// As many links in one path as followed; the kernel allows 40.
const MAX_LINKS: u32 = 16;
/// A directory of half a million names.
const MAX_DIRECTORY: u64 = 16 << 20;
/// The kernel's bound on a link's target and on a path.
const MAX_PATH: usize = 4096;

/// A filesystem that can be read.
#[derive(Debug)]
pub struct Ext4<D> {
    disk: D,
    superblock: Superblock,
}

/// What kind of file a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, a pipe or a socket.
    Special,
}

/// What is known of a file beside its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    /// The inode's number.
    pub inode: u32,
    /// What it is.
    pub kind: FileKind,
    /// The permissions, e.g. `0o600`.
    pub mode: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The length in bytes.
    pub size: u64,
    /// How many names lead to it.
    pub links: u16,
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name. Any bytes but zero and the slash.
    pub name: Vec<u8>,
    /// What the name leads to; a symbolic link is not followed.
    pub metadata: Metadata,
}

impl DirEntry {
    /// The name as text; bytes that are none are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }
}

impl<D: ReadAt> Ext4<D> {
    /// Proves that this is a filesystem that can be read.
    pub fn open(disk: D) -> Result<Self, ImageError> {
        let superblock = Superblock::read(&disk)?;
        Ok(Ext4 { disk, superblock })
    }

    /// Begins an edit. Files and directories it makes belong to root and carry this time in seconds since 1970.
    ///
    /// Refuses what cannot be edited safely: a journal with changes, errors, features that are not known.
    pub fn edit(disk: D, timestamp: u32) -> Result<Editor<D>, ImageError> {
        Editor::new(disk, timestamp)
    }

    /// The label; bytes that are no text are replaced.
    pub fn label(&self) -> String {
        String::from_utf8_lossy(self.superblock.label()).into_owned()
    }

    /// The UUID as people write it.
    pub fn uuid(&self) -> String {
        let mut text = String::with_capacity(36);
        for (index, byte) in self.superblock.uuid().iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            text.push_str(&format!("{byte:02x}"));
        }
        text
    }

    /// The size of a block in bytes.
    pub fn block_size(&self) -> u32 {
        self.superblock.block_size
    }

    /// How many bytes root may still write, before directories and block maps take their share.
    pub fn free_bytes(&self) -> u64 {
        self.superblock.free_blocks().saturating_mul(u64::from(self.superblock.block_size))
    }

    /// Whether a path leads to something.
    pub fn exists(&self, path: impl AsRef<[u8]>) -> Result<bool, ImageError> {
        Ok(self.find(path.as_ref())?.is_some())
    }

    /// What a path leads to; links are followed.
    pub fn metadata(&self, path: impl AsRef<[u8]>) -> Result<Metadata, ImageError> {
        Ok(self.resolve(path.as_ref())?.metadata())
    }

    /// The names in a directory in the order they are stored, without `.` and `..`.
    pub fn read_dir(&self, path: impl AsRef<[u8]>) -> Result<Vec<DirEntry>, ImageError> {
        let directory = self.resolve(path.as_ref())?;
        let names = self.read_names(&directory)?;
        names
            .into_iter()
            .filter(|(name, _)| name != b"." && name != b"..")
            .map(|(name, inode)| Ok(DirEntry { name, metadata: self.used_inode(inode)?.metadata() }))
            .collect()
    }

    /// A file's content, refused where it is longer than the limit.
    pub fn read_file(&self, path: impl AsRef<[u8]>, limit: u64) -> Result<Vec<u8>, ImageError> {
        let path = path.as_ref();
        let file = self.open_file(path)?;
        if file.size > limit {
            return Err(ImageError::refused(
                shown(path),
                format!("it has {} bytes, and at most {limit} were expected", file.size),
                "use an image with the file it is meant to have",
            ));
        }
        file.read_vec(0, file.size as usize).map_err(ImageError::read(shown(path)))
    }

    /// The target of the symbolic link a path names.
    pub fn read_link(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>, ImageError> {
        let path = path.as_ref();
        match self.walk(path, LastLink::Keep)?.found {
            Some(inode) if inode.kind() == FileKind::Symlink => self.read_target(&inode),
            Some(_) => Err(ImageError::refused(shown(path), "it is no symbolic link", "name a link")),
            None => Err(missing(path)),
        }
    }

    /// A file to read from, in order or anywhere.
    pub fn open_file(&self, path: impl AsRef<[u8]>) -> Result<FileReader<'_, D>, ImageError> {
        let path = path.as_ref();
        let inode = self.resolve(path)?;
        if inode.kind() != FileKind::File {
            return Err(ImageError::refused(shown(path), "it is no regular file", "name a regular file"));
        }
        let mapping = self.read_mapping(&inode)?;
        Ok(FileReader { fs: self, mapping, size: inode.size(), position: 0 })
    }

    fn resolve(&self, path: &[u8]) -> Result<Inode, ImageError> {
        self.find(path)?.ok_or_else(|| missing(path))
    }

    fn find(&self, path: &[u8]) -> Result<Option<Inode>, ImageError> {
        Ok(self.walk(path, LastLink::Follow)?.found)
    }

    /// Follows a path to its last name.
    fn walk(&self, path: &[u8], last: LastLink) -> Result<Walked, ImageError> {
        let mut names: VecDeque<Vec<u8>> = split(path)?;
        let root = self.used_inode(ROOT)?;
        let mut walked = Walked { parent: root.clone(), name: Vec::new(), found: Some(root) };
        let mut links = 0;
        while let Some(name) = names.pop_front() {
            let parent = match walked.found.take() {
                Some(inode) if inode.kind() == FileKind::Directory => inode,
                // A name below one that is missing, or below a file: nothing is there, and nothing can be made there.
                _ => {
                    return Ok(Walked { parent: walked.parent, name: Vec::new(), found: None });
                }
            };
            let found = self.lookup(&parent, &name)?;
            let end = names.is_empty();
            match found {
                Some(inode) if inode.kind() == FileKind::Symlink && !(end && last == LastLink::Keep) => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(ImageError::refused(
                            shown(path),
                            format!("it leads through more than {MAX_LINKS} symbolic links"),
                            "name the file itself",
                        ));
                    }
                    let target = self.read_target(&inode)?;
                    let mut ahead = split(&target)?;
                    ahead.append(&mut names);
                    names = ahead;
                    let start = if target.starts_with(b"/") { self.used_inode(ROOT)? } else { parent };
                    walked = Walked { parent: start.clone(), name: Vec::new(), found: Some(start) };
                }
                found => walked = Walked { parent, name, found },
            }
        }
        Ok(walked)
    }

    fn lookup(&self, directory: &Inode, name: &[u8]) -> Result<Option<Inode>, ImageError> {
        for block in self.directory_blocks(directory)? {
            let bytes = self.read_directory_block(directory, block)?;
            for record in records(&bytes) {
                let record = record.map_err(|problem| directory.damaged(problem))?;
                if record.name == name {
                    return Ok(Some(self.used_inode(record.inode)?));
                }
            }
        }
        Ok(None)
    }

    /// All names of a directory with their inodes, `.` and `..` among them.
    fn read_names(&self, directory: &Inode) -> Result<Vec<(Vec<u8>, u32)>, ImageError> {
        let mut names = Vec::new();
        for block in self.directory_blocks(directory)? {
            let bytes = self.read_directory_block(directory, block)?;
            for record in records(&bytes) {
                let record = record.map_err(|problem| directory.damaged(problem))?;
                names.push((record.name.to_vec(), record.inode));
            }
        }
        Ok(names)
    }

    /// The blocks of a directory on disk, in order.
    fn directory_blocks(&self, directory: &Inode) -> Result<Vec<u64>, ImageError> {
        if directory.kind() != FileKind::Directory {
            return Err(ImageError::refused(directory.part(), "it is no directory", "name a directory"));
        }
        let block_size = u64::from(self.superblock.block_size);
        let size = directory.size();
        if size > MAX_DIRECTORY {
            return Err(ImageError::refused(
                directory.part(),
                format!("a directory of {size} bytes is larger than Kiln reads"),
                "keep fewer files in one directory",
            ));
        }
        if size == 0 || !size.is_multiple_of(block_size) {
            return Err(directory.damaged(format!("a directory cannot have {size} bytes")));
        }
        let mapping = self.read_mapping(directory)?;
        (0..size / block_size)
            .map(|logical| match mapping.find(logical) {
                Some(extent) if extent.written => Ok(extent.physical + (logical - extent.logical)),
                _ => Err(directory.damaged(format!("block {logical} of the directory is missing"))),
            })
            .collect()
    }

    /// One block of a directory, its checksum proven.
    fn read_directory_block(&self, directory: &Inode, block: u64) -> Result<Vec<u8>, ImageError> {
        let bytes = self.read_block(block)?;
        let indexed = directory.has_flag(flag::INDEXED);
        self.layout(directory).verify(&bytes, indexed).map_err(|problem| directory.damaged(problem))?;
        Ok(bytes)
    }

    fn layout(&self, directory: &Inode) -> Layout {
        Layout {
            kinds: self.superblock.has_incompat(feature::FILETYPE),
            seed: self.superblock.metadata_checksums().then(|| directory.seed(&self.superblock)),
        }
    }

    fn read_block(&self, block: u64) -> Result<Vec<u8>, ImageError> {
        let size = self.superblock.block_size;
        self.disk
            .read_vec(block.saturating_mul(u64::from(size)), size as usize)
            .map_err(ImageError::read(format!("ext4 block {block}")))
    }

    fn read_mapping(&self, inode: &Inode) -> Result<Mapping, ImageError> {
        Mapping::read(&self.disk, &self.superblock, inode)
    }

    fn read_target(&self, link: &Inode) -> Result<Vec<u8>, ImageError> {
        let length = link.size() as usize;
        if link.has_short_target(&self.superblock) {
            return Ok(link.map()[..length].to_vec());
        }
        if link.size() > MAX_PATH as u64 {
            return Err(link.damaged("the target of a symbolic link is too long"));
        }
        let mapping = self.read_mapping(link)?;
        let file = FileReader { fs: self, mapping, size: link.size(), position: 0 };
        file.read_vec(0, length).map_err(ImageError::read(link.part()))
    }

    /// An inode that a name leads to, and which therefore must be in use.
    fn used_inode(&self, number: u32) -> Result<Inode, ImageError> {
        let inode = self.inode(number)?;
        if number < self.superblock.first_inode() && number != ROOT {
            return Err(inode.damaged("a name leads to it, but it is the filesystem's own"));
        }
        if inode.links() == 0 || inode.mode() == 0 {
            return Err(inode.damaged("a name leads to it, but it was deleted"));
        }
        Ok(inode)
    }

    fn inode(&self, number: u32) -> Result<Inode, ImageError> {
        let part = || format!("ext4 inode {number}");
        let offset = self.inode_offset(number)?;
        let raw = self.disk.read_vec(offset, self.superblock.inode_size).map_err(ImageError::read(part()))?;
        Inode::parse(&self.superblock, number, raw)
    }

    fn inode_offset(&self, number: u32) -> Result<u64, ImageError> {
        if number == 0 || number > self.superblock.inodes() {
            return Err(ImageError::damaged(format!("ext4 inode {number}"), "it does not exist"));
        }
        let per_group = self.superblock.inodes_per_group();
        let group = Group::read(&self.disk, &self.superblock, (number - 1) / per_group)?;
        let within = u64::from((number - 1) % per_group) * self.superblock.inode_size as u64;
        Ok(group.inode_table() * u64::from(self.superblock.block_size) + within)
    }
}

/// A file's content.
#[derive(Debug)]
pub struct FileReader<'a, D> {
    fs: &'a Ext4<D>,
    mapping: Mapping,
    size: u64,
    position: u64,
}

impl<D: ReadAt> ReadAt for FileReader<'_, D> {
    fn len(&self) -> u64 {
        self.size
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        check_range(offset, buffer.len(), self.size)?;
        let block_size = u64::from(self.fs.superblock.block_size);
        let (mut offset, mut left) = (offset, buffer);
        while !left.is_empty() {
            let logical = offset / block_size;
            // Up to the end of this extent, or of the hole before the next one.
            let (end, physical) = match self.mapping.find(logical) {
                Some(extent) => {
                    let start = extent.physical * block_size + (offset - extent.logical * block_size);
                    (extent.end(), extent.written.then_some(start))
                }
                None => {
                    let next = self.mapping.extents.partition_point(|extent| extent.logical <= logical);
                    (self.mapping.extents.get(next).map_or(u64::MAX, |extent| extent.logical), None)
                }
            };
            let here = end.saturating_mul(block_size).saturating_sub(offset).min(left.len() as u64) as usize;
            let (piece, rest) = left.split_at_mut(here);
            match physical {
                Some(start) => self.fs.disk.read_exact_at(start, piece)?,
                None => piece.fill(0),
            }
            offset += here as u64;
            left = rest;
        }
        Ok(())
    }
}

impl<D: ReadAt> Read for FileReader<'_, D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let take = self.size.saturating_sub(self.position).min(buffer.len() as u64) as usize;
        self.read_exact_at(self.position, &mut buffer[..take])?;
        self.position += take as u64;
        Ok(take)
    }
}

/// What to do with a symbolic link at the very end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastLink {
    Follow,
    Keep,
}

/// Where a path leads.
#[derive(Debug)]
struct Walked {
    /// The directory that holds the last name, or would.
    parent: Inode,
    /// The last name; empty when nothing can be made there.
    name: Vec<u8>,
    found: Option<Inode>,
}

fn split(path: &[u8]) -> Result<VecDeque<Vec<u8>>, ImageError> {
    if path.len() > MAX_PATH || path.contains(&0) {
        return Err(ImageError::refused(shown(path), "it is too long or holds a zero byte", "use a shorter path"));
    }
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    Ok(names.map(<[u8]>::to_vec).collect())
}

fn shown(path: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(path).chars().take(200).collect();
    format!("file `{text}` of the ext4 filesystem")
}

fn missing(path: &[u8]) -> ImageError {
    ImageError::refused(shown(path), "there is no such file or directory", "check the path, or use another image")
}
