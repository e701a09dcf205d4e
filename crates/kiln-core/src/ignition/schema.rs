//! Every field of every Ignition spec: its name, its type and the spec it appeared in.
//!
//! One table per major version, read by the type check, by unknown-key and key-case warnings, by conversion and by
//! merging. A field is known to a spec when its `since` is not above the spec's minor version; no field of a major
//! version was ever removed by a later minor one.
//!
//! Go, in which Ignition is written, takes `null` for "not set" everywhere; so the table has no notion of "nullable".

mod v2;
mod v3;

use super::SpecVersion;
use crate::document::{Entry, Node, Value};

/// The fields of one object.
#[derive(Debug)]
pub struct Object {
    /// What messages call it: `file`, `partition`.
    pub name: &'static str,
    /// Its fields.
    pub fields: &'static [Field],
}

/// One field of an [`Object`].
#[derive(Debug)]
pub struct Field {
    /// The key, in the case it must be written in.
    pub name: &'static str,
    /// What it holds.
    pub holds: Type,
    /// The minor version of the spec that brought it.
    pub since: u8,
    /// Whether the typed form has no "unset" for it: Go reads a missing one as its zero value.
    pub zero_if_missing: bool,
}

/// What a field holds.
#[derive(Debug, Clone, Copy)]
pub enum Type {
    /// Text.
    String,
    /// A whole number that fits 64 bits with a sign.
    Integer,
    /// `true` or `false`.
    Boolean,
    /// A list of texts.
    Strings,
    /// An object.
    Object(&'static Object),
    /// A list of objects.
    Objects(&'static Object),
}

/// The root object of the spec's major version. Fields newer than `version` are in it: compare their `since`.
pub fn root(version: SpecVersion) -> &'static Object {
    if version.is_v2() { &v2::CONFIG } else { &v3::CONFIG }
}

/// The config as an Ignition of its spec sees it: without keys it does not know.
pub fn only_known(config: &Node, version: SpecVersion) -> Node {
    fn known(node: &Node, object: &'static Object, version: SpecVersion) -> Node {
        let Value::Mapping(entries) = &node.value else { return node.clone() };
        let entries = entries.iter().filter_map(|entry| {
            let field = object.field(&entry.key.value).filter(|field| field.since <= version.minor())?;
            let value = match (field.holds, &entry.value.value) {
                (Type::Object(inner), _) => known(&entry.value, inner, version),
                (Type::Objects(inner), Value::Sequence(items)) => {
                    let items = items.iter().map(|item| known(item, inner, version)).collect();
                    Node { at: entry.value.at, value: Value::Sequence(items) }
                }
                _ => entry.value.clone(),
            };
            Some(Entry { key: entry.key.clone(), value })
        });
        Node { at: node.at, value: Value::Mapping(entries.collect()) }
    }
    known(config, root(version), version)
}

impl Object {
    /// The field with this exact name.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// The field Go would decode this key into: letter case does not count.
    pub fn field_any_case(&self, key: &str) -> Option<&'static Field> {
        self.field(key).or_else(|| {
            let key = fold_case(key);
            self.fields.iter().find(|field| fold_case(field.name) == key)
        })
    }
}

impl Type {
    /// How a message calls a value of this type.
    pub fn describe(self) -> &'static str {
        match self {
            Type::String => "a string",
            Type::Integer => "a whole number",
            Type::Boolean => "true or false",
            Type::Strings => "a list of strings",
            Type::Object(_) => "an object",
            Type::Objects(_) => "a list of objects",
        }
    }
}

/// Folds letter case as Go's JSON reader does: two non-ASCII letters fold to ASCII ones.
fn fold_case(key: &str) -> String {
    key.chars()
        .map(|letter| match letter {
            '\u{17f}' => 's',
            '\u{212a}' => 'k',
            other => other.to_ascii_lowercase(),
        })
        .collect()
}

// The rows of the tables read as `text("path", 0)`: what it holds, its name, the minor version that brought it.

const fn row(name: &'static str, holds: Type, since: u8) -> Field {
    Field { name, holds, since, zero_if_missing: false }
}
const fn text(name: &'static str, since: u8) -> Field {
    row(name, Type::String, since)
}
const fn number(name: &'static str, since: u8) -> Field {
    row(name, Type::Integer, since)
}
const fn truth(name: &'static str, since: u8) -> Field {
    row(name, Type::Boolean, since)
}
const fn texts(name: &'static str, since: u8) -> Field {
    row(name, Type::Strings, since)
}
const fn object(name: &'static str, since: u8, of: &'static Object) -> Field {
    row(name, Type::Object(of), since)
}
const fn objects(name: &'static str, since: u8, of: &'static Object) -> Field {
    row(name, Type::Objects(of), since)
}
const fn zero(field: Field) -> Field {
    Field { zero_if_missing: true, ..field }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ignition::Config;
    use crate::source::SourceMap;

    #[test]
    fn letter_case_does_not_hide_a_field_from_go() {
        let root = root(SpecVersion::V3_2);
        assert_eq!(root.field("Storage").map(|f| f.name), None);
        assert_eq!(root.field_any_case("STORAGE").map(|f| f.name), Some("storage"));
        assert_eq!(root.field_any_case("\u{17f}torage").map(|f| f.name), Some("storage"));
        assert_eq!(root.field_any_case("storag").map(|f| f.name), None);
    }

    /// A value for every field of an object, however new.
    fn full(object: &Object) -> serde_json::Value {
        let value = |holds| match holds {
            Type::String => "x".into(),
            Type::Integer => 1.into(),
            Type::Boolean => true.into(),
            Type::Strings => serde_json::json!(["x"]),
            Type::Object(inner) => full(inner),
            Type::Objects(inner) => serde_json::json!([full(inner)]),
        };
        object.fields.iter().map(|field| (field.name.to_owned(), value(field.holds))).collect()
    }

    fn keys(value: &serde_json::Value, path: &str, found: &mut Vec<String>) {
        for (key, inner) in value.as_object().into_iter().flatten() {
            found.push(format!("{path}.{key}"));
            keys(inner, &format!("{path}.{key}"), found);
        }
        for inner in value.as_array().into_iter().flatten() {
            keys(inner, &format!("{path}.0"), found);
        }
    }

    /// The `ignition-config` crate is generated from the official schemas, so each version must know the same fields.
    #[test]
    fn each_version_knows_the_fields_the_official_schema_has() {
        for version in SpecVersion::all().filter(|version| !version.is_v2()) {
            let mut written = full(root(version));
            written["ignition"]["version"] = version.to_string().into();
            let (typed, unused) = ignition_config::Config::parse_str(&written.to_string()).unwrap();
            let mut unused: Vec<String> =
                unused.iter().map(|key| key.to_string().replace("unused key: ", "")).collect();

            let mut sources = SourceMap::default();
            let file = sources.add("full.ign", written.to_string());
            let (config, findings) = Config::parse(file, sources.file(file));
            let config = config.unwrap();
            let mut newer: Vec<String> = findings
                .iter()
                .map(|finding| format!("$.{}", config.root.path_of(finding.at.unwrap()).unwrap().replace("[0]", ".0")))
                .collect();
            unused.sort();
            newer.sort();
            assert_eq!(newer, unused, "{version}");

            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            keys(&written, "$", &mut ours);
            keys(&serde_json::to_value(&typed).unwrap(), "$", &mut theirs);
            theirs.retain(|key| !ours.contains(key));
            assert_eq!(theirs, [""; 0], "{version} has fields the table lacks");
        }
    }
}
