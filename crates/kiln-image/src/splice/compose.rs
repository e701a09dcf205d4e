//! Joins kept blocks and newly compressed ones into one deflate stream.

use super::region::Region;
use crate::ImageError;
use crate::deflate::bits::BitWriter;
use crate::gz_index::GzIndex;
use crate::read_at::ReadAt;
use crate::segment::Segment;

/// zlib-rs takes 2 ms for a host's tail at this level, and 19 ms at level 9 for the same size.
const LEVEL: u32 = 6;

/// The deflate stream of all members with the regions replaced. It ends on a byte and is not finished.
pub(super) fn body(
    gz: &(impl ReadAt + ?Sized),
    index: &GzIndex,
    regions: &[Region],
) -> Result<Vec<Segment>, ImageError> {
    let mut composer = Composer { gz, writer: BitWriter::default(), segments: Vec::new() };
    for (number, member) in index.members.iter().enumerate() {
        let mut next = Some(member.data * 8);
        for region in regions.iter().filter(|region| region.member == number) {
            if let Some(from) = next {
                composer.keep(from, region.start, None)?;
            }
            composer.compress(&region.new)?;
            next = region.end;
        }
        if let Some(from) = next {
            // The member's last block is not the last one any more.
            composer.keep(from, member.end, Some(member.last_block))?;
        }
    }
    composer.writer.align();
    composer.flush();
    Ok(composer.segments)
}

/// Compresses bytes into a stream that can be continued, or finished.
pub(super) fn deflate(bytes: &[u8], flush: flate2::FlushCompress, output: &mut Vec<u8>) -> Result<(), ImageError> {
    let mut deflate = flate2::Compress::new(flate2::Compression::new(LEVEL), false);
    loop {
        let done = deflate.total_in() as usize;
        output.reserve(bytes.len() / 16 + 4096);
        let status = deflate.compress_vec(bytes.get(done..).unwrap_or_default(), output, flush).map_err(|error| {
            ImageError::Write { what: "compressed data".into(), source: std::io::Error::other(error) }
        })?;
        let all_in = deflate.total_in() == bytes.len() as u64;
        match status {
            flate2::Status::StreamEnd => return Ok(()),
            // A flush is complete when there is room left after it.
            _ if all_in && flush != flate2::FlushCompress::Finish && output.len() < output.capacity() => return Ok(()),
            _ => {}
        }
    }
}

struct Composer<'a, D: ?Sized> {
    gz: &'a D,
    writer: BitWriter,
    segments: Vec<Segment>,
}

impl<D: ReadAt + ?Sized> Composer<'_, D> {
    /// Keeps bits of the base. The one that says "last block" is cleared.
    fn keep(&mut self, from: u64, to: u64, clear: Option<u64>) -> Result<(), ImageError> {
        if from >= to {
            return Ok(());
        }
        self.writer.reach_phase((from % 8) as u32);
        let mut at = from;
        if !at.is_multiple_of(8) {
            let end = to.min(at.next_multiple_of(8));
            self.copy_bits(at, end, clear)?;
            at = end;
        }
        let whole = (to / 8).max(at.div_ceil(8));
        if at < whole * 8 {
            let mut byte = at / 8;
            if let Some(place) = clear.map(|bit| bit / 8).filter(|place| (byte..whole).contains(place)) {
                self.keep_bytes(byte, place);
                self.copy_bits(place * 8, place * 8 + 8, clear)?;
                byte = place + 1;
            }
            self.keep_bytes(byte, whole);
            at = whole * 8;
        }
        self.copy_bits(at, to, clear)
    }

    /// Copies bits of one byte.
    fn copy_bits(&mut self, from: u64, to: u64, clear: Option<u64>) -> Result<(), ImageError> {
        if from >= to {
            return Ok(());
        }
        let mut byte = [0];
        self.gz.read_exact_at(from / 8, &mut byte).map_err(ImageError::read("gzip data"))?;
        let mut bits = u32::from(byte[0]);
        if let Some(clear) = clear.filter(|bit| bit / 8 == from / 8) {
            bits &= !(1 << (clear % 8));
        }
        self.writer.put(bits >> (from % 8), (to - from) as u32);
        Ok(())
    }

    fn keep_bytes(&mut self, from: u64, to: u64) {
        if from < to {
            self.flush();
            self.segments.push(Segment::Base(from..to));
        }
    }

    /// Compresses bytes anew. They refer to nothing before them.
    fn compress(&mut self, bytes: &[u8]) -> Result<(), ImageError> {
        self.writer.align();
        let mut output = Vec::new();
        deflate(bytes, flate2::FlushCompress::Sync, &mut output)?;
        self.writer.put_bytes(&output);
        Ok(())
    }

    fn flush(&mut self) {
        let bytes = self.writer.take_bytes();
        if !bytes.is_empty() {
            self.segments.push(Segment::Own(bytes));
        }
    }
}
