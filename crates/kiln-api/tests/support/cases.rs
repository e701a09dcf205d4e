//! Fixture folders: `<case>/input.yaml` and the `expected.txt` it must give.

use std::fs;
use std::path::Path;

/// Compares every case and reports all that differ. `UPDATE_FIXTURES=1` rewrites the expected files.
pub fn check_cases(folder: &str, give: impl Fn(&str) -> String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let mut cases: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(!cases.is_empty(), "{} holds no case", folder.display());
    let mut different = Vec::new();
    for case in cases {
        let given = give(&fs::read_to_string(case.join("input.yaml")).unwrap());
        let path = case.join("expected.txt");
        if std::env::var_os("UPDATE_FIXTURES").is_some() {
            fs::write(&path, &given).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap_or_else(|_| "(no expected.txt)".to_owned());
        if given != expected {
            let name = case.file_name().unwrap_or_default().to_string_lossy().into_owned();
            different.push(format!("--- {name}: expected\n{expected}\n--- {name}: given\n{given}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}
