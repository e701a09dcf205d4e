//! The compressed side of the inflater: a buffer over a file, and the bits taken from it but not used yet.
//!
//! The buffer always ends in [`SLACK`] bytes more than the decoder looks at, zeros at the end of the file, so the decoder
//! needs no second, careful loop. Whether it ran into those zeros is asked afterwards, with [`BitInput::ran_out`].

use crate::ImageError;
use crate::read_at::ReadAt;

/// How much the decoder may read past the place where it was asked to stop.
pub(super) const SLACK: usize = 64;
/// What is read from the file at once.
const CAPACITY: usize = 128 * 1024;

/// A position in a file to the bit.
#[derive(Debug, Clone)]
pub(crate) struct BitInput {
    pub(super) buffer: Vec<u8>,
    /// The next byte that is not yet in `bits`.
    pub(super) next: usize,
    /// Where the bytes of the file end within the buffer; [`SLACK`] zeros follow.
    pub(super) filled: usize,
    /// Bits taken from the buffer. Those above `count` are zero.
    pub(super) bits: u64,
    pub(super) count: u32,
    /// The place in the file of the buffer's first byte.
    origin: u64,
    /// Whether the file ends where the buffer does.
    pub(super) at_end: bool,
}

impl BitInput {
    /// Starts at a bit of a file.
    pub(crate) fn at(file: &(impl ReadAt + ?Sized), bit: u64) -> Result<Self, ImageError> {
        Self::with_capacity(file, bit, CAPACITY)
    }

    /// Starts at a bit of a file and reads about so many bytes at once.
    pub(crate) fn with_capacity(file: &(impl ReadAt + ?Sized), bit: u64, capacity: usize) -> Result<Self, ImageError> {
        let buffer = vec![0; capacity.max(2 * SLACK) + SLACK];
        let mut input = BitInput { buffer, next: 0, filled: 0, bits: 0, count: 0, origin: bit / 8, at_end: false };
        input.need(file)?;
        input.take((bit % 8) as u32);
        Ok(input)
    }

    /// The bit of the file that comes next.
    pub(crate) fn position(&self) -> u64 {
        (self.origin + self.next as u64) * 8 - u64::from(self.count)
    }

    /// Whether more bits were taken than the file has.
    pub(crate) fn ran_out(&self) -> bool {
        self.position() > (self.origin + self.filled as u64) * 8
    }

    /// Reads on until the buffer is full or the file ends. What was used is dropped.
    pub(crate) fn fill(&mut self, file: &(impl ReadAt + ?Sized)) -> Result<(), ImageError> {
        // Bytes that are in `bits` may still be given back: they are not used yet.
        self.give_back();
        let used = self.next.min(self.filled);
        self.buffer.copy_within(used..self.filled, 0);
        self.origin += used as u64;
        self.filled -= used;
        self.next -= used;
        let from = self.origin + self.filled as u64;
        let left = file.len().saturating_sub(from);
        let room = self.buffer.len() - SLACK - self.filled;
        let take = left.min(room as u64) as usize;
        file.read_exact_at(from, &mut self.buffer[self.filled..self.filled + take])
            .map_err(|error| ImageError::read(format!("byte {from} of the gzip file"))(error))?;
        self.filled += take;
        self.at_end = take as u64 == left;
        self.buffer[self.filled..self.filled + SLACK].fill(0);
        Ok(())
    }

    /// Makes sure that [`BitInput::peek`] shows at least 48 bits, zeros after the end of the file.
    pub(crate) fn need(&mut self, file: &(impl ReadAt + ?Sized)) -> Result<(), ImageError> {
        if self.next + 8 > self.filled && !self.at_end {
            self.fill(file)?;
        }
        while self.count <= 48 {
            // Zeros without end: a decoder that asks for more finds out with `ran_out`.
            let byte = self.buffer.get(self.next).copied().unwrap_or(0);
            self.bits |= u64::from(byte) << self.count;
            self.next += 1;
            self.count += 8;
        }
        Ok(())
    }

    /// The next bits without using them.
    pub(crate) fn peek(&self, count: u32) -> u32 {
        (self.bits & ((1 << count) - 1)) as u32
    }

    /// Uses bits that [`BitInput::need`] made available.
    pub(crate) fn take(&mut self, count: u32) -> u32 {
        let bits = self.peek(count);
        self.bits >>= count;
        self.count -= count;
        bits
    }

    /// Skips to the next whole byte and gives back the bytes that were taken as bits.
    pub(crate) fn align(&mut self) {
        self.take(self.count % 8);
        self.give_back();
    }

    /// Gives whole bytes that were taken as bits back to the buffer.
    pub(super) fn give_back(&mut self) {
        self.next -= (self.count / 8) as usize;
        self.count %= 8;
        self.bits &= (1 << self.count) - 1;
    }

    /// The next byte of the file, or none at its end. Only between bytes.
    pub(crate) fn byte(&mut self, file: &(impl ReadAt + ?Sized)) -> Result<Option<u8>, ImageError> {
        if self.next >= self.filled && !self.at_end {
            self.fill(file)?;
        }
        if self.next >= self.filled {
            return Ok(None);
        }
        let byte = self.buffer[self.next];
        self.next += 1;
        Ok(Some(byte))
    }
}
