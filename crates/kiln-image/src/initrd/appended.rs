//! What is appended to an initrd: made, found again from its end, and taken off so that the original bytes remain.
//!
//! Kiln's member is a gzip member whose file name in the gzip header is `kiln-N`, N being the zeros put before it. The
//! kernel skips that name; `pigz -lv` shows it. With it the member is found in the last megabytes of an initrd without
//! inflating the hundred before, and the length of the original is known to the byte. Archives that coreos-installer
//! appended are xz and are found by their footer.

use std::io::Write;
use std::ops::Range;

use flate2::write::DeflateEncoder;
use lzma_rust2::{CheckType, XzOptions, XzWriter};

use super::{Embedded, Take, read_members};
use crate::compression::Compression;
use crate::cpio::{self, File};
use crate::{ImageError, ReadAt};

/// How far from the end an appended member may begin.
const SEARCH: u64 = 32 << 20;
/// How many places that look like a member are tried: an initrd that repeats the name must not cost hours.
const TRIES: usize = 8;
/// How many members are looked at. Installers append one or two.
const MOST_MEMBERS: usize = 64;
/// What may be in all of them together, in bytes.
const MOST_BYTES: usize = 64 << 20;
/// gzip, deflate, a name follows, no time, best compression, unix.
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 2, 3];
const NAME: &[u8] = b"kiln-";

/// What to write behind an initrd of this length so that these files are in it. The same files give the same bytes.
pub fn append_member(initrd_length: u64, files: &[File]) -> Result<Vec<u8>, ImageError> {
    let zeros = initrd_length.next_multiple_of(4) - initrd_length;
    let mut bytes = vec![0; zeros as usize];
    bytes.extend_from_slice(&gzip(&cpio::write(files)?, zeros as u8)?);
    Ok(bytes)
}

/// An archive of these files in at most so many bytes: gzip, or xz if only that fits. `Err` says how many are needed.
pub fn fit_member(files: &[File], capacity: u64) -> Result<Result<Vec<u8>, u64>, ImageError> {
    let archive = cpio::write(files)?;
    let gzipped = gzip(&archive, 0)?;
    if gzipped.len() as u64 <= capacity {
        return Ok(Ok(gzipped));
    }
    // xz takes a second per megabyte and does not make a quarter of what gzip left.
    if gzipped.len() as u64 / 4 > capacity {
        return Ok(Err(gzipped.len() as u64));
    }
    let xzipped = xz(&archive)?;
    if xzipped.len() as u64 <= capacity {
        return Ok(Ok(xzipped));
    }
    Ok(Err(gzipped.len().min(xzipped.len()) as u64))
}

/// Something found at the end of an initrd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// Its bytes in the initrd, with the zeros before it if Kiln put them there.
    pub range: Range<u64>,
    /// Whether Kiln appended it.
    pub own: bool,
    /// What it contains.
    pub embedded: Embedded,
}

/// The members at the end of an initrd that installers appended, first one first. Kiln's own and xz ones are found; the
/// search ends at the first thing that is neither.
pub fn find_appended(initrd: &impl ReadAt) -> Result<Vec<Appended>, ImageError> {
    let mut found = Vec::new();
    let mut end = initrd.len();
    let mut bytes = 0;
    while let Some(member) = last_member(initrd, end)? {
        end = member.range.start;
        bytes += member.embedded.byte_count();
        found.push(member);
        if found.len() > MOST_MEMBERS || bytes > MOST_BYTES {
            return Err(too_many());
        }
    }
    found.reverse();
    Ok(found)
}

/// How long the initrd was before Kiln appended to it, if its end is Kiln's.
pub fn original_length(initrd: &impl ReadAt) -> Result<Option<u64>, ImageError> {
    let mut end = None;
    for _ in 0..=MOST_MEMBERS {
        match last_own(initrd, end.unwrap_or(initrd.len()))? {
            Some(member) => end = Some(member.range.start),
            None => return Ok(end),
        }
    }
    Err(too_many())
}

