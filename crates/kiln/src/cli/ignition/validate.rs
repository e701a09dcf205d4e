//! `kiln ignition validate`.

use super::super::{Outcome, output::Failure};

pub fn run(_args: &super::ValidateArgs) -> Result<Outcome, Failure> {
    Err(anyhow::anyhow!("not yet").into())
}
