//! `kiln net render` and `kiln net capture` as somebody at a shell sees them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a helper that fails is a failed test"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of one test, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("kiln-net-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Said {
    exit: i32,
    output: String,
    complaints: String,
}

fn kiln(folder: &Folder, arguments: &[&str]) -> Said {
    let result = Command::new(env!("CARGO_BIN_EXE_kiln")).args(arguments).current_dir(&folder.0).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { exit: result.status.code().unwrap(), output: text(result.stdout), complaints: text(result.stderr) }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .map(|entries| entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect())
        .unwrap_or_default();
    names.sort();
    names
}

const BOND: &str = "\
interfaces:
- {name: eno2, type: ethernet, state: up}
- {name: eno3, type: ethernet, state: up}
- name: bond0
  type: bond
  state: up
  link-aggregation: {mode: 802.3ad, port: [eno2, eno3]}
";

#[test]
fn rendered_keyfiles_belong_to_root_alone_from_the_first_byte() {
    let folder = Folder::new();
    folder.file("bond.yaml", BOND);
    let said = kiln(&folder, &["net", "render", "bond.yaml", "--out", "out"]);
    assert_eq!((said.exit, said.complaints.as_str()), (0, ""));
    assert_eq!(said.output, "wrote out/bond0.nmconnection\nwrote out/eno2.nmconnection\nwrote out/eno3.nmconnection\n");
    for name in names(&folder.0.join("out")) {
        let mode = fs::metadata(folder.0.join("out").join(&name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600, "{name}");
    }
    assert_eq!(names(&folder.0.join("out")).len(), 3, "nothing unfinished is left behind");
}

#[test]
fn a_refused_document_writes_nothing() {
    let folder = Folder::new();
    folder.file("good.yaml", BOND);
    folder.file("bad.yaml", "interfaces:\n- name: eno1\n  type: ethernet\n  mtuu: 9000\n");
    let said = kiln(&folder, &["net", "render", "good.yaml", "bad.yaml", "--out", "out"]);
    assert_eq!((said.exit, said.output.as_str()), (1, ""));
    assert!(said.complaints.starts_with("error[KLN0201]: `mtuu` of interface `eno1` is not a field nmstate knows\n"));
    assert!(said.complaints.contains("help: did you mean `mtu`?"), "{}", said.complaints);
    assert!(said.complaints.ends_with("nothing was written to out\n"), "{}", said.complaints);
    assert_eq!(names(&folder.0.join("out")), Vec::<String>::new());
}

#[test]
fn every_network_document_of_a_file_is_rendered_and_other_kinds_are_passed_over() {
    let folder = Folder::new();
    let policy = "kind: NodeNetworkConfigurationPolicy\nspec:\n  desiredState:\n    interfaces:\n    - {name: eno7, type: ethernet, state: up}\n";
    let host = "kind: NMStateConfig\nspec:\n  interfaces: [{name: nic1, macAddress: '52:54:00:00:00:01'}]\n  config:\n    interfaces: [{name: nic1, type: ethernet, state: up}]\n";
    folder.file("all.yaml", format!("kind: Namespace\nmetadata: {{name: x}}\n---\n{policy}---\n{host}---\n{BOND}"));
    let said = kiln(&folder, &["net", "render", "all.yaml", "--out", "out"]);
    assert_eq!((said.exit, said.complaints.as_str()), (0, ""));
    let expected = ["bond0", "eno2", "eno3", "eno7", "nic1"].map(|name| format!("{name}.nmconnection"));
    assert_eq!(names(&folder.0.join("out")), expected);
    let nic = fs::read_to_string(folder.0.join("out/nic1.nmconnection")).unwrap();
    assert!(nic.contains("mac-address=52:54:00:00:00:01") && !nic.contains("interface-name"), "{nic}");
}

#[test]
fn input_that_is_no_network_document_is_named() {
    let folder = Folder::new();
    folder.file("binary", [0xff, 0xfe, 0]);
    folder.file("empty.yaml", "");
    folder.file("other.yaml", "kind: Namespace\nmetadata: {name: x}\n");
    folder.file("twice.yaml", format!("{BOND}---\n{BOND}"));
    for (file, exit, complaint) in [
        ("binary", 1, "error: `binary` is not text (UTF-8)"),
        ("empty.yaml", 1, "error[KLN0250]: no network document in empty.yaml (found: nothing)"),
        ("other.yaml", 1, "error[KLN0250]: no network document in other.yaml (found: Namespace)"),
        ("twice.yaml", 1, "error[KLN0251]: bond0.nmconnection comes out of two documents"),
        ("missing.yaml", 1, "error: cannot read `missing.yaml`"),
        (".", 1, "error: cannot read `.`"),
    ] {
        let said = kiln(&folder, &["net", "render", file, "--out", "out"]);
        assert_eq!(said.exit, exit, "{file}: {}", said.complaints);
        assert_eq!(said.complaints.lines().next(), Some(complaint), "{file}");
    }
}

#[test]
fn a_template_is_told_once() {
    let folder = Folder::new();
    folder.file(
        "helm.yaml",
        "{{- if .Values.bond }}\ninterfaces:\n- name: {{ .Values.nic }}\n{{- end }}\n---\na: {{ b }}\n",
    );
    let said = kiln(&folder, &["net", "render", "helm.yaml", "--out", "out"]);
    assert_eq!((said.exit, said.complaints.matches("error").count()), (1, 1), "{}", said.complaints);
    assert!(said.complaints.starts_with("error[KLN0022]: this is a template, not a manifest\n"), "{}", said.complaints);
}

#[test]
fn nothing_is_written_beside_other_files() {
    let folder = Folder::new();
    folder.file("bond.yaml", BOND);
    folder.file("out/eno1.nmconnection", "[connection]\nid=foreign\n");
    folder.file(
        "root/etc/NetworkManager/system-connections/uplink.nmconnection",
        "[connection]\nid=uplink\ntype=dummy\n",
    );
    for arguments in
        [&["net", "render", "bond.yaml", "--out"][..], &["net", "capture", "--root", "root", "-o", "keyfiles", "--out"]]
    {
        let foreign = "error: `out` already has `eno1.nmconnection`, which is not part of the result; remove it or choose another folder with --out\n";
        let no_folder = "error: `bond.yaml` is not a folder; choose another with --out\n";
        for (out, complaint) in [("out", foreign), ("bond.yaml", no_folder)] {
            let said = kiln(&folder, &[arguments, &[out]].concat());
            assert_eq!((said.exit, said.output.as_str(), said.complaints.as_str()), (1, "", complaint));
        }
    }
    assert_eq!(names(&folder.0.join("out")), ["eno1.nmconnection"]);
    for _ in 0..2 {
        let said = kiln(&folder, &["net", "render", "bond.yaml", "--out", "new"]);
        assert_eq!((said.exit, said.complaints.as_str()), (0, ""), "an earlier result may be written again");
    }
}

#[test]
fn a_machine_is_captured_and_rendered_again() {
    let folder = Folder::new();
    let profile = "[connection]\nid=uplink\nuuid=11111111-2222-3333-4444-555555555555\ntype=ethernet\ninterface-name=eno1\ntimestamp=1700000000\n\n[ipv4]\naddress1=192.0.2.10/24,192.0.2.1\ndns=192.0.2.53;\nmethod=manual\n\n[ipv6]\nmethod=disabled\n\n[proxy]\n";
    folder.file("root/etc/NetworkManager/system-connections/uplink.nmconnection", profile);
    folder.file("root/etc/NetworkManager/system-connections/ca.pem", "no keyfile");
    let said = kiln(&folder, &["net", "capture", "--root", "root"]);
    let expected = "\
dns-resolver:
  config:
    server:
    - 192.0.2.53
routes:
  config:
  - destination: 0.0.0.0/0
    next-hop-interface: eno1
    next-hop-address: 192.0.2.1
    metric: 100
interfaces:
- name: eno1
  profile-name: uplink
  type: ethernet
  state: up
  ipv4:
    enabled: true
    dhcp: false
    address:
    - ip: 192.0.2.10
      prefix-length: 24
  ipv6:
    enabled: false
";
    assert_eq!((said.exit, said.output.as_str()), (0, expected), "{}", said.complaints);
    folder.file("captured.yaml", &said.output);
    let said = kiln(&folder, &["net", "render", "captured.yaml", "--out", "out"]);
    assert_eq!((said.exit, said.output.as_str()), (0, "wrote out/uplink.nmconnection\n"), "{}", said.complaints);
    let said = kiln(&folder, &["net", "capture", "--root", "root", "-o", "keyfiles", "--out", "clean"]);
    assert_eq!((said.exit, said.output.as_str()), (0, "wrote clean/uplink.nmconnection\n"), "{}", said.complaints);
    let clean = fs::read_to_string(folder.0.join("clean/uplink.nmconnection")).unwrap();
    assert_eq!(clean, profile.replace("timestamp=1700000000\n", "").replace("\n[proxy]\n", ""));
}

#[test]
fn a_profile_that_cannot_be_read_does_not_pass_unnoticed() {
    let folder = Folder::new();
    folder.file("root/etc/NetworkManager/system-connections/broken.nmconnection", "no group\n");
    let said = kiln(&folder, &["net", "capture", "--root", "root"]);
    assert_eq!((said.exit, said.output.as_str()), (1, "interfaces: []\n"));
    assert!(
        said.complaints.starts_with(
            "error[KLN0243]: root/etc/NetworkManager/system-connections/broken.nmconnection cannot be read: "
        ),
        "{}",
        said.complaints
    );
    folder.file("file", "");
    for root in ["nowhere", "file"] {
        let said = kiln(&folder, &["net", "capture", "--root", root]);
        assert_eq!(said.exit, 1, "{}", said.complaints);
    }
}
