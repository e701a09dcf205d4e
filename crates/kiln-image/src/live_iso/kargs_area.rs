//! The areas for kernel arguments: one in the configuration of each boot loader, all with the same text.
//!
//! The text ends with one character and is filled up with another, so that the boot loader sees a comment or nothing.

use serde::Deserialize;

use super::area::word;
use super::{JSON_LIMIT, Plan, parse_json};
use crate::iso9660::Iso;
use crate::{ImageError, ReadAt};

const KARGS: &str = "coreos/kargs.json";
/// `coreKarg`, size, offset of the default, up to six offsets; before the other header.
const HEADER_AT: u64 = super::area::HEADER_AT - 72;
const HEADER_MAGIC: &[u8] = b"coreKarg";
/// The kernel takes 2 KiB on x86 and 4 KiB elsewhere.
const SIZE_LIMIT: usize = 4096;
const PLACES: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KargAreas {
    pub default: String,
    size: usize,
    places: Vec<Place>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    /// In words for people.
    name: String,
    offset: u64,
    pad: u8,
    end: u8,
}

#[derive(Debug, Deserialize)]
struct KargsJson {
    default: String,
    size: usize,
    files: Vec<PlaceJson>,
}

#[derive(Debug, Deserialize)]
struct PlaceJson {
    path: String,
    offset: u64,
    pad: Option<char>,
    end: Option<char>,
}

impl KargAreas {
    /// By `kargs.json` (since 2021-09), else by the header.
    pub(super) fn find<D: ReadAt>(iso: &Iso<D>) -> Result<Option<Self>, ImageError> {
        let areas = match iso.read_file(KARGS, JSON_LIMIT)? {
            Some(json) => Self::from_json(iso, parse_json(KARGS, &json)?)?,
            None => match Self::from_header(iso.disk())? {
                Some(areas) => areas,
                None => return Ok(None),
            },
        };
        let inside =
            |place: &Place| place.offset.checked_add(areas.size as u64).is_some_and(|end| end <= iso.disk().len());
        if areas.places.is_empty() || areas.places.len() > PLACES || !areas.places.iter().all(inside) {
            return Err(damaged("they do not lie in this ISO"));
        }
        if areas.default.len() >= areas.size {
            return Err(damaged("the default does not fit into them"));
        }
        Ok(Some(areas))
    }

    fn from_json<D: ReadAt>(iso: &Iso<D>, json: KargsJson) -> Result<Self, ImageError> {
        let KargsJson { default, size, files } = json;
        check_size(size as u64)?;
        let mut places = Vec::new();
        for PlaceJson { path, offset, pad, end } in files.into_iter().take(PLACES + 1) {
            let file = iso.find(&path)?.ok_or_else(|| damaged(format!("`{path}` is not there")))?;
            if offset.checked_add(size as u64).is_none_or(|end| end > file.length) {
                return Err(damaged(format!("`{path}` has {} bytes, too few for its area", file.length)));
            }
            let (pad, end) = (single_byte(pad, '#')?, single_byte(end, '\n')?);
            places.push(Place { name: path, offset: file.offset + offset, pad, end });
        }
        Ok(KargAreas { default: default.trim().to_owned(), size, places })
    }

    fn from_header(disk: &impl ReadAt) -> Result<Option<Self>, ImageError> {
        let header = disk.read_vec(HEADER_AT, 72).map_err(ImageError::read("the system area of the ISO"))?;
        if !header.starts_with(HEADER_MAGIC) {
            return Ok(None);
        }
        let size = check_size(word(&header, 8))?;
        let place = |offset| Place { name: format!("the area at byte {offset}"), offset, pad: b'#', end: b'\n' };
        let default = read_text(disk, &place(word(&header, 16)), size)?;
        let offsets = (24..72).step_by(8).map(|at| word(&header, at)).take_while(|&offset| offset != 0);
        Ok(Some(KargAreas { default, size, places: offsets.map(place).collect() }))
    }

    /// How many bytes of arguments there may be: one is the end.
    pub(super) fn capacity(&self) -> usize {
        self.size - 1
    }

    /// The arguments that are there, the same in all areas.
    pub(super) fn read(&self, disk: &impl ReadAt) -> Result<String, ImageError> {
        let mut texts = self.places.iter().map(|place| Ok((place, read_text(disk, place, self.size)?)));
        let (first, text) = texts.next().unwrap_or_else(|| Err(damaged("there are none")))?;
        for other in texts {
            let (place, other) = other?;
            if other != text {
                let problem = format!("{} has `{text}`, but {} has `{other}`", first.name, place.name);
                return Err(damaged(problem));
            }
        }
        Ok(text)
    }

    /// Puts arguments into all areas. An area that has them already is left as it is.
    pub(super) fn write(&self, disk: &impl ReadAt, line: &str, plan: &mut Plan) -> Result<(), ImageError> {
        let line = line.trim();
        if line.len() > self.capacity() {
            let problem = format!(
                "together with the default they have {} bytes, the ISO has room for {}",
                line.len(),
                self.capacity()
            );
            return Err(ImageError::refused(
                "kernel arguments",
                problem,
                "append fewer, or delete some of the default",
            ));
        }
        for place in &self.places {
            let what = || format!("the kernel arguments in {}", place.name);
            let before = disk.read_vec(place.offset, self.size).map_err(ImageError::read(what()))?;
            let default = place.render(&self.default, self.size);
            let is_default =
                before != default && read_text(disk, place, self.size).is_ok_and(|text| text == self.default);
            if is_default && line == self.default {
                continue;
            }
            if is_default {
                plan.notes.push(format!("{} were spelled in an unusual way; a reset will not bring that back", what()));
            }
            let after = place.render(line, self.size);
            if after != before {
                plan.patch.write(place.offset, &after);
            }
        }
        Ok(())
    }
}

impl Place {
    fn render(&self, line: &str, size: usize) -> Vec<u8> {
        let mut bytes = line.as_bytes().to_vec();
        bytes.push(self.end);
        bytes.resize(size, self.pad);
        bytes
    }
}

fn read_text(disk: &impl ReadAt, place: &Place, size: usize) -> Result<String, ImageError> {
    let bytes = disk.read_vec(place.offset, size).map_err(ImageError::read(place.name.clone()))?;
    let text = String::from_utf8(bytes).map_err(|_| damaged(format!("{} is not UTF-8", place.name)))?;
    let text = text.trim_end_matches(char::from(place.pad)).trim_end_matches(char::from(place.end));
    Ok(text.trim().to_owned())
}

fn check_size(size: u64) -> Result<usize, ImageError> {
    match usize::try_from(size) {
        Ok(size) if (1..=SIZE_LIMIT).contains(&size) => Ok(size),
        _ => Err(damaged(format!("areas of {size} bytes; 1 to {SIZE_LIMIT} are possible"))),
    }
}

fn single_byte(character: Option<char>, default: char) -> Result<u8, ImageError> {
    let character = character.unwrap_or(default);
    u8::try_from(character)
        .ok()
        .filter(u8::is_ascii)
        .ok_or_else(|| damaged(format!("they are filled with `{character}`")))
}

fn damaged(problem: impl Into<String>) -> ImageError {
    ImageError::damaged("ISO kernel argument areas", problem)
}
