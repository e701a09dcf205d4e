//! `kiln image` over every format: what is put in is found by other programs, and a reset gives the same sha256.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a helper that fails is a failed test"
)]

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use kiln_testimage::{
    Boot, CopyNetwork, Disk, Initramfs, Layout, LiveIso, Packing, Qcow2Options, TempDir, boot, disk, live_iso, pack,
    require_all, run, to_qcow2, unpack,
};

use crate::support::{
    IGNITION, NETWORK_NAMES, boot_of, cat, done, folder, kiln, mode_of, names, sha256, tool, write_disk,
};

#[path = "support/image.rs"]
mod support;

const ALL: [&str; 9] = [
    "--network",
    "bond.yaml",
    "--ignition",
    "host.ign",
    "--karg-append",
    "audit=0",
    "--karg-delete",
    "console=tty0",
    "--force-persist-ip",
];

fn able(test: &str, more: &[(&str, &str)]) -> bool {
    let programs = [("e2fsck", "e2fsprogs"), ("debugfs", "e2fsprogs"), ("sha256sum", "coreutils")];
    require_all(test, disk::PROGRAMS) && require_all(test, &programs) && require_all(test, more)
}

/// Everything that was asked for is where the first boot looks, and nowhere open to others.
fn check_boot(raw: &Path, layout: &Layout, folder: &TempDir) {
    let boot = boot_of(raw, layout, folder);
    for name in NETWORK_NAMES {
        let path = format!("/coreos-firstboot-network/{name}");
        assert_eq!(mode_of(&boot, &path), "0600 0:0", "{name}");
        assert!(cat(&boot, &path).contains("[connection]"), "{name}");
    }
    assert_eq!(mode_of(&boot, "/ignition"), "0700 0:0");
    assert_eq!(mode_of(&boot, "/ignition/config.ign"), "0600 0:0");
    assert_eq!(cat(&boot, "/ignition/config.ign"), IGNITION);
    assert_eq!(cat(&boot, "/ignition.firstboot"), "set ignition_network_kcmdline=\"coreos.force_persist_ip\"\n");
    let entry = cat(&boot, &format!("/{}", boot::ENTRY));
    assert!(entry.contains("ignition.platform.id=metal audit=0\nlinux "), "{entry}");
    assert!(!entry.contains("console=tty0"), "{entry}");
}

fn customize(folder: &TempDir, input: &str, output: &str) -> String {
    let mut arguments = vec!["image", "customize", input, "-o", output];
    arguments.extend(ALL);
    done(folder, &arguments)
}

/// Customised, customised again over another wish, and reset: the same files every time.
fn check_round_trip(folder: &TempDir, input: &str, output: &str) {
    let original = sha256(&folder.join(input));
    let told = customize(folder, input, output);
    let first = sha256(&folder.join(output));
    assert!(told.contains(&format!("sha256 {first}\n")), "{told}");
    assert!(told.contains(&format!("    clusterOSImage: http://HOST:PORT/{output}?sha256={first}\n")), "{told}");
    assert_eq!(sha256(&folder.join(input)), original, "the input is never touched");
    done(folder, &["image", "customize", input, "-o", "other", "--karg-append", "quiet", "--network", "bond.yaml"]);
    fs::rename(folder.join("other"), folder.join(&format!("other-{output}"))).unwrap();
    customize(folder, &format!("other-{output}"), &format!("again-{output}"));
    assert_eq!(sha256(&folder.join(&format!("again-{output}"))), first, "customising starts from the original");
    let told = done(folder, &["image", "network", output, "list"]);
    assert_eq!(told.lines().collect::<Vec<_>>(), NETWORK_NAMES);
    done(folder, &["image", "network", output, "remove", "-o", &format!("bare-{output}")]);
    assert_eq!(done(folder, &["image", "network", &format!("bare-{output}"), "list"]), "");
    let inspected = done(folder, &["image", "inspect", &format!("bare-{output}"), "--format", "json"]);
    assert!(inspected.contains("\"audit=0\"") && inspected.contains("ignitionBytes"), "{inspected}");
    let told = done(folder, &["image", "reset", output]);
    assert_eq!(told, format!("wrote {output}: the original bytes\nsha256 {original}\n"));
    assert_eq!(sha256(&folder.join(output)), original);
    done(folder, &["image", "reset", &format!("bare-{output}")]);
    assert_eq!(sha256(&folder.join(&format!("bare-{output}"))), original);
    assert!(names(folder.path()).iter().all(|name| !name.starts_with('.')), "{:?}", names(folder.path()));
}

