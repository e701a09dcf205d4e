//! Which file each entry of a merged config came from, field by field where files mix.
//!
//! Nothing is recorded during a merge: every value keeps the place it was written at, and this reads the places.
//! A value that conversion made up (a default, say) stands where the value that made it necessary stands.

use crate::document::{Node, Value};
use crate::ignition::Config;
use crate::ignition::merge::{Identity, identity_of, list_rule};
use crate::source::{FileId, Location, SourceMap};

/// One entry of a config and where its fields were written.
#[derive(Debug, Clone, PartialEq)]
pub struct Origin {
    /// `storage.files`, `systemd.units`, …
    pub list: String,
    /// What identifies the entry in its list: a path, a name, a device.
    pub entry: String,
    /// Every field of it that has a value, and where that stands. The field that identifies the entry is left out
    /// unless it is the only one.
    pub fields: Vec<(String, Location)>,
}

/// Every entry of every list, in the order of the config.
pub fn origins(config: &Config) -> Vec<Origin> {
    let mut found = Vec::new();
    collect_lists(&config.root, "", &mut found);
    found
}

/// One line per entry: the file it came from, or each field with its file when several files had a hand in it.
pub fn describe(config: &Config, sources: &SourceMap) -> String {
    let place = |at: Location| format!("{}:{}", sources.file(at.file).name, sources.line_column(at).line);
    let mut text = String::new();
    for origin in origins(config) {
        let files: Vec<FileId> = origin.fields.iter().map(|(_, at)| at.file).collect();
        let from = match origin.fields.first() {
            Some((_, first)) if files.iter().all(|file| *file == first.file) => place(*first),
            _ => {
                let parts: Vec<String> =
                    origin.fields.iter().map(|(field, at)| format!("{field} from {}", place(*at))).collect();
                parts.join(", ")
            }
        };
        text.push_str(&format!("{} {}: {from}\n", origin.list, origin.entry));
    }
    text
}

/// Lists are entries of a config wherever they stand outside another entry.
fn collect_lists(node: &Node, path: &str, found: &mut Vec<Origin>) {
    for entry in node.entries() {
        let key = &*entry.key.value;
        let path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        match &entry.value.value {
            Value::Sequence(items) => {
                let (identity, _) = list_rule(key);
                found.extend(items.iter().map(|item| origin(&path, item, identity)));
            }
            Value::Mapping(_) => collect_lists(&entry.value, &path, found),
            _ => {}
        }
    }
}

fn origin(list: &str, item: &Node, identity: Identity) -> Origin {
    let mut fields = Vec::new();
    collect_fields(item, "", &mut fields);
    if let Identity::Field(key) = identity
        && fields.len() > 1
    {
        fields.retain(|(field, _)| field != key);
    }
    Origin { list: list.to_owned(), entry: identity_of(item, identity), fields }
}

fn collect_fields(node: &Node, path: &str, fields: &mut Vec<(String, Location)>) {
    match &node.value {
        Value::Null => {}
        Value::Mapping(entries) => {
            for entry in entries {
                let key = &entry.key.value;
                let path = if path.is_empty() { key.to_string() } else { format!("{path}.{key}") };
                collect_fields(&entry.value, &path, fields);
            }
        }
        Value::Sequence(items) => {
            for (index, item) in items.iter().enumerate() {
                collect_fields(item, &format!("{path}[{index}]"), fields);
            }
        }
        _ => fields.push((path.to_owned(), node.at)),
    }
}
