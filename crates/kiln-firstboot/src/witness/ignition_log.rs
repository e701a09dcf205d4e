//! What Ignition said last, from wherever this machine keeps it.

use std::fs;
use std::process::{Command, Stdio};

use kiln_core::beacon::redact::last_error;

use crate::folder::read_bounded;
use crate::root::Root;

const LONGEST_LOG: usize = 4 << 20;

/// Ignition's last error without secrets: from `/run/ignition*.log` where a boot keeps such files, else from the journal.
pub fn read_error(root: &Root) -> Option<String> {
    let mut files: Vec<_> = fs::read_dir(root.at("/run")).into_iter().flatten().flatten().collect();
    files.retain(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with("ignition") && name.ends_with(".log")
    });
    files.sort_by_key(|entry| entry.metadata().and_then(|metadata| metadata.modified()).ok());
    let logs = files.iter().rev().filter_map(|entry| read_bounded(&entry.path(), LONGEST_LOG).ok());
    logs.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .find_map(|log| last_error(&log))
        .or_else(|| journal(root))
}

fn journal(root: &Root) -> Option<String> {
    if !root.is_machine() {
        return None;
    }
    let output = Command::new("journalctl")
        .args(["--boot", "--no-pager", "--quiet", "--output=short", "--identifier=ignition", "--lines=500"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    last_error(&String::from_utf8_lossy(&output.stdout[..output.stdout.len().min(LONGEST_LOG)]))
}
