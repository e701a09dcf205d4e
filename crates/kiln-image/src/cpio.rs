//! newc cpio archives, the format of initrds: read as a stream, written in one deterministic form.
//!
//! [`Reader`] keeps one entry header in memory and nothing else; sizes are never trusted with an allocation.
//! [`write`] gives the same bytes for the same files: sorted paths, counted inodes, no times, everything owned by root,
//! and all parent directories, because the kernel does not unpack a file whose directory is missing.
//!
//! Not here: compression and concatenated archives, see `initrd`. Device nodes and links are listed, not created.
//! dracut pads names with several NULs so that the data of a file begins on a disk block: a name ends at the first one.

use std::collections::BTreeSet;
use std::io::Read;

use crate::ImageError;

const HEADER: usize = 110;
/// The kernel's PATH_MAX, and room for the padding dracut puts after a name.
const NAME_LIMIT: usize = 8192;
const TRAILER: &str = "TRAILER!!!";
const TYPE_MASK: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;

/// One file to put into an archive, or taken out of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Relative to the root, without a leading slash.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// What is in it.
    pub bytes: Vec<u8>,
}

impl File {
    /// A file only root may read: what keyfiles and Ignition configs must be.
    pub fn private(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        File { path: path.into(), mode: 0o600, bytes: bytes.into() }
    }
}

/// What an archive says about one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Relative to the root: without `/` or `./` in front. Bytes that are not UTF-8 are replaced.
    pub path: String,
    /// Type and permission bits.
    pub mode: u32,
    /// Which inode of the archive: hard links share one, and the last of them carries the data.
    pub inode: u32,
    /// How many names that inode has.
    pub links: u32,
    /// Bytes of data that follow.
    pub size: u32,
}

impl Entry {
    /// Whether it is a file with contents of its own.
    pub fn is_regular(&self) -> bool {
        self.mode & TYPE_MASK == REGULAR
    }
}

/// Reads one archive, entry by entry.
#[derive(Debug)]
pub struct Reader<R> {
    source: R,
    position: u64,
    /// Data and padding of the current entry that were not read yet.
    data_left: u64,
    padding: u64,
    /// What the archive says the bytes of the current entry add up to, and what they did so far.
    checksum: Option<u32>,
    sum: u32,
    path: String,
}

impl<R: Read> Reader<R> {
    /// Starts at the first header.
    pub fn new(source: R) -> Self {
        Reader { source, position: 0, data_left: 0, padding: 0, checksum: None, sum: 0, path: String::new() }
    }

