//! `cargo xtask bench`: Kiln and its peer in one run, as ratios. Results are kept in `docs/benchmarks.md`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::measure::{Cores, Figures, measure};
use crate::{cargo, execute, fleet};

mod coreos_image;
mod day2;
pub mod firstboot;
mod hub;
mod hub_client;
mod hub_samples;
mod hub_servers;
mod ignition;
mod image;
mod serving;

#[derive(clap::Subcommand)]
pub enum Bench {
    /// A fleet checked and planned, beside `nmstatectl gc` once per host
    Check {
        /// Hosts of the fleet that is compared
        #[arg(long, default_value_t = 1000)]
        hosts: u32,
    },
    /// Images customised, stored and served, beside pigz, coreos-installer and nginx
    Image {
        /// Hosts composed from one base
        #[arg(long, default_value_t = 1000)]
        hosts: u32,
        /// Only make the images that are measured
        #[arg(long)]
        only_make: bool,
    },
    /// A running node's network changed, beside nmstatectl; needs root
    Day2(day2::Args),
    /// The hub's API under load, beside kube-apiserver and etcd when KUBEBUILDER_ASSETS names them
    Hub(hub::Args),
    /// The program in the initramfs: its size, and what it adds to a boot
    Firstboot,
    /// Configs fetched by machines, beside nginx serving the same bytes from a file
    Ignition(ignition::Args),
}

const PEER_VERSION: &str = "2.2.62";
const KILN: &str = "target/release/kiln";
const BENCH: &str = "target/bench";

pub fn run(bench: &Bench) -> Result<()> {
    match bench {
        Bench::Check { hosts } => {
            build("release")?;
            let peer = install_peer()?;
            check(*hosts, &peer)
        }
        Bench::Image { hosts, only_make } => image::run(*hosts, *only_make),
        Bench::Day2(args) => day2::run(args),
        Bench::Hub(args) => hub::run(args),
        Bench::Firstboot => firstboot::run(),
        Bench::Ignition(args) => ignition::run(args),
    }
}

/// Where cargo puts what it builds with a profile.
fn target_of(profile: &str) -> PathBuf {
    Path::new("target").join(if profile == "dev" { "debug" } else { profile })
}

/// Builds `kiln` and this program with a profile: always both, since with either alone their dependencies have other features.
fn build(profile: &str) -> Result<()> {
    execute(cargo().args(["build", "--package", "kiln", "--package", "xtask", "--profile", profile]))
}

/// The same where a load is made: the client must not be slower than the server. Gives the command that measures.
fn build_measuring(bench: &str, profile: &str) -> Result<Command> {
    build(profile)?;
    let mut measuring = Command::new(target_of(profile).join("xtask"));
    measuring.args(["bench", bench, "--built", "--profile", profile]);
    Ok(measuring)
}

/// The peer from its own crate, built once into the target folder.
fn install_peer() -> Result<PathBuf> {
    let root = Path::new("target/bench-tools");
    let program = root.join("bin/nmstatectl");
    if !program.exists() {
        execute(cargo().args(["install", "nmstatectl", "--version", PEER_VERSION, "--locked", "--root"]).arg(root))?;
    }
    Ok(program)
}

fn check(hosts: u32, peer: &Path) -> Result<()> {
    println!("\n| hosts | command | wall s | CPU s | peak MB | µs CPU per host |\n|---|---|---|---|---|---|");
    let mut whole_fleet = None;
    for size in [hosts / 10, hosts, hosts * 10] {
        let folder = write_fleet(size)?;
        let checked = best(&[KILN, "check", "--deny", "warnings", &folder])?;
        row(size, "kiln check", checked);
        let planned = best(&[KILN, "plan", &folder, "-o", "json"])?;
        row(size, "kiln plan", planned);
        if size == hosts {
            whole_fleet = Some((checked, planned));
        }
    }
    let documents = write_documents(hosts)?;
    let one = documents.join("0.yaml");
    let one = one.to_string_lossy();
    let peer = peer.to_string_lossy();
    let calls = hosts.min(1000);
    let peer_calls = measure(Cores::One, calls, &[&peer, "gc", &one])?;
    row(calls, "nmstatectl gc, one call per host", peer_calls);
    // A new folder each time: replacing files would measure the disk's journal instead.
    let rendered = format!("{BENCH}/rendered");
    let _ = fs::remove_dir_all(&rendered);
    let rendered = format!("{rendered}/{{n}}");
    let kiln_calls = measure(Cores::One, calls, &[KILN, "net", "render", &one, "--out", &rendered])?;
    row(calls, "kiln net render, one call per host", kiln_calls);
    if let Some((checked, planned)) = whole_fleet {
        let peer_fleet = peer_calls.wall_seconds * f64::from(hosts) / f64::from(calls);
        println!("\nnmstatectl gc for {hosts} hosts / kiln check: {:.1}×", peer_fleet / checked.wall_seconds);
        println!("nmstatectl gc for {hosts} hosts / kiln plan: {:.1}×", peer_fleet / planned.wall_seconds);
        println!("check + plan: {:.2} s", checked.wall_seconds + planned.wall_seconds);
    }
    println!("kiln net render / nmstatectl gc, per process: {:.2}×", kiln_calls.wall_seconds / peer_calls.wall_seconds);
    Ok(())
}

/// The best of three runs: the others only show what else the machine did.
fn best(command: &[&str]) -> Result<Figures> {
    let mut best = measure(Cores::One, 1, command)?;
    for _ in 0..2 {
        let next = measure(Cores::One, 1, command)?;
        if next.wall_seconds < best.wall_seconds {
            best = next;
        }
    }
    Ok(best)
}

fn row(hosts: u32, what: &str, figures: Figures) {
    let Figures { wall_seconds, cpu_seconds, peak_megabytes, written_megabytes: _ } = figures;
    let per_host = cpu_seconds * 1e6 / f64::from(hosts);
    println!("| {hosts} | {what} | {wall_seconds:.3} | {cpu_seconds:.3} | {peak_megabytes:.0} | {per_host:.0} |");
}

fn write_fleet(hosts: u32) -> Result<String> {
    let folder = format!("{BENCH}/fleet-{hosts}");
    if !Path::new(&folder).exists() {
        fleet::write(hosts, Path::new(&folder))?;
    }
    Ok(folder)
}

/// The nmstate document of the first host as the peer takes it.
fn write_documents(hosts: u32) -> Result<PathBuf> {
    let folder = PathBuf::from(format!("{BENCH}/documents"));
    fs::create_dir_all(&folder)?;
    let fleet = write_fleet(hosts)?;
    let manifest = fs::read_to_string(format!("{fleet}/edge-0000/host-000.yaml"))?;
    let document: String = manifest
        .lines()
        .skip_while(|line| *line != "  config:")
        .skip(1)
        .take_while(|line| line.starts_with("    "))
        .map(|line| format!("{}\n", &line[4..]))
        .collect();
    ensure!(document.contains("bond0.110"), "the fleet's host has no VLAN");
    fs::write(folder.join("0.yaml"), document)?;
    Ok(folder)
}
