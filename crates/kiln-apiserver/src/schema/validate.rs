//! Judging an object by its schema, with every mistake at its place and in the words of the real server.

use std::collections::HashSet;

use base64::Engine;
use serde_json::Value;

use super::{Checks, ListType, Schema, Type};
use crate::error::Cause;
use crate::timestamp::parse_timestamp;

/// Mistakes told about one object.
const MOST_CAUSES: usize = 100;

impl Schema {
    /// Everything that is wrong with the object. What was wrong before and did not change is not told: a schema that
    /// became stricter must not stop people from changing the rest.
    pub fn validate(&self, object: &Value, before: Option<&Value>) -> Vec<Cause> {
        let mut causes = Vec::new();
        self.validate_at(object, before, "", &mut causes);
        causes
    }

    /// The first value whose type is not the one its schema names: where, and what is told. Null is no value of any type.
    pub fn wrong_type(&self, object: &Value) -> Option<Cause> {
        let (path, expected, value) = self.wrong_type_below(object, true)?;
        Some(type_cause(&path, expected, value))
    }

    fn wrong_type_below<'a>(&self, value: &'a Value, top: bool) -> Option<(String, &'static str, &'a Value)> {
        if value.is_null() {
            return None;
        }
        if let Some(expected) = self.type_problem(value) {
            return Some((String::new(), expected, value));
        }
        match value {
            Value::Object(map) => {
                map.iter().filter(|(name, _)| !top || *name != "metadata").find_map(|(name, child)| {
                    let (rest, expected, value) = self.property(name)?.wrong_type_below(child, false)?;
                    let dot = if rest.is_empty() || rest.starts_with('[') { "" } else { "." };
                    Some((format!("{name}{dot}{rest}"), expected, value))
                })
            }
            Value::Array(items) => items.iter().enumerate().find_map(|(index, item)| {
                let (rest, expected, value) = self.items()?.wrong_type_below(item, false)?;
                let dot = if rest.is_empty() || rest.starts_with('[') { "" } else { "." };
                Some((format!("[{index}]{dot}{rest}"), expected, value))
            }),
            _ => None,
        }
    }

    fn validate_at(&self, value: &Value, before: Option<&Value>, path: &str, causes: &mut Vec<Cause>) {
        let told = causes.len();
        self.validate_value(value, before, path, causes);
        if causes.len() > told && before.is_some_and(|before| same(before, value)) {
            causes.truncate(told);
        }
    }

    fn validate_value(&self, value: &Value, before: Option<&Value>, path: &str, causes: &mut Vec<Cause>) {
        let has_type = self.int_or_string || self.kind.is_some();
        if causes.len() >= MOST_CAUSES || (value.is_null() && (self.nullable || !has_type)) {
            return;
        }
        if let Some(expected) = self.type_problem(value) {
            causes.push(type_cause(path, expected, value));
            return;
        }
        self.validate_choices(value, path, causes);
        self.checks.validate(value, path, self.format.as_deref(), causes);
        self.validate_alternatives(value, path, causes);
        match value {
            Value::Object(map) => {
                for name in &self.required {
                    if !map.contains_key(name) {
                        causes.push(Cause::required(join(path, name), ""));
                    }
                }
                for (name, child) in map {
                    if path.is_empty() && name == "metadata" {
                        continue;
                    }
                    if let Some(schema) = self.property(name) {
                        let before = before.and_then(|before| before.get(name));
                        schema.validate_at(child, before, &join(path, name), causes);
                    }
                }
            }
            Value::Array(items) => {
                self.validate_list(items, path, causes);
                if let Some(schema) = self.items() {
                    let old = before.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                    for (index, item) in items.iter().enumerate() {
                        let before = self.list.counterpart(item, old);
                        schema.validate_at(item, before, &format!("{path}[{index}]"), causes);
                    }
                }
            }
            _ => {}
        }
    }

    fn type_problem(&self, value: &Value) -> Option<&'static str> {
        if self.int_or_string {
            return (!value.is_string() && !is_integer(value)).then_some("integer,string");
        }
        let (fits, name) = match self.kind? {
            Type::Object => (value.is_object(), "object"),
            Type::Array => (value.is_array(), "array"),
            Type::String => (value.is_string(), "string"),
            Type::Integer => (is_integer(value), "integer"),
            Type::Number => (value.is_number(), "number"),
            Type::Boolean => (value.is_boolean(), "boolean"),
        };
        (!fits).then_some(name)
    }

    fn validate_choices(&self, value: &Value, path: &str, causes: &mut Vec<Cause>) {
        let choices = &self.checks.choices;
        if choices.is_empty() || choices.iter().any(|choice| same(choice, value)) {
            return;
        }
        let known: Vec<String> = choices.iter().map(Value::to_string).collect();
        causes.push(Cause {
            reason: "FieldValueNotSupported",
            message: format!("Unsupported value: {}: supported values: {}", short_json(value), known.join(", ")),
            field: place(path),
        });
    }

    fn validate_alternatives(&self, value: &Value, path: &str, causes: &mut Vec<Cause>) {
        let Checks { all_of, any_of, one_of, not, .. } = &self.checks;
        for schema in all_of {
            schema.validate_at(value, None, path, causes);
        }
        let mistakes = |schema: &Schema| {
            let mut inner = Vec::new();
            schema.validate_at(value, None, path, &mut inner);
            inner
        };
        // The real server names no field here; what the first alternative lacks is told as a hint.
        let mut refuse = |why: String, hint: Option<&Schema>| {
            causes.push(Cause::invalid("<nil>", &"".into(), &format!("{} {why}", quoted(path))));
            causes.extend(hint.map(mistakes).unwrap_or_default());
        };
        if !any_of.is_empty() && !any_of.iter().any(|schema| mistakes(schema).is_empty()) {
            refuse("must validate at least one schema (anyOf)".into(), any_of.first());
        }
        let fitting = one_of.iter().filter(|schema| mistakes(schema).is_empty()).count();
        if !one_of.is_empty() && fitting == 0 {
            refuse("must validate one and only one schema (oneOf). Found none valid".into(), one_of.first());
        } else if fitting > 1 {
            let found = format!("Found {fitting} valid alternatives");
            refuse(format!("must validate one and only one schema (oneOf). {found}"), None);
        }
        if not.as_ref().is_some_and(|schema| mistakes(schema).is_empty()) {
            refuse("must not validate the schema (not)".into(), None);
        }
    }

    /// Items of sets and maps must differ.
    fn validate_list(&self, items: &[Value], path: &str, causes: &mut Vec<Cause>) {
        let mut seen = HashSet::new();
        for (index, item) in items.iter().enumerate() {
            let identity = match &self.list {
                ListType::Atomic => return,
                ListType::Set => item.to_string(),
                ListType::Map(keys) => {
                    let parts: Vec<String> =
                        keys.iter().map(|key| format!("{key:?}:{}", item.get(key).unwrap_or(&Value::Null))).collect();
                    format!("{{{}}}", parts.join(","))
                }
            };
            if !seen.insert(identity.clone()) {
                causes.push(Cause {
                    reason: "FieldValueDuplicate",
                    message: format!("Duplicate value: {}", shorten(&identity)),
                    field: format!("{path}[{index}]"),
                });
            }
        }
    }
}

