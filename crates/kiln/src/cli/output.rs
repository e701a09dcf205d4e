//! The only place that writes to the terminal.

use std::io::{self, Write};
use std::process::ExitCode;

/// Why a command stopped. Refusals are the input's fault, everything else is Kiln's or the machine's.
#[derive(Debug)]
pub enum Failure {
    /// The input is wrong: exit 1.
    Refused(anyhow::Error),
    /// Kiln or the machine failed: exit 2.
    Failed(anyhow::Error),
}

impl Failure {
    /// The input is wrong.
    pub fn refused(error: impl Into<anyhow::Error>) -> Self {
        Failure::Refused(error.into())
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::Failed(error.into())
    }
}

/// Prints to standard output. A reader that went away (`kiln … | head`) ends the program quietly.
pub fn print(text: &str) -> io::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => other,
    }
}

/// Prints to standard error. There is nowhere to report that this failed.
pub fn complain(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Prints the error with its chain of causes and gives the exit code for it.
pub fn print_failure(failure: &Failure) -> ExitCode {
    let (error, code) = match failure {
        Failure::Refused(error) => (error, 1),
        Failure::Failed(error) => (error, 2),
    };
    let mut text = format!("error: {error}\n");
    for cause in error.chain().skip(1) {
        text.push_str(&format!("  caused by: {cause}\n"));
    }
    complain(&text);
    ExitCode::from(code)
}
