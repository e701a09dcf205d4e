//! The program in the initramfs: how large it is and what it adds to a boot without waiting for a network.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::measure::{Cores, measure};
use crate::{cargo, execute};

/// Where the static program lies once it is built.
pub const PROGRAM: &str = "target/x86_64-unknown-linux-gnu/firstboot/kiln-firstboot";
/// What it may take of an initramfs and of a boot.
const LARGEST_BYTES: u64 = 8_000_000;
const LONGEST_MILLISECONDS: f64 = 200.0;
const RUNS: u32 = 50;

/// Builds the static program.
pub fn build() -> Result<()> {
    let mut build = cargo();
    build.args(["build", "--profile", "firstboot", "--package", "kiln-firstboot"]);
    build.args(["--target", "x86_64-unknown-linux-gnu"]).env("RUSTFLAGS", "-C target-feature=+crt-static");
    execute(&mut build)
}

pub fn run() -> Result<()> {
    build()?;
    let bytes = fs::metadata(PROGRAM)?.len();
    println!("\nstatic program: {:.2} MB", bytes as f64 / 1e6);
    ensure!(bytes < LARGEST_BYTES, "{PROGRAM} has {bytes} bytes, more than {LARGEST_BYTES}");
    println!("\n| files | step | wall ms | CPU ms | peak MB |\n|---|---|---|---|---|");
    // In memory it is the program that is measured; on the disk of whoever measures, `propagate` waits for its syncs.
    let whole = measure_steps("in memory", &Path::new("/dev/shm").join(format!("kiln-bench-{}", std::process::id())))?;
    measure_steps("on the disk", &Path::new(super::BENCH).join("firstboot"))?;
    println!("\nall steps in memory: {whole:.1} ms");
    ensure!(whole < LONGEST_MILLISECONDS, "a boot is {whole:.0} ms longer, more than {LONGEST_MILLISECONDS}");
    Ok(())
}

/// Runs each verb once on each of many machines; gives the wall time of all verbs for one.
fn measure_steps(files: &str, machines: &Path) -> Result<f64> {
    for number in 0..RUNS {
        write_machine(&machines.join(number.to_string()))?;
    }
    let root = format!("{}/{{n}}", machines.display());
    let mut whole = 0.0;
    for step in [
        vec!["copy-network"],
        vec!["report", "--point", "network", "--time-limit", "0"],
        vec!["report", "--point", "leaving", "--policy", "merge", "--time-limit", "0"],
        vec!["propagate", "--policy", "merge"],
    ] {
        let command = [&[PROGRAM][..], &step, &["--root", &root]].concat();
        let figures = measure(Cores::One, RUNS, &command)?;
        let each = |seconds: f64| seconds * 1e3 / f64::from(RUNS);
        let (wall, cpu) = (each(figures.wall_seconds), each(figures.cpu_seconds));
        println!("| {files} | {} | {wall:.1} | {cpu:.1} | {:.1} |", step.join(" "), figures.peak_megabytes);
        whole += wall;
    }
    fs::remove_dir_all(machines)?;
    Ok(whole)
}

/// A bond of two ports with a VLAN, left for the first boot, and a pool's dummy in the real root.
fn write_machine(root: &Path) -> Result<()> {
    let put = |path: &str, text: &str| -> Result<()> {
        let path: PathBuf = root.join(path);
        fs::create_dir_all(path.parent().unwrap_or(root))?;
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(())
    };
    put("proc/cmdline", "ignition.firstboot rd.neednet=1\n")?;
    let boot = "boot-partition/coreos-firstboot-network";
    put(
        &format!("{boot}/bond0.nmconnection"),
        "[connection]\nid=bond0\ntype=bond\ninterface-name=bond0\n\n[bond]\nmode=802.3ad\n\n[ipv4]\nmethod=disabled\n\n[ipv6]\nmethod=disabled\n",
    )?;
    for nic in ["eth0", "eth1"] {
        put(
            &format!("{boot}/{nic}.nmconnection"),
            &format!("[connection]\nid={nic}\ntype=ethernet\ninterface-name={nic}\nmaster=bond0\nslave-type=bond\n"),
        )?;
        put(&format!("sys/class/net/{nic}/carrier"), "1\n")?;
    }
    put(
        &format!("{boot}/bond0.110.nmconnection"),
        "[connection]\nid=bond0.110\ntype=vlan\ninterface-name=bond0.110\n\n[vlan]\nid=110\nparent=bond0\n\n[ipv4]\nmethod=manual\naddress1=10.0.11.11/24,10.0.11.1\n",
    )?;
    put(
        "sysroot/etc/NetworkManager/system-connections/dummy0.nmconnection",
        "[connection]\nid=dummy0\ntype=dummy\nautoconnect=false\ninterface-name=dummy0\n",
    )
}