#[test]
fn a_raw_disk_is_customised_and_reset() {
    if !able("a_raw_disk_is_customised_and_reset", &[]) {
        return;
    }
    for sector_size in [512, 4096] {
        let folder = folder("raw");
        let layout = write_disk(&folder, "base.raw", &Disk { sector_size, ..Disk::default() });
        customize(&folder, "base.raw", "host.raw");
        check_boot(&folder.join("host.raw"), &layout, &folder);
        let blocks = |name: &str| fs::metadata(folder.join(name)).unwrap().blocks();
        assert!(blocks("host.raw") < blocks("base.raw") + 4096, "holes stay holes");
        fs::remove_file(folder.join("host.raw")).unwrap();
        check_round_trip(&folder, "base.raw", "host.raw");
    }
}

#[test]
fn a_qcow2_is_customised_and_reset() {
    if !able("a_qcow2_is_customised_and_reset", &[("qemu-img", "qemu-utils")]) {
        return;
    }
    let folder = folder("qcow2");
    let layout = write_disk(&folder, "base.raw", &Disk { grown_to_mebibytes: Some(200), ..Disk::default() });
    to_qcow2(&folder.join("base.raw"), &folder.join("base.qcow2"), &Qcow2Options::default());
    customize(&folder, "base.qcow2", "host.qcow2");
    check_qcow2(&folder, "host.qcow2", &layout);
    fs::remove_file(folder.join("host.qcow2")).unwrap();
    check_round_trip(&folder, "base.qcow2", "host.qcow2");
}

fn check_qcow2(folder: &TempDir, name: &str, layout: &Layout) {
    let report = tool("qemu-img", &["check"], &[&folder.join(name)]);
    assert!(report.contains("No errors were found"), "{report}");
    tool("qemu-img", &["convert", "-O", "raw"], &[&folder.join(name), &folder.join("seen.raw")]);
    check_boot(&folder.join("seen.raw"), layout, folder);
}

#[test]
fn a_disk_inside_gzip_stays_a_single_member_and_is_reset() {
    let programs = [("qemu-img", "qemu-utils"), ("pigz", "pigz")];
    if !able("a_disk_inside_gzip_stays_a_single_member_and_is_reset", &programs) {
        return;
    }
    let folder = folder("gz");
    let layout = write_disk(&folder, "base.raw", &Disk::default());
    to_qcow2(&folder.join("base.raw"), &folder.join("base.qcow2"), &Qcow2Options::default());
    for (plain, packing) in
        [("base.qcow2", Packing::Gzip(6)), ("base.qcow2", Packing::Pigz(6)), ("base.raw", Packing::Gzip(6))]
    {
        pack(packing, &folder.join(plain), &folder.join("base.gz"));
        customize(&folder, "base.gz", "host.gz");
        for program in ["gzip", "pigz"] {
            tool(program, &["-t"], &[&folder.join("host.gz")]);
        }
        let mut single = Vec::new();
        let packed = fs::read(folder.join("host.gz")).unwrap();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(packed.as_slice()), &mut single).unwrap();
        unpack(&folder.join("host.gz"), &folder.join("host.plain"));
        assert!(single == fs::read(folder.join("host.plain")).unwrap(), "a single member holds everything");
        match plain {
            "base.qcow2" => check_qcow2(&folder, "host.plain", &layout),
            _ => check_boot(&folder.join("host.plain"), &layout, &folder),
        }
        fs::remove_file(folder.join("host.gz")).unwrap();
        check_round_trip(&folder, "base.gz", "host.gz");
        for name in names(folder.path()).iter().filter(|name| name.contains("host")) {
            let _ = fs::remove_file(folder.join(name));
        }
        folder.write("host.ign", IGNITION);
    }
}

