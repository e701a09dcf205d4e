//! `kiln net merge` and `kiln net diff` as somebody at a shell sees them.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

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
        let folder = std::env::temp_dir().join(format!("kiln-merge-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn file(&self, name: &str, mode: u32, content: impl AsRef<[u8]>) -> &Self {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        self
    }

    /// Exit code, standard output, standard error.
    fn kiln(&self, arguments: &[&str]) -> (i32, String, String) {
        let result = Command::new(env!("CARGO_BIN_EXE_kiln")).args(arguments).current_dir(&self.0).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (result.status.code().unwrap(), text(result.stdout), text(result.stderr))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn listing(folder: &Path) -> Vec<(String, u32)> {
    let entries =
        fs::read_dir(folder).map(|entries| entries.map(Result::unwrap).collect::<Vec<_>>()).unwrap_or_default();
    let mode = |entry: &fs::DirEntry| entry.metadata().unwrap().permissions().mode() & 0o7777;
    let mut list: Vec<_> =
        entries.iter().map(|entry| (entry.file_name().into_string().unwrap(), mode(entry))).collect();
    list.sort();
    list
}

const BOND: &str = "[connection]\nid=bond0\ntype=bond\ninterface-name=bond0\n[ipv4]\nmethod=manual\naddress1=192.0.2.10/24,192.0.2.1\n";
const ROUTES: &str = "[connection]\nid=bond0\ninterface-name=bond0\n[ipv4]\nroute1=198.51.100.0/24,192.0.2.254\n";
const DUMMY: &str = "[connection]\nid=dummy0\ntype=dummy\ninterface-name=dummy0\n";

#[test]
fn merge_tells_its_decisions_and_writes_private_files() {
    let folder = Folder::new();
    folder.file("base/bond0.nmconnection", 0o600, BOND).file("overlay/routes.nmconnection", 0o600, ROUTES);
    folder.file("overlay/dummy.nmconnection", 0o644, DUMMY).file("overlay/notes.txt", 0o600, "not a keyfile\n");
    let arguments = ["net", "merge", "base", "overlay", "--out", "out"];
    let warning = "warning: overlay/notes.txt takes no part: line 1: `not a keyfile` is neither `key=value` nor `[group]`; start comments with `#`\n";
    let expected = "\
dummy.nmconnection of the overlay takes no part: mode 0644 gives rights to group or others; NetworkManager loads a keyfile only with mode 0600 or less
bond0.nmconnection of the base and routes.nmconnection of the overlay are one connection (same interface bond0); written to bond0.nmconnection
wrote out/bond0.nmconnection
";
    assert_eq!(folder.kiln(&arguments), (0, expected.to_owned(), warning.to_owned()));
    assert_eq!(listing(&folder.0.join("out")), [("bond0.nmconnection".to_owned(), 0o600)]);
    let written = fs::read_to_string(folder.0.join("out/bond0.nmconnection")).unwrap();
    let expected = "[connection]\nid=bond0\ntype=bond\ninterface-name=bond0\n\n[ipv4]\nmethod=manual\naddress1=192.0.2.10/24,192.0.2.1\nroute1=198.51.100.0/24,192.0.2.254\n";
    assert_eq!(written, expected);
    assert_eq!(folder.kiln(&arguments).0, 0, "an earlier result may be written again");
}

#[test]
fn merge_refuses_to_mix_with_other_files() {
    let folder = Folder::new();
    folder.file("base/bond0.nmconnection", 0o600, BOND).file("overlay/routes.nmconnection", 0o600, ROUTES);
    folder.file("out/old.nmconnection", 0o600, DUMMY).file("notes", 0o600, "");
    let cases = [
        (
            "out",
            "error: `out` already has `old.nmconnection`, which is not part of the result; remove it or choose another folder with --out\n",
        ),
        ("notes", "error: `notes` is not a folder; choose another with --out\n"),
        ("base", "error: `base` is one of the folders to merge; choose another with --out\n"),
    ];
    for (out, expected) in cases {
        let said = folder.kiln(&["net", "merge", "base", "overlay", "--out", out]);
        assert_eq!(said, (1, String::new(), expected.to_owned()));
    }
    assert_eq!(listing(&folder.0.join("out")), [("old.nmconnection".to_owned(), 0o600)]);
}

#[test]
fn a_broken_keyfile_refuses_the_merge() {
    let folder = Folder::new();
    folder.file("base/bond0.nmconnection", 0o600, BOND).file("overlay/broken.nmconnection", 0o600, "no keyfile\n");
    folder.file("notes.txt", 0o600, "no keyfile\n");
    let reason = "line 1: `no keyfile` is neither `key=value` nor `[group]`; start comments with `#`";
    for (base, overlay, broken) in
        [("base", "overlay", "overlay/broken.nmconnection"), ("notes.txt", "base", "notes.txt")]
    {
        let expected = format!(
            "warning: {broken} takes no part: {reason}\nnothing was written to out: repair or remove the broken keyfiles\n"
        );
        let said = folder.kiln(&["net", "merge", base, overlay, "--out", "out"]);
        assert_eq!(said, (1, String::new(), expected));
        assert!(!folder.0.join("out").exists());
    }
}

#[test]
fn merge_says_what_is_missing() {
    let folder = Folder::new();
    fs::create_dir(folder.0.join("empty")).unwrap();
    let (exit, _, complaints) = folder.kiln(&["net", "merge", "nowhere", "empty", "--out", "out"]);
    assert_eq!(exit, 1);
    assert_eq!(complaints, "error: cannot read `nowhere`\n  caused by: No such file or directory (os error 2)\n");
    let (exit, _, complaints) = folder.kiln(&["net", "merge", "empty", "empty", "--out", "out"]);
    assert_eq!((exit, complaints.as_str()), (1, "error: neither `empty` nor `empty` has a keyfile\n"));
    assert!(!folder.0.join("out").exists());
}

#[test]
fn diff_ends_with_0_1_or_2_as_diff_does() {
    let folder = Folder::new();
    folder.file("a/bond0.nmconnection", 0o600, BOND).file(
        "b/other-name.nmconnection",
        0o600,
        format!("# a comment\n{BOND}"),
    );
    assert_eq!(folder.kiln(&["net", "diff", "a", "b"]), (0, String::new(), String::new()));
    assert_eq!(folder.kiln(&["net", "diff", "a/bond0.nmconnection", "b"]).0, 0);
    folder.file("b/dummy.nmconnection", 0o600, DUMMY);
    let expected = (1, "+ dummy.nmconnection (dummy dummy0)\n".to_owned(), String::new());
    assert_eq!(folder.kiln(&["net", "diff", "a", "b"]), expected);
    folder.file("b/broken.nmconnection", 0o600, b"\xff\xfe");
    let expected = "error: `b/broken.nmconnection` is not a keyfile: line 1: it is not UTF-8; save the file as UTF-8\n";
    assert_eq!(folder.kiln(&["net", "diff", "a", "b"]), (2, String::new(), expected.to_owned()));
    assert_eq!(folder.kiln(&["net", "diff", "a", "nowhere"]).0, 2);
}
