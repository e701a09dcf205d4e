//! `kiln net merge`.

use super::super::{Outcome, output::Failure};

pub fn run(_args: &super::MergeArgs) -> Result<Outcome, Failure> {
    Err(anyhow::anyhow!("not yet").into())
}
