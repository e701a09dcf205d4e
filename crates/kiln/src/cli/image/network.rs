//! `kiln image network`: the network files in an image.

use super::super::{Outcome, output::Failure};

/// Runs the verb.
pub fn run(_args: &super::NetworkArgs) -> Result<Outcome, Failure> {
    Err(Failure::refused(anyhow::anyhow!("`kiln image network` is not built yet")))
}
