//! Raw disks and qcow2 files that are not compressed.

use super::derive::{plan_change, takes_out_for_good};
use super::{Bytes, Change, Composition, Original};
use crate::coreos::{self, KnownInitramfs};
use crate::gpt::Gpt;
use crate::qcow2::{self, Qcow2, TailBase};
use crate::{Carried, ImageError, Patch, Patched, ReadAt, Segment, undo};

/// Said where an edit leaves no way back.
pub(super) const NO_RECORD: &str = "there is no room for a record of the original: `kiln image reset` will take the changes out, but not restore the bytes";

/// Said where what was taken out cannot be wiped: compressed clusters of a qcow2 share their place with others.
const SHARED: &str = "what was in the removed files may still lie in compressed clusters that other data share; \
                      `qemu-img convert -O qcow2 IMAGE NEW` leaves it behind";

pub(super) fn plan_raw<'a>(file: Bytes<'a>, change: Change<'_>) -> Result<Composition<'a>, ImageError> {
    let edit = edit_raw(&file, None, change, Record::Keep, None)?;
    let segments = edit.patch.segments(file.len());
    Composition::of(file, segments, edit.notes, edit.original, edit.carries)
}

/// Whether an edit of a raw disk carries the way back in the disk itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record {
    Keep,
    Omit,
}

pub(crate) struct RawEdit {
    /// Over the disk as it is now.
    pub(crate) patch: Patch,
    pub(crate) notes: Vec<String>,
    pub(crate) original: Original,
    pub(crate) carries: Carried,
    /// Whether the disk itself remembered an original.
    pub(crate) remembered: bool,
}

/// What changes on a raw disk. `edited` is a customised form of it, if whatever is around the disk remembered the original;
/// `known` is what an import found out about its initramfs.
pub(crate) fn edit_raw(
    disk: &impl ReadAt,
    edited: Option<&dyn ReadAt>,
    change: Change<'_>,
    record: Record,
    known: Option<KnownInitramfs>,
) -> Result<RawEdit, ImageError> {
    let gap = Gpt::read(disk)?.unused_gap();
    let back = undo::original(disk, gap.clone())?;
    let before = Patched::with(disk, back.clone().unwrap_or_default());
    let edited: Option<&dyn ReadAt> = if back.is_some() { Some(&disk) } else { edited };
    let coreos::Edited { mut patch, mut notes, carries, removed: _ } = plan_change(&before, edited, change, known)?;
    let original = if patch.is_empty() {
        Original::Same
    } else if takes_out_for_good(change, edited) {
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
    Ok(RawEdit { patch: whole, notes, original, carries, remembered })
}

pub(super) fn plan_qcow2<'a>(file: Bytes<'a>, change: Change<'_>) -> Result<Composition<'a>, ImageError> {
    let QcowEdit { segments, notes, original, carries, .. } = edit_qcow2(&file, None, change)?;
    Composition::of(file, segments, notes, original, carries)
}

pub(super) struct QcowEdit {
    /// Of the file as it is now.
    pub segments: Vec<Segment>,
    pub notes: Vec<String>,
    pub original: Original,
    pub carries: Carried,
    /// What differs within the file, and what comes behind its end, where the file is otherwise kept whole.
    pub over: Option<(Patch, Vec<u8>)>,
    /// Whether nothing may remember what was there before.
    pub for_good: bool,
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
    let coreos::Edited { patch, mut notes, mut carries, removed } =
        plan_change(&Qcow2::open(&before)?, edited, change, None)?;
    let for_good = takes_out_for_good(change, edited);
    if patch.is_empty() {
        let header = header.unwrap_or_default();
        let rest = header.len() as u64..before.len();
        let segments = [Segment::Own(header), Segment::Base(rest)].into_iter().filter(|segment| !segment.is_empty());
        let segments = segments.collect();
        return Ok(QcowEdit { segments, notes, original: Original::Same, carries, over: None, for_good });
    }
    let base = TailBase::read(&before)?;
    let mut tail = base.plan(&before, &patch)?;
    let mut over = Patch::new();
    let original = if for_good {
        tail.forget_original();
        for range in &tail.freed {
            over.write(range.start, &vec![0; (range.end - range.start) as usize]);
        }
        if tail.leaves_shared && !removed.is_empty() {
            notes.push(SHARED.to_owned());
            carries = carries.and(removed);
        }
        Original::Lost
    } else if base.records_undo() {
        Original::Remembered
    } else {
        notes.push(NO_RECORD.to_owned());
        Original::Lost
    };
    over.write(0, &tail.header);
    let mut segments = over.segments(tail.offset);
    segments.push(Segment::Own(tail.bytes.clone()));
    // A file of Kiln's is cut where the original ended; any other one is kept whole.
    let over = header.is_none().then_some((over, tail.bytes));
    Ok(QcowEdit { segments, notes, original, carries, over, for_good })
}
