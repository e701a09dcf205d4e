//! Merging two Ignition configs as Ignition does it: the child wins, field by field.
//!
//! [`merge`] reproduces Ignition's result exactly, its traps included, and reports each trap with the edit that
//! avoids it. Every surviving value keeps the place it was written at, so "which file did this come from" needs no
//! bookkeeping: see [`super::provenance`].
//!
//! Not here: fetching the configs that `ignition.config.merge` and `.replace` name. The references are merged like
//! any other list and [`references`] says what they will change on the machine.
//!
//! What surprises: a child that replaces the `source` of a file inherits the parent's `compression` and hash; `files`,
//! `directories` and `links` share one key space; and there is no way to delete an entry except an HTTP header.

use std::collections::{HashMap, HashSet};

use super::convert::convert;
use super::{Config, SpecVersion};
use crate::diagnostic::Diagnostic;
use crate::document::{Entry, Node, Value};

mod traps;

pub use traps::references;
pub(super) use traps::shorten;

/// What a merge gives.
#[derive(Debug, Clone)]
pub struct Merged {
    /// The child laid over the parent, in the newer spec version of the two.
    pub config: Config,
    /// What will surprise, and what made the result invalid.
    pub diagnostics: Vec<Diagnostic>,
}

/// Lays `child` over `parent` as Ignition does.
///
/// Both are translated to the newer spec version of the two first. The result may be invalid although both inputs are
/// valid (a link and a file below it, say): validate it.
pub fn merge(parent: &Config, child: &Config) -> Merged {
    let version = parent.version.max(child.version).max(SpecVersion::V3_0);
    let (parent, child) = (convert(parent, version), convert(child, version));
    let mut diagnostics = parent.lost;
    diagnostics.extend(child.lost);
    let root = merge_mappings(&parent.config.root, &child.config.root, &mut diagnostics);
    Merged { config: Config { root, version }, diagnostics }
}

/// Lays each config over the ones before it. None when there is none.
pub fn merge_all<'a>(configs: impl IntoIterator<Item = &'a Config>) -> Option<Merged> {
    let mut configs = configs.into_iter();
    let mut merged = Merged { config: configs.next()?.clone(), diagnostics: Vec::new() };
    for child in configs {
        let Merged { config, diagnostics } = merge(&merged.config, child);
        merged.config = config;
        merged.diagnostics.extend(diagnostics);
    }
    Some(merged)
}

/// What makes two items of a list the same entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Identity {
    /// Nothing: the child's items are appended even when equal.
    None,
    /// The item itself, a string.
    Whole,
    /// One of its fields.
    Field(&'static str),
    /// The partition number, or the label when there is no number.
    Partition,
}

/// Every list of the spec that is not keyed by `name` or by its own text: its key, what identifies an item, and the
/// lists beside it that share one space of keys with it.
const LISTS: &[(&str, Identity, &[&str])] = &[
    ("append", Identity::None, &[]),
    ("certificateAuthorities", Identity::Field("source"), &[]),
    ("directories", Identity::Field("path"), PATHS),
    ("disks", Identity::Field("device"), &[]),
    ("files", Identity::Field("path"), PATHS),
    ("filesystems", Identity::Field("device"), &[]),
    ("links", Identity::Field("path"), PATHS),
    ("merge", Identity::Field("source"), &[]),
    ("mountOptions", Identity::None, &[]),
    ("openOptions", Identity::None, &[]),
    ("options", Identity::None, &[]),
    ("partitions", Identity::Partition, &[]),
    ("shouldExist", Identity::Whole, ARGUMENTS),
    ("shouldNotExist", Identity::Whole, ARGUMENTS),
    ("tang", Identity::Field("url"), &[]),
];
const PATHS: &[&str] = &["files", "directories", "links"];
const ARGUMENTS: &[&str] = &["shouldExist", "shouldNotExist"];

/// How the list under `key` is merged.
pub(super) fn list_rule(key: &str) -> (Identity, &'static [&'static str]) {
    match LISTS.iter().find(|(list, ..)| *list == key) {
        Some((_, identity, siblings)) => (*identity, siblings),
        None => (Identity::Field("name"), &[]),
    }
}

/// The text that identifies `item` in its list; an item without it has the empty key, as in Ignition.
pub(super) fn identity_of(item: &Node, identity: Identity) -> String {
    let text = |field: &str| item.get(field).and_then(Node::as_str).unwrap_or_default().to_owned();
    match identity {
        // Lists of plain strings (groups of a user, devices of an array) are keyed by their text.
        _ if item.as_str().is_some() => item.as_str().unwrap_or_default().to_owned(),
        Identity::None | Identity::Whole => String::new(),
        Identity::Field(field) => text(field),
        Identity::Partition => match item.get("number").and_then(Node::as_integer) {
            Some(number) if number != 0 => format!("#{number}"),
            _ => format!("label {}", text("label")),
        },
    }
}

fn merge_mappings(parent: &Node, child: &Node, traps: &mut Vec<Diagnostic>) -> Node {
    traps::inherited(parent, child, traps);
    let mut entries: Vec<Entry> = Vec::new();
    for entry in parent.entries() {
        let key = &*entry.key.value;
        let value = match child.get(key).filter(|value| !value.is_null()) {
            _ if matches!(entry.value.value, Value::Sequence(_)) => merge_lists(key, &entry.value, child, traps),
            Some(theirs @ Node { value: Value::Mapping(_), .. }) => merge_mappings(&entry.value, theirs, traps),
            Some(theirs) => theirs.clone(),
            None => entry.value.clone(),
        };
        entries.push(Entry { key: entry.key.clone(), value });
    }
    for entry in child.entries() {
        if parent.get(&entry.key.value).is_none() {
            entries.push(entry.clone());
        }
    }
    Node { at: child.at, value: Value::Mapping(entries) }
}

/// Merges the list under `key`; `child` is the mapping that may hold it and the lists it shares keys with.
fn merge_lists(key: &str, parent: &Node, child: &Node, traps: &mut Vec<Diagnostic>) -> Node {
    let ours = child.get(key).map(Node::items).unwrap_or_default();
    let at = child.get(key).map_or(parent.at, |list| list.at);
    let (identity, siblings) = list_rule(key);
    if identity == Identity::None {
        let items = parent.items().iter().chain(ours).cloned().collect();
        return Node { at, value: Value::Sequence(items) };
    }
    let elsewhere: HashSet<String> = siblings
        .iter()
        .filter(|sibling| **sibling != key)
        .flat_map(|sibling| child.get(sibling).map(Node::items).unwrap_or_default())
        .map(|item| identity_of(item, identity))
        .collect();
    let by_key: HashMap<String, &Node> = ours.iter().map(|item| (identity_of(item, identity), item)).collect();
    let mut items = Vec::with_capacity(parent.items().len() + ours.len());
    let mut parent_keys = HashSet::new();
    for item in parent.items() {
        let item_key = identity_of(item, identity);
        match by_key.get(&item_key) {
            // A header without a value takes the parent's header away.
            Some(theirs) if key == "httpHeaders" && theirs.get("value").is_none_or(Node::is_null) => {}
            Some(theirs) if theirs.entries().is_empty() => items.push((*theirs).clone()),
            Some(theirs) => items.push(merge_mappings(item, theirs, traps)),
            None if elsewhere.contains(&item_key) => {}
            None => items.push(item.clone()),
        }
        parent_keys.insert(item_key);
    }
    items.extend(ours.iter().filter(|item| !parent_keys.contains(&identity_of(item, identity))).cloned());
    Node { at, value: Value::Sequence(items) }
}

#[cfg(test)]
mod tests;
