//! Compressed input, told apart by its first bytes and read as a stream.
//!
//! [`Decoder`] reads a whole file: all gzip members, xz streams or zstd frames, and complains about anything after them.
//! [`Unit`] reads exactly one of them and leaves its source at the next byte, which is what an initrd needs.
//! Every checksum a format carries is checked. A cut-off file is [`io::ErrorKind::UnexpectedEof`], everything else that is
//! wrong with the bytes is [`io::ErrorKind::InvalidData`]; after an error no further byte is handed out.
//!
//! Memory is bounded by [`MEMORY_LIMIT`], whatever dictionary or window a file asks for. How much comes out is not:
//! callers limit that themselves.
//!
//! lz4, lzo, bzip2 and old lzma are recognised, because kernels accept initrds of them, but not read.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::StreamingDecoder;
use ruzstd::decoding::errors::FrameDecoderError;

/// What one decoder may take for its dictionary or window. `xz -9` needs 64 MiB, `zstd --long` 128 MiB.
pub const MEMORY_LIMIT: u64 = 128 << 20;

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not in a way known here.
    None,
    /// gzip, RFC 1952.
    Gzip,
    /// xz, with or without a checksum.
    Xz,
    /// Zstandard, RFC 8878.
    Zstd,
    /// The legacy lz4 frame kernels use; recognised only.
    Lz4,
    /// lzop; recognised only.
    Lzo,
    /// bzip2; recognised only.
    Bzip2,
    /// lzma alone; recognised only.
    Lzma,
}

impl Compression {
    /// Judges by the first bytes of a file; six are enough.
    pub fn sniff(first: &[u8]) -> Self {
        const MAGICS: [(&[u8], Compression); 8] = [
            (&[0x1f, 0x8b], Compression::Gzip),
            (b"\xfd7zXZ\0", Compression::Xz),
            (&[0x28, 0xb5, 0x2f, 0xfd], Compression::Zstd),
            (&[0x02, 0x21, 0x4c, 0x18], Compression::Lz4),
            (&[0x04, 0x22, 0x4d, 0x18], Compression::Lz4),
            (&[0x89, b'L', b'Z', b'O', 0], Compression::Lzo),
            (b"BZh", Compression::Bzip2),
            (&[0x5d, 0, 0], Compression::Lzma),
        ];
        // A zstd file may begin with frames to be skipped: 0x184D2A50 to 0x184D2A5F.
        if let [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] = first {
            return Compression::Zstd;
        }
        MAGICS.iter().find(|(magic, _)| first.starts_with(magic)).map_or(Compression::None, |&(_, found)| found)
    }

    /// The name of the program that reads it.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "uncompressed",
            Compression::Gzip => "gzip",
            Compression::Xz => "xz",
            Compression::Zstd => "zstd",
            Compression::Lz4 => "lz4",
            Compression::Lzo => "lzop",
            Compression::Bzip2 => "bzip2",
            Compression::Lzma => "lzma",
        }
    }
}

/// A buffered source that can be looked into some bytes ahead and knows how far it was read.
#[derive(Debug)]
pub struct Lookahead<R> {
    inner: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    position: u64,
}

impl<R: Read> Lookahead<R> {
    /// Takes a source at its beginning.
    pub fn new(inner: R) -> Self {
        Lookahead { inner, buffer: vec![0; 64 << 10], start: 0, end: 0, position: 0 }
    }

