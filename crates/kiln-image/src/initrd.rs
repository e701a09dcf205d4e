//! Initrds: cpio archives one after the other, each plain or compressed in its own way.
//!
//! [`walk`] follows the kernel's rules (`init/initramfs.c`): zeros between archives are skipped, a plain archive begins at a
//! multiple of four, a compressed one anywhere; of several files with one path the last one wins. It streams, so that one
//! script is found in 250 MB without keeping them, and stops when the caller has seen enough.
//!
//! What is put behind an initrd, and found there again without inflating the rest, is in [`appended`].
//!
//! Not here: unpacking. Archives compressed with lz4, lzo, bzip2 or lzma are named and refused.

pub mod appended;

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::{ControlFlow, Range};

use crate::ImageError;
use crate::compression::{Compression, Lookahead, Unit};
use crate::cpio::{self, Entry, File};

/// Inflated, an initrd is at most so large: the kernel has to keep it in memory, too.
const INFLATED_LIMIT: u64 = 8 << 30;
/// The largest file that is taken out: an Ignition config or a keyfile.
const FILE_LIMIT: u64 = 64 << 20;
/// All files that are taken out together.
const FILES_LIMIT: u64 = 64 << 20;

/// Where NetworkManager keyfiles for the first boot lie in an initrd.
pub const NETWORK_DIR: &str = "etc/coreos-firstboot-network/";
/// Where a live system looks for its Ignition config.
pub const IGNITION_PATH: &str = "config.ign";
/// Where assisted installation puts configs that are merged below the user's.
pub const BASE_CONFIG_DIR: &str = "usr/lib/ignition/base.d/";

/// One archive of an initrd, or one compressed unit of archives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its bytes in the initrd, without the zeros around it.
    pub range: Range<u64>,
    /// How they are compressed.
    pub compression: Compression,
}

/// What a walk came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Walked {
    /// The end; these are the members.
    Whole(Vec<Member>),
    /// The visitor had seen enough.
    Stopped,
}

/// Shows every entry to the visitor, with a reader that stands at its data.
pub fn walk<R: Read>(
    source: R,
    mut visit: impl FnMut(&Entry, &mut dyn EntryData) -> Result<ControlFlow<()>, ImageError>,
) -> Result<Walked, ImageError> {
    let mut source = Lookahead::new(source);
    let mut members = Vec::new();
    let mut inflated = 0;
    loop {
        source.skip_zeros().map_err(ImageError::read("the initrd"))?;
        let start = source.position();
        let first = source.peek(6).map_err(ImageError::read("the initrd"))?;
        if first.is_empty() {
            return Ok(Walked::Whole(members));
        }
        let part = || format!("initrd (member {} at byte {start})", members.len() + 1);
        let compression = Compression::sniff(first);
        if compression == Compression::None {
            if !first.starts_with(b"0707") {
                return Err(ImageError::damaged(part(), "this is neither a cpio archive nor a known compression"));
            }
            if !start.is_multiple_of(4) {
                let problem = "a plain cpio archive must begin at a multiple of 4, or the kernel does not see it";
                return Err(ImageError::damaged(part(), problem));
            }
            let mut archive = cpio::Reader::new(source);
            if visit_archive(&mut archive, &mut visit).map_err(|error| within(part(), error))?.is_break() {
                return Ok(Walked::Stopped);
            }
            source = archive.into_inner();
        } else {
            let failed = |error: io::Error| ImageError::damaged(part(), error.to_string());
            let unit = Unit::new(source, compression).map_err(failed)?;
            // One byte more than allowed is asked for, so that reaching the limit can be told from the end.
            let mut unit = Lookahead::new(unit.take(INFLATED_LIMIT - inflated + 1));
            loop {
                unit.skip_zeros().map_err(failed)?;
                if unit.peek(1).map_err(failed)?.is_empty() {
                    break;
                }
                let mut archive = cpio::Reader::new(unit);
                if visit_archive(&mut archive, &mut visit).map_err(|error| within(part(), error))?.is_break() {
                    return Ok(Walked::Stopped);
                }
                unit = archive.into_inner();
            }
            inflated += unit.position();
            if inflated > INFLATED_LIMIT {
                let problem = format!("it inflates to more than {} GiB", INFLATED_LIMIT >> 30);
                return Err(ImageError::damaged(part(), problem));
            }
            source = unit.into_inner().into_inner().into_inner();
        }
        members.push(Member { range: start..source.position(), compression });
    }
}

