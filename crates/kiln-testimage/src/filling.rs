//! Bytes that look like a file system of programs: the same for the same seed, compressible to about a fifth.

/// `length` bytes for a seed.
pub fn filling(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        // xorshift64*: no dependency and the same everywhere.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    };
    let mut bytes = Vec::with_capacity(length + 64);
    while bytes.len() < length {
        let choice = next();
        let (kind, count) = (choice & 3, 8 + (choice >> 8 & 31) as usize);
        match kind {
            0 => bytes.extend_from_slice(&next().to_le_bytes()),
            1 => bytes.extend(std::iter::repeat_n(0, count)),
            _ => {
                // What came before comes again, near or far, as in machine code and text.
                let back = 1 + (next() >> 20) as usize % 30_000;
                let from = bytes.len().saturating_sub(back);
                let to = (from + count).min(bytes.len());
                bytes.extend_from_within(from..to);
            }
        }
    }
    bytes.truncate(length);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
        assert_eq!(filling(1, 10_000), filling(1, 10_000));
        assert_ne!(filling(1, 10_000), filling(2, 10_000));
        assert_eq!(filling(3, 12_345).len(), 12_345);
    }
}
