//! `kiln image inspect`: what an image is and what has been put into it.

use super::super::{Outcome, output::Failure};

/// Runs the verb.
pub fn run(_args: &super::InspectArgs) -> Result<Outcome, Failure> {
    Err(Failure::refused(anyhow::anyhow!("`kiln image inspect` is not built yet")))
}
