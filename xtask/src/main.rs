//! The project's own chores. `cargo xtask test` is exactly what CI runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Parser;

mod bench;
mod fleet;
mod fuzz;
mod generate;
mod kubectl;
mod licences;
mod measure;
mod test;
mod testbed;
mod tidy;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Kiln's own chores")]
enum Task {
    /// Install what the tests need, then format, lint, tidy, test and fuzz: what CI runs
    Test {
        /// Seconds each fuzz target runs
        #[arg(long, default_value_t = 5)]
        fuzz_seconds: u32,
    },
    /// Make what the first-boot test boots in a virtual machine
    Testbed,
    /// Measure Kiln beside its peers and print ratios
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Write man pages, completions and the list of diagnostics
    Gen {
        /// Only say what differs
        #[arg(long)]
        check: bool,
    },
    /// Check what the compiler does not: headers, sizes, orphans, codes, licences
    Tidy,
    /// Run every fuzz target for a while
    Fuzz {
        /// Seconds each target runs
        #[arg(long, default_value_t = 60)]
        seconds: u32,
        /// Only this target
        target: Option<String>,
    },
    /// Write a generated fleet of manifests
    Fleet {
        /// Number of hosts
        hosts: u32,
        /// Folder to write to
        out: PathBuf,
    },
    /// Run a program and print its wall time, CPU time and peak memory as JSON
    #[command(hide = true)]
    Measure(measure::Args),
}

fn main() -> Result<()> {
    std::env::set_current_dir(root())?;
    match Task::parse() {
        Task::Test { fuzz_seconds } => test::run(fuzz_seconds),
        Task::Testbed => testbed::run(),
        Task::Bench(bench) => bench::run(&bench),
        Task::Gen { check } => generate::run(check),
        Task::Tidy => tidy::run(),
        Task::Fuzz { seconds, target } => fuzz::run(seconds, target.as_deref()),
        Task::Fleet { hosts, out } => fleet::write(hosts, &out),
        Task::Measure(args) => measure::run(&args),
    }
}

/// The root of the checkout.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// cargo, as if it were called by hand. What `cargo run` tells this program about its own package, ring's build script takes for
/// changed: ring and everything above it was compiled once more for each way cargo was called.
fn cargo() -> Command {
    let mut cargo = Command::new("cargo");
    let own = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(own)) {
        cargo.env_remove(name);
    }
    cargo
}

/// Runs a command, showing it and how long it took; an exit code other than 0 ends the task.
fn execute(command: &mut Command) -> Result<()> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let shown = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    println!("$ {shown}");
    let begun = std::time::Instant::now();
    let status = command.status().with_context(|| format!("cannot start {shown}"))?;
    println!("({:.0} s)", begun.elapsed().as_secs_f64());
    if !status.success() {
        bail!("{shown} ended with {status}");
    }
    Ok(())
}

/// Every file git knows or would add below a folder, with one of these endings.
fn files(folder: &str, endings: &[&str]) -> Result<Vec<PathBuf>> {
    let listing = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", folder])
        .output()
        .context("cannot run git")?;
    let listing = String::from_utf8(listing.stdout)?;
    Ok(listing
        .lines()
        .map(PathBuf::from)
        .filter(|path| endings.iter().any(|ending| path.to_string_lossy().ends_with(ending)))
        .filter(|path| path.exists())
        .collect())
}
