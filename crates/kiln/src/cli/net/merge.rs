//! `kiln net merge`: two folders of keyfiles become one.
//!
//! A broken keyfile refuses the merge: without it the result would lack a connection. Other files only take no part.

use std::path::Path;

use anyhow::anyhow;
use kiln_core::network::merge::{Merged, merge};

use super::super::{Outcome, output, output::Failure};
use super::keyfile_dir::{ReadKeyfiles, read_keyfiles, write_keyfiles};

/// Reads both, merges, prints every decision, writes.
pub fn run(args: &super::MergeArgs) -> Result<Outcome, Failure> {
    let super::MergeArgs { base_dir, overlay_dir, out } = args;
    let base = read_side(base_dir)?;
    let overlay = read_side(overlay_dir)?;
    let mut complete = true;
    for (path, reason) in base.unreadable.iter().chain(&overlay.unreadable) {
        output::complain(&format!("warning: {} takes no part: {reason}\n", path.display()));
        let named = path == base_dir || path == overlay_dir;
        complete &= !named && path.extension().is_none_or(|ending| ending != "nmconnection");
    }
    if base.files.is_empty() && overlay.files.is_empty() {
        let both = format!("neither `{}` nor `{}` has a keyfile", base_dir.display(), overlay_dir.display());
        return Err(Failure::refused(anyhow!(both)));
    }
    refuse_input_as_output(out, [base_dir, overlay_dir])?;
    if !complete {
        output::complain(&format!("nothing was written to {}: repair or remove the broken keyfiles\n", out.display()));
        return Ok(Outcome::Refused);
    }
    let Merged { files, decisions } = merge(&base.files, &overlay.files);
    let paths = write_keyfiles(out, &files)?;
    output::print(&decisions.iter().map(|decision| format!("{decision}\n")).collect::<String>())?;
    output::print(&paths.iter().map(|path| format!("wrote {}\n", path.display())).collect::<String>())?;
    Ok(Outcome::Done)
}

fn read_side(folder: &Path) -> Result<ReadKeyfiles, Failure> {
    read_keyfiles(folder).map_err(Failure::Refused)
}

fn refuse_input_as_output(out: &Path, inputs: [&Path; 2]) -> Result<(), Failure> {
    let Ok(real) = out.canonicalize() else { return Ok(()) };
    if inputs.iter().any(|input| input.canonicalize().is_ok_and(|input| input == real)) {
        let reason = format!("`{}` is one of the folders to merge; choose another with --out", out.display());
        return Err(Failure::refused(anyhow!(reason)));
    }
    Ok(())
}
