//! Objects seen through their schema as server-side apply sees them: which fields there are, what changed between two
//! states, one merged into the other, fields taken out.
//!
//! Where a schema says nothing, maps are merged and lists are one value. What is empty on both sides is one value too,
//! so that "empty" and "nothing" stay apart; a list or map of which everything is taken out becomes null, which the
//! schema then judges. All of it follows the real server, case by case, and is compared with it by a test.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::field_set::{Element, FieldSet, Path};
use crate::schema::{Form, ListType, Schema, same};

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

/// `live` with everything `wanted` says merged into it.
pub fn merge(schema: &Schema, live: &Value, wanted: &Value) -> Value {
    merge_at(schema, Some(live), Some(wanted), true).unwrap_or(Value::Null)
}

/// The object without these fields; a whole item or field goes with all that is in it.
pub fn take_out(schema: &Schema, object: &Value, set: &FieldSet) -> Value {
    if set.is_empty() { object.clone() } else { take_out_at(schema, object, &Tree::of(set), true) }
}

/// The set, and every field listed in the schema by name above a member of it.
#[must_use]
pub fn with_named_parents(schema: &Schema, set: &FieldSet) -> FieldSet {
    let mut whole = set.clone();
    for path in &set.0 {
        let mut at = Some(schema);
        for (depth, element) in path.iter().enumerate() {
            let name = element.strip_prefix("f:");
            let above = depth + 1 < path.len();
            if above
                && let (Some(schema), Some(name)) = (at, name)
                && declares(schema, name, depth == 0)
            {
                whole.0.insert(path[..=depth].to_vec());
            }
            at = match (at, name) {
                (Some(schema), Some(name)) => Some(child(schema, name, depth == 0)),
                (Some(schema), None) if element.starts_with("k:") => schema.items(),
                _ => None,
            };
        }
    }
    whole
}

/// How a value is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Scalar,
    List,
    Map,
    /// Null where any of them may be.
    Nothing,
}

fn shape(schema: &Schema, value: &Value) -> Shape {
    match (schema.form(), value) {
        (Form::Map, _) | (Form::Untyped, Value::Object(_)) => Shape::Map,
        (Form::List, _) | (Form::Untyped, Value::Array(_)) => Shape::List,
        (Form::Untyped, Value::Null) => Shape::Nothing,
        (Form::Scalar | Form::Untyped, _) => Shape::Scalar,
    }
}

fn child<'a>(schema: &'a Schema, key: &str, top: bool) -> &'a Schema {
    if top && key == "metadata" { &METADATA } else { schema.property(key).unwrap_or(&ANYTHING) }
}

fn declares(schema: &Schema, key: &str, top: bool) -> bool {
    schema.declares(key) || (top && key == "metadata")
}

