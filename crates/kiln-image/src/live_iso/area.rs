//! The area for Ignition and network: where it is, by the three ways ISOs have said so since 2020.

use serde::Deserialize;

use super::{JSON_LIMIT, parse_json};
use crate::iso9660::Iso;
use crate::{ImageError, ReadAt};

pub(super) const IGNINFO: &str = "coreos/igninfo.json";
const DEFAULT_FILE: &str = "images/ignition.img";
/// `coreiso+`, offset, length: the last 24 bytes of the system area.
pub(super) const HEADER_AT: u64 = 32768 - 24;
const HEADER_MAGIC: &[u8] = b"coreiso+";
/// A grown area of a config full of files is a few megabytes; it is read into memory.
pub(super) const AREA_LIMIT: u64 = 64 << 20;

/// Where the area is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EmbedArea {
    pub offset: u64,
    pub length: u64,
    /// The file that it is, as a whole; `None` if it is a part of one, as on s390x.
    pub whole_file: Option<String>,
    /// Whether `igninfo.json` gives the length, too.
    pub says_length: bool,
    /// Whether the old header is there and means this area.
    pub has_header: bool,
}

/// `coreos/igninfo.json`.
#[derive(Debug, Deserialize)]
struct IgnInfo {
    file: String,
    offset: Option<u64>,
    length: Option<u64>,
}

impl EmbedArea {
    /// By `igninfo.json` (since 2023), else by `images/ignition.img`, else by the header alone.
    pub(super) fn find<D: ReadAt>(iso: &Iso<D>) -> Result<Self, ImageError> {
        let header = read_header(iso.disk())?;
        let info = match iso.read_file(IGNINFO, JSON_LIMIT)? {
            Some(json) => parse_json(IGNINFO, &json)?,
            None => IgnInfo { file: DEFAULT_FILE.to_owned(), offset: None, length: None },
        };
        let record = iso.find(&info.file)?;
        let area = match (record, header) {
            (Some(record), _) if record.is_directory => {
                return Err(ImageError::damaged(format!("ISO file `{}`", info.file), "it is a directory"));
            }
            (Some(record), header) => {
                let within = info.offset.unwrap_or(0);
                let length = info.length.or(record.length.checked_sub(within)).unwrap_or(0);
                let end = within.checked_add(length);
                if length == 0 || end.is_none_or(|end| end > record.length) {
                    let problem = format!("`{}` has {} bytes; the area does not lie in it", info.file, record.length);
                    return Err(ImageError::damaged("ISO embed area", problem));
                }
                let offset = record.offset + within;
                EmbedArea {
                    offset,
                    length,
                    whole_file: (length == record.length && record.is_single).then_some(info.file),
                    says_length: info.length.is_some(),
                    has_header: header == Some((offset, length)),
                }
            }
            (None, Some((offset, length))) => {
                EmbedArea { offset, length, whole_file: None, says_length: false, has_header: true }
            }
            (None, None) => {
                let problem = format!("this is no CoreOS live ISO: it has no `{}`", info.file);
                return Err(ImageError::refused("ISO", problem, "give the live ISO of Fedora CoreOS, RHCOS or SCOS"));
            }
        };
        let inside = area.offset.checked_add(area.length).is_some_and(|end| end <= iso.disk().len());
        if !inside || area.length == 0 || area.length > AREA_LIMIT {
            let problem = format!("{} bytes at {} are not in this ISO", area.length, area.offset);
            return Err(ImageError::damaged("ISO embed area", problem));
        }
        Ok(area)
    }

    /// What is in it.
    pub(super) fn read(&self, disk: &impl ReadAt) -> Result<Vec<u8>, ImageError> {
        disk.read_vec(self.offset, self.length as usize).map_err(ImageError::read("the embed area of the ISO"))
    }
}

fn read_header(disk: &impl ReadAt) -> Result<Option<(u64, u64)>, ImageError> {
    let bytes = disk.read_vec(HEADER_AT, 24).map_err(ImageError::read("the system area of the ISO"))?;
    Ok((bytes.starts_with(HEADER_MAGIC)).then(|| (word(&bytes, 8), word(&bytes, 16))))
}

/// A little-endian number of a header.
pub(super) fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}
