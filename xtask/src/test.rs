//! `cargo xtask test`: the README's test command and what CI runs.
//!
//! Installs the real programs that tests compare against when it may (root and apt-get); where it may not, each test
//! that needs a missing one says so in a line of its own and is skipped.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::{execute, fuzz, generate, tidy};

/// A program some test needs, and the Debian package it comes from.
const ORACLES: [(&str, &str); 7] = [
    ("/usr/lib/NetworkManager/nm-initrd-generator", "network-manager"),
    ("/usr/sbin/NetworkManager", "network-manager"),
    ("/usr/bin/ignition-validate", "ignition"),
    ("/usr/bin/dbus-daemon", "dbus-daemon"),
    ("/usr/sbin/ip", "iproute2"),
    ("/usr/bin/unshare", "util-linux"),
    ("/usr/bin/g++", "g++"),
];

pub fn run(fuzz_seconds: u32) -> Result<()> {
    let complete = install_oracles()?;
    execute(Command::new("cargo").args(["fmt", "--all", "--check"]))?;
    execute(Command::new("cargo").args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    tidy::run()?;
    generate::run(true)?;
    let mut tests = Command::new("cargo");
    tests.args(["test", "--workspace", "--no-fail-fast"]);
    if complete {
        // From here on a test that finds its program missing is a failure, not a skip.
        tests.env("KILN_REQUIRE_ORACLES", "1");
    }
    execute(&mut tests)?;
    if Path::new("/usr/bin/g++").exists() {
        fuzz::run(fuzz_seconds, None)?;
    } else {
        println!("skipped: fuzz targets: g++ is not installed (apt-get install g++)");
    }
    println!("all checks passed");
    Ok(())
}

/// Installs what is missing if that is possible here. True when nothing is missing afterwards.
fn install_oracles() -> Result<bool> {
    let missing = || -> Vec<&str> {
        ORACLES.iter().filter(|(path, _)| !Path::new(path).exists()).map(|(_, package)| *package).collect()
    };
    let mut packages = missing();
    packages.dedup();
    if packages.is_empty() {
        return Ok(true);
    }
    let root = nix::unistd::Uid::effective().is_root();
    if !root || !Path::new("/usr/bin/apt-get").exists() {
        println!("not root on a Debian machine: tests that need {} will be skipped", packages.join(", "));
        return Ok(false);
    }
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").args(arguments);
        execute(&mut command)
    };
    apt(&["update", "-q"])?;
    apt(&[&["install", "-q", "-y", "--no-install-recommends"], packages.as_slice()].concat())?;
    Ok(missing().is_empty())
}
