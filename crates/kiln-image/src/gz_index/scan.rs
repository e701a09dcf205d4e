//! The one pass over a whole .gz: what [`GzIndex`] says, and the digests.
//!
//! One thread inflates, another one hashes what comes out (and what goes in). Buffers go back and forth between them;
//! there are never more than a few.

use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;

use super::{Checkpoint, DENSE, GzIndex, Member};
use crate::ImageError;
use crate::digest::{Sha256, crc32_combine, read_pieces};
use crate::gzip::{Event, GzStream, MemberEnd};
use crate::patch::Patch;
use crate::read_at::ReadAt;

/// Buffers on their way between the threads.
const BUFFERS: usize = 8;
/// More members than a file made by people has; each costs memory and a joint in every composed file.
const MOST_MEMBERS: usize = 4096;

/// What a pass over a .gz found.
#[derive(Debug, Clone)]
pub struct Scan {
    /// Where everything is.
    pub index: GzIndex,
    /// The sha256 of the file.
    pub gz_sha256: String,
    /// The sha256 of what it holds.
    pub inflated_sha256: String,
    /// The sha256 of what it holds with the patch over it, to be continued with a tail.
    pub patched_sha256: Option<Sha256>,
}

/// Inflates the whole file and checks it. `patch` is hashed over the contents, see [`Scan::patched_sha256`].
/// `progress` is told how many bytes of the file are done.
pub fn scan(
    gz: &(impl ReadAt + Sync + ?Sized),
    patch: Option<&Patch>,
    mut progress: impl FnMut(u64),
) -> Result<Scan, ImageError> {
    let (to_hasher, work) = sync_channel(BUFFERS);
    let (give_back, buffers) = channel();
    thread::scope(|scope| {
        let hasher = scope.spawn(move || Hasher::new(patch).run(gz, &work, &|buffer| drop(give_back.send(buffer))));
        let inflated = inflate(gz, &to_hasher, &buffers, &mut progress);
        drop(to_hasher);
        let hashed = hasher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // When the hasher gave up, the inflater only says that nobody listens.
        let hasher = hashed?;
        let members = inflated?;
        progress(gz.len());
        let index = GzIndex {
            gz_len: gz.len(),
            inflated_len: hasher.offset,
            crc32: hasher.crc32,
            members,
            checkpoints: hasher.checkpoints,
        };
        Ok(Scan {
            index,
            gz_sha256: hasher.gz_sha256.finish(),
            inflated_sha256: hasher.inflated_sha256.finish(),
            patched_sha256: hasher.patched_sha256,
        })
    })
}

/// What the inflater hands to the hasher.
enum Work {
    Bytes(Vec<u8>, Range<usize>),
    Compressed { up_to: u64 },
    Checkpoint { bit: u64, offset: u64, window: Vec<u8> },
    MemberEnd(MemberEnd),
}

fn inflate(
    gz: &(impl ReadAt + ?Sized),
    hasher: &SyncSender<Work>,
    buffers: &Receiver<Vec<u8>>,
    progress: &mut impl FnMut(u64),
) -> Result<Vec<Member>, ImageError> {
    let mut stream = GzStream::new(gz)?;
    let mut members: Vec<Member> = Vec::new();
    let mut checkpoint = 0;
    let send = |work| hasher.send(work).map_err(|_| ImageError::damaged("gzip data", "it was not read to its end"));
    loop {
        match stream.step(gz)? {
            Event::Member(start) => {
                if members.len() == MOST_MEMBERS {
                    return Err(ImageError::refused(
                        "gzip file",
                        format!("it has more than {MOST_MEMBERS} members"),
                        "compress the image again with gzip or pigz",
                    ));
                }
                checkpoint = start.offset;
                let data = start.data;
                members.push(Member {
                    data,
                    last_block: data * 8,
                    end: data * 8,
                    inflated: (start.offset, start.offset),
                });
            }
            Event::Block(block) => {
                if let (true, Some(member)) = (block.last, members.last_mut()) {
                    member.last_block = block.bit;
                }
                if block.offset >= checkpoint + DENSE {
                    checkpoint = block.offset;
                    let window = stream.window().to_vec();
                    send(Work::Checkpoint { bit: block.bit, offset: block.offset, window })?;
                }
            }
            Event::Chunk => {
                let (buffer, range) = stream.swap_chunk(buffers.try_recv().unwrap_or_default());
                send(Work::Bytes(buffer, range))?;
                let up_to = stream.position() / 8;
                send(Work::Compressed { up_to })?;
                progress(up_to);
            }
            Event::MemberEnd(end) => {
                if let Some(member) = members.last_mut() {
                    member.end = end.bit;
                    member.inflated.1 = end.offset;
                }
                let (buffer, range) = stream.swap_chunk(buffers.try_recv().unwrap_or_default());
                send(Work::Bytes(buffer, range))?;
                send(Work::MemberEnd(end))?;
            }
            Event::End => {
                send(Work::Compressed { up_to: gz.len() })?;
                return Ok(members);
            }
        }
    }
}

