//! `bases/NAME/prepared`: what composing needs to know of a base, so that it need not look at the base again.
//!
//! One line of JSON, then bytes that it refers to: the index of a .gz and the pages that edits read. The JSON has its own
//! format number, because what can be prepared changes more often than the store.

use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::pages::Page;
use super::record::{Piece, parse_json};
use crate::coreos::KnownInitramfs;
use crate::digest::SavedSha256;
use crate::error::ImageError;
use crate::qcow2::TailBase;

/// More than any base needs; the goal is less than 1 MB.
const LONGEST: u64 = 16 << 20;

/// The line of JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Prepared {
    format: u32,
    pub(super) plan: Plan,
}

/// How images are made of this base.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Plan {
    /// Pieces that all hosts share, then a tail.
    Qcow2(Box<Qcow2Plan>),
    /// Blocks within the disk.
    Raw {
        initramfs: KnownInitramfs,
        /// Where the index of the .gz lies among the bytes, if the disk is compressed.
        index: Option<Range<u64>>,
    },
    /// Areas of the ISO.
    LiveIso,
    /// An archive behind the end.
    Initrd { sha256: SavedSha256 },
}

/// For a qcow2, compressed or not.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Qcow2Plan {
    pub(super) tables: TailBase,
    pub(super) initramfs: KnownInitramfs,
    /// Everything before the tail.
    pub(super) pieces: Vec<Piece>,
    /// Their sha256, to be continued.
    pub(super) sha256: SavedSha256,
    pub(super) gz: Option<GzPlan>,
}

/// What a compressed qcow2 needs beside that.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct GzPlan {
    /// CRC-32 of what the shared pieces hold.
    pub(super) crc32: u32,
    /// Its length.
    pub(super) inflated_len: u64,
    /// Its sha256, to be continued.
    pub(super) inflated_sha256: SavedSha256,
    /// Where the index lies among the bytes.
    pub(super) index: Range<u64>,
    /// Where the pages lie among the bytes.
    pub(super) pages: Range<u64>,
    pub(super) page_list: Vec<Page>,
}

impl Prepared {
    pub(super) fn new(plan: Plan) -> Self {
        Prepared { format: 1, plan }
    }

    /// The line with its end.
    pub(super) fn line(&self) -> Result<Vec<u8>, ImageError> {
        let mut line = serde_json::to_vec(self)
            .map_err(|error| ImageError::Write { what: "what was prepared".into(), source: error.into() })?;
        line.push(b'\n');
        Ok(line)
    }

    /// Reads the file: the line, and the bytes after it.
    pub(super) fn read(path: &Path) -> Result<(Prepared, Vec<u8>), ImageError> {
        let what = format!("`{}`", path.display());
        let file = std::fs::File::open(path).map_err(ImageError::read(&*what))?;
        let mut reader = BufReader::new(file.take(LONGEST));
        let mut line = Vec::new();
        reader.read_until(b'\n', &mut line).map_err(ImageError::read(&*what))?;
        let prepared = parse_json(&what, &line)?;
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map_err(ImageError::read(&*what))?;
        Ok((prepared, bytes))
    }
}

/// A part of the bytes after the line.
pub(super) fn part<'b>(bytes: &'b [u8], range: &Range<u64>) -> Result<&'b [u8], ImageError> {
    usize::try_from(range.start)
        .ok()
        .zip(usize::try_from(range.end).ok())
        .and_then(|(start, end)| bytes.get(start..end))
        .ok_or_else(|| {
            ImageError::damaged("what the store prepared for a base", "it ends too early; import the base again")
        })
}
