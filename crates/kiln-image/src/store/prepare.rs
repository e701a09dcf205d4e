//! What is found out about a base when it is imported, so that no host has to find it out again.
//!
//! Trial edits are planned here: they prove that the image can be customised at all, show which parts of it every edit
//! reads, and give one whole image of which the joints are read back before anybody is told that the base is there.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::thread;

use super::compose::plan_tail;
use super::import::{Placement, Progress, cannot_read, link};
use super::pages::{Pages, Recorder};
use super::prepared::{GzPlan, Plan, Prepared, Qcow2Plan};
use super::record::{BaseKind, FileRecord, Piece, PieceOf};
use super::staging::Staging;
use super::{cannot_write, verify};
use crate::coreos::{self, KnownInitramfs};
use crate::customization::{Customization, NamedFile};
use crate::digest::Sha256;
use crate::error::ImageError;
use crate::gpt::Gpt;
use crate::gz_index::{GzDisk, GzIndex, scan};
use crate::initrd::appended::original_length;
use crate::live_iso::LiveIso;
use crate::patch::Patch;
use crate::qcow2::{Qcow2, TailBase};
use crate::read_at::{ImageFile, ReadAt, Window};
use crate::segment::Segment;
use crate::splice::{self, OpenStream, Undo};
use crate::undo;

/// Pages that edits read are kept in this size.
const PAGE: u64 = 64 << 10;
/// So many checkpoints are kept of a .gz, for edits that read what nobody expected.
const CHECKPOINTS: u64 = 12;

/// What the store is to keep of a base beside its file.
#[derive(Debug)]
pub(super) struct Ready {
    /// Of the stored file.
    pub(super) sha256: String,
    pub(super) shared: Vec<u8>,
    pub(super) prepared: Vec<u8>,
}

/// Prepares a .gz while it is copied or linked: the same pass inflates, checks and hashes it.
pub(super) fn prepare_while_copying(
    staging: &Staging,
    source: &Path,
    file: &ImageFile,
    kind: BaseKind,
    placement: Placement,
    progress: Progress<'_>,
) -> Result<Ready, ImageError> {
    let path = staging.path("image");
    let before = FileRecord::of(file.file()).map_err(cannot_read(source))?;
    let ready = match placement {
        Placement::Link => {
            link(source, &path)?;
            prepare_gz(file, kind, progress)?
        }
        Placement::Copy => {
            let copy = staging.create("image")?;
            thread::scope(|scope| {
                let copying = scope.spawn(|| copy_whole(source, copy));
                let ready = prepare_gz(file, kind, progress);
                let copied = copying.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                copied.map_err(cannot_write(&path)).and(ready)
            })?
        }
    };
    if FileRecord::of(file.file()).map_err(cannot_read(source))? != before {
        return Err(ImageError::refused(
            format!("`{}`", source.display()),
            "the file was changed while it was imported",
            "import it again when nobody writes to it",
        ));
    }
    Ok(ready)
}

/// The kernel copies from file to file without showing the bytes to this process.
fn copy_whole(source: &Path, mut copy: File) -> io::Result<()> {
    io::copy(&mut File::open(source)?, &mut copy)?;
    copy.sync_all()
}

/// Prepares a stored file whose sha256 is known.
pub(super) fn prepare(
    stored: &Path,
    kind: BaseKind,
    sha256: String,
    progress: Progress<'_>,
) -> Result<Ready, ImageError> {
    let file = File::open(stored).and_then(ImageFile::new).map_err(cannot_read(stored))?;
    let plan = match kind {
        BaseKind::Qcow2Gz | BaseKind::RawGz => return prepare_gz(&file, kind, progress),
        BaseKind::Qcow2 => return prepare_qcow2(&file, sha256),
        BaseKind::Raw => {
            refuse_edited_disk(&file)?;
            let initramfs = KnownInitramfs::probe(&file)?;
            plan_trials(&trials(), |wish| coreos::plan_customization(&file, wish, Some(initramfs)))?;
            Plan::Raw { initramfs, index: None }
        }
        BaseKind::LiveIso => {
            let iso = LiveIso::open(&file)?;
            if iso.embedded().is_ok_and(|embedded| !embedded.is_empty()) {
                return Err(edited("live ISO"));
            }
            // Old ISOs read an Ignition config and nothing else.
            let wish = Customization { ignition: Some(b"{}".to_vec()), ..Customization::default() };
            iso.plan(&wish)?;
            Plan::LiveIso
        }
        BaseKind::Initrd => {
            if original_length(&file)?.is_some() {
                return Err(edited("initrd"));
            }
            let mut sum = Sha256::new();
            sum.update_segments(&file, &[Segment::Base(0..file.len())])?;
            Plan::Initrd { sha256: sum.save() }
        }
    };
    Ok(Ready { sha256, shared: Vec::new(), prepared: Prepared::new(plan).line()? })
}

