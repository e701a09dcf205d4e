//! A [`GzIndex`] as bytes, for the store. Numbers as LEB128, windows as they are in memory (deflated).

use super::{Checkpoint, GzIndex, Member};
use crate::ImageError;
use crate::deflate::WINDOW;

/// First bytes; the last one is the version.
const MAGIC: &[u8; 8] = b"kilngzi\x01";

impl GzIndex {
    /// The index as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let numbers = [self.gz_len, self.inflated_len, u64::from(self.crc32), self.members.len() as u64];
        numbers.into_iter().for_each(|number| put_number(&mut bytes, number));
        for Member { data, last_block, end, inflated } in &self.members {
            let numbers = [*data, *last_block, *end, inflated.0, inflated.1];
            numbers.into_iter().for_each(|number| put_number(&mut bytes, number));
        }
        put_number(&mut bytes, self.checkpoints.len() as u64);
        for Checkpoint { bit, offset, window } in &self.checkpoints {
            let numbers = [*bit, *offset, window.len() as u64];
            numbers.into_iter().for_each(|number| put_number(&mut bytes, number));
            bytes.extend_from_slice(window);
        }
        bytes
    }

    /// The index from the bytes of [`GzIndex::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ImageError> {
        let damaged = || ImageError::damaged("gzip index", "it is not one that this version of Kiln wrote");
        let mut rest = bytes.strip_prefix(MAGIC).ok_or_else(damaged)?;
        let mut number = || take_number(&mut rest).ok_or_else(damaged);
        let (gz_len, inflated_len, crc32) = (number()?, number()?, number()?);
        let crc32 = u32::try_from(crc32).map_err(|_| damaged())?;
        let mut members = Vec::new();
        for _ in 0..number()? {
            let (data, last_block, end) = (number()?, number()?, number()?);
            members.push(Member { data, last_block, end, inflated: (number()?, number()?) });
        }
        let mut checkpoints = Vec::new();
        for _ in 0..number()? {
            let mut number = || take_number(&mut rest).ok_or_else(damaged);
            let (bit, offset, length) = (number()?, number()?, number()?);
            // A window of 32 KiB cannot grow by more than a few bytes when it is stored as it is.
            if length > 2 * WINDOW as u64 {
                return Err(damaged());
            }
            let (window, after) = rest.split_at_checked(length as usize).ok_or_else(damaged)?;
            rest = after;
            checkpoints.push(Checkpoint { bit, offset, window: window.to_vec() });
        }
        let index = GzIndex { gz_len, inflated_len, crc32, members, checkpoints };
        if rest.is_empty() && index.is_consistent() { Ok(index) } else { Err(damaged()) }
    }

    /// Whether all places are in order and within the file.
    fn is_consistent(&self) -> bool {
        let Some(bits) = self.gz_len.checked_mul(8) else { return false };
        let mut place = (0, 0);
        let members = self.members.iter().all(|member| {
            let Some(data) = member.data.checked_mul(8) else { return false };
            let fits =
                place.0 < data && data <= member.last_block && member.last_block < member.end && member.end <= bits;
            let contents = place.1 == member.inflated.0 && member.inflated.0 <= member.inflated.1;
            place = (member.end, member.inflated.1);
            fits && contents
        });
        let mut previous = (0, 0);
        let checkpoints = self.checkpoints.iter().all(|checkpoint| {
            let fits = previous.0 < checkpoint.bit && checkpoint.bit < bits && previous.1 < checkpoint.offset;
            previous = (checkpoint.bit, checkpoint.offset);
            fits && checkpoint.offset <= self.inflated_len
        });
        members && checkpoints && place.1 == self.inflated_len
    }
}

/// Writes a number in groups of seven bits.
pub(crate) fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads what [`put_number`] wrote and shortens the bytes.
pub(crate) fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..63).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}
