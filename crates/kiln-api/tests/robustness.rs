//! Whatever stands in a folder, reading it ends with a world and findings, and without secrets.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

use std::fs;
use std::path::Path;

use kiln_api::build_world;
use kiln_core::document::yaml::parse_yaml;
use kiln_core::document::{Entry, Node, Value};
use kiln_core::source::{SourceMap, Sourced};
use proptest::prelude::*;

fn fixtures() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/dialects");
    let mut cases: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    cases.iter().map(|case| fs::read_to_string(case.join("input.yaml")).unwrap()).collect()
}

/// One change to a document: which node, and what becomes of it.
#[derive(Debug, Clone)]
struct Mutation {
    node: prop::sample::Index,
    change: Change,
}

#[derive(Debug, Clone)]
enum Change {
    Replace(Leaf),
    Wrap,
    DropEntries,
    RepeatItems,
    RenameKey(String),
    SpoilText(String),
}

#[derive(Debug, Clone)]
enum Leaf {
    Null,
    Bool,
    Integer(i64),
    Float(f64),
    Text(String),
    EmptyList,
    EmptyMap,
}

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let leaf = prop_oneof![
        Just(Leaf::Null),
        Just(Leaf::Bool),
        any::<i64>().prop_map(Leaf::Integer),
        any::<f64>().prop_map(Leaf::Float),
        ".{0,20}".prop_map(Leaf::Text),
        Just(Leaf::EmptyList),
        Just(Leaf::EmptyMap),
    ];
    let change = prop_oneof![
        leaf.prop_map(Change::Replace),
        Just(Change::Wrap),
        Just(Change::DropEntries),
        Just(Change::RepeatItems),
        "[a-zA-Z.]{0,12}".prop_map(Change::RenameKey),
        ".{0,3}".prop_map(Change::SpoilText),
    ];
    prop::collection::vec(
        (any::<prop::sample::Index>(), change).prop_map(|(node, change)| Mutation { node, change }),
        1..6,
    )
}

fn count(node: &Node) -> usize {
    1 + node.entries().iter().map(|entry| count(&entry.value)).sum::<usize>()
        + node.items().iter().map(count).sum::<usize>()
}

/// The node at that place of a walk from the root.
fn nth<'a>(node: &'a mut Node, left: &mut usize) -> Option<&'a mut Node> {
    if *left == 0 {
        return Some(node);
    }
    *left -= 1;
    match &mut node.value {
        Value::Mapping(entries) => entries.iter_mut().find_map(|entry| nth(&mut entry.value, left)),
        Value::Sequence(items) => items.iter_mut().find_map(|item| nth(item, left)),
        _ => None,
    }
}

fn mutate(document: &mut Node, Mutation { node, change }: &Mutation) {
    let mut place = node.index(count(document));
    let Some(node) = nth(document, &mut place) else { return };
    let at = node.at;
    match change {
        Change::Replace(leaf) => {
            node.value = match leaf {
                Leaf::Null => Value::Null,
                Leaf::Bool => Value::Bool(true),
                Leaf::Integer(number) => Value::Integer(i128::from(*number)),
                Leaf::Float(number) => Value::Float(*number),
                Leaf::Text(text) => Value::String(text.as_str().into()),
                Leaf::EmptyList => Value::Sequence(Vec::new()),
                Leaf::EmptyMap => Value::Mapping(Vec::new()),
            };
        }
        Change::Wrap => {
            let key = Sourced::new("items".into(), at);
            node.value = Value::Mapping(vec![Entry { key, value: node.clone() }]);
        }
        Change::DropEntries => {
            if let Value::Mapping(entries) = &mut node.value {
                entries.truncate(entries.len() / 2);
            }
        }
        Change::RepeatItems => {
            if let Value::Sequence(items) = &mut node.value {
                items.extend(items.clone());
            }
        }
        Change::RenameKey(name) => {
            if let Value::Mapping(entries) = &mut node.value
                && let Some(entry) = entries.first_mut()
            {
                entry.key.value = name.as_str().into();
            }
        }
        Change::SpoilText(text) => {
            if let Value::String(old) = &mut node.value {
                let keep: String = old.chars().skip(1).collect();
                *old = format!("{text}{keep}").into();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_mutated_folder_is_read_without_panic(fixture in any::<prop::sample::Index>(), mutations in mutations()) {
        let fixtures = fixtures();
        let mut sources = SourceMap::default();
        let file = sources.add("input.yaml", fixture.get(&fixtures).as_str());
        let (mut documents, _) = parse_yaml(file, sources.file(file));
        for mutation in &mutations {
            for document in &mut documents {
                mutate(document, mutation);
            }
        }
        let (_, findings) = build_world(documents, &mut sources);
        for finding in &findings {
            prop_assert!(kiln_core::diagnostic::registry::explanation(finding.code).is_some(), "{finding:?}");
            if let Some(at) = finding.at {
                sources.line_column(sources.outer(at));
            }
        }
    }

    #[test]
    fn any_text_is_read_without_panic(text in "(?s).{0,300}") {
        let mut sources = SourceMap::default();
        let file = sources.add("input.yaml", text);
        let (documents, _) = parse_yaml(file, sources.file(file));
        build_world(documents, &mut sources);
    }
}

#[test]
fn no_secret_survives_reading() {
    let secrets = [
        "hunter",
        "leaked",
        "treasure",
        "island",
        "not base64",
        "not-for-the-hub",
        "unclosed-riddle",
        "flow-enigma",
        "nested-mystery",
        "c2VjcmV0",
        "bm90OnJlYWw",
    ];
    let mut found = 0;
    for fixture in fixtures() {
        let mut sources = SourceMap::default();
        let file = sources.add("input.yaml", fixture.as_str());
        let (documents, _) = parse_yaml(file, sources.file(file));
        let (world, findings) = build_world(documents, &mut sources);
        let kept = format!("{world:?} {findings:?} {sources:?}");
        for secret in secrets {
            found += usize::from(fixture.contains(secret));
            assert!(!kept.contains(secret), "{secret} is still there");
        }
    }
    assert_eq!(found, secrets.len(), "each secret stands in one fixture");
}
