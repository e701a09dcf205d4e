//! `kiln image reset`: an image gets its original bytes back.

use super::super::{Outcome, output::Failure};

/// Runs the verb.
pub fn run(_args: &super::ResetArgs) -> Result<Outcome, Failure> {
    Err(Failure::refused(anyhow::anyhow!("`kiln image reset` is not built yet")))
}
