//! The inflater beside zlib-rs: same bytes, same refusals, and every boundary it reports is one.

use std::io::Write;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use proptest::prelude::*;

use super::bits::BitWriter;
use super::input::BitInput;
use super::*;
use crate::ImageError;

/// Everything, with the blocks and the end, read in small pieces.
fn inflate(stream: &[u8], capacity: usize, chunk: usize) -> Result<(Vec<u8>, Vec<Block>, u64), ImageError> {
    let input = BitInput::with_capacity(stream, 0, capacity)?;
    let mut inflater = Inflater::with_input(input, 0, &[], chunk);
    let (mut bytes, mut blocks) = (Vec::new(), Vec::new());
    loop {
        match inflater.step(stream)? {
            Step::Block(block) => blocks.push(block),
            Step::Chunk => bytes.extend_from_slice(inflater.chunk()),
            Step::End { bit } => {
                bytes.extend_from_slice(inflater.chunk());
                return Ok((bytes, blocks, bit));
            }
        }
    }
}

/// What zlib-rs says, and how many bytes it used.
fn reference(stream: &[u8]) -> Option<(Vec<u8>, u64)> {
    let mut decompress = Decompress::new(false);
    let mut bytes = Vec::new();
    loop {
        bytes.reserve(64 * 1024);
        let (used, made) = (decompress.total_in(), decompress.total_out());
        match decompress.decompress_vec(&stream[used as usize..], &mut bytes, FlushDecompress::None) {
            Ok(Status::StreamEnd) => return Some((bytes, decompress.total_in())),
            Ok(_) if (used, made) != (decompress.total_in(), decompress.total_out()) => {}
            Ok(_) | Err(_) => return None,
        }
    }
}

fn deflate(bytes: &[u8], level: u32, flushes: &[usize]) -> Vec<u8> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), Compression::new(level));
    let mut done = 0;
    for at in flushes.iter().map(|at| at % (bytes.len() + 1)) {
        if at > done {
            encoder.write_all(&bytes[done..at]).unwrap();
            encoder.flush().unwrap();
            done = at;
        }
    }
    encoder.write_all(&bytes[done..]).unwrap();
    encoder.finish().unwrap()
}

/// Bytes of which some repeat near, some far, some not at all.
fn compressible() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..300),
        (any::<u8>(), 0usize..5000).prop_map(|(byte, count)| vec![byte; count]),
        (prop::collection::vec(any::<u8>(), 1..20), 0usize..400).prop_map(|(word, count)| word.repeat(count)),
        (0usize..2000).prop_map(|count| (0..count).map(|n| (n * n / 7) as u8 & 0x1f).collect()),
    ];
    prop::collection::vec((piece, 0usize..4), 0..24).prop_map(|pieces| {
        let mut bytes: Vec<u8> = Vec::new();
        for (piece, again) in pieces {
            bytes.extend(&piece);
            if again == 0 {
                let from = bytes.len() / 3;
                bytes.extend_from_within(from..from + (bytes.len() - from) / 2);
            }
        }
        bytes
    })
}