#[test]
fn xz_and_zstd_come_out_plain_or_as_gzip() {
    if !able("xz_and_zstd_come_out_plain_or_as_gzip", &[("xz", "xz-utils"), ("zstd", "zstd")]) {
        return;
    }
    let folder = folder("xz");
    let layout = write_disk(&folder, "base.raw", &Disk::default());
    customize(&folder, "base.raw", "plain.raw");
    for (packing, name) in [(Packing::Xz(1), "base.xz"), (Packing::Zstd(1), "base.zst")] {
        pack(packing, &folder.join("base.raw"), &folder.join(name));
        done(&folder, &[&["image", "customize", name, "-o", "host.raw", "--force"], &ALL[..]].concat());
        assert_eq!(sha256(&folder.join("host.raw")), sha256(&folder.join("plain.raw")), "{name}");
        done(&folder, &[&["image", "customize", name, "-o", "host.raw.gz", "--force"], &ALL[..]].concat());
        unpack(&folder.join("host.raw.gz"), &folder.join("host.raw"));
        assert_eq!(sha256(&folder.join("host.raw")), sha256(&folder.join("plain.raw")), "{name} to gzip");
    }
    check_boot(&folder.join("host.raw"), &layout, &folder);
    let said = kiln(&folder, &[&["image", "customize", "base.xz", "-o", "host.xz"], &ALL[..]].concat());
    let expected = "error: Kiln does not write .xz: `host.xz`; give a name that ends in .gz, or in none of these\n";
    assert_eq!((said.exit, said.complaints.as_str()), (1, expected));
    let inspected = done(&folder, &["image", "inspect", "base.xz"]);
    assert!(inspected.starts_with("raw disk in xz, "), "{inspected}");
}

#[test]
fn a_live_iso_and_an_initrd_are_customised_and_reset() {
    let test = "a_live_iso_and_an_initrd_are_customised_and_reset";
    if !require_all(test, live_iso::PROGRAMS) {
        return;
    }
    let folder = folder("iso");
    LiveIso::default().write(&folder.join("base.iso"));
    folder.write("base.img", Initramfs { live: true, ..Initramfs::default() }.bytes());
    for (input, output) in [("base.iso", "host.iso"), ("base.img", "host.img")] {
        let original = sha256(&folder.join(input));
        done(&folder, &["image", "customize", input, "-o", output, "--network", "bond.yaml", "--ignition", "host.ign"]);
        assert_eq!(done(&folder, &["image", "network", output, "list"]).lines().collect::<Vec<_>>(), NETWORK_NAMES);
        let inspected = done(&folder, &["image", "inspect", output]);
        assert!(inspected.contains(&format!("Ignition config ({} bytes)", IGNITION.len())), "{inspected}");
        done(&folder, &["image", "network", output, "remove", "-o", &format!("bare-{output}")]);
        assert_eq!(done(&folder, &["image", "network", &format!("bare-{output}"), "list"]), "");
        done(&folder, &["image", "reset", output]);
        assert_eq!(sha256(&folder.join(output)), original, "{input}");
    }
    done(
        &folder,
        &["image", "customize", "base.iso", "-o", "kargs.iso", "--karg-append", "audit=0", "--force-persist-ip"],
    );
    let inspected = done(&folder, &["image", "inspect", "kargs.iso"]);
    assert!(inspected.contains("kernel arguments added: audit=0 coreos.force_persist_ip\n"), "{inspected}");
    let said = kiln(&folder, &["image", "customize", "base.img", "-o", "kargs.img", "--karg-append", "audit=0"]);
    let expected = "error: `kargs.img` was not written\n  caused by: kernel argument `audit=0`: an initrd has no kernel arguments; \
                    whoever loads it gives them; write it into the boot loader's configuration, e.g. the `kernel` line of iPXE\n";
    assert_eq!((said.exit, said.complaints.as_str()), (1, expected));
}

