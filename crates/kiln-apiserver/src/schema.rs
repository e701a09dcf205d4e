//! Structural schemas: the OpenAPI subset in which a CustomResourceDefinition describes its objects.
//!
//! A [`Schema`] is parsed once, when the definition is applied, and then [prunes](Schema::prune),
//! [fills in defaults](Schema::default_fields) and [validates](Schema::validate). All three are pure.
//!
//! CEL rules (`x-kubernetes-validations`) are part of it: [compiled](Schema::compile_rules) once,
//! [checked](Schema::check_rules) on every write.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

mod default;
mod prune;
mod rules;
mod validate;

pub use rules::Verdict;
pub use validate::same;

/// How deep a schema may be nested: deeper than any real one, shallow enough for the stack.
const DEEPEST: usize = 100;

/// A regular expression that expands beyond this is refused.
const LARGEST_PATTERN: usize = 1 << 20;

/// One node of a schema.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    kind: Option<Type>,
    nullable: bool,
    int_or_string: bool,
    preserve_unknown: bool,
    embedded: bool,
    properties: BTreeMap<String, Schema>,
    additional: Additional,
    items: Option<Box<Schema>>,
    required: Vec<String>,
    default: Option<Value>,
    format: Option<String>,
    checks: Checks,
    list: ListType,
    atomic_map: bool,
    rules: Vec<rules::Rule>,
    rules_below: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

#[derive(Debug, Clone, Default)]
enum Additional {
    #[default]
    None,
    Any,
    Each(Box<Schema>),
}

/// What a value of the schema can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// An object.
    Map,
    /// A list.
    List,
    /// A single value.
    Scalar,
    /// Anything: the schema does not say.
    Untyped,
}

/// How server-side apply sees a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ListType {
    /// One value, owned as a whole.
    #[default]
    Atomic,
    /// Scalars, each owned by itself.
    Set,
    /// Objects told apart by these keys.
    Map(Vec<String>),
}

/// What a value must satisfy beyond its type.
#[derive(Debug, Clone, Default)]
struct Checks {
    choices: Vec<Value>,
    minimum: Option<f64>,
    maximum: Option<f64>,
    exclusive_minimum: bool,
    exclusive_maximum: bool,
    multiple_of: Option<f64>,
    min_length: Option<u64>,
    max_length: Option<u64>,
    min_items: Option<u64>,
    max_items: Option<u64>,
    min_properties: Option<u64>,
    max_properties: Option<u64>,
    unique_items: bool,
    pattern: Option<Regex>,
    all_of: Vec<Schema>,
    any_of: Vec<Schema>,
    one_of: Vec<Schema>,
    not: Option<Box<Schema>>,
}

impl Schema {
    /// Reads `openAPIV3Schema`; says where and why it cannot be used.
    pub fn parse(value: &Value) -> Result<Schema, String> {
        parse(value, "openAPIV3Schema", 0)
    }

    /// A schema that takes any object.
    pub fn anything() -> Schema {
        Schema { preserve_unknown: true, ..Schema::default() }
    }

    /// The schema of a property, as far as it is known.
    pub fn property(&self, name: &str) -> Option<&Schema> {
        self.properties.get(name).or(match &self.additional {
            Additional::Each(schema) => Some(schema),
            _ => None,
        })
    }

    /// Whether the property is listed by name.
    pub fn declares(&self, name: &str) -> bool {
        self.properties.contains_key(name)
    }

    /// What is filled in when the value is left out.
    pub fn default_value(&self) -> Option<&Value> {
        self.default.as_ref()
    }

    /// What a value can be.
    pub fn form(&self) -> Form {
        match self.kind {
            Some(Type::Object) => Form::Map,
            Some(Type::Array) => Form::List,
            Some(_) => Form::Scalar,
            None if self.int_or_string => Form::Scalar,
            None => Form::Untyped,
        }
    }

    /// The schema of a list's items.
    pub fn items(&self) -> Option<&Schema> {
        self.items.as_deref()
    }

    /// How server-side apply sees this list.
    pub fn list_type(&self) -> &ListType {
        &self.list
    }

