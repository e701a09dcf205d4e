//! Images for whole-command tests: made by other programs, changed by the real `kiln`, judged by other programs.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, reason = "each test file uses its part of this")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use kiln_testimage::{Disk, Layout, TempDir, run};

pub const BOND: &str = "\
interfaces:
- {name: eno2, type: ethernet, state: up}
- {name: eno3, type: ethernet, state: up}
- name: bond0
  type: bond
  state: up
  link-aggregation: {mode: 802.3ad, port: [eno2, eno3]}
  ipv4: {enabled: true, dhcp: true}
";
pub const IGNITION: &str = r#"{"ignition":{"version":"3.4.0"},"systemd":{"units":[{"name":"kiln.service","contents":"[Service]\nExecStart=/bin/true\n"}]}}"#;
pub const NETWORK_NAMES: [&str; 3] = ["bond0.nmconnection", "eno2.nmconnection", "eno3.nmconnection"];

/// What a command said and how it ended.
pub struct Said {
    pub exit: i32,
    pub output: String,
    pub complaints: String,
}

/// A folder with the documents every test needs.
pub fn folder(name: &str) -> TempDir {
    let folder = TempDir::new(name);
    folder.write("bond.yaml", BOND);
    folder.write("host.ign", IGNITION);
    folder
}

pub fn kiln(folder: &TempDir, arguments: &[&str]) -> Said {
    let result = Command::new(env!("CARGO_BIN_EXE_kiln")).args(arguments).current_dir(folder.path()).output().unwrap();
    Said {
        exit: result.status.code().unwrap_or(-1),
        output: String::from_utf8_lossy(&result.stdout).into_owned(),
        complaints: String::from_utf8(result.stderr).unwrap(),
    }
}

/// The same, for commands that must succeed. Returns what they printed.
pub fn done(folder: &TempDir, arguments: &[&str]) -> String {
    let said = kiln(folder, arguments);
    assert_eq!(said.exit, 0, "kiln {arguments:?}\n{}{}", said.output, said.complaints);
    said.output
}

pub fn sha256(path: &Path) -> String {
    let output = run(Command::new("sha256sum").arg(path));
    String::from_utf8(output).unwrap().split_whitespace().next().unwrap().to_owned()
}

/// A command that must succeed, by its words; the last of them are paths.
pub fn tool(program: &str, arguments: &[&str], paths: &[&Path]) -> String {
    String::from_utf8_lossy(&run(Command::new(program).args(arguments).args(paths))).into_owned()
}

/// The boot partition of a raw disk as a file of its own, clean to e2fsck.
pub fn boot_of(disk: &Path, layout: &Layout, folder: &TempDir) -> PathBuf {
    let length = (layout.boot.end - layout.boot.start) as usize;
    let mut bytes = vec![0; length];
    File::open(disk).unwrap().read_exact_at(&mut bytes, layout.boot.start).unwrap();
    let boot = folder.write("boot.ext4", bytes);
    tool("e2fsck", &["-fn"], &[&boot]);
    boot
}

/// A file of an ext4, as debugfs reads it.
pub fn cat(boot: &Path, path: &str) -> String {
    tool("debugfs", &["-R", &format!("cat {path}")], &[boot])
}

/// `0600 root`, as debugfs tells it.
pub fn mode_of(boot: &Path, path: &str) -> String {
    let stat = tool("debugfs", &["-R", &format!("stat {path}")], &[boot]);
    let after = |word: &str| stat.split(word).nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    format!("{} {}:{}", after("Mode:"), after("User:"), after("Group:"))
}

/// A small CoreOS disk.
pub fn write_disk(folder: &TempDir, name: &str, disk: &Disk) -> Layout {
    disk.write(&folder.join(name))
}

/// Names in a folder, sorted; hidden ones included.
pub fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
