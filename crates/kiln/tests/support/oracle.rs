//! Outside programs as judges: present, or skipped in one line.

#![allow(clippy::print_stderr, reason = "a skipped test is told")]

/// Whether `program` is there. If not, says so in one line, or fails when `KILN_REQUIRE_ORACLES=1` demands it.
pub fn present(test: &str, program: &str, package: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|folder| folder.join(program).is_file());
    found || skip(test, &format!("{program} is not installed (apt-get install {package})"))
}

/// Says why a test is skipped, or fails when skipping is not allowed. Always `false`.
pub fn skip(test: &str, reason: &str) -> bool {
    assert!(std::env::var("KILN_REQUIRE_ORACLES").as_deref() != Ok("1"), "{test}: {reason}");
    eprintln!("skipped: {test}: {reason}");
    false
}
