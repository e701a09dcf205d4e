//! Every folder in `fixtures/check`: what `kiln_core::check` says about `input.yaml`, word for word, and that
//! `repaired.yaml`, where there is one, needs no repair any more.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

#[path = "support/cases.rs"]
mod cases;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use kiln_api::build_world;
use kiln_core::diagnostic::{Diagnostic, Severity, attribute, registry};
use kiln_core::document::yaml::parse_yaml;
use kiln_core::source::{Location, SourceMap};

fn findings(input: &str) -> (Vec<Diagnostic>, SourceMap) {
    let mut sources = SourceMap::default();
    let file = sources.add("input.yaml", input);
    let (documents, mut findings) = parse_yaml(file, sources.file(file));
    let (world, more) = build_world(documents, &mut sources);
    findings.extend(more);
    findings.extend(kiln_core::check::check(&world));
    attribute(&mut findings, &world.objects, &sources);
    (findings, sources)
}

fn described(input: &str) -> String {
    let (findings, sources) = findings(input);
    let place = |at: Location| {
        let at = sources.line_column(sources.outer(at));
        format!("{}:{}", at.line, at.column)
    };
    let mut text = String::new();
    for finding in &findings {
        let severity = format!("{:?}", finding.severity).to_lowercase();
        let object = finding.object.as_ref().map(|object| format!(" {} {}", object.kind, object.name));
        let field = finding.field.as_ref().map(|field| format!(" {field}"));
        let at = finding.at.map(|at| format!(" at {}", place(at)));
        let parts = [at, object, field].map(Option::unwrap_or_default).concat();
        writeln!(text, "{severity} {}{parts}\n  {}", finding.code, finding.message).unwrap();
        for related in &finding.related {
            writeln!(text, "  also {}: {}", place(related.at), related.message).unwrap();
        }
        writeln!(text, "  cause: {}", finding.cause.as_deref().unwrap_or("(none)")).unwrap();
        writeln!(text, "  help: {}\n", finding.help.as_deref().unwrap_or("(none)").replace('\n', "\n    ")).unwrap();
    }
    text
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn folders() -> Vec<PathBuf> {
    let folder = repository().join("fixtures/check");
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn every_broken_folder_is_explained_word_for_word() {
    cases::check_cases("fixtures/check", described);
}

#[test]
fn every_repaired_folder_is_silent_apart_from_notes() {
    let repaired = folders().into_iter().map(|case| case.join("repaired.yaml")).filter(|file| file.exists());
    let mut count = 0;
    for file in repaired {
        count += 1;
        let text = described(&fs::read_to_string(&file).unwrap());
        let loud = text.split("\n\n").any(|finding| finding.starts_with("error") || finding.starts_with("warning"));
        assert!(!loud, "{}:\n{text}", file.display());
    }
    assert!(count > 0, "no repaired.yaml was found");
}

#[test]
fn every_finding_has_a_cause_and_an_edit() {
    for case in folders() {
        for finding in findings(&fs::read_to_string(case.join("input.yaml")).unwrap()).0 {
            assert!(finding.cause.is_some() && finding.help.is_some(), "{}: {finding:?}", case.display());
        }
    }
}

/// The codes of `kiln_core::check`.
fn own_codes() -> BTreeSet<u16> {
    let own = |code: &u16| matches!(code, 120..=179 | 300..=399 | 500..=599 | 600..=699 | 700..=719);
    registry::all().map(|known| known.code.0).filter(own).collect()
}

/// An InfraEnv with a trust bundle that hardly compresses.
fn crowded_discovery(bytes: usize) -> String {
    let mut text =
        "apiVersion: agent-install.openshift.io/v1beta1\nkind: InfraEnv\nmetadata: {name: all, namespace: site}\n\
        spec:\n  pullSecretRef: {name: pull}\n  additionalTrustBundle: |\n    "
            .to_owned();
    let mut state: u64 = 1;
    for _ in 0..bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push(char::from(b'A' + ((state >> 33) % 26) as u8));
    }
    text
}

#[test]
fn a_discovery_image_without_room_is_refused() {
    let size = |bytes| {
        let found =
            findings(&crowded_discovery(bytes)).0.into_iter().find(|finding| finding.code.to_string() == "KLN0700");
        found.map(|finding| (finding.severity, finding.message))
    };
    assert_eq!(size(100_000), None);
    assert_eq!(size(350_000).map(|(severity, _)| severity), Some(Severity::Warning));
    let expected = "the image of InfraEnv `all` has 256 KiB for its compressed config, and needs about 0 KiB for the \
        networks of 0 hosts and 297 KiB for its trust bundle and override";
    assert_eq!(size(500_000), Some((Severity::Error, expected.to_owned())));
}

#[test]
fn every_code_of_the_rules_is_shown_by_a_fixture() {
    let shown: BTreeSet<u16> = folders()
        .iter()
        .flat_map(|case| findings(&fs::read_to_string(case.join("input.yaml")).unwrap()).0)
        .map(|finding| finding.code.0)
        .collect();
    // 700 needs a large input and has a test of its own.
    let missing: Vec<_> = own_codes().into_iter().filter(|code| !shown.contains(code) && *code != 700).collect();
    assert_eq!(missing, Vec::<u16>::new(), "codes without a fixture");
}

#[test]
fn every_code_the_rules_use_is_registered_and_every_registered_one_used() {
    let mut used = BTreeSet::new();
    let folder = repository().join("crates/kiln-core/src/check");
    for file in fs::read_dir(folder).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap()) {
        let numbers = file.split("Code(").skip(1).filter_map(|rest| rest.split(')').next()?.parse::<u16>().ok());
        used.extend(numbers);
    }
    used.remove(&412); // of another area, and only left out here
    assert_eq!(used, own_codes());
}