    /// How many bytes were consumed.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next bytes without consuming them: as many as asked for, or all that are left.
    pub fn peek(&mut self, count: usize) -> io::Result<&[u8]> {
        let count = count.min(self.buffer.len());
        if self.end - self.start < count {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            while self.end < count {
                match self.inner.read(&mut self.buffer[self.end..]) {
                    Ok(0) => break,
                    Ok(read) => self.end += read,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(&self.buffer[self.start..self.end.min(self.start + count)])
    }

    /// The source. What was looked at ahead is lost.
    pub fn into_inner(self) -> R {
        self.inner
    }

    /// Consumes zeros. Returns how many there were.
    pub fn skip_zeros(&mut self) -> io::Result<u64> {
        let from = self.position;
        loop {
            let buffered = self.fill_buf()?;
            let zeros = buffered.iter().take_while(|&&byte| byte == 0).count();
            let all = zeros == buffered.len();
            let ended = buffered.is_empty();
            self.consume(zeros);
            if ended || !all {
                return Ok(self.position - from);
            }
        }
    }
}

impl<R: Read> Read for Lookahead<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl<R: Read> BufRead for Lookahead<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.peek(1)?;
        Ok(&self.buffer[self.start..self.end])
    }

    fn consume(&mut self, count: usize) {
        let count = count.min(self.end - self.start);
        self.start += count;
        self.position += count as u64;
    }
}

/// One gzip member, one xz stream or one zstd frame. Its source is left at the byte after it.
pub struct Unit<R: BufRead> {
    inner: Inner<R>,
    compression: Compression,
    failed: bool,
}

enum Inner<R: BufRead> {
    Gzip(Box<GzDecoder<R>>),
    Xz(Box<XzReader<R>>),
    Zstd(Box<StreamingDecoder<R, ruzstd::decoding::FrameDecoder>>),
}

impl<R: BufRead> Unit<R> {
    /// Starts to read. The caller knows from [`Compression::sniff`] what comes.
    pub fn new(source: R, compression: Compression) -> io::Result<Self> {
        let inner = match compression {
            Compression::Gzip => Inner::Gzip(Box::new(GzDecoder::new(source))),
            Compression::Xz => Inner::Xz(Box::new(XzReader::new_mem_limit(source, false, (MEMORY_LIMIT >> 10) as u32))),
            Compression::Zstd => {
                let decoder = StreamingDecoder::new_with_max_window_size(source, MEMORY_LIMIT);
                Inner::Zstd(Box::new(decoder.map_err(|error| explain(compression, io::Error::other(error)))?))
            }
            other => {
                let problem = format!("{} is recognised but cannot be read", other.name());
                return Err(io::Error::new(io::ErrorKind::Unsupported, problem));
            }
        };
        Ok(Unit { inner, compression, failed: false })
    }

    /// The source. It stands after the unit once that was read to its end.
    pub fn into_inner(self) -> R {
        match self.inner {
            Inner::Gzip(decoder) => decoder.into_inner(),
            Inner::Xz(decoder) => decoder.into_inner(),
            Inner::Zstd(decoder) => decoder.into_inner(),
        }
    }
}

impl<R: BufRead> Read for Unit<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.failed {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "an earlier part could not be read"));
        }
        let read = match &mut self.inner {
            Inner::Gzip(decoder) => decoder.read(buffer),
            Inner::Xz(decoder) => decoder.read(buffer),
            Inner::Zstd(decoder) => decoder.read(buffer).and_then(|count| {
                let ended = count == 0 && !buffer.is_empty();
                let stored = decoder.decoder.get_checksum_from_data();
                match stored {
                    Some(stored) if ended && decoder.decoder.get_calculated_checksum() != Some(stored) => {
                        Err(io::Error::new(io::ErrorKind::InvalidData, "its checksum is wrong"))
                    }
                    _ => Ok(count),
                }
            }),
        };
        read.map_err(|error| {
            self.failed = true;
            explain(self.compression, error)
        })
    }
}

