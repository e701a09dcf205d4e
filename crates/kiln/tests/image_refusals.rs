//! `kiln image` when things are wrong: the reason and the fix are told, and nothing half-written is left.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a helper that fails is a failed test"
)]

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::{Command, Stdio};
use std::time::Duration;

use kiln_testimage::{
    Boot, Disk, Initramfs, LiveIso, Packing, Qcow2Options, TempDir, disk, filling, live_iso, pack, require_all,
    to_qcow2,
};

use crate::support::{BOND, done, folder, kiln, names, sha256, write_disk};

#[path = "support/image.rs"]
mod support;

fn able(test: &str) -> bool {
    require_all(test, disk::PROGRAMS) && require_all(test, &[("qemu-img", "qemu-utils"), ("sha256sum", "coreutils")])
}

/// The command is refused with these words, and there is no output.
fn refused(folder: &TempDir, arguments: &[&str], expected: &str) {
    let said = kiln(folder, arguments);
    assert_eq!((said.exit, said.complaints.as_str()), (1, expected), "kiln {arguments:?}");
    assert!(!folder.join("out").exists(), "kiln {arguments:?}");
}

#[test]
fn an_image_that_was_booted_takes_kernel_arguments_only() {
    if !able("an_image_that_was_booted_takes_kernel_arguments_only") {
        return;
    }
    let folder = folder("booted");
    let boot = Boot { already_booted: true, ..Boot::default() };
    write_disk(&folder, "base.raw", &Disk { boot, ..Disk::default() });
    let expected = "error: `out` was not written\n  caused by: boot partition: `/ignition.firstboot` is missing: this image was booted \
                    before, and network files and Ignition config would be ignored without a word; take the image as it was \
                    downloaded\n";
    for wish in [["--network", "bond.yaml"], ["--ignition", "host.ign"]] {
        refused(&folder, &[&["image", "customize", "base.raw", "-o", "out"], &wish[..]].concat(), expected);
    }
    let inspected = done(&folder, &["image", "inspect", "base.raw"]);
    assert!(inspected.contains("this image was booted before"), "{inspected}");
    done(&folder, &["image", "customize", "base.raw", "-o", "out", "--karg-append", "audit=0"]);
}

#[test]
fn network_files_that_claim_more_than_there_is_take_no_memory() {
    if !able("network_files_that_claim_more_than_there_is_take_no_memory") {
        return;
    }
    let folder = folder("holes");
    // mke2fs makes holes of zeros: the files take no room in the image.
    let file = |number: usize| (format!("coreos-firstboot-network/{number}"), vec![0; 1 << 20]);
    let boot = Boot { extra: (0..17).map(file).collect(), ..Boot::default() };
    write_disk(&folder, "base.raw", &Disk { boot, ..Disk::default() });
    let expected = "error: `out` was not written\n  caused by: /coreos-firstboot-network is damaged: its files have more than \
                    16777216 bytes\n";
    refused(&folder, &["image", "customize", "base.raw", "-o", "out", "--network", "bond.yaml"], expected);
}