fn edited(part: &str) -> ImageError {
    ImageError::refused(part, "it has been customised before", "import the original: `kiln image reset IMAGE`")
}

fn refuse_edited_disk(disk: &impl ReadAt) -> Result<(), ImageError> {
    match undo::original(disk, Gpt::read(disk)?.unused_gap())? {
        Some(_) => Err(edited("disk")),
        None => Ok(()),
    }
}

/// Wishes from the smallest to the largest. Every edit of a host is like one of them.
fn trials() -> Vec<Customization> {
    let files = |count: usize, length: usize| -> Vec<NamedFile> {
        let name = |number: usize| format!("trial{number}.nmconnection");
        (0..count).map(|number| NamedFile { name: name(number), bytes: vec![b'#'; length] }).collect()
    };
    let small = Customization { network: files(4, 700), ..Customization::default() };
    let usual = Customization {
        network: files(6, 1500),
        ignition: Some(vec![b' '; 16 << 10]),
        append_kargs: vec!["kiln.trial=1".into()],
        firstboot_kargs: vec!["coreos.force_persist_ip".into()],
        ..Customization::default()
    };
    let large = Customization { network: files(24, 3000), ignition: Some(vec![b' '; 300 << 10]), ..usual.clone() };
    vec![small, usual, large]
}

