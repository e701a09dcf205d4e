//! The images are what they claim to be: judged by sfdisk, e2fsck, qemu-img and coreos-installer.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a failed test")]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::process::Command;

use kiln_testimage::{
    Boot, CopyNetwork, Disk, Headers, Initramfs, LiveIso, Packing, Qcow2Options, TempDir, disk, live_iso, require,
    require_all, run, to_qcow2, unpack,
};

fn text(command: &mut Command) -> String {
    String::from_utf8(run(command)).unwrap()
}

#[test]
fn a_disk_has_the_partitions_of_coreos_and_a_clean_boot_file_system() {
    const TEST: &str = "a_disk_has_the_partitions_of_coreos_and_a_clean_boot_file_system";
    let programs =
        [disk::PROGRAMS, &[("sfdisk", "fdisk"), ("e2fsck", "e2fsprogs"), ("qemu-img", "qemu-utils")]].concat();
    if !require_all(TEST, &programs) {
        return;
    }
    let folder = TempDir::new(TEST);
    let raw = folder.join("disk.raw");
    let layout = Disk::default().write(&raw);
    let table = text(Command::new("sfdisk").arg("--json").arg(&raw));
    for name in ["BIOS-BOOT", "EFI-SYSTEM", "boot", "root"] {
        assert!(table.contains(&format!("\"name\": \"{name}\"")), "{table}");
    }
    assert!(text(Command::new("sfdisk").arg("--verify").arg(&raw)).contains("No errors detected."));
    let boot = folder.join("boot");
    let mut part = vec![0; (layout.boot.end - layout.boot.start) as usize];
    File::open(&raw).unwrap().read_exact_at(&mut part, layout.boot.start).unwrap();
    std::fs::write(&boot, part).unwrap();
    run(Command::new("e2fsck").arg("-fn").arg(&boot));
    let entry =
        text(Command::new("debugfs").arg("-R").arg("cat /loader/entries/ostree-1-fedora-coreos.conf").arg(&boot));
    assert!(entry.starts_with("title Fedora CoreOS 44.20261101.3.0 (ostree:0)\n"), "{entry}");
    let qcow2 = folder.join("disk.qcow2");
    to_qcow2(&raw, &qcow2, &Qcow2Options::default());
    run(Command::new("qemu-img").arg("check").arg(&qcow2));
    let packed = folder.join("disk.qcow2.gz");
    kiln_testimage::pack(Packing::Gzip(6), &qcow2, &packed);
    unpack(&packed, &folder.join("again.qcow2"));
    run(Command::new("cmp").arg(&qcow2).arg(folder.join("again.qcow2")));
}

#[test]
fn a_disk_of_4096_byte_sectors_has_its_table_in_those_units() {
    const TEST: &str = "a_disk_of_4096_byte_sectors_has_its_table_in_those_units";
    if !require_all(TEST, disk::PROGRAMS) {
        return;
    }
    let folder = TempDir::new(TEST);
    let raw = folder.join("disk.raw");
    Disk { sector_size: 4096, boot: Boot { already_booted: true, ..Boot::default() }, ..Disk::default() }.write(&raw);
    let mut magic = [0; 8];
    File::open(&raw).unwrap().read_exact_at(&mut magic, 4096).unwrap();
    assert_eq!(&magic, b"EFI PART");
}

#[test]
fn an_initramfs_is_an_early_archive_and_a_packed_one() -> io::Result<()> {
    const TEST: &str = "an_initramfs_is_an_early_archive_and_a_packed_one";
    for (packing, magic) in [
        (Packing::Xz(1), b"\xfd7zX".as_slice()),
        (Packing::Zstd(1), b"\x28\xb5\x2f\xfd"),
        (Packing::Gzip(1), b"\x1f\x8b"),
    ] {
        let (program, package) = packing.program();
        if require(TEST, program, package).is_none() {
            return Ok(());
        }
        let bytes =
            Initramfs { packing, filling_bytes: 1000, copy_network: CopyNetwork::Initramfs, live: false }.bytes();
        assert!(bytes.starts_with(b"070701"));
        let trailer = bytes.windows(10).position(|window| window == b"TRAILER!!!").unwrap();
        let main = (trailer + 11).next_multiple_of(512);
        assert!(bytes[main..].starts_with(magic), "{packing:?}");
    }
    Ok(())
}

#[test]
fn coreos_installer_finds_the_areas_of_every_kind_of_iso() {
    const TEST: &str = "coreos_installer_finds_the_areas_of_every_kind_of_iso";
    let Some(installer) = kiln_testimage::coreos_installer(TEST) else { return };
    if !require_all(TEST, live_iso::PROGRAMS) {
        return;
    }
    let folder = TempDir::new(TEST);
    for headers in [Headers::Ignition, Headers::IgnitionAndKargs, Headers::KargsJson, Headers::Json] {
        let path = folder.join(&format!("{headers:?}.iso"));
        let iso = LiveIso { headers, ..LiveIso::default() };
        iso.write(&path);
        if headers != Headers::Ignition {
            let shown = text(Command::new(&installer).args(["iso", "kargs", "show"]).arg(&path));
            assert_eq!(shown.trim_end(), iso.kargs);
        }
        let config = folder.write("config.ign", r#"{"ignition":{"version":"3.4.0"}}"#);
        run(Command::new(&installer).args(["iso", "ignition", "embed", "-i"]).arg(&config).arg(&path));
        let shown = text(Command::new(&installer).args(["iso", "ignition", "show"]).arg(&path));
        assert_eq!(shown, r#"{"ignition":{"version":"3.4.0"}}"#);
    }
}
