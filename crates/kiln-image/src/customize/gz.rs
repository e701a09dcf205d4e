//! Disks inside gzip: inflated once to find everything, and kept compressed where nothing changes.

use super::disk::{NO_RECORD, Record, edit_qcow2, edit_raw};
use super::{Bytes, Change, Composition, Original, Packing, Progress, composed};
use crate::format::Content;
use crate::gz_index::{GzDisk, GzIndex, scan};
use crate::splice::{self, OpenStream, Undo};
use crate::{Composed, ImageError, Patch, ReadAt, Segment};

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
            current = Some(GzDisk::new(file));
            let whole = Composed::new(file, segments).map_err(ImageError::read("gzip file"))?;
            if matches!(change, Change::Reset) {
                return Ok(Composition {
                    image: Box::new(whole),
                    packing: Packing::AsIs,
                    notes: Vec::new(),
                    original: Original::Same,
                });
            }
            Box::new(whole)
        }
        None => Box::new(file),
    };
    let total = base.len();
    let index = scan(&base, None, |done| progress(done, total))?.index;
    let edited: Option<&dyn ReadAt> = current.as_ref().map(|disk| -> &dyn ReadAt { disk });
    match content {
        Content::Qcow2 => plan_qcow2(base, &index, edited, change),
        _ => plan_raw(base, &index, edited, change),
    }
}

fn plan_raw<'a>(
    base: Bytes<'a>,
    index: &GzIndex,
    edited: Option<&dyn ReadAt>,
    change: Change<'_>,
) -> Result<Composition<'a>, ImageError> {
    let disk = GzDisk::with_index(&base, index);
    let edit = edit_raw(&disk, edited, change, Record::Omit)?;
    if edit.patch.is_empty() {
        drop(disk);
        return Ok(Composition { image: base, packing: Packing::AsIs, notes: edit.notes, original: edit.original });
    }
    if edit.original == Original::Lost {
        drop(disk);
        let open = splice::open(&base, index, &edit.patch, Undo::Omit)?;
        return spliced(base, open, &[], edit.notes, Original::Lost);
    }
    if !edit.remembered {
        let open = splice::open(&base, index, &edit.patch, Undo::Keep)?;
        if open.can_be_restored {
            drop(disk);
            return spliced(base, open, &[], edit.notes, Original::Remembered);
        }
    }
    // The original file does not fit into the header, or is not this one: then the disk inside remembers itself.
    let mut edit = edit_raw(&disk, edited, change, Record::Keep)?;
    drop(disk);
    match edit.original {
        Original::Same => edit.notes.push(SAME_DISK.to_owned()),
        Original::Remembered => {
            edit.notes.push(ANEW.to_owned());
            edit.original = Original::Lost;
        }
        Original::Lost => {}
    }
    let open = splice::open(&base, index, &edit.patch, Undo::Omit)?;
    spliced(base, open, &[], edit.notes, edit.original)
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
    match edit.ends {
        Some((header, tail)) => {
            let mut patch = Patch::new();
            patch.write(0, &header);
            let undo = if matches!(change, Change::Reset) { Undo::Omit } else { Undo::Keep };
            let open = splice::open(&base, index, &patch, undo)?;
            if open.can_be_restored {
                // Whatever the disk inside remembers, the .gz remembers all of it.
                edit.notes.retain(|note| note != NO_RECORD);
                edit.original = Original::Remembered;
            } else if undo == Undo::Keep {
                edit.notes.push(ANEW.to_owned());
                edit.original = Original::Lost;
            }
            spliced(base, open, &tail, edit.notes, edit.original)
        }
        None if edit.segments == [Segment::Base(0..index.inflated_len)] => {
            Ok(Composition { image: base, packing: Packing::AsIs, notes: edit.notes, original: edit.original })
        }
        // The file inside gets shorter, which no splice can do.
        None => {
            if edit.original == Original::Same {
                edit.notes.push(SAME_DISK.to_owned());
            }
            Ok(Composition {
                image: composed(Box::new(GzDisk::with_index(base, index)), edit.segments)?,
                packing: Packing::Gzip,
                notes: edit.notes,
                original: edit.original,
            })
        }
    }
}

fn spliced<'a>(
    base: Bytes<'a>,
    open: OpenStream,
    tail: &[u8],
    notes: Vec<String>,
    original: Original,
) -> Result<Composition<'a>, ImageError> {
    let mut segments = open.segments;
    segments.push(Segment::Own(splice::close(open.crc32, open.inflated_len, tail)?));
    Ok(Composition { image: composed(base, segments)?, packing: Packing::AsIs, notes, original })
}
