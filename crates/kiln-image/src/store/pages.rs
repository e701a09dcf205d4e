//! The pages of a compressed base that composing reads, kept inflated on import.
//!
//! Every host's edit reads the same places: partition table, superblock, group descriptors, boot entries, the L2 tables
//! and clusters around them. [`Recorder`] learns them from trial edits; [`Pages`] keeps them, deflated one by one;
//! [`PagedDisk`] reads from them, and from the base itself where an edit needs something else.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use serde::{Deserialize, Serialize};

use crate::error::ImageError;
use crate::read_at::{ReadAt, check_range};

/// What all pages of a base may take in the store, deflated.
const MOST_BYTES: usize = 640 << 10;

/// Remembers which pages of a disk are read.
#[derive(Debug)]
pub(super) struct Recorder<D> {
    disk: D,
    page: u64,
    seen: Mutex<BTreeSet<u64>>,
}

impl<D: ReadAt> Recorder<D> {
    pub(super) fn new(disk: D, page: u64) -> Self {
        Recorder { disk, page, seen: Mutex::default() }
    }

    /// Where pages begin that were read since the last call.
    pub(super) fn take(&self) -> BTreeSet<u64> {
        std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<D: ReadAt> ReadAt for Recorder<D> {
    fn len(&self) -> u64 {
        self.disk.len()
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if let Some(last) = (buffer.len() as u64).checked_sub(1) {
            let pages = offset / self.page..=offset.saturating_add(last) / self.page;
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).extend(pages.map(|page| page * self.page));
        }
        self.disk.read_exact_at(offset, buffer)
    }
}

/// Pages of a disk.
#[derive(Debug, Default)]
pub(super) struct Pages {
    list: Vec<Page>,
    bytes: Vec<u8>,
}

/// Which bytes of the disk a page holds, and where it lies, deflated, among the pages' bytes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Page(u64, u64, u64, u64);

impl Pages {
    /// Adds pages, those of the most usual edits first, until there is no more room.
    pub(super) fn collect(
        disk: &impl ReadAt,
        page: u64,
        wanted: impl IntoIterator<Item = BTreeSet<u64>>,
    ) -> Result<Pages, ImageError> {
        let mut pages = Pages::default();
        let mut kept = BTreeSet::new();
        for start in wanted.into_iter().flatten() {
            if !kept.insert(start) {
                continue;
            }
            let length = page.min(disk.len().saturating_sub(start));
            let bytes = disk.read_vec(start, length as usize).map_err(ImageError::read("pages of the base"))?;
            let packed = deflate(&bytes);
            if pages.bytes.len() + packed.len() > MOST_BYTES {
                break;
            }
            let at = pages.bytes.len() as u64;
            pages.list.push(Page(start, length, at, packed.len() as u64));
            pages.bytes.extend_from_slice(&packed);
        }
        pages.list.sort_by_key(|page| page.0);
        Ok(pages)
    }

    /// The parts, to be saved.
    pub(super) fn into_parts(self) -> (Vec<Page>, Vec<u8>) {
        (self.list, self.bytes)
    }
}

/// A disk made of pages, and of another disk that is opened only when they do not suffice.
pub(super) struct PagedDisk<'p, D, O> {
    list: &'p [Page],
    bytes: &'p [u8],
    inflated: Vec<OnceLock<Vec<u8>>>,
    length: u64,
    open: O,
    opened: OnceLock<D>,
}

impl<'p, D: ReadAt, O: Fn() -> io::Result<D>> PagedDisk<'p, D, O> {
    pub(super) fn new(list: &'p [Page], bytes: &'p [u8], length: u64, open: O) -> Self {
        let inflated = list.iter().map(|_| OnceLock::new()).collect();
        PagedDisk { list, bytes, inflated, length, open, opened: OnceLock::new() }
    }

    /// Whether everything so far came from pages.
    #[cfg(test)]
    pub(super) fn is_self_sufficient(&self) -> bool {
        self.opened.get().is_none()
    }

