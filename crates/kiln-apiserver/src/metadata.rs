//! `metadata`: what it may hold, which parts a client may set, and what is wrong with it.

use serde_json::{Map, Value};

use crate::error::Cause;
use crate::names;
use crate::resource::Resource;

/// Every field of ObjectMeta.
const FIELDS: [&str; 15] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// What the server alone decides: a client's value is ignored.
const OWN: [&str; 7] = [
    "uid",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "resourceVersion",
];

/// Bytes all annotations of an object may have together.
const LARGEST_ANNOTATIONS: usize = 256 << 10;

/// Removes unknown fields, nulls and empty collections; says what was unknown.
pub fn prune_metadata(metadata: &mut Map<String, Value>) -> Vec<String> {
    let unknown: Vec<String> = metadata.keys().filter(|key| !FIELDS.contains(&key.as_str())).cloned().collect();
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    metadata.retain(|key, value| FIELDS.contains(&key.as_str()) && !empty(value));
    unknown.into_iter().map(|key| format!("metadata.{key}")).collect()
}

/// Replaces what only the server decides by what it decided before, or removes it.
pub fn keep_own_fields(metadata: &mut Map<String, Value>, before: Option<&Map<String, Value>>) {
    for field in OWN {
        match before.and_then(|before| before.get(field)) {
            Some(value) => metadata.insert(field.into(), value.clone()),
            None => metadata.shift_remove(field),
        };
    }
}

/// Everything that is wrong with the metadata of an object.
pub fn validate_metadata(resource: &Resource, metadata: &Map<String, Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let name = metadata.get("name").and_then(Value::as_str).unwrap_or_default();
    let problem = if resource.is("", "namespaces") { names::label_problem } else { names::subdomain_problem };
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else if let Some(why) = problem(name) {
        causes.push(Cause::invalid("metadata.name", &Value::from(name), why));
    }
    validate_labels(metadata.get("labels"), &mut causes);
    validate_annotations(metadata.get("annotations"), &mut causes);
    validate_finalizers(metadata.get("finalizers"), &mut causes);
    validate_owners(metadata.get("ownerReferences"), &mut causes);
    causes
}

/// An object under deletion may only lose finalizers.
pub fn validate_finalizer_change(before: &Value, after: &Value) -> Option<Cause> {
    if before["metadata"]["deletionTimestamp"].is_null() {
        return None;
    }
    let list = |object: &Value| object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let known = list(before);
    let added: Vec<String> =
        list(after).into_iter().filter(|finalizer| !known.contains(finalizer)).map(|f| f.to_string()).collect();
    (!added.is_empty()).then(|| {
        let why = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            added.join(", ")
        );
        Cause::forbidden("metadata.finalizers", &why)
    })
}

/// What is said about finalizers that are new and could be anybody's.
pub fn warn_about_finalizers(before: Option<&Value>, after: &Value) -> Vec<String> {
    const OWN: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];
    let known = before.and_then(|before| before["metadata"]["finalizers"].as_array());
    let list = after["metadata"]["finalizers"].as_array().into_iter().flatten();
    let fresh = list.filter(|finalizer| !known.is_some_and(|known| known.contains(finalizer)));
    let loose = fresh.filter_map(Value::as_str).filter(|text| !text.contains('/') && !OWN.contains(text));
    loose
        .map(|text| {
            let path = if text.contains('.') { " including a path (/)" } else { "" };
            format!(
                "metadata.finalizers: {text:?}: prefer a domain-qualified finalizer name{path} to avoid accidental \
                 conflicts with other finalizer writers"
            )
        })
        .collect()
}

/// Labels and annotations are text; anything else is not even read.
pub fn text_problem(metadata: &Map<String, Value>) -> Option<String> {
    for field in ["labels", "annotations"] {
        let wrong =
            metadata.get(field).and_then(Value::as_object).into_iter().flatten().find(|(_, value)| !value.is_string());
        let kind = match wrong {
            None | Some((_, Value::Null | Value::String(_))) => continue,
            Some((_, Value::Bool(_))) => "bool",
            Some((_, Value::Number(_))) => "number",
            Some((_, Value::Array(_))) => "array",
            Some((_, Value::Object(_))) => "object",
        };
        return Some(format!("json: cannot unmarshal {kind} into Go struct field ObjectMeta.{field} of type string"));
    }
    None
}

fn validate_labels(labels: Option<&Value>, causes: &mut Vec<Cause>) {
    for (key, value) in texts(labels, "metadata.labels", causes) {
        if let Some(why) = names::label_key_problem(key) {
            causes.push(Cause::invalid("metadata.labels", &Value::from(key), why));
        }
        if let Some(why) = names::label_value_problem(value) {
            causes.push(Cause::invalid("metadata.labels", &Value::from(value), why));
        }
    }
}

fn validate_annotations(annotations: Option<&Value>, causes: &mut Vec<Cause>) {
    let mut size = 0;
    for (key, value) in texts(annotations, "metadata.annotations", causes) {
        size += key.len() + value.len();
        if let Some(why) = names::label_key_problem(&key.to_lowercase()) {
            causes.push(Cause::invalid("metadata.annotations", &Value::from(key), why));
        }
    }
    if size > LARGEST_ANNOTATIONS {
        causes.push(Cause {
            reason: "FieldValueTooLong",
            message: format!("Too long: may not be more than {LARGEST_ANNOTATIONS} bytes"),
            field: "metadata.annotations".into(),
        });
    }
}

fn validate_finalizers(finalizers: Option<&Value>, causes: &mut Vec<Cause>) {
    let Some(finalizers) = finalizers else { return };
    let Some(list) = finalizers.as_array() else {
        causes.push(Cause::invalid("metadata.finalizers", finalizers, "must be a list of strings"));
        return;
    };
    for finalizer in list {
        match finalizer.as_str().map(names::label_key_problem) {
            Some(None) => {}
            Some(Some(why)) => causes.push(Cause::invalid("metadata.finalizers", finalizer, why)),
            None => causes.push(Cause::invalid("metadata.finalizers", finalizer, "must be a string")),
        }
    }
}

fn validate_owners(owners: Option<&Value>, causes: &mut Vec<Cause>) {
    let Some(owners) = owners else { return };
    let Some(list) = owners.as_array() else {
        causes.push(Cause::invalid("metadata.ownerReferences", owners, "must be a list of objects"));
        return;
    };
    for owner in list {
        for (field, why) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                causes.push(Cause::invalid(format!("metadata.ownerReferences.{field}"), &"".into(), why));
            }
        }
    }
}

fn texts<'a>(map: Option<&'a Value>, at: &str, causes: &mut Vec<Cause>) -> Vec<(&'a str, &'a str)> {
    let Some(value) = map else { return Vec::new() };
    let Some(map) = value.as_object() else {
        causes.push(Cause::invalid(at, value, "must be a map of strings"));
        return Vec::new();
    };
    let mut pairs = Vec::new();
    for (key, value) in map {
        match value.as_str() {
            Some(text) => pairs.push((key.as_str(), text)),
            None => causes.push(Cause::invalid(format!("{at}.{key}"), value, "must be a string")),
        }
    }
    pairs
}
