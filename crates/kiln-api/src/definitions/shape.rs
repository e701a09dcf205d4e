//! Short notation for schemas: what stands in the `.yaml` files beside this one, made into OpenAPI.
//!
//! A field is `name: type; description`. Behind the name, `[]` makes a list (`[2]` of at most two items), `!` makes it
//! required. Types: `string`, `boolean`, `integer`, `int32`, `int64`, `date-time`, `object` (anything inside),
//! `int-or-string`, `[string]` a list, `{string}` a map; `string(a|b)` one of these words, `string(1..63)` a length,
//! `integer(0..)` a range, `string/…/` a pattern, `string=x` a default, `object?` may be null, `$name` one of [`SHARED`].
//! A mapping is an object. Keys that begin with `_` are about the object itself: `_` description, `_open` and `_rules`
//! (CEL), `_type` for a scalar with rules, `_min` and `_key` for lists.
//!
//! Objects of other people's kinds are open: they keep what is not listed, because upstream adds fields with every release.
//! Objects of Kiln's kinds are closed, so that a slip is found.

use kiln_core::document::{Node, Value as Written};
use serde_json::{Map, Value, json};

/// Why a notation cannot be read. Seen only by who edits the `.yaml` files: a test reads them all.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct ShapeError {
    /// The path of the field.
    pub field: String,
    /// What is wrong.
    pub why: String,
}

/// What objects do with fields that are not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unknown {
    Kept,
    Refused,
}

/// Shapes that several kinds use, by name.
const SHARED: &str = include_str!("shared.yaml");

pub(super) fn shared() -> Option<Node> {
    super::parse("shared.yaml", SHARED)
}

/// Makes schemas, with the shared shapes at hand.
pub(super) struct Maker<'a> {
    pub(super) shared: &'a Node,
    pub(super) unknown: Unknown,
}

/// A key of the notation: `config[2]!`.
struct Key<'a> {
    name: &'a str,
    /// `Some(None)` is a list without a bound.
    list: Option<Option<u64>>,
    required: bool,
}

impl<'a> Key<'a> {
    fn parse(text: &'a str) -> Key<'a> {
        let (text, required) = text.strip_suffix('!').map_or((text, false), |text| (text, true));
        match text.strip_suffix(']').and_then(|text| text.split_once('[')) {
            Some((name, bound)) => Key { name, list: Some(bound.parse().ok()), required },
            None => Key { name: text, list: None, required },
        }
    }
}

impl Maker<'_> {
    /// The schema of a whole object of a kind.
    pub(super) fn root(&self, about: &str, spec: Option<&Node>, status: Option<&Node>) -> Result<Value, ShapeError> {
        let mut properties = json!({
            "apiVersion": {"type": "string", "description": "Version of the kind, as in group/version."},
            "kind": {"type": "string", "description": "Name of the kind."},
            "metadata": {"type": "object"},
        });
        for (name, node) in [("spec", spec), ("status", status)] {
            if let Some(node) = node {
                properties[name] = self.schema(node, name)?;
            }
        }
        let mut schema = json!({"type": "object", "description": about, "properties": properties});
        if self.unknown == Unknown::Kept {
            schema["x-kubernetes-preserve-unknown-fields"] = true.into();
        }
        Ok(schema)
    }

    fn schema(&self, node: &Node, at: &str) -> Result<Value, ShapeError> {
        let wrong = |why: &str| ShapeError { field: at.to_owned(), why: why.to_owned() };
        match &node.value {
            Written::String(text) => self.scalar(text, at),
            Written::Mapping(_) => match node.get("_type").and_then(Node::as_str) {
                Some(text) => {
                    let mut schema = self.scalar(text, at)?;
                    add_rules(node, &mut schema);
                    Ok(schema)
                }
                None => self.object(node, at),
            },
            _ => Err(wrong("must be a type or a mapping")),
        }
    }

