//! Entry point; everything is in the library so that `xtask` can generate man pages and completions from it.

use std::process::ExitCode;

fn main() -> ExitCode {
    kiln::cli::main()
}
