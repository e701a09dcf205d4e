//! Any disk: a table is refused, or its partitions lie within the disk and beside each other.
#![no_main]

use kiln_image::Window;
use kiln_image::gpt::Gpt;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut disk = bytes.to_vec();
    seal(&mut disk);
    let Ok(gpt) = Gpt::read(&disk) else { return };
    let mut places: Vec<(u64, u64)> = gpt.partitions().iter().map(|part| (part.start, part.length)).collect();
    places.sort_unstable();
    assert!(places.iter().all(|&(start, length)| Window::new(&disk, start, length).is_ok()));
    assert!(places.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
    let gap = gpt.unused_gap();
    assert!(gap.is_empty() || places.iter().all(|&(start, _)| start >= gap.end));
});

/// Checksums that fit: fuzzing would not find any.
fn seal(disk: &mut [u8]) {
    for sector in [512, 4096] {
        let Some(header) = disk.get(sector..sector + 512).filter(|header| header.starts_with(b"EFI PART")) else {
            continue;
        };
        let field =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]) as usize;
        let (length, start, entries) =
            (field(12), field(72).saturating_mul(sector), field(80).saturating_mul(field(84)));
        let sum = disk.get(start..start.saturating_add(entries)).map_or(0, crc32fast::hash);
        disk[sector + 88..sector + 92].copy_from_slice(&sum.to_le_bytes());
        disk[sector + 16..sector + 20].fill(0);
        let sum = disk.get(sector..sector.saturating_add(length)).map_or(0, crc32fast::hash);
        disk[sector + 16..sector + 20].copy_from_slice(&sum.to_le_bytes());
    }
}