#[test]
fn wishes_that_cannot_be_fulfilled_are_refused_with_the_reason() {
    if !able("wishes_that_cannot_be_fulfilled_are_refused_with_the_reason") {
        return;
    }
    let folder = folder("wishes");
    write_disk(&folder, "base.raw", &Disk { boot_mebibytes: 16, ..Disk::default() });
    let customize = ["image", "customize", "base.raw", "-o", "out"];
    refused(
        &folder,
        &[&customize[..], &["--karg-delete", "quiet"]].concat(),
        "error: `out` was not written\n  caused by: kernel argument `quiet`: no boot entry has it (they have: rw \
         $ignition_firstboot ostree=/ostree/boot.1/fedora-coreos/3f4e1c0a/0 ignition.platform.id=metal console=tty0); give one that \
         is there, with its value\n",
    );
    refused(
        &folder,
        &customize,
        "error: nothing to do; say what goes into the image: --network, --network-dir, --ignition, --karg-append, --karg-delete \
         or --force-persist-ip\n",
    );
    let large = format!(
        r#"{{"ignition":{{"version":"3.4.0"}},"storage":{{"files":[{{"path":"/etc/a","contents":{{"source":"data:,{}"}}}}]}}}}"#,
        "a".repeat(15 << 20)
    );
    folder.write("large.ign", &large);
    let said = kiln(&folder, &[&customize[..], &["--ignition", "large.ign"]].concat());
    assert_eq!(said.exit, 1, "{}", said.complaints);
    assert!(said.complaints.contains("bytes free, too few for"), "{}", said.complaints);
    assert!(said.complaints.contains("`kiln ignition pointer`"), "{}", said.complaints);
    folder.write("broken.yaml", BOND.replace("type: bond\n", "type: bond\n  state: [\n"));
    let said = kiln(&folder, &[&customize[..], &["--network", "broken.yaml"]].concat());
    assert_eq!(said.exit, 1);
    assert!(said.complaints.contains(" --> broken.yaml:") && said.complaints.ends_with("`out` was not written\n"));
    folder.write("broken.ign", r#"{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"etc/a"}]}}"#);
    let said = kiln(&folder, &[&customize[..], &["--ignition", "broken.ign"]].concat());
    assert_eq!(said.exit, 1);
    assert!(said.complaints.contains("broken.ign: Ignition would refuse this config\n"), "{}", said.complaints);
    let said = kiln(&folder, &["image", "customize", "base.raw", "-o", "absent/out", "--karg-append", "a"]);
    assert_eq!(said.exit, 2);
    assert!(said.complaints.starts_with("error: cannot write into the folder `absent`\n"), "{}", said.complaints);
    assert!(!folder.join("out").exists());
}

#[test]
fn a_folder_of_keyfiles_is_taken_whole_or_refused() {
    if !able("a_folder_of_keyfiles_is_taken_whole_or_refused") {
        return;
    }
    let folder = folder("keyfiles");
    write_disk(&folder, "base.raw", &Disk::default());
    let keyfiles = folder.join("keyfiles");
    fs::create_dir_all(keyfiles.join("backup")).unwrap();
    let keyfile = "[connection]\nid=a\ntype=wifi\ninterface-name=wlan0\n[wifi]\nssid=kiln\n[wifi-security]\nkey-mgmt=wpa-psk\npsk=hunter22\n";
    fs::write(keyfiles.join("a.nmconnection"), keyfile).unwrap();
    fs::write(keyfiles.join(".swp"), "").unwrap();
    fs::write(keyfiles.join("b.nmconnection"), "no keyfile\n").unwrap();
    fs::set_permissions(keyfiles.join("a.nmconnection"), fs::Permissions::from_mode(0o644)).unwrap();
    let customize = ["image", "customize", "base.raw", "-o", "out", "--network-dir", "keyfiles"];
    let said = kiln(&folder, &customize);
    assert_eq!(said.exit, 1);
    let lines: Vec<&str> = said.complaints.lines().collect();
    assert_eq!(lines.len(), 4, "{}", said.complaints);
    assert!(lines[0].starts_with("error: keyfiles/.swp: the first boot counts files whose name begins with a dot"));
    assert!(lines[1].starts_with("error: keyfiles/b.nmconnection: NetworkManager would not load it: "));
    assert!(lines[2].starts_with("error: keyfiles/backup: the first boot fails on a folder among the keyfiles"));
    assert_eq!(lines[3], "`out` was not written");
    fs::remove_file(keyfiles.join(".swp")).unwrap();
    fs::remove_file(keyfiles.join("b.nmconnection")).unwrap();
    fs::remove_dir(keyfiles.join("backup")).unwrap();
    done(&folder, &customize);
    let shown = done(&folder, &["image", "network", "out", "show"]);
    assert!(shown.contains("psk=…\n") && !shown.contains("hunter22"), "{shown}");
    assert_eq!(
        done(&folder, &["image", "network", "out", "show", "--show-secrets"]),
        format!("# a.nmconnection\n{keyfile}\n")
    );
    let told = done(&folder, &["image", "network", "out", "extract", "extracted"]);
    assert_eq!(told, "wrote extracted/a.nmconnection\n");
    let extracted = folder.join("extracted/a.nmconnection");
    assert_eq!(fs::read_to_string(&extracted).unwrap(), keyfile);
    assert_eq!(fs::metadata(&extracted).unwrap().permissions().mode() & 0o777, 0o600);
    let said = kiln(&folder, &["image", "network", "out", "extract", "extracted"]);
    let expected = "error: `extracted` is not empty; give a new or an empty folder\n";
    assert_eq!((said.exit, said.complaints.as_str()), (1, expected));
    let inspected = done(&folder, &["image", "inspect", "out", "--format", "json"]);
    assert!(!inspected.contains("hunter22"));
}

#[test]
fn an_existing_file_is_replaced_only_when_asked_or_in_place() {
    if !able("an_existing_file_is_replaced_only_when_asked_or_in_place") {
        return;
    }
    let folder = folder("existing");
    write_disk(&folder, "base.raw", &Disk::default());
    let kargs = ["--karg-append", "audit=0"];
    folder.write("other", "precious");
    let said = kiln(&folder, &[&["image", "customize", "base.raw", "-o", "other"], &kargs[..]].concat());
    let expected = "error: `other` exists already; choose another output, or replace it with --force\n";
    assert_eq!((said.exit, said.complaints.as_str()), (1, expected));
    assert_eq!(fs::read_to_string(folder.join("other")).unwrap(), "precious");
    done(&folder, &[&["image", "customize", "base.raw", "-o", "other", "--force"], &kargs[..]].concat());
    let piped = kiln(&folder, &[&["image", "customize", "base.raw", "-o", "-"], &kargs[..]].concat());
    let expected = format!("sha256 {}\n", sha256(&folder.join("other")));
    assert_eq!((piped.exit, piped.complaints.as_str()), (0, expected.as_str()));
    fs::set_permissions(folder.join("base.raw"), fs::Permissions::from_mode(0o640)).unwrap();
    done(&folder, &[&["image", "customize", "base.raw", "-o", "base.raw"], &kargs[..]].concat());
    assert_eq!(sha256(&folder.join("base.raw")), sha256(&folder.join("other")));
    assert_eq!(fs::metadata(folder.join("base.raw")).unwrap().permissions().mode() & 0o777, 0o640);
    // What a run left behind that was killed on a file system without nameless files.
    folder.write(".base.raw.kiln-4194304", "half");
    done(&folder, &["image", "reset", "base.raw"]);
    assert_eq!(names(folder.path()), ["base.raw", "bond.yaml", "host.ign", "other"]);
}

#[test]
fn an_image_with_secrets_is_for_its_owner_only() {
    if !able("an_image_with_secrets_is_for_its_owner_only") || !require_all("owner_only", live_iso::PROGRAMS) {
        return;
    }
    let folder = folder("modes");
    write_disk(&folder, "base.raw", &Disk::default());
    pack(Packing::Gzip(1), &folder.join("base.raw"), &folder.join("base.raw.gz"));
    to_qcow2(&folder.join("base.raw"), &folder.join("base.qcow2"), &Qcow2Options::default());
    LiveIso::default().write(&folder.join("base.iso"));
    folder.write("base.img", Initramfs { live: true, ..Initramfs::default() }.bytes());
    fs::create_dir(folder.join("wifi")).unwrap();
    let keyfile = "[connection]\nid=a\ntype=wifi\ninterface-name=wlan0\n[wifi]\nssid=kiln\n[wifi-security]\nkey-mgmt=wpa-psk\npsk=hunter22\n";
    folder.write("wifi/a.nmconnection", keyfile);
    let mode = |name: &str| fs::metadata(folder.join(name)).unwrap().permissions().mode() & 0o777;
    for base in ["base.raw", "base.raw.gz", "base.qcow2", "base.iso", "base.img"] {
        let out = format!("out-{base}");
        let wishes = [
            (["--network", "bond.yaml"], 0o644),
            (["--network-dir", "wifi"], 0o600),
            (["--ignition", "host.ign"], 0o600),
        ];
        for (wish, expected) in wishes {
            let _ = fs::remove_file(folder.join(&out));
            done(&folder, &[&["image", "customize", base, "-o", &out], &wish[..]].concat());
            assert_eq!(mode(&out), expected, "{base} {wish:?}");
        }
        // What takes the place of another file is never open to more people, and secrets only to the owner.
        fs::set_permissions(folder.join(&out), fs::Permissions::from_mode(0o664)).unwrap();
        done(&folder, &["image", "customize", base, "-o", &out, "--force", "--network", "bond.yaml"]);
        assert_eq!(mode(&out), 0o664, "{base}");
        done(
            &folder,
            &["image", "customize", base, "-o", &out, "--force", "--network-dir", "wifi", "--ignition", "host.ign"],
        );
        assert_eq!(mode(&out), 0o600, "{base}");
        let bare = format!("bare-{base}");
        done(&folder, &["image", "network", &out, "remove", "-o", &bare]);
        assert_eq!(mode(&bare), 0o600, "{base}: the Ignition config is still there");
        let original = format!("original-{base}");
        done(&folder, &["image", "reset", &out, "-o", &original]);
        assert_eq!(mode(&original), 0o644, "{base}: nothing is there any more");
        done(&folder, &["image", "reset", &out]);
        assert_eq!(mode(&out), 0o600, "{base}: in place nothing becomes open");
    }
    let store = ["--store", "store", "--base", "base", "--host", "n1", "-o"];
    done(&folder, &["image", "import", "base.raw.gz", "--store", "store"]);
    done(&folder, &[&["image", "compose", "--ignition", "host.ign"], &store[..], &["secret.gz"]].concat());
    done(&folder, &[&["image", "compose", "--network", "bond.yaml"], &store[..], &["open.gz"]].concat());
    assert_eq!((mode("secret.gz"), mode("open.gz")), (0o600, 0o644));
}

#[test]
fn damaged_images_are_refused_before_anything_is_written() {
    if !able("damaged_images_are_refused_before_anything_is_written") {
        return;
    }
    let folder = folder("damaged");
    let layout = write_disk(&folder, "base.raw", &Disk::default());
    to_qcow2(&folder.join("base.raw"), &folder.join("base.qcow2"), &Qcow2Options::default());
    pack(Packing::Gzip(1), &folder.join("base.qcow2"), &folder.join("base.qcow2.gz"));
    pack(Packing::Gzip(1), &folder.join("base.raw"), &folder.join("base.raw.gz"));
    let cut = |name: &str, length: u64| {
        fs::copy(folder.join(name), folder.join("cut")).unwrap();
        let file = File::options().write(true).open(folder.join("cut")).unwrap();
        let whole = file.metadata().unwrap().len();
        file.set_len(whole.min(length)).unwrap();
        let said = kiln(&folder, &["image", "customize", "cut", "-o", "out", "--network", "bond.yaml"]);
        assert_eq!(said.exit, 1, "{name} cut to {length}: {}", said.complaints);
        assert!(said.complaints.starts_with("error: `"), "{}", said.complaints);
        assert!(!folder.join("out").exists());
    };
    for name in ["base.raw", "base.qcow2", "base.qcow2.gz", "base.raw.gz"] {
        let length = fs::metadata(folder.join(name)).unwrap().len();
        for cut_at in [0, 1, 600, 70_000, length / 3] {
            cut(name, cut_at);
        }
    }
    // Bytes overwritten somewhere: refused, or done where nothing of it is looked at, but never a crash.
    for (number, at) in (layout.boot.start..layout.boot.start + (8 << 20)).step_by(700_001).enumerate() {
        fs::copy(folder.join("base.raw"), folder.join("bad.raw")).unwrap();
        let file = File::options().write(true).open(folder.join("bad.raw")).unwrap();
        file.write_all_at(&filling::filling(number as u64, 3000), at).unwrap();
        let said = kiln(&folder, &["image", "customize", "bad.raw", "-o", "out", "--network", "bond.yaml"]);
        assert!(matches!(said.exit, 0 | 1), "{at}: {}", said.complaints);
        assert_eq!(folder.join("out").exists(), said.exit == 0);
        let _ = fs::remove_file(folder.join("out"));
    }
    let none = kiln(&folder, &["image", "inspect", "absent.raw"]);
    assert_eq!(none.exit, 1);
    assert!(none.complaints.starts_with("error: cannot read `absent.raw`\n"), "{}", none.complaints);
}

#[test]
fn a_killed_run_leaves_nothing_under_the_final_name() {
    if !able("a_killed_run_leaves_nothing_under_the_final_name") {
        return;
    }
    let folder = folder("killed");
    write_disk(&folder, "base.raw", &Disk { root_mebibytes: 64, ..Disk::default() });
    let arguments = ["image", "customize", "base.raw", "-o", "out", "--network", "bond.yaml"];
    done(&folder, &arguments);
    let complete = sha256(&folder.join("out"));
    let mut killed = 0;
    for milliseconds in (0..300).step_by(15) {
        let _ = fs::remove_file(folder.join("out"));
        let mut child = Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(arguments)
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        child.kill().unwrap();
        child.wait().unwrap();
        if folder.join("out").exists() {
            assert_eq!(sha256(&folder.join("out")), complete, "after {milliseconds} ms");
        } else {
            killed += 1;
        }
    }
    assert!(killed > 0, "every run was faster than the first kill");
    let _ = fs::remove_file(folder.join("out"));
    done(&folder, &arguments);
    assert_eq!(
        names(folder.path()),
        ["base.raw", "bond.yaml", "host.ign", "out"],
        "the next run removes what was left"
    );
}
