//! `kiln net diff`: what differs between two folders of keyfiles, by meaning.

use std::path::Path;

use anyhow::anyhow;
use kiln_core::keyfile::ConnectionFile;
use kiln_core::network::diff::diff;

use super::super::{Outcome, output, output::Failure};
use super::keyfile_dir::read_keyfiles;

/// Compares and prints. As with diff(1): 0 the same, 1 different, 2 trouble.
pub fn run(args: &super::DiffArgs) -> Result<Outcome, Failure> {
    let differences = diff(&read_side(&args.a)?, &read_side(&args.b)?);
    output::print(&differences.iter().map(|difference| format!("{difference}\n")).collect::<String>())?;
    Ok(if differences.is_empty() { Outcome::Done } else { Outcome::Refused })
}

fn read_side(path: &Path) -> Result<Vec<ConnectionFile>, Failure> {
    let read = read_keyfiles(path)?;
    match read.unreadable.first() {
        Some((path, reason)) => Err(anyhow!("`{}` is not a keyfile: {reason}", path.display()).into()),
        None => Ok(read.files),
    }
}