fn too_many() -> ImageError {
    let problem = format!(
        "more than {MOST_MEMBERS} archives, or {} MiB, were appended to it, which no installer does",
        MOST_BYTES >> 20
    );
    ImageError::refused("initrd", problem, "take the initrd as it was downloaded")
}

fn last_member(initrd: &impl ReadAt, end: u64) -> Result<Option<Appended>, ImageError> {
    match last_own(initrd, end)? {
        Some(member) => Ok(Some(member)),
        None => last_xz(initrd, end),
    }
}

/// Kiln's member if it ends exactly here.
fn last_own(initrd: &impl ReadAt, end: u64) -> Result<Option<Appended>, ImageError> {
    let magic = [&GZIP_HEADER, NAME].concat();
    // Backwards in pieces, because the member is nearly always small.
    let mut upper = end;
    let floor = end.saturating_sub(SEARCH);
    let mut tries = 0;
    while upper > floor {
        let lower = upper.saturating_sub(256 << 10).max(floor);
        let reach = end.min(upper + magic.len() as u64 + 1);
        let piece =
            initrd.read_vec(lower, (reach - lower) as usize).map_err(ImageError::read("the end of the initrd"))?;
        for (at, window) in piece.windows(magic.len()).enumerate().rev() {
            if window != magic {
                continue;
            }
            tries += 1;
            if tries > TRIES {
                return Ok(None);
            }
            let start = lower + at as u64;
            if let Some(member) = own_member(initrd, start, end)? {
                return Ok(Some(member));
            }
        }
        upper = lower;
    }
    Ok(None)
}

/// Kiln's member, if these bytes are one and nothing else.
fn own_member(initrd: &impl ReadAt, start: u64, end: u64) -> Result<Option<Appended>, ImageError> {
    let bytes = initrd.read_vec(start, (end - start) as usize).map_err(ImageError::read("the end of the initrd"))?;
    let zeros = match bytes.get(GZIP_HEADER.len() + NAME.len()..) {
        Some([digit @ b'0'..=b'3', 0, ..]) => u64::from(digit - b'0'),
        _ => return Ok(None),
    };
    let Some(embedded) = decode_whole(&bytes) else { return Ok(None) };
    let Some(before) = start.checked_sub(zeros) else { return Ok(None) };
    Ok(Some(Appended { range: before..end, own: true, embedded }))
}

/// An xz stream that ends here and holds only what installers append.
fn last_xz(initrd: &impl ReadAt, end: u64) -> Result<Option<Appended>, ImageError> {
    let Some(start) = xz_stream_start(initrd, end)? else { return Ok(None) };
    let bytes = initrd.read_vec(start, (end - start) as usize).map_err(ImageError::read("the end of the initrd"))?;
    if Compression::sniff(&bytes) != Compression::Xz {
        return Ok(None);
    }
    Ok(decode_whole(&bytes)
        .filter(|embedded| embedded.other.keys().all(|path| path.starts_with(super::BASE_CONFIG_DIR)))
        .map(|embedded| Appended { range: start..end, own: false, embedded }))
}

/// What a member contains, if it is one from the first to the last byte.
fn decode_whole(bytes: &[u8]) -> Option<Embedded> {
    let (embedded, members) = read_members(bytes, Take::All).ok()?;
    let [member] = members.as_slice() else { return None };
    (member.range == (0..bytes.len() as u64) && !embedded.is_empty()).then_some(embedded)
}

