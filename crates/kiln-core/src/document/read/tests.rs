//! What `read` keeps, refuses and says.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::*;
use crate::diagnostic::Severity;
use crate::document::yaml::parse_yaml;
use crate::source::{SourceMap, Sourced};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Host {
    kind: String,
    spec: Spec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(rename = "bootMACAddress")]
    boot_mac_address: Option<Sourced<String>>,
    online: Option<bool>,
    port: Option<Sourced<u16>>,
    ratio: Option<f64>,
    labels: BTreeMap<String, Sourced<String>>,
    servers: Vec<Sourced<String>>,
    bmc: Option<Bmc>,
    mode: Option<Sourced<Mode>>,
    config: Option<Node>,
}

#[derive(Debug, Deserialize)]
struct Bmc {
    address: Sourced<String>,
}

#[derive(Debug, PartialEq, Deserialize)]
enum Mode {
    #[serde(rename = "UEFI")]
    Uefi,
    #[serde(rename = "legacy")]
    Legacy,
}

/// What was read, and each finding as `line:column severity message | help`.
fn read_host(text: &str) -> (Option<Host>, Vec<String>, Node) {
    let mut sources = SourceMap::default();
    let file = sources.add("host.yaml", text);
    let (documents, syntax) = parse_yaml(file, sources.file(file));
    assert_eq!(syntax, []);
    let mut findings = Vec::new();
    let host = read(&documents[0], &mut findings);
    let lines = findings
        .iter()
        .map(|finding| {
            let at = sources.line_column(finding.at.expect("a place"));
            let severity = match finding.severity {
                Severity::Error => 'E',
                Severity::Warning => 'W',
                Severity::Note => 'N',
            };
            let help = finding.help.as_deref().unwrap_or("-");
            format!("{}:{} {severity} {} | {help}", at.line, at.column, finding.message)
        })
        .collect();
    (host, lines, documents[0].clone())
}

#[test]
fn values_come_with_their_places() {
    let (host, findings, node) = read_host(
        "kind: H\nspec:\n  bootMACAddress: \"52:54:00:00:00:01\"\n  online: yes\n  port: 0x50\n  ratio: 3\n  \
         labels: {a: b, on: ''}\n  servers: [x, ~]\n  bmc: {address: redfish://a}\n  mode: UEFI\n  config:\n    deep: [1, {a: null}]\n",
    );
    assert_eq!(findings, [""; 0]);
    let Host { kind, spec } = host.expect("a host");
    assert_eq!(kind, "H");
    let mac = spec.boot_mac_address.expect("a MAC");
    assert_eq!(mac.value, "52:54:00:00:00:01");
    assert_eq!(mac.at, node.path(&["spec", "bootMACAddress"]).expect("the node").at);
    assert_eq!((spec.online, spec.port.map(|port| port.value), spec.ratio), (Some(true), Some(80), Some(3.0)));
    assert_eq!(spec.labels.keys().collect::<Vec<_>>(), ["a", "true"]);
    assert_eq!(spec.servers.iter().map(|server| server.as_str()).collect::<Vec<_>>(), ["x", ""]);
    assert_eq!(spec.bmc.expect("a bmc").address.value, "redfish://a");
    assert_eq!(spec.mode.expect("a mode").value, Mode::Uefi);
    assert_eq!(spec.config.as_ref(), node.path(&["spec", "config"]));
}

#[test]
fn every_mistake_of_a_document_is_shown_and_the_rest_is_read() {
    let (host, findings, _) = read_host(
        "kind: H\nspec:\n  bootMACAddress: 7\n  online: \"true\"\n  port: \"80\"\n  ratio: x\n  labels: {a: 1, b: c}\n  \
         servers: a\n  mode: uefi\n",
    );
    assert_eq!(
        findings,
        [
            "3:19 E `spec.bootMACAddress` must be a string, but is the number 7 | put it in quotes",
            "4:11 E `spec.online` must be a boolean, but is the string \"true\" | remove the quotes: true",
            "5:9 E `spec.port` must be a whole number, but is the string \"80\" | remove the quotes: 80",
            "6:10 E `spec.ratio` must be a number, but is the string \"x\" | write a number",
            "7:15 E `spec.labels.a` must be a string, but is the number 1 | put it in quotes",
            "8:12 E `spec.servers` must be a list, but is the string \"a\" | write it as a list: a line that begins with `- ` for each item",
            "9:9 E `spec.mode` is the string \"uefi\", but must be one of UEFI, legacy | did you mean UEFI?",
        ]
    );
    let spec = host.expect("a host").spec;
    assert_eq!(spec.labels.keys().collect::<Vec<_>>(), ["b"]);
}