#[test]
fn network_files_go_where_the_image_looks_for_them() {
    if !able("network_files_go_where_the_image_looks_for_them", &[]) {
        return;
    }
    for (copy_network, on_boot, appended) in [
        (CopyNetwork::BootPartition, true, false),
        (CopyNetwork::Initramfs, false, true),
        (CopyNetwork::Missing, true, true),
    ] {
        let folder = folder("layout");
        let initramfs = Initramfs { copy_network, ..Initramfs::default() };
        let layout = write_disk(
            &folder,
            "base.raw",
            &Disk { boot: Boot { initramfs, ..Default::default() }, ..Disk::default() },
        );
        let before = boot_of(&folder.join("base.raw"), &layout, &folder);
        let path = format!("/{}/{}", boot::OSTREE, boot::INITRAMFS);
        let original = run(Command::new("debugfs").args(["-R", &format!("cat {path}")]).arg(&before));
        let said = kiln(&folder, &["image", "customize", "base.raw", "-o", "host.raw", "--network", "bond.yaml"]);
        assert_eq!(said.exit, 0, "{}", said.complaints);
        assert_eq!(
            said.complaints.contains("put both on the boot partition and into the initramfs"),
            on_boot && appended
        );
        let boot = boot_of(&folder.join("host.raw"), &layout, &folder);
        let listed = tool("debugfs", &["-R", "ls -p /"], &[&boot]);
        assert_eq!(listed.contains("/coreos-firstboot-network/"), on_boot, "{copy_network:?}");
        let initramfs = run(Command::new("debugfs").args(["-R", &format!("cat {path}")]).arg(&boot));
        assert!(initramfs.starts_with(&original), "what was there stays");
        assert_eq!(initramfs.len() > original.len(), appended, "{copy_network:?}");
        if appended {
            let zeros = original.len().next_multiple_of(4) - original.len();
            let mut archive = Vec::new();
            let member = &initramfs[original.len() + zeros..];
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(member), &mut archive).unwrap();
            let archive = String::from_utf8_lossy(&archive).into_owned();
            for name in NETWORK_NAMES {
                assert!(archive.contains(&format!("etc/coreos-firstboot-network/{name}\0")), "{name}");
            }
        }
        assert_eq!(done(&folder, &["image", "network", "host.raw", "list"]).lines().collect::<Vec<_>>(), NETWORK_NAMES);
        done(&folder, &["image", "reset", "host.raw"]);
        assert_eq!(sha256(&folder.join("host.raw")), sha256(&folder.join("base.raw")));
    }
}

#[test]
fn a_customised_disk_that_somebody_compressed_is_reset_too() {
    if !able("a_customised_disk_that_somebody_compressed_is_reset_too", &[("qemu-img", "qemu-utils")]) {
        return;
    }
    let folder = folder("compressed");
    write_disk(&folder, "base.raw", &Disk::default());
    to_qcow2(&folder.join("base.raw"), &folder.join("base.qcow2"), &Qcow2Options::default());
    for name in ["base.raw", "base.qcow2"] {
        done(
            &folder,
            &["image", "customize", name, "-o", "host", "--karg-append", "quiet", "--network", "bond.yaml", "--force"],
        );
        pack(Packing::Gzip(6), &folder.join("host"), &folder.join("host.gz"));
        let said = kiln(&folder, &["image", "reset", "host.gz", "-o", "reset.gz", "--force"]);
        let note = "note: the disk is the original to the byte; the .gz around it is compressed anew\n";
        assert_eq!((said.exit, said.complaints.as_str()), (0, note), "{name}");
        tool("gzip", &["-t"], &[&folder.join("reset.gz")]);
        unpack(&folder.join("reset.gz"), &folder.join("reset"));
        assert_eq!(sha256(&folder.join("reset")), sha256(&folder.join(name)), "{name}");
        // Customising it again starts from the original disk as well.
        done(&folder, &[&["image", "customize", "host.gz", "-o", "again.gz", "--force"], &ALL[..]].concat());
        done(&folder, &[&["image", "customize", name, "-o", "again", "--force"], &ALL[..]].concat());
        unpack(&folder.join("again.gz"), &folder.join("again.plain"));
        assert_eq!(sha256(&folder.join("again.plain")), sha256(&folder.join("again")), "{name}");
    }
}

