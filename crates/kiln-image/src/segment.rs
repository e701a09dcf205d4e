//! A composed file as a list of ranges: what stays of the base, and the bytes put between.
//!
//! Whoever serves or writes the file follows the list; nothing of the base is copied to make it.

use std::io;
use std::ops::Range;

use crate::patch::Patch;
use crate::read_at::{ReadAt, check_range};

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

/// The composed file, read like any other. Nothing is copied to make it.
#[derive(Debug, Clone)]
pub struct Composed<D> {
    base: D,
    /// Where each segment begins in the composed file.
    starts: Vec<u64>,
    segments: Vec<Segment>,
    length: u64,
}

impl<D: ReadAt> Composed<D> {
    /// Every range must lie within the base.
    pub fn new(base: D, segments: Vec<Segment>) -> io::Result<Self> {
        let mut starts = Vec::with_capacity(segments.len());
        let mut length = 0u64;
        for segment in &segments {
            if let Segment::Base(range) = segment
                && (range.start > range.end || range.end > base.len())
            {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            starts.push(length);
            length = length.checked_add(segment.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        }
        Ok(Composed { base, starts, segments, length })
    }
}

impl<D: ReadAt> ReadAt for Composed<D> {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        check_range(offset, buffer.len(), self.length)?;
        let mut at = self.starts.partition_point(|&start| start <= offset).saturating_sub(1);
        let mut done = 0;
        while done < buffer.len() {
            let (Some(segment), Some(start)) = (self.segments.get(at), self.starts.get(at)) else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            let within = offset + done as u64 - start;
            let take = (segment.len() - within).min((buffer.len() - done) as u64) as usize;
            let target = &mut buffer[done..done + take];
            match segment {
                Segment::Base(range) => self.base.read_exact_at(range.start + within, target)?,
                Segment::Own(bytes) => target.copy_from_slice(&bytes[within as usize..within as usize + take]),
            }
            done += take;
            at += 1;
        }
        Ok(())
    }
}

impl Patch {
    /// A file of this length with the edit over it, as segments. What the edit puts behind the end makes it longer.
    pub fn segments(&self, length: u64) -> Vec<Segment> {
        let mut segments = Vec::new();
        let mut at = 0;
        for (offset, bytes) in self.pieces() {
            if offset > at {
                segments.push(Segment::Base(at..offset));
            }
            segments.push(Segment::Own(bytes.to_vec()));
            at = offset + bytes.len() as u64;
        }
        if at < length {
            segments.push(Segment::Base(at..length));
        }
        segments
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Patched;

    #[test]
    fn segments_of_a_patch_read_like_the_patched_image() {
        let base: Vec<u8> = (0..100).collect();
        let mut patch = Patch::new();
        patch.write(0, b"head");
        patch.write(40, b"middle");
        patch.write(95, b"tail!");
        let composed = Composed::new(&base, patch.segments(100)).unwrap();
        let patched = Patched::with(&base, patch);
        for (offset, length) in [(0, 100), (3, 2), (39, 8), (90, 10), (100, 0)] {
            assert_eq!(composed.read_vec(offset, length).unwrap(), patched.read_vec(offset, length).unwrap());
        }
        assert_eq!(composed.read_vec(99, 2).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let beyond = Composed::new(&base, vec![Segment::Base(90..101)]);
        assert_eq!(beyond.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
