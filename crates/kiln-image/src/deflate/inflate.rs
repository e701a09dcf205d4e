//! The inflater: from any block boundary on, in chunks, telling where each block begins.
//!
//! One loop decodes everything. It may be used up to the last byte because the input ends in zeros that no symbol needs
//! and the output has room for one more round than it is asked for; see [`super::input`]. Memory is the output buffer,
//! the input buffer and two tables, whatever the data say.

use super::input::{BitInput, SLACK};
use super::table::{
    DISTANCE_BITS, DistanceTable, END, EXCEPTION, LITERAL, LITERAL_BITS, LiteralTable, POINTER, Tables, damaged,
    precode,
};
use crate::ImageError;
use crate::read_at::ReadAt;

/// How far back deflate can refer.
pub const WINDOW: usize = 32 * 1024;
/// Inflated bytes handed out at once.
const CHUNK: usize = 256 * 1024;
/// One round of the loop writes at most three literals and a match, and copies up to 16 bytes more than the match has.
const ROOM: usize = 3 + 258 + 32;

/// Where a block begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// The first bit of its header, counted from the beginning of the file.
    pub bit: u64,
    /// How many bytes were inflated before it, counted from what the inflater was told at its start.
    pub offset: u64,
    /// Whether it says that it is the last one.
    pub last: bool,
}

/// What [`Inflater::step`] came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A block begins. Its header is read with the next step.
    Block(Block),
    /// [`Inflater::chunk`] is worth taking.
    Chunk,
    /// The last block ended before this bit. Bits up to the next whole byte are padding.
    End {
        /// The first bit after the last block.
        bit: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Between,
    Header { last: bool },
    Stored { last: bool, left: usize },
    Codes { last: bool },
    Ended,
}

/// An inflater of one deflate stream after the other.
#[derive(Debug, Clone)]
pub struct Inflater {
    pub(crate) input: BitInput,
    state: State,
    tables: Tables,
    output: Vec<u8>,
    /// Bytes before this place in `output` were handed out.
    taken: usize,
    /// Where the next byte goes.
    filled: usize,
    /// Where this stream's history begins within `output`: nothing may be referred to before it.
    history: usize,
    /// How many bytes were inflated before `filled`.
    offset: u64,
}

impl Inflater {
    /// Starts at a block boundary.
    ///
    /// `window` holds up to 32 KiB that were inflated before it, and `offset` counts the bytes before it.
    pub fn at(file: &(impl ReadAt + ?Sized), bit: u64, offset: u64, window: &[u8]) -> Result<Self, ImageError> {
        Ok(Self::with_input(BitInput::at(file, bit)?, offset, window, CHUNK))
    }

    pub(crate) fn with_input(input: BitInput, offset: u64, window: &[u8], chunk: usize) -> Self {
        let window = &window[window.len().saturating_sub(WINDOW)..];
        let mut output = vec![0; WINDOW + chunk + ROOM];
        output[WINDOW - window.len()..WINDOW].copy_from_slice(window);
        Inflater {
            input,
            state: State::Between,
            tables: Tables::new(),
            output,
            taken: WINDOW,
            filled: WINDOW,
            history: WINDOW - window.len(),
            offset,
        }
    }

    /// Goes on until there is something to tell.
    pub fn step(&mut self, file: &(impl ReadAt + ?Sized)) -> Result<Step, ImageError> {
        loop {
            if self.filled >= self.limit() {
                if self.taken < self.filled {
                    return Ok(Step::Chunk);
                }
                self.output.copy_within(self.filled - WINDOW..self.filled, 0);
                self.moved_by(self.filled - WINDOW);
            }
            match self.state {
                State::Between => {
                    self.input.need(file)?;
                    let bit = self.input.position();
                    let last = self.input.take(1) == 1;
                    self.state = State::Header { last };
                    return Ok(Step::Block(Block { bit, offset: self.offset, last }));
                }
                State::Header { last } => self.read_block_header(file, last)?,
                State::Stored { last, left } => self.copy_stored(file, last, left)?,
                State::Codes { last } => self.decode(file, last)?,
                State::Ended => return Ok(Step::End { bit: self.input.position() }),
            }
        }
    }

    /// How many bytes were inflated, counted from what the inflater was told at its start.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The bytes inflated since the last time they were taken.
    pub fn chunk(&mut self) -> &[u8] {
        let from = std::mem::replace(&mut self.taken, self.filled);
        &self.output[from..self.filled]
    }

    /// Like [`Inflater::chunk`] without a copy: the buffer and where the bytes are in it, in exchange for another buffer.
    pub fn swap_chunk(&mut self, mut buffer: Vec<u8>) -> (Vec<u8>, std::ops::Range<usize>) {
        buffer.resize(self.output.len(), 0);
        let from = self.filled - WINDOW;
        buffer[..WINDOW].copy_from_slice(&self.output[from..self.filled]);
        let range = self.taken..self.filled;
        let full = std::mem::replace(&mut self.output, buffer);
        self.moved_by(from);
        (full, range)
    }

