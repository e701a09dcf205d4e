//! sha256 and CRC-32 that can be put away in the middle and taken up again.
//!
//! All hosts of a base share almost all bytes. What is known of the shared part is saved with the base, so a host's
//! digests cost only the host's own bytes.

use std::io;

use serde::{Deserialize, Serialize};
use sha2::Digest;
use sha2::digest::common::hazmat::SerializableState;

use crate::ImageError;
use crate::read_at::ReadAt;
use crate::segment::Segment;

/// A sha256 in progress.
#[derive(Debug, Clone, Default)]
pub struct Sha256 {
    inner: sha2::Sha256,
}

/// A sha256 in progress, as it is saved: hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedSha256(String);

impl Sha256 {
    /// Of nothing yet.
    pub fn new() -> Self {
        Sha256::default()
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.inner.update(bytes);
    }

    /// Adds the bytes of a composed file.
    pub fn update_segments(&mut self, base: &(impl ReadAt + ?Sized), segments: &[Segment]) -> Result<(), ImageError> {
        for segment in segments {
            match segment {
                Segment::Own(bytes) => self.update(bytes),
                Segment::Base(range) => read_pieces(base, range.clone(), |piece| self.update(piece))
                    .map_err(ImageError::read(format!("bytes {}-{} of the base", range.start, range.end)))?,
            }
        }
        Ok(())
    }

    /// As it is, to be taken up later.
    pub fn save(&self) -> SavedSha256 {
        SavedSha256(hex(&self.inner.serialize()))
    }

    /// Takes up what was saved.
    pub fn load(saved: &SavedSha256) -> Result<Self, ImageError> {
        let damaged = || ImageError::damaged("saved sha256", "it is not one that Kiln wrote");
        let bytes = unhex(&saved.0).ok_or_else(damaged)?;
        let state = bytes.as_slice().try_into().map_err(|_| damaged())?;
        Ok(Sha256 { inner: sha2::Sha256::deserialize(state).map_err(|_| damaged())? })
    }

    /// The digest in hexadecimal.
    pub fn finish(self) -> String {
        hex(&self.inner.finalize())
    }
}

/// The CRC-32 of two stretches, from the CRC-32 of each and the length of the second.
pub fn crc32_combine(first: u32, second: u32, second_length: u64) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(first);
    hasher.combine(&crc32fast::Hasher::new_with_initial_len(second, second_length));
    hasher.finalize()
}

/// Lower case, without separators.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]).collect()
}

/// The bytes, unless the text is not hexadecimal.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        text.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    pairs.remainder().is_empty().then(|| pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Reads a range in pieces.
pub(crate) fn read_pieces(
    file: &(impl ReadAt + ?Sized),
    range: std::ops::Range<u64>,
    mut take: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut buffer = vec![0; 256 * 1024];
    let mut at = range.start;
    while at < range.end {
        let length = buffer.len().min((range.end - at) as usize);
        file.read_exact_at(at, &mut buffer[..length])?;
        take(&buffer[..length]);
        at += length as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_sha256_goes_on_where_it_was() {
        let bytes: Vec<u8> = (0..1000u32).map(|n| (n * n) as u8).collect();
        for cut in [0, 1, 63, 64, 65, 999, 1000] {
            let mut first = Sha256::new();
            first.update(&bytes[..cut]);
            let text = serde_json::to_string(&first.save()).unwrap();
            let mut second = Sha256::load(&serde_json::from_str(&text).unwrap()).unwrap();
            second.update(&bytes[cut..]);
            assert_eq!(second.finish(), hex(&sha2::Sha256::digest(&bytes)));
        }
        let error = Sha256::load(&SavedSha256("00".into())).unwrap_err();
        assert_eq!(error.to_string(), "saved sha256 is damaged: it is not one that Kiln wrote");
    }

    #[test]
    fn crc32_of_two_stretches_is_that_of_both() {
        let bytes: Vec<u8> = (0..1000u32).map(|n| (n * n) as u8).collect();
        for cut in [0, 1, 500, 1000] {
            let (first, second) = bytes.split_at(cut);
            let combined = crc32_combine(crc32fast::hash(first), crc32fast::hash(second), second.len() as u64);
            assert_eq!(combined, crc32fast::hash(&bytes));
        }
    }
}
