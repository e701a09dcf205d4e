//! What `{{ node.… }}`, `{{ table.… }}` and `{{ pool.… }}` stand for on a node.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::error::malformed;
use super::pool::AddressPool;
use super::read::{Section, text};
use super::template::{self, Part};
use super::{NetworkPolicy, Node, PolicyError};
use crate::net::MacAddress;

/// How many values one table may have.
const MAX_VALUES: usize = 20_000;

/// `spec.kiln.parameters`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parameters {
    /// A value for each node.
    pub tables: Vec<Table>,
    /// Addresses that are given to nodes.
    pub pools: Vec<AddressPool>,
}

/// A value for each node.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// As in `{{ table.NAME }}`.
    pub name: String,
    /// What finds the value.
    pub by: TableKey,
    /// Text or numbers; MAC addresses are spelt as [`MacAddress`] spells them.
    pub values: BTreeMap<String, Value>,
    /// For nodes that are not listed.
    pub default: Option<Value>,
}

/// What finds the value of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableKey {
    /// The name of the node.
    Node,
    /// The value of this label.
    Label(String),
    /// The MAC address of any of its interfaces.
    Mac,
}

impl Parameters {
    pub(super) fn read(kiln: &Section<'_>) -> Result<Parameters, PolicyError> {
        let none = Map::new();
        let section = Section::of(kiln.get("parameters").unwrap_or(&Value::Null), &kiln.path("parameters"), &none)?;
        section.only(&["pools", "tables"])?;
        let parameters = Parameters {
            tables: section.list("tables", read_table)?.unwrap_or_default(),
            pools: section.list("pools", AddressPool::read)?.unwrap_or_default(),
        };
        let names = |names: Vec<&str>, what: &str| {
            let twice = (1..names.len()).find(|index| names[..*index].contains(&names[*index]));
            twice.map_or(Ok(()), |index| {
                let why = format!("there are two called `{}`", names[index]);
                Err(malformed(format!("{}[{index}].name", section.path(what)), why))
            })
        };
        names(parameters.tables.iter().map(|table| table.name.as_str()).collect(), "tables")?;
        names(parameters.pools.iter().map(|pool| pool.name.as_str()).collect(), "pools")?;
        Ok(parameters)
    }

    fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.name == name)
    }

    fn pool(&self, name: &str) -> Option<(usize, &AddressPool)> {
        self.pools.iter().enumerate().find(|(_, pool)| pool.name == name)
    }
}

/// A name that can stand in a template.
pub(super) fn read_name(section: &Section<'_>) -> Result<String, PolicyError> {
    let name = text(section.get("name").unwrap_or(&Value::Null), &section.path("name"))?;
    let good = !name.is_empty()
        && name.len() <= 63
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    match good {
        true => Ok(name.to_owned()),
        false => Err(malformed(section.path("name"), "must be 1 to 63 letters, digits, `-` and `_`")),
    }
}

fn read_table(value: &Value, at: &str) -> Result<Table, PolicyError> {
    let none = Map::new();
    let table = Section::of(value, at, &none)?;
    table.only(&["by", "default", "label", "name", "values"])?;
    let name = read_name(&table)?;
    let label = table.get("label").map(|label| text(label, &table.path("label"))).transpose()?;
    let by = match (table.get("by").map_or(Some("Node"), Value::as_str), label) {
        (Some("Node"), None) => TableKey::Node,
        (Some("MAC"), None) => TableKey::Mac,
        (Some("Label"), Some(label)) => TableKey::Label(label.to_owned()),
        (Some("Label"), None) => return Err(malformed(table.path("label"), "is missing")),
        (Some("Node" | "MAC"), Some(_)) => return Err(malformed(table.path("label"), "goes with `by: Label` only")),
        _ => return Err(malformed(table.path("by"), "must be one of Node, Label, MAC")),
    };
    let written = table.get("values").and_then(Value::as_object);
    let written = written.ok_or_else(|| malformed(table.path("values"), "must be a mapping"))?;
    if written.len() > MAX_VALUES {
        return Err(malformed(table.path("values"), format!("has more than {MAX_VALUES} values")));
    }
    let mut values = BTreeMap::new();
    for (key, value) in written {
        let at = format!("{}.{key}", table.path("values"));
        let key = match by {
            TableKey::Mac => key.parse::<MacAddress>().map_err(|error| malformed(&at, error.to_string()))?.to_string(),
            TableKey::Node | TableKey::Label(_) => key.clone(),
        };
        if values.insert(key, plain(value, &at)?).is_some() {
            return Err(malformed(at, "is the same MAC address as another"));
        }
    }
    let default = table.get("default").map(|value| plain(value, &table.path("default"))).transpose()?;
    Ok(Table { name, by, values, default })
}

/// Text or a number. A text that is a template itself would be filled in by nobody.
fn plain(value: &Value, at: &str) -> Result<Value, PolicyError> {
    match value {
        Value::Number(_) => Ok(value.clone()),
        Value::String(text) if !text.contains("{{") => Ok(value.clone()),
        Value::String(_) => Err(malformed(at, "must not be a template itself")),
        _ => Err(malformed(at, "must be text or a number")),
    }
}

