//! Raw disks and qcow2 files that are not compressed.

use super::derive::plan_change;
use super::{Bytes, Change, Composition, Original, Packing, composed};
use crate::gpt::Gpt;
use crate::qcow2::{self, Qcow2, TailBase};
use crate::{ImageError, Patch, Patched, ReadAt, Segment, undo};

/// Said where an edit leaves no way back.
pub(super) const NO_RECORD: &str = "there is no room for a record of the original: `kiln image reset` will take the changes out, but not restore the bytes";

pub(super) fn plan_raw<'a>(file: Bytes<'a>, change: Change<'_>) -> Result<Composition<'a>, ImageError> {
    let edit = edit_raw(&file, None, change, Record::Keep)?;
    let segments = edit.patch.segments(file.len());
    Ok(Composition {
        image: composed(file, segments)?,
        packing: Packing::AsIs,
        notes: edit.notes,
        original: edit.original,
    })
}

/// Whether an edit of a raw disk carries the way back in the disk itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record {
    Keep,
    Omit,
}

pub(super) struct RawEdit {
    /// Over the disk as it is now.
    pub patch: Patch,
    pub notes: Vec<String>,
    pub original: Original,
    /// Whether the disk itself remembered an original.
    pub remembered: bool,
}

/// What changes on a raw disk. `edited` is a customised form of it, if whatever is around the disk remembered the original.
pub(super) fn edit_raw(
    disk: &impl ReadAt,
    edited: Option<&dyn ReadAt>,
    change: Change<'_>,
    record: Record,
) -> Result<RawEdit, ImageError> {
    let gap = Gpt::read(disk)?.unused_gap();
    let back = undo::original(disk, gap.clone())?;
    let before = Patched::with(disk, back.clone().unwrap_or_default());
    let edited: Option<&dyn ReadAt> = if back.is_some() { Some(&disk) } else { edited };
    let (mut patch, mut notes) = plan_change(&before, edited, change)?;
    let original = if patch.is_empty() {
        Original::Same
    } else if matches!(change, Change::Reset) {
        // What was there before is what the user wants to be rid of: a second reset must not bring it back.
        Original::Lost
    } else if record == Record::Omit || undo::record(&before, gap, &mut patch)? {
        Original::Remembered
    } else {
        notes.push(NO_RECORD.to_owned());
        Original::Lost
    };
    let remembered = back.is_some();
    let mut whole = back.unwrap_or_default();
    patch.pieces().for_each(|(offset, bytes)| whole.write(offset, bytes));
    Ok(RawEdit { patch: whole, notes, original, remembered })
}

pub(super) fn plan_qcow2<'a>(file: Bytes<'a>, change: Change<'_>) -> Result<Composition<'a>, ImageError> {
    let QcowEdit { segments, notes, original, .. } = edit_qcow2(&file, None, change)?;
    Ok(Composition { image: composed(file, segments)?, packing: Packing::AsIs, notes, original })
}

pub(super) struct QcowEdit {
    /// Of the file as it is now.
    pub segments: Vec<Segment>,
    pub notes: Vec<String>,
    pub original: Original,
    /// The new first bytes and what comes behind the end, where the file is otherwise kept whole.
    pub ends: Option<(Vec<u8>, Vec<u8>)>,
}

/// What becomes of a qcow2 file. `edited` is as for [`edit_raw`].
pub(super) fn edit_qcow2(
    file: &impl ReadAt,
    edited: Option<&dyn ReadAt>,
    change: Change<'_>,
) -> Result<QcowEdit, ImageError> {
    let before = qcow2::original(file)?;
    let header = Qcow2::undo(&file)?.map(|undo| undo.header);
    let edited: Option<&dyn ReadAt> = if header.is_some() { Some(&file) } else { edited };
    let edited = edited.map(Qcow2::open).transpose()?;
    let edited: Option<&dyn ReadAt> = edited.as_ref().map(|guest| -> &dyn ReadAt { guest });
    let (patch, mut notes) = plan_change(&Qcow2::open(&before)?, edited, change)?;
    if patch.is_empty() {
        let header = header.unwrap_or_default();
        let rest = header.len() as u64..before.len();
        let segments = [Segment::Own(header), Segment::Base(rest)].into_iter().filter(|segment| !segment.is_empty());
        return Ok(QcowEdit { segments: segments.collect(), notes, original: Original::Same, ends: None });
    }
    let base = TailBase::read(&before)?;
    let mut tail = base.plan(&before, &patch)?;
    let original = if matches!(change, Change::Reset) {
        tail.forget_original();
        Original::Lost
    } else if base.records_undo() {
        Original::Remembered
    } else {
        notes.push(NO_RECORD.to_owned());
        Original::Lost
    };
    // A file of Kiln's is cut where the original ended; any other one is kept whole.
    let ends = header.is_none().then(|| (tail.header.clone(), tail.bytes.clone()));
    let kept = tail.header.len() as u64..tail.offset;
    let segments = vec![Segment::Own(tail.header), Segment::Base(kept), Segment::Own(tail.bytes)];
    Ok(QcowEdit { segments, notes, original, ends })
}