/// The data of the entry a visitor looks at.
pub trait EntryData {
    /// All of it, if it is not more than the limit.
    fn read_all(&mut self, limit: u64) -> Result<Vec<u8>, ImageError>;
}

impl<R: Read> EntryData for cpio::Reader<R> {
    fn read_all(&mut self, limit: u64) -> Result<Vec<u8>, ImageError> {
        cpio::Reader::read_all(self, limit)
    }
}

fn visit_archive<R: Read>(
    archive: &mut cpio::Reader<R>,
    visit: &mut impl FnMut(&Entry, &mut dyn EntryData) -> Result<ControlFlow<()>, ImageError>,
) -> Result<ControlFlow<()>, ImageError> {
    while let Some(entry) = archive.next_entry()? {
        if visit(&entry, archive)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Says in which member something is wrong.
fn within(part: String, error: ImageError) -> ImageError {
    match error {
        ImageError::Damaged { part: inner, problem } => ImageError::damaged(format!("{part}, {inner}"), problem),
        other => other,
    }
}

/// The first file with one of these paths, and its bytes. The rest of the initrd is not read.
pub fn find_file<R: Read>(source: R, paths: &[&str], limit: u64) -> Result<Option<(String, Vec<u8>)>, ImageError> {
    let mut found = None;
    // Of several names of one inode only the last carries the data.
    let mut linked: Option<(String, u32)> = None;
    walk(source, |entry, data| {
        if !entry.is_regular() {
            return Ok(ControlFlow::Continue(()));
        }
        let wanted = paths.contains(&entry.path.as_str());
        let data_of_linked = linked.as_ref().is_some_and(|(_, inode)| *inode == entry.inode && entry.size > 0);
        if wanted && entry.size == 0 && entry.links > 1 {
            linked = Some((entry.path.clone(), entry.inode));
        } else if data_of_linked || (wanted && linked.is_none()) {
            let path = linked.take().map_or_else(|| entry.path.clone(), |(path, _)| path);
            found = Some((path, data.read_all(limit)?));
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    // All names were seen and none had data: the file is empty.
    Ok(found.or(linked.map(|(path, _)| (path, Vec::new()))))
}

/// What installers put into an initrd.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Embedded {
    /// The Ignition config of the live system.
    pub ignition: Option<Vec<u8>>,
    /// Keyfiles for the first boot: names without the directory.
    pub network: BTreeMap<String, Vec<u8>>,
    /// Everything else, by its path, where it was asked for or lies in a member of installers' own.
    pub other: BTreeMap<String, Vec<u8>>,
}

impl Embedded {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.ignition.is_none() && self.network.is_empty() && self.other.is_empty()
    }

    /// How many bytes its files have.
    pub fn byte_count(&self) -> usize {
        let Embedded { ignition, network, other } = self;
        ignition.iter().chain(network.values()).chain(other.values()).map(Vec::len).sum()
    }

    /// As files of an archive, readable by root only.
    pub fn files(&self) -> Vec<File> {
        let Embedded { ignition, network, other } = self;
        let ignition = ignition.iter().map(|bytes| File::private(IGNITION_PATH, bytes.clone()));
        let network = network.iter().map(|(name, bytes)| File::private(format!("{NETWORK_DIR}{name}"), bytes.clone()));
        let other = other.iter().map(|(path, bytes)| File::private(path.clone(), bytes.clone()));
        ignition.chain(network).chain(other).collect()
    }

    /// Sorts one file to where it belongs. A later one of the same path replaces it.
    fn insert(&mut self, path: &str, bytes: Vec<u8>) {
        match path.strip_prefix(NETWORK_DIR) {
            _ if path == IGNITION_PATH => self.ignition = Some(bytes),
            Some(name) if !name.contains('/') => drop(self.network.insert(name.to_owned(), bytes)),
            _ => drop(self.other.insert(path.to_owned(), bytes)),
        }
    }
}

/// Which files of an initrd [`read_embedded`] takes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// Every file: for the area of a live ISO or a wrapped config, which hold nothing else.
    All,
    /// Only what installers put there: for whole initrds.
    Known,
}

/// The files of an initrd that installers put there. Everything is walked.
pub fn read_embedded<R: Read>(source: R, take: Take) -> Result<Embedded, ImageError> {
    Ok(read_members(source, take)?.0)
}

/// The same, with the members that were walked.
fn read_members<R: Read>(source: R, take: Take) -> Result<(Embedded, Vec<Member>), ImageError> {
    let mut embedded = Embedded::default();
    let mut total = 0;
    let walked = walk(source, |entry, data| {
        let path = entry.path.as_str();
        let known = path == IGNITION_PATH || path.starts_with(NETWORK_DIR) || path.starts_with(BASE_CONFIG_DIR);
        if entry.is_regular() && (known || take == Take::All) {
            let bytes = data.read_all(FILE_LIMIT)?;
            total += bytes.len() as u64;
            if total > FILES_LIMIT {
                return Err(ImageError::damaged("initrd", format!("its files have more than {FILES_LIMIT} bytes")));
            }
            embedded.insert(path, bytes);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    match walked {
        Walked::Whole(members) => Ok((embedded, members)),
        Walked::Stopped => Ok((embedded, Vec::new())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use appended::{gzip, xz};

    fn archive(path: &str, text: &str) -> Vec<u8> {
        cpio::write(&[File::private(path, text)]).unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    #[test]
    fn members_of_all_kinds_are_walked_and_measured() {
        let parts = [
            archive("early/microcode", "plain"),
            vec![0; 512],
            gzip(&archive("one", "1"), 0).unwrap(),
            xz(&archive("two", "2")).unwrap(),
            zstd(&[archive("three", "3"), vec![0; 12], archive("four", "4")].concat()),
            vec![0; 3],
            gzip(&archive("one", "again"), 0).unwrap(),
        ];
        let mut initrd = parts.concat();
        initrd.resize(initrd.len().next_multiple_of(4), 0);
        initrd.extend_from_slice(&archive("last", "plain again"));
        let mut seen = Vec::new();
        let walked = walk(initrd.as_slice(), |entry, data| {
            if entry.is_regular() {
                seen.push((entry.path.clone(), String::from_utf8(data.read_all(100)?).unwrap()));
            }
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        let expected = [
            ("early/microcode", "plain"),
            ("one", "1"),
            ("two", "2"),
            ("three", "3"),
            ("four", "4"),
            ("one", "again"),
            ("last", "plain again"),
        ];
        assert_eq!(seen, expected.map(|(path, text)| (path.to_owned(), text.to_owned())));
        let Walked::Whole(members) = walked else { panic!("not walked to the end") };
        let kinds: Vec<Compression> = members.iter().map(|member| member.compression).collect();
        use Compression::{Gzip, None, Xz, Zstd};
        assert_eq!(kinds, [None, Gzip, Xz, Zstd, Gzip, None]);
        for member in &members[1..4] {
            let bytes = &initrd[member.range.start as usize..member.range.end as usize];
            assert!(parts.iter().any(|part| part == bytes), "{member:?}");
        }
        let found = find_file(initrd.as_slice(), &["no", "three"], 10).unwrap();
        assert_eq!(found, Some(("three".into(), b"3".to_vec())));
        assert_eq!(find_file(initrd.as_slice(), &["no"], 10).unwrap(), Option::None);
    }

    #[test]
    fn the_last_file_of_a_path_wins_and_hard_links_have_data() {
        let initrd = [archive("config.ign", "old"), archive("config.ign", "new")].concat();
        assert_eq!(read_embedded(initrd.as_slice(), Take::Known).unwrap().ignition, Some(b"new".to_vec()));
        // Two names of one inode: the first entry has no data.
        let mut linked = cpio::write(&[File::private("a", ""), File::private("b", "text")]).unwrap();
        for start in [0, 112] {
            linked[start + 6..start + 14].copy_from_slice(b"00000007");
            linked[start + 38..start + 46].copy_from_slice(b"00000002");
        }
        assert_eq!(find_file(linked.as_slice(), &["a"], 10).unwrap(), Some(("a".into(), b"text".to_vec())));
    }

    #[test]
    fn what_the_kernel_would_not_read_is_named() {
        let plain = archive("a", "1");
        let cases = [
            ([vec![0; 2], plain.clone()].concat(), "a plain cpio archive must begin at a multiple of 4"),
            ([plain.clone(), b"\x89LZO\0\r\n".to_vec()].concat(), "lzop is recognised but cannot be read"),
            ([plain.clone(), b"text".to_vec()].concat(), "neither a cpio archive nor a known compression"),
            (gzip(b"no archive", 0).unwrap(), "the archive ends within the header"),
            (gzip(&plain, 0).unwrap()[..60].to_vec(), "the gzip data ends too early"),
        ];
        for (initrd, expected) in cases {
            let problem = read_embedded(initrd.as_slice(), Take::All).unwrap_err().to_string();
            assert!(problem.starts_with("initrd (member ") && problem.contains(expected), "{problem}");
        }
    }
}
