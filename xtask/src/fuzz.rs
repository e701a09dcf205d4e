//! Builds and runs the fuzz targets in `fuzz/` with libFuzzer's coverage on the stable compiler.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::{cargo, execute};

/// What cargo-fuzz would pass, without a sanitizer: Kiln has no unsafe code for one to watch.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions";

/// Largest input tried and memory and time allowed for one: the bounds parsers promise.
const BOUNDS: [&str; 3] = ["-max_len=8192", "-rss_limit_mb=1024", "-timeout=5"];

/// Runs each target, or the named one, for some seconds.
pub fn run(seconds: u32, only: Option<&str>) -> Result<()> {
    let triple = "x86_64-unknown-linux-gnu";
    execute(
        cargo()
            .args(["build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target", triple])
            .env("RUSTFLAGS", COVERAGE),
    )?;
    for entry in fs::read_dir("fuzz/fuzz_targets")? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let corpus = Path::new("fuzz/corpus").join(&name);
        let seeds = Path::new("fuzz/seeds").join(&name);
        fs::create_dir_all(&corpus)?;
        execute(
            Command::new(format!("fuzz/target/{triple}/release/{name}"))
                .arg(&corpus)
                .args(seeds.exists().then_some(&seeds))
                .args(BOUNDS)
                .arg(format!("-max_total_time={seconds}")),
        )?;
    }
    Ok(())
}