#[test]
fn a_buffer_may_end_within_a_block_header() {
    let bytes: Vec<u8> = (0..40_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 27) as u8 * (n as u8 & 7)).collect();
    let flushes: Vec<usize> = (1..80).map(|n| n * 500).collect();
    let stream = deflate(&bytes, 6, &flushes);
    for capacity in 128..400 {
        let (inflated, blocks, _) = inflate(&stream, capacity, 3000).unwrap();
        assert!(inflated == bytes, "capacity {capacity}");
        assert!(blocks.len() >= 80);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn inflates_what_was_deflated_and_starts_anywhere(
        bytes in compressible(), level in 0u32..=9, flushes in prop::collection::vec(any::<usize>(), 0..4),
        capacity in 0usize..4000, chunk in 1usize..70_000,
    ) {
        let stream = deflate(&bytes, level, &flushes);
        let (inflated, blocks, end) = inflate(&stream, capacity, chunk).unwrap();
        prop_assert!(inflated == bytes);
        prop_assert_eq!(end.div_ceil(8), stream.len() as u64);
        prop_assert_eq!(blocks.iter().filter(|block| block.last).count(), 1);
        prop_assert!(blocks.last().unwrap().last);
        for block in blocks.iter().step_by(blocks.len() / 4 + 1) {
            let at = block.offset as usize;
            let mut again = Inflater::at(&stream, block.bit, block.offset, &bytes[..at]).unwrap();
            prop_assert_eq!(again.step(&stream).unwrap(), Step::Block(*block));
            let mut rest = Vec::new();
            loop {
                let step = again.step(&stream).unwrap();
                rest.extend_from_slice(again.chunk());
                if let Step::End { bit } = step {
                    prop_assert_eq!(bit, end);
                    break;
                }
            }
            prop_assert!(rest == bytes[at..]);
            prop_assert_eq!(again.window(), &bytes[bytes.len().saturating_sub(WINDOW)..]);
        }
        for cut in [stream.len() - 1, stream.len() / 2] {
            let error = inflate(&stream[..cut], capacity, chunk).unwrap_err();
            prop_assert_eq!(error.to_string(), "gzip data is damaged: it ends in the middle: the file was cut off");
        }
    }

    #[test]
    fn damaged_streams_are_judged_as_zlib_judges_them(
        bytes in compressible(), level in 1u32..=9,
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0u32..8), 1..4), near in any::<bool>(),
    ) {
        let mut stream = deflate(&bytes, level, &[]);
        for (index, bit) in flips {
            // The header of the first block is where most rules are.
            let length = if near { stream.len().min(80) } else { stream.len() };
            stream[index.index(length)] ^= 1 << bit;
        }
        same_as_reference(&stream)?;
    }

    #[test]
    fn noise_is_judged_as_zlib_judges_it(mut stream in prop::collection::vec(any::<u8>(), 1..300), kind in 0u8..3) {
        stream[0] = stream[0] & !7 | kind << 1;
        same_as_reference(&stream)?;
    }
}

fn same_as_reference(stream: &[u8]) -> Result<(), TestCaseError> {
    match (inflate(stream, 0, 1000), reference(stream)) {
        (Ok((bytes, _, end)), Some((expected, used))) => {
            prop_assert!(bytes == expected);
            prop_assert_eq!(end.div_ceil(8), used);
        }
        (Err(_), None) => {}
        (own, reference) => prop_assert!(
            false,
            "own: {:?}, reference: {:?}",
            own.map(|(bytes, ..)| bytes.len()).map_err(|error| error.to_string()),
            reference.map(|(bytes, used)| (bytes.len(), used))
        ),
    }
    Ok(())
}

/// A dynamic block from its code lengths, up to its data.
fn dynamic_header(writer: &mut BitWriter, literals: &[u8], distances: &[u8]) {
    writer.put(0b101, 3);
    writer.put(literals.len() as u32 - 257, 5);
    writer.put(distances.len() as u32 - 1, 5);
    writer.put(15, 4);
    // Lengths 0 to 15 are written with 4 bits each; repeats are not used.
    for symbol in [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15] {
        writer.put(if symbol < 16 { 4 } else { 0 }, 3);
    }
    for &length in literals.iter().chain(distances) {
        writer.put(u32::from(length).reverse_bits() >> 28, 4);
    }
}

