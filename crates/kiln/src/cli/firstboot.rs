//! `kiln firstboot`: what `kiln-firstboot` does in an initramfs, for those who have only `kiln`.

use kiln_firstboot::FirstbootCommand;

use super::Outcome;
use super::output::{self, Failure};

/// Runs one verb.
pub fn run(command: &FirstbootCommand) -> Result<Outcome, Failure> {
    let mut said = Vec::new();
    let outcome = kiln_firstboot::run(command, &mut said);
    output::print(&String::from_utf8_lossy(&said))?;
    outcome.map_err(Failure::refused)?;
    Ok(Outcome::Done)
}
