//! An edit as a value: the bytes of an image that differ, and a view of the image with them.

use std::collections::BTreeMap;
use std::io;

use crate::read_at::{ReadAt, check_range};

/// Bytes to put over an image, sorted; pieces neither overlap nor touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patch {
    pieces: BTreeMap<u64, Vec<u8>>,
}

impl Patch {
    /// Nothing differs.
    pub fn new() -> Self {
        Patch::default()
    }

    /// Puts bytes somewhere, over what an earlier write put there.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len() as u64;
        // The piece before may reach into the new bytes or end where they begin.
        let mut start = offset;
        let mut joined = Vec::new();
        if let Some((&before, piece)) = self.pieces.range(..=offset).next_back() {
            let piece_end = before + piece.len() as u64;
            if piece_end >= end {
                let within = (offset - before) as usize;
                if let Some(piece) = self.pieces.get_mut(&before) {
                    piece[within..within + bytes.len()].copy_from_slice(bytes);
                }
                return;
            }
            if piece_end >= offset {
                start = before;
                joined = self.pieces.remove(&before).unwrap_or_default();
                joined.truncate((offset - before) as usize);
            }
        }
        joined.extend_from_slice(bytes);
        while let Some((&next, _)) = self.pieces.range(start..=end).next() {
            let piece = self.pieces.remove(&next).unwrap_or_default();
            let covered = (end - next) as usize;
            if covered < piece.len() {
                joined.extend_from_slice(&piece[covered..]);
                break;
            }
        }
        self.pieces.insert(start, joined);
    }

    /// The pieces in order.
    pub fn pieces(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.pieces.iter().map(|(&offset, bytes)| (offset, bytes.as_slice()))
    }

    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// How many bytes are put over the image.
    pub fn byte_count(&self) -> u64 {
        self.pieces.values().map(|piece| piece.len() as u64).sum()
    }

    /// The same edit seen from outside: the image it was made for begins at this offset of a larger one.
    pub fn shifted(&self, by: u64) -> Patch {
        Patch { pieces: self.pieces.iter().map(|(offset, bytes)| (offset + by, bytes.clone())).collect() }
    }

    /// Puts the pieces that touch a range over the bytes read from there.
    pub fn apply(&self, offset: u64, buffer: &mut [u8]) {
        let end = offset + buffer.len() as u64;
        let before = self.pieces.range(..offset).next_back();
        for (&start, piece) in before.into_iter().chain(self.pieces.range(offset..end)) {
            let from = start.max(offset);
            let to = (start + piece.len() as u64).min(end);
            if from < to {
                let source = &piece[(from - start) as usize..(to - start) as usize];
                buffer[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
            }
        }
    }
}

/// An image with an edit over it. Reads see the edit; writes go into it; the image itself is never written.
#[derive(Debug, Clone)]
pub struct Patched<D> {
    base: D,
    patch: Patch,
}

impl<D: ReadAt> Patched<D> {
    /// Starts with no difference.
    pub fn new(base: D) -> Self {
        Patched { base, patch: Patch::new() }
    }

    /// Starts with an edit made before.
    pub fn with(base: D, patch: Patch) -> Self {
        Patched { base, patch }
    }

    /// Puts bytes somewhere within the image.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        check_range(offset, bytes.len(), self.base.len())?;
        self.patch.write(offset, bytes);
        Ok(())
    }

    /// What is underneath.
    pub fn base(&self) -> &D {
        &self.base
    }

    /// The edit, alone.
    pub fn into_patch(self) -> Patch {
        self.patch
    }
}

impl<D: ReadAt> ReadAt for Patched<D> {
    fn len(&self) -> u64 {
        self.base.len()
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.base.read_exact_at(offset, buffer)?;
        self.patch.apply(offset, buffer);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_patched_image_reads_like_one_that_was_written(
            writes in prop::collection::vec((0u64..200, prop::collection::vec(any::<u8>(), 0..40)), 0..40),
            at in 0u64..240, length in 0usize..60,
        ) {
            let base: Vec<u8> = (0..240).map(|byte| byte as u8).collect();
            let mut written = base.clone();
            let mut patched = Patched::new(&base);
            for (offset, bytes) in &writes {
                written[*offset as usize..*offset as usize + bytes.len()].copy_from_slice(bytes);
                patched.write_at(*offset, bytes).unwrap();
            }
            let length = length.min(240 - at as usize);
            prop_assert_eq!(patched.read_vec(at, length).unwrap(), &written[at as usize..at as usize + length]);
            let patch = patched.into_patch();
            let mut end = None;
            for (offset, bytes) in patch.pieces() {
                prop_assert!(end.is_none_or(|end| offset > end), "pieces touch");
                end = Some(offset + bytes.len() as u64);
            }
        }
    }
}
