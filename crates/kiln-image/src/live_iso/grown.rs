//! An archive that is too large for its area: a larger file behind the end of the ISO takes the area's place.
//!
//! The new `ignition.img` begins at the next sector behind the ISO. Changed are the file's record in both directory trees,
//! the length of the volume, the old header and `igninfo.json` if they give offset or length, and the entry of an
//! isohybrid MBR that spans the ISO, so that GRUB on a USB stick reads that far. Boot loaders find the file by its name.
//! El Torito and the EFI partition speak of other sectors and stay. The GPT of an isohybrid ISO stays, too: it says where
//! its copy is, which is true, and that the disk ends earlier, as it does on every stick larger than the ISO.
//!
//! Behind the file lies an undo record with the bytes that were changed and the length of the original. Who opens such an
//! ISO sees the original through [`Restored`]; a reset restores it to the byte, and growing again starts from it.

use super::area::{AREA_LIMIT, EmbedArea, HEADER_AT, IGNINFO};
use super::{JSON_LIMIT, Plan};
use crate::cpio::File;
use crate::initrd::appended::fit_member;
use crate::iso9660::{Iso, Record, SECTOR, both_endian};
use crate::read_at::check_range;
use crate::{ImageError, Patch, ReadAt};

const MAGIC: &[u8; 16] = b"kiln-undo-iso-1\0";
const FOOTER: usize = 48;
/// A grown area is a multiple of this: room for what other tools put there later.
const STEP: u64 = 256 << 10;
const UNDO_LIMIT: u64 = 64 << 10;

/// Where the larger area is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    offset: u64,
    length: u64,
}

/// An ISO as it was before Kiln put something behind it; any other ISO as it is.
#[derive(Debug)]
pub struct Restored<D> {
    disk: D,
    length: u64,
    restoring: Patch,
    grown: Option<Place>,
}

impl<D: ReadAt> Restored<D> {
    /// Looks for an undo record at the end.
    pub fn open(disk: D) -> Result<Self, ImageError> {
        let length = disk.len();
        match read_undo(&disk)? {
            Some(undo) => {
                Ok(Restored { disk, length: undo.original_length, restoring: undo.pieces, grown: Some(undo.place) })
            }
            None => Ok(Restored { disk, length, restoring: Patch::new(), grown: None }),
        }
    }

    /// What to put over the ISO to have the original again, as far as Kiln moved its area.
    pub fn restoring(&self) -> &Patch {
        &self.restoring
    }

    /// Where the larger area is, if there is one.
    pub fn grown(&self) -> Option<Place> {
        self.grown
    }

    /// What is in the larger area.
    pub fn read_grown(&self, place: Place) -> Result<Vec<u8>, ImageError> {
        self.disk.read_vec(place.offset, place.length as usize).map_err(ImageError::read("the grown area of the ISO"))
    }
}

impl<D: ReadAt> ReadAt for Restored<D> {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        check_range(offset, buffer.len(), self.length)?;
        self.disk.read_exact_at(offset, buffer)?;
        self.restoring.apply(offset, buffer);
        Ok(())
    }
}

/// Plans a larger area behind the ISO with these files in it.
pub(super) fn grow<D: ReadAt>(
    iso: &Iso<Restored<D>>,
    area: &EmbedArea,
    files: &[File],
    needed: u64,
    plan: &mut Plan,
) -> Result<(), ImageError> {
    let Some(path) = &area.whole_file else {
        let problem = format!("it needs {needed} bytes, but the ISO has room for {}", area.length);
        let fix = "the area is a part of a boot image here and cannot grow; make the Ignition config refer to the rest";
        return Err(ImageError::refused("Ignition config and network", problem, fix));
    };
    let too_large = || {
        ImageError::refused(
            "Ignition config and network",
            format!("they need {needed} bytes; there may be {AREA_LIMIT}"),
            "make them smaller",
        )
    };
    let original = iso.disk();
    let length = needed.checked_next_multiple_of(STEP).filter(|&length| length <= AREA_LIMIT).ok_or_else(too_large)?;
    let start = original.len().next_multiple_of(SECTOR);
    let undo_at = (start + length).next_multiple_of(SECTOR);

    // How long the undo record is does not depend on what is written, only on where: changes are made twice.
    let draft = changes(iso, area, path, start, length, undo_at + SECTOR)?;
    let undo_length = (encode_pieces(original, &draft)?.len() + FOOTER).next_multiple_of(SECTOR as usize) as u64;
    let end = undo_at + undo_length;
    let changes = changes(iso, area, path, start, length, end)?;
    let pieces = encode_pieces(original, &changes)?;

    let mut tail = vec![0; (start - original.len()) as usize];
    tail.extend(fit_member(files, length)?.map_err(|_| too_large())?);
    tail.resize((undo_at - original.len()) as usize, 0);
    tail.extend_from_slice(&pieces);
    tail.resize((end - original.len()) as usize - FOOTER, 0);
    tail.extend(footer(original.len(), Place { offset: start, length }, &pieces));
    for (offset, bytes) in changes.pieces() {
        plan.patch.write(offset, bytes);
    }
    plan.tail = tail;
    plan.notes.push(format!(
        "Ignition config and network need {needed} bytes, the ISO has room for {}: `{path}` now lies behind its end, with {length} bytes",
        area.length
    ));
    Ok(())
}

