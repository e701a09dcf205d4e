//! nmstate documents and what becomes of them: findings, then each keyfile.

#[path = "support/fixtures.rs"]
mod fixtures;

use std::fs;
use std::path::Path;

use fixtures::{check_cases, describe};
use kiln_core::document::yaml::parse_yaml;
use kiln_core::keyfile::ConnectionFile;
use kiln_core::nmstate::{NetworkDocument, bind_to_macs, find_network, render_for_nics};
use kiln_core::source::SourceMap;

#[test]
fn documents_become_keyfiles_or_findings() {
    check_cases("nmstate", |case| {
        let mut sources = SourceMap::default();
        let file = sources.add("input.yaml", fs::read_to_string(case.join("input.yaml")).unwrap());
        let (documents, findings) = parse_yaml(file, sources.file(file));
        assert_eq!(findings, [], "{}", case.display());
        documents.iter().filter_map(find_network).map(|network| answer(&sources, &network)).collect()
    });
}

fn answer(sources: &SourceMap, network: &NetworkDocument<'_>) -> String {
    let rendered = render_for_nics(network.document, &network.nics);
    let (files, more) = bind_to_macs(&rendered.files, &network.nics);
    let mut text = describe(sources, &rendered.diagnostics) + &describe(sources, &more);
    if let Some(name) = &rendered.hostname {
        text.push_str(&format!("--- /etc/hostname\n{name}\n"));
    }
    text + &files.iter().map(show).collect::<String>()
}

fn show(file: &ConnectionFile) -> String {
    format!("--- {} {:04o}\n{}", file.name, file.mode, file.keyfile.render())
}

#[test]
fn the_same_document_gives_the_same_bytes() {
    let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/nmstate/rules_and_routes/input.yaml");
    let mut sources = SourceMap::default();
    let file = sources.add("input.yaml", fs::read_to_string(input).unwrap());
    let (documents, _) = parse_yaml(file, sources.file(file));
    let network = find_network(&documents[0]).unwrap();
    let first = answer(&sources, &network);
    for _ in 0..50 {
        assert_eq!(answer(&sources, &network), first);
    }
}
