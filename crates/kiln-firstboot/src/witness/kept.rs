//! Reports nobody took, on the boot partition until a later boot delivers them. Few and small: others need that space.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use kiln_core::beacon::{LONGEST_REPORT, Report};

use crate::folder::read_bounded;

const MOST_FILES: usize = 8;
const MOST_BYTES: u64 = 256 * 1024;

/// Keeps a report in the place of an earlier one of the same boot and point; the oldest of others go when there are too many.
pub fn keep(folder: &Path, report: &Report) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let place = folder.join(report.file_name());
    let unfinished = place.with_extension("unfinished");
    let text = report.clone().render();
    make_room(folder, &place, text.len() as u64)?;
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&unfinished, &place)?;
    fs::File::open(folder)?.sync_all()
}

/// The files of kept reports, the oldest first.
pub fn list(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<(SystemTime, PathBuf)> = entries
        .filter(|entry| entry.path().extension().is_some_and(|ending| ending == "json"))
        .map(|entry| {
            (entry.metadata().and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::UNIX_EPOCH), entry.path())
        })
        .collect();
    files.sort();
    files.into_iter().map(|(_, path)| path).collect()
}

/// A kept report, marked as late.
pub fn read(path: &Path) -> Option<Report> {
    let report = Report::parse(&read_bounded(path, LONGEST_REPORT).ok()?).ok()?;
    Some(Report { kept: true, ..report })
}

fn make_room(folder: &Path, place: &Path, needed: u64) -> io::Result<()> {
    // What a power cut left half written.
    for entry in fs::read_dir(folder)?
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|ending| ending == "unfinished"))
    {
        fs::remove_file(entry.path())?;
    }
    let mut files = list(folder);
    files.retain(|path| path != place);
    let size = |path: &PathBuf| fs::metadata(path).map_or(0, |metadata| metadata.len());
    let mut bytes: u64 = needed + files.iter().map(size).sum::<u64>();
    let mut count = files.len() + 1;
    for path in &files {
        if count <= MOST_FILES && bytes <= MOST_BYTES {
            break;
        }
        bytes -= size(path);
        count -= 1;
        fs::remove_file(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use kiln_core::beacon::Point;

    use super::*;

    #[test]
    fn the_newest_eight_are_kept_and_the_same_point_once() {
        let folder = std::env::temp_dir().join(format!("kiln-kept-{}", std::process::id()));
        let text = r#"{"point": "Network", "bootId": "b", "uptimeMs": 1}"#;
        let mut report = Report::parse(text.as_bytes()).unwrap();
        for number in 0..12_u32 {
            report.boot_id = format!("boot{number}");
            report.hostname = Some("x".repeat(1000));
            keep(&folder, &report).unwrap();
            keep(&folder, &report).unwrap();
        }
        let names: Vec<_> = list(&folder).iter().map(|path| path.file_name().unwrap().to_owned()).collect();
        assert_eq!(names.len(), MOST_FILES);
        assert!(names.contains(&"boot11-Network.json".into()) && !names.contains(&"boot0-Network.json".into()));
        let read = read(&folder.join("boot11-Network.json")).unwrap();
        assert_eq!((read.point, read.kept), (Point::Network, true));
        fs::remove_dir_all(&folder).unwrap();
    }
}