/// Says in one form what three libraries say in three.
fn explain(compression: Compression, error: io::Error) -> io::Error {
    let name = compression.name();
    let mut too_large = error.kind() == io::ErrorKind::OutOfMemory;
    let mut cut_off = error.kind() == io::ErrorKind::UnexpectedEof;
    let mut cause: Option<&(dyn std::error::Error + 'static)> =
        error.get_ref().map(|cause| cause as &(dyn std::error::Error + 'static));
    while let Some(this) = cause {
        too_large |= matches!(this.downcast_ref(), Some(FrameDecoderError::WindowSizeTooBig { .. }));
        if let Some(inner) = this.downcast_ref::<io::Error>() {
            cut_off |= inner.kind() == io::ErrorKind::UnexpectedEof;
        }
        cause = this.source();
    }
    if too_large {
        let limit = MEMORY_LIMIT >> 20;
        let problem =
            format!("the {name} data needs more than {limit} MiB of memory; compress it with a smaller window");
        io::Error::new(io::ErrorKind::InvalidData, problem)
    } else if cut_off {
        io::Error::new(io::ErrorKind::UnexpectedEof, format!("the {name} data ends too early: the file was cut off"))
    } else {
        io::Error::new(io::ErrorKind::InvalidData, format!("the {name} data is damaged: {error}"))
    }
}

/// A whole file, inflated if it is compressed.
pub struct Decoder<R: Read> {
    compression: Compression,
    state: State<R>,
}

enum State<R: Read> {
    Plain(Lookahead<R>),
    Inside(Unit<Lookahead<R>>),
    Ended,
}

impl<R: Read> Decoder<R> {
    /// Looks at the first bytes. A compression that is recognised but not read is an error.
    pub fn new(source: R) -> io::Result<Self> {
        let mut source = Lookahead::new(source);
        let compression = Compression::sniff(source.peek(6)?);
        let state = match compression {
            Compression::None => State::Plain(source),
            _ => next_unit(source, compression)?,
        };
        Ok(Decoder { compression, state })
    }

    /// What was found.
    pub fn compression(&self) -> Compression {
        self.compression
    }
}

impl<R: Read> Read for Decoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            match &mut self.state {
                State::Plain(source) => return source.read(buffer),
                State::Inside(unit) => {
                    let count = unit.read(buffer)?;
                    if count > 0 {
                        return Ok(count);
                    }
                }
                State::Ended => return Ok(0),
            }
            if let State::Inside(unit) = std::mem::replace(&mut self.state, State::Ended) {
                self.state = next_unit(unit.into_inner(), self.compression)?;
            }
        }
    }
}

