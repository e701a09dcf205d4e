//! [`GzDisk`]: what a .gz holds, read anywhere.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Checkpoint, DENSE, GzIndex};
use crate::ImageError;
use crate::gzip::{Event, GzStream};
use crate::read_at::ReadAt;

/// Inflated bytes are kept in pieces of this size,
const PAGE: u64 = 128 * 1024;
/// and as many of them.
const PAGES: usize = 128;
/// Deflate cannot make data smaller than this.
const BEST_RATIO: u64 = 1032;

/// What a .gz holds, as if it were not compressed.
///
/// A place far behind all that was read before costs inflating everything up to it, once. Reading does not check CRCs.
#[derive(Debug)]
pub struct GzDisk<D> {
    gz: D,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    checkpoints: BTreeMap<u64, Checkpoint>,
    length: Option<u64>,
    pages: BTreeMap<u64, (u64, Arc<Vec<u8>>)>,
    clock: u64,
    cursor: Option<Cursor>,
}

/// An inflater that stopped somewhere, and the page it is in the middle of.
#[derive(Debug)]
struct Cursor {
    stream: GzStream,
    /// The first byte of the page that is being filled.
    page: u64,
    /// What was inflated of it. When the inflater started within a page, that page is not filled.
    partial: Option<Vec<u8>>,
}

impl<D: ReadAt> GzDisk<D> {
    /// Knows nothing yet, not even the length.
    pub fn new(gz: D) -> Self {
        GzDisk { gz, state: Mutex::default() }
    }

    /// Knows what a scan found.
    pub fn with_index(gz: D, index: &GzIndex) -> Self {
        let mut checkpoints: BTreeMap<u64, Checkpoint> =
            index.checkpoints.iter().map(|checkpoint| (checkpoint.offset, checkpoint.clone())).collect();
        for member in &index.members {
            let start = Checkpoint::new(member.data * 8, member.inflated.0, &[]);
            checkpoints.insert(member.inflated.0, start);
        }
        let state = State { checkpoints, length: Some(index.inflated_len), ..State::default() };
        GzDisk { gz, state: Mutex::new(state) }
    }

    /// The .gz.
    pub fn gz(&self) -> &D {
        &self.gz
    }

    /// The length of what it holds, if it is known: after a scan, or after its end was reached.
    pub fn known_len(&self) -> Option<u64> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).length
    }
}

impl<D: ReadAt> ReadAt for GzDisk<D> {
    /// The length if it is known, else the most it can be. A read past the end fails as it does elsewhere.
    fn len(&self) -> u64 {
        self.known_len().unwrap_or_else(|| self.gz.len().saturating_mul(BEST_RATIO))
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut done = 0;
        while done < buffer.len() {
            let at = offset.checked_add(done as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
            let page = state.page(&self.gz, at / PAGE * PAGE)?;
            let within = (at % PAGE) as usize;
            let Some(bytes) = page.get(within..).filter(|bytes| !bytes.is_empty()) else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            let length = bytes.len().min(buffer.len() - done);
            buffer[done..done + length].copy_from_slice(&bytes[..length]);
            done += length;
        }
        Ok(())
    }
}

impl State {
    /// A page; shorter than others at the end, empty after it.
    fn page(&mut self, gz: &impl ReadAt, start: u64) -> io::Result<Arc<Vec<u8>>> {
        self.clock += 1;
        if let Some((used, page)) = self.pages.get_mut(&start) {
            *used = self.clock;
            return Ok(page.clone());
        }
        if self.length.is_some_and(|length| start >= length) {
            return Ok(Arc::default());
        }
        let mut cursor = self.cursor_before(gz, start).map_err(io::Error::other)?;
        while cursor.page <= start {
            let event = cursor.stream.step(gz).map_err(io::Error::other)?;
            if let Event::Block(block) = event
                && self.checkpoints.range(..=block.offset).next_back().is_none_or(|(at, _)| at + DENSE <= block.offset)
            {
                let checkpoint = Checkpoint::new(block.bit, block.offset, cursor.stream.window());
                self.checkpoints.insert(block.offset, checkpoint);
            }
            let offset = cursor.stream.offset();
            let bytes = cursor.stream.chunk();
            let mut at = offset - bytes.len() as u64;
            let mut bytes = bytes;
            while !bytes.is_empty() {
                let (now, later) = bytes.split_at(bytes.len().min((cursor.page + PAGE - at) as usize));
                if let Some(partial) = &mut cursor.partial {
                    partial.extend_from_slice(now);
                }
                at += now.len() as u64;
                bytes = later;
                if at == cursor.page + PAGE {
                    let full = cursor.partial.replace(Vec::with_capacity(PAGE as usize));
                    if let Some(full) = full.filter(|_| cursor.page + PAGE * PAGES as u64 / 2 > start) {
                        self.insert(cursor.page, full);
                    }
                    cursor.page = at;
                }
            }
            if event == Event::End {
                self.length = Some(offset);
                self.insert(cursor.page, cursor.partial.unwrap_or_default());
                return Ok(self.pages.get(&start).map(|(_, page)| page.clone()).unwrap_or_default());
            }
        }
        self.cursor = Some(cursor);
        Ok(self.pages.get(&start).map(|(_, page)| page.clone()).unwrap_or_default())
    }

    /// The nearest place to start from: where the last read stopped, or a checkpoint.
    fn cursor_before(&mut self, gz: &impl ReadAt, start: u64) -> Result<Cursor, ImageError> {
        let checkpoint = self.checkpoints.range(..=start).next_back().map(|(_, checkpoint)| checkpoint);
        let at = checkpoint.map_or(0, |checkpoint| checkpoint.offset);
        let usable = |cursor: &mut Cursor| {
            let first_page = if cursor.partial.is_some() { cursor.page } else { cursor.page + PAGE };
            first_page <= start && cursor.stream.offset() >= at
        };
        if let Some(cursor) = self.cursor.take_if(usable) {
            return Ok(cursor);
        }
        let stream = match checkpoint {
            Some(checkpoint) => checkpoint.start(gz)?,
            None => GzStream::new(gz)?,
        };
        let partial = at.is_multiple_of(PAGE).then(Vec::new);
        Ok(Cursor { stream, page: at / PAGE * PAGE, partial })
    }

    fn insert(&mut self, start: u64, page: Vec<u8>) {
        if self.pages.len() >= PAGES
            && let Some(oldest) = self.pages.iter().min_by_key(|(_, (used, _))| *used).map(|(&start, _)| start)
        {
            self.pages.remove(&oldest);
        }
        self.pages.insert(start, (self.clock, Arc::new(page)));
    }
}