/// What has to be different in the ISO when the area lies elsewhere and the ISO ends there.
fn changes<D: ReadAt>(
    iso: &Iso<Restored<D>>,
    area: &EmbedArea,
    path: &str,
    start: u64,
    length: u64,
    end: u64,
) -> Result<Patch, ImageError> {
    let too_large = || ImageError::refused("ISO", "it would have more than 8 TiB", "make the Ignition config smaller");
    let number = |number: u64| u32::try_from(number).map_err(|_| too_large());
    let mut patch = Patch::new();
    for at in iso.volume_lengths_at() {
        patch.write(at, &both_endian(number(end / SECTOR)?));
    }
    for record in iso.records(path)? {
        patch.write(record.location_at(), &Record::location(number(start / SECTOR)?, number(length)?));
    }
    if area.has_header {
        patch.write(HEADER_AT + 8, &[start.to_le_bytes(), length.to_le_bytes()].concat());
    }
    if area.says_length {
        rewrite_igninfo(iso, length, &mut patch)?;
    }
    let boot_record = iso.disk().read_vec(0, 512).map_err(ImageError::read("the boot record of the ISO"))?;
    if boot_record.ends_with(&[0x55, 0xaa]) {
        for (index, entry) in boot_record[446..510].chunks_exact(16).enumerate() {
            let &[_, _, _, _, kind, _, _, _, 0, 0, 0, 0, a, b, c, d] = entry else { continue };
            let sectors = u64::from(u32::from_le_bytes([a, b, c, d]));
            // 0xee protects a GPT and begins at 1; what begins at 0 and spans the volume is the ISO itself.
            if kind != 0xee && sectors * 512 >= iso.volume_length() {
                patch.write(446 + 16 * index as u64 + 12, &number(end / 512)?.to_le_bytes());
            }
        }
    }
    Ok(patch)
}

/// Puts the new length into `igninfo.json`, which may get longer within its sector.
fn rewrite_igninfo<D: ReadAt>(iso: &Iso<Restored<D>>, length: u64, patch: &mut Patch) -> Result<(), ImageError> {
    let refused =
        || ImageError::refused("ISO", format!("`{IGNINFO}` cannot be rewritten"), "make the Ignition config smaller");
    let text = iso.read_file(IGNINFO, JSON_LIMIT)?.ok_or_else(refused)?;
    let mut value: serde_json::Value = super::parse_json(IGNINFO, &text)?;
    value.as_object_mut().ok_or_else(refused)?.insert("length".into(), length.into());
    let mut json = value.to_string().into_bytes();
    // Filled up with blanks, it nearly always fits into what it had.
    json.resize(json.len().max(text.len()), b' ');
    for record in iso.records(IGNINFO)? {
        if json.len() as u64 > record.length.next_multiple_of(SECTOR) {
            return Err(refused());
        }
        let sector = u32::try_from(record.offset / SECTOR).map_err(|_| refused())?;
        patch.write(record.location_at(), &Record::location(sector, json.len() as u32));
        patch.write(record.offset, &json);
    }
    Ok(())
}

/// What is now where something will be changed: offset, length and bytes of each piece, one after the other.
fn encode_pieces(original: &impl ReadAt, changes: &Patch) -> Result<Vec<u8>, ImageError> {
    let mut bytes = Vec::new();
    for (offset, piece) in changes.pieces() {
        bytes.extend_from_slice(&offset.to_le_bytes());
        bytes.extend_from_slice(&(piece.len() as u32).to_le_bytes());
        bytes.extend(original.read_vec(offset, piece.len()).map_err(ImageError::read("the ISO"))?);
    }
    Ok(bytes)
}

struct Undo {
    original_length: u64,
    place: Place,
    pieces: Patch,
}

fn footer(original_length: u64, place: Place, pieces: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for number in [original_length, place.offset, place.length] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&(pieces.len() as u32).to_le_bytes());
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&bytes);
    checksum.update(pieces);
    bytes.extend_from_slice(&checksum.finalize().to_le_bytes());
    bytes
}

/// The undo record, if the ISO ends with one that fits it.
fn read_undo(disk: &impl ReadAt) -> Result<Option<Undo>, ImageError> {
    let Some(footer_at) = disk.len().checked_sub(FOOTER as u64) else { return Ok(None) };
    let found = disk.read_vec(footer_at, FOOTER).map_err(ImageError::read("the end of the ISO"))?;
    if !found.starts_with(MAGIC) {
        return Ok(None);
    }
    let word = |at| super::area::word(&found, at);
    let place = Place { offset: word(24), length: word(32) };
    let original_length = word(16);
    let pieces_length = word(40) & 0xffff_ffff;
    let damaged = || ImageError::damaged("undo record at the end of the ISO", "it does not fit the ISO before it");
    let pieces_at = place.offset.checked_add(place.length).and_then(|end| end.checked_next_multiple_of(SECTOR));
    let pieces_at = pieces_at.filter(|at| at.checked_add(pieces_length).is_some_and(|end| end <= footer_at));
    let pieces_at = pieces_at.filter(|_| original_length <= place.offset && place.length <= AREA_LIMIT);
    let pieces_at = pieces_at.filter(|_| pieces_length <= UNDO_LIMIT);
    let bytes = disk
        .read_vec(pieces_at.ok_or_else(damaged)?, pieces_length as usize)
        .map_err(ImageError::read("the end of the ISO"))?;
    if footer(original_length, place, &bytes) != found {
        return Err(damaged());
    }
    let mut pieces = Patch::new();
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let offset = super::area::word(rest, 0);
        let length = super::area::word(rest, 8) & 0xffff_ffff;
        let piece = rest.get(12..).and_then(|rest| rest.get(..length as usize)).ok_or_else(damaged)?;
        check_range(offset, piece.len(), original_length).map_err(|_| damaged())?;
        pieces.write(offset, piece);
        rest = rest.get(12 + piece.len()..).ok_or_else(damaged)?;
    }
    Ok(Some(Undo { original_length, place, pieces }))
}