    /// Up to 32 KiB that came last: what blocks from here on can refer to.
    pub fn window(&self) -> &[u8] {
        &self.output[self.history.max(self.filled - WINDOW)..self.filled]
    }

    /// Prepares for another stream, which begins where the input is now and refers to nothing before it.
    pub(crate) fn restart(&mut self) {
        self.state = State::Between;
        self.history = self.filled;
    }

    fn limit(&self) -> usize {
        self.output.len() - ROOM
    }

    fn moved_by(&mut self, by: usize) {
        self.filled -= by;
        self.taken = self.filled;
        self.history = self.history.saturating_sub(by);
    }

    fn after_block(last: bool) -> State {
        if last { State::Ended } else { State::Between }
    }

    fn read_block_header(&mut self, file: &(impl ReadAt + ?Sized), last: bool) -> Result<(), ImageError> {
        self.state = match self.input.take(2) {
            0 => {
                self.input.align();
                self.input.need(file)?;
                let length = self.input.take(16);
                if self.input.take(16) != length ^ 0xffff {
                    return Err(self.or_truncated(damaged("a stored block contradicts its own length")));
                }
                self.input.give_back();
                State::Stored { last, left: length as usize }
            }
            1 => {
                self.tables.set_fixed()?;
                State::Codes { last }
            }
            2 => {
                if let Err(error) = self.read_codes(file) {
                    return Err(self.or_truncated(error));
                }
                State::Codes { last }
            }
            _ => return Err(self.or_truncated(damaged("a block is of a kind that does not exist"))),
        };
        Ok(())
    }

    fn read_codes(&mut self, file: &(impl ReadAt + ?Sized)) -> Result<(), ImageError> {
        const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
        self.input.need(file)?;
        let literals = self.input.take(5) as usize + 257;
        let distances = self.input.take(5) as usize + 1;
        let precodes = self.input.take(4) as usize + 4;
        if literals > 286 || distances > 30 {
            return Err(damaged("a block has too many codes"));
        }
        let mut lengths = [0; 19];
        for place in &ORDER[..precodes] {
            self.input.need(file)?;
            lengths[*place] = self.input.take(3) as u8;
        }
        let table = precode(&lengths)?;
        let mut lengths = [0u8; 286 + 30];
        let total = literals + distances;
        let mut known = 0;
        while known < total {
            self.input.need(file)?;
            let entry = table[self.input.peek(7) as usize];
            self.input.take(entry & 0xff);
            let (value, repeat) = match entry >> 16 {
                length @ 0..16 => (length as u8, 1),
                16 if known == 0 => return Err(damaged("a block repeats a code length before the first one")),
                16 => (lengths[known - 1], 3 + self.input.take(2)),
                17 => (0, 3 + self.input.take(3)),
                _ => (0, 11 + self.input.take(7)),
            };
            let end = known + repeat as usize;
            if end > total {
                return Err(damaged("a block has more code lengths than codes"));
            }
            lengths[known..end].fill(value);
            known = end;
        }
        if lengths[256] == 0 {
            return Err(damaged("a block has no code for its end"));
        }
        self.tables.set(&lengths[..literals], &lengths[literals..total])
    }

    fn copy_stored(&mut self, file: &(impl ReadAt + ?Sized), last: bool, left: usize) -> Result<(), ImageError> {
        if left == 0 {
            self.state = Self::after_block(last);
            return Ok(());
        }
        let input = &mut self.input;
        if input.next >= input.filled {
            if input.at_end {
                return Err(truncated());
            }
            input.fill(file)?;
        }
        let take = left.min(self.output.len() - ROOM - self.filled).min(input.filled.saturating_sub(input.next));
        self.output[self.filled..self.filled + take].copy_from_slice(&input.buffer[input.next..input.next + take]);
        input.next += take;
        self.filled += take;
        self.offset += take as u64;
        self.state = State::Stored { last, left: left - take };
        Ok(())
    }

    fn decode(&mut self, file: &(impl ReadAt + ?Sized), last: bool) -> Result<(), ImageError> {
        self.input.give_back();
        if !self.input.at_end && self.input.next + SLACK > self.input.filled {
            self.input.fill(file)?;
        }
        let before = self.filled;
        let limit = self.limit();
        let run = Run { output: &mut self.output, place: before, limit, history: self.history };
        let outcome = run.decode(&mut self.input, &self.tables.literals, &self.tables.distances);
        if self.input.ran_out() {
            return Err(truncated());
        }
        let (place, ended) = outcome?;
        self.filled = place;
        self.offset += (place - before) as u64;
        if ended {
            self.state = Self::after_block(last);
        }
        Ok(())
    }

    /// Zeros after the end of the file look like anything: the truth is that the file ends.
    fn or_truncated(&self, error: ImageError) -> ImageError {
        if self.input.ran_out() { truncated() } else { error }
    }
}

