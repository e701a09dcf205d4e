//! How often each cluster of a file is used: two-level tables on disk, runs of equal counts in memory.
//!
//! An untouched image counts every cluster once, so that a few runs describe gigabytes. As text (`1*43000 0 2*3`) they are
//! what the store keeps of them.
//! Counts have 1 to 64 bits. Those below a byte lie in it from the lowest bit on; the others are big-endian.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::header::Header;
use crate::ImageError;
use crate::read_at::ReadAt;

pub(super) const PART: &str = "qcow2 refcounts";

/// Runs are kept in memory, 16 bytes for each. Images of 64 KiB clusters have some thousands.
const MOST_RUNS: usize = 1 << 21;

/// The counts of a whole file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct Refcounts {
    /// The end of each run and the count of its clusters; the next run begins there and has another count.
    runs: Vec<(u64, u64)>,
}

impl Refcounts {
    /// Reads the blocks that a table names. No block is read twice, so the work is bounded by the file.
    pub fn read(disk: &impl ReadAt, header: &Header, table: &[u64]) -> Result<Refcounts, ImageError> {
        check_distinct(table)?;
        let mut counts = Refcounts::default();
        let per_block = header.refcounts_per_block();
        for &offset in table {
            if offset == 0 {
                counts.push(per_block, 0);
                continue;
            }
            let block = read_block(disk, header, offset)?;
            for index in 0..per_block as usize {
                counts.push(1, get(&block, header.refcount_order, index));
                if counts.runs.len() > MOST_RUNS {
                    return Err(ImageError::refused(
                        PART,
                        format!("more than {MOST_RUNS} neighbouring clusters are used differently often"),
                        "make a plain copy with larger clusters: `qemu-img convert -O qcow2 -o cluster_size=64k IMAGE NEW`",
                    ));
                }
            }
        }
        if counts.runs.last().is_some_and(|&(_, count)| count == 0) {
            counts.runs.pop();
        }
        Ok(counts)
    }

    /// Behind the last cluster that is used.
    pub fn end(&self) -> u64 {
        self.runs.last().map_or(0, |&(end, _)| end)
    }

    pub fn of(&self, cluster: u64) -> u64 {
        let run = self.runs.partition_point(|&(end, _)| end <= cluster);
        self.runs.get(run).map_or(0, |&(_, count)| count)
    }

    /// Appends the block that counts from a cluster on, with some counts changed and some clusters in use once.
    pub fn write_block(
        &self,
        block: &mut [u8],
        order: u32,
        changed: &BTreeMap<u64, u64>,
        first: u64,
        tail: Range<u64>,
    ) {
        let end = first + ((block.len() as u64 * 8) >> order);
        let mut start = first;
        for &(run_end, count) in &self.runs[self.runs.partition_point(|&(end, _)| end <= first)..] {
            if start >= end {
                break;
            }
            let stop = run_end.min(end);
            if count != 0 {
                (start..stop).for_each(|cluster| set(block, order, (cluster - first) as usize, count));
            }
            start = stop;
        }
        for (&cluster, &count) in changed.range(first..end) {
            set(block, order, (cluster - first) as usize, count);
        }
        for cluster in tail.start.max(first)..tail.end.min(end) {
            set(block, order, (cluster - first) as usize, 1);
        }
    }

    fn push(&mut self, clusters: u64, count: u64) {
        let start = self.end();
        match self.runs.last_mut() {
            Some((end, last)) if *last == count => *end += clusters,
            _ => self.runs.push((start + clusters, count)),
        }
    }
}

impl From<Refcounts> for String {
    fn from(counts: Refcounts) -> String {
        let mut text = String::new();
        let mut start = 0;
        for (end, count) in counts.runs {
            let separator = if start == 0 { "" } else { " " };
            // Writing into a string cannot fail.
            let _ = match end - start {
                1 => write!(text, "{separator}{count}"),
                length => write!(text, "{separator}{count}*{length}"),
            };
            start = end;
        }
        text
    }
}

impl TryFrom<String> for Refcounts {
    type Error = String;

