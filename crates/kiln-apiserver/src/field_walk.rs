//! Objects seen through their schema as server-side apply sees them: which fields there are, what changed between two
//! states, one laid over the other, fields taken out.
//!
//! Where a schema says nothing, maps are merged and lists are one value, as in the real server.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::field_set::{FieldSet, Path};
use crate::schema::{ListType, Schema, same};

/// What changed.
#[derive(Debug, Clone, Default)]
pub struct Comparison {
    /// New fields.
    pub added: FieldSet,
    /// Fields with another value.
    pub modified: FieldSet,
    /// Fields that are gone.
    pub removed: FieldSet,
}

static ANYTHING: LazyLock<Schema> = LazyLock::new(Schema::anything);

static METADATA: LazyLock<Schema> = LazyLock::new(|| {
    let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let schema = json!({"type": "object", "properties": {
        "labels": texts, "annotations": texts,
        "finalizers": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "ownerReferences": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"],
            "items": {"type": "object", "x-kubernetes-map-type": "atomic"}},
    }});
    Schema::parse(&schema).unwrap_or_default()
});

/// Every field of an object.
pub fn fields_of(schema: &Schema, object: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    collect(schema, object, &mut Vec::new(), &mut set);
    set
}

/// What is different in `new`.
pub fn compare(schema: &Schema, old: &Value, new: &Value) -> Comparison {
    let mut comparison = Comparison::default();
    compare_at(schema, Some(old), Some(new), &mut Vec::new(), &mut comparison);
    comparison
}

/// `live` with everything `wanted` says laid over it.
pub fn lay_over(schema: &Schema, live: &Value, wanted: &Value) -> Value {
    lay_over_at(schema, Some(live), wanted, 0)
}

/// Takes the field at a path out, if it is there.
pub fn take_out(value: &mut Value, path: &[String]) {
    let Some((first, rest)) = path.split_first() else { return };
    match (first.split_once(':'), value) {
        (Some(("f", name)), Value::Object(map)) => {
            if rest.is_empty() {
                map.shift_remove(name);
            } else if let Some(below) = map.get_mut(name) {
                take_out(below, rest);
            }
        }
        (Some((kind, wanted)), Value::Array(items)) => {
            let Ok(wanted) = serde_json::from_str::<Value>(wanted) else { return };
            let found = items.iter().position(|item| match (kind, &wanted) {
                ("k", Value::Object(keys)) => keys.iter().all(|(key, value)| item.get(key) == Some(value)),
                _ => *item == wanted,
            });
            match found {
                Some(at) if rest.is_empty() => drop(items.remove(at)),
                Some(at) => take_out(&mut items[at], rest),
                None => {}
            }
        }
        _ => {}
    }
}

fn child<'a>(schema: &'a Schema, key: &str, top: bool) -> &'a Schema {
    if top && key == "metadata" { &METADATA } else { schema.property(key).unwrap_or(&ANYTHING) }
}

/// The element of a list item, if the list is not one value.
fn element(schema: &Schema, item: &Value) -> Option<String> {
    match schema.list_type() {
        ListType::Atomic => None,
        ListType::Set => Some(format!("v:{item}")),
        ListType::Map(keys) => {
            let mut keys: Vec<&String> = keys.iter().collect();
            keys.sort();
            let mut identity = Map::new();
            for key in keys {
                let value =
                    item.get(key).cloned().or_else(|| schema.items()?.property(key)?.default_value().cloned())?;
                identity.insert(key.clone(), value);
            }
            Some(format!("k:{}", Value::Object(identity)))
        }
    }
}

/// The items with their elements, or nothing when the list is one value (also when an item lacks its keys).
fn elements<'a>(schema: &Schema, items: &'a [Value]) -> Option<Vec<(String, &'a Value)>> {
    if *schema.list_type() == ListType::Atomic {
        return None;
    }
    items.iter().map(|item| Some((element(schema, item)?, item))).collect()
}

/// As [`elements`], where no list is an empty one.
fn optional_elements<'a>(schema: &Schema, value: Option<&'a Value>) -> Option<Vec<(String, &'a Value)>> {
    match value {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(items)) => elements(schema, items),
        Some(_) => None,
    }
}

fn collect(schema: &Schema, value: &Value, path: &mut Path, set: &mut FieldSet) {
    match value {
        Value::Object(map) if !schema.is_atomic_map() => {
            for (key, below) in map {
                let top = path.is_empty();
                path.push(format!("f:{key}"));
                collect(child(schema, key, top), below, path, set);
                let empty = below.is_null() || below.as_object().is_some_and(Map::is_empty);
                let declared = schema.declares(key) || (top && key == "metadata");
                if empty || !declared {
                    set.0.insert(path.clone());
                }
                path.pop();
            }
        }
        Value::Array(items) => match elements(schema, items) {
            None => {
                set.0.insert(path.clone());
            }
            Some(elements) => {
                for (element, item) in elements {
                    path.push(element);
                    collect(schema.items().unwrap_or(&ANYTHING), item, path, set);
                    set.0.insert(path.clone());
                    path.pop();
                }
            }
        },
        _ => {
            set.0.insert(path.clone());
        }
    }
}

