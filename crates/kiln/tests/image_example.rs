//! The example that puts a bond into an image does what it says, with a CoreOS-like image made here.
//!
//! `UPDATE_FIXTURES=1` rewrites the expected text. Hashes differ from run to run, because mke2fs writes the time of day
//! into the base; they are compared with what sha256sum says instead.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a failed test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kiln_testimage::{Disk, Packing, Qcow2Options, TempDir, disk, pack, require_all, run, to_qcow2, unpack};

#[test]
fn a_bond_is_put_into_an_image_and_taken_out_again() {
    const TEST: &str = "a_bond_is_put_into_an_image_and_taken_out_again";
    if !require_all(TEST, &[disk::PROGRAMS, &[("qemu-img", "qemu-utils"), ("debugfs", "e2fsprogs")]].concat()) {
        return;
    }
    let folder = TempDir::new(TEST);
    let layout = Disk { boot_mebibytes: 24, ..Disk::default() }.write(&folder.join("disk.raw"));
    to_qcow2(&folder.join("disk.raw"), &folder.join("disk.qcow2"), &Qcow2Options::default());
    pack(Packing::Gzip(6), &folder.join("disk.qcow2"), &folder.join("rhcos.qcow2.gz"));
    let kiln = Path::new(env!("CARGO_BIN_EXE_kiln")).parent().unwrap().to_path_buf();
    let path =
        std::env::join_paths(std::iter::once(kiln).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())))
            .unwrap();
    let example = root().join("examples/bond-vlan");
    let output = Command::new(example.join("image.sh"))
        .arg("rhcos.qcow2.gz")
        .env("PATH", path)
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let complaints = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}{complaints}");
    compare(&example.join("image.txt"), &without_hashes(&said));
    for name in ["bonding", "worker-2"] {
        let packed = folder.join(&format!("{name}.qcow2.gz"));
        let hash = String::from_utf8(run(Command::new("sha256sum").arg(&packed))).unwrap();
        assert!(said.contains(&hash[..64]), "{name} has sha256 {hash}\n{said}");
        let (qcow2, raw, boot) = (folder.join("edited.qcow2"), folder.join("edited.raw"), folder.join("boot"));
        unpack(&packed, &qcow2);
        run(Command::new("qemu-img").args(["convert", "-O", "raw"]).arg(&qcow2).arg(&raw));
        let bytes = fs::read(&raw).unwrap();
        fs::write(&boot, &bytes[layout.boot.start as usize..layout.boot.end as usize]).unwrap();
        run(Command::new("e2fsck").arg("-fn").arg(&boot));
        let keyfile = "cat /coreos-firstboot-network/bond0.110.nmconnection";
        let keyfile = String::from_utf8(run(Command::new("debugfs").args(["-R", keyfile]).arg(&boot))).unwrap();
        assert!(keyfile.contains("parent=bond0"), "{keyfile}");
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The text with every sha256 and every size as `…`.
fn without_hashes(text: &str) -> String {
    let mut shown = String::new();
    for word in text.split_inclusive(|letter: char| !letter.is_ascii_hexdigit()) {
        let digits = word.trim_end_matches(|letter: char| !letter.is_ascii_hexdigit());
        shown.push_str(&if digits.len() == 64 { word.replace(digits, "…") } else { word.to_owned() });
    }
    let sizes = shown.split_inclusive('\n').map(|line| match line.split_once(" (") {
        Some((before, size)) if size.trim_end().ends_with("iB)") => format!("{before} (…)\n"),
        _ => line.to_owned(),
    });
    sizes.collect()
}

fn compare(expected: &Path, found: &str) {
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        fs::write(expected, found).unwrap();
    }
    let wanted = fs::read_to_string(expected).unwrap_or_else(|error| panic!("{}: {error}", expected.display()));
    assert_eq!(found, wanted, "{} differs; UPDATE_FIXTURES=1 rewrites it", expected.display());
}
