//! Disks inside gzip: inflated once to find everything, and kept compressed where nothing changes.

use super::disk::{NO_RECORD, Record, edit_qcow2, edit_raw};
use super::{Bytes, Change, Composition, Original, Packing, Progress};
use crate::coreos::{self, KnownInitramfs};
use crate::format::Content;
use crate::gz_index::{GzDisk, GzIndex, scan};
use crate::qcow2::Qcow2;
use crate::splice::{self, OpenStream, Undo};
use crate::{Carried, Composed, ImageError, ReadAt, Segment};

/// Said where the disk inside can be restored to the byte and the .gz around it cannot.
const ANEW: &str = "the original .gz does not fit into the header of the new one: `kiln image reset` will restore the disk in it, \
                    compressed in another way";

/// Said where somebody compressed a customised disk: nobody knows how the original would have been compressed.
const SAME_DISK: &str = "the disk is the original to the byte; the .gz around it is compressed anew";

pub(super) fn plan<'a>(
    file: &'a (impl ReadAt + Sync),
    content: Content,
    change: Change<'_>,
    progress: Progress<'_>,
) -> Result<Composition<'a>, ImageError> {
    let mut current = None;
    let base: Bytes<'a> = match splice::restore(file)? {
        Some(segments) => {
            if matches!(change, Change::Reset) {
                let whole = Composed::new(file, segments.clone()).map_err(ImageError::read("gzip file"))?;
                let carries = carried(&whole, content);
                return Composition::of(Box::new(file), segments, Vec::new(), Original::Same, carries);
            }
            current = Some(GzDisk::new(file));
            Box::new(Composed::new(file, segments).map_err(ImageError::read("gzip file"))?)
        }
        None => Box::new(file),
    };
    let total = base.len();
    let index = scan(&base, None, |done| progress(done, total))?.index;
    let edited: Option<&dyn ReadAt> = current.as_ref().map(|disk| -> &dyn ReadAt { disk });
    let restored = edited.is_some();
    let mut composition = match content {
        Content::Qcow2 => plan_qcow2(base, &index, edited, change)?,
        _ => {
            let RawGz { segments, notes, original, carries } = edit_raw_gz(&base, &index, edited, change, None)?;
            Composition::of(base, segments, notes, original, carries)?
        }
    };
    if restored {
        // They are ranges of the original, which is not a file.
        composition.segments = None;
    }
    Ok(composition)
}

/// What the disk in a .gz holds. A disk that cannot be read keeps its secrets, if it has any.
fn carried(gz: &impl ReadAt, content: Content) -> Carried {
    let disk = GzDisk::new(gz);
    let facts = match content {
        Content::Qcow2 => Qcow2::open(&disk).and_then(|guest| coreos::probe(&guest)),
        _ => coreos::probe(&disk),
    };
    facts.map_or(Carried { config: true, ..Carried::default() }, |facts| facts.boot.carried())
}

/// A .gz with another disk in it.
pub(crate) struct RawGz {
    /// Of the .gz.
    pub(crate) segments: Vec<Segment>,
    pub(crate) notes: Vec<String>,
    pub(crate) original: Original,
    pub(crate) carries: Carried,
}

/// What becomes of a compressed raw disk: it is spliced in the middle. The .gz remembers the original if that fits, else
/// the disk does. `edited` and `known` are as for [`edit_raw`].
pub(crate) fn edit_raw_gz(
    base: &impl ReadAt,
    index: &GzIndex,
    edited: Option<&dyn ReadAt>,
    change: Change<'_>,
    known: Option<KnownInitramfs>,
) -> Result<RawGz, ImageError> {
    let disk = GzDisk::with_index(base, index);
    let mut edit = edit_raw(&disk, edited, change, Record::Omit, known)?;
    let open = if edit.patch.is_empty() {
        None
    } else if edit.original == Original::Lost {
        Some(splice::open(base, index, &edit.patch, Undo::Omit)?)
    } else {
        let open = (!edit.remembered).then(|| splice::open(base, index, &edit.patch, Undo::Keep)).transpose()?;
        match open.filter(|open| open.can_be_restored) {
            Some(open) => Some(open),
            None => {
                // The original file does not fit into the header, or is not this one: then the disk inside remembers itself.
                edit = edit_raw(&disk, edited, change, Record::Keep, known)?;
                match edit.original {
                    Original::Same => {
                        edit.notes.push(SAME_DISK.to_owned());
                        edit.original = Original::SameDisk;
                    }
                    Original::Remembered => {
                        edit.notes.push(ANEW.to_owned());
                        edit.original = Original::Lost;
                    }
                    Original::SameDisk | Original::Lost => {}
                }
                Some(splice::open(base, index, &edit.patch, Undo::Omit)?)
            }
        }
    };
    let segments = open.map_or_else(|| Ok(vec![Segment::Base(0..base.len())]), |open| closed(open, &[]))?;
    Ok(RawGz { segments, notes: edit.notes, original: edit.original, carries: edit.carries })
}

fn plan_qcow2<'a>(
    base: Bytes<'a>,
    index: &GzIndex,
    edited: Option<&dyn ReadAt>,
    change: Change<'_>,
) -> Result<Composition<'a>, ImageError> {
    let disk = GzDisk::with_index(&base, index);
    let mut edit = edit_qcow2(&disk, edited, change)?;
    drop(disk);
    match edit.over {
        Some((patch, tail)) => {
            let undo = if edit.for_good { Undo::Omit } else { Undo::Keep };
            let open = splice::open(&base, index, &patch, undo)?;
            if open.can_be_restored {
                // Whatever the disk inside remembers, the .gz remembers all of it.
                edit.notes.retain(|note| note != NO_RECORD);
                edit.original = Original::Remembered;
            } else if undo == Undo::Keep {
                edit.notes.push(ANEW.to_owned());
                edit.original = Original::Lost;
            }
            let segments = closed(open, &tail)?;
            Composition::of(base, segments, edit.notes, edit.original, edit.carries)
        }
        None if edit.segments == [Segment::Base(0..index.inflated_len)] => {
            let whole = vec![Segment::Base(0..base.len())];
            Composition::of(base, whole, edit.notes, edit.original, edit.carries)
        }
        // The file inside gets shorter, which no splice can do.
        None => {
            if edit.original == Original::Same {
                edit.notes.push(SAME_DISK.to_owned());
                edit.original = Original::SameDisk;
            }
            let disk = Box::new(GzDisk::with_index(base, index));
            let plain = Composition::of(disk, edit.segments, edit.notes, edit.original, edit.carries)?;
            Ok(Composition { packing: Packing::Gzip, segments: None, ..plain })
        }
    }
}

fn closed(open: OpenStream, tail: &[u8]) -> Result<Vec<Segment>, ImageError> {
    let mut segments = open.segments;
    segments.push(Segment::Own(splice::close(open.crc32, open.inflated_len, tail)?));
    Ok(segments)
}
