//! qcow2 files: the disk that a guest would see, and edits that leave the file's own bytes in place.
//!
//! [`Qcow2`] reads versions 2 and 3 with clusters of 512 B to 2 MiB, compressed (deflate, zstd), zero and unallocated ones.
//! [`TailBase::plan`] turns an edit of the guest's bytes into a new header and a tail after the old end of the file; the
//! bytes between stay as they are, which is what lets thousands of hosts share one base. [`Undo`] takes the edit back.
//!
//! Tables and lengths are checked against the file before memory is taken; caches hold a few MiB, whatever the file says.
//! Not here: anything that keeps guest bytes elsewhere (backing files, data files, encryption), see `qcow2/header.rs`.
//! A file may end within its last cluster: what is missing reads as zeros, as qemu does it.

mod cache;
mod compressed;
mod header;
#[cfg(test)]
mod oracle_tests;
mod refcounts;
mod tail;
mod undo;

use std::io;
use std::sync::Arc;

use self::cache::Cache;
use self::header::{Header, entries};
pub use self::tail::{MAX_TAIL, Tail, TailBase};
pub use self::undo::{Undo, original};
use crate::ImageError;
use crate::read_at::{ReadAt, check_range};

/// Bytes of L2 tables and of inflated clusters that are kept, each.
const CACHE_BYTES: u64 = 4 << 20;

/// Bits of an entry of an L1 or L2 table that hold the place of a cluster in the file.
const OFFSET_MASK: u64 = 0x00ff_ffff_ffff_fe00;
/// The cluster has no second user and may be written in place.
const COPIED: u64 = 1 << 63;
const COMPRESSED: u64 = 1 << 62;
const ZERO: u64 = 1;

/// A qcow2 file, read as the disk that a guest would see.
#[derive(Debug)]
pub struct Qcow2<D> {
    disk: D,
    header: Header,
    l1: Vec<u64>,
    l2_tables: Cache<Vec<u64>>,
    inflated: Cache<Vec<u8>>,
}

/// Where the bytes of one guest cluster are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cluster {
    /// Nowhere: it reads as zeros.
    Unallocated,
    /// It reads as zeros; a cluster of the file may be set aside for it.
    Zero { reserved: Option<u64> },
    /// A cluster of the file.
    Data { offset: u64 },
    /// These bytes of the file, rounded up to sectors.
    Compressed { offset: u64, length: u64 },
}

impl<D: ReadAt> Qcow2<D> {
    /// Reads header and L1 table. Refuses what cannot be read from this file alone.
    pub fn open(disk: D) -> Result<Self, ImageError> {
        let header = Header::parse(&Header::read_bytes(&disk)?, disk.len())?;
        let l1 = disk.read_vec(header.l1_offset, header.l1_size as usize * 8).map_err(ImageError::read("L1 table"))?;
        Ok(Qcow2::with_l1(disk, header, entries(&l1)))
    }

    fn with_l1(disk: D, header: Header, l1: Vec<u64>) -> Self {
        let capacity = (CACHE_BYTES / 2 / header.cluster_size()) as usize;
        Qcow2 { disk, header, l1, l2_tables: Cache::new(capacity), inflated: Cache::new(capacity) }
    }

    /// How many bytes one cluster has.
    pub fn cluster_size(&self) -> u64 {
        self.header.cluster_size()
    }

    /// 2 (`compat=0.10`) or 3 (`compat=1.1`).
    pub fn version(&self) -> u32 {
        self.header.version
    }

    /// The L2 table for a place in the L1 table, or none where all its clusters are unallocated.
    fn l2_table(&self, index: u64) -> io::Result<Option<Arc<Vec<u64>>>> {
        let entry = usize::try_from(index).ok().and_then(|index| self.l1.get(index)).copied().unwrap_or(0);
        let offset = entry & OFFSET_MASK;
        if offset == 0 {
            return Ok(None);
        }
        if !offset.is_multiple_of(self.cluster_size()) {
            return Err(damaged(format!("L1 entry {index}"), format!("{offset:#x} is not the start of a cluster")));
        }
        let read = || {
            let bytes = self.disk.read_vec(offset, self.cluster_size() as usize);
            bytes.map(|bytes| entries(&bytes)).map_err(|error| beyond(format!("L2 table {index}"), offset, error))
        };
        self.l2_tables.get(offset, read).map(Some)
    }

