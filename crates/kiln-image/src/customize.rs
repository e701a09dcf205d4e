//! One image file in, one image file out, whatever its format: the place where all formats meet.
//!
//! [`plan`] reads the image and returns the new one as bytes that can be read anywhere ([`Composition`]); nothing is
//! written and next to nothing is copied. Every change starts from the original, which each format remembers in its own
//! way, so customising twice equals customising the original once, and [`Change::Reset`] gives the original bytes back.
//!
//! Not here: files, names and progress bars; and xz and zstd, which are inflated before they come here.

mod derive;
mod disk;
mod gz;

use crate::compression::Compression;
use crate::format::{Content, Format};
use crate::initrd::appended::{append_member, find_appended, original_length};
use crate::initrd::{self, IGNITION_PATH};
use crate::live_iso::LiveIso;
use crate::{Composed, Customization, ImageError, ReadAt, Segment, cpio};

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
        (Compression::None, Content::Initrd) => plan_initrd(file, change),
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
    let plan = match change {
        Change::Customize(wish) => iso.plan(wish)?,
        Change::RemoveNetwork => iso.plan_without_network()?,
        Change::Reset => iso.plan_reset()?,
    };
    let original = if matches!(change, Change::Reset) { Original::Same } else { Original::Remembered };
    Ok(Composition {
        image: composed(Box::new(file), plan.segments())?,
        packing: Packing::AsIs,
        notes: plan.notes,
        original,
    })
}

fn plan_initrd<'a>(file: &'a (impl ReadAt + Sync), change: Change<'_>) -> Result<Composition<'a>, ImageError> {
    let mut length = original_length(file)?.unwrap_or(file.len());
    let mut notes = Vec::new();
    let mut original = Original::Remembered;
    let appended = find_appended(file)?;
    let mut files: Vec<cpio::File> = Vec::new();
    match change {
        Change::Customize(wish) => files = initrd_files(wish)?,
        Change::Reset | Change::RemoveNetwork => {
            if matches!(change, Change::RemoveNetwork) {
                let mut kept = initrd::Embedded::default();
                for member in &appended {
                    kept.ignition = member.embedded.ignition.clone().or(kept.ignition);
                    kept.other.extend(member.embedded.other.clone());
                }
                files = kept.files();
            } else {
                original = Original::Same;
            }
            // What another installer appended ends where it ends; nobody wrote down what was there before.
            if let Some(foreign) = appended.iter().find(|member| !member.own) {
                length = length.min(foreign.range.start);
                notes.push("another installer's archive was taken off the end".to_owned());
            }
        }
    }
    let mut segments = vec![Segment::Base(0..length)];
    if !files.is_empty() {
        segments.push(Segment::Own(append_member(length, &files)?));
    }
    Ok(Composition { image: composed(Box::new(file), segments)?, packing: Packing::AsIs, notes, original })
}

fn initrd_files(wish: &Customization) -> Result<Vec<cpio::File>, ImageError> {
    let Customization { network, ignition, append_kargs, delete_kargs, firstboot_kargs } = wish;
    if let Some(karg) = append_kargs.iter().chain(delete_kargs).chain(firstboot_kargs).next() {
        return Err(ImageError::refused(
            format!("kernel argument `{karg}`"),
            "an initrd has no kernel arguments; whoever loads it gives them",
            "write it into the boot loader's configuration, e.g. the `kernel` line of iPXE",
        ));
    }
    let network = network
        .iter()
        .map(|file| cpio::File::private(format!("{}{}", initrd::NETWORK_DIR, file.name), file.bytes.clone()));
    let ignition = ignition.iter().map(|config| cpio::File::private(IGNITION_PATH, config.clone()));
    Ok(ignition.chain(network).collect())
}

fn composed<'a>(base: Bytes<'a>, segments: Vec<Segment>) -> Result<Bytes<'a>, ImageError> {
    Ok(Box::new(Composed::new(base, segments).map_err(ImageError::read("image"))?))
}
