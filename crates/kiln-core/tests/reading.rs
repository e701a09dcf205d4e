//! YAML texts and what is read from them: findings, then each document as JSON.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a helper that fails is a failed test"
)]

#[path = "support/fixtures.rs"]
mod fixtures;

use std::fs;

use fixtures::{check_cases, describe};
use kiln_core::document::yaml::parse_yaml;
use kiln_core::source::SourceMap;

#[test]
fn texts_become_documents_and_findings() {
    check_cases("reading", |case| {
        let mut sources = SourceMap::default();
        let file = sources.add("input.yaml", fs::read_to_string(case.join("input.yaml")).unwrap());
        let (documents, findings) = parse_yaml(file, sources.file(file));
        let documents = documents.iter().map(|document| format!("{}\n", document.to_json()));
        describe(&sources, &findings) + &documents.collect::<String>()
    });
}