    /// Where a guest cluster is.
    fn cluster(&self, number: u64) -> io::Result<Cluster> {
        let table = self.l2_table(number / self.header.l2_entries())?;
        let entry = table.and_then(|table| table.get((number % self.header.l2_entries()) as usize).copied());
        entry.map_or(Ok(Cluster::Unallocated), |entry| self.classify(number, entry))
    }

    fn classify(&self, number: u64, entry: u64) -> io::Result<Cluster> {
        if entry & COMPRESSED != 0 {
            // The more bits the length needs, the fewer are left for the place.
            let split = 62 - (self.header.cluster_bits - 8);
            let offset = entry & ((1 << split) - 1);
            let sectors = ((entry & (COMPRESSED - 1)) >> split) + 1;
            return Ok(Cluster::Compressed { offset, length: sectors * 512 - offset % 512 });
        }
        let offset = entry & OFFSET_MASK;
        if !offset.is_multiple_of(self.cluster_size()) {
            let problem = format!("{offset:#x} is not the start of a cluster");
            return Err(damaged(format!("L2 entry of guest cluster {number}"), problem));
        }
        if entry & ZERO == 0 {
            return Ok(if offset == 0 { Cluster::Unallocated } else { Cluster::Data { offset } });
        }
        if self.header.version < 3 {
            let problem = "version 2 has no zero clusters";
            return Err(damaged(format!("L2 entry of guest cluster {number}"), problem.into()));
        }
        Ok(Cluster::Zero { reserved: Some(offset).filter(|&offset| offset != 0) })
    }

    /// Fills a buffer from within one guest cluster.
    fn read_cluster(&self, number: u64, within: u64, buffer: &mut [u8]) -> io::Result<()> {
        match self.cluster(number)? {
            Cluster::Unallocated | Cluster::Zero { .. } => buffer.fill(0),
            Cluster::Data { offset } => self.read_data(number, offset, within, buffer)?,
            Cluster::Compressed { offset, length } => {
                let cluster = self.inflated.get(offset, || self.read_compressed(number, offset, length))?;
                let within = within as usize;
                buffer.copy_from_slice(&cluster[within..within + buffer.len()]);
            }
        }
        Ok(())
    }

    fn read_data(&self, number: u64, offset: u64, within: u64, buffer: &mut [u8]) -> io::Result<()> {
        if offset >= self.disk.len() {
            let error = io::ErrorKind::UnexpectedEof.into();
            return Err(beyond(format!("guest cluster {number}"), offset, error));
        }
        let there = self.disk.len().saturating_sub(offset + within).min(buffer.len() as u64) as usize;
        let (present, missing) = buffer.split_at_mut(there);
        missing.fill(0);
        if present.is_empty() { Ok(()) } else { self.disk.read_exact_at(offset + within, present) }
    }

    fn read_compressed(&self, number: u64, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        let part = || format!("compressed guest cluster {number}");
        let there = self.disk.len().saturating_sub(offset).min(length);
        let packed = self.disk.read_vec(offset, there as usize).map_err(|error| beyond(part(), offset, error))?;
        let mut cluster = vec![0; self.cluster_size() as usize];
        compressed::decompress(self.header.compression, &packed, &mut cluster)
            .map_err(|error| damaged(part(), error.to_string()))?;
        Ok(cluster)
    }
}

impl<D: ReadAt> ReadAt for Qcow2<D> {
    fn len(&self) -> u64 {
        self.header.guest_size
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        check_range(offset, buffer.len(), self.len())?;
        let size = self.cluster_size();
        let (mut offset, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let within = offset % size;
            let take = (size - within).min(rest.len() as u64) as usize;
            let (now, later) = rest.split_at_mut(take);
            self.read_cluster(offset / size, within, now)?;
            offset += take as u64;
            rest = later;
        }
        Ok(())
    }
}

fn damaged(part: String, problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, ImageError::damaged(part, problem))
}

/// A table points past the end: the file was cut off. Not `UnexpectedEof`, which is the guest's disk ending.
fn beyond(part: String, offset: u64, error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged(part, format!("the file ends before {offset:#x}, where it should be")),
        _ => error,
    }
}