    fn object(&self, node: &Node, at: &str) -> Result<Value, ShapeError> {
        let mut schema = Map::new();
        schema.insert("type".into(), "object".into());
        if let Some(about) = node.get("_").and_then(Node::as_str) {
            schema.insert("description".into(), about.into());
        }
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for entry in node.entries().iter().filter(|entry| !entry.key.value.starts_with('_')) {
            let key = Key::parse(&entry.key.value);
            let place = format!("{at}.{}", key.name);
            let value = match key.list {
                None => self.schema(&entry.value, &place)?,
                Some(bound) => self.list(&entry.value, bound, &place)?,
            };
            properties.insert(key.name.to_owned(), value);
            if key.required {
                required.push(Value::from(key.name));
            }
        }
        if !required.is_empty() {
            schema.insert("required".into(), required.into());
        }
        if !properties.is_empty() {
            schema.insert("properties".into(), properties.into());
        }
        let open = node.get("_open").and_then(Node::as_bool).unwrap_or(self.unknown == Unknown::Kept);
        if open {
            schema.insert("x-kubernetes-preserve-unknown-fields".into(), true.into());
        }
        let mut schema = Value::Object(schema);
        add_rules(node, &mut schema);
        Ok(schema)
    }

    fn list(&self, node: &Node, bound: Option<u64>, at: &str) -> Result<Value, ShapeError> {
        let mut items = self.schema(node, at)?;
        let mut list = json!({"type": "array"});
        // What is said about the items is said about the list: people ask for the field.
        if let Some(about) = items.as_object_mut().and_then(|items| items.shift_remove("description")) {
            list["description"] = about;
        }
        if let Some(least) = node.get("_min").and_then(Node::as_integer) {
            list["minItems"] = json!(u64::try_from(least).unwrap_or_default());
        }
        if let Some(most) = bound {
            list["maxItems"] = most.into();
        }
        if let Some(key) = node.get("_key").and_then(Node::as_str) {
            list["x-kubernetes-list-type"] = "map".into();
            list["x-kubernetes-list-map-keys"] = json!([key]);
        }
        list["items"] = items;
        Ok(list)
    }

    fn scalar(&self, text: &str, at: &str) -> Result<Value, ShapeError> {
        let (notation, about) = split_description(text);
        let mut schema = self.notation(notation, at)?;
        if let Some(about) = about {
            schema["description"] = about.into();
        }
        Ok(schema)
    }

    fn notation(&self, text: &str, at: &str) -> Result<Value, ShapeError> {
        let wrong = |why: String| ShapeError { field: at.to_owned(), why };
        if let Some(name) = text.strip_prefix('$') {
            let shared = self.shared.get(name).ok_or_else(|| wrong(format!("there is no shared shape `{name}`")))?;
            return match shared.get("_list") {
                Some(items) => self.list(items, None, at),
                None => self.schema(shared, at),
            };
        }
        if let Some(text) = text.strip_suffix('?') {
            let mut schema = self.notation(text, at)?;
            schema["nullable"] = true.into();
            return Ok(schema);
        }
        if let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            return Ok(json!({"type": "array", "items": self.notation(inner, at)?}));
        }
        if let Some(inner) = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
            return Ok(json!({"type": "object", "additionalProperties": self.notation(inner, at)?}));
        }
        let end = text.find(['(', '/', '=']).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        let mut schema = match name {
            "string" | "boolean" | "integer" => json!({"type": name}),
            "int32" | "int64" => json!({"type": "integer", "format": name}),
            "date-time" => json!({"type": "string", "format": name}),
            "object" => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
            "int-or-string" => {
                json!({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true})
            }
            other => return Err(wrong(format!("`{other}` is not a type"))),
        };
        if let Some(pattern) = rest.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) {
            schema["pattern"] = pattern.into();
        } else if let Some(default) = rest.strip_prefix('=') {
            schema["default"] = default.into();
        } else if let Some(inner) = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
            restrict(&mut schema, inner).map_err(wrong)?;
        } else if !rest.is_empty() {
            return Err(wrong(format!("`{rest}` is not understood")));
        }
        Ok(schema)
    }
}

