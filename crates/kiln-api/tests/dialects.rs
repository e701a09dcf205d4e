//! Every folder in `fixtures/dialects` is read, and what Kiln understood is compared with `expected.txt`.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

mod support;

use kiln_api::build_world;
use kiln_core::document::yaml::parse_yaml;
use kiln_core::source::SourceMap;
use support::{check_cases, summary};

fn understand(input: &str) -> String {
    let mut sources = SourceMap::default();
    let file = sources.add("input.yaml", input);
    let (documents, mut findings) = parse_yaml(file, sources.file(file));
    let (world, more) = build_world(documents, &mut sources);
    findings.extend(more);
    summary::describe(&world, &findings, &sources)
}

#[test]
fn documents_become_the_world_they_declare() {
    check_cases("fixtures/dialects", understand);
}

#[test]
fn typical_manifests_of_every_kind_give_no_finding() {
    let text = understand(include_str!("../../../fixtures/dialects/every_kind/input.yaml"));
    assert_eq!(text.split_once("findings:\n").map(|(_, findings)| findings), Some(""));
}
