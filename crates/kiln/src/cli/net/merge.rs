//! `kiln net merge`: two folders of keyfiles become one.
//!
//! The output folder never mixes with other files: NetworkManager would load whatever lies beside the result.

use std::fs;
use std::path::Path;

use anyhow::{Context, anyhow};
use kiln_core::keyfile::ConnectionFile;
use kiln_core::network::merge::{Merged, merge};

use super::super::{Outcome, output, output::Failure};
use super::keyfile_dir::{ReadKeyfiles, read_keyfiles, write_keyfiles};

/// Reads both, merges, prints every decision, writes.
pub fn run(args: &super::MergeArgs) -> Result<Outcome, Failure> {
    let super::MergeArgs { base_dir, overlay_dir, out } = args;
    let base = read_side(base_dir)?;
    let overlay = read_side(overlay_dir)?;
    if base.files.is_empty() && overlay.files.is_empty() {
        let both = format!("neither `{}` nor `{}` has a keyfile", base_dir.display(), overlay_dir.display());
        return Err(Failure::refused(anyhow!(both)));
    }
    let Merged { files, decisions } = merge(&base.files, &overlay.files);
    refuse_foreign_files(out, [base_dir, overlay_dir], &files)?;
    for (path, reason) in base.unreadable.iter().chain(&overlay.unreadable) {
        output::print(&format!("{} takes no part: {reason}\n", path.display()))?;
    }
    output::print(&decisions.iter().map(|decision| format!("{decision}\n")).collect::<String>())?;
    let paths = write_keyfiles(out, &files)?;
    output::print(&paths.iter().map(|path| format!("wrote {}\n", path.display())).collect::<String>())?;
    Ok(Outcome::Done)
}

fn read_side(folder: &Path) -> Result<ReadKeyfiles, Failure> {
    read_keyfiles(folder).map_err(Failure::Refused)
}

/// An earlier result has files of the same names only; anything else must not come to lie beside the new one.
fn refuse_foreign_files(out: &Path, inputs: [&Path; 2], files: &[ConnectionFile]) -> Result<(), Failure> {
    let Ok(entries) = fs::read_dir(out) else { return Ok(()) };
    let canonical = |path: &Path| path.canonicalize().ok();
    if inputs.iter().any(|input| canonical(input) == canonical(out)) {
        let reason = format!("`{}` is one of the folders to merge; choose another with --out", out.display());
        return Err(Failure::refused(anyhow!(reason)));
    }
    for entry in entries {
        let name = entry.with_context(|| format!("cannot read the folder `{}`", out.display()))?.file_name();
        if !files.iter().any(|file| name == file.name.as_str()) {
            let reason = format!(
                "`{}` already has `{}`, which is not part of the result; remove it or choose another folder with --out",
                out.display(),
                name.to_string_lossy(),
            );
            return Err(Failure::refused(anyhow!(reason)));
        }
    }
    Ok(())
}
