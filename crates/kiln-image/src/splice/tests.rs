//! Composed files are read by everybody's gunzip, and hold exactly what they should.

use std::io::{Read, Write};

use super::*;
use crate::gz_index::scan;

fn assembled(base: &[u8], segments: &[Segment]) -> Vec<u8> {
    let mut file = Vec::new();
    for segment in segments {
        match segment {
            Segment::Base(range) => file.extend_from_slice(&base[range.start as usize..range.end as usize]),
            Segment::Own(bytes) => file.extend_from_slice(bytes),
        }
    }
    file
}

/// Compressible, but not too much: words of a small language with random bytes in between.
fn contents(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bytes = Vec::with_capacity(length + 64);
    while bytes.len() < length {
        match next() % 16 {
            0 => bytes.extend(std::iter::repeat_n(0, next() as usize % 3000)),
            1..5 => bytes.extend_from_slice(&next().to_le_bytes()),
            word => bytes.extend_from_slice(format!("word{} ", (next() % 50) * word).as_bytes()),
        }
    }
    bytes.truncate(length);
    bytes
}

fn gzip(level: u32, contents: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(level));
    encoder.write_all(contents).unwrap();
    encoder.finish().unwrap()
}

fn gunzip(file: &[u8]) -> Vec<u8> {
    let mut decoder = flate2::bufread::GzDecoder::new(file);
    let mut contents = Vec::new();
    decoder.read_to_end(&mut contents).unwrap();
    assert!(decoder.into_inner().is_empty(), "there is something after the only member");
    contents
}

fn compose(base: &[u8], patch: &Patch, tail: &[u8]) -> Vec<u8> {
    let index = scan(base, None, |_| {}).unwrap().index;
    let open = open(base, &index, patch, Undo::Keep).unwrap();
    let mut file = assembled(base, &open.segments);
    file.extend(close(open.crc32, open.inflated_len, tail).unwrap());
    if open.can_be_restored {
        let original = restore(&file).unwrap().unwrap();
        assert!(assembled(&file, &original) == base);
    }
    file
}

#[test]
fn a_patch_and_a_tail_are_put_into_a_base() {
    for length in [0, 1, 1000, 70_000, 1_000_000] {
        let mut expected = contents(length as u64, length);
        let base = gzip(6, &expected);
        let mut patch = Patch::new();
        for at in [0, length / 2, length.saturating_sub(50)] {
            let bytes = &b"a change of a few bytes, with an end"[..(length - at).min(36)];
            patch.write(at as u64, bytes);
            expected[at..at + bytes.len()].copy_from_slice(bytes);
        }
        expected.extend_from_slice(b"tail");
        assert!(gunzip(&compose(&base, &patch, b"tail")) == expected, "{length}");
    }
}
