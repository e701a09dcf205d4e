//! `kiln image customize`: one file in, one file out.

use super::super::{Outcome, output::Failure};

/// Runs the verb.
pub fn run(args: &super::CustomizeArgs) -> Result<Outcome, Failure> {
    let Some(_wish) = super::wish::read(&args.wish)? else { return Ok(Outcome::Refused) };
    Err(Failure::refused(anyhow::anyhow!("`kiln image customize` is not built yet")))
}
