//! `kiln boot simulate` and `kiln plan` as somebody at a shell sees them, where there is little or nothing to tell.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An empty folder of one test.
fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("boot_and_plan").join(test);
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Exit code, standard output, standard error.
fn kiln(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let result = Command::new(env!("CARGO_BIN_EXE_kiln")).args(arguments).current_dir(folder).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (result.status.code().unwrap(), text(result.stdout), text(result.stderr))
}

#[test]
fn a_boot_nobody_configured_has_no_profiles_and_loses_none() {
    let expected = "\
kernel arguments
  0600 default_connection.nmconnection
  because the command line has no `ip=`, so the distribution adds `ip=auto`

initramfs
  0600 default_connection.nmconnection
  because /boot/coreos-firstboot-network is empty: the profiles of the kernel arguments stay

real root
  no profiles
  because nothing is propagated: the profiles are what `ip=auto` gives, and the default is never copied


with Kiln's composition the real root has
  nothing of its own

verdict: nothing was asked for, so nothing is lost: NetworkManager makes its own default profiles
";
    let said = kiln(&folder("nothing"), &["boot", "simulate", "--kargs", ""]);
    assert_eq!(said, (0, expected.to_owned(), String::new()));
}

#[test]
fn every_kind_of_propagation_has_a_true_verdict() {
    let folder = folder("verdicts");
    let connections = folder.join("root/etc/NetworkManager/system-connections");
    fs::create_dir_all(&connections).unwrap();
    fs::write(connections.join("eno1.nmconnection"), "[connection]\nid=eno1\ntype=ethernet\n").unwrap();
    let set_mode = |mode| {
        fs::set_permissions(connections.join("eno1.nmconnection"), std::os::unix::fs::PermissionsExt::from_mode(mode))
    };
    set_mode(0o600).unwrap();
    fs::create_dir_all(folder.join("stuck/conf.d")).unwrap();
    for (arguments, verdict) in [
        (&["--kargs", "ip=eno1:dhcp"][..], "the real root has every profile of the initramfs"),
        (
            &["--kargs", "ip=eno1:dhcp", "--real-root", "root"],
            "nothing is copied, but the real root has a profile of its own in every file the initramfs has",
        ),
        (
            &["--kargs", "ip=eno2:dhcp", "--real-root", "root"],
            "stock CoreOS loses eno2.nmconnection between initramfs and real root; Kiln's composition keeps it",
        ),
        (
            &["--kargs", "coreos.no_persist_ip"],
            "nothing was asked for, so nothing is lost: NetworkManager makes its own default profiles",
        ),
        (&["--firstboot-network", "stuck"], "the initramfs loads no profile, so there is none to lose"),
    ] {
        let (exit, output, complaints) = kiln(&folder, &[&["boot", "simulate"], arguments].concat());
        assert_eq!((exit, complaints.as_str()), (0, ""), "{arguments:?}");
        assert_eq!(output.lines().last(), Some(format!("verdict: {verdict}").as_str()), "{arguments:?}");
    }
}

#[test]
fn what_is_missing_or_wrong_is_refused() {
    let folder = folder("refused");
    fs::write(folder.join("file"), "").unwrap();
    std::os::unix::fs::symlink("nowhere", folder.join("dangling")).unwrap();
    for arguments in [
        &["boot", "simulate", "--real-root", "file"][..],
        &["boot", "simulate", "--firstboot-network", "missing"],
        &["boot", "simulate", "--firstboot-network", "."],
        &["boot", "simulate", "--ignition", "missing"],
        &["boot", "simulate", "--ignition", "."],
        &["check", "missing"],
        &["plan", "missing"],
        &["explain", "missing"],
        &["ignition", "validate", "missing"],
        &["ignition", "validate", "."],
        &["ignition", "merge", "missing"],
        &["ignition", "convert", "missing", "--to", "3.2.0"],
        &["ignition", "pointer", "--source", "https://example.com", "--ca", "missing"],
        &["ignition", "render", "missing"],
        &["net", "merge", "missing", ".", "--out", "out"],
        &["net", "render", "missing", "--out", "out"],
    ] {
        let (exit, output, complaints) = kiln(&folder, arguments);
        assert_eq!((exit, output.as_str()), (1, ""), "{arguments:?}: {complaints}");
        assert!(complaints.starts_with("error"), "{arguments:?}: {complaints}");
    }
}

#[test]
fn a_plan_of_what_cannot_be_read_says_so() {
    let folder = folder("unreadable");
    let end = "` could not be read completely, and what could be read declares no hosts\n";
    for (file, content, code) in [
        ("tab.yaml", &b"a:\n\tb: 1\n"[..], "KLN0001"),
        ("helm.yaml", b"{{- if .Values.x }}\na: b\n{{- end }}\n", "KLN0022"),
        ("latin.yaml", b"name: \xe4\n", "KLN0021"),
    ] {
        fs::write(folder.join(file), content).unwrap();
        let (exit, output, complaints) = kiln(&folder, &["plan", file]);
        assert_eq!((exit, output.as_str()), (1, ""), "{file}");
        assert!(complaints.starts_with(&format!("error[{code}]: ")), "{complaints}");
        assert!(complaints.ends_with(&format!("\nerror: `{file}{end}")), "{complaints}");
    }
    fs::write(folder.join("none.yaml"), "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n").unwrap();
    let expected = "error: `none.yaml` declares no hosts; Kiln plans BareMetalHosts and its own Hosts\n";
    assert_eq!(kiln(&folder, &["plan", "none.yaml"]), (1, String::new(), expected.to_owned()));
}