/// `a|b` or `1..63`.
fn restrict(schema: &mut Value, inner: &str) -> Result<(), String> {
    let Some((least, most)) = inner.split_once("..") else {
        schema["enum"] = inner.split('|').collect();
        return Ok(());
    };
    let names = if schema["type"] == "string" { ["minLength", "maxLength"] } else { ["minimum", "maximum"] };
    for (name, bound) in names.into_iter().zip([least, most]).filter(|(_, bound)| !bound.is_empty()) {
        schema[name] = bound.parse::<i64>().map_err(|_| format!("`{bound}` is not a number"))?.into();
    }
    Ok(())
}

/// A description begins behind the first `; `; patterns have none.
fn split_description(text: &str) -> (&str, Option<&str>) {
    text.split_once("; ").map_or((text, None), |(notation, about)| (notation, Some(about)))
}

fn add_rules(node: &Node, schema: &mut Value) {
    let rules: Vec<Value> = node
        .get("_rules")
        .into_iter()
        .flat_map(Node::items)
        .filter_map(|rule| match rule.items() {
            [rule, message] => Some(json!({"rule": rule.as_str()?, "message": message.as_str()?})),
            _ => None,
        })
        .collect();
    if !rules.is_empty() {
        schema["x-kubernetes-validations"] = rules.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(yaml: &str, unknown: Unknown) -> Result<Value, ShapeError> {
        let shared = shared().unwrap();
        let node = super::super::parse("test", yaml).unwrap();
        Maker { shared: &shared, unknown }.schema(&node, "spec")
    }

    #[test]
    fn notation_becomes_openapi() {
        for (yaml, expected) in [
            ("string; A text.", r#"{"type":"string","description":"A text."}"#),
            ("string(a|b)", r#"{"type":"string","enum":["a","b"]}"#),
            ("string(1..63)", r#"{"type":"string","minLength":1,"maxLength":63}"#),
            ("integer(0..)", r#"{"type":"integer","minimum":0}"#),
            ("string=x", r#"{"type":"string","default":"x"}"#),
            ("string/^a+$/", r#"{"type":"string","pattern":"^a+$"}"#),
            ("'[string]?'", r#"{"type":"array","items":{"type":"string"},"nullable":true}"#),
            ("'{string}'", r#"{"type":"object","additionalProperties":{"type":"string"}}"#),
            ("{a!: string}", r#"{"type":"object","required":["a"],"properties":{"a":{"type":"string"}}}"#),
            (
                "{'l[2]': {_: Some., _key: id, id!: int32}}",
                r#"{"type":"object","properties":{"l":{"type":"array","description":"Some.","maxItems":2,"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["id"],"items":{"type":"object","required":["id"],"properties":{"id":{"type":"integer","format":"int32"}}}}}}"#,
            ),
            (
                "{_type: string, _rules: [[self == oldSelf, stays]]}",
                r#"{"type":"string","x-kubernetes-validations":[{"rule":"self == oldSelf","message":"stays"}]}"#,
            ),
        ] {
            assert_eq!(made(yaml, Unknown::Refused).unwrap().to_string(), expected, "{yaml}");
        }
        let open = made("{a: string}", Unknown::Kept).unwrap();
        assert_eq!(open["x-kubernetes-preserve-unknown-fields"], true);
    }

    #[test]
    fn a_slip_in_the_notation_is_told_with_its_place() {
        for (yaml, expected) in [
            ("{a: strin}", "spec.a: `strin` is not a type"),
            ("{a: $nobody}", "spec.a: there is no shared shape `nobody`"),
            ("{a: string(1..x)}", "spec.a: `x` is not a number"),
            ("{a: 3}", "spec.a: must be a type or a mapping"),
        ] {
            assert_eq!(made(yaml, Unknown::Kept).unwrap_err().to_string(), expected);
        }
    }
}
