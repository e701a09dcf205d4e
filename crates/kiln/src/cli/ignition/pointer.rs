//! `kiln ignition pointer`.

use super::super::{Outcome, output::Failure};

pub fn run(_args: &super::PointerArgs) -> Result<Outcome, Failure> {
    Err(anyhow::anyhow!("not yet").into())
}