/// Follows the footer and the index of an xz stream to where the stream begins, if it is small enough to be an appended one.
fn xz_stream_start(initrd: &impl ReadAt, end: u64) -> Result<Option<u64>, ImageError> {
    let read = |offset, length| initrd.read_vec(offset, length).map_err(ImageError::read("the end of the initrd"));
    let Some(footer_at) = end.checked_sub(12) else { return Ok(None) };
    let footer = read(footer_at, 12)?;
    let [_, _, _, _, a, b, c, d, _, _, b'Y', b'Z'] = footer[..] else { return Ok(None) };
    let index_length = (u64::from(u32::from_le_bytes([a, b, c, d])) + 1) * 4;
    let Some(index_at) = footer_at.checked_sub(index_length).filter(|_| index_length <= 64 << 10) else {
        return Ok(None);
    };
    let index = read(index_at, index_length as usize)?;
    let Some((blocks, inflated)) = sum_index(&index) else { return Ok(None) };
    if inflated > SEARCH || blocks > SEARCH {
        return Ok(None);
    }
    Ok(index_at.checked_sub(blocks + 12))
}

/// The bytes of all blocks of an xz stream, and how many they inflate to.
fn sum_index(index: &[u8]) -> Option<(u64, u64)> {
    let mut rest = index.strip_prefix(&[0])?;
    let mut number = || {
        let mut value = 0u64;
        for shift in (0..63).step_by(7) {
            let (&byte, tail) = rest.split_first()?;
            rest = tail;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    };
    let records = number()?;
    let (mut blocks, mut inflated) = (0u64, 0u64);
    for _ in 0..records {
        blocks = blocks.checked_add(number()?.checked_next_multiple_of(4)?)?;
        inflated = inflated.checked_add(number()?)?;
    }
    Some((blocks, inflated))
}

/// A gzip member that carries Kiln's name and says how many zeros were put before it.
pub(crate) fn gzip(bytes: &[u8], zeros: u8) -> Result<Vec<u8>, ImageError> {
    let mut member = GZIP_HEADER.to_vec();
    member.extend_from_slice(NAME);
    member.extend_from_slice(&[b'0' + zeros, 0]);
    let mut encoder = DeflateEncoder::new(member, flate2::Compression::best());
    encoder.write_all(bytes).map_err(in_memory)?;
    let mut member = encoder.finish().map_err(in_memory)?;
    member.extend_from_slice(&crc32fast::hash(bytes).to_le_bytes());
    member.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    Ok(member)
}

/// An xz stream as the kernel wants it: CRC32, and a dictionary no larger than needed.
pub(crate) fn xz(bytes: &[u8]) -> Result<Vec<u8>, ImageError> {
    let mut options = XzOptions::with_preset(9);
    options.set_check_sum_type(CheckType::Crc32);
    // The preset's 64 MiB would cost ten times that in memory here.
    options.lzma_options.dict_size = bytes.len().next_power_of_two().clamp(4 << 10, 8 << 20) as u32;
    let mut encoder = XzWriter::new(Vec::new(), options).map_err(in_memory)?;
    encoder.write_all(bytes).map_err(in_memory)?;
    encoder.finish().map_err(in_memory)
}

fn in_memory(source: std::io::Error) -> ImageError {
    ImageError::Write { what: "the compressed archive".into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::initrd::{NETWORK_DIR, Walked, read_embedded, walk};

    fn network(name: &str, text: &str) -> File {
        File::private(format!("{NETWORK_DIR}{name}"), text)
    }

    /// An initrd of a plain and a compressed archive, with an end that is no multiple of four.
    fn base(extra: usize) -> Vec<u8> {
        let plain = cpio::write(&[File::private("kernel/x86/microcode", "code")]).unwrap();
        let body: Vec<u8> =
            (0..300_000u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let main = cpio::write(&[File { path: "usr/bin/init".into(), mode: 0o755, bytes: body }]).unwrap();
        let mut initrd = [plain, gzip(&main, 0).unwrap()].concat();
        initrd.resize(initrd.len().next_multiple_of(4) + extra, 0);
        initrd
    }

    #[test]
    fn what_was_appended_comes_off_to_the_original_byte() {
        for extra in 0..4 {
            let original = base(extra);
            let mut initrd = original.clone();
            assert_eq!(original_length(&initrd).unwrap(), None);
            initrd.extend(append_member(initrd.len() as u64, &[network("a.nmconnection", "one")]).unwrap());
            let first = initrd.clone();
            initrd.extend(append_member(initrd.len() as u64, &[network("a.nmconnection", "two")]).unwrap());
            assert_eq!(original_length(&initrd).unwrap(), Some(original.len() as u64));
            let appended = find_appended(&initrd).unwrap();
            let texts: Vec<&[u8]> =
                appended.iter().map(|one| one.embedded.network["a.nmconnection"].as_slice()).collect();
            assert_eq!(texts, [b"one", b"two"]);
            assert_eq!(appended[0].range, original.len() as u64..first.len() as u64);
            assert!(matches!(
                walk(initrd.as_slice(), |_, _| Ok(std::ops::ControlFlow::Continue(()))),
                Ok(Walked::Whole(_))
            ));
        }
    }

    #[test]
    fn an_archive_of_another_installer_is_found_by_its_footer() {
        let original = base(0);
        let theirs = xz(&cpio::write(&[network("eth0.nmconnection", "theirs")]).unwrap()).unwrap();
        let mut initrd = [original.clone(), theirs].concat();
        let before = initrd.len() as u64;
        let ours = append_member(before, &[network("eth0.nmconnection", "ours")]).unwrap();
        initrd.extend_from_slice(&ours);
        let appended = find_appended(&initrd).unwrap();
        assert_eq!(appended.iter().map(|one| one.own).collect::<Vec<_>>(), [false, true]);
        assert_eq!(appended[0].range.start, original.len() as u64);
        assert_eq!(original_length(&initrd).unwrap(), Some(before));
        assert_eq!(read_embedded(initrd.as_slice(), Take::Known).unwrap().network["eth0.nmconnection"], b"ours");
        // The other way round Kiln's member is not at the end: it is found, but cannot come off.
        initrd.drain(original.len()..before as usize);
        initrd.extend_from_slice(&xz(&cpio::write(&[network("eth0.nmconnection", "later")]).unwrap()).unwrap());
        assert_eq!(find_appended(&initrd).unwrap().iter().map(|one| one.own).collect::<Vec<_>>(), [true, false]);
        assert_eq!(original_length(&initrd).unwrap(), None);
    }

    #[test]
    fn a_name_that_only_looks_like_ours_is_left_alone() {
        let mut initrd = base(0);
        initrd.extend_from_slice(&GZIP_HEADER);
        initrd.extend_from_slice(b"kiln-0\0and then something else");
        assert_eq!(original_length(&initrd).unwrap(), None);
        assert_eq!(find_appended(&initrd).unwrap(), []);
    }

    #[test]
    fn xz_is_used_where_gzip_does_not_fit() {
        let text: String = (0..20_000).map(|number| format!("{}\n", number * 7 % 1000)).collect();
        let files = [network("a", &text)];
        let large = fit_member(&files, 1 << 20).unwrap().unwrap();
        assert_eq!(Compression::sniff(&large), Compression::Gzip);
        let small = fit_member(&files, large.len() as u64 - 1).unwrap().unwrap();
        assert_eq!(Compression::sniff(&small), Compression::Xz);
        assert_eq!(fit_member(&files, small.len() as u64 - 1).unwrap(), Err(small.len() as u64));
        assert_eq!(fit_member(&files, 100).unwrap(), Err(large.len() as u64));
        let embedded = read_embedded(small.as_slice(), Take::All).unwrap();
        assert_eq!(embedded.network["a"], text.as_bytes());
    }

    #[test]
    fn an_initrd_of_countless_members_is_refused() {
        let member = append_member(0, &[network("a", "1")]).unwrap();
        assert_eq!(find_appended(&member.repeat(64)).unwrap().len(), 64);
        assert_eq!(original_length(&member.repeat(64)).unwrap(), Some(0));
        let many = member.repeat(65);
        let expected = "initrd: more than 64 archives, or 64 MiB, were appended to it, which no installer does; take the initrd as it was downloaded";
        assert_eq!(find_appended(&many).unwrap_err().to_string(), expected);
        assert_eq!(original_length(&many).unwrap_err().to_string(), expected);
    }
}
