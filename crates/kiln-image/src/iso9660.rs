//! ISO 9660: where the files of a CD image are, without mounting it.
//!
//! An ISO has one or two directory trees over the same files: the primary one with upper-case 8.3 names, often with Rock
//! Ridge names beside them, and Joliet's with UTF-16 names. Paths are compared without regard to case, with the long names
//! and with the short ones, because tools disagree about which they write. Boot loaders read either tree, so whoever moves
//! a file has to change its record in both: [`Iso::records`] gives them all.
//!
//! Reading is bounded: a path has few parts, a directory few megabytes, and a directory that contains itself costs nothing,
//! since only the given path is followed. Not here: El Torito, interleaved files, volume sets.

use crate::{ImageError, ReadAt};

/// Everything in an ISO begins at a multiple of this.
pub const SECTOR: u64 = 2048;
const FIRST_DESCRIPTOR: u64 = 16;
const DESCRIPTORS: u64 = 64;
const DIRECTORY_LIMIT: u64 = 4 << 20;
const DEPTH: usize = 16;

/// An opened ISO.
#[derive(Debug)]
pub struct Iso<D> {
    disk: D,
    volume_id: String,
    primary: Tree,
    joliet: Option<Tree>,
}

/// One tree of directories.
#[derive(Debug, Clone)]
struct Tree {
    /// Where its volume descriptor is.
    descriptor: u64,
    sectors: u32,
    root: Record,
    names: Names,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    Ascii,
    Utf16,
}

/// Where a file or directory is, and where that is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Offset of the directory record itself.
    pub at: u64,
    /// Offset of the contents.
    pub offset: u64,
    /// Bytes of contents.
    pub length: u64,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Whether this record alone describes the contents; files over 4 GiB need several.
    pub is_single: bool,
}

impl Record {
    /// The 16 bytes at [`Record::location_at`] that place the contents elsewhere: sector and length, in both byte orders.
    pub fn location(sector: u32, length: u32) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&both_endian(sector));
        bytes[8..].copy_from_slice(&both_endian(length));
        bytes
    }

    /// Where the record says where the contents are.
    pub fn location_at(&self) -> u64 {
        self.at + 2
    }
}

/// A number as ISO 9660 writes it: little-endian, then big-endian.
pub fn both_endian(number: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    bytes
}

impl<D: ReadAt> Iso<D> {
    /// Whether the bytes look like an ISO at all.
    pub fn is_iso(disk: &D) -> bool {
        let mut id = [0; 6];
        disk.read_exact_at(FIRST_DESCRIPTOR * SECTOR, &mut id).is_ok() && &id[1..] == b"CD001"
    }

    /// Reads the volume descriptors.
    pub fn open(disk: D) -> Result<Self, ImageError> {
        let (mut primary, mut joliet, mut volume_id) = (None, None, String::new());
        for sector in FIRST_DESCRIPTOR..FIRST_DESCRIPTOR + DESCRIPTORS {
            let at = sector * SECTOR;
            let part = || format!("ISO volume descriptor {}", sector - FIRST_DESCRIPTOR + 1);
            let bytes = disk.read_vec(at, SECTOR as usize).map_err(ImageError::read(part()))?;
            if slice(&bytes, 1, 5) != b"CD001" {
                return Err(ImageError::damaged(part(), "it does not begin with CD001"));
            }
            match byte(&bytes, 0) {
                255 => break,
                1 if primary.is_none() => {
                    volume_id = String::from_utf8_lossy(slice(&bytes, 40, 32)).trim_end_matches([' ', '\0']).to_owned();
                    primary = Some(Tree::parse(&bytes, at, Names::Ascii)?);
                }
                // Escape sequences of the three levels of Joliet.
                2 if [b"%/@", b"%/C", b"%/E"].iter().any(|level| slice(&bytes, 88, 3) == *level) => {
                    joliet = Some(Tree::parse(&bytes, at, Names::Utf16)?);
                }
                _ => {}
            }
        }
        let primary = primary.ok_or_else(|| ImageError::damaged("ISO", "it has no primary volume descriptor"))?;
        let claimed = u64::from(primary.sectors) * SECTOR;
        if claimed > disk.len() {
            let problem =
                format!("it says it has {claimed} bytes, but ends after {}: the file was cut off", disk.len());
            return Err(ImageError::damaged("ISO", problem));
        }
        Ok(Iso { disk, volume_id, primary, joliet })
    }

