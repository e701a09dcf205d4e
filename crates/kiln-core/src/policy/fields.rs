//! An nmstate document as a set of fields, each with a path that says the same in every document.
//!
//! Entries of `interfaces` are told apart by name (and by type where nmstate does so too), routes and rules by everything
//! they say, name servers by their address, bridge mappings by their network. Everything else that is not a mapping is one
//! value: the list of a bond's ports, the addresses of an interface. `running` is what is, not what shall be, and is left out.

use std::fmt;

use serde_json::{Map, Value};

use super::error::malformed;
use super::{MAX_ROUTES, PolicyError};
use crate::nmstate::MAX_INTERFACES;

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Segment {
    /// Into a mapping.
    Key(String),
    /// To the entry of a list that is called so.
    Item(String),
}

/// Where a field is, in any document.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Path(pub(super) Vec<Segment>);

impl Path {
    pub(super) fn keys(keys: &[&str]) -> Path {
        Path(keys.iter().map(|key| Segment::Key((*key).to_owned())).collect())
    }

    pub(super) fn key(&self, key: &str) -> Path {
        self.with(Segment::Key(key.to_owned()))
    }

    pub(super) fn item(&self, item: impl Into<String>) -> Path {
        self.with(Segment::Item(item.into()))
    }

    fn with(&self, segment: Segment) -> Path {
        let mut path = self.0.clone();
        path.push(segment);
        Path(path)
    }

    pub(super) fn starts_with(&self, prefix: &Path) -> bool {
        self.0.starts_with(&prefix.0)
    }

    /// The interface a field is of, as `interfaces[NAME]`.
    pub(super) fn interface(&self) -> Option<Path> {
        match &self.0[..] {
            [Segment::Key(first), item @ Segment::Item(_), ..] if first == "interfaces" => {
                Some(Path::keys(&["interfaces"]).with(item.clone()))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Item(item) => write!(f, "[{item}]")?,
                Segment::Key(key) => {
                    let dot = if index == 0 { "" } else { "." };
                    // `ovs-db` has keys of the user's own.
                    if key.contains(['.', '[']) { write!(f, "{dot}{key:?}")? } else { write!(f, "{dot}{key}")? }
                }
            }
        }
        Ok(())
    }
}

/// A value at its path, in the order of the document.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Field {
    pub(super) path: Path,
    pub(super) value: Value,
}

/// Lists whose entries are fields of their own, by what tells them apart.
fn identity(at: &Path, item: &Value) -> Option<String> {
    let Path(segments) = at;
    let keys: Vec<&str> = segments
        .iter()
        .filter_map(|segment| match segment {
            Segment::Key(key) => Some(key.as_str()),
            Segment::Item(_) => None,
        })
        .collect();
    match keys[..] {
        _ if keys.len() != segments.len() => None,
        ["interfaces"] => interface_identity(item),
        ["routes" | "route-rules", "config"] => Some(described(item)),
        ["dns-resolver", "config", "server" | "search" | "options"] => item.as_str().map(str::to_owned),
        ["ovn", "bridge-mappings"] => item["localnet"].as_str().map(str::to_owned),
        _ => None,
    }
}

/// nmstate tells interfaces apart by name, except these two, which may share the name of another.
pub(super) fn interface_identity(interface: &Value) -> Option<String> {
    let name = interface["name"].as_str()?;
    match interface["type"].as_str() {
        Some(kind @ ("ovs-bridge" | "ipsec")) => Some(format!("{name}/{kind}")),
        _ => Some(name.to_owned()),
    }
}

/// Everything a route says, in one line.
fn described(route: &Value) -> String {
    let mut words: Vec<String> = route
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| match value {
            Value::String(text) => format!("{key}={text}"),
            other => format!("{key}={}", canonical(other)),
        })
        .collect();
    words.sort_unstable();
    words.join(" ")
}

/// The fields of a document whose shape was found right by [`refuse_shapes`].
pub(super) fn fields(document: &Value) -> Vec<Field> {
    let mut found = Vec::new();
    walk(document, &Path::default(), &mut found);
    found
}

