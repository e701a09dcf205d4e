//! One image file in, one image file out, whatever its format: the place where all formats meet.
//!
//! [`plan`] reads the image and returns the new one as bytes that can be read anywhere ([`Composition`]); nothing is
//! written and next to nothing is copied. Every change starts from the original, which each format remembers in its own
//! way, so customising twice equals customising the original once, and [`Change::Reset`] gives the original bytes back.
//!
//! Not here: files, names and progress bars; and xz and zstd, which are inflated before they come here.

mod derive;
pub(crate) mod disk;
pub(crate) mod gz;
pub(crate) mod initrd;

use std::collections::BTreeMap;

use crate::compression::Compression;
use crate::format::{Content, Format};
use crate::initrd::Embedded;
use crate::live_iso::LiveIso;
use crate::{Carried, Composed, Customization, ImageError, ReadAt, Segment};

/// What is done to an image.
#[derive(Debug, Clone, Copy)]
pub enum Change<'a> {
    /// This is put into the original.
    Customize(&'a Customization),
    /// The network files are taken out, the rest of a customisation stays.
    RemoveNetwork,
    /// The original comes back.
    Reset,
}

/// Bytes of an image.
pub type Bytes<'a> = Box<dyn ReadAt + Sync + 'a>;

/// A new image.
pub struct Composition<'a> {
    /// Its bytes.
    pub image: Bytes<'a>,
    /// How they are to be written.
    pub packing: Packing,
    /// What the user should know.
    pub notes: Vec<String>,
    /// Whether these bytes are, or remember, the original.
    pub original: Original,
    /// What is in them that not everybody may read.
    pub carries: Carried,
    /// Which bytes of the file they are, where they are ranges of it: a copy of these ranges need not be read.
    pub segments: Option<Vec<Segment>>,
}

impl<'a> Composition<'a> {
    /// Ranges of a file and bytes between.
    fn of(
        file: Bytes<'a>,
        segments: Vec<Segment>,
        notes: Vec<String>,
        original: Original,
        carries: Carried,
    ) -> Result<Self, ImageError> {
        let image = Box::new(Composed::new(file, segments.clone()).map_err(ImageError::read("image"))?);
        Ok(Composition { image, packing: Packing::AsIs, notes, original, carries, segments: Some(segments) })
    }
}

/// How the bytes of a composition are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// As they are.
    AsIs,
    /// Compressed, because the image was and its own compression could not be kept.
    Gzip,
}

/// What a composition has to do with the original image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Original {
    /// It is the original, byte for byte.
    Same,
    /// The disk in it is the original, byte for byte; the compression around it is not.
    SameDisk,
    /// The original can be had again from it, byte for byte.
    Remembered,
    /// The changes can be taken out of it again, but its bytes will differ from the original's.
    Lost,
}

/// What happens while a plan is made: bytes of the file that are done, of all.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Decides what becomes of an image.
pub fn plan<'a>(
    file: &'a (impl ReadAt + Sync),
    format: Format,
    change: Change<'_>,
    progress: Progress<'_>,
) -> Result<Composition<'a>, ImageError> {
    if let Change::Customize(wish) = change {
        wish.check()?;
    }
    match (format.compression, format.content) {
        (Compression::None, Content::RawDisk) => disk::plan_raw(Box::new(file), change),
        (Compression::None, Content::Qcow2) => disk::plan_qcow2(Box::new(file), change),
        (Compression::None, Content::Iso) => plan_iso(file, change),
        (Compression::None, Content::Initrd) => initrd::plan(file, change),
        (Compression::Gzip, Content::RawDisk | Content::Qcow2) => gz::plan(file, format.content, change, progress),
        (compression, content) => Err(ImageError::refused(
            "image",
            format!("a {} inside {} cannot be edited in place", content.name(), compression.name()),
            format!("decompress it first: `{} -d IMAGE`", compression.name()),
        )),
    }
}

fn plan_iso<'a>(file: &'a (impl ReadAt + Sync), change: Change<'_>) -> Result<Composition<'a>, ImageError> {
    let iso = LiveIso::open(file)?;
    let (plan, carries) = match change {
        // The area is cleared first: nothing of what was there before stays.
        Change::Customize(wish) => (iso.plan(wish)?, Carried::of(wish)),
        Change::RemoveNetwork => {
            let kept = Embedded { network: BTreeMap::new(), ..iso.embedded()? };
            (iso.plan_without_network()?, initrd::carried(&kept))
        }
        Change::Reset => (iso.plan_reset()?, Carried::default()),
    };
    let original = if matches!(change, Change::Reset) { Original::Same } else { Original::Remembered };
    Composition::of(Box::new(file), plan.segments(), plan.notes, original, carries)
}
