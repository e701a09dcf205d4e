//! CustomResourceDefinitions of every kind Kiln knows: its own and the dialects'.
//!
//! Groups, versions, scopes, names and printer columns are those of upstream, so that what people type and see is what
//! they know. The schemas are Kiln's: typed for what is read, so that a wrong type or a missing field is refused as
//! upstream refuses it, and open for the rest, so that an existing folder is accepted unchanged. The data stands in
//! `definitions/*.yaml` in a [short notation](shape).
//!
//! Not here: installing them (`kiln::hub::definitions`).
//! Versions of a kind differ in `apiVersion` only (conversion `None`): the same schema serves all of them.

use kiln_core::document::Node;
use kiln_core::document::yaml::parse_yaml;
use kiln_core::source::SourceMap;
use serde_json::{Map, Value, json};

mod shape;

pub use shape::ShapeError;
use shape::{Maker, Unknown};

/// One definition.
#[derive(Debug, Clone)]
pub struct Definition {
    /// `hosts.kiln.dev`.
    pub name: String,
    /// Whether the kind is Kiln's own.
    pub native: bool,
    /// The whole manifest.
    pub manifest: Value,
}

/// Says on a definition in a store which one it is, so that a newer program replaces it and nothing else.
pub const SHIPPED_ANNOTATION: &str = "kiln.dev/shipped";

const FILES: [(&str, &str); 9] = [
    ("kiln.yaml", include_str!("definitions/kiln.yaml")),
    ("metal3.yaml", include_str!("definitions/metal3.yaml")),
    ("agent_install.yaml", include_str!("definitions/agent_install.yaml")),
    ("hive.yaml", include_str!("definitions/hive.yaml")),
    ("hive_extensions.yaml", include_str!("definitions/hive_extensions.yaml")),
    ("hypershift.yaml", include_str!("definitions/hypershift.yaml")),
    ("machine_config.yaml", include_str!("definitions/machine_config.yaml")),
    ("nmstate.yaml", include_str!("definitions/nmstate.yaml")),
    ("others.yaml", include_str!("definitions/others.yaml")),
];

/// Every definition: Kiln's own first, then the dialects' by group.
pub fn definitions() -> Result<Vec<Definition>, ShapeError> {
    let shared = shape::shared().ok_or_else(|| unread("shared.yaml"))?;
    let mut definitions = Vec::new();
    for (name, text) in FILES {
        let file = parse(name, text).ok_or_else(|| unread(name))?;
        match file.get("groups") {
            Some(groups) => groups.items().iter().try_for_each(|group| read_group(group, &shared, &mut definitions))?,
            None => read_group(&file, &shared, &mut definitions)?,
        }
    }
    Ok(definitions)
}

/// A short name for the contents of a `spec`, whatever the order of its keys: 64 bits of FNV-1a.
pub fn fingerprint(spec: &Value) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in sorted(spec).to_string().bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    format!("{hash:016x}")
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            entries.into_iter().map(|(key, value)| (key.clone(), sorted(value))).collect()
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

fn unread(file: &str) -> ShapeError {
    ShapeError { field: file.to_owned(), why: "is not YAML".to_owned() }
}

/// The one document of a text that is part of the program.
fn parse(name: &str, text: &str) -> Option<Node> {
    let mut sources = SourceMap::default();
    let file = sources.add(name, text);
    let (documents, problems) = parse_yaml(file, sources.file(file));
    documents.into_iter().next().filter(|_| problems.is_empty())
}

fn read_group(group: &Node, shared: &Node, definitions: &mut Vec<Definition>) -> Result<(), ShapeError> {
    let closed = group.get("closed").and_then(Node::as_bool).unwrap_or(false);
    let maker = Maker { shared, unknown: if closed { Unknown::Refused } else { Unknown::Kept } };
    let name = text(group, "group")?;
    let category = group.get("category").and_then(Node::as_str);
    for kind in group.get("kinds").into_iter().flat_map(Node::items) {
        definitions.push(read_kind(name, category, kind, &maker)?);
    }
    Ok(())
}

