//! One host's image from a base: only what the host adds is made, hashed and stored.
//!
//! The same base and the same wish give the same bytes, on every machine and at every time, and they are the bytes that
//! `kiln image customize` writes: the plans come from the same code.

use std::io;

use super::assembly::Assembly;
use super::pages::PagedDisk;
use super::prepared::{GzPlan, Plan, Prepared, Qcow2Plan, part};
use super::record::{BaseKind, BaseRecord, ImageRecord, PieceOf, parse_sha256};
use super::stored_image::open_base;
use super::{BaseName, HostName, Store};
use crate::coreos::{self, KnownInitramfs};
use crate::customization::Customization;
use crate::customize::Change;
use crate::customize::disk::{Record, edit_raw};
use crate::customize::gz::edit_raw_gz;
use crate::customize::initrd::plan_member;
use crate::digest::Sha256;
use crate::error::ImageError;
use crate::gz_index::{GzDisk, GzIndex};
use crate::live_iso::LiveIso;
use crate::qcow2::{Qcow2, TailBase};
use crate::read_at::{ImageFile, ReadAt};
use crate::segment::Segment;
use crate::splice;

/// Whether the whole image is read through for its sha256 where nothing shortens that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hashing {
    /// Only where it is needed to be of use: not for live ISOs and plain raw disks.
    WhereUsual,
    /// Always.
    Always,
}

/// What was composed.
#[derive(Debug)]
pub struct ComposedImage {
    /// What the store knows of it.
    pub record: ImageRecord,
    /// What it is.
    pub kind: BaseKind,
    /// sha256 and length of what is in a compressed image, in hexadecimal digits.
    pub inflated: Option<(String, u64)>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// An image before it is stored.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) assembly: Assembly,
    pub(super) inflated: Option<(String, u64)>,
    pub(super) notes: Vec<String>,
}

impl Store {
    /// Composes and stores a host's image.
    pub fn compose(
        &self,
        host: &HostName,
        base: &BaseName,
        wish: &Customization,
        confidential: bool,
        hashing: Hashing,
    ) -> Result<ComposedImage, ImageError> {
        let Some(record) = self.base(base)? else {
            let names: Vec<String> = self.base_names()?.iter().map(ToString::to_string).collect();
            let there = if names.is_empty() { "none".into() } else { names.join(", ") };
            return Err(ImageError::refused(
                format!("base `{base}`"),
                format!("the store has no such base (it has: {there})"),
                "import it first: kiln image import IMAGE --store DIR",
            ));
        };
        let folder = self.base_folder(base);
        let (prepared, bytes) = Prepared::read(&folder.join("prepared"))?;
        let file = open_base(&folder, &record)?;
        let file = ImageFile::new(file).map_err(ImageError::read(format!("base `{base}`")))?;
        let mut planned = plan_image(&prepared.plan, &bytes, &record, &file, wish, hashing)?;
        planned.assembly.confidential = confidential;
        let Planned { assembly, inflated, notes } = planned;
        let stored = self.put_image(host, base, &record, &assembly)?;
        Ok(ComposedImage { record: stored, kind: record.kind, inflated, notes })
    }
}

fn plan_image(
    plan: &Plan,
    bytes: &[u8],
    record: &BaseRecord,
    file: &ImageFile,
    wish: &Customization,
    hashing: Hashing,
) -> Result<Planned, ImageError> {
    wish.check()?;
    match plan {
        Plan::Qcow2(plan) => match &plan.gz {
            Some(gz) => plan_qcow2_gz(plan, gz, bytes, record, file, wish),
            None => plan_qcow2(plan, record, file, wish),
        },
        Plan::Raw { initramfs, index: Some(index) } => {
            let index = GzIndex::from_bytes(part(bytes, index)?)?;
            let edit = edit_raw_gz(file, &index, None, Change::Customize(wish), Some(*initramfs))?;
            planned_segments(file, &edit.segments, edit.notes, record, Hashing::Always)
        }
        Plan::Raw { initramfs, index: None } => {
            let edit = edit_raw(file, None, Change::Customize(wish), Record::Keep, Some(*initramfs))?;
            planned_segments(file, &edit.patch.segments(file.len()), edit.notes, record, hashing)
        }
        Plan::LiveIso => {
            let plan = LiveIso::open(file)?.plan(wish)?;
            planned_segments(file, &plan.segments(), plan.notes, record, hashing)
        }
        Plan::Initrd { sha256 } => {
            let member = plan_member(file.len(), wish)?;
            let mut assembly = Assembly::default();
            assembly.push(PieceOf::Base, 0..file.len());
            assembly.push_own(&member);
            let mut sum = Sha256::load(sha256)?;
            sum.update(&member);
            assembly.sha256 = parse_sha256(&sum.finish());
            Ok(Planned { assembly, inflated: None, notes: Vec::new() })
        }
    }
}

