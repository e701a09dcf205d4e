//! Folders of cases: `fixtures/<area>/<case>/input.*` and the `expected.txt` a function makes of it.
//!
//! Every differing case is reported, a missing `expected.txt` and an empty area fail. `UPDATE_FIXTURES=1` rewrites the
//! expectations; look at the difference before you commit it.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use kiln_core::diagnostic::{Diagnostic, Severity};
use kiln_core::source::SourceMap;

/// Compares every case of an area with what `answer` makes of its folder.
pub fn check_cases(area: &str, answer: impl Fn(&Path) -> String) {
    let cases = cases(area);
    let mut report = String::new();
    for case in &cases {
        let file = case.join("expected.txt");
        let found = answer(case);
        if std::env::var_os("UPDATE_FIXTURES").is_some() {
            fs::write(&file, &found).unwrap();
        }
        match fs::read_to_string(&file) {
            Ok(expected) if expected == found => {}
            Ok(expected) => write!(report, "{}:\n{}\n", case.display(), difference(&expected, &found)).unwrap(),
            Err(error) => writeln!(report, "{}: {error}", file.display()).unwrap(),
        }
    }
    assert!(report.is_empty(), "UPDATE_FIXTURES=1 rewrites the expectations\n{report}");
}

/// The folders of an area, sorted.
pub fn cases(area: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(area);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut cases: Vec<_> = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    cases.sort();
    assert!(!cases.is_empty(), "{} has no cases", folder.display());
    cases
}

/// Findings as a reader of a fixture wants them: one line each, then why and what to do.
pub fn describe(sources: &SourceMap, findings: &[Diagnostic]) -> String {
    let mut text = String::new();
    for finding in findings {
        let severity = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        let place = finding.at.map(|at| sources.line_column(at));
        let place = place.map_or(String::new(), |place| format!(" {}:{}", place.line, place.column));
        writeln!(text, "{severity} {}{place}: {}", finding.code, finding.message).unwrap();
        for related in &finding.related {
            let place = sources.line_column(related.at);
            writeln!(text, "  related {}:{}: {}", place.line, place.column, related.message).unwrap();
        }
        for (label, line) in [("cause", &finding.cause), ("help", &finding.help)] {
            if let Some(line) = line {
                writeln!(text, "  {label}: {line}").unwrap();
            }
        }
    }
    text
}

fn difference(expected: &str, found: &str) -> String {
    let (expected, found): (Vec<_>, Vec<_>) = (expected.lines().collect(), found.lines().collect());
    let lost = expected.iter().filter(|line| !found.contains(line)).map(|line| format!("  - {line}\n"));
    let new = found.iter().filter(|line| !expected.contains(line)).map(|line| format!("  + {line}\n"));
    let lines: String = lost.chain(new).collect();
    if lines.is_empty() { "  the same lines in another order or number\n".to_owned() } else { lines }
}
