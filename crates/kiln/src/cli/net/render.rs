//! `kiln net render`.

use super::super::{Outcome, output::Failure};

pub fn run(_args: &super::RenderArgs) -> Result<Outcome, Failure> {
    Err(anyhow::anyhow!("not yet").into())
}