    /// How many bytes of the archive were read.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next entry; what was not read of the one before is skipped. `None` after the trailer: the source then stands at
    /// the byte after the archive.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, ImageError> {
        let mut scratch = [0; 16 << 10];
        while self.read_data(&mut scratch)? > 0 {}
        self.skip_padding()?;
        let mut header = [0; HEADER];
        self.fill(&mut header, "header")?;
        let at = self.position - HEADER as u64;
        let checked = match header.get(..6) {
            Some(b"070701") => false,
            Some(b"070702") => true,
            _ => return Err(damaged(at, "this is no newc entry header (070701 or 070702)")),
        };
        let mut fields = [0u32; 13];
        for (field, digits) in fields.iter_mut().zip(header[6..].chunks_exact(8)) {
            *field = parse_hex(digits).ok_or_else(|| damaged(at, "a field of the entry header is no number"))?;
        }
        let [inode, mode, _uid, _gid, links, _time, size, _, _, _, _, name_size, checksum] = fields;
        let name_size = name_size as usize;
        if name_size == 0 || name_size > NAME_LIMIT {
            return Err(damaged(at, format!("a name of {name_size} bytes; 1 to {NAME_LIMIT} are possible")));
        }
        let mut name = vec![0; name_size];
        self.fill(&mut name, "name")?;
        name.truncate(name.iter().position(|&byte| byte == 0).unwrap_or(name.len()));
        self.padding = padding(HEADER as u64 + name_size as u64);
        self.skip_padding()?;
        self.data_left = u64::from(size);
        self.padding = padding(self.data_left);
        self.sum = 0;
        let name = String::from_utf8_lossy(&name);
        if name == TRAILER {
            self.checksum = None;
            // A trailer has no data; if it claims some, they belong to the archive all the same.
            while self.read_data(&mut scratch)? > 0 {}
            self.skip_padding()?;
            return Ok(None);
        }
        self.path = name.trim_start_matches("./").trim_start_matches('/').to_owned();
        self.checksum = (checked && mode & TYPE_MASK == REGULAR).then_some(checksum);
        Ok(Some(Entry { path: self.path.clone(), mode, inode, links, size }))
    }

    /// The next bytes of the current entry; 0 at its end.
    pub fn read_data(&mut self, buffer: &mut [u8]) -> Result<usize, ImageError> {
        let wanted = (buffer.len() as u64).min(self.data_left) as usize;
        if wanted == 0 {
            return Ok(0);
        }
        self.fill(&mut buffer[..wanted], "data")?;
        self.data_left -= wanted as u64;
        if let Some(expected) = self.checksum {
            self.sum = buffer[..wanted].iter().fold(self.sum, |sum, &byte| sum.wrapping_add(byte.into()));
            if self.data_left == 0 && self.sum != expected {
                return Err(damaged(self.position, format!("the checksum of `{}` is wrong", self.path)));
            }
        }
        Ok(wanted)
    }

    /// All bytes of the current entry, if they are not more than the limit.
    pub fn read_all(&mut self, limit: u64) -> Result<Vec<u8>, ImageError> {
        if self.data_left > limit {
            let problem = format!("`{}` has {} bytes, more than {limit}", self.path, self.data_left);
            return Err(damaged(self.position, problem));
        }
        let mut bytes = Vec::new();
        let mut chunk = [0; 16 << 10];
        loop {
            match self.read_data(&mut chunk)? {
                0 => return Ok(bytes),
                count => bytes.extend_from_slice(&chunk[..count]),
            }
        }
    }

    /// The source, where it stands.
    pub fn into_inner(self) -> R {
        self.source
    }

    fn skip_padding(&mut self) -> Result<(), ImageError> {
        let count = std::mem::take(&mut self.padding) as usize;
        let mut zeros = [0; 3];
        // Kernels do not look at padding; neither do we.
        self.fill(zeros.get_mut(..count).unwrap_or_default(), "padding")
    }

    fn fill(&mut self, buffer: &mut [u8], what: &str) -> Result<(), ImageError> {
        let at = self.position;
        self.source.read_exact(buffer).map_err(|error| match error.kind() {
            // A decoder below knows better why there is nothing more.
            std::io::ErrorKind::UnexpectedEof if error.get_ref().is_some() => damaged(at, error.to_string()),
            std::io::ErrorKind::UnexpectedEof => damaged(at, format!("the archive ends within the {what} of an entry")),
            std::io::ErrorKind::InvalidData => damaged(at, error.to_string()),
            _ => ImageError::Read { what: format!("the cpio archive at its byte {at}"), source: error },
        })?;
        self.position += buffer.len() as u64;
        Ok(())
    }
}

/// An archive of these files.
pub fn write(files: &[File]) -> Result<Vec<u8>, ImageError> {
    let mut sorted: Vec<&File> = files.iter().collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    let mut archive = Vec::new();
    let mut inode = 0;
    let mut directories = BTreeSet::new();
    let mut paths = BTreeSet::new();
    for file in sorted {
        let path = file.path.as_str();
        let proper = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
        if !path.split('/').all(proper) || path == TRAILER || path.len() + 1 > NAME_LIMIT {
            let fix = "give a path such as `etc/name`, without `/` in front, `.` and `..`";
            return Err(ImageError::refused(format!("initrd file `{path}`"), "this is no path within an archive", fix));
        }
        let Ok(size) = u32::try_from(file.bytes.len()) else {
            return Err(ImageError::refused(
                format!("initrd file `{path}`"),
                "it has 4 GiB or more",
                "make it smaller",
            ));
        };
        // Sorted, so that a file comes before what would lie in a directory of its name.
        let parents = || path.match_indices('/').map(|(end, _)| &path[..end]);
        if !paths.insert(path) || parents().any(|parent| paths.contains(parent)) {
            let problem = "this path is given twice, or once as a file and once as a directory";
            return Err(ImageError::refused(format!("initrd file `{path}`"), problem, "give each file one name"));
        }
        for parent in parents() {
            if directories.insert(parent) {
                inode += 1;
                write_header(&mut archive, inode, DIRECTORY | 0o755, 2, 0, parent);
            }
        }
        inode += 1;
        write_header(&mut archive, inode, REGULAR | (file.mode & 0o7777), 1, size, path);
        archive.extend_from_slice(&file.bytes);
        pad(&mut archive);
    }
    write_header(&mut archive, 0, 0, 1, 0, TRAILER);
    Ok(archive)
}

