//! `kiln ignition convert`.

use super::super::{Outcome, output::Failure};

pub fn run(_args: &super::ConvertArgs) -> Result<Outcome, Failure> {
    Err(anyhow::anyhow!("not yet").into())
}
