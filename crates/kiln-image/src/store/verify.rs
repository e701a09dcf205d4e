//! The joints of a composed .gz, read back before anybody is given one.
//!
//! What lies between the joints are the base's own bits, which the import has inflated and checked. At the joints bits
//! were put together anew, so the stream is inflated there: from its beginning past the first joint, and from the last
//! checkpoint past the last joint to the end.

use std::io;
use std::ops::Range;

use crate::digest::crc32_combine;
use crate::error::ImageError;
use crate::gz_index::GzIndex;
use crate::gzip::{Event, GzStream};
use crate::patch::Patch;
use crate::read_at::ReadAt;
use crate::segment::{Composed, Segment};
use crate::splice::{self, OpenStream};

/// So much is inflated behind the first joint: more than the 32 KiB that later blocks can refer back to.
const BEHIND_JOINT: u64 = 256 << 10;

/// Composes a stream with this tail and inflates it around its joints. `disk` is what the base holds.
pub(super) fn read_joints(
    file: &impl ReadAt,
    index: &GzIndex,
    open: &OpenStream,
    disk: &impl ReadAt,
    header: &Patch,
    tail: &[u8],
) -> Result<(), ImageError> {
    let mut segments = open.segments.clone();
    segments.push(Segment::Own(splice::close(open.crc32, open.inflated_len, tail)?));
    let kept = base_segments(&segments);
    let composed = Composed::new(file, segments).map_err(ImageError::read("composed image"))?;
    let mut expected = Expected { disk, header, tail, position: 0 };
    let mut stream = GzStream::new(&composed)?;
    // Without a part of the base that is kept, the whole stream is new and read to its end.
    let until = (!kept.is_empty()).then(|| (header.byte_count() + (1 << 16)).max(BEHIND_JOINT) * 2);
    expected.follow(&mut stream, &composed, until)?;
    if kept.is_empty() {
        return Ok(());
    }
    // The last place to start from whose block is kept. The base's last block is a part of its own, because its first bit
    // changes, and has no such place.
    let in_part = |range: &Range<u64>| index.checkpoints.iter().rfind(|point| range.contains(&(point.bit / 8)));
    let last = kept.iter().rev().find_map(|(range, place)| Some((in_part(range)?, range.start, *place)));
    let Some((start, base, place)) = last else {
        let mut stream = GzStream::new(&composed)?;
        return Expected { disk, header, tail, position: 0 }.follow(&mut stream, &composed, None);
    };
    // Seen from the base, the composed file begins later or earlier by whole bytes.
    let view = Moved { inner: &composed, place, base };
    let mut stream = start.start(&view)?;
    let mut expected = Expected { disk, header, tail, position: start.offset };
    expected.follow(&mut stream, &view, None)?;
    let crc32 = crc32_combine(open.crc32, crc32fast::hash(tail), tail.len() as u64);
    let end = composed.read_vec(composed.len() - 8, 4).map_err(ImageError::read("composed image"))?;
    if end == crc32.to_le_bytes() { Ok(()) } else { Err(wrong(composed.len())) }
}

/// The parts of the base that are kept, and where each lies in the composed file.
fn base_segments(segments: &[Segment]) -> Vec<(Range<u64>, u64)> {
    let mut at = 0;
    let mut kept = Vec::new();
    for segment in segments {
        if let Segment::Base(range) = segment {
            kept.push((range.clone(), at));
        }
        at += segment.len();
    }
    kept
}

/// What the stream must hold.
struct Expected<'e, D> {
    disk: &'e D,
    header: &'e Patch,
    tail: &'e [u8],
    position: u64,
}

impl<D: ReadAt> Expected<'_, D> {
    /// Inflates until the stream's end, or until so many bytes are read.
    fn follow(&mut self, stream: &mut GzStream, file: &impl ReadAt, until: Option<u64>) -> Result<(), ImageError> {
        let end = self.disk.len() + self.tail.len() as u64;
        loop {
            let event = stream.step(file)?;
            if matches!(event, Event::Chunk | Event::MemberEnd(_)) {
                let chunk = stream.chunk();
                if chunk != self.bytes(chunk.len())? {
                    return Err(wrong(self.position));
                }
                self.position += chunk.len() as u64;
            }
            match event {
                Event::MemberEnd(_) | Event::End if self.position == end => return Ok(()),
                Event::MemberEnd(_) | Event::End => return Err(wrong(self.position)),
                _ if until.is_some_and(|until| self.position >= until) => return Ok(()),
                _ => {}
            }
        }
    }

    fn bytes(&self, length: usize) -> Result<Vec<u8>, ImageError> {
        let read = |error| ImageError::read("base")(error);
        let of_disk = (self.disk.len().saturating_sub(self.position)).min(length as u64) as usize;
        let mut bytes = self.disk.read_vec(self.position.min(self.disk.len()), of_disk).map_err(read)?;
        self.header.apply(self.position, &mut bytes);
        let from = (self.position + of_disk as u64 - self.disk.len().min(self.position + of_disk as u64)) as usize;
        let of_tail = self.tail.get(from..from + length - of_disk).ok_or_else(|| wrong(self.position))?;
        bytes.extend_from_slice(of_tail);
        Ok(bytes)
    }
}