fn walk(value: &Value, at: &Path, found: &mut Vec<Field>) {
    match value {
        Value::Object(entries) if !entries.is_empty() || at.0.is_empty() => {
            for (key, value) in entries {
                if key == "running" && at.0.len() == 1 {
                    continue;
                }
                walk(value, &at.key(spelt(at, key)), found);
            }
        }
        Value::Array(items) if !items.is_empty() && identity(at, &items[0]).is_some() => {
            for item in items {
                let Some(name) = identity(at, item) else { continue };
                let path = at.item(name);
                let whole = at.0.len() > 1;
                if whole {
                    found.push(Field { path, value: item.clone() });
                } else {
                    walk(item, &path, found);
                }
            }
        }
        _ => found.push(Field { path: at.clone(), value: value.clone() }),
    }
}

/// nmstate reads `ports` as `port`.
fn spelt<'k>(at: &Path, key: &'k str) -> &'k str {
    let above = at.0.last();
    let controller = |above: &Segment| matches!(above, Segment::Key(above) if matches!(above.as_str(), "bridge" | "link-aggregation" | "vrf"));
    if key == "ports" && above.is_some_and(controller) { "port" } else { key }
}

/// Refuses what cannot be taken apart: lists that are none, interfaces without a name.
pub(super) fn refuse_shapes(document: &Value) -> Result<(), PolicyError> {
    let at = |path: &str| format!("spec.desiredState{path}");
    let document = document.as_object().ok_or_else(|| malformed(at(""), "must be a mapping"))?;
    if let Some(interfaces) = document.get("interfaces").filter(|list| !is_template(list)) {
        let items = interfaces.as_array().ok_or_else(|| malformed(at(".interfaces"), "must be a list"))?;
        if items.len() > MAX_INTERFACES {
            let why = format!("lists {} interfaces; at most {MAX_INTERFACES} are taken", items.len());
            return Err(malformed(at(".interfaces"), why));
        }
        let mut names = std::collections::HashMap::new();
        for (index, item) in items.iter().enumerate().filter(|(_, item)| !is_template(item)) {
            let Some(name) = interface_identity(item).filter(|name| !name.is_empty()) else {
                return Err(malformed(at(&format!(".interfaces[{index}]")), "must be a mapping with a `name`"));
            };
            if let Some(first) = names.insert(name, index) {
                let why = format!("is the same interface as interfaces[{first}]");
                return Err(malformed(at(&format!(".interfaces[{index}]")), why));
            }
        }
    }
    let lists = [("routes", "config", true), ("route-rules", "config", true), ("ovn", "bridge-mappings", true)];
    for (section, key, mappings) in lists {
        let Some(section_value) = document.get(section).filter(|value| !is_template(value) && !value.is_null()) else {
            continue;
        };
        let section_value =
            section_value.as_object().ok_or_else(|| malformed(at(&format!(".{section}")), "must be a mapping"))?;
        list_of(section_value, key, mappings, &at(&format!(".{section}.{key}")))?;
    }
    if let Some(config) = document.get("dns-resolver").and_then(|dns| dns.get("config")).and_then(Value::as_object) {
        for key in ["server", "search", "options"] {
            list_of(config, key, false, &at(&format!(".dns-resolver.config.{key}")))?;
        }
    }
    Ok(())
}

fn list_of(entries: &Map<String, Value>, key: &str, mappings: bool, at: &str) -> Result<(), PolicyError> {
    let Some(list) = entries.get(key).filter(|value| !is_template(value) && !value.is_null()) else { return Ok(()) };
    let items = list.as_array().ok_or_else(|| malformed(at, "must be a list"))?;
    if items.len() > MAX_ROUTES {
        return Err(malformed(at, format!("has {} entries; at most {MAX_ROUTES} are taken", items.len())));
    }
    let right = |item: &Value| is_template(item) || if mappings { item.is_object() } else { item.is_string() };
    match items.iter().position(|item| !right(item)) {
        Some(index) => {
            Err(malformed(format!("{at}[{index}]"), if mappings { "must be a mapping" } else { "must be a text" }))
        }
        None => Ok(()),
    }
}

fn is_template(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.contains("{{"))
}

/// JSON with sorted keys: equal values, equal text.
pub(super) fn canonical(value: &Value) -> String {
    match value {
        Value::Object(entries) => {
            let mut parts: Vec<(&String, &Value)> = entries.iter().collect();
            parts.sort_unstable_by_key(|(key, _)| *key);
            let parts: Vec<String> = parts
                .into_iter()
                .map(|(key, value)| format!("{}:{}", Value::from(key.as_str()), canonical(value)))
                .collect();
            format!("{{{}}}", parts.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}
