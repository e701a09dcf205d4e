//! `kiln-firstboot`: the program for an initramfs. Everything is in the library.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use kiln_firstboot::{FirstbootCommand, run};

/// Copies, hands over and reports the network of a first boot.
#[derive(Debug, Parser)]
#[command(name = "kiln-firstboot", version)]
struct Cli {
    #[command(subcommand)]
    command: FirstbootCommand,
}

fn main() -> ExitCode {
    match run(&Cli::parse().command, &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr().lock(), "error: {error}");
            ExitCode::from(1)
        }
    }
}