    /// The image.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// The label of the volume.
    pub fn volume_id(&self) -> &str {
        &self.volume_id
    }

    /// How many bytes the volume says it has.
    pub fn volume_length(&self) -> u64 {
        u64::from(self.primary.sectors) * SECTOR
    }

    /// Where the length of the volume is written, in sectors and both byte orders; once per tree.
    pub fn volume_lengths_at(&self) -> impl Iterator<Item = u64> {
        self.trees().map(|tree| tree.descriptor + 80)
    }

    /// Finds a path in the primary tree.
    pub fn find(&self, path: &str) -> Result<Option<Record>, ImageError> {
        self.find_in(&self.primary, path)
    }

    /// The records of a path in all trees, the primary one first.
    pub fn records(&self, path: &str) -> Result<Vec<Record>, ImageError> {
        self.trees().filter_map(|tree| self.find_in(tree, path).transpose()).collect()
    }

    /// A whole small file, if there is one of this path.
    pub fn read_file(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>, ImageError> {
        let Some(record) = self.find(path)? else { return Ok(None) };
        let part = || format!("ISO file `{path}`");
        if record.is_directory || record.length > limit {
            let problem = format!("a file of at most {limit} bytes was expected");
            return Err(ImageError::damaged(part(), problem));
        }
        let bytes = self.disk.read_vec(record.offset, record.length as usize).map_err(ImageError::read(part()))?;
        Ok(Some(bytes))
    }

    fn trees(&self) -> impl Iterator<Item = &Tree> {
        std::iter::once(&self.primary).chain(&self.joliet)
    }

    fn find_in(&self, tree: &Tree, path: &str) -> Result<Option<Record>, ImageError> {
        let mut record = tree.root.clone();
        for (depth, part) in path.split('/').filter(|part| !part.is_empty()).enumerate() {
            if depth >= DEPTH || !record.is_directory {
                return Ok(None);
            }
            match self.find_entry(tree, &record, part)? {
                Some(found) => record = found,
                None => return Ok(None),
            }
        }
        Ok(Some(record))
    }

    fn find_entry(&self, tree: &Tree, directory: &Record, name: &str) -> Result<Option<Record>, ImageError> {
        let part = || format!("ISO directory at byte {}", directory.offset);
        if directory.length > DIRECTORY_LIMIT {
            return Err(ImageError::damaged(part(), format!("it has {} bytes", directory.length)));
        }
        let bytes =
            self.disk.read_vec(directory.offset, directory.length as usize).map_err(ImageError::read(part()))?;
        let mut found: Option<Record> = None;
        // A record never crosses a sector; zeros fill what is left of one.
        for (number, sector) in bytes.chunks(SECTOR as usize).enumerate() {
            let mut rest = sector;
            while let Some(&length) = rest.first().filter(|&&length| length > 0) {
                let Some(entry) = rest.get(..usize::from(length)).filter(|entry| entry.len() >= 34) else {
                    return Err(ImageError::damaged(part(), "a record is longer than what is left of its sector"));
                };
                let at = directory.offset + number as u64 * SECTOR + (sector.len() - rest.len()) as u64;
                if entry_has_name(entry, tree.names, name) {
                    let record = parse_record(entry, at);
                    match &mut found {
                        // The contents go on in another extent. What is not in one piece is not readable here.
                        Some(first) if !first.is_single && first.offset + first.length == record.offset => {
                            first.length += record.length;
                        }
                        Some(first) if !first.is_single => {
                            let problem = format!("`{name}` is in several places");
                            let fix = "only files in one piece are read; write the ISO again with xorriso";
                            return Err(ImageError::refused(
                                format!("ISO file at byte {}", first.offset),
                                problem,
                                fix,
                            ));
                        }
                        Some(_) => {}
                        None => found = Some(record),
                    }
                }
                rest = &rest[entry.len()..];
            }
        }
        Ok(found)
    }
}

impl Tree {
    fn parse(descriptor: &[u8], at: u64, names: Names) -> Result<Tree, ImageError> {
        let block = u64::from(le16(descriptor, 128));
        if block != SECTOR {
            let problem = format!("its blocks have {block} bytes");
            return Err(ImageError::refused("ISO", problem, "only blocks of 2048 bytes are supported"));
        }
        let root = parse_record(slice(descriptor, 156, 34), at + 156);
        if !root.is_directory {
            return Err(ImageError::damaged("ISO", "its root is no directory"));
        }
        Ok(Tree { descriptor: at, sectors: le32(descriptor, 80), root, names })
    }
}

fn parse_record(entry: &[u8], at: u64) -> Record {
    let flags = byte(entry, 25);
    Record {
        at,
        // Extended attributes, which nobody writes, come before the contents.
        offset: (u64::from(le32(entry, 2)) + u64::from(byte(entry, 1))) * SECTOR,
        length: u64::from(le32(entry, 10)),
        is_directory: flags & 2 != 0,
        is_single: flags & 0x80 == 0,
    }
}

/// Whether a directory record is called so, by any of its names.
fn entry_has_name(entry: &[u8], names: Names, wanted: &str) -> bool {
    let identifier = slice(entry, 33, byte(entry, 32).into());
    let identifier = match names {
        Names::Ascii => String::from_utf8_lossy(identifier).into_owned(),
        Names::Utf16 => {
            let units = identifier.chunks_exact(2).map(|pair| u16::from_be_bytes([byte(pair, 0), byte(pair, 1)]));
            char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
    };
    let plain = identifier.split(';').next().unwrap_or_default();
    let plain = plain.strip_suffix('.').unwrap_or(plain);
    plain.eq_ignore_ascii_case(wanted)
        || (names == Names::Ascii && plain.eq_ignore_ascii_case(&short_name(wanted)))
        || rock_ridge_name(entry).is_some_and(|name| name.eq_ignore_ascii_case(wanted.as_bytes()))
}

/// `igninfo.json` as ISO level 1 writes it: `igninfo.jso`.
fn short_name(name: &str) -> String {
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    let stem: String = stem.chars().take(8).collect();
    let extension: String = extension.chars().take(3).collect();
    if extension.is_empty() { stem } else { format!("{stem}.{extension}") }
}

/// The POSIX name behind the identifier, if it is there in one piece.
fn rock_ridge_name(entry: &[u8]) -> Option<&[u8]> {
    // What follows the identifier begins at an even offset.
    let mut rest = entry.get((33 + usize::from(byte(entry, 32))).next_multiple_of(2)..)?;
    while let [a, b, length, _version, ..] = *rest {
        let field = rest.get(..usize::from(length)).filter(|field| field.len() >= 4)?;
        if [a, b] == *b"NM" {
            return field.get(5..).filter(|_| byte(field, 4) == 0);
        }
        rest = &rest[field.len()..];
    }
    None
}

fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or_default()
}

fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([byte(bytes, at), byte(bytes, at + 1)])
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([byte(bytes, at), byte(bytes, at + 1), byte(bytes, at + 2), byte(bytes, at + 3)])
}