#[test]
fn odd_codes_are_judged_as_zlib_judges_them() {
    let lengths = |pairs: &[(usize, u8)], count: usize| {
        let mut lengths = vec![0; count];
        pairs.iter().for_each(|&(symbol, length)| lengths[symbol] = length);
        lengths
    };
    // Literal codes, distance codes, the bits after them, what comes out.
    type Case<'a> = (&'a [(usize, u8)], &'a [(usize, u8)], &'a [u32], Result<&'a [u8], &'a str>);
    let cases: [Case; 11] = [
        (&[(256, 1)], &[], &[0], Ok(b"")),
        (&[(256, 1)], &[], &[1], Err("a length code has no meaning")),
        (&[(65, 1), (256, 1)], &[], &[0, 0, 1], Ok(b"AA")),
        (&[(65, 1), (256, 2), (257, 2)], &[(0, 1)], &[0, 1, 1, 0, 1, 0], Ok(b"AAAA")),
        (&[(65, 1), (256, 2), (257, 2)], &[(0, 1)], &[0, 1, 1, 1, 1, 0], Err("a distance code has no meaning")),
        (&[(65, 1), (256, 2), (257, 2)], &[], &[0, 1, 1, 0, 1, 0], Err("a distance code has no meaning")),
        (&[(65, 1), (256, 2), (257, 2)], &[(1, 1)], &[0, 1, 1, 0], Err("a distance reaches before the beginning")),
        (&[(65, 2), (256, 2)], &[], &[0, 0], Err("the literal code is incomplete")),
        (&[(65, 1), (66, 1), (256, 1)], &[], &[0], Err("the literal code is over-subscribed")),
        (&[(65, 1), (256, 1)], &[(0, 2), (1, 2)], &[0], Err("the distance code is incomplete")),
        (&[(65, 1)], &[], &[0], Err("a block has no code for its end")),
    ];
    for (number, (literals, distances, bits, expected)) in cases.into_iter().enumerate() {
        let mut writer = BitWriter::default();
        dynamic_header(&mut writer, &lengths(literals, 258), &lengths(distances, 2));
        bits.iter().for_each(|&bit| writer.put(bit, 1));
        writer.align();
        let mut stream = writer.take_bytes();
        stream.extend([0; 8]);
        let own = inflate(&stream, 0, 1000).map(|(bytes, ..)| bytes).map_err(|error| error.to_string());
        let expected = expected.map(<[u8]>::to_vec).map_err(|problem| format!("gzip data is damaged: {problem}"));
        assert_eq!(own, expected, "case {number}");
        assert_eq!(own.ok(), reference(&stream).map(|(bytes, _)| bytes), "case {number}");
    }
}

#[test]
fn blocks_without_content_reach_every_bit() {
    for from in 0..8 {
        for to in 0..8 {
            let mut writer = BitWriter::default();
            writer.reach_phase(from);
            writer.reach_phase(to);
            assert_eq!(writer.phase(), to);
            // An empty last block.
            writer.put(0b011, 3);
            writer.put(0, 7);
            writer.put(0, 8);
            let stream = writer.take_bytes();
            assert_eq!(reference(&stream).map(|(bytes, _)| bytes), Some(Vec::new()), "{from} to {to}");
            assert_eq!(inflate(&stream, 0, 1000).unwrap().0, b"", "{from} to {to}");
        }
    }
}

#[test]
fn long_codes_and_far_matches_are_inflated() {
    // Frequencies of Fibonacci numbers make codes of all lengths up to 15.
    let mut bytes = Vec::new();
    let (mut count, mut next) = (1usize, 1usize);
    for symbol in 0..24u8 {
        bytes.extend(std::iter::repeat_n(symbol, count));
        (count, next) = (next, count + next);
    }
    let mut state = 1u32;
    for place in (1..bytes.len()).rev() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bytes.swap(place, (state >> 8) as usize % (place + 1));
    }
    let far: Vec<u8> = bytes[bytes.len() - WINDOW..][..258].to_vec();
    bytes.extend(far);
    for strategy in [Compression::new(1), Compression::new(9)] {
        let mut stream = Vec::with_capacity(bytes.len() + 1000);
        Compress::new(strategy, false).compress_vec(&bytes, &mut stream, FlushCompress::Finish).unwrap();
        assert!(inflate(&stream, 1000, 5000).unwrap().0 == bytes);
    }
}
