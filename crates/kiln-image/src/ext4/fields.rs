//! Little-endian numbers at fixed places of a record.
//!
//! Every record is read with its full length before a field is taken; a place outside it reads as zero and is not
//! written, so that no image can make an access panic.

pub(super) fn u16_at(record: &[u8], at: usize) -> u16 {
    array_at(record, at).map_or(0, u16::from_le_bytes)
}

pub(super) fn u32_at(record: &[u8], at: usize) -> u32 {
    array_at(record, at).map_or(0, u32::from_le_bytes)
}

pub(super) fn u8_at(record: &[u8], at: usize) -> u8 {
    record.get(at).copied().unwrap_or(0)
}

pub(super) fn put(record: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = record.get_mut(at..at.saturating_add(value.len())) {
        place.copy_from_slice(value);
    }
}

pub(super) fn put_u16(record: &mut [u8], at: usize, value: u16) {
    put(record, at, &value.to_le_bytes());
}

pub(super) fn put_u32(record: &mut [u8], at: usize, value: u32) {
    put(record, at, &value.to_le_bytes());
}

fn array_at<const N: usize>(record: &[u8], at: usize) -> Option<[u8; N]> {
    record.get(at..at.checked_add(N)?)?.try_into().ok()
}
