//! `cargo xtask test`: the README's test command and what CI runs.
//!
//! Installs the real programs that tests compare against when it may (root and apt-get); where it may not, each test
//! that needs a missing one says so in a line of its own and is skipped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::{cargo, execute, fuzz, generate, kubectl, testbed, tidy};

/// A program some test needs, and the Debian package it comes from.
const ORACLES: [(&str, &str); 31] = [
    ("/usr/lib/NetworkManager/nm-initrd-generator", "network-manager"),
    ("/usr/sbin/NetworkManager", "network-manager"),
    ("/usr/bin/ignition-validate", "ignition"),
    ("/usr/bin/dbus-daemon", "dbus-daemon"),
    ("/usr/sbin/ip", "iproute2"),
    ("/usr/bin/unshare", "util-linux"),
    ("/usr/bin/g++", "g++"),
    ("/usr/sbin/mke2fs", "e2fsprogs"),
    ("/usr/sbin/debugfs", "e2fsprogs"),
    ("/usr/sbin/e2fsck", "e2fsprogs"),
    ("/usr/sbin/sfdisk", "fdisk"),
    ("/usr/bin/qemu-img", "qemu-utils"),
    ("/usr/bin/qemu-io", "qemu-utils"),
    ("/usr/bin/qemu-storage-daemon", "qemu-utils"),
    ("/usr/bin/gzip", "gzip"),
    ("/usr/sbin/dnsmasq", "dnsmasq-base"),
    ("/usr/bin/pigz", "pigz"),
    ("/usr/bin/igzip", "isal"),
    ("/usr/bin/libdeflate-gzip", "libdeflate-tools"),
    ("/usr/bin/busybox", "busybox"),
    ("/usr/bin/cpio", "cpio"),
    ("/usr/bin/xz", "xz-utils"),
    ("/usr/bin/zstd", "zstd"),
    ("/usr/bin/genisoimage", "genisoimage"),
    ("/usr/bin/xorriso", "xorriso"),
    ("/usr/bin/curl", "curl"),
    ("/usr/bin/openssl", "openssl"),
    // The three libraries coreos-installer is built with.
    ("/usr/bin/pkg-config", "pkg-config"),
    ("/usr/include/openssl/ssl.h", "libssl-dev"),
    ("/usr/include/lzma.h", "liblzma-dev"),
    ("/usr/include/zstd.h", "libzstd-dev"),
];

/// Fuzz targets are built for a quarter of an hour: on a day on which everything else took longer than this, CI has no
/// time left for that.
const LEFT_FOR_FUZZ: Duration = Duration::from_secs(40 * 60);

/// The judge of live ISOs, which Debian does not have.
const COREOS_INSTALLER: &str = "0.27.0";

pub fn run(fuzz_seconds: u32) -> Result<()> {
    let begun = Instant::now();
    let complete = install_packages(&[&ORACLES[..], &testbed::PROGRAMS[..]].concat())?;
    if complete {
        build_coreos_installer()?;
        kubectl::fetch()?;
    } else if let Err(error) = kubectl::fetch() {
        println!("{error:#}: what needs kubectl will be skipped");
    }
    execute(cargo().args(["fmt", "--all", "--check"]))?;
    execute(cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    tidy::run()?;
    generate::run(true)?;
    let bootable = complete && nix::unistd::Uid::effective().is_root();
    if bootable {
        testbed::run()?;
    } else {
        println!("not root on a Debian machine: no machine will be booted");
    }
    let mut tests = cargo();
    tests.args(["test", "--workspace", "--no-fail-fast"]);
    if bootable {
        // From here on a test that finds its program missing is a failure, not a skip.
        tests.env("KILN_REQUIRE_ORACLES", "1");
    }
    execute(&mut tests)?;
    if !Path::new("/usr/bin/g++").exists() {
        println!("skipped: fuzz targets: g++ is not installed (apt-get install g++)");
    } else if begun.elapsed() > LEFT_FOR_FUZZ {
        println!("skipped: fuzz targets: the tests took {} minutes (cargo xtask fuzz)", begun.elapsed().as_secs() / 60);
    } else {
        fuzz::run(fuzz_seconds, None)?;
    }
    println!("all checks passed");
    Ok(())
}

/// Builds the real coreos-installer once into the target folder, and keeps the layouts of real ISOs that its source has.
pub fn build_coreos_installer() -> Result<()> {
    let layouts = Path::new("target/oracles/iso-layouts");
    if Path::new("target/oracles/bin/coreos-installer").exists() && !layouts.exists() {
        // Built long ago: the source may still be there.
        let _ = copy_iso_layouts(layouts);
    }
    if !Path::new("target/oracles/bin/coreos-installer").exists() || !layouts.exists() {
        let mut install = cargo();
        install.args([
            "install",
            "coreos-installer",
            "--version",
            COREOS_INSTALLER,
            "--locked",
            "--root",
            "target/oracles",
            "--force",
        ]);
        execute(&mut install)?;
        copy_iso_layouts(layouts)?;
    }
    Ok(())
}

/// `cargo install` leaves the source it built in cargo's registry.
fn copy_iso_layouts(target: &Path) -> Result<()> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo"))).unwrap_or_default();
    let sources = home.join("registry/src");
    let registries = std::fs::read_dir(&sources).with_context(|| format!("cannot read `{}`", sources.display()))?;
    let folder = registries
        .flatten()
        .map(|registry| registry.path().join(format!("coreos-installer-{COREOS_INSTALLER}/fixtures/iso")))
        .find(|folder| folder.is_dir())
        .with_context(|| format!("no source of coreos-installer {COREOS_INSTALLER} in `{}`", sources.display()))?;
    let unfinished = target.with_extension("unfinished");
    std::fs::create_dir_all(&unfinished)?;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        std::fs::copy(entry.path(), unfinished.join(entry.file_name()))?;
    }
    std::fs::rename(unfinished, target)?;
    Ok(())
}

/// Installs what is missing if that is possible here. True when nothing is missing afterwards.
pub fn install_packages(programs: &[(&str, &str)]) -> Result<bool> {
    let missing = || -> Vec<&str> {
        let packages = programs.iter().filter(|(path, _)| !Path::new(path).exists()).map(|(_, package)| *package);
        packages.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
    };
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").args(arguments);
        execute(&mut command)
    };
    // A package may push out another of the list that came from elsewhere: that one is then installed anew.
    const ROUNDS: usize = 3;
    for round in 0..ROUNDS {
        let packages = missing();
        if packages.is_empty() {
            return Ok(true);
        }
        let root = nix::unistd::Uid::effective().is_root();
        if !root || !Path::new("/usr/bin/apt-get").exists() {
            println!("not root on a Debian machine: what needs {} will be skipped", packages.join(", "));
            return Ok(false);
        }
        if round == 0 {
            apt(&["update", "-q"])?;
        }
        apt(&[&["install", "-q", "-y", "--no-install-recommends"], packages.as_slice()].concat())?;
    }
    Ok(missing().is_empty())
}