#[test]
fn numbers_out_of_range_and_wrong_shapes_are_refused() {
    let (_, findings, _) =
        read_host("kind: H\nspec: {port: 65536, bmc: redfish://a, labels: [a], servers: [1, b, {}]}\n");
    assert_eq!(
        findings,
        [
            "2:14 E `spec.port` must be a number from 0 to 65535, but is the number 65536 | -",
            "2:26 E `spec.bmc` must be a mapping, but is the string \"redfish://a\" | write `key: value` lines, indented below",
            "2:47 E `spec.labels` must be a mapping, but is a list | write a mapping",
            "2:62 E `spec.servers[0]` must be a string, but is the number 1 | put it in quotes",
            "2:68 E `spec.servers[2]` must be a string, but is a mapping | write a string",
        ]
    );
}

#[test]
fn unknown_fields_are_warnings_with_the_name_that_was_meant() {
    let (host, findings, _) = read_host(
        "kind: H\nspec:\n  bootMacAddress: a\n  onlin: true\n  zebra: 1\n  bmc: {address: a, addres: b}\nspce: 1\n",
    );
    assert_eq!(
        findings,
        [
            "3:3 W unknown field `bootMacAddress` in `spec` | write `bootMACAddress`",
            "4:3 W unknown field `onlin` in `spec` | did you mean `online`?",
            "5:3 W unknown field `zebra` in `spec` | remove it, or move it to the level where it belongs",
            "6:21 W unknown field `addres` in `spec.bmc` | did you mean `address`?",
            "7:1 W unknown field `spce` | did you mean `spec`?",
        ]
    );
    assert!(host.is_some());
}

#[test]
fn a_missing_field_is_reported_once_and_takes_its_mapping_along() {
    let (host, findings, _) = read_host("kind: H\nspec:\n  bmc:\n    adress: x\n");
    assert_eq!(
        findings,
        [
            "3:3 E `spec.bmc.address` is missing | add `address:` here",
            "4:5 W unknown field `adress` in `spec.bmc` | did you mean `address`?",
        ]
    );
    assert!(host.expect("a host").spec.bmc.is_none());

    let (host, findings, _) = read_host("kind: H\nspec:\n  bmc: {address: 5}\n  online: true\n");
    assert_eq!(findings, ["3:18 E `spec.bmc.address` must be a string, but is the number 5 | put it in quotes"]);
    assert_eq!(host.expect("a host").spec.online, Some(true));

    let (host, findings, _) = read_host("kind: H\n");
    assert_eq!(findings, ["1:1 E `spec` is missing | add `spec:` here"]);
    assert!(host.is_none());
}

#[test]
fn a_document_that_is_no_mapping_is_refused() {
    let (host, findings, _) = read_host("- a\n");
    assert_eq!(findings, ["1:1 E the document must be a mapping, but is a list | write a mapping"]);
    assert!(host.is_none());
}

#[test]
fn null_is_an_absent_field() {
    let (host, findings, _) = read_host("kind: H\nspec:\n  bmc:\n  labels: ~\n  servers:\n  online: null\n");
    assert_eq!(findings, [""; 0]);
    let spec = host.expect("a host").spec;
    assert!(spec.bmc.is_none() && spec.labels.is_empty() && spec.servers.is_empty() && spec.online.is_none());
}

#[test]
fn more_mistakes_than_rounds_end_without_a_value() {
    let items = "1, ".repeat(MAX_ROUNDS + 1);
    let (host, findings, _) = read_host(&format!("kind: H\nspec: {{servers: [{items}]}}\n"));
    assert_eq!(findings.len(), MAX_ROUNDS);
    assert!(host.is_none());
}

#[test]
fn a_word_that_is_none_of_the_known_ones_names_them() {
    let mut sources = SourceMap::default();
    let file = sources.add("host.yaml", "mode: bios\n");
    let (documents, _) = parse_yaml(file, sources.file(file));
    let mut findings = Vec::new();
    read::<Spec>(&documents[0], &mut findings);
    let found: Vec<String> = findings.iter().map(|found| format!("{} {}", found.code, found.message)).collect();
    assert_eq!(found, ["KLN0013 `mode` is the string \"bios\", but must be one of UEFI, legacy"]);
}