fn read_kind(group: &str, category: Option<&str>, kind: &Node, maker: &Maker) -> Result<Definition, ShapeError> {
    let (kind_name, plural) = (text(kind, "kind")?, text(kind, "plural")?);
    let mut names = json!({
        "kind": kind_name,
        "listKind": format!("{kind_name}List"),
        "plural": plural,
        "singular": kind_name.to_lowercase(),
    });
    let short_names = strings(kind, "shortNames");
    if !short_names.is_empty() {
        names["shortNames"] = short_names.into();
    }
    if let Some(category) = category {
        names["categories"] = json!([category]);
    }
    let schema = maker.root(text(kind, "about")?, kind.get("spec"), kind.get("status"))?;
    let mut common = Map::new();
    common.insert("schema".into(), json!({"openAPIV3Schema": schema}));
    let subresources = subresources(kind);
    if subresources != json!({}) {
        common.insert("subresources".into(), subresources);
    }
    let columns = columns(kind)?;
    if !columns.is_empty() {
        common.insert("additionalPrinterColumns".into(), columns.into());
    }
    let selectable: Vec<Value> =
        strings(kind, "selectable").into_iter().map(|path| json!({"jsonPath": path})).collect();
    if !selectable.is_empty() {
        common.insert("selectableFields".into(), selectable.into());
    }
    let versions: Vec<Value> = strings(kind, "versions")
        .into_iter()
        .enumerate()
        .map(|(index, version)| {
            // The first version is the one objects are stored in.
            let mut whole = Map::new();
            whole.insert("name".into(), version);
            whole.insert("served".into(), true.into());
            whole.insert("storage".into(), (index == 0).into());
            whole.extend(common.clone());
            Value::Object(whole)
        })
        .collect();
    let spec = json!({
        "group": group,
        "names": names,
        "scope": text(kind, "scope")?,
        "conversion": {"strategy": "None"},
        "versions": versions,
    });
    let name = format!("{plural}.{group}");
    let manifest = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name, "annotations": {SHIPPED_ANNOTATION: fingerprint(&spec)}},
        "spec": spec,
    });
    Ok(Definition { name, native: group == crate::NATIVE_GROUP, manifest })
}

fn subresources(kind: &Node) -> Value {
    let mut subresources = json!({});
    // EgressIP has its status in the object; whatever has no status has nothing to keep apart.
    let apart = !kind.get("statusInObject").and_then(Node::as_bool).unwrap_or(false);
    if apart && kind.get("status").is_some() {
        subresources["status"] = json!({});
    }
    if let Some(scale) = kind.get("scale") {
        subresources["scale"] = scale.to_json();
    }
    subresources
}

/// `Name type path priority`; a name with spaces ends with `;`.
fn columns(kind: &Node) -> Result<Vec<Value>, ShapeError> {
    let column = |written: &Node| {
        let line = written.as_str()?;
        let (name, rest) = line.split_once(';').or_else(|| line.split_once(' '))?;
        let mut parts = rest.split(' ');
        let mut column = json!({"name": name, "type": parts.next()?, "jsonPath": parts.next()?});
        if let Some(priority) = parts.next() {
            column["priority"] = priority.parse::<i64>().ok()?.into();
        }
        Some(column)
    };
    let written = kind.get("columns").into_iter().flat_map(Node::items);
    let wrong = || ShapeError { field: "columns".into(), why: "must be `Name type path priority`".into() };
    written.map(|line| column(line).ok_or_else(wrong)).collect()
}

fn text<'a>(node: &'a Node, key: &str) -> Result<&'a str, ShapeError> {
    let wrong = || ShapeError { field: key.to_owned(), why: "is missing".to_owned() };
    node.get(key).and_then(Node::as_str).ok_or_else(wrong)
}

fn strings(node: &Node, key: &str) -> Vec<Value> {
    node.get(key).into_iter().flat_map(Node::items).filter_map(Node::as_str).map(Value::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::{KINDS, Scope};

    #[test]
    fn every_kind_that_is_known_is_defined_as_it_is_known() {
        let definitions = definitions().unwrap();
        let builtin = |group: &str| group.is_empty() || group.ends_with(".k8s.io");
        let mut wrong = Vec::new();
        for kind in KINDS.iter().filter(|kind| !builtin(kind.group)) {
            let found = definitions
                .iter()
                .map(|definition| &definition.manifest["spec"])
                .find(|spec| spec["group"] == kind.group && spec["names"]["kind"] == kind.name);
            let Some(spec) = found else {
                wrong.push(format!("{} of {} is not defined", kind.name, kind.group));
                continue;
            };
            let versions: Vec<&str> =
                spec["versions"].as_array().unwrap().iter().filter_map(|version| version["name"].as_str()).collect();
            let scope = if kind.scope == Scope::Cluster { "Cluster" } else { "Namespaced" };
            if versions != kind.versions || spec["scope"] != scope {
                wrong.push(format!("{}: {versions:?} {} {:?}", kind.name, spec["scope"], kind.versions));
            }
            for path in kind.required {
                if !is_required(&spec["versions"][0]["schema"]["openAPIV3Schema"], path) {
                    wrong.push(format!("{}: {path} is not required", kind.name));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    fn is_required(schema: &Value, path: &str) -> bool {
        let (parent, field) = path.rsplit_once('.').unwrap();
        let parent = parent.split('.').fold(schema, |schema, step| match step.strip_suffix("[]") {
            Some(list) => &schema["properties"][list]["items"],
            None => &schema["properties"][step],
        });
        parent["required"].as_array().is_some_and(|names| names.contains(&field.into()))
    }

    #[test]
    fn a_fingerprint_does_not_depend_on_the_order_of_keys() {
        let (a, b) = (json!({"a": 1, "b": {"c": [1, 2], "d": 2}}), json!({"b": {"d": 2, "c": [1, 2]}, "a": 1}));
        assert_eq!(fingerprint(&a), fingerprint(&b));
        assert_ne!(fingerprint(&a), fingerprint(&json!({"a": 2})));
    }
}