    fn try_from(text: String) -> Result<Refcounts, String> {
        let mut counts = Refcounts::default();
        for run in text.split_ascii_whitespace() {
            let (count, length) = run.split_once('*').unwrap_or((run, "1"));
            let parsed = count.parse().ok().zip(length.parse::<u64>().ok());
            let (count, length) = parsed.ok_or_else(|| format!("`{run}` is not a run of refcounts"))?;
            if length == 0 || counts.end().checked_add(length).is_none() {
                return Err(format!("`{run}` is too short or too long"));
            }
            counts.push(length, count);
        }
        Ok(counts)
    }
}

/// One block, which must be a cluster of the file.
pub(super) fn read_block(disk: &impl ReadAt, header: &Header, offset: u64) -> Result<Vec<u8>, ImageError> {
    if !offset.is_multiple_of(header.cluster_size()) {
        return Err(ImageError::damaged(PART, format!("a block cannot begin at {offset:#x}")));
    }
    disk.read_vec(offset, header.cluster_size() as usize).map_err(ImageError::read(PART))
}

pub(super) fn check_distinct(table: &[u64]) -> Result<(), ImageError> {
    let mut offsets: Vec<u64> = table.iter().copied().filter(|&offset| offset != 0).collect();
    offsets.sort_unstable();
    match offsets.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(ImageError::damaged(PART, format!("the block at {:#x} is used twice", pair[0]))),
        None => Ok(()),
    }
}

/// The place of a count of at least a byte.
fn place(order: u32, index: usize) -> Range<usize> {
    let bytes = 1 << (order - 3);
    index * bytes..(index + 1) * bytes
}

fn get(block: &[u8], order: u32, index: usize) -> u64 {
    if order < 3 {
        let bit = index << order;
        return u64::from(block[bit / 8] >> (bit % 8)) & ((1 << (1 << order)) - 1);
    }
    block[place(order, index)].iter().fold(0, |count, &byte| count << 8 | u64::from(byte))
}

fn set(block: &mut [u8], order: u32, index: usize, count: u64) {
    if order < 3 {
        let bit = index << order;
        let mask = ((1u16 << (1 << order)) - 1) as u8;
        let byte = &mut block[bit / 8];
        *byte = *byte & !(mask << (bit % 8)) | (count as u8 & mask) << (bit % 8);
        return;
    }
    let bytes = count.to_be_bytes();
    let place = place(order, index);
    let length = place.len();
    block[place].copy_from_slice(&bytes[8 - length..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_every_width_are_written_as_they_are_read() {
        for order in 0..=6 {
            let mut block = vec![0; 64];
            let largest = if order == 6 { u64::MAX } else { (1 << (1 << order)) - 1 };
            let entries = (64 * 8) >> order;
            for index in 0..entries {
                set(&mut block, order, index, largest);
            }
            assert!(block.iter().all(|&byte| byte == 255));
            set(&mut block, order, 3, 0);
            let read: Vec<u64> = (0..entries).map(|index| get(&block, order, index)).collect();
            let expected: Vec<u64> = (0..entries).map(|index| if index == 3 { 0 } else { largest }).collect();
            assert_eq!(read, expected);
        }
        let mut block = vec![0; 2];
        set(&mut block, 4, 0, 0x0102);
        assert_eq!(block, [1, 2]);
        set(&mut block, 1, 0, 3);
        assert_eq!(block, [3, 2]);
    }

    #[test]
    fn runs_are_text_and_nothing_else_is() {
        for text in ["", "1*43000 0 2*3", "0*7 1"] {
            assert_eq!(String::from(Refcounts::try_from(text.to_string()).unwrap()), text);
        }
        let counts = Refcounts::try_from("1*10 0*2 3".to_string()).unwrap();
        assert_eq!([9, 10, 11, 12, 13].map(|cluster| counts.of(cluster)), [1, 0, 0, 3, 0]);
        for (text, expected) in [
            ("1*", "`1*` is not a run of refcounts"),
            ("one", "`one` is not a run of refcounts"),
            ("1*0", "`1*0` is too short or too long"),
            ("1*18446744073709551615 2", "`2` is too short or too long"),
        ] {
            assert_eq!(Refcounts::try_from(text.to_string()).unwrap_err(), expected);
        }
    }
}