/// The base as it is: nothing was wished for that it does not have.
fn untouched(record: &BaseRecord, notes: Vec<String>) -> Planned {
    let mut assembly = Assembly::default();
    assembly.push(PieceOf::Base, 0..record.file.length);
    assembly.sha256 = parse_sha256(&record.sha256);
    Planned { assembly, inflated: None, notes }
}

fn planned_segments(
    file: &ImageFile,
    segments: &[Segment],
    notes: Vec<String>,
    record: &BaseRecord,
    hashing: Hashing,
) -> Result<Planned, ImageError> {
    if segments == [Segment::Base(0..file.len())] {
        return Ok(untouched(record, notes));
    }
    let mut assembly = Assembly::from_segments(segments);
    if hashing == Hashing::Always {
        let mut sum = Sha256::new();
        sum.update_segments(file, segments)?;
        assembly.sha256 = parse_sha256(&sum.finish());
    }
    Ok(Planned { assembly, inflated: None, notes })
}

fn plan_qcow2(
    plan: &Qcow2Plan,
    record: &BaseRecord,
    file: &ImageFile,
    wish: &Customization,
) -> Result<Planned, ImageError> {
    let (tail, notes) = plan_tail(&plan.tables, plan.initramfs, file, wish)?;
    let Some(tail) = tail else { return Ok(untouched(record, notes)) };
    let mut sum = Sha256::load(&plan.sha256)?;
    sum.update(&tail);
    let mut assembly = shared(plan);
    assembly.push_own(&tail);
    assembly.sha256 = parse_sha256(&sum.finish());
    Ok(Planned { assembly, inflated: None, notes })
}

fn plan_qcow2_gz(
    plan: &Qcow2Plan,
    gz: &GzPlan,
    bytes: &[u8],
    record: &BaseRecord,
    file: &ImageFile,
    wish: &Customization,
) -> Result<Planned, ImageError> {
    let index = part(bytes, &gz.index)?;
    let open = || -> io::Result<GzDisk<&ImageFile>> {
        let index = GzIndex::from_bytes(index).map_err(io::Error::other)?;
        Ok(GzDisk::with_index(file, &index))
    };
    let disk = PagedDisk::new(&gz.page_list, part(bytes, &gz.pages)?, gz.inflated_len, open);
    let (tail, notes) = plan_tail(&plan.tables, plan.initramfs, &disk, wish)?;
    let Some(tail) = tail else { return Ok(untouched(record, notes)) };
    let end = splice::close(gz.crc32, gz.inflated_len, &tail)?;
    let mut sum = Sha256::load(&plan.sha256)?;
    sum.update(&end);
    let mut inflated_sum = Sha256::load(&gz.inflated_sha256)?;
    inflated_sum.update(&tail);
    let mut assembly = shared(plan);
    assembly.push_own(&end);
    assembly.sha256 = parse_sha256(&sum.finish());
    let inflated = Some((inflated_sum.finish(), gz.inflated_len + tail.len() as u64));
    Ok(Planned { assembly, inflated, notes })
}

fn shared(plan: &Qcow2Plan) -> Assembly {
    let mut assembly = Assembly::default();
    plan.pieces.iter().for_each(|piece| assembly.push(piece.0, piece.range()));
    assembly
}

/// The tail of a qcow2 file with a wish in it; none when nothing changes.
pub(super) fn plan_tail(
    tables: &TailBase,
    initramfs: KnownInitramfs,
    disk: &impl ReadAt,
    wish: &Customization,
) -> Result<(Option<Vec<u8>>, Vec<String>), ImageError> {
    let edited = coreos::plan_customization(&Qcow2::open(disk)?, wish, Some(initramfs))?;
    if edited.patch.is_empty() {
        return Ok((None, edited.notes));
    }
    Ok((Some(tables.plan(disk, &edited.patch)?.bytes), edited.notes))
}
