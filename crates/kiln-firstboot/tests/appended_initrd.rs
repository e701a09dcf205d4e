//! The initrd that `dracut/appended-initrd` makes has what docs/first-boot.md says, and nothing else.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a helper that fails is a failed test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[path = "support/machine.rs"]
mod machine;

use machine::Machine;

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn it_has_what_the_documentation_says_and_nothing_else() {
    let test = "it_has_what_the_documentation_says_and_nothing_else";
    if !Path::new("/usr/bin/cpio").exists() {
        let reason = "cpio is not installed (apt-get install cpio)";
        assert!(std::env::var("KILN_REQUIRE_ORACLES").as_deref() != Ok("1"), "{test}: {reason}");
        eprintln!("skipped: {test}: {reason}");
        return;
    }
    let folder = Machine::new("", &[("program", 0o700, "the program\n")]);
    let made = ["once", "twice"].map(|name| {
        let output = folder.path(name);
        let mut script = Command::new(project().join("dracut/appended-initrd"));
        assert!(script.arg(folder.path("program")).arg(&output).status().unwrap().success());
        std::fs::read(output).unwrap()
    });
    assert_eq!(made[0], made[1], "the same input gives the same bytes");

    let docs = std::fs::read_to_string(project().join("docs/first-boot.md")).unwrap();
    let (_, listing) = docs.split_once("It adds these files:\n\n```text\n").unwrap();
    let (listing, _) = listing.split_once("```").unwrap();
    let (files, links): (Vec<&str>, Vec<&str>) = listing.lines().partition(|line| !line.contains(" -> "));

    std::fs::create_dir(folder.path("tree")).unwrap();
    let archive = std::fs::File::open(folder.path("once")).unwrap();
    let mut unpacked = Command::new("gzip").arg("-dc").stdin(archive).stdout(Stdio::piped()).spawn().unwrap();
    let mut unpack = Command::new("cpio");
    unpack.args(["--extract", "--quiet"]).current_dir(folder.path("tree")).stdin(unpacked.stdout.take().unwrap());
    assert!(unpack.status().unwrap().success() && unpacked.wait().unwrap().success());
    let found = |kind: &str, format: &str| {
        let mut find = Command::new("find");
        let output = find.arg(folder.path("tree")).args(["-type", kind, "-printf", format]).output().unwrap();
        let mut found: Vec<String> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
        found.sort();
        found
    };
    assert_eq!(found("f", "/%P\n"), files);
    assert_eq!(found("l", "/%P -> %l\n"), links);

    // The program can be run, the rest is the module's units as they are.
    for file in files {
        let name = file.rsplit('/').next().unwrap();
        let part = if file.starts_with("/usr/lib/kiln/real-root/") { "real-root" } else { "witness" };
        let (original, mode) = match name {
            "kiln-firstboot" => (folder.path("program"), "755"),
            unit => (project().join("dracut/35kiln-firstboot").join(part).join(unit), "644"),
        };
        let copy = folder.path(&format!("tree{file}"));
        assert_eq!(std::fs::read(&copy).unwrap(), std::fs::read(original).unwrap(), "{file}");
        assert!(found("f", "/%P %m\n").contains(&format!("{file} {mode}")), "{file}");
    }
}