#[test]
fn a_gz_that_cannot_remember_its_bytes_still_remembers_its_disk() {
    if !able("a_gz_that_cannot_remember_its_bytes_still_remembers_its_disk", &[]) {
        return;
    }
    let folder = folder("anew");
    // Blocks that are free but not empty do not compress, and what an edit replaces there does not fit into 64 KiB.
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    let extra = vec![("garbage".to_owned(), (0..2_000_000).map(|_| next()).collect())];
    let layout = write_disk(&folder, "base.raw", &Disk { boot: Boot { extra, ..Boot::default() }, ..Disk::default() });
    let boot = boot_of(&folder.join("base.raw"), &layout, &folder);
    tool("debugfs", &["-w", "-R", "rm /garbage"], &[&boot]);
    let raw = File::options().write(true).open(folder.join("base.raw")).unwrap();
    raw.write_all_at(&fs::read(&boot).unwrap(), layout.boot.start).unwrap();
    pack(Packing::Gzip(6), &folder.join("base.raw"), &folder.join("base.raw.gz"));
    let config = format!(
        r#"{{"ignition":{{"version":"3.4.0"}},"storage":{{"files":[{{"path":"/etc/a","contents":{{"source":"data:,{}"}}}}]}}}}"#,
        "long".repeat(75_000)
    );
    folder.write("long.ign", &config);
    let said = kiln(&folder, &["image", "customize", "base.raw.gz", "-o", "host.raw.gz", "--ignition", "long.ign"]);
    let note = "note: the original .gz does not fit into the header of the new one: `kiln image reset` will restore the disk in \
                it, compressed in another way\n";
    assert_eq!((said.exit, said.complaints.as_str()), (0, note));
    tool("gzip", &["-t"], &[&folder.join("host.raw.gz")]);
    unpack(&folder.join("host.raw.gz"), &folder.join("host.raw"));
    assert_eq!(cat(&boot_of(&folder.join("host.raw"), &layout, &folder), "/ignition/config.ign"), config);
    // The store composes the same bytes, and says the same.
    done(&folder, &["image", "import", "base.raw.gz", "--store", "store"]);
    let compose = ["image", "compose", "--store", "store", "--base", "base", "--host", "n1", "--ignition", "long.ign"];
    let composed = kiln(&folder, &[&compose[..], &["-o", "composed.raw.gz"]].concat());
    assert_eq!((composed.exit, composed.complaints.as_str()), (0, note));
    assert_eq!(sha256(&folder.join("composed.raw.gz")), sha256(&folder.join("host.raw.gz")));
    let again = kiln(&folder, &["image", "customize", "host.raw.gz", "-o", "again.raw.gz", "--ignition", "long.ign"]);
    assert_eq!((again.exit, again.complaints.as_str()), (0, note));
    unpack(&folder.join("again.raw.gz"), &folder.join("again.raw"));
    assert_eq!(sha256(&folder.join("again.raw")), sha256(&folder.join("host.raw")));
    let reset = kiln(&folder, &["image", "reset", "host.raw.gz"]);
    let note = "note: the disk is the original to the byte; the .gz around it is compressed anew\n";
    assert_eq!((reset.exit, reset.complaints.as_str()), (0, note));
    assert!(reset.output.starts_with("wrote host.raw.gz: the original disk\nsha256 "), "{}", reset.output);
    unpack(&folder.join("host.raw.gz"), &folder.join("reset.raw"));
    assert_eq!(sha256(&folder.join("reset.raw")), sha256(&folder.join("base.raw")));
    assert_ne!(sha256(&folder.join("host.raw.gz")), sha256(&folder.join("base.raw.gz")));
}