fn compare_at(schema: &Schema, old: Option<&Value>, new: Option<&Value>, path: &mut Path, comparison: &mut Comparison) {
    // Most of an object stays as it is, and looking for paths in it is what costs.
    if old.is_some() && old == new {
        return;
    }
    let object = |value: Option<&Value>| value.and_then(Value::as_object).filter(|map| !map.is_empty()).is_some();
    let fits_object = |value: Option<&Value>| value.is_none_or(|value| value.is_object() || value.is_null());
    if !schema.is_atomic_map() && (object(old) || object(new)) && fits_object(old) && fits_object(new) {
        let top = path.is_empty();
        let (before, after) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
        let fresh = |key: &&String| before.is_none_or(|before| !before.contains_key(*key));
        let known = before.into_iter().flat_map(Map::keys);
        for key in known.chain(after.into_iter().flat_map(Map::keys).filter(fresh)) {
            path.push(format!("f:{key}"));
            let (before, after) = (before.and_then(|map| map.get(key)), after.and_then(|map| map.get(key)));
            compare_at(child(schema, key, top), before, after, path, comparison);
            path.pop();
        }
        note_whole(old, new, path, comparison);
        return;
    }
    if let (Some(before), Some(after)) = (optional_elements(schema, old), optional_elements(schema, new))
        && !(before.is_empty() && after.is_empty())
    {
        let items = schema.items().unwrap_or(&ANYTHING);
        let find = |items: &[(String, &'_ Value)], wanted: &str| items.iter().position(|(known, _)| known == wanted);
        let fresh = after.iter().map(|(element, _)| element).filter(|element| find(&before, element).is_none());
        for element in before.iter().map(|(element, _)| element).chain(fresh) {
            path.push(element.clone());
            let old = find(&before, element).map(|at| before[at].1);
            let new = find(&after, element).map(|at| after[at].1);
            compare_at(items, old, new, path, comparison);
            path.pop();
        }
        note_whole(old, new, path, comparison);
        return;
    }
    match (old, new) {
        (Some(old), Some(new)) if !same(old, new) => {
            comparison.modified.0.insert(path.clone());
        }
        _ => note_whole(old, new, path, comparison),
    }
}

fn note_whole(old: Option<&Value>, new: Option<&Value>, path: &Path, comparison: &mut Comparison) {
    match (old, new) {
        (None, Some(_)) => comparison.added.0.insert(path.clone()),
        (Some(_), None) => comparison.removed.0.insert(path.clone()),
        _ => false,
    };
}

fn lay_over_at(schema: &Schema, live: Option<&Value>, wanted: &Value, depth: usize) -> Value {
    match (live, wanted) {
        (Some(Value::Object(live)), Value::Object(wanted)) if !schema.is_atomic_map() => {
            let mut result = live.clone();
            for (key, value) in wanted {
                let below = lay_over_at(child(schema, key, depth == 0), live.get(key), value, depth + 1);
                result.insert(key.clone(), below);
            }
            Value::Object(result)
        }
        (Some(Value::Array(live)), Value::Array(wanted)) => match (elements(schema, live), elements(schema, wanted)) {
            (Some(live), Some(wanted)) => Value::Array(lay_over_items(schema, &live, &wanted, depth)),
            _ => Value::Array(wanted.clone()),
        },
        _ => wanted.clone(),
    }
}

/// Items only in `live` keep their place among the others, which come in the order wanted.
fn lay_over_items(schema: &Schema, live: &[(String, &Value)], wanted: &[(String, &Value)], depth: usize) -> Vec<Value> {
    let items = schema.items().unwrap_or(&ANYTHING);
    let is_wanted = |element: &str| wanted.iter().any(|(known, _)| known == element);
    let mut result = Vec::new();
    let mut rest = wanted.iter();
    let mut emit = |result: &mut Vec<Value>| {
        if let Some((element, item)) = rest.next() {
            let before = live.iter().find(|(known, _)| known == element).map(|(_, item)| *item);
            result.push(lay_over_at(items, before, item, depth + 1));
        }
    };
    for (element, item) in live {
        if is_wanted(element) { emit(&mut result) } else { result.push((*item).clone()) }
    }
    for _ in 0..wanted.len() {
        emit(&mut result);
    }
    result
}