/// Everything that is counted over the bytes.
struct Hasher<'a> {
    patch: Option<&'a Patch>,
    gz_hashed: u64,
    gz_sha256: Sha256,
    inflated_sha256: Sha256,
    patched_sha256: Option<Sha256>,
    /// Of all members before this one.
    crc32: u32,
    member_crc32: crc32fast::Hasher,
    member_offset: u64,
    offset: u64,
    checkpoints: Vec<Checkpoint>,
}

impl<'a> Hasher<'a> {
    fn new(patch: Option<&'a Patch>) -> Self {
        Hasher {
            patch,
            gz_hashed: 0,
            gz_sha256: Sha256::new(),
            inflated_sha256: Sha256::new(),
            patched_sha256: patch.map(|_| Sha256::new()),
            crc32: 0,
            member_crc32: crc32fast::Hasher::new(),
            member_offset: 0,
            offset: 0,
            checkpoints: Vec::new(),
        }
    }

    fn run(
        mut self,
        gz: &(impl ReadAt + ?Sized),
        work: &Receiver<Work>,
        give_back: &dyn Fn(Vec<u8>),
    ) -> Result<Self, ImageError> {
        while let Ok(work) = work.recv() {
            match work {
                Work::Bytes(mut buffer, range) => {
                    self.hash(&mut buffer[range]);
                    give_back(buffer);
                }
                Work::Compressed { up_to } => {
                    let gz_sha256 = &mut self.gz_sha256;
                    read_pieces(gz, self.gz_hashed..up_to, |piece| gz_sha256.update(piece))
                        .map_err(ImageError::read("the gzip file"))?;
                    self.gz_hashed = up_to;
                }
                Work::Checkpoint { bit, offset, window } => {
                    self.checkpoints.push(Checkpoint::new(bit, offset, &window));
                }
                Work::MemberEnd(end) => self.end_member(end)?,
            }
        }
        Ok(self)
    }

    fn hash(&mut self, bytes: &mut [u8]) {
        self.member_crc32.update(bytes);
        self.inflated_sha256.update(bytes);
        if let (Some(patch), Some(sha256)) = (self.patch, &mut self.patched_sha256) {
            patch.apply(self.offset, bytes);
            sha256.update(bytes);
        }
        self.offset += bytes.len() as u64;
    }

    fn end_member(&mut self, end: MemberEnd) -> Result<(), ImageError> {
        let crc32 = std::mem::take(&mut self.member_crc32).finalize();
        let length = self.offset - self.member_offset;
        let part = || format!("gzip data before byte {}", end.bit.div_ceil(8));
        if crc32 != end.crc32 {
            let problem = format!("its CRC-32 is {crc32:08x}, the file says {:08x}", end.crc32);
            return Err(ImageError::damaged(part(), problem));
        }
        if length as u32 != end.length {
            let problem = format!("it holds {length} bytes, the file says {} (modulo 2^32)", end.length);
            return Err(ImageError::damaged(part(), problem));
        }
        self.crc32 = crc32_combine(self.crc32, crc32, length);
        self.member_offset = self.offset;
        Ok(())
    }
}
