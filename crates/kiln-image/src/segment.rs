//! A composed file as a list of ranges: what stays of the base, and the bytes put between.
//!
//! Whoever serves or writes the file follows the list; nothing of the base is copied to make it.

use std::ops::Range;

/// One stretch of a composed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// Bytes of the base file, unchanged.
    Base(Range<u64>),
    /// Bytes of this file's own.
    Own(Vec<u8>),
}

impl Segment {
    /// How many bytes it adds to the file.
    pub fn len(&self) -> u64 {
        match self {
            Segment::Base(range) => range.end - range.start,
            Segment::Own(bytes) => bytes.len() as u64,
        }
    }

    /// Whether it adds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
