//! `kiln image reset`: an image gets its original bytes back.

use kiln_image::customize::{Change, Original};

use super::super::{Outcome, output, output::Failure};
use super::ResetArgs;
use super::customize::change_image;

/// Restores the original in place, or into another file.
pub fn run(args: &ResetArgs) -> Result<Outcome, Failure> {
    let target = args.output.as_ref().unwrap_or(&args.image);
    let (written, notes, original) = change_image(&args.image, target, args.force, Change::Reset)?;
    for note in &notes {
        output::complain(&format!("note: {note}\n"));
    }
    if target.as_os_str() == "-" {
        output::complain(&format!("sha256 {}\n", written.sha256));
        return Ok(Outcome::Done);
    }
    let what = match original {
        Original::Same => "the original bytes",
        Original::SameDisk => "the original disk",
        Original::Remembered | Original::Lost => "without what could be recognised as a customisation",
    };
    output::print(&format!("wrote {}: {what}\nsha256 {}\n", target.display(), written.sha256))?;
    Ok(Outcome::Done)
}
