//! The program as it lies in an initramfs, when it was built (`cargo xtask testbed` and `cargo xtask bench firstboot` do).

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a helper that fails is a failed test")]

use std::path::Path;
use std::process::Command;

const PROGRAM: &str = "../../target/x86_64-unknown-linux-gnu/firstboot/kiln-firstboot";
const LARGEST_BYTES: u64 = 8_000_000;

#[test]
fn it_is_small_and_needs_nothing_else() {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join(PROGRAM);
    if !program.exists() {
        let reason = "cargo xtask testbed builds the program";
        assert!(std::env::var("KILN_REQUIRE_ORACLES").as_deref() != Ok("1"), "{reason}");
        eprintln!("skipped: it_is_small_and_needs_nothing_else: {reason}");
        return;
    }
    let bytes = std::fs::metadata(&program).unwrap().len();
    assert!(bytes < LARGEST_BYTES, "{bytes} bytes");
    // Only root may enter an empty root, where there are no libraries and no interpreter.
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: the rest of it_is_small_and_needs_nothing_else: it needs root");
        return;
    }
    let folder = std::env::temp_dir().join(format!("kiln-static-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(&program, folder.join("program")).unwrap();
    let output = Command::new("chroot").arg(&folder).args(["/program", "--version"]).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.starts_with("kiln-firstboot "), "{said}{}", String::from_utf8_lossy(&output.stderr));
}