fn truncated() -> ImageError {
    damaged("it ends in the middle: the file was cut off")
}

/// The loop and what it needs of the inflater.
struct Run<'a> {
    output: &'a mut [u8],
    place: usize,
    limit: usize,
    history: usize,
}

impl Run<'_> {
    /// Decodes until the block ends (true) or there is too little room or input for another round.
    fn decode(
        self,
        input: &mut BitInput,
        literals: &LiteralTable,
        distances: &DistanceTable,
    ) -> Result<(usize, bool), ImageError> {
        let Run { output, mut place, limit, history } = self;
        let bytes = &input.buffer[..input.filled + SLACK];
        // A round reads three words, each begun at most seven bytes after the one before.
        let stop = if input.at_end { input.filled + SLACK - 24 } else { input.filled.saturating_sub(24) };
        let mut next = input.next;
        let mut bits = input.bits;
        let mut count = input.count;
        let mut outcome = Ok(false);
        macro_rules! refill {
            () => {
                bits |= word(bytes, next).wrapping_shl(count);
                next += ((63 - count) >> 3) as usize;
                count |= 56;
            };
        }
        macro_rules! consume {
            ($entry:expr) => {
                bits = bits.wrapping_shr($entry & 0xff);
                count = count.wrapping_sub($entry & 0xff);
            };
        }
        macro_rules! first {
            () => {
                literals[bits as usize & ((1 << LITERAL_BITS) - 1)]
            };
        }
        while next < stop && place < limit {
            refill!();
            let mut entry = first!();
            if entry & LITERAL != 0 {
                consume!(entry);
                output[place] = (entry >> 16) as u8;
                place += 1;
                entry = first!();
                if entry & LITERAL != 0 {
                    consume!(entry);
                    output[place] = (entry >> 16) as u8;
                    place += 1;
                    entry = first!();
                    if entry & LITERAL != 0 {
                        consume!(entry);
                        output[place] = (entry >> 16) as u8;
                        place += 1;
                        continue;
                    }
                }
            }
            if entry & EXCEPTION != 0 {
                if entry & POINTER != 0 {
                    consume!(entry);
                    entry = literals[(entry >> 16) as usize + low(bits, entry >> 8 & 0x3f)];
                    if entry & LITERAL != 0 {
                        consume!(entry);
                        output[place] = (entry >> 16) as u8;
                        place += 1;
                        continue;
                    }
                }
                if entry & EXCEPTION != 0 {
                    consume!(entry);
                    outcome = if entry & END == END { Ok(true) } else { Err("a length code has no meaning") };
                    break;
                }
            }
            let length = (entry >> 16) as usize + (low(bits, entry & 0xff) >> (entry >> 8 & 0x3f));
            consume!(entry);
            if count < 28 {
                refill!();
            }
            let mut entry = distances[bits as usize & ((1 << DISTANCE_BITS) - 1)];
            if entry & EXCEPTION != 0 {
                if entry & POINTER == 0 {
                    outcome = Err("a distance code has no meaning");
                    break;
                }
                consume!(entry);
                entry = distances[(entry >> 16) as usize + low(bits, entry >> 8 & 0x3f)];
                if entry & EXCEPTION != 0 {
                    outcome = Err("a distance code has no meaning");
                    break;
                }
            }
            let distance = (entry >> 16) as usize + (low(bits, entry & 0xff) >> (entry >> 8 & 0x3f));
            consume!(entry);
            if distance > place - history {
                outcome = Err("a distance reaches before the beginning");
                break;
            }
            copy_match(output, place, distance, length);
            place += length;
        }
        // The bits above `count` may be those that follow: they were not taken.
        input.bits = bits & ((1 << count) - 1);
        input.count = count;
        input.next = next;
        input.give_back();
        outcome.map(|ended| (place, ended)).map_err(damaged)
    }
}

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..at + 8).and_then(<[u8]>::first_chunk) {
        Some(word) => u64::from_le_bytes(*word),
        None => 0,
    }
}

#[inline(always)]
fn low(bits: u64, count: u32) -> usize {
    (bits & !(u64::MAX.wrapping_shl(count))) as usize
}

/// Copies from before, where the copy may overlap what it copies. May write up to 16 bytes too many.
#[inline(always)]
fn copy_match(output: &mut [u8], place: usize, distance: usize, length: usize) {
    let end = place + length;
    let from = place - distance;
    if distance == 1 {
        let byte = output[from];
        output[place..end].fill(byte);
        return;
    }
    // With a short distance only the first bytes of each piece are right; the next piece repairs the others.
    let step = distance.min(16);
    let (mut from, mut to) = (from, place);
    while to < end {
        let Some(piece) = output.get(from..from + 16).and_then(<[u8]>::first_chunk::<16>).copied() else { return };
        let Some(target) = output.get_mut(to..to + 16) else { return };
        target.copy_from_slice(&piece);
        from += step;
        to += step;
    }
}
