//! The way back: the original bytes of a composed .gz, in the extra field of its header.
//!
//! Readers skip subfields they do not know (RFC 1952, 2.3.1.1), so the file is an ordinary .gz to everybody else. The
//! comment field would be no place: Go refuses files whose comment has more than 512 bytes.

use crate::ImageError;
use crate::gz_index::{put_number, take_number};
use crate::read_at::{ReadAt, check_range};
use crate::segment::Segment;

/// Our subfield.
const SUBFIELD: [u8; 2] = *b"Kn";
/// A subfield and its head must fit into the extra field's 16-bit length. busybox alone refuses extra fields that do not
/// fit into its buffer of 16 KiB.
const MOST: usize = 65_000;
const FIXED: usize = 10;

/// A gzip header without name or time: same input, same bytes.
pub(super) fn header(record: Option<&[u8]>) -> Vec<u8> {
    let flags = if record.is_some() { 4 } else { 0 };
    let mut bytes = vec![0x1f, 0x8b, 8, flags, 0, 0, 0, 0, 0, 255];
    if let Some(record) = record {
        bytes.extend_from_slice(&(record.len() as u16 + 4).to_le_bytes());
        bytes.extend_from_slice(&SUBFIELD);
        bytes.extend_from_slice(&(record.len() as u16).to_le_bytes());
        bytes.extend_from_slice(record);
    }
    bytes
}

/// What of the original is not in the body, and where the rest is. None if it does not fit into a header.
pub(super) fn record(gz: &(impl ReadAt + ?Sized), body: &[Segment]) -> Result<Option<Vec<u8>>, ImageError> {
    let mut record = Vec::new();
    let mut original = 0;
    let mut composed = 0;
    for segment in body {
        if let Segment::Base(range) = segment {
            if !put_original(gz, &mut record, original..range.start)? {
                return Ok(None);
            }
            put_number(&mut record, composed);
            put_number(&mut record, range.end - range.start);
            original = range.end;
        }
        composed += segment.len();
    }
    let fits = put_original(gz, &mut record, original..gz.len())?;
    Ok(fits.then_some(record))
}

/// Appends a stretch of the original, unless it is too much.
fn put_original(
    gz: &(impl ReadAt + ?Sized),
    record: &mut Vec<u8>,
    range: std::ops::Range<u64>,
) -> Result<bool, ImageError> {
    let length = range.end.saturating_sub(range.start);
    if length + record.len() as u64 + 40 > MOST as u64 {
        return Ok(false);
    }
    put_number(record, length);
    record.extend(gz.read_vec(range.start, length as usize).map_err(ImageError::read("gzip data"))?);
    Ok(true)
}

/// The original of a composed .gz, made of ranges of the composed one. None if it does not carry its original.
pub fn restore(composed: &(impl ReadAt + ?Sized)) -> Result<Option<Vec<Segment>>, ImageError> {
    let mut fixed = [0; FIXED + 6];
    if composed.len() < fixed.len() as u64 {
        return Ok(None);
    }
    composed.read_exact_at(0, &mut fixed).map_err(ImageError::read("gzip header"))?;
    let length = u16::from_le_bytes([fixed[14], fixed[15]]);
    if fixed[..FIXED] != header(Some(&[]))[..FIXED] || fixed[12..14] != SUBFIELD {
        return Ok(None);
    }
    let record = composed.read_vec(fixed.len() as u64, length.into()).map_err(ImageError::read("gzip header"))?;
    let body = fixed.len() as u64 + u64::from(length);
    let damaged = || ImageError::damaged("gzip header", "the record of the original file contradicts itself");
    let mut rest = record.as_slice();
    let mut segments = Vec::new();
    loop {
        let length = take_number(&mut rest).ok_or_else(damaged)?;
        let length = usize::try_from(length).map_err(|_| damaged())?;
        let (own, after) = rest.split_at_checked(length).ok_or_else(damaged)?;
        rest = after;
        if !own.is_empty() {
            segments.push(Segment::Own(own.to_vec()));
        }
        if rest.is_empty() {
            return Ok(Some(segments));
        }
        let start = take_number(&mut rest).ok_or_else(damaged)?;
        let length = take_number(&mut rest).ok_or_else(damaged)?;
        let start = start.checked_add(body).ok_or_else(damaged)?;
        let length_in_memory = usize::try_from(length).map_err(|_| damaged())?;
        check_range(start, length_in_memory, composed.len()).map_err(|_| damaged())?;
        segments.push(Segment::Base(start..start + length));
    }
}
