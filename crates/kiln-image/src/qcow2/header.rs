//! The first cluster of a qcow2 file: fields, feature bits and header extensions.
//!
//! A [`Header`] has passed every check that does not need another part of the file: sizes are within what qemu itself
//! accepts and tables lie within the file, so that whoever reads them never allocates more than exists.
//!
//! Refused for reading: whatever keeps guest bytes elsewhere or in another form (backing file, data file, encryption,
//! extended L2 entries, unknown features). Refused only for editing ([`Header::check_editable`]): what an edit would make
//! wrong without touching it (snapshots, bitmaps) and what qemu itself would first repair.
//! Version 2 has neither feature bits nor a header length, but extensions follow its 72 bytes all the same.

use std::ops::Range;

use crate::ImageError;
use crate::read_at::ReadAt;

pub(super) const PART: &str = "qcow2 header";

/// qemu's own limits: it opens nothing larger.
const MAX_L1_BYTES: u64 = 32 << 20;
pub(super) const MAX_REFCOUNT_TABLE_BYTES: u64 = 8 << 20;

/// Extensions are few and small; the largest that qemu writes are names of features.
const MAX_EXTENSIONS_END: u64 = 64 << 10;

const DIRTY: u64 = 1;
const CORRUPT: u64 = 1 << 1;
const DATA_FILE: u64 = 1 << 2;
const COMPRESSION_TYPE: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;

const EXTENSION_BITMAPS: u32 = 0x2385_2875;
/// "KILN": the undo record. qemu keeps extensions it does not know.
pub(super) const EXTENSION_UNDO: u32 = 0x4b49_4c4e;

/// How compressed clusters are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    Deflate,
    Zstd,
}

/// The checked fields of a header.
#[derive(Debug, Clone)]
pub(super) struct Header {
    pub version: u32,
    pub cluster_bits: u32,
    pub guest_size: u64,
    pub l1_size: u32,
    pub l1_offset: u64,
    pub refcount_table_offset: u64,
    pub refcount_table_clusters: u32,
    pub refcount_order: u32,
    pub compression: Compression,
    pub snapshots: u32,
    pub incompatible: u64,
    pub autoclear: u64,
    /// Identifier and place of the data of each extension.
    pub extensions: Vec<(u32, Range<usize>)>,
    /// Where the mark after the last extension lies, or would lie.
    pub extensions_end: usize,
}

impl Header {
    /// The first bytes of a file: the header, its extensions, and as much after them as an undo record needs.
    pub fn read_bytes(disk: &impl ReadAt) -> Result<Vec<u8>, ImageError> {
        let start = disk.read_vec(0, 24).map_err(ImageError::read(PART))?;
        let cluster_bits = be_u32(&start, 20).clamp(9, 21);
        let length = disk.len().min(1 << cluster_bits).min(MAX_EXTENSIONS_END);
        let mut bytes = disk.read_vec(0, length as usize).map_err(ImageError::read(PART))?;
        if let Ok(header) = Header::parse(&bytes, disk.len()) {
            bytes.truncate(header.extensions_end + super::undo::ROOM);
        }
        Ok(bytes)
    }

    /// Checks the first bytes of a file of this length.
    pub fn parse(bytes: &[u8], file_length: u64) -> Result<Header, ImageError> {
        if !bytes.starts_with(b"QFI\xfb") {
            return Err(ImageError::damaged(PART, "it does not begin with `QFI\\xfb`"));
        }
        let version = be_u32(bytes, 4);
        if !(2..=3).contains(&version) {
            return Err(convertible(format!("version {version} is not known, only 2 and 3 are")));
        }
        let length = if version == 2 { 72 } else { be_u32(bytes, 100) as usize };
        if bytes.len() < length || (version == 3 && (length < 104 || !length.is_multiple_of(8))) {
            return Err(ImageError::damaged(PART, format!("it cannot be {length} bytes long")));
        }
        let version_3 = |at, field: fn(&[u8], usize) -> u64| if version == 3 { field(bytes, at) } else { 0 };
        let incompatible = version_3(72, be_u64);
        let cluster_bits = be_u32(bytes, 20);
        if !(9..=21).contains(&cluster_bits) {
            return Err(ImageError::damaged(PART, format!("clusters of 2^{cluster_bits} bytes do not exist")));
        }
        let compression = match bytes.get(104) {
            Some(1) if length > 104 && incompatible & COMPRESSION_TYPE != 0 => Compression::Zstd,
            Some(&kind) if length > 104 && kind != 0 => {
                return Err(convertible(format!("compression type {kind} is not known")));
            }
            _ => Compression::Deflate,
        };
        let refcount_order = if version == 2 { 4 } else { be_u32(bytes, 96) };
        if refcount_order > 6 {
            return Err(ImageError::damaged(PART, format!("refcounts of 2^{refcount_order} bits do not exist")));
        }
        let mut header = Header {
            version,
            cluster_bits,
            guest_size: be_u64(bytes, 24),
            l1_size: be_u32(bytes, 36),
            l1_offset: be_u64(bytes, 40),
            refcount_table_offset: be_u64(bytes, 48),
            refcount_table_clusters: be_u32(bytes, 56),
            refcount_order,
            compression,
            snapshots: be_u32(bytes, 60),
            incompatible,
            autoclear: version_3(88, be_u64),
            extensions: Vec::new(),
            extensions_end: length,
        };
        header.check_readable(bytes)?;
        header.check_tables(file_length)?;
        header.find_extensions(bytes)?;
        Ok(header)
    }

