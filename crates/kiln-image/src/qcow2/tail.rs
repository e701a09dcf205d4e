//! An edit of the guest's bytes as a new header and a tail behind the old end of the file.
//!
//! The tail holds a new L1 table and refcount table, the refcount blocks and L2 tables that change, and the changed
//! clusters. What they replace in the old part is counted down, so that `qemu-img check` finds neither errors nor leaks.
//! L1 and refcount table come first and have the same size for every edit: the header depends on the base alone, and
//! hosts that share a base share it too. Tables precede data: edits of the same guest clusters begin with the same bytes.
//!
//! [`TailBase`] is all that planning needs besides the L2 tables and clusters it touches; the store keeps it. It is
//! checked again when it is used, because a file may have changed between.
//! Clusters that an edit leaves as they were are not written, even when the patch names them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::header::{EXTENSION_UNDO, Header, MAX_REFCOUNT_TABLE_BYTES, PART, entries};
use super::refcounts::{self, Refcounts};
use super::undo::{checksum, checksum_of_blocks, read_refcount_table, write_record, write_trailer};
use super::{COPIED, Cluster, OFFSET_MASK, Qcow2};
use crate::ImageError;
use crate::patch::Patch;
use crate::read_at::ReadAt;

/// The longest tail in bytes. Room for its refcounts is kept free in the refcount table.
pub const MAX_TAIL: u64 = 256 << 20;

/// What must be known of a base file to plan edits of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TailBase {
    header: Vec<u8>,
    length: u64,
    l1: Vec<u64>,
    refcount_table: Vec<u64>,
    refcounts: Refcounts,
    checksum: u32,
    checksum_of_blocks: u32,
}

/// What becomes of a base file: its first bytes are replaced, its end is continued, the rest stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tail {
    /// The new first bytes of the file, the same for every edit of a base.
    pub header: Vec<u8>,
    /// Where the tail begins: at the end of the base.
    pub offset: u64,
    /// The tail, with the zeros that fill the base's last cluster before it and a checksum behind it.
    pub bytes: Vec<u8>,
    /// So many of the bytes are tables; edits of the same guest clusters have the same ones. Data follow.
    pub tables: usize,
    /// Where clusters of the base lie that nobody uses any more.
    pub freed: Vec<Range<u64>>,
    /// Whether something was replaced that shares a cluster with compressed data still in use.
    pub leaves_shared: bool,
}

impl Tail {
    /// Takes the record of the original out of the header again: for an edit that nobody should take back.
    pub fn forget_original(&mut self) {
        let length = self.offset + self.bytes.len() as u64;
        let record = Header::parse(&self.header, length).ok().and_then(|header| header.extension(EXTENSION_UNDO));
        if let Some(record) = record
            && let Some(bytes) = self.header.get_mut(record.start - 8..record.end)
        {
            // The record is the last extension, and zeros end the list.
            bytes.fill(0);
        }
    }
}

impl TailBase {
    /// Reads the tables of a file. Refuses files that cannot be edited, and those that Kiln edited before: see
    /// [`super::original`].
    pub fn read(disk: &impl ReadAt) -> Result<TailBase, ImageError> {
        let mut base = Self::read_start(disk)?;
        let header = Header::parse(&base.header, base.length)?;
        base.refcounts = Refcounts::read(disk, &header, &base.refcount_table)?;
        base.checksum_of_blocks = checksum_of_blocks(disk, &base.header)?;
        base.layout(&header)?;
        Ok(base)
    }

    /// The new first bytes that every edit of this file will have ([`Tail::header`]), from the file's length and its
    /// first tables alone. The rest of the file need not be there yet.
    pub fn predict_header(disk: &impl ReadAt) -> Result<Vec<u8>, ImageError> {
        let base = Self::read_start(disk)?;
        let header = Header::parse(&base.header, base.length)?;
        Ok(base.render_header(&header, &base.layout(&header)?))
    }