/// A part of a descriptor or record; empty if it is too short for it.
fn slice(bytes: &[u8], at: usize, length: usize) -> &[u8] {
    bytes.get(at..at + length).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use kiln_testimage::{TempDir, require, run};

    use super::*;

    /// An ISO of a few files, written with these options of genisoimage or xorriso.
    fn write_iso(program: &str, options: &[&str]) -> Vec<u8> {
        let folder = TempDir::new("iso9660");
        let tree = folder.join("tree");
        fs::create_dir_all(tree.join("coreos/deep")).unwrap();
        fs::write(tree.join("coreos/igninfo.json"), "{}").unwrap();
        fs::write(tree.join("coreos/deep/a-long-name.with.dots"), "found").unwrap();
        for number in 0..200 {
            fs::write(tree.join(format!("coreos/file{number:03}.txt")), format!("{number}")).unwrap();
        }
        let iso = folder.join("out.iso");
        let mut command = Command::new(program);
        command.args(options).arg("-V").arg("fedora-coreos-44").arg("-o").arg(&iso).arg(&tree);
        run(&mut command);
        fs::read(iso).unwrap()
    }

    #[test]
    fn files_are_found_by_every_name_that_tools_write() {
        let test = "files_are_found_by_every_name_that_tools_write";
        let cases: [(&str, &[&str], usize); 4] = [
            ("genisoimage", &["-quiet"], 1),
            ("genisoimage", &["-quiet", "-rational-rock", "-J", "-joliet-long"], 2),
            ("xorriso", &["-as", "mkisofs", "-quiet"], 1),
            ("xorriso", &["-as", "mkisofs", "-quiet", "-iso-level", "4", "-J", "-R"], 2),
        ];
        for (program, options, trees) in cases {
            if require(test, program, program).is_none() {
                return;
            }
            let bytes = write_iso(program, options);
            let iso = Iso::open(&bytes).unwrap();
            assert_eq!(iso.volume_id(), "fedora-coreos-44");
            assert_eq!(iso.read_file("coreos/igninfo.json", 10).unwrap(), Some(b"{}".to_vec()), "{options:?}");
            assert_eq!(iso.read_file("/COREOS/file199.TXT", 10).unwrap(), Some(b"199".to_vec()), "{options:?}");
            assert_eq!(iso.read_file("coreos/no/file", 10).unwrap(), None);
            assert_eq!(iso.find("coreos/file000.txt/below").unwrap(), None);
            assert_eq!(iso.volume_lengths_at().count(), trees);
            let records = iso.records("coreos/file123.txt").unwrap();
            assert_eq!(records.len(), trees);
            for record in records {
                assert_eq!(bytes.read_vec(record.offset, record.length as usize).unwrap(), b"123");
                let location = Record::location((record.offset / SECTOR) as u32, 3);
                assert_eq!(bytes.read_vec(record.location_at(), 16).unwrap(), location);
            }
            if trees == 2 {
                let deep = iso.read_file("coreos/deep/a-long-name.with.dots", 10).unwrap();
                assert_eq!(deep, Some(b"found".to_vec()));
            }
        }
    }

    #[test]
    fn cut_off_and_changed_isos_are_refused_without_panic() {
        if require("cut_off_and_changed_isos_are_refused_without_panic", "genisoimage", "genisoimage").is_none() {
            return;
        }
        let bytes = write_iso("genisoimage", &["-quiet", "-rational-rock", "-J"]);
        let problem = Iso::open(&bytes[..bytes.len() / 2]).unwrap_err().to_string();
        assert!(problem.contains("the file was cut off"), "{problem}");
        let problem = Iso::open(&bytes[..1000]).unwrap_err().to_string();
        assert_eq!(problem, "ISO volume descriptor 1 is damaged: the image ends before it");
        // Volume descriptors and the first directories, every third byte.
        let mut changed = bytes.clone();
        for place in (16 * 2048..28 * 2048).step_by(3) {
            for value in [0, 0xff, bytes[place] ^ 0x80] {
                changed[place] = value;
                if let Ok(iso) = Iso::open(&changed) {
                    let _ = iso.records("coreos/igninfo.json");
                    let _ = iso.read_file("coreos/file123.txt", 100);
                }
            }
            changed[place] = bytes[place];
        }
    }
}
