//! Scans and random access over files of one and of several members, and files that are not in order.

use std::io::Write;

use proptest::prelude::*;

use super::*;
use crate::digest::hex;
use crate::patch::Patch;

fn contents(length: usize) -> Vec<u8> {
    (0..length as u32).map(|n| if n % 50_000 < 20_000 { 0 } else { (n.wrapping_mul(n) >> 7) as u8 % 41 }).collect()
}

fn member(contents: &[u8], header: flate2::GzBuilder) -> Vec<u8> {
    let mut encoder = header.write(Vec::new(), flate2::Compression::new(1));
    encoder.write_all(contents).unwrap();
    encoder.finish().unwrap()
}

fn gzip(contents: &[u8]) -> Vec<u8> {
    member(contents, flate2::GzBuilder::new())
}

fn sha256(bytes: &[u8]) -> String {
    hex(&<sha2::Sha256 as sha2::Digest>::digest(bytes))
}

#[test]
fn a_scan_knows_all_about_a_file_of_several_members() {
    let bytes = contents(20_000_000);
    let (first, rest) = bytes.split_at(12_345_678);
    let (second, third) = rest.split_at(100);
    let mut gz = member(first, flate2::GzBuilder::new().filename("name").comment("comment").extra("extra"));
    gz.extend(gzip(second));
    gz.extend(gzip(b""));
    gz.extend(gzip(third));
    gz.extend([0; 700]);
    let mut patch = Patch::new();
    patch.write(0, b"patched");
    patch.write(12_345_670, b"across two chunks or members");
    let mut seen = 0;
    let scan = scan(&gz, Some(&patch), |done| seen = done).unwrap();
    assert_eq!(seen, gz.len() as u64);
    assert_eq!(scan.gz_sha256, sha256(&gz));
    assert_eq!(scan.inflated_sha256, sha256(&bytes));
    let mut patched = bytes.clone();
    patch.apply(0, &mut patched);
    assert_eq!(scan.patched_sha256.unwrap().finish(), sha256(&patched));
    let index = scan.index;
    assert_eq!((index.gz_len, index.inflated_len), (gz.len() as u64, bytes.len() as u64));
    assert_eq!(index.crc32, crc32fast::hash(&bytes));
    assert_eq!(index.members.len(), 4);
    assert_eq!(index.members[1].inflated, (12_345_678, 12_345_778));
    assert_eq!(index.checkpoints.len(), 1);
    let saved = index.to_bytes();
    assert_eq!(GzIndex::from_bytes(&saved).unwrap(), index);
    for cut in [0, 7, 8, 20, saved.len() - 1] {
        assert_eq!(
            GzIndex::from_bytes(&saved[..cut]).unwrap_err().to_string(),
            "gzip index is damaged: it is not one that this version of Kiln wrote"
        );
    }
    for disk in [GzDisk::new(&gz), GzDisk::with_index(&gz, &index)] {
        for (at, length) in [(19_999_990, 10), (0, 10), (12_345_600, 300), (9_000_000, 700_000), (5, 0)] {
            assert!(disk.read_vec(at, length).unwrap() == bytes[at as usize..at as usize + length], "{at} {length}");
        }
        let error = disk.read_exact_at(19_999_990, &mut [0; 11]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
        assert_eq!(disk.known_len(), Some(20_000_000));
    }
}

#[test]
fn the_beginning_is_read_without_the_rest() {
    let bytes = contents(3_000_000);
    let mut gz = gzip(&bytes);
    let end = gz.len();
    gz[end / 2..].fill(0xff);
    let disk = GzDisk::new(&gz);
    assert!(disk.len() >= 3_000_000);
    assert!(disk.read_vec(1000, 100_000).unwrap() == bytes[1000..101_000]);
    assert_eq!(disk.known_len(), None);
    assert!(disk.read_vec(2_900_000, 10).is_err());
    assert!(disk.read_vec(1000, 100_000).unwrap() == bytes[1000..101_000]);
}

#[test]
fn files_that_are_not_in_order_are_refused() {
    let bytes = contents(100_000);
    let good = gzip(&bytes);
    let end = good.len();
    let with = |at: usize, byte: u8| {
        let mut gz = good.clone();
        gz[at] ^= byte;
        gz
    };
    let cut_off = "gzip data is damaged: it ends in the middle: the file was cut off";
    let crc32 = crc32fast::hash(&bytes);
    let wrong_crc32 = crc32 ^ 1;
    let mut more = good.clone();
    more.extend(b"\0\0more");
    let mut twice = good.clone();
    twice.extend(&good[..end - 3]);
    let cases = [
        (vec![], "byte 0 of the gzip file is damaged: no gzip header begins here".into()),
        (b"QFI\xfb".to_vec(), "byte 0 of the gzip file is damaged: no gzip header begins here".into()),
        (with(2, 1), "gzip header at byte 0 is damaged: compression method 9 does not exist".into()),
        (with(3, 0x80), "gzip header at byte 0 is damaged: it uses flags that do not exist".into()),
        (with(3, 2), "gzip header at byte 0 is damaged: its checksum does not fit".into()),
        (good[..5].to_vec(), cut_off.into()),
        (good[..end / 2].to_vec(), cut_off.into()),
        (good[..end - 1].to_vec(), cut_off.into()),
        (good[..end - 9].to_vec(), cut_off.into()),
        (twice, cut_off.into()),
        (
            with(end - 8, 1),
            format!(
                "gzip data before byte {} is damaged: its CRC-32 is {crc32:08x}, the file says {wrong_crc32:08x}",
                end - 8
            ),
        ),
        (
            with(end - 4, 1),
            format!(
                "gzip data before byte {} is damaged: it holds 100000 bytes, the file says 100001 (modulo 2^32)",
                end - 8
            ),
        ),
        (
            more,
            format!(
                "byte {end} of the gzip file: there is something else after the compressed data; \
                 cut it off, or compress the image again"
            ),
        ),
    ];
    for (gz, expected) in cases {
        assert_eq!(scan(&gz, None, |_| {}).unwrap_err().to_string(), expected);
    }
}

#[test]
fn a_header_checksum_is_checked() {
    let mut gz = gzip(b"contents");
    gz[3] |= 2;
    let crc32 = crc32fast::hash(&gz[..10]) as u16;
    gz.splice(10..10, crc32.to_le_bytes());
    assert_eq!(scan(&gz, None, |_| {}).unwrap().inflated_sha256, sha256(b"contents"));
}

#[test]
fn too_many_members_are_refused() {
    let gz = gzip(b"x").repeat(4097);
    assert_eq!(
        scan(&gz, None, |_| {}).unwrap_err().to_string(),
        "gzip file: it has more than 4096 members; compress the image again with gzip or pigz"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]
    #[test]
    fn a_disk_reads_like_its_contents(reads in prop::collection::vec((0usize..900_000, 0usize..300_000), 1..20)) {
        let bytes = contents(1_000_000);
        let (first, second) = bytes.split_at(333_333);
        let mut gz = gzip(first);
        gz.extend(gzip(second));
        let disk = GzDisk::new(&gz);
        for (at, length) in reads {
            let length = length.min(bytes.len() - at);
            prop_assert!(disk.read_vec(at as u64, length).unwrap() == bytes[at..at + length]);
        }
    }
}