/// The element of a list item.
fn element(schema: &Schema, item: &Value) -> Option<String> {
    match schema.list_type() {
        ListType::Atomic => None,
        ListType::Set => (!item.is_object() && !item.is_array() && !item.is_null()).then(|| format!("v:{item}")),
        ListType::Map(keys) => {
            let mut keys: Vec<&String> = keys.iter().collect();
            keys.sort();
            let mut identity = Map::new();
            for key in keys {
                let default = || schema.items()?.property(key)?.default_value().cloned();
                if let Some(value) = item.get(key).cloned().or_else(default) {
                    identity.insert(key.clone(), value);
                }
            }
            (!identity.is_empty()).then(|| format!("k:{}", Value::Object(identity)))
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

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn map(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object).filter(|map| !map.is_empty())
}

/// The element of a field.
fn field(key: &str) -> Element {
    ["f:", key].concat().into()
}

/// The keys of both, each once.
fn keys<'a>(old: Option<&'a Map<String, Value>>, new: Option<&'a Map<String, Value>>) -> Vec<&'a String> {
    let known = |key: &&String| !old.is_some_and(|old| old.contains_key(*key));
    let first = old.into_iter().flat_map(Map::keys);
    first.chain(new.into_iter().flat_map(Map::keys).filter(known)).collect()
}

fn collect(schema: &Schema, value: &Value, path: &mut Path, set: &mut FieldSet) {
    match shape(schema, value) {
        Shape::Scalar => {
            set.0.insert(path.clone());
        }
        Shape::List => match elements(schema, list(Some(value))) {
            None => {
                set.0.insert(path.clone());
            }
            Some(items) => {
                let mut count: HashMap<&str, usize> = HashMap::new();
                items.iter().for_each(|(element, _)| *count.entry(element).or_default() += 1);
                for (element, item) in &items {
                    path.push(element.as_str().into());
                    // Items that cannot be told apart are one.
                    if count.get(element.as_str()) == Some(&1) {
                        collect(schema.items().unwrap_or(&ANYTHING), item, path, set);
                    }
                    set.0.insert(path.clone());
                    path.pop();
                }
            }
        },
        Shape::Map | Shape::Nothing if schema.is_atomic_map() => {
            set.0.insert(path.clone());
        }
        Shape::Map | Shape::Nothing => {
            for (key, below) in value.as_object().into_iter().flatten() {
                let top = path.is_empty();
                path.push(field(key));
                collect(child(schema, key, top), below, path, set);
                let empty = below.is_null() || below.as_object().is_some_and(Map::is_empty);
                if empty || !declares(schema, key, top) {
                    set.0.insert(path.clone());
                }
                path.pop();
            }
        }
    }
}

fn compare_at(schema: &Schema, old: Option<&Value>, new: Option<&Value>, path: &mut Path, comparison: &mut Comparison) {
    // Most of an object stays as it is, and looking for paths in it is what costs.
    if old.is_some() && old == new {
        return;
    }
    let shapes = (old.map(|value| shape(schema, value)), new.map(|value| shape(schema, value)));
    let is_leaf = match shapes {
        (None, None) => return,
        (Some(before), Some(after)) if before != after => {
            // Another kind of thing: gone in the old form, new in the new one.
            compare_as(before, schema, (old, new), path, comparison);
            compare_as(after, schema, (old, new), path, comparison)
        }
        (_, Some(shape)) | (Some(shape), None) => compare_as(shape, schema, (old, new), path, comparison),
    };
    match (old, new) {
        (None, Some(_)) if !is_leaf => comparison.added.0.insert(path.clone()),
        (Some(_), None) if !is_leaf => comparison.removed.0.insert(path.clone()),
        _ => false,
    };
}

/// Compares both sides in one shape; says whether they are one value.
fn compare_as(
    shape: Shape,
    schema: &Schema,
    (old, new): (Option<&Value>, Option<&Value>),
    path: &mut Path,
    comparison: &mut Comparison,
) -> bool {
    match shape {
        Shape::Scalar => {}
        Shape::List => {
            let (before, after) = (list(old), list(new));
            if !(before.is_empty() && after.is_empty())
                && let (Some(before), Some(after)) = (elements(schema, before), elements(schema, after))
            {
                compare_items(schema, &before, &after, path, comparison);
                return false;
            }
        }
        Shape::Map | Shape::Nothing => {
            let (before, after) = (map(old), map(new));
            if !schema.is_atomic_map() && (before.is_some() || after.is_some()) {
                let top = path.is_empty();
                for key in keys(before, after) {
                    path.push(field(key));
                    let (old, new) = (before.and_then(|map| map.get(key)), after.and_then(|map| map.get(key)));
                    compare_at(child(schema, key, top), old, new, path, comparison);
                    path.pop();
                }
                return false;
            }
        }
    }
    match (old, new) {
        (None, Some(_)) => comparison.added.0.insert(path.clone()),
        (Some(_), None) => comparison.removed.0.insert(path.clone()),
        (Some(old), Some(new)) if !same(old, new) => comparison.modified.0.insert(path.clone()),
        _ => false,
    };
    true
}

fn compare_items(
    schema: &Schema,
    before: &[(String, &Value)],
    after: &[(String, &Value)],
    path: &mut Path,
    comparison: &mut Comparison,
) {
    let mut items: BTreeMap<&str, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    before.iter().for_each(|(element, item)| items.entry(element).or_default().0.push(item));
    after.iter().for_each(|(element, item)| items.entry(element).or_default().1.push(item));
    let each = schema.items().unwrap_or(&ANYTHING);
    for (element, (old, new)) in items {
        path.push(element.into());
        match (old.as_slice(), new.as_slice()) {
            ([] | [_], [] | [_]) => {
                compare_at(each, old.first().copied(), new.first().copied(), path, comparison);
            }
            // Items that cannot be told apart are one value.
            ([_, _, ..], [_, _, ..]) => {
                if old.len() != new.len() || !old.iter().zip(&new).all(|(old, new)| same(old, new)) {
                    comparison.modified.0.insert(path.clone());
                }
            }
            ([_, _, ..], _) => {
                compare_at(each, None, new.first().copied(), path, comparison);
                comparison.removed.0.insert(path.clone());
            }
            (_, _) => {
                compare_at(each, old.first().copied(), None, path, comparison);
                comparison.added.0.insert(path.clone());
            }
        }
        path.pop();
    }
}

fn merge_at(schema: &Schema, live: Option<&Value>, wanted: Option<&Value>, top: bool) -> Option<Value> {
    let leaf = || wanted.or(live).cloned();
    match shape(schema, wanted.or(live)?) {
        Shape::Scalar => leaf(),
        Shape::List => {
            let (before, after) = (list(live), list(wanted));
            if before.is_empty() && after.is_empty() {
                return leaf();
            }
            let (Some(before), Some(after)) = (elements(schema, before), elements(schema, after)) else {
                return leaf();
            };
            let items = merge_items(schema, &before, &after);
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Shape::Map | Shape::Nothing => {
            let (before, after) = (map(live), map(wanted));
            if schema.is_atomic_map() || (before.is_none() && after.is_none()) {
                return leaf();
            }
            let mut merged = Map::new();
            for key in keys(before, after) {
                let (old, new) = (before.and_then(|map| map.get(key)), after.and_then(|map| map.get(key)));
                if let Some(value) = merge_at(child(schema, key, top), old, new, false) {
                    merged.insert(key.clone(), value);
                }
            }
            (!merged.is_empty()).then_some(Value::Object(merged))
        }
    }
}

/// The items both have come in the order wanted; those only in `live` stay behind the ones they followed.
fn merge_items(schema: &Schema, live: &[(String, &Value)], wanted: &[(String, &Value)]) -> Vec<Value> {
    let find = |items: &[(String, &Value)], element: &str| {
        let mut found = items.iter().filter(|(known, _)| known == element).map(|(_, item)| (*item).clone());
        let first = found.next();
        // Which of several is meant cannot be said.
        if found.next().is_some() { Some(Value::Null) } else { first }
    };
    let each = schema.items().unwrap_or(&ANYTHING);
    let is_wanted = |element: &str| wanted.iter().any(|(known, _)| known == element);
    let is_live = |element: &str| live.iter().any(|(known, _)| known == element);
    let mut shared = wanted.iter().map(|(element, _)| element).filter(|element| is_live(element));
    let mut next_shared = shared.next();
    let mut taken: Vec<&str> = Vec::new();
    let mut result = Vec::new();
    let (mut at_live, mut at_wanted) = (0, 0);
    while at_live < live.len() || at_wanted < wanted.len() {
        if let (Some((here, _)), Some((there, _))) = (live.get(at_live), wanted.get(at_wanted)) {
            if here == there {
                taken.push(here);
                result.extend(merge_at(each, find(live, here).as_ref(), find(wanted, here).as_ref(), false));
                at_live += 1;
                at_wanted += 1;
                next_shared = shared.next();
                continue;
            }
            if is_wanted(here) && next_shared.is_some_and(|next| next != here) {
                at_live += 1;
                continue;
            }
        }
        if let Some((here, item)) = live.get(at_live) {
            if !is_wanted(here) {
                result.extend(merge_at(each, Some(item), None, false));
                at_live += 1;
                continue;
            }
            if taken.contains(&here.as_str()) {
                at_live += 1;
            }
        }
        if let Some((there, _)) = wanted.get(at_wanted) {
            taken.push(there);
            result.extend(merge_at(each, find(live, there).as_ref(), find(wanted, there).as_ref(), false));
            at_wanted += 1;
            if next_shared == Some(there) {
                next_shared = shared.next();
            }
        }
    }
    result
}

/// A set by its first elements.
#[derive(Default)]
struct Tree<'a> {
    is_member: bool,
    below: BTreeMap<&'a str, Tree<'a>>,
}

impl<'a> Tree<'a> {
    fn of(set: &'a FieldSet) -> Tree<'a> {
        let mut root = Tree::default();
        for path in &set.0 {
            let mut at = &mut root;
            for element in path {
                at = at.below.entry(element).or_default();
            }
            at.is_member = true;
        }
        root
    }
}

fn take_out_at(schema: &Schema, value: &Value, tree: &Tree<'_>, top: bool) -> Value {
    match (shape(schema, value), value) {
        (Shape::Scalar, _) => value.clone(),
        (Shape::List, Value::Array(items)) if !items.is_empty() => {
            let Some(items) = elements(schema, items) else { return Value::Null };
            let each = schema.items().unwrap_or(&ANYTHING);
            let mut kept = Vec::new();
            for (element, item) in items {
                match tree.below.get(element.as_str()) {
                    Some(found) if found.is_member => {}
                    Some(found) => kept.push(take_out_at(each, item, found, false)),
                    None => kept.push(item.clone()),
                }
            }
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        (Shape::Map | Shape::Nothing, Value::Object(fields)) if !fields.is_empty() && !schema.is_atomic_map() => {
            let mut kept = Map::new();
            for (key, below) in fields {
                match tree.below.get(format!("f:{key}").as_str()) {
                    Some(found) if found.is_member => {}
                    Some(found) => {
                        kept.insert(key.clone(), take_out_at(child(schema, key, top), below, found, false));
                    }
                    None => {
                        kept.insert(key.clone(), below.clone());
                    }
                }
            }
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        _ => Value::Null,
    }
}
