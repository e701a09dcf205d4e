//! Any deflate stream: it is inflated as zlib-rs inflates it, or refused as zlib-rs refuses it; in a .gz it is scanned,
//! read anywhere and edited. Any bytes as a .gz, an index or a composed file: within bounds.
#![no_main]

use std::io::Read;

use flate2::{Decompress, FlushDecompress, Status};
use kiln_image::deflate::{Inflater, Step};
use kiln_image::gz_index::{GzDisk, GzIndex, scan};
use kiln_image::splice::{Undo, close, open, restore};
use kiln_image::{Composed, Patch, ReadAt};

/// Longer contents teach nothing more.
const LONGEST: usize = 4 << 20;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = scan(bytes, None, |_| {});
    let _ = GzDisk::new(bytes).read_exact_at(bytes.len() as u64, &mut [0; 1000]);
    let _ = GzIndex::from_bytes(bytes);
    let _ = restore(bytes);
    let own = inflate(bytes);
    let reference = reference(bytes);
    if own.as_ref().is_none_or(|(contents, _)| contents.len() < LONGEST) {
        assert!(own == reference, "zlib-rs judges otherwise");
    }
    if let Some((contents, used)) = own.filter(|(contents, _)| contents.len() < LONGEST) {
        edit(&bytes[..used], contents);
    }
});

fn inflate(stream: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut inflater = Inflater::at(stream, 0, 0, &[]).ok()?;
    let mut contents = Vec::new();
    loop {
        let step = inflater.step(stream).ok()?;
        contents.extend_from_slice(inflater.chunk());
        match step {
            Step::End { bit } => return Some((contents, bit.div_ceil(8) as usize)),
            _ if contents.len() >= LONGEST => return Some((contents, 0)),
            _ => {}
        }
    }
}

fn reference(stream: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut decompress = Decompress::new(false);
    let mut contents = Vec::new();
    loop {
        contents.reserve(64 * 1024);
        let (used, made) = (decompress.total_in(), decompress.total_out());
        match decompress.decompress_vec(&stream[used as usize..], &mut contents, FlushDecompress::None) {
            Ok(Status::StreamEnd) => return Some((contents, decompress.total_in() as usize)),
            Ok(_) if contents.len() >= LONGEST => return Some((contents, 0)),
            Ok(_) if (used, made) != (decompress.total_in(), decompress.total_out()) => {}
            Ok(_) | Err(_) => return None,
        }
    }
}

/// The stream as a .gz with a change in the middle and a tail.
fn edit(stream: &[u8], mut contents: Vec<u8>) {
    let hash = |bytes: &[u8]| {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        crc.sum()
    };
    let mut gz = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    gz.extend_from_slice(stream);
    gz.extend_from_slice(&hash(&contents).to_le_bytes());
    gz.extend_from_slice(&(contents.len() as u32).to_le_bytes());
    let index = scan(&gz, None, |_| {}).expect("a good file is refused").index;
    assert!(GzIndex::from_bytes(&index.to_bytes()).is_ok_and(|again| again == index));
    let middle = contents.len() / 2;
    assert!(
        GzDisk::new(&gz).read_vec(middle as u64, contents.len() - middle).is_ok_and(|read| read == contents[middle..])
    );
    let mut patch = Patch::new();
    let changed = &b"changed"[..(contents.len() - middle).min(7)];
    patch.write(middle as u64, changed);
    contents[middle..middle + changed.len()].copy_from_slice(changed);
    contents.extend_from_slice(b"tail");
    let mut opened = open(&gz, &index, &patch, Undo::Keep).expect("a good file is not edited");
    opened.segments.push(kiln_image::Segment::Own(
        close(opened.crc32, opened.inflated_len, b"tail").expect("a tail is not compressed"),
    ));
    let composed = Composed::new(&gz, opened.segments).expect("a segment lies outside");
    let composed = composed.read_vec(0, composed.len() as usize).expect("a segment lies outside");
    let mut read = Vec::new();
    let mut decoder = flate2::bufread::GzDecoder::new(composed.as_slice());
    decoder.read_to_end(&mut read).expect("zlib-rs refuses what was composed");
    assert!(read == contents && decoder.into_inner().is_empty());
    if opened.can_be_restored {
        let original = restore(&composed).expect("no way back").expect("no way back");
        let original = Composed::new(&composed, original).expect("a segment lies outside");
        assert!(original.read_vec(0, gz.len()).is_ok_and(|original| original == gz));
    }
}
