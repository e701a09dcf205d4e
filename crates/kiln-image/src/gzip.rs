//! gzip files (RFC 1952): members, their headers and trailers, around deflate streams.
//!
//! [`GzStream`] walks through all members of a file and tells where each member and each block begins. It does not check
//! CRCs: whoever takes the bytes does that, on a thread of its own if it likes. Zeros after the last member are padding of
//! tapes and block devices and are ignored as gzip does; anything else there is refused, because gzip and flate2 would
//! give two different contents for such a file.

use crate::ImageError;
use crate::deflate::{Block, Inflater, Step};
use crate::read_at::ReadAt;

/// The first bytes of every member.
pub const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// What [`GzStream::step`] came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A member's deflate stream begins.
    Member(MemberStart),
    /// A block begins.
    Block(Block),
    /// There are bytes worth taking with [`GzStream::chunk`].
    Chunk,
    /// A member ended. Bytes not taken yet belong to it.
    MemberEnd(MemberEnd),
    /// The file ended.
    End,
}

/// Where a member begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberStart {
    /// The first byte of its header.
    pub header: u64,
    /// The first byte of its deflate stream.
    pub data: u64,
    /// How many bytes were inflated before it.
    pub offset: u64,
}

/// How a member ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberEnd {
    /// The first bit after the last block.
    pub bit: u64,
    /// How many bytes were inflated up to here.
    pub offset: u64,
    /// The CRC-32 that its trailer states.
    pub crc32: u32,
    /// The length modulo 2^32 that its trailer states.
    pub length: u32,
}

/// A walk through a gzip file.
#[derive(Debug, Clone)]
pub struct GzStream {
    inflater: Inflater,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    FirstHeader,
    Data,
    AfterMember,
    Finished,
}

impl GzStream {
    /// Starts at the beginning of the file.
    pub fn new(file: &(impl ReadAt + ?Sized)) -> Result<Self, ImageError> {
        Ok(GzStream { inflater: Inflater::at(file, 0, 0, &[])?, state: State::FirstHeader })
    }

    /// Starts at a block boundary, with what was inflated before it.
    pub fn at(file: &(impl ReadAt + ?Sized), bit: u64, offset: u64, window: &[u8]) -> Result<Self, ImageError> {
        Ok(GzStream { inflater: Inflater::at(file, bit, offset, window)?, state: State::Data })
    }

    /// Goes on until there is something to tell.
    pub fn step(&mut self, file: &(impl ReadAt + ?Sized)) -> Result<Event, ImageError> {
        match self.state {
            State::FirstHeader => {
                self.inflater.input.align();
                self.read_header(file)
            }
            State::Data => match self.inflater.step(file)? {
                Step::Block(block) => Ok(Event::Block(block)),
                Step::Chunk => Ok(Event::Chunk),
                Step::End { bit } => self.read_trailer(file, bit),
            },
            State::AfterMember => self.read_padding(file),
            State::Finished => Ok(Event::End),
        }
    }

    /// How many bytes were inflated before the next one.
    pub fn offset(&self) -> u64 {
        self.inflater.offset()
    }

    /// The bytes inflated since the last time they were taken.
    pub fn chunk(&mut self) -> &[u8] {
        self.inflater.chunk()
    }

    /// See [`Inflater::swap_chunk`].
    pub fn swap_chunk(&mut self, buffer: Vec<u8>) -> (Vec<u8>, std::ops::Range<usize>) {
        self.inflater.swap_chunk(buffer)
    }

    /// See [`Inflater::window`].
    pub fn window(&self) -> &[u8] {
        self.inflater.window()
    }

    /// The bit of the file that comes next.
    pub fn position(&self) -> u64 {
        self.inflater.input.position()
    }

    fn read_header(&mut self, file: &(impl ReadAt + ?Sized)) -> Result<Event, ImageError> {
        let header = self.position() / 8;
        let mut reader = HeaderReader { stream: self, file, crc: crc32fast::Hasher::new() };
        let Ok([id1, id2]) = reader.bytes() else { return Err(not_gzip(header)) };
        if [id1, id2] != MAGIC {
            return Err(not_gzip(header));
        }
        let [method, flags, _, _, _, _, _, _] = reader.bytes()?;
        let part = || format!("gzip header at byte {header}");
        if method != 8 {
            return Err(ImageError::damaged(part(), format!("compression method {method} does not exist")));
        }
        if flags & 0xe0 != 0 {
            return Err(ImageError::damaged(part(), "it uses flags that do not exist"));
        }
        if flags & FEXTRA != 0 {
            let length = u16::from_le_bytes(reader.bytes()?);
            for _ in 0..length {
                reader.bytes::<1>()?;
            }
        }
        for text in [FNAME, FCOMMENT] {
            if flags & text != 0 {
                while reader.bytes()? != [0] {}
            }
        }
        if flags & FHCRC != 0 {
            let expected = reader.crc.clone().finalize() as u16;
            if u16::from_le_bytes(reader.bytes()?) != expected {
                return Err(ImageError::damaged(part(), "its checksum does not fit"));
            }
        }
        self.state = State::Data;
        self.inflater.restart();
        Ok(Event::Member(MemberStart { header, data: self.position() / 8, offset: self.offset() }))
    }

    fn read_trailer(&mut self, file: &(impl ReadAt + ?Sized), bit: u64) -> Result<Event, ImageError> {
        self.inflater.input.align();
        let mut reader = HeaderReader { stream: self, file, crc: crc32fast::Hasher::new() };
        let crc32 = u32::from_le_bytes(reader.bytes()?);
        let length = u32::from_le_bytes(reader.bytes()?);
        self.state = State::AfterMember;
        Ok(Event::MemberEnd(MemberEnd { bit, offset: self.offset(), crc32, length }))
    }

    fn read_padding(&mut self, file: &(impl ReadAt + ?Sized)) -> Result<Event, ImageError> {
        let from = self.position() / 8;
        let mut first = [0; 2];
        let known = first.len().min(file.len().saturating_sub(from) as usize);
        file.read_exact_at(from, &mut first[..known]).map_err(ImageError::read("gzip data"))?;
        if known == 2 && first == MAGIC {
            return self.read_header(file);
        }
        while let Some(byte) = self.inflater.input.byte(file)? {
            if byte != 0 {
                return Err(ImageError::refused(
                    format!("byte {from} of the gzip file"),
                    "there is something else after the compressed data",
                    "cut it off, or compress the image again",
                ));
            }
        }
        self.state = State::Finished;
        Ok(Event::End)
    }
}

const FHCRC: u8 = 2;
const FEXTRA: u8 = 4;
const FNAME: u8 = 8;
const FCOMMENT: u8 = 16;

struct HeaderReader<'a, D: ?Sized> {
    stream: &'a mut GzStream,
    file: &'a D,
    crc: crc32fast::Hasher,
}

impl<D: ReadAt + ?Sized> HeaderReader<'_, D> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], ImageError> {
        let mut bytes = [0; N];
        for byte in &mut bytes {
            let Some(read) = self.stream.inflater.input.byte(self.file)? else {
                return Err(ImageError::damaged("gzip data", "it ends in the middle: the file was cut off"));
            };
            *byte = read;
        }
        self.crc.update(&bytes);
        Ok(bytes)
    }
}

fn not_gzip(at: u64) -> ImageError {
    ImageError::damaged(format!("byte {at} of the gzip file"), "no gzip header begins here")
}