/// Plans trial edits. The smallest must succeed; there may be no room for larger ones.
fn plan_trials<T>(
    wishes: &[Customization],
    mut plan: impl FnMut(&Customization) -> Result<T, ImageError>,
) -> Result<Vec<T>, ImageError> {
    let mut plans = Vec::new();
    for (number, wish) in wishes.iter().enumerate() {
        match plan(wish) {
            Ok(done) => plans.push(done),
            Err(ImageError::Refused { .. }) if number > 0 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(plans)
}

fn prepare_qcow2(file: &ImageFile, sha256: String) -> Result<Ready, ImageError> {
    let tables = TailBase::read(file)?;
    let initramfs = KnownInitramfs::probe(&Qcow2::open(file)?)?;
    plan_trials(&trials(), |wish| plan_tail(&tables, initramfs, file, wish))?;
    let header = TailBase::predict_header(file)?;
    let segments = [Segment::Own(header.clone()), Segment::Base(header.len() as u64..file.len())];
    let mut sum = Sha256::new();
    sum.update_segments(file, &segments)?;
    let pieces =
        vec![Piece(PieceOf::Shared, 0, header.len() as u64), Piece(PieceOf::Base, header.len() as u64, file.len())];
    let plan = Qcow2Plan { tables, initramfs, pieces, sha256: sum.save(), gz: None };
    Ok(Ready { sha256, shared: header, prepared: Prepared::new(Plan::Qcow2(Box::new(plan))).line()? })
}

fn prepare_gz(file: &ImageFile, kind: BaseKind, progress: Progress<'_>) -> Result<Ready, ImageError> {
    if splice::restore(file)?.is_some() {
        return Err(edited("gzip file"));
    }
    let total = file.len();
    let mut scan_with = |patch: Option<&Patch>| scan(file, patch, |done| progress(done, total));
    if kind == BaseKind::RawGz {
        let scan = scan_with(None)?;
        return prepare_raw_gz(file, &scan.index, scan.gz_sha256);
    }
    // The new header depends on the length, and that is known at the end of the pass. The file's last bytes tell it, if
    // the image has less than 4 GiB; should they be wrong, the pass is made again.
    let predicted = predict_header(file).map(|header| header_patch(&header));
    let mut scanned = scan_with(predicted.as_ref())?;
    let disk = GzDisk::with_index(file, &scanned.index);
    let tables = TailBase::read(&disk)?;
    let header = header_patch(&TailBase::predict_header(&disk)?);
    let patched = match scanned.patched_sha256.take().filter(|_| predicted.as_ref() == Some(&header)) {
        Some(sum) => sum,
        None => scan_with(Some(&header))?
            .patched_sha256
            .ok_or_else(|| ImageError::damaged("gzip file", "it was not hashed"))?,
    };
    let index = scanned.index;
    let initramfs = KnownInitramfs::probe(&Qcow2::open(&disk)?)?;
    let recorder = Recorder::new(&disk, PAGE);
    let mut tail = Vec::new();
    let seen = plan_trials(&trials(), |wish| {
        tail = plan_tail(&tables, initramfs, &recorder, wish)?.0.unwrap_or_default();
        Ok(recorder.take())
    })?;
    let (page_list, pages) = Pages::collect(&disk, PAGE, seen)?.into_parts();
    let open = splice::open(file, &index, &header, Undo::Keep)?;
    verify::read_joints(file, &index, &open, &disk, &header, &tail)?;
    let mut sum = Sha256::new();
    sum.update_segments(file, &open.segments)?;
    let (pieces, shared) = share(&open);
    let index = thin(&index, &[])?.to_bytes();
    let gz = GzPlan {
        crc32: open.crc32,
        inflated_len: open.inflated_len,
        inflated_sha256: patched.save(),
        index: 0..index.len() as u64,
        pages: index.len() as u64..(index.len() + pages.len()) as u64,
        page_list,
    };
    let plan = Qcow2Plan { tables, initramfs, pieces, sha256: sum.save(), gz: Some(gz) };
    let mut prepared = Prepared::new(Plan::Qcow2(Box::new(plan))).line()?;
    prepared.extend_from_slice(&index);
    prepared.extend_from_slice(&pages);
    Ok(Ready { sha256: scanned.gz_sha256, shared, prepared })
}

fn prepare_raw_gz(file: &ImageFile, index: &GzIndex, sha256: String) -> Result<Ready, ImageError> {
    let disk = GzDisk::with_index(file, index);
    refuse_edited_disk(&disk)?;
    let initramfs: KnownInitramfs = KnownInitramfs::probe(&disk)?;
    let recorder = Recorder::new(&disk, PAGE);
    let mut near: Vec<Range<u64>> = Vec::new();
    plan_trials(&trials(), |wish| {
        let patch = coreos::plan_customization(&recorder, wish, Some(initramfs))?.patch;
        near.extend(patch.pieces().map(|(offset, bytes)| offset..offset + bytes.len() as u64));
        near.extend(recorder.take().into_iter().map(|page| page..page + PAGE));
        Ok(())
    })?;
    let index = thin(index, &near)?.to_bytes();
    let plan = Plan::Raw { initramfs, index: Some(0..index.len() as u64) };
    let mut prepared = Prepared::new(plan).line()?;
    prepared.extend_from_slice(&index);
    Ok(Ready { sha256, shared: Vec::new(), prepared })
}

fn thin(index: &GzIndex, near: &[Range<u64>]) -> Result<GzIndex, ImageError> {
    index.thinned((index.inflated_len / CHECKPOINTS).max(64 << 20), near)
}

/// The new first bytes of the qcow2 in a .gz, as far as its beginning and its last four bytes can tell them.
fn predict_header(file: &ImageFile) -> Option<Vec<u8>> {
    let end = file.read_vec(file.len().checked_sub(4)?, 4).ok()?;
    let mut length = u64::from(u32::from_le_bytes(end.try_into().ok()?));
    // Deflate never makes anything noticeably longer, so a smaller length has lost 4 GiB.
    while length + (length >> 8) + 1024 < file.len() {
        length += 1 << 32;
    }
    let disk = GzDisk::new(file);
    TailBase::predict_header(&Window::new(&disk, 0, length).ok()?).ok()
}

fn header_patch(header: &[u8]) -> Patch {
    let mut patch = Patch::new();
    patch.write(0, header);
    patch
}

/// The own bytes of a stream as bytes that all hosts share.
fn share(open: &OpenStream) -> (Vec<Piece>, Vec<u8>) {
    let mut shared = Vec::new();
    let pieces = open.segments.iter().map(|segment| match segment {
        Segment::Base(range) => Piece(PieceOf::Base, range.start, range.end),
        Segment::Own(bytes) => {
            let start = shared.len() as u64;
            shared.extend_from_slice(bytes);
            Piece(PieceOf::Shared, start, shared.len() as u64)
        }
    });
    (pieces.collect(), shared)
}
