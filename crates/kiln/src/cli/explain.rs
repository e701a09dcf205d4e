//! `kiln explain`: the long story of one diagnostic.

use clap::Args;
use kiln_core::diagnostic::{Code, registry};

use super::{Outcome, output, output::Failure};

/// What `kiln explain` takes.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// A code such as KLN0101
    code: String,
}

/// Prints the story.
pub fn run(args: &ExplainArgs) -> Result<Outcome, Failure> {
    let number = args.code.to_ascii_uppercase();
    let number = number.strip_prefix("KLN").unwrap_or(&number).parse().map(Code).ok();
    let known = number.and_then(registry::explanation).ok_or_else(|| {
        Failure::refused(anyhow::anyhow!("there is no diagnostic `{}`; codes look like KLN0101", args.code))
    })?;
    output::print(&format!("{}: {}\n\n{}", known.code, known.title, known.story))?;
    Ok(Outcome::Done)
}