#[test]
fn what_others_put_there_stays_or_is_taken_out_by_meaning() {
    if !able("what_others_put_there_stays_or_is_taken_out_by_meaning", &[("qemu-img", "qemu-utils")]) {
        return;
    }
    let folder = folder("others");
    let keyfile = b"[connection]\nid=a\ntype=ethernet\n[802-1x]\npassword=hunter22hunter22\n".to_vec();
    let extra = vec![
        ("coreos-firstboot-network/a.nmconnection".to_owned(), keyfile),
        ("ignition/config.ign".to_owned(), IGNITION.into()),
    ];
    let layout = write_disk(&folder, "base.raw", &Disk { boot: Boot { extra, ..Boot::default() }, ..Disk::default() });
    let said = kiln(
        &folder,
        &["image", "customize", "base.raw", "-o", "kargs.raw", "--karg-append", "rw", "--karg-append", "audit=0"],
    );
    let expected = "note: the image has network files that Kiln did not put there (a.nmconnection); they stay\n\
                    note: the image has an Ignition config that Kiln did not put there; it stays\n\
                    note: kernel argument `rw` was there already; it was not added again\n";
    assert_eq!((said.exit, said.complaints.as_str()), (0, expected));
    done(&folder, &["image", "customize", "base.raw", "-o", "host.raw", "--network", "bond.yaml"]);
    assert_eq!(done(&folder, &["image", "network", "host.raw", "list"]).lines().collect::<Vec<_>>(), NETWORK_NAMES);
    done(&folder, &["image", "reset", "host.raw"]);
    assert_eq!(sha256(&folder.join("host.raw")), sha256(&folder.join("base.raw")));
    to_qcow2(&folder.join("base.raw"), &folder.join("base.qcow2"), &Qcow2Options::default());
    pack(Packing::Gzip(1), &folder.join("base.qcow2"), &folder.join("base.qcow2.gz"));
    pack(Packing::Gzip(1), &folder.join("base.raw"), &folder.join("base.raw.gz"));
    for name in ["base.raw", "base.qcow2", "base.raw.gz", "base.qcow2.gz"] {
        let clean = format!("clean-{name}");
        done(&folder, &["image", "reset", name, "-o", &clean]);
        let before = sha256(&folder.join(&clean));
        assert_eq!(done(&folder, &["image", "network", &clean, "list"]), "");
        done(&folder, &["image", "reset", &clean]);
        assert_eq!(sha256(&folder.join(&clean)), before, "a second reset brings nothing back: {name}");
    }
    tool("qemu-img", &["check"], &[&folder.join("clean-base.qcow2")]);
    let said = kiln(&folder, &["image", "reset", "base.raw", "-o", "clean.raw"]);
    assert_eq!(said.exit, 0, "{}", said.complaints);
    assert!(said.complaints.contains("the image does not remember its original"), "{}", said.complaints);
    // Nobody wants back what was taken out: it is wiped, and no record holds it.
    let holds = |name: &str, what: &str| {
        fs::read(folder.join(name)).unwrap().windows(what.len()).any(|window| window == what.as_bytes())
    };
    for name in ["base.raw", "base.qcow2"] {
        assert!(holds(name, "hunter22hunter22") && holds(name, "kiln.service"), "{name}");
        assert!(!holds(&format!("clean-{name}"), "hunter22hunter22"), "{name}");
        assert!(!holds(&format!("clean-{name}"), "kiln.service"), "{name}");
        let bare = format!("bare-{name}");
        done(&folder, &["image", "network", name, "remove", "-o", &bare]);
        assert!(!holds(&bare, "hunter22hunter22") && holds(&bare, "kiln.service"), "{name}");
        done(&folder, &["image", "reset", &bare]);
        assert_eq!(done(&folder, &["image", "network", &bare, "list"]), "", "{name}");
    }
    for name in ["base.raw.gz", "base.qcow2.gz"] {
        unpack(&folder.join(&format!("clean-{name}")), &folder.join("inflated"));
        assert!(!holds("inflated", "hunter22hunter22") && !holds("inflated", "kiln.service"), "{name}");
    }
    let boot = boot_of(&folder.join("clean.raw"), &layout, &folder);
    let listed = tool("debugfs", &["-R", "ls -p /"], &[&boot]);
    assert!(!listed.contains("/coreos-firstboot-network/") && !listed.contains("/ignition/"), "{listed}");
}