    /// Everything but the refcounts.
    fn read_start(disk: &impl ReadAt) -> Result<TailBase, ImageError> {
        let bytes = Header::read_bytes(disk)?;
        let header = Header::parse(&bytes, disk.len())?;
        header.check_editable(&bytes)?;
        if header.extension(EXTENSION_UNDO).is_some() {
            return Err(ImageError::refused(
                PART,
                "Kiln edited the image before",
                "reset it first: `kiln image reset`",
            ));
        }
        let l1 = disk.read_vec(header.l1_offset, header.l1_size as usize * 8).map_err(ImageError::read("L1 table"))?;
        let mut refcount_table = entries(&read_refcount_table(disk, &header)?);
        while refcount_table.last() == Some(&0) {
            refcount_table.pop();
        }
        Ok(TailBase {
            refcounts: Refcounts::default(),
            checksum: checksum(disk, &bytes)?,
            checksum_of_blocks: 0,
            header: bytes,
            length: disk.len(),
            l1: entries(&l1),
            refcount_table,
        })
    }

    /// Whether the edited file will say how to undo the edit. A header that is full leaves no room for that.
    pub fn records_undo(&self) -> bool {
        Header::parse(&self.header, self.length)
            .is_ok_and(|header| write_record(&mut self.header.clone(), &header, self.length, 0))
    }

    /// The length of the base file.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Decides what becomes of the file. `base` is the file itself: the L2 tables and clusters that the patch touches are
    /// read from it.
    pub fn plan(&self, base: &impl ReadAt, patch: &Patch) -> Result<Tail, ImageError> {
        let header = Header::parse(&self.header, self.length)?;
        if base.len() != self.length || self.l1.len() != header.l1_size as usize {
            return Err(ImageError::damaged(PART, "the file is not the one that was read before"));
        }
        let layout = self.layout(&header)?;
        let guest = Qcow2::with_l1(base, header, self.l1.clone());
        let mut plan = Plan {
            base: self,
            layout,
            changed: BTreeMap::new(),
            l2: BTreeMap::new(),
            data: Vec::new(),
            places: Vec::new(),
            compressed: BTreeSet::new(),
        };
        plan.take_clusters(&guest, patch)?;
        plan.release_tables(&guest.header)?;
        let blocks = plan.choose_blocks(&guest.header)?;
        Ok(plan.render(&guest.header, &blocks))
    }

    fn layout(&self, header: &Header) -> Result<Layout, ImageError> {
        let size = header.cluster_size();
        let first = self.length.div_ceil(size);
        if self.refcounts.end() > first {
            return Err(ImageError::refused(
                refcounts::PART,
                format!("clusters behind the end of the file are in use, up to {}", self.refcounts.end()),
                "make a plain copy: `qemu-img convert -O qcow2 IMAGE NEW`",
            ));
        }
        let blocks = (first + MAX_TAIL / size).div_ceil(header.refcounts_per_block());
        let table = (blocks.max(self.refcount_table.len() as u64) * 8).div_ceil(size);
        if table * size > MAX_REFCOUNT_TABLE_BYTES {
            return Err(ImageError::refused(
                refcounts::PART,
                format!("the file is too large for clusters of {size} bytes"),
                "make a copy with larger ones: `qemu-img convert -O qcow2 -o cluster_size=64k IMAGE NEW`",
            ));
        }
        let l1 = (u64::from(header.l1_size) * 8).div_ceil(size);
        Ok(Layout { first, l1, refcount_table: table })
    }

    /// The new first bytes.
    fn render_header(&self, header: &Header, layout: &Layout) -> Vec<u8> {
        let mut bytes = self.header.clone();
        let bits = header.cluster_bits;
        let l1 = if header.l1_size == 0 { 0 } else { layout.first << bits };
        bytes[40..48].copy_from_slice(&l1.to_be_bytes());
        bytes[48..56].copy_from_slice(&((layout.first + layout.l1) << bits).to_be_bytes());
        bytes[56..60].copy_from_slice(&(layout.refcount_table as u32).to_be_bytes());
        if header.version == 3 {
            bytes[88..96].fill(0);
        }
        write_record(&mut bytes, header, self.length, self.checksum);
        bytes
    }
}

/// The parts of a tail that do not depend on the edit, in clusters.
#[derive(Debug)]
struct Layout {
    first: u64,
    l1: u64,
    refcount_table: u64,
}

