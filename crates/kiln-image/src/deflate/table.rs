//! Huffman codes as tables the decoder can look up.
//!
//! An entry is a `u32`: bits 0-7 say how many bits code and extra bits take together, bits 8-13 how many the code alone
//! takes (for a pointer: how many bits choose within the subtable), bits 14-15 are flags, bits 16-30 the value (a literal,
//! the base of a length or distance, the start of a subtable) and bit 31 marks literals, which are the common case.
//! The rules for incomplete codes are zlib's: refused, unless there is a single code of one bit (or, for distances, none).

use crate::ImageError;

/// The entry is a literal.
pub(super) const LITERAL: u32 = 1 << 31;
/// The entry is neither a literal nor a length or distance: see [`POINTER`] and [`END`].
pub(super) const EXCEPTION: u32 = 1 << 15;
/// The exception is a pointer to a subtable.
pub(super) const POINTER: u32 = 1 << 14;
/// The exception is the end of the block, if its value is not zero; otherwise no code has these bits.
pub(super) const END: u32 = EXCEPTION | 1 << 16;
/// No code has these bits.
const INVALID: u32 = EXCEPTION;

/// Bits of the first lookup for literals and lengths.
pub(super) const LITERAL_BITS: u32 = 11;
/// Bits of the first lookup for distances.
pub(super) const DISTANCE_BITS: u32 = 8;
const PRECODE_BITS: u32 = 7;
/// The longest code.
const LONGEST: usize = 15;

/// Tables for 288 symbols need at most 2,342 entries (zlib's `enough` program), for 32 symbols at most 402.
pub(super) type LiteralTable = [u32; 2400];
pub(super) type DistanceTable = [u32; 448];
pub(super) type PrecodeTable = [u32; 128];

/// The codes of one block.
#[derive(Debug, Clone)]
pub(super) struct Tables {
    pub(super) literals: Box<LiteralTable>,
    pub(super) distances: Box<DistanceTable>,
}

impl Tables {
    pub(super) fn new() -> Self {
        Tables { literals: Box::new([INVALID; 2400]), distances: Box::new([INVALID; 448]) }
    }

    /// The codes of a block that carries none.
    pub(super) fn set_fixed(&mut self) -> Result<(), ImageError> {
        let mut lengths = [8; 288];
        lengths[144..256].fill(9);
        lengths[256..280].fill(7);
        self.set(&lengths, &[5; 32])
    }

    /// The codes of a dynamic block, from the lengths in its header.
    pub(super) fn set(&mut self, literals: &[u8], distances: &[u8]) -> Result<(), ImageError> {
        build(&mut self.literals[..], LITERAL_BITS, literals, literal_entry, Single::Allowed)
            .map_err(|problem| damaged(format!("the literal code is {problem}")))?;
        build(&mut self.distances[..], DISTANCE_BITS, distances, distance_entry, Single::Allowed)
            .map_err(|problem| damaged(format!("the distance code is {problem}")))
    }
}

/// The code in which a dynamic block writes its code lengths.
pub(super) fn precode(lengths: &[u8; 19]) -> Result<PrecodeTable, ImageError> {
    let mut table = [INVALID; 128];
    build(&mut table, PRECODE_BITS, lengths, |symbol| (symbol as u32) << 16, Single::Refused)
        .map_err(|problem| damaged(format!("the code of code lengths is {problem}")))?;
    Ok(table)
}

pub(super) fn damaged(problem: impl Into<String>) -> ImageError {
    ImageError::damaged("gzip data", problem)
}

/// Whether a code may consist of a single symbol of one bit, or of none.
#[derive(Clone, Copy, PartialEq)]
enum Single {
    Allowed,
    Refused,
}

