//! Runs one program and prints wall time, CPU time, peak memory and bytes written.
//!
//! A process of its own, because the kernel keeps the peak memory of all children together: one child, one figure.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use serde_json::{Value, json};

#[derive(clap::Args)]
pub struct Args {
    /// Accept this exit code too (a program that reports findings exits with 1)
    #[arg(long)]
    accept: Option<i32>,
    /// How often the program is run; the figures are totals
    #[arg(long, default_value_t = 1)]
    times: u32,
    /// Program and arguments, `{n}` becoming the number of the run; its output is thrown away
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

pub fn run(args: &Args) -> Result<()> {
    let start = Instant::now();
    for number in 0..args.times {
        let status = Command::new(&args.command[0])
            .args(args.command[1..].iter().map(|argument| argument.replace("{n}", &number.to_string())))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .with_context(|| format!("cannot start {}", args.command[0]))?;
        ensure!(status.success() || status.code() == args.accept, "{:?} ended with {status}", args.command);
    }
    let wall = start.elapsed().as_secs_f64();
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    let cpu = seconds(usage.user_time()) + seconds(usage.system_time());
    println!(
        "{}",
        json!({"wall_seconds": wall, "cpu_seconds": cpu, "peak_kilobytes": usage.max_rss(), "written_blocks": usage.block_writes()})
    );
    Ok(())
}

/// Figures of one measured run.
#[derive(Clone, Copy)]
pub struct Figures {
    pub wall_seconds: f64,
    pub cpu_seconds: f64,
    pub peak_megabytes: f64,
    pub written_megabytes: f64,
}

/// How many cores the measured program may use.
#[derive(Clone, Copy)]
pub enum Cores {
    One,
    All,
}

/// Measures a command in a fresh process.
pub fn measure(cores: Cores, times: u32, command: &[&str]) -> Result<Figures> {
    let myself = std::env::current_exe()?;
    let cores = match cores {
        Cores::One => "0".to_owned(),
        Cores::All => format!("0-{}", std::thread::available_parallelism()?.get() - 1),
    };
    let output = Command::new("taskset")
        .args(["-c", &cores])
        .arg(myself)
        .args(["measure", "--accept", "1", "--times", &times.to_string(), "--"])
        .args(command)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run taskset (package util-linux)")?;
    ensure!(output.status.success(), "measuring {command:?} failed");
    let figures: Value = serde_json::from_slice(&output.stdout)?;
    let number = |key: &str| figures[key].as_f64().with_context(|| format!("no {key} in {figures}"));
    Ok(Figures {
        wall_seconds: number("wall_seconds")?,
        cpu_seconds: number("cpu_seconds")?,
        peak_megabytes: number("peak_kilobytes")? / 1024.0,
        // The kernel counts dirtied pages in units of 512 bytes.
        written_megabytes: number("written_blocks")? * 512.0 / 1e6,
    })
}