    pub fn cluster_size(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// How many entries one L2 table has; it fills a cluster.
    pub fn l2_entries(&self) -> u64 {
        self.cluster_size() / 8
    }

    /// How many clusters one refcount block counts.
    pub fn refcounts_per_block(&self) -> u64 {
        (self.cluster_size() * 8) >> self.refcount_order
    }

    pub fn extension(&self, id: u32) -> Option<Range<usize>> {
        self.extensions.iter().find(|(known, _)| *known == id).map(|(_, place)| place.clone())
    }

    /// Refuses what an edit beside the file's own tables would make wrong.
    pub fn check_editable(&self, bytes: &[u8]) -> Result<(), ImageError> {
        let repair = "repair it first: `qemu-img check -r all IMAGE`";
        if self.incompatible & CORRUPT != 0 {
            return Err(ImageError::refused(PART, "qemu marked the image as corrupt", repair));
        }
        if self.incompatible & DIRTY != 0 {
            return Err(ImageError::refused(
                PART,
                "the image was not closed properly and its refcounts may be wrong",
                repair,
            ));
        }
        if self.snapshots != 0 {
            return Err(ImageError::refused(
                PART,
                format!("the image has {} internal snapshots, which share its clusters", self.snapshots),
                "leave them behind: `qemu-img convert -O qcow2 IMAGE NEW`",
            ));
        }
        let bitmaps = self.extension(EXTENSION_BITMAPS).map_or(0, |place| be_u32(bytes, place.start));
        if bitmaps != 0 {
            return Err(ImageError::refused(
                PART,
                format!("the image has {bitmaps} dirty bitmaps, which an edit would make wrong"),
                "leave them behind: `qemu-img convert -O qcow2 IMAGE NEW`",
            ));
        }
        Ok(())
    }

    fn check_readable(&self, bytes: &[u8]) -> Result<(), ImageError> {
        let (backing, backing_length) = (be_u64(bytes, 8), be_u32(bytes, 16) as usize);
        if backing != 0 {
            let name = usize::try_from(backing).ok().and_then(|at| bytes.get(at..at.checked_add(backing_length)?));
            let name = name.map_or("?".into(), |name| String::from_utf8_lossy(name).escape_debug().to_string());
            return Err(convertible(format!("part of the disk is in the backing file `{name}`")));
        }
        match be_u32(bytes, 32) {
            0 => {}
            1 => return Err(convertible("the disk is encrypted (AES)".into())),
            2 => return Err(convertible("the disk is encrypted (LUKS)".into())),
            method => return Err(convertible(format!("the disk is encrypted (method {method})"))),
        }
        if self.incompatible & DATA_FILE != 0 {
            return Err(convertible("the disk is in an external data file".into()));
        }
        if self.incompatible & EXTENDED_L2 != 0 {
            return Err(convertible("extended L2 entries (subclusters) are not supported".into()));
        }
        let unknown = self.incompatible & !(DIRTY | CORRUPT | COMPRESSION_TYPE);
        if unknown != 0 {
            return Err(convertible(format!("incompatible features {unknown:#x} are not known")));
        }
        Ok(())
    }

    fn check_tables(&self, file_length: u64) -> Result<(), ImageError> {
        let damaged = |problem: String| Err(ImageError::damaged(PART, problem));
        let needed = self.guest_size.div_ceil(self.cluster_size()).div_ceil(self.l2_entries());
        if u64::from(self.l1_size) < needed {
            return damaged(format!("an L1 table of {} entries cannot hold a disk of {needed}", self.l1_size));
        }
        let l1 = u64::from(self.l1_size) * 8;
        if l1 > MAX_L1_BYTES || !self.lies_within(self.l1_offset, l1, file_length) {
            return damaged(format!("no room for an L1 table of {l1} bytes at {:#x}", self.l1_offset));
        }
        let refcounts = u64::from(self.refcount_table_clusters) << self.cluster_bits;
        let offset = self.refcount_table_offset;
        if refcounts == 0 || refcounts > MAX_REFCOUNT_TABLE_BYTES || !self.lies_within(offset, refcounts, file_length) {
            return damaged(format!("no room for a refcount table of {refcounts} bytes at {offset:#x}"));
        }
        Ok(())
    }

    fn lies_within(&self, offset: u64, length: u64, file_length: u64) -> bool {
        let aligned = offset.is_multiple_of(self.cluster_size()) && (offset != 0 || length == 0);
        aligned && offset.checked_add(length).is_some_and(|end| end <= file_length)
    }

    fn find_extensions(&mut self, bytes: &[u8]) -> Result<(), ImageError> {
        let mut at = self.extensions_end;
        while at + 8 <= bytes.len() {
            let (id, length) = (be_u32(bytes, at), be_u32(bytes, at + 4) as usize);
            if id == 0 {
                break;
            }
            let end = (at + 8).checked_add(length).filter(|&end| end <= bytes.len());
            let end = end.ok_or_else(|| {
                ImageError::damaged(PART, format!("extension {id:#010x} of {length} bytes does not fit into it"))
            })?;
            self.extensions.push((id, at + 8..end));
            at = end.next_multiple_of(8);
        }
        self.extensions_end = at;
        Ok(())
    }
}

/// A refusal that a copy made by qemu would not meet.
fn convertible(problem: String) -> ImageError {
    ImageError::refused(PART, problem, "make a plain copy: `qemu-img convert -O qcow2 IMAGE NEW`")
}

/// Zero outside: callers have checked the length of what matters.
pub(super) fn be_u32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |field| u32::from_be_bytes([field[0], field[1], field[2], field[3]]))
}

/// Zero outside: callers have checked the length of what matters.
pub(super) fn be_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from(be_u32(bytes, at)) << 32 | u64::from(be_u32(bytes, at + 4))
}

/// The entries of a table.
pub(super) fn entries(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|entry| be_u64(entry, 0)).collect()
}
