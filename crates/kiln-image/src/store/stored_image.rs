//! One image of the store, opened: a list of ranges of three files.
//!
//! Nothing is copied and there is no position: any number of readers may read any part at once, and whoever sends the
//! image can hand the ranges to `sendfile`. The files stay open, so an image replaced meanwhile is still read whole.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use super::name::{BaseName, HostName};
use super::record::{BaseKind, BaseRecord, FileRecord, ImageRecord, PieceOf, parse_json, parse_sha256};
use crate::error::ImageError;
use crate::read_at::{ReadAt, check_range};

/// A list of pieces longer than this is damage, not an image.
const LONGEST_RECORD: u64 = 1 << 20;

/// An image that can be read anywhere.
#[derive(Debug)]
pub struct StoredImage {
    /// What it is.
    pub kind: BaseKind,
    /// How many bytes it has.
    pub size: u64,
    /// sha256 of all bytes, if known.
    pub sha256: Option<[u8; 32]>,
    /// The strong entity tag.
    pub etag: String,
    /// Whether it holds secrets.
    pub confidential: bool,
    files: [Option<File>; 3],
    /// Where each piece begins in the image, and where its bytes lie. Sorted; no gaps.
    places: Vec<Place>,
}

#[derive(Debug)]
struct Place {
    at: u64,
    file: usize,
    range: Range<u64>,
}

/// A part of an image: these bytes of this file.
#[derive(Debug)]
pub struct FileRange<'i> {
    /// The file.
    pub file: &'i File,
    /// Which bytes of it.
    pub range: Range<u64>,
}

impl StoredImage {
    pub(super) fn open(
        folder: &Path,
        base_name: &BaseName,
        base: &BaseRecord,
        host: &HostName,
        own: File,
    ) -> Result<Self, ImageError> {
        let what = format!("image of host `{host}` on base `{base_name}`");
        let mut line = Vec::new();
        let mut reader = BufReader::with_capacity(4096, &own);
        reader.by_ref().take(LONGEST_RECORD).read_until(b'\n', &mut line).map_err(ImageError::read(&*what))?;
        let record: ImageRecord = parse_json(&what, &line)?;
        if record.base_identity != base.identity {
            return Err(ImageError::refused(
                what,
                "it was composed from another import of this base",
                "compose it again: kiln image compose",
            ));
        }
        let own_start = line.len() as u64;
        let shared = super::open_if_there(&folder.join("shared"))?;
        let files = [Some(open_base(folder, base)?), shared, Some(own)];
        let damaged = |problem: &str| ImageError::damaged(&*what, problem);
        let lengths = lengths(&files).map_err(ImageError::read(&*what))?;
        let mut places = Vec::with_capacity(record.pieces.len());
        let mut at = 0u64;
        for piece in &record.pieces {
            let (file, shift) = match piece.0 {
                PieceOf::Base => (0, 0),
                PieceOf::Shared => (1, 0),
                PieceOf::Own => (2, own_start),
            };
            let range = piece.range();
            let (Some(start), Some(end)) = (range.start.checked_add(shift), range.end.checked_add(shift)) else {
                return Err(damaged("a piece lies outside its file"));
            };
            if start > end || end > lengths[file] {
                return Err(damaged("a piece lies outside its file"));
            }
            places.push(Place { at, file, range: start..end });
            at = at.checked_add(end - start).ok_or_else(|| damaged("its pieces are too long"))?;
        }
        if at != record.size {
            return Err(damaged("its pieces do not add up to its size"));
        }
        Ok(StoredImage {
            kind: base.kind,
            size: at,
            sha256: record.sha256.as_deref().and_then(parse_sha256),
            etag: checked_etag(&what, record.etag)?,
            confidential: record.confidential,
            files,
            places,
        })
    }

    pub(super) fn untouched(folder: &Path, base: &BaseRecord) -> Result<Self, ImageError> {
        let file = open_base(folder, base)?;
        let size = base.file.length;
        Ok(StoredImage {
            kind: base.kind,
            etag: checked_etag("base of the store", base.sha256.clone())?,
            sha256: parse_sha256(&base.sha256),
            size,
            confidential: false,
            files: [Some(file), None, None],
            places: vec![Place { at: 0, file: 0, range: 0..size }],
        })
    }

    /// Where the bytes of a range of the image lie, in order. A range beyond the end is cut off.
    pub fn file_ranges(&self, range: Range<u64>) -> impl Iterator<Item = FileRange<'_>> {
        let first =
            self.places.partition_point(|place| place.at + (place.range.end - place.range.start) <= range.start);
        self.places[first..].iter().take_while(move |place| place.at < range.end).filter_map(move |place| {
            let from = range.start.max(place.at) - place.at;
            let to = (range.end - place.at).min(place.range.end - place.range.start);
            let file = self.files[place.file].as_ref()?;
            (from < to).then(|| FileRange { file, range: place.range.start + from..place.range.start + to })
        })
    }
}

impl ReadAt for StoredImage {
    fn len(&self) -> u64 {
        self.size
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        check_range(offset, buffer.len(), self.size)?;
        let mut rest = buffer;
        for part in self.file_ranges(offset..offset + rest.len() as u64) {
            let (now, later) = rest.split_at_mut((part.range.end - part.range.start) as usize);
            part.file.read_exact_at(now, part.range.start)?;
            rest = later;
        }
        Ok(())
    }
}

impl FileRecord {
    /// How a file looks now.
    pub fn of(file: &File) -> io::Result<FileRecord> {
        let metadata = file.metadata()?;
        Ok(FileRecord { length: metadata.len(), modified: (metadata.mtime(), metadata.mtime_nsec()) })
    }
}

/// The imported file. It may be linked to one that its owner has changed since.
pub(super) fn open_base(folder: &Path, base: &BaseRecord) -> Result<File, ImageError> {
    let path = folder.join("image");
    let what = format!("`{}`", path.display());
    let file = File::open(&path).map_err(ImageError::read(&*what))?;
    if FileRecord::of(&file).map_err(ImageError::read(&*what))? != base.file {
        return Err(ImageError::refused(
            what,
            "the file has been changed since it was imported",
            "forget the base and import it again, without --link if others write to it",
        ));
    }
    Ok(file)
}

fn lengths(files: &[Option<File>; 3]) -> io::Result<[u64; 3]> {
    let mut lengths = [0; 3];
    for (length, file) in lengths.iter_mut().zip(files) {
        if let Some(file) = file {
            *length = file.metadata()?.len();
        }
    }
    Ok(lengths)
}

/// A tag goes into headers as it is.
fn checked_etag(what: &str, etag: String) -> Result<String, ImageError> {
    if !etag.is_empty() && etag.len() <= 100 && etag.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Ok(etag);
    }
    Err(ImageError::damaged(what, "its entity tag is not one"))
}