    fn page(&self, index: usize) -> io::Result<&[u8]> {
        let (Some(&Page(_, length, at, packed)), Some(cell)) = (self.list.get(index), self.inflated.get(index)) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        if cell.get().is_none() {
            let range = usize::try_from(at).ok().zip(usize::try_from(at.saturating_add(packed)).ok());
            let bytes = range.and_then(|(start, end)| self.bytes.get(start..end)).ok_or_else(damaged)?;
            // Only this thread's work is lost when another one was quicker.
            let _ = cell.set(inflate(bytes, length)?);
        }
        cell.get().map(Vec::as_slice).ok_or_else(damaged)
    }

    fn other(&self) -> io::Result<&D> {
        if self.opened.get().is_none() {
            let _ = self.opened.set((self.open)()?);
        }
        self.opened.get().ok_or_else(damaged)
    }
}

impl<D: ReadAt, O: Fn() -> io::Result<D>> ReadAt for PagedDisk<'_, D, O> {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        check_range(offset, buffer.len(), self.length)?;
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let next = self.list.partition_point(|page| page.0 <= at);
            let within = next.checked_sub(1).filter(|&index| at - self.list[index].0 < self.list[index].1);
            let here: Range<u64> = match within {
                Some(index) => at..self.list[index].0 + self.list[index].1,
                None => at..self.list.get(next).map_or(self.length, |page| page.0),
            };
            let take = rest.len().min((here.end - here.start) as usize);
            let (now, later) = rest.split_at_mut(take);
            match within {
                Some(index) => {
                    let start = (at - self.list[index].0) as usize;
                    now.copy_from_slice(self.page(index)?.get(start..start + take).ok_or_else(damaged)?);
                }
                None => self.other()?.read_exact_at(at, now)?,
            }
            at += take as u64;
            rest = later;
        }
        Ok(())
    }
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a page of the base in the store is damaged: import the base again")
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(bytes.len() + bytes.len() / 8 + 64);
    let mut deflate = Compress::new(Compression::new(6), false);
    // There is room for the worst case: it cannot fail and cannot end early.
    let _ = deflate.compress_vec(bytes, &mut packed, FlushCompress::Finish);
    packed
}

fn inflate(packed: &[u8], length: u64) -> io::Result<Vec<u8>> {
    // Deflate cannot do better than 1 to 1032, so a wrong length takes no memory.
    if length > (packed.len() as u64).saturating_mul(1032) {
        return Err(damaged());
    }
    let mut bytes = Vec::with_capacity(length as usize + 1);
    match Decompress::new(false).decompress_vec(packed, &mut bytes, FlushDecompress::Finish) {
        Ok(Status::StreamEnd) if bytes.len() as u64 == length => Ok(bytes),
        _ => Err(damaged()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_serve_what_they_hold_and_the_disk_serves_the_rest() {
        let disk: Vec<u8> = (0..10_000u32).map(|number| ((number * number) >> 5) as u8).collect();
        let recorder = Recorder::new(&disk, 1000);
        recorder.read_vec(2500, 10).unwrap();
        recorder.read_vec(3999, 2).unwrap();
        recorder.read_vec(9990, 10).unwrap();
        let seen = recorder.take();
        assert_eq!(seen.iter().copied().collect::<Vec<_>>(), [2000, 3000, 4000, 9000]);
        assert!(recorder.take().is_empty());
        let (list, bytes) = Pages::collect(&disk, 1000, [seen]).unwrap().into_parts();
        let paged = PagedDisk::new(&list, &bytes, 10_000, || Ok(&disk));
        assert_eq!(paged.read_vec(2000, 3000).unwrap(), &disk[2000..5000]);
        assert_eq!(paged.read_vec(9500, 500).unwrap(), &disk[9500..]);
        assert!(paged.is_self_sufficient());
        assert_eq!(paged.read_vec(0, 10_000).unwrap(), disk);
        assert!(!paged.is_self_sufficient());
        assert_eq!(paged.read_vec(9999, 2).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn damaged_pages_are_told_and_take_no_memory() {
        let list = [Page(0, 1 << 40, 0, 4), Page(1 << 41, 10, 2, u64::MAX)];
        let paged = PagedDisk::new(&list, &[1, 2, 3, 4], 1 << 42, || Ok(Vec::new()));
        for at in [0, 1 << 41] {
            let error = paged.read_vec(at, 4).unwrap_err();
            assert_eq!(error.to_string(), "a page of the base in the store is damaged: import the base again");
        }
    }
}