/// A file seen from another beginning.
struct Moved<'m, D> {
    inner: &'m D,
    place: u64,
    base: u64,
}

impl<D: ReadAt> ReadAt for Moved<'_, D> {
    fn len(&self) -> u64 {
        self.inner.len() - self.place + self.base
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let offset = (offset + self.place).checked_sub(self.base).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.inner.read_exact_at(offset, buffer)
    }
}

fn wrong(at: u64) -> ImageError {
    ImageError::refused(
        "composed image",
        format!("read back, it differs from what it should hold at byte {at}; this is a mistake in Kiln"),
        "please report it with the image; import it with --plain meanwhile",
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::atomic::{AtomicU64, Ordering};

    use kiln_testimage::filling::filling;

    use super::*;
    use crate::gz_index::{GzDisk, scan};
    use crate::splice::Undo;

    /// Counts the bytes that are read.
    struct Counting<'c>(&'c [u8], AtomicU64);

    impl ReadAt for Counting<'_> {
        fn len(&self) -> u64 {
            self.0.len() as u64
        }

        fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            self.1.fetch_add(buffer.len() as u64, Ordering::Relaxed);
            self.0.read_exact_at(offset, buffer)
        }
    }

    struct Case {
        gz: Vec<u8>,
        index: GzIndex,
        header: Patch,
        open: OpenStream,
    }

    fn case(mebibytes: usize) -> Case {
        // Like gzip and pigz: the fastest level of zlib-rs makes one block of everything.
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(3));
        encoder.write_all(&filling(9, mebibytes << 20)).unwrap();
        let gz = encoder.finish().unwrap();
        let index = scan(&gz, None, |_| {}).unwrap().index;
        let mut header = Patch::new();
        header.write(0, &[0xaa; 112]);
        let open = splice::open(&gz, &index, &header, Undo::Keep).unwrap();
        Case { gz, index, header, open }
    }

    const TAIL: &[u8] = &[0x55; 30_000];

    #[test]
    fn a_large_base_is_not_inflated_again() {
        let read: Vec<u64> = [50, 100]
            .map(|mebibytes| {
                let Case { gz, index, header, open } = case(mebibytes);
                let file = Counting(&gz, AtomicU64::new(0));
                read_joints(&file, &index, &open, &GzDisk::with_index(&file, &index), &header, TAIL).unwrap();
                let read = file.1.into_inner();
                // Checkpoints are 8 MiB apart: from the last one to the end, and what it is compared with from one before.
                let share = read as f64 / gz.len() as f64 * mebibytes as f64;
                assert!(share < 3.0 * 8.0 + 4.0, "as much as {share:.1} MiB of {mebibytes} hold were read");
                read
            })
            .to_vec();
        assert!(read[1] < read[0] * 2, "twice the base costs {} instead of {} bytes", read[1], read[0]);
    }

    #[test]
    fn a_joint_that_is_wrong_is_found() {
        let Case { gz, index, header, open } = case(20);
        let disk = GzDisk::with_index(&gz, &index);
        read_joints(&gz, &index, &open, &disk, &header, TAIL).unwrap();
        let mut other_header = Patch::new();
        other_header.write(0, &[0xab; 112]);
        let problem = read_joints(&gz, &index, &open, &disk, &other_header, TAIL).unwrap_err().to_string();
        assert!(
            problem.starts_with("composed image: read back, it differs from what it should hold at byte 0;"),
            "{problem}"
        );
        // One byte of what was put together anew is another one, at each joint.
        for (number, segment) in open.segments.iter().enumerate().skip(1) {
            let Segment::Own(bytes) = segment else { continue };
            let mut changed = open.clone();
            let mut bytes = bytes.clone();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x10;
            changed.segments[number] = Segment::Own(bytes);
            assert!(read_joints(&gz, &index, &changed, &disk, &header, TAIL).is_err(), "segment {number}");
        }
    }
}
