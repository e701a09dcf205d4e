//! `fixtures/network`: two sets of keyfiles, their merge with every decision, what NetworkManager does with the result, and how far the
//! result is from the base.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

#[path = "support/fixtures.rs"]
mod fixtures;
#[path = "support/keyfile_sets.rs"]
mod keyfile_sets;

use std::fmt::Display;

use keyfile_sets::read_set;
use kiln_core::network::choice::{choose, known_nics};
use kiln_core::network::diff::diff;
use kiln_core::network::merge::merge;

#[test]
fn two_sets_become_one() {
    fixtures::check_cases("network", |case| {
        let text = std::fs::read_to_string(case.join("input.txt")).unwrap();
        let (base, overlay) = (read_set(&text, "base"), read_set(&text, "overlay"));
        let merged = merge(&base, &overlay);
        let (mut reversed_base, mut reversed_overlay) = (base.clone(), overlay);
        reversed_base.reverse();
        reversed_overlay.reverse();
        assert_eq!(merged, merge(&reversed_base, &reversed_overlay), "the order of the files must not matter");
        let files: String =
            merged.files.iter().map(|file| format!("=== {} {:04o}\n{}", file.name, file.mode, file.keyfile)).collect();
        format!(
            "## Decisions\n{}\n## What NetworkManager does with the result\n{}\n## From base to result\n{}\n## Result\n{files}",
            lines(&merged.decisions),
            lines(&choose(&merged.files, &known_nics(&merged.files))),
            lines(&diff(&base, &merged.files)),
        )
    });
}

fn lines(things: &[impl Display]) -> String {
    things.iter().map(|thing| format!("{thing}\n")).collect()
}