fn write_header(archive: &mut Vec<u8>, inode: u32, mode: u32, links: u32, size: u32, name: &str) {
    let fields = [inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name.len() as u32 + 1, 0];
    archive.extend_from_slice(b"070701");
    for field in fields {
        archive.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    archive.extend_from_slice(name.as_bytes());
    archive.push(0);
    pad(archive);
}

fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

/// Zeros up to the next multiple of four.
fn padding(length: u64) -> u64 {
    length.next_multiple_of(4) - length
}

fn parse_hex(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0u32, |number, &digit| Some(number << 4 | char::from(digit).to_digit(16)?))
}

fn damaged(at: u64, problem: impl Into<String>) -> ImageError {
    ImageError::damaged(format!("cpio archive (at its byte {at})"), problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(archive: &[u8]) -> Result<Vec<(String, u32, Vec<u8>)>, String> {
        let mut reader = Reader::new(archive);
        let mut entries = Vec::new();
        while let Some(entry) = reader.next_entry().map_err(|error| error.to_string())? {
            let bytes = reader.read_all(1000).map_err(|error| error.to_string())?;
            entries.push((entry.path, entry.mode, bytes));
        }
        Ok(entries)
    }

    fn sample() -> Vec<u8> {
        let files =
            [File::private("etc/a/two", "22"), File::private("etc/a/one", "1"), File::private("config.ign", "{}")];
        write(&files).unwrap()
    }

    #[test]
    fn what_is_written_is_read_back_with_its_directories_in_order() {
        let archive = sample();
        assert_eq!(archive.len() % 4, 0);
        let expected = [
            ("config.ign", 0o100_600, "{}"),
            ("etc", 0o040_755, ""),
            ("etc/a", 0o040_755, ""),
            ("etc/a/one", 0o100_600, "1"),
            ("etc/a/two", 0o100_600, "22"),
        ];
        let expected: Vec<_> = expected.iter().map(|&(path, mode, text)| (path.into(), mode, text.into())).collect();
        assert_eq!(list(&archive).unwrap(), expected);
    }

    #[test]
    fn the_reader_stops_after_the_trailer() {
        let archive = [sample(), b"next".to_vec()].concat();
        let mut reader = Reader::new(archive.as_slice());
        while reader.next_entry().unwrap().is_some() {}
        assert_eq!(reader.into_inner(), b"next");
    }

    #[test]
    fn sums_of_the_checked_format_are_checked() {
        let mut archive = sample();
        archive[..6].copy_from_slice(b"070702");
        let sum = u32::from(b'{') + u32::from(b'}');
        archive[102..110].copy_from_slice(format!("{sum:08X}").as_bytes());
        list(&archive).unwrap();
        archive[102..110].copy_from_slice(b"000000ff");
        let expected = "cpio archive (at its byte 126) is damaged: the checksum of `config.ign` is wrong";
        assert_eq!(list(&archive).unwrap_err(), expected);
    }

    #[test]
    fn damage_is_named_and_nothing_panics() {
        let archive = sample();
        for length in 0..archive.len() {
            let problem = list(&archive[..length]).unwrap_err();
            assert!(problem.contains("the archive ends within"), "{length}: {problem}");
        }
        for place in 0..archive.len() {
            let mut changed = archive.clone();
            changed[place] ^= 0x41;
            let _ = list(&changed);
        }
        let mut huge = archive.clone();
        huge[54..62].copy_from_slice(b"ffffffff");
        let expected = "`config.ign` has 4294967295 bytes, more than 1000";
        assert!(list(&huge).unwrap_err().contains(expected));
        huge[94..102].copy_from_slice(b"ffffffff");
        assert!(list(&huge).unwrap_err().contains("a name of 4294967295 bytes; 1 to 8192 are possible"));
    }

    #[test]
    fn paths_that_leave_the_archive_are_refused() {
        for path in ["", "/etc/x", "../x", "a//b", "a/./b", "a\0b", TRAILER] {
            let problem = write(&[File::private(path, "")]).unwrap_err().to_string();
            assert!(problem.contains("this is no path within an archive"), "{problem}");
        }
        for paths in [["a", "a"], ["a", "a/b"], ["a/b", "a"]] {
            let problem = write(&paths.map(|path| File::private(path, ""))).unwrap_err().to_string();
            assert!(problem.contains("given twice, or once as a file and once as a directory"), "{problem}");
        }
    }
}
