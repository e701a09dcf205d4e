//! nmstate documents and what becomes of them: findings, then each keyfile.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a helper that fails is a failed test"
)]

#[path = "support/fixtures.rs"]
mod fixtures;

use std::fs;
use std::path::Path;

use fixtures::{check_cases, describe};
use kiln_core::document::yaml::parse_yaml;
use kiln_core::keyfile::{ConnectionFile, Keyfile};
use kiln_core::nmstate::{
    MAX_INTERFACES, NetworkDocument, assisted_view, bind_to_macs, capture, find_network, render_for_nics,
};
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
fn a_list_of_interfaces_without_end_is_refused_before_it_takes_all_memory() {
    let mut sources = SourceMap::default();
    let file = sources.add("input.yaml", "interfaces:\n".to_owned() + &"- {name: eno1}\n".repeat(MAX_INTERFACES + 1));
    let (documents, _) = parse_yaml(file, sources.file(file));
    let expected = "\
error KLN0253 2:1: the document lists 4097 interfaces and is not rendered
  cause: nmstate is made for about a thousand interfaces; Kiln takes at most 4096
  help: list the interfaces of one machine, and give every other machine a document of its own
";
    assert_eq!(answer(&sources, &find_network(&documents[0]).unwrap()), expected);
}

#[test]
fn the_same_document_gives_the_same_bytes() {
    for case in fixtures::cases("nmstate") {
        let mut sources = SourceMap::default();
        let file = sources.add("input.yaml", fs::read_to_string(case.join("input.yaml")).unwrap());
        let (documents, _) = parse_yaml(file, sources.file(file));
        let network = find_network(&documents[0]).unwrap();
        let first = answer(&sources, &network);
        for _ in 0..10 {
            assert_eq!(answer(&sources, &network), first, "{}", case.display());
        }
    }
}

#[test]
fn stock_pipelines_get_logical_names_and_a_table_of_addresses() {
    let text = "kind: NMStateConfig\nspec:\n  interfaces: [{name: nic1, macAddress: 52-54-00-AA-00-01}]\n  config:\n    interfaces: [{name: nic1, type: ethernet, state: up}]\n";
    let mut sources = SourceMap::default();
    let file = sources.add("input.yaml", text);
    let (documents, _) = parse_yaml(file, sources.file(file));
    let network = find_network(&documents[0]).unwrap();
    let view = assisted_view(&render_for_nics(network.document, &network.nics).files, &network.nics);
    assert_eq!(view.mac_interface_ini, "52:54:00:aa:00:01=nic1\n");
    let keyfile = &view.files[0].keyfile;
    let value = |key: &str| keyfile.get("connection", key).unwrap_or_default().into_owned();
    assert_eq!([value("interface-name"), value("autoconnect"), value("autoconnect-priority")], ["nic1", "true", "1"]);
}

fn read_profiles(folder: &Path) -> Vec<ConnectionFile> {
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        ConnectionFile::new(name, Keyfile::parse(&fs::read_to_string(path).unwrap()).unwrap())
    };
    paths.iter().map(read).collect()
}

#[test]
fn profiles_of_a_machine_become_clean_keyfiles_and_a_document() {
    check_cases("capture", |case| {
        let captured = capture(&read_profiles(&case.join("profiles")));
        let findings = describe(&SourceMap::default(), &captured.diagnostics);
        let keyfiles: String = captured.keyfiles.iter().map(show).collect();
        format!("{findings}--- document\n{}{keyfiles}", captured.document)
    });
}

/// The files a document text renders to; panics when it is refused.
fn rendered(text: &str) -> Vec<ConnectionFile> {
    let mut sources = SourceMap::default();
    let file = sources.add("document", text);
    let (documents, findings) = parse_yaml(file, sources.file(file));
    assert_eq!(findings, [], "{text}");
    let network = find_network(&documents[0]).unwrap();
    let rendered = render_for_nics(network.document, &network.nics);
    assert!(!rendered.is_refused(), "{text}{}", describe(&sources, &rendered.diagnostics));
    rendered.files
}

#[test]
fn a_captured_document_renders_to_the_same_profiles() {
    for case in ["bond_and_vlan_of_three_nics", "linux_bridge_with_vlan_filtering", "rules_and_routes"] {
        let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/nmstate").join(case).join("input.yaml");
        let before = rendered(&fs::read_to_string(input).unwrap());
        let captured = capture(&before);
        assert_eq!(captured.diagnostics, [], "{case}");
        let after = rendered(&captured.document);
        let text = |files: &[ConnectionFile]| files.iter().map(show).collect::<String>();
        assert_eq!(text(&after), text(&before), "{case}\n{}", captured.document);
    }
}

#[test]
fn what_nmcli_made_can_be_captured_and_rendered() {
    for case in fixtures::cases("capture") {
        let captured = capture(&read_profiles(&case.join("profiles")));
        let files = rendered(&captured.document);
        // Capturing the result says the same document again: nothing is lost on the way round.
        assert_eq!(capture(&files).document, captured.document, "{}", case.display());
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]

    /// Whatever is cut out of a document or put in another's place: findings, never a panic, and the same ones again.
    #[test]
    fn no_document_makes_it_panic(case in 0usize..64, cuts in proptest::collection::vec((0usize..4000, 0usize..40, 0usize..12), 1..4)) {
        const PIECES: [&str; 12] = ["", "null", "-1", "[]", "{}", "99999999999999999999", "\"\"", "x: y", "\n", " ", "[{name: eno1}]", "\"\\n[connection]\""];
        let cases = fixtures::cases("nmstate");
        let mut text = fs::read_to_string(cases[case % cases.len()].join("input.yaml")).unwrap();
        for (at, length, piece) in cuts {
            let start = text.floor_char_boundary(at % (text.len() + 1));
            let end = text.floor_char_boundary((start + length).min(text.len()));
            text.replace_range(start..end, PIECES[piece]);
        }
        let mut sources = SourceMap::default();
        let file = sources.add("input.yaml", text);
        let (documents, _) = parse_yaml(file, sources.file(file));
        for network in documents.iter().filter_map(find_network) {
            let files = bind_to_macs(&render_for_nics(network.document, &network.nics).files, &network.nics).0;
            for file in &files {
                let keyfile = &file.keyfile;
                proptest::prop_assert_eq!(keyfile, &Keyfile::parse(&keyfile.render()).unwrap());
                proptest::prop_assert!(!file.name.contains('/') && file.ignored().is_none(), "{}", file.name);
            }
            capture(&files);
        }
    }
}
