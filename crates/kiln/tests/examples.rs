//! Every example says what it always said: `kiln check` and `kiln plan` of each folder against its expected text.
//!
//! `UPDATE_FIXTURES=1` rewrites the expected texts.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a helper that fails is a failed test"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn kiln(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kiln")).args(arguments).current_dir(root()).output().unwrap()
}

/// Standard output, standard error and exit code, as a person would see them.
fn transcript(arguments: &[&str]) -> String {
    let output = kiln(arguments);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    format!("$ kiln {}\n{out}{err}exit {}\n", arguments.join(" "), output.status.code().unwrap())
}

fn compare(expected: &Path, found: &str) {
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        fs::write(expected, found).unwrap();
    }
    let wanted = fs::read_to_string(expected).unwrap_or_else(|error| panic!("{}: {error}", expected.display()));
    assert_eq!(found, wanted, "{} differs; UPDATE_FIXTURES=1 rewrites it", expected.display());
}

fn check_example(name: &str, commands: &[&[&str]]) {
    let found: String = commands.iter().map(|command| transcript(command) + "\n").collect();
    compare(&root().join("examples").join(name).join("expected.txt"), &found);
}

#[test]
fn a_remote_worker_at_day_0_is_fine_when_declared_as_one() {
    check_example(
        "remote-worker",
        &[&["check", "examples/remote-worker"], &["plan", "examples/remote-worker", "--host", "worker-2"]],
    );
}

#[test]
fn a_day_2_tweak_of_the_pool_costs_the_next_worker_its_network() {
    check_example("day2-tweak", &[&["check", "examples/day2-tweak"], &["plan", "examples/day2-tweak"]]);
}

#[test]
fn a_hosted_pool_is_accepted() {
    check_example("hosted-pool", &[&["check", "examples/hosted-pool"]]);
}

#[test]
fn a_vlan_policy_is_accepted() {
    check_example("vlan-policy", &[&["check", "--deny", "warnings", "examples/vlan-policy"]]);
}

#[test]
fn a_bond_with_a_vlan_becomes_four_private_keyfiles() {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bond-vlan");
    let _ = fs::remove_dir_all(&out);
    let rendered = kiln(&["net", "render", "examples/bond-vlan/network.yaml", "--out", out.to_str().unwrap()]);
    assert_eq!(rendered.status.code(), Some(0), "{}", String::from_utf8_lossy(&rendered.stderr));
    let mut files: Vec<PathBuf> = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let found: String = files
        .iter()
        .map(|path| format!("# {}\n{}\n", path.file_name().unwrap().display(), fs::read_to_string(path).unwrap()))
        .collect();
    compare(&root().join("examples/bond-vlan/expected.txt"), &found);
}

#[test]
fn a_machine_configured_by_hand_becomes_a_document() {
    const PROFILES: &str = "etc/NetworkManager/system-connections";
    let machine = Path::new(env!("CARGO_TARGET_TMPDIR")).join("captured");
    let _ = fs::remove_dir_all(&machine);
    fs::create_dir_all(machine.join(PROFILES)).unwrap();
    for entry in fs::read_dir(root().join("examples/bond-vlan/captured").join(PROFILES)).unwrap() {
        let entry = entry.unwrap();
        let copy = machine.join(PROFILES).join(entry.file_name());
        fs::copy(entry.path(), &copy).unwrap();
        // git keeps no modes, and NetworkManager would not load what others may read.
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let captured = kiln(&["net", "capture", "--root", machine.to_str().unwrap(), "-o", "nmstate"]);
    assert_eq!(captured.status.code(), Some(0), "{}", String::from_utf8_lossy(&captured.stderr));
    compare(&root().join("examples/bond-vlan/captured.txt"), &String::from_utf8(captured.stdout).unwrap());
}

#[test]
fn the_readme_shows_what_the_demo_prints() {
    const OPENING: &str = "<!-- readme-check -->\n```text\n";
    let path = root().join("README.md");
    let readme = fs::read_to_string(&path).unwrap();
    let (before, shown) = readme.split_once(OPENING).unwrap();
    let (_, after) = shown.split_once("```").unwrap();
    let printed = String::from_utf8(kiln(&["check", "examples/day2-tweak"]).stderr).unwrap();
    compare(&path, &format!("{before}{OPENING}{printed}```{after}"));
}

#[test]
fn every_broken_example_is_refused_with_its_expected_message() {
    let broken = root().join("examples/broken");
    let mut cases: Vec<PathBuf> = fs::read_dir(&broken).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(!cases.is_empty());
    for case in cases.iter().filter(|case| case.is_dir()) {
        let name = case.file_name().unwrap().to_str().unwrap();
        let found = transcript(&["check", &format!("examples/broken/{name}")]);
        compare(&case.join("expected.txt"), &found);
    }
}