/// Refuses templates that stand for nothing, whatever the node.
pub(super) fn refuse_unknown(
    desired: &Value,
    captures: &BTreeMap<String, String>,
    parameters: &Parameters,
) -> Result<(), PolicyError> {
    let listed = |names: Vec<&str>, what: &str| match names.is_empty() {
        true => format!("the policy has no {what}s"),
        false => format!("the policy has the {what}s {}", names.join(", ")),
    };
    template::fill(desired, &|part, at| {
        let wrong = |why: String| PolicyError::Template { at: at.to_owned(), why };
        match part {
            Part::Table(name) if parameters.table(name).is_none() => {
                let names = parameters.tables.iter().map(|table| table.name.as_str()).collect();
                Err(wrong(format!("there is no table `{name}`: {}", listed(names, "table"))))
            }
            Part::Pool(name) | Part::Prefix(name) if parameters.pool(name).is_none() => {
                let names = parameters.pools.iter().map(|pool| pool.name.as_str()).collect();
                Err(wrong(format!("there is no pool `{name}`: {}", listed(names, "pool"))))
            }
            Part::Capture(path) if !captures.contains_key(path.split('.').next().unwrap_or_default()) => {
                let names = captures.keys().map(String::as_str).collect();
                let name = path.split('.').next().unwrap_or_default();
                Err(wrong(format!("there is no capture `{name}`: {}", listed(names, "capture"))))
            }
            _ => Ok(None),
        }
    })
    .map(drop)
}

/// The desired state with everything filled in but captures.
pub(super) fn fill(policy: &NetworkPolicy, node: &Node<'_>) -> Result<Value, PolicyError> {
    let parameters = &policy.options.parameters;
    template::fill(&policy.desired, &|part, at| {
        let wrong = |why: String| PolicyError::Template { at: at.to_owned(), why };
        match part {
            Part::NodeName => Ok(Some(node.name.into())),
            Part::Label(key) => match node.labels.get(key) {
                Some(value) => Ok(Some(value.as_str().into())),
                None => Err(wrong(format!("node `{}` has no label `{key}`", node.name))),
            },
            Part::Capture(_) => Ok(None),
            Part::Table(name) => {
                let table = parameters.table(name).ok_or_else(|| wrong(format!("there is no table `{name}`")))?;
                let found = look_up(table, node, &wrong)?.or_else(|| table.default.clone());
                found.map(Some).ok_or_else(|| wrong(format!("table `{name}` has no value for node `{}`", node.name)))
            }
            Part::Pool(name) => {
                let (index, pool) = parameters.pool(name).ok_or_else(|| wrong(format!("there is no pool `{name}`")))?;
                let given = node.allocations.get(&policy.name).and_then(|pools| pools.get(name)?.get(node.name));
                match given.filter(|address| pool.contains(**address)) {
                    Some(address) => Ok(Some(address.to_string().into())),
                    None => Err(PolicyError::Exhausted {
                        at: format!("spec.kiln.parameters.pools[{index}]"),
                        pool: name.to_owned(),
                        nodes: vec![node.name.to_owned()],
                    }),
                }
            }
            Part::Prefix(name) => {
                let (_, pool) = parameters.pool(name).ok_or_else(|| wrong(format!("there is no pool `{name}`")))?;
                let prefix =
                    pool.prefix.ok_or_else(|| wrong(format!("pool `{name}` has neither `cidr` nor `prefix`")))?;
                Ok(Some(prefix.into()))
            }
        }
    })
}

fn look_up(
    table: &Table,
    node: &Node<'_>,
    wrong: &dyn Fn(String) -> PolicyError,
) -> Result<Option<Value>, PolicyError> {
    match &table.by {
        TableKey::Node => Ok(table.values.get(node.name).cloned()),
        TableKey::Label(label) => Ok(node.labels.get(label).and_then(|value| table.values.get(value)).cloned()),
        TableKey::Mac => {
            let current = node.current.ok_or_else(|| PolicyError::WaitsForState(format!("table `{}`", table.name)))?;
            let mut found: Option<(String, &Value)> = None;
            for mac in macs(current) {
                let Some(value) = table.values.get(&mac) else { continue };
                match &found {
                    Some((first, other)) if *other != value => {
                        let why = format!(
                            "table `{}` has different values for {first} and {mac}, both of this node",
                            table.name
                        );
                        return Err(wrong(why));
                    }
                    _ => found = Some((mac, value)),
                }
            }
            Ok(found.map(|(_, value)| value.clone()))
        }
    }
}

/// The MAC addresses a node was built with, or has.
fn macs(current: &Value) -> Vec<String> {
    let interfaces = current["interfaces"].as_array().into_iter().flatten();
    let all = interfaces.flat_map(|interface| [&interface["permanent-mac-address"], &interface["mac-address"]]);
    let mut all: Vec<String> =
        all.filter_map(|mac| Some(mac.as_str()?.parse::<MacAddress>().ok()?.to_string())).collect();
    all.sort_unstable();
    all.dedup();
    all
}
