//! Fixtures: `fixtures/<area>/<case>/{input…,expected.txt}`.
//!
//! Every case is run and every differing one told; a missing `expected.txt` or an area without cases fails.
//! `UPDATE_FIXTURES=1` writes what came out, to be read in the diff before it is committed.

use std::fs;
use std::path::{Path, PathBuf};

/// Runs `answer` on the text of `input` in every case of an area and compares with `expected.txt`.
pub fn check_cases(area: &str, input: &str, answer: impl Fn(&str) -> String) {
    let area = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(area);
    let entries = fs::read_dir(&area).unwrap_or_else(|error| panic!("{}: {error}", area.display()));
    let mut cases: Vec<PathBuf> =
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.join(input).exists() || path.is_dir()).collect();
    cases.sort();
    assert!(!cases.is_empty(), "{} has no cases", area.display());
    let update = std::env::var("UPDATE_FIXTURES").as_deref() == Ok("1");
    let failures: Vec<_> = cases.iter().filter_map(|case| check(case, input, &answer, update)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

fn check(case: &Path, input: &str, answer: &impl Fn(&str) -> String, update: bool) -> Option<String> {
    let name = case.display();
    let text = match fs::read_to_string(case.join(input)) {
        Ok(text) => text,
        Err(error) => return Some(format!("{name}/{input}: {error}")),
    };
    let actual = answer(&text);
    let expected = case.join("expected.txt");
    if update {
        fs::write(&expected, &actual).unwrap();
        return None;
    }
    match fs::read_to_string(&expected) {
        Ok(wanted) if wanted == actual => None,
        Ok(wanted) => Some(format!("{name} differs\n--- expected\n{wanted}\n--- actual\n{actual}")),
        Err(error) => Some(format!("{name}/expected.txt: {error}; UPDATE_FIXTURES=1 writes it\n{actual}")),
    }
}
