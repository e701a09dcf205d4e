//! Outside programs as makers and judges: present, or the test is skipped in one line.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where `program` is. If it is missing, says so in one line, or fails when `KILN_REQUIRE_ORACLES=1` demands it.
pub fn require(test: &str, program: &str, package: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders)
        // People's own PATH often lacks the folders of mke2fs and debugfs.
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(program))
        .find(|path| path.is_file());
    if found.is_none() {
        skip(test, &format!("{program} is not installed (apt-get install {package})"));
    }
    found
}

/// Whether all of these `(program, package)` are there; the first that is missing is told as by [`require`].
pub fn require_all(test: &str, programs: &[(&str, &str)]) -> bool {
    programs.iter().all(|(program, package)| require(test, program, package).is_some())
}

/// The real coreos-installer, which `cargo xtask test` builds from its crate into `target/oracles`.
pub fn coreos_installer(test: &str) -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/oracles/bin/coreos-installer");
    if target.is_file() {
        return Some(target);
    }
    skip(test, "coreos-installer is not installed (cargo xtask test builds it)");
    None
}

/// A kubectl that is new enough (1.29): the one `KILN_KUBECTL` names, the one `cargo xtask test` fetched into
/// `target/oracles`, or one on the PATH.
pub fn kubectl(test: &str) -> Option<PathBuf> {
    let named = std::env::var_os("KILN_KUBECTL").map(PathBuf::from);
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/oracles/bin/kubectl");
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&folders).map(|folder| folder.join("kubectl"));
    let mut candidates = named.into_iter().chain([fetched]).chain(installed);
    let found = candidates.find(|path| path.is_file() && kubectl_minor(path) >= 29);
    if found.is_none() {
        skip(test, "kubectl 1.29 or later is not installed (cargo xtask test fetches it)");
    }
    found
}

/// The minor version of a kubectl, 0 if it does not say.
pub fn kubectl_minor(path: &Path) -> u32 {
    let output = Command::new(path).args(["version", "--client"]).stdin(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let minor = text.split("v1.").nth(1).and_then(|rest| rest.split('.').next());
    minor.and_then(|minor| minor.parse().ok()).unwrap_or(0)
}

/// Says why a test is skipped, or fails when skipping is not allowed.
pub fn skip(test: &str, reason: &str) {
    assert!(std::env::var("KILN_REQUIRE_ORACLES").as_deref() != Ok("1"), "{test}: {reason}");
    eprintln!("skipped: {test}: {reason}");
}

/// Runs a program that must succeed and returns what it printed on standard output.
pub fn run(command: &mut Command) -> Vec<u8> {
    let shown = format!("{command:?}");
    // mke2fs and debugfs live where the PATH of ordinary users does not look.
    let path = std::env::var("PATH").unwrap_or_default();
    let output = command
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("cannot start {shown}: {error}"));
    assert!(
        output.status.success(),
        "{shown} ended with {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}
