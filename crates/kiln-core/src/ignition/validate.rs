//! What Ignition would refuse in a config it can read, and what it would do otherwise than the writer thinks.
//!
//! The verdict (any error, or none) is that of `ignition-validate` for the config's own spec version; a test compares the
//! two on thousands of configs. Beyond that, things Ignition accepts and then fails on at boot are warnings here. Rules of
//! spec 2 are those of the last Ignition that read it, which the machine-config-operator still applies.
//!
//! Not here: whether a URL answers, a device exists or a hash is right. Those are questions to the world.

mod disks;
mod ignition_section;
mod luks;
mod nodes;
mod passwd;
mod resource;
mod systemd;

use std::collections::HashMap;

use super::{Config, SpecVersion, schema};
use crate::diagnostic::{Code, Diagnostic};
use crate::document::Node;
use crate::source::Location;

pub(crate) use systemd::UNIT_TYPES;

const PATH: Code = Code(410);
const DUPLICATE: Code = Code(418);

/// Every finding about a config, in the order of the text.
pub fn validate(config: &Config) -> Vec<Diagnostic> {
    let root = schema::only_known(&config.root, config.version);
    let mut check = Check { root: &root, version: config.version, findings: Vec::new() };
    ignition_section::check(&mut check);
    disks::check(&mut check);
    luks::check(&mut check);
    nodes::check(&mut check);
    systemd::check(&mut check);
    passwd::check(&mut check);
    let mut findings = check.findings;
    findings.sort_by_key(|finding| finding.at);
    findings
}

/// A validation under way.
struct Check<'a> {
    /// The config as its Ignition sees it, without keys it does not know.
    root: &'a Node,
    version: SpecVersion,
    findings: Vec<Diagnostic>,
}

impl<'a> Check<'a> {
    fn report(&mut self, finding: Diagnostic) {
        self.findings.push(finding);
    }

    /// The items of the list at `path`.
    fn list(&self, path: &[&str]) -> &'a [Node] {
        self.root.path(path).map_or(&[], Node::items)
    }

    fn is_v2(&self) -> bool {
        self.version.is_v2()
    }

    /// Whether the config is written in 3.`minor` or a later 3.x.
    fn since_3(&self, minor: u8) -> bool {
        !self.is_v2() && self.version.minor() >= minor
    }

    /// A path must be there, absolute and without anything a cleaner would remove.
    fn path(&mut self, node: &Node, key: &str, called: &str) {
        let path = text(node, key);
        self.path_text(path, place(node, key), &format!("`{key}` of the {called}"));
    }

    fn path_text(&mut self, path: &str, at: Location, called: &str) {
        let clean = clean_path(path);
        let finding = if path.is_empty() {
            Diagnostic::new(PATH, at, format!("{called} is missing or empty"))
                .help("write an absolute path, such as `/etc/hostname`")
        } else if !path.starts_with('/') {
            Diagnostic::new(PATH, at, format!("{called} is `{path}`, which is not absolute"))
                .help(format!("write `{}`", clean_path(&format!("/{path}"))))
        } else if clean != path && !self.is_v2() {
            Diagnostic::new(PATH, at, format!("{called} is `{path}`, which is not in its simplest form"))
                .help(format!("write `{clean}`"))
        } else {
            return;
        };
        self.report(
            finding.cause("Ignition accepts only absolute paths without `.`, `..`, doubled or trailing slashes"),
        );
    }

    /// No two items of a list may have the same key; the later one is reported.
    fn unique<'n>(&mut self, items: impl IntoIterator<Item = (String, &'n Node)>, called: &str) {
        let mut seen: HashMap<String, Location> = HashMap::new();
        for (key, node) in items {
            let Some(first) = seen.get(&key) else {
                seen.insert(key, node.at);
                continue;
            };
            let finding = Diagnostic::new(DUPLICATE, node.at, format!("{called} `{key}` is defined twice"))
                .cause("within one config Ignition refuses two entries for the same thing; only a merged config may redefine one")
                .help("merge the two entries into one")
                .related(*first, "first defined here");
            self.report(finding);
        }
    }

    /// [`Check::unique`] for objects that are known by one text field.
    fn unique_by(&mut self, items: &[Node], key: &str, called: &str) {
        self.unique(items.iter().map(|item| (text(item, key).to_owned(), item)), called);
    }

    /// [`Check::unique`] for a list of texts.
    fn unique_texts(&mut self, items: &[Node], called: &str) {
        self.unique(items.iter().map(|item| (item.as_str().unwrap_or_default().to_owned(), item)), called);
    }
}

/// A text field; empty if it is not there, as Go has it.
fn text<'n>(node: &'n Node, key: &str) -> &'n str {
    node.get(key).and_then(Node::as_str).unwrap_or_default()
}

fn is_true(node: &Node, key: &str) -> bool {
    node.get(key).and_then(Node::as_bool) == Some(true)
}

fn integer(node: &Node, key: &str) -> Option<i128> {
    node.get(key).and_then(Node::as_integer)
}

fn items<'n>(node: &'n Node, key: &str) -> &'n [Node] {
    node.get(key).map_or(&[], Node::items)
}

/// Where a field stands, or the object when it has no such field.
fn place(node: &Node, key: &str) -> Location {
    node.get(key).map_or(node.at, |value| value.at)
}

/// The simplest form of a slash-separated path, by the rules of Go's `path.Clean`.
fn clean_path(path: &str) -> String {
    let absolute = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if absolute => {}
            part => parts.push(part),
        }
    }
    match (absolute, parts.is_empty()) {
        (true, _) => format!("/{}", parts.join("/")),
        (false, true) => ".".to_owned(),
        (false, false) => parts.join("/"),
    }
}

#[cfg(test)]
mod tests;
