//! Writes a composed image and takes its sha256 in the same pass.
//!
//! One thread reads and writes, another one hashes. Where the image is its file with a few bytes replaced, the kernel copies
//! the file and this process only hashes. Where the image must be compressed, every core deflates pieces of it, which are
//! joined to a single gzip member.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use kiln_image::customize::{Composition, Packing};
use kiln_image::digest::Sha256;
use kiln_image::{ImageError, ReadAt, Segment};

use super::super::output::Failure;
use super::clone::{keeps_places, write_clone};
use super::open::failure;
use super::output_file::{Existing, OutputFile, Readers};
use super::progress::Progress;
use super::secrets::has_secrets;
use super::sparse::SparseFile;

/// What is read, hashed and deflated at once.
const PIECE: usize = 1 << 20;
/// Pieces that wait for the hasher at most.
const QUEUE: usize = 4;
/// No name, no time, no system: the same image gives the same bytes.
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// A file that was written.
pub struct Written {
    /// Hexadecimal.
    pub sha256: String,
    /// How many bytes.
    pub bytes: u64,
}

/// Writes to a file that gets its name at the end, or to standard output for `-`. `source` is the file of which the image's
/// segments are. A file with secrets in it is for its owner only.
pub fn write(
    image: &Composition<'_>,
    packing: Packing,
    source: Option<&File>,
    target: &Path,
    existing: Existing,
) -> Result<Written, Failure> {
    let context = || format!("`{}` was not written", target.display());
    if target.as_os_str() == "-" {
        let mut output = io::stdout().lock();
        let written = copy(image, packing, &mut output).map_err(|error| failure(error, context()))?;
        output.flush()?;
        return Ok(written);
    }
    let readers = if has_secrets(&image.carries) { Readers::Owner } else { Readers::Everybody };
    let output = OutputFile::create(target, existing, readers)?;
    let cloned = source.zip(image.segments.as_ref()).filter(|(_, segments)| keeps_places(segments));
    let written = match cloned.filter(|_| packing == Packing::AsIs) {
        Some((source, segments)) => copy_by_kernel(image, source, segments, output.file()),
        None => copy_through(image, packing, output.file()),
    };
    let written = written.map_err(|error| failure(error, context()))?;
    output.finish()?;
    Ok(written)
}

/// Reads the image here, and leaves its zeros out.
fn copy_through(image: &Composition<'_>, packing: Packing, output: &File) -> Result<Written, ImageError> {
    let mut sparse = SparseFile::new(output.try_clone().map_err(cannot_write)?);
    let written = copy(image, packing, &mut sparse)?;
    sparse.finish().map_err(cannot_write)?;
    Ok(written)
}

/// Lets the kernel copy what stays, and hashes meanwhile.
fn copy_by_kernel(
    image: &Composition<'_>,
    source: &File,
    segments: &[Segment],
    output: &File,
) -> Result<Written, ImageError> {
    thread::scope(|scope| {
        let copying = scope.spawn(|| write_clone(source, segments, output));
        let written = copy(image, Packing::AsIs, &mut io::sink());
        let copied = copying.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        copied.map_err(cannot_write).and(written)
    })
}

fn cannot_write(source: io::Error) -> ImageError {
    ImageError::Write { what: "the image".to_owned(), source }
}

fn copy(image: &Composition<'_>, packing: Packing, output: &mut impl Write) -> Result<Written, ImageError> {
    let (to_hasher, pieces) = sync_channel::<Vec<u8>>(QUEUE);
    let (give_back, used) = sync_channel::<Vec<u8>>(QUEUE);
    thread::scope(|scope| {
        let hasher = scope.spawn(move || {
            let mut sha256 = Sha256::new();
            let mut bytes = 0;
            for piece in pieces {
                sha256.update(&piece);
                bytes += piece.len() as u64;
                // Memory that another thread gave is slow to come back to it by way of the allocator.
                let _ = give_back.try_send(piece);
            }
            Written { sha256: sha256.finish(), bytes }
        });
        let mut output = Hashed { output, to_hasher, used };
        let copied = match packing {
            Packing::AsIs => copy_plain(&image.image, &mut output),
            Packing::Gzip => copy_deflated(&image.image, &mut output),
        };
        drop(output);
        let written = hasher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        copied.map(|()| written)
    })
}