impl ListType {
    /// The old item that is the same one: only lists with keys can tell.
    pub(super) fn counterpart<'a>(&self, item: &Value, old: &'a [Value]) -> Option<&'a Value> {
        let ListType::Map(keys) = self else { return None };
        old.iter().find(|old| keys.iter().all(|key| old.get(key) == item.get(key)))
    }
}

impl Checks {
    fn validate(&self, value: &Value, path: &str, format: Option<&str>, causes: &mut Vec<Cause>) {
        let mut beyond = |reason: &'static str, message: String| {
            causes.push(Cause { reason, message, field: place(path) });
        };
        match value {
            Value::String(text) => {
                if let Some(bound) = self.max_length.filter(|bound| text.chars().count() as u64 > *bound) {
                    beyond("FieldValueTooLong", format!("Too long: may not be more than {bound} bytes"));
                }
            }
            Value::Array(_) | Value::Object(_) => {
                let (count, bound) = match value {
                    Value::Array(items) => (items.len() as u64, self.max_items),
                    other => (other.as_object().map_or(0, serde_json::Map::len) as u64, self.max_properties),
                };
                if let Some(bound) = bound.filter(|bound| count > *bound) {
                    let items = if bound == 1 { "item" } else { "items" };
                    beyond("FieldValueTooMany", format!("Too many: {count}: must have at most {bound} {items}"));
                }
            }
            _ => {}
        }
        let refusal = |why: String| Cause::invalid(place(path), value, &format!("{} in body {why}", place(path)));
        match value {
            Value::Number(number) => {
                let number = number.as_f64().unwrap_or(0.0);
                if let Some(minimum) = self.minimum {
                    if self.exclusive_minimum && number <= minimum {
                        causes.push(refusal(format!("should be greater than {minimum}")));
                    } else if number < minimum {
                        causes.push(refusal(format!("should be greater than or equal to {minimum}")));
                    }
                }
                if let Some(maximum) = self.maximum {
                    if self.exclusive_maximum && number >= maximum {
                        causes.push(refusal(format!("should be less than {maximum}")));
                    } else if number > maximum {
                        causes.push(refusal(format!("should be less than or equal to {maximum}")));
                    }
                }
                if let Some(step) = self.multiple_of
                    && step > 0.0
                    && (number / step).fract() != 0.0
                {
                    causes.push(refusal(format!("should be a multiple of {step}")));
                }
                if format == Some("int32") && (number < f64::from(i32::MIN) || number > f64::from(i32::MAX)) {
                    let why = format!("Checked value must be of type integer with format int32 in {}", place(path));
                    causes.push(Cause::invalid("<nil>", &"".into(), &why));
                }
            }
            Value::String(text) => {
                let length = text.chars().count() as u64;
                if self.min_length.is_some_and(|bound| length < bound) {
                    causes.push(refusal(format!("should be at least {} chars long", self.min_length.unwrap_or(0))));
                }
                if let Some(pattern) = self.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
                    causes.push(refusal(format!("should match '{pattern}'")));
                }
                if let Some(format) = format.filter(|format| !fits_format(format, text)) {
                    causes.push(refusal(format!("must be of type {format}: {:?}", shorten(text))));
                    if let Some(cause) = causes.last_mut() {
                        cause.reason = "FieldValueTypeInvalid";
                    }
                }
            }
            Value::Array(items) => {
                let length = items.len() as u64;
                if let Some(bound) = self.min_items.filter(|bound| length < *bound) {
                    let why = format!("{} in body should have at least {bound} items", place(path));
                    causes.push(Cause::invalid(place(path), &length.into(), &why));
                }
                let mut seen = HashSet::new();
                if self.unique_items && !items.iter().all(|item| seen.insert(item.to_string())) {
                    causes.push(refusal("shouldn't contain duplicates".into()));
                }
            }
            Value::Object(map) => {
                let length = map.len() as u64;
                if let Some(bound) = self.min_properties.filter(|bound| length < *bound) {
                    let why = format!("{} in body should have at least {bound} properties", place(path));
                    causes.push(Cause::invalid(place(path), &length.into(), &why));
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }
}

/// Formats the real server checks; all others are documentation.
fn fits_format(format: &str, text: &str) -> bool {
    match format {
        "date-time" => parse_timestamp(text).is_some(),
        "byte" => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "uuid" => uuid::Uuid::parse_str(text).is_ok(),
        "mac" => {
            let parts: Vec<&str> = text.split([':', '-']).collect();
            parts.len() == 6 && parts.iter().all(|part| part.len() == 2 && u8::from_str_radix(part, 16).is_ok())
        }
        _ => true,
    }
}

/// 1.0 is an integer for the real server.
fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

/// Equality in which 1 is 1.0.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

fn type_cause(path: &str, expected: &str, value: &Value) -> Cause {
    let (place, found) = (place(path), type_name(value));
    let message = format!("Invalid value: \"{found}\": {place} in body must be of type {expected}: \"{found}\"");
    Cause { reason: "FieldValueTypeInvalid", message, field: place }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_integer(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn place(path: &str) -> String {
    if path.is_empty() { "<nil>".into() } else { path.into() }
}

fn quoted(path: &str) -> String {
    format!("\"{path}\"")
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn short_json(value: &Value) -> String {
    shorten(&value.to_string()).to_owned()
}

fn shorten(text: &str) -> &str {
    match text.char_indices().nth(200) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}
