//! Merging, judged by the real Ignition: generated pairs of configs are merged by both, and the results must say the same.
//! Where Ignition refuses what two valid configs become together, so must Kiln.
//!
//! Ignition's fetch stage merges a config that is given inline (`data:`) and writes the result to its cache. That needs
//! neither root nor a network. The program is Debian's Ignition 2.14, which knows specs 3.0 to 3.3.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a helper that fails is a failed test"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use kiln_core::diagnostic::Severity;
use kiln_core::ignition::Config;
use kiln_core::ignition::merge::merge;
use kiln_core::ignition::validate::validate;
use kiln_core::source::SourceMap;
use serde_json::{Value, json};

#[path = "support/ignition_configs.rs"]
mod ignition_configs;

use ignition_configs::Random;

const IGNITION: &str = "/usr/lib/dracut/modules.d/30ignition/ignition";
const PAIRS: u64 = 150;

#[test]
fn merged_configs_are_those_of_ignition() {
    if !Path::new(IGNITION).exists() {
        assert!(std::env::var_os("KILN_REQUIRE_ORACLES").is_none(), "{IGNITION} is not installed");
        eprintln!(
            "skipped: merged_configs_are_those_of_ignition: ignition is not installed (apt-get install ignition)"
        );
        return;
    }
    let directory = Scratch::new();
    let mut compared = 0;
    for seed in 1..=PAIRS {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (older, newer) = (random.below(4), random.below(4));
        let parent = ignition_configs::config(&mut random, older);
        let child = ignition_configs::config(&mut random, newer);
        let ours = merge(&read(&parent), &read(&child)).config;
        let theirs = merged_by_ignition(&directory.0, &parent, &child);
        // Kiln also looks into inline contents, so it may refuse more, but never less.
        let refused = validate(&ours).iter().any(|finding| finding.severity == Severity::Error);
        assert!(refused || theirs.is_some(), "pair {seed}\nparent: {parent:#}\nchild: {child:#}");
        let Some(theirs) = theirs else { continue };
        assert_eq!(said(ours.root.to_json()), said(theirs), "pair {seed}\nparent: {parent:#}\nchild: {child:#}");
        compared += 1;
    }
    eprintln!("compared {compared} of {PAIRS} pairs; Ignition refused what the others become");
    assert!(compared >= 60, "only {compared} of {PAIRS} pairs were accepted by Ignition");
}

#[test]
fn merging_an_empty_config_changes_nothing() {
    for seed in 1..=200_u64 {
        let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let config = read(&ignition_configs::config(&mut random, 3));
        let empty = read(&json!({ "ignition": { "version": "3.3.0" } }));
        assert_eq!(merge(&config, &empty).config.root.to_json(), config.root.to_json());
        assert_eq!(said(merge(&empty, &config).config.root.to_json()), said(config.root.to_json()));
    }
}

fn read(value: &Value) -> Config {
    let mut sources = SourceMap::default();
    let file = sources.add("generated.ign", value.to_string());
    let (config, findings) = Config::parse(file, sources.file(file));
    config.unwrap_or_else(|| panic!("{findings:#?}\n{value:#}"))
}

/// The config Ignition renders, or None when it refuses the result of the merge.
fn merged_by_ignition(directory: &Path, parent: &Value, child: &Value) -> Option<Value> {
    let mut pointer = parent.clone();
    let source = format!("data:;base64,{}", BASE64.encode(child.to_string()));
    pointer["ignition"]["config"] = json!({ "merge": [{ "source": source }] });
    let config = directory.join("pointer.ign");
    let cache = directory.join("cache.json");
    std::fs::write(&config, pointer.to_string()).unwrap();
    let _ = std::fs::remove_file(&cache);
    let argument = |name: &str, file: &str| format!("--{name}={}", directory.join(file).display());
    let output = Command::new(IGNITION)
        .env("IGNITION_CONFIG_FILE", &config)
        .env("IGNITION_SYSTEM_CONFIG_DIR", directory)
        .args(["--platform=file", "--stage=fetch", "--fetch-timeout=20s", "--log-to-stdout"])
        .args([argument("root", "root"), argument("config-cache", "cache.json")])
        .args([argument("state-file", "state"), argument("neednet", "neednet")])
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        // Both configs are valid; only what they become together may be refused.
        assert!(log.contains("fetched referenced config"), "{log}\n{pointer:#}");
        return None;
    }
    let mut merged: Value = serde_json::from_str(&std::fs::read_to_string(&cache).unwrap()).unwrap();
    merged["ignition"].as_object_mut().unwrap().remove("config");
    Some(merged)
}

/// The same config without its version and without anything that says nothing: nulls, empty lists and empty objects.
fn said(mut config: Value) -> Value {
    config["ignition"].as_object_mut().unwrap().remove("version");
    without_nothings(config)
}

fn without_nothings(value: Value) -> Value {
    let nothing = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    match value {
        Value::Array(items) => items.into_iter().map(without_nothings).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(key, value)| (key, without_nothings(value)))
            .filter(|(_, value)| !nothing(value))
            .collect(),
        other => other,
    }
}

/// A folder that goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("kiln-ignition-merge-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