    /// Whether server-side apply sees this object as one value.
    pub fn is_atomic_map(&self) -> bool {
        self.atomic_map
    }
}

fn parse(value: &Value, at: &str, depth: usize) -> Result<Schema, String> {
    let Value::Object(map) = value else { return Err(format!("{at}: must be an object")) };
    if depth > DEEPEST {
        return Err(format!("{at}: nested more than {DEEPEST} deep"));
    }
    let child = |value: &Value, name: &str| parse(value, &format!("{at}.{name}"), depth + 1);
    let children = |key: &str| -> Result<Vec<Schema>, String> {
        let list = map.get(key).and_then(Value::as_array).into_iter().flatten();
        list.enumerate().map(|(index, value)| child(value, &format!("{key}[{index}]"))).collect()
    };
    let flag = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or(false);
    let text = |key: &str| map.get(key).and_then(Value::as_str);
    let kind = match text("type") {
        None | Some("") => None,
        Some("object") => Some(Type::Object),
        Some("array") => Some(Type::Array),
        Some("string") => Some(Type::String),
        Some("integer") => Some(Type::Integer),
        Some("number") => Some(Type::Number),
        Some("boolean") => Some(Type::Boolean),
        Some(other) => return Err(format!("{at}.type: {other:?} is not a type")),
    };
    let mut properties = BTreeMap::new();
    for (name, value) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
        properties.insert(name.clone(), child(value, &format!("properties[{name}]"))?);
    }
    let additional = match map.get("additionalProperties") {
        None | Some(Value::Bool(false)) => Additional::None,
        Some(Value::Bool(true)) => Additional::Any,
        Some(value) => Additional::Each(Box::new(child(value, "additionalProperties")?)),
    };
    let list = match text("x-kubernetes-list-type") {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(strings(map, "x-kubernetes-list-map-keys")),
        _ => ListType::Atomic,
    };
    Ok(Schema {
        kind,
        nullable: flag("nullable"),
        int_or_string: flag("x-kubernetes-int-or-string"),
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        embedded: flag("x-kubernetes-embedded-resource"),
        properties,
        additional,
        items: map.get("items").map(|value| child(value, "items")).transpose()?.map(Box::new),
        required: strings(map, "required"),
        default: map.get("default").cloned(),
        format: text("format").map(str::to_owned),
        checks: Checks {
            choices: map.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
            minimum: map.get("minimum").and_then(Value::as_f64),
            maximum: map.get("maximum").and_then(Value::as_f64),
            exclusive_minimum: flag("exclusiveMinimum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            multiple_of: map.get("multipleOf").and_then(Value::as_f64),
            min_length: map.get("minLength").and_then(Value::as_u64),
            max_length: map.get("maxLength").and_then(Value::as_u64),
            min_items: map.get("minItems").and_then(Value::as_u64),
            max_items: map.get("maxItems").and_then(Value::as_u64),
            min_properties: map.get("minProperties").and_then(Value::as_u64),
            max_properties: map.get("maxProperties").and_then(Value::as_u64),
            unique_items: flag("uniqueItems"),
            pattern: text("pattern").map(|pattern| compile(pattern, at)).transpose()?,
            all_of: children("allOf")?,
            any_of: children("anyOf")?,
            one_of: children("oneOf")?,
            not: map.get("not").map(|value| child(value, "not")).transpose()?.map(Box::new),
        },
        list,
        atomic_map: text("x-kubernetes-map-type") == Some("atomic"),
        rules: map
            .get("x-kubernetes-validations")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(rules::Rule::read)
            .collect(),
        rules_below: false,
    })
}

fn compile(pattern: &str, at: &str) -> Result<Regex, String> {
    regex::RegexBuilder::new(pattern)
        .size_limit(LARGEST_PATTERN)
        .build()
        .map_err(|error| format!("{at}.pattern: must be a valid regular expression, but isn't: {error}"))
}

fn strings(map: &Map<String, Value>, key: &str) -> Vec<String> {
    let list = map.get(key).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|value| value.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests;
