//! `kiln net diff`.

use super::super::{Outcome, output::Failure};

pub fn run(_args: &super::DiffArgs) -> Result<Outcome, Failure> {
    Err(anyhow::anyhow!("not yet").into())
}