/// Writes pieces and hands them to the hasher.
struct Hashed<'a, W> {
    output: &'a mut W,
    to_hasher: SyncSender<Vec<u8>>,
    /// What the hasher is done with.
    used: Receiver<Vec<u8>>,
}

impl<W: Write> Hashed<'_, W> {
    fn write(&mut self, piece: Vec<u8>) -> Result<(), ImageError> {
        self.output.write_all(&piece).map_err(cannot_write)?;
        // The hasher lives until this end is dropped.
        let _ = self.to_hasher.send(piece);
        Ok(())
    }
}

/// Where the pieces of an image are.
fn pieces(length: u64) -> impl Iterator<Item = (u64, usize)> {
    (0..length).step_by(PIECE).map(move |offset| (offset, (length - offset).min(PIECE as u64) as usize))
}

fn read_piece(image: &impl ReadAt, (offset, length): (u64, usize), mut buffer: Vec<u8>) -> Result<Vec<u8>, ImageError> {
    buffer.resize(length, 0);
    image.read_exact_at(offset, &mut buffer).map_err(ImageError::read("the image"))?;
    Ok(buffer)
}

fn copy_plain(image: &impl ReadAt, output: &mut Hashed<'_, impl Write>) -> Result<(), ImageError> {
    let mut progress = Progress::new("writing", image.len());
    for piece in pieces(image.len()) {
        let buffer = output.used.try_recv().unwrap_or_default();
        progress.advance(piece.1 as u64);
        output.write(read_piece(image, piece, buffer)?)?;
    }
    Ok(())
}

fn copy_deflated(image: &impl ReadAt, output: &mut Hashed<'_, impl Write>) -> Result<(), ImageError> {
    let mut progress = Progress::new("compressing", image.len());
    let mut crc32 = crc32fast::Hasher::new();
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get().min(16));
    let mut pieces = pieces(image.len()).map(|piece| read_piece(image, piece, Vec::new()));
    output.write(GZIP_HEADER.to_vec())?;
    loop {
        let batch: Vec<Vec<u8>> = pieces.by_ref().take(cores).collect::<Result<_, _>>()?;
        if batch.is_empty() {
            break;
        }
        let deflated: Vec<io::Result<Vec<u8>>> = thread::scope(|scope| {
            let threads: Vec<_> = batch.iter().map(|piece| scope.spawn(move || deflate(piece))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        for (piece, deflated) in batch.iter().zip(deflated) {
            crc32.update(piece);
            output.write(deflated.map_err(cannot_write)?)?;
            progress.advance(piece.len() as u64);
        }
    }
    // An empty last block, then checksum and length.
    let mut end = vec![3, 0];
    end.extend_from_slice(&crc32.finalize().to_le_bytes());
    end.extend_from_slice(&(image.len() as u32).to_le_bytes());
    output.write(end)
}

/// One piece of a stream: it refers to nothing before it and ends on a byte.
fn deflate(piece: &[u8]) -> io::Result<Vec<u8>> {
    let mut deflate = flate2::Compress::new(flate2::Compression::new(6), false);
    let mut output = Vec::with_capacity(piece.len() / 2 + 1024);
    loop {
        let done = deflate.total_in() as usize;
        deflate.compress_vec(&piece[done..], &mut output, flate2::FlushCompress::Sync).map_err(io::Error::other)?;
        if deflate.total_in() as usize == piece.len() && output.len() < output.capacity() {
            return Ok(output);
        }
        output.reserve(output.capacity().max(4096));
    }
}