#[derive(Debug)]
struct Plan<'a> {
    base: &'a TailBase,
    layout: Layout,
    /// New counts of clusters in the old part.
    changed: BTreeMap<u64, u64>,
    /// New L2 tables by their place in the L1 table.
    l2: BTreeMap<u64, Vec<u64>>,
    /// The new clusters, one after the other.
    data: Vec<u8>,
    /// The guest's number of each.
    places: Vec<u64>,
    /// Clusters of the old part from which compressed data were taken.
    compressed: BTreeSet<u64>,
}

impl Plan<'_> {
    /// Collects the guest clusters that change, and counts down what they were.
    fn take_clusters<D: ReadAt>(&mut self, guest: &Qcow2<D>, patch: &Patch) -> Result<(), ImageError> {
        let size = guest.cluster_size();
        let mut next = 0;
        for (offset, bytes) in patch.pieces() {
            let end = offset + bytes.len() as u64;
            if end > guest.len() {
                return Err(ImageError::damaged("qcow2 disk", format!("it ends before {end}, where the edit goes to")));
            }
            for number in next.max(offset / size)..end.div_ceil(size) {
                self.take_cluster(guest, number, patch)?;
            }
            next = end.div_ceil(size);
        }
        Ok(())
    }

    fn take_cluster<D: ReadAt>(&mut self, guest: &Qcow2<D>, number: u64, patch: &Patch) -> Result<(), ImageError> {
        let size = guest.cluster_size();
        let what = || ImageError::read(format!("guest cluster {number}"));
        let start = number * size;
        let mut old = vec![0; size as usize];
        let within = (guest.len() - start).min(size) as usize;
        guest.read_exact_at(start, &mut old[..within]).map_err(what())?;
        let from = self.data.len();
        self.data.extend_from_slice(&old);
        patch.apply(start, &mut self.data[from..from + within]);
        if self.data[from..] == old {
            self.data.truncate(from);
            return Ok(());
        }
        self.check_size(self.data.len() as u64)?;
        match guest.cluster(number).map_err(what())? {
            Cluster::Unallocated | Cluster::Zero { reserved: None } => {}
            Cluster::Data { offset } | Cluster::Zero { reserved: Some(offset) } => self.release(offset / size)?,
            // Compressed clusters lie where they fit: they share clusters of the file, and may cross from one to the next.
            Cluster::Compressed { offset, length } => {
                for cluster in offset / size..=(offset + length - 1) / size {
                    self.release(cluster)?;
                    self.compressed.insert(cluster);
                }
            }
        }
        self.places.push(number);
        let index = number / guest.header.l2_entries();
        if !self.l2.contains_key(&index) {
            let table = guest.l2_table(index).map_err(what())?;
            if table.is_some() {
                self.release((self.base.l1[index as usize] & OFFSET_MASK) / size)?;
            }
            self.l2.insert(
                index,
                table.map_or_else(|| vec![0; guest.header.l2_entries() as usize], |table| table.to_vec()),
            );
        }
        Ok(())
    }

    fn release_tables(&mut self, header: &Header) -> Result<(), ImageError> {
        let l1 = header.l1_offset >> header.cluster_bits;
        let table = header.refcount_table_offset >> header.cluster_bits;
        let table_clusters = u64::from(header.refcount_table_clusters);
        for cluster in (l1..l1 + self.layout.l1).chain(table..table + table_clusters) {
            self.release(cluster)?;
        }
        Ok(())
    }

    /// Which refcount blocks change: those of changed clusters, of the tail, and of the blocks that are thereby replaced.
    fn choose_blocks(&mut self, header: &Header) -> Result<BTreeSet<u64>, ImageError> {
        let per_block = header.refcounts_per_block();
        let mut blocks = BTreeSet::new();
        loop {
            let end = self.layout.first + self.clusters(blocks.len());
            let wanted = self.changed.keys().map(|cluster| cluster / per_block);
            let wanted = wanted.chain(self.layout.first / per_block..=(end - 1) / per_block);
            let fresh: BTreeSet<u64> = wanted.filter(|block| !blocks.contains(block)).collect();
            if fresh.is_empty() {
                self.check_size(self.clusters(blocks.len()) << header.cluster_bits)?;
                return Ok(blocks);
            }
            for &block in &fresh {
                let offset = self.base.refcount_table.get(block as usize).copied().unwrap_or(0);
                if offset != 0 {
                    self.release(offset >> header.cluster_bits)?;
                }
            }
            blocks.extend(fresh);
        }
    }

    /// How many clusters the tail has.
    fn clusters(&self, blocks: usize) -> u64 {
        self.layout.l1 + self.layout.refcount_table + (blocks + self.l2.len() + self.places.len()) as u64
    }

    fn render(mut self, header: &Header, blocks: &BTreeSet<u64>) -> Tail {
        let (bits, per_block) = (header.cluster_bits, header.refcounts_per_block());
        let tail = self.layout.first..self.layout.first + self.clusters(blocks.len());
        let first_block = tail.start + self.layout.l1 + self.layout.refcount_table;
        let first_l2 = first_block + blocks.len() as u64;
        let first_data = first_l2 + self.l2.len() as u64;

        for (cluster, number) in (first_data..).zip(&self.places) {
            if let Some(table) = self.l2.get_mut(&(number / header.l2_entries())) {
                table[(number % header.l2_entries()) as usize] = COPIED | cluster << bits;
            }
        }
        let mut l1 = self.base.l1.clone();
        for (cluster, &index) in (first_l2..).zip(self.l2.keys()) {
            l1[index as usize] = COPIED | cluster << bits;
        }
        let mut table = self.base.refcount_table.clone();
        for (cluster, &block) in (first_block..).zip(blocks) {
            table.resize(table.len().max(block as usize + 1), 0);
            table[block as usize] = cluster << bits;
        }

        let padding = ((tail.start << bits) - self.base.length) as usize;
        let mut bytes = Vec::with_capacity(padding + ((tail.end - tail.start) << bits) as usize + 64);
        let position = |cluster: u64| padding + ((cluster - tail.start) << bits) as usize;
        bytes.resize(padding, 0);
        bytes.extend(l1.iter().flat_map(|entry| entry.to_be_bytes()));
        bytes.resize(position(tail.start + self.layout.l1), 0);
        bytes.extend(table.iter().flat_map(|entry| entry.to_be_bytes()));
        bytes.resize(position(first_l2), 0);
        for (cluster, &block) in (first_block..).zip(blocks) {
            let place = &mut bytes[position(cluster)..position(cluster + 1)];
            let first = block * per_block;
            self.base.refcounts.write_block(place, header.refcount_order, &self.changed, first, tail.clone());
        }
        for table in self.l2.values() {
            bytes.extend(table.iter().flat_map(|entry| entry.to_be_bytes()));
        }
        let tables = bytes.len();
        bytes.extend_from_slice(&self.data);
        if self.base.records_undo() {
            write_trailer(&mut bytes, self.base.checksum_of_blocks);
        }
        let unused = self.changed.iter().filter(|(_, count)| **count == 0);
        let freed = unused.map(|(cluster, _)| cluster << bits..((cluster + 1) << bits).min(self.base.length));
        let leaves_shared = self.compressed.iter().any(|cluster| self.changed.get(cluster) != Some(&0));
        Tail {
            freed: freed.filter(|range| !range.is_empty()).collect(),
            leaves_shared,
            header: self.base.render_header(header, &self.layout),
            offset: self.base.length,
            bytes,
            tables,
        }
    }

    /// A cluster of the old part has one user less.
    fn release(&mut self, cluster: u64) -> Result<(), ImageError> {
        let count = self.changed.get(&cluster).copied().unwrap_or_else(|| self.base.refcounts.of(cluster));
        let Some(less) = count.checked_sub(1) else {
            return Err(ImageError::refused(
                refcounts::PART,
                format!("cluster {cluster} is used more often than they say"),
                "repair it first: `qemu-img check -r all IMAGE`",
            ));
        };
        self.changed.insert(cluster, less);
        Ok(())
    }

    fn check_size(&self, bytes: u64) -> Result<(), ImageError> {
        if bytes <= MAX_TAIL {
            return Ok(());
        }
        Err(ImageError::refused(
            "qcow2 disk",
            format!("the edit changes more than {} MiB", MAX_TAIL >> 20),
            "put less into the image",
        ))
    }
}