const LENGTHS: [(u16, u8); 29] = [
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (7, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (11, 1),
    (13, 1),
    (15, 1),
    (17, 1),
    (19, 2),
    (23, 2),
    (27, 2),
    (31, 2),
    (35, 3),
    (43, 3),
    (51, 3),
    (59, 3),
    (67, 4),
    (83, 4),
    (99, 4),
    (115, 4),
    (131, 5),
    (163, 5),
    (195, 5),
    (227, 5),
    (258, 0),
];
const DISTANCES: [(u16, u8); 30] = [
    (1, 0),
    (2, 0),
    (3, 0),
    (4, 0),
    (5, 1),
    (7, 1),
    (9, 2),
    (13, 2),
    (17, 3),
    (25, 3),
    (33, 4),
    (49, 4),
    (65, 5),
    (97, 5),
    (129, 6),
    (193, 6),
    (257, 7),
    (385, 7),
    (513, 8),
    (769, 8),
    (1025, 9),
    (1537, 9),
    (2049, 10),
    (3073, 10),
    (4097, 11),
    (6145, 11),
    (8193, 12),
    (12289, 12),
    (16385, 13),
    (24577, 13),
];

/// The entry of a symbol without the length of its code.
fn literal_entry(symbol: usize) -> u32 {
    match symbol {
        0..256 => LITERAL | (symbol as u32) << 16,
        256 => END,
        _ => LENGTHS.get(symbol - 257).map_or(INVALID, with_extra),
    }
}

fn distance_entry(symbol: usize) -> u32 {
    DISTANCES.get(symbol).map_or(INVALID, with_extra)
}

fn with_extra(&(base, extra): &(u16, u8)) -> u32 {
    u32::from(base) << 16 | u32::from(extra)
}

/// Fills a table, or says what is wrong with the code.
fn build(
    table: &mut [u32],
    first_bits: u32,
    lengths: &[u8],
    entry: impl Fn(usize) -> u32,
    single: Single,
) -> Result<(), &'static str> {
    let mut counts = [0u16; LONGEST + 1];
    for &length in lengths {
        counts[usize::from(length) & LONGEST] += 1;
    }
    let used = lengths.len() - usize::from(counts[0]);
    counts[0] = 0;
    let mut offsets = [0u16; LONGEST + 2];
    let mut left = 1i32;
    for length in 1..=LONGEST {
        offsets[length + 1] = offsets[length] + counts[length];
        left = left * 2 - i32::from(counts[length]);
        if left < 0 {
            return Err("over-subscribed");
        }
    }
    let first_size = 1usize << first_bits;
    if left > 0 {
        if single == Single::Refused || used > 1 || used != usize::from(counts[1]) {
            return Err("incomplete");
        }
        table[..first_size].fill(INVALID);
        if let Some(symbol) = lengths.iter().position(|&length| length == 1) {
            let entry = with_code_length(entry(symbol), 1);
            table[..first_size].iter_mut().step_by(2).for_each(|place| *place = entry);
        }
        return Ok(());
    }
    let mut sorted = [0u16; 288];
    for (symbol, &length) in lengths.iter().enumerate() {
        if length > 0 {
            let offset = &mut offsets[usize::from(length) & LONGEST];
            sorted[usize::from(*offset)] = symbol as u16;
            *offset += 1;
        }
    }
    let mut symbols = sorted[..used].iter().map(|&symbol| usize::from(symbol));
    fill(table, first_bits, &counts, |length| symbols.next().map_or(INVALID, |s| with_code_length(entry(s), length)));
    Ok(())
}

/// Codes in the order of their length; each is kept with its first bit lowest, as it arrives. The table grows by doubling:
/// entries of shorter codes repeat after each further bit.
fn fill(table: &mut [u32], first_bits: u32, counts: &[u16; LONGEST + 1], mut next_entry: impl FnMut(u32) -> u32) {
    let mut code = 0usize;
    let mut size = 1usize;
    for length in 1..=first_bits {
        if size > 1 || length > 1 {
            // Doubles what there is: what the codes so far decided does not depend on the further bit.
            table.copy_within(0..size, size);
        }
        size = 1 << length;
        for _ in 0..counts[length as usize] {
            table[code] = next_entry(length);
            code = following(code, length);
        }
    }
    let first_size = size;
    let mut end = first_size;
    let mut subtable = (usize::MAX, 0, 0);
    for length in first_bits + 1..=LONGEST as u32 {
        let mut remaining = counts[length as usize];
        while remaining > 0 {
            let prefix = code & (first_size - 1);
            if subtable.0 != prefix {
                // As many bits as the codes that follow can fill.
                let mut bits = length - first_bits;
                let mut space = i32::from(remaining);
                while space < 1 << bits && first_bits + bits < LONGEST as u32 {
                    bits += 1;
                    space = space * 2 + i32::from(counts[(first_bits + bits) as usize]);
                }
                subtable = (prefix, end, bits);
                table[prefix] = EXCEPTION | POINTER | (end as u32) << 16 | bits << 8 | first_bits;
                end += 1 << bits;
            }
            let (_, start, bits) = subtable;
            let entry = next_entry(length - first_bits);
            let step = 1usize << (length - first_bits);
            let mut place = code >> first_bits;
            while place < 1 << bits {
                if let Some(slot) = table.get_mut(start + place) {
                    *slot = entry;
                }
                place += step;
            }
            code = following(code, length);
            remaining -= 1;
        }
    }
}

/// The next code of this length, its first bit lowest: adds one at the other end.
fn following(code: usize, length: u32) -> usize {
    let zeros = !code & ((1 << length) - 1);
    if zeros == 0 {
        // The last code. Nothing follows, and nothing will be put there.
        return 0;
    }
    let bit = 1 << zeros.ilog2();
    code & (bit - 1) | bit
}

fn with_code_length(entry: u32, length: u32) -> u32 {
    entry + (length << 8) + length
}
