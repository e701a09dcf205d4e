//! `kiln net capture`.

use super::super::{Outcome, output::Failure};

pub fn run(_args: &super::CaptureArgs) -> Result<Outcome, Failure> {
    Err(anyhow::anyhow!("not yet").into())
}