/// What follows a unit: another one, padding, or the end.
fn next_unit<R: Read>(mut source: Lookahead<R>, compression: Compression) -> io::Result<State<R>> {
    loop {
        // gzip files are padded by tapes, xz files by rule; neither says anything.
        let padding = source.skip_zeros()?;
        let next = source.peek(8)?;
        if next.is_empty() {
            return Ok(State::Ended);
        }
        if Compression::sniff(next) != compression || (padding > 0 && compression != Compression::Xz) {
            let at = source.position();
            let problem = format!("the {} data is followed by something else at byte {at}", compression.name());
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        if let &[0x50..=0x5f, 0x2a, 0x4d, 0x18, a, b, c, d] = next {
            skip_exactly(&mut source, 8 + u64::from(u32::from_le_bytes([a, b, c, d])))
                .map_err(|error| explain(compression, error))?;
            continue;
        }
        return Ok(State::Inside(Unit::new(source, compression)?));
    }
}

/// Reads over bytes nobody wants.
fn skip_exactly(source: &mut impl Read, count: u64) -> io::Result<()> {
    match io::copy(&mut source.take(count), &mut io::sink())? {
        skipped if skipped == count => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::write::GzEncoder;
    use lzma_rust2::{CheckType, XzOptions, XzWriter};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn xz(bytes: &[u8], check: CheckType) -> Vec<u8> {
        let mut options = XzOptions::with_preset(1);
        options.set_check_sum_type(check);
        let mut encoder = XzWriter::new(Vec::new(), options).unwrap();
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// `zstd --ultra` is not at hand everywhere; the library's own encoder writes a checksum, too.
    fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn decode(bytes: &[u8]) -> Result<Vec<u8>, String> {
        let mut result = Vec::new();
        let mut decoder = Decoder::new(bytes).map_err(|error| error.to_string())?;
        decoder.read_to_end(&mut result).map_err(|error| error.to_string())?;
        Ok(result)
    }

    fn sample() -> Vec<u8> {
        (0..200_000u32).flat_map(|number| (number / 7).to_le_bytes()).collect()
    }

    #[test]
    fn every_unit_of_a_file_is_read_and_nothing_else_is_taken_for_one() {
        let sample = sample();
        let twice = [sample.as_slice(), sample.as_slice()].concat();
        let skip: &[u8] = &[0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
        let files: [(Vec<u8>, &[u8]); 9] = [
            (sample.clone(), &sample),
            ([gzip(&sample), gzip(&sample)].concat(), &twice),
            ([gzip(&sample), vec![0; 700]].concat(), &sample),
            ([xz(&sample, CheckType::Crc32), xz(&sample, CheckType::Crc64)].concat(), &twice),
            ([xz(&sample, CheckType::Sha256), vec![0; 8], xz(&sample, CheckType::None)].concat(), &twice),
            ([zstd(&sample), skip.to_vec(), zstd(&sample)].concat(), &twice),
            ([skip.to_vec(), zstd(&sample), skip.to_vec()].concat(), &sample),
            (skip.to_vec(), b""),
            (Vec::new(), b""),
        ];
        for (number, (file, expected)) in files.iter().enumerate() {
            assert!(decode(file).unwrap() == *expected, "file {number}");
        }
        for (file, name) in [(gzip(b"a"), "gzip"), (xz(b"a", CheckType::Crc32), "xz"), (zstd(b"a"), "zstd")] {
            let expected = format!("the {name} data is followed by something else at byte {}", file.len());
            assert_eq!(decode(&[file.as_slice(), b"more"].concat()), Err(expected));
        }
        assert_eq!(decode(b"BZh91AY"), Err("bzip2 is recognised but cannot be read".into()));
    }

    #[test]
    fn a_cut_off_file_is_told_from_a_damaged_one() {
        let sample = sample();
        for (file, name) in [(gzip(&sample), "gzip"), (xz(&sample, CheckType::Crc64), "xz"), (zstd(&sample), "zstd")] {
            for cut in [9, file.len() / 3, file.len() - 5, file.len() - 1] {
                let expected = format!("the {name} data ends too early: the file was cut off");
                assert_eq!(decode(&file[..cut]), Err(expected), "{name} {cut}");
            }
            let mut flipped = file.clone();
            let place = file.len() / 2;
            flipped[place] ^= 0x10;
            let problem = decode(&flipped).unwrap_err();
            assert!(problem.starts_with(&format!("the {name} data ")), "{problem}");
        }
    }

    #[test]
    fn a_unit_leaves_its_source_at_the_next_byte() {
        let sample = sample();
        for file in [gzip(&sample), xz(&sample, CheckType::Crc32), zstd(&sample)] {
            let all = [file.as_slice(), b"the rest"].concat();
            let mut unit = Unit::new(Lookahead::new(all.as_slice()), Compression::sniff(&file)).unwrap();
            let mut inflated = Vec::new();
            unit.read_to_end(&mut inflated).unwrap();
            assert!(inflated == sample);
            let mut source = unit.into_inner();
            assert_eq!(source.position(), file.len() as u64);
            assert_eq!(source.peek(100).unwrap(), b"the rest");
        }
    }

    #[test]
    fn a_window_of_gigabytes_is_refused_before_memory_is_taken() {
        // Frame header: no single segment, window descriptor 2 GiB, then an empty last raw block.
        let file = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3, 1, 0, 0];
        let expected = "the zstd data needs more than 128 MiB of memory; compress it with a smaller window";
        assert_eq!(decode(&file), Err(expected.into()));
    }
}
