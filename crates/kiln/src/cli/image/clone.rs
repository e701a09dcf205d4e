//! A copy of a file with some of its bytes replaced, made by the kernel from file to file.
//!
//! File systems that can share blocks between files (btrfs, xfs) do so, and the copy costs next to nothing; others copy
//! without showing the bytes to this process. Holes stay holes.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use kiln_image::Segment;
use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

/// Whether every range of the source stays where it is. Otherwise blocks could not be shared.
pub fn keeps_places(segments: &[Segment]) -> bool {
    let mut position = 0;
    segments.iter().all(|segment| {
        let stays = !matches!(segment, Segment::Base(range) if range.start != position);
        position += segment.len();
        stays
    })
}

/// Writes a file of these segments, which keep their places.
pub fn write_clone(source: &File, segments: &[Segment], target: &File) -> io::Result<()> {
    let kept = segments.iter().rev().find_map(|segment| match segment {
        Segment::Base(range) => Some(range.end),
        Segment::Own(_) => None,
    });
    // All at once, what will be replaced included: blocks are shared whole, or not at all.
    let mut next = 0;
    while let Some(data) = next_data(source, next..kept.unwrap_or(0))? {
        copy_range(source, data.clone(), target)?;
        next = data.end;
    }
    let mut position = 0;
    for segment in segments {
        if let Segment::Own(bytes) = segment {
            target.write_all_at(bytes, position)?;
        }
        position += segment.len();
    }
    target.set_len(position)
}

/// The next stretch that is no hole.
fn next_data(file: &File, within: Range<u64>) -> io::Result<Option<Range<u64>>> {
    if within.is_empty() {
        return Ok(None);
    }
    let start = match lseek(file, within.start as i64, Whence::SeekData) {
        Ok(start) => start as u64,
        // Nothing but a hole up to the end.
        Err(Errno::ENXIO) => return Ok(None),
        // Devices and some file systems do not tell: everything is data.
        Err(Errno::EINVAL | Errno::EOPNOTSUPP) => return Ok(Some(within)),
        Err(error) => return Err(error.into()),
    };
    if start >= within.end {
        return Ok(None);
    }
    let end = lseek(file, start as i64, Whence::SeekHole)? as u64;
    Ok(Some(start..end.min(within.end)))
}

fn copy_range(mut source: &File, range: Range<u64>, mut target: &File) -> io::Result<()> {
    source.seek(SeekFrom::Start(range.start))?;
    target.seek(SeekFrom::Start(range.start))?;
    let length = range.end - range.start;
    if io::copy(&mut source.take(length), &mut target)? == length {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter while it was copied"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::super::output_file::unnamed_file;
    use super::*;

    #[test]
    fn a_clone_has_the_holes_of_its_source_and_the_bytes_put_over_it() {
        let folder = std::env::temp_dir();
        let source = unnamed_file(&folder).unwrap();
        source.set_len(64 << 20).unwrap();
        source.write_all_at(&[7; 100_000], 40 << 20).unwrap();
        let segments = [
            Segment::Own(b"head".to_vec()),
            Segment::Base(4..41_943_050),
            Segment::Own(b"middle".to_vec()),
            Segment::Base(41_943_056..64 << 20),
            Segment::Own(b"tail".to_vec()),
        ];
        assert!(keeps_places(&segments));
        let target = unnamed_file(&folder).unwrap();
        write_clone(&source, &segments, &target).unwrap();
        let mut expected = vec![0; 64 << 20];
        expected[40 << 20..][..100_000].fill(7);
        expected[..4].copy_from_slice(b"head");
        expected[41_943_050..41_943_056].copy_from_slice(b"middle");
        expected.extend_from_slice(b"tail");
        let mut found = vec![1; expected.len()];
        target.read_exact_at(&mut found, 0).unwrap();
        assert!(found == expected);
        assert_eq!(target.metadata().unwrap().len(), expected.len() as u64);
        assert!(target.metadata().unwrap().blocks() * 512 < 2 << 20, "{}", target.metadata().unwrap().blocks());
    }

    #[test]
    fn ranges_that_move_are_not_cloned() {
        assert!(!keeps_places(&[Segment::Base(1..2)]));
        assert!(!keeps_places(&[Segment::Own(vec![0; 3]), Segment::Base(2..9)]));
        assert!(keeps_places(&[Segment::Base(0..2), Segment::Own(vec![0; 3])]));
    }
}
