//! `kiln completions`: completions for the shell the user has.

use clap::{Args, CommandFactory};

use super::{Cli, Outcome, output, output::Failure};

/// What `kiln completions` takes.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: clap_complete::Shell,
}

/// Prints the script.
pub fn run(args: &CompletionsArgs) -> Result<Outcome, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "kiln", &mut script);
    output::print(&String::from_utf8(script)?)?;
    Ok(Outcome::Done)
}
