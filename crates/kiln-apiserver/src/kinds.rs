//! What is special about the kinds that come with the server.

use base64::Engine;
use serde_json::{Map, Value, json};

use crate::change::WriteContext;
use crate::definition::{default_definition, established_status, parse_definition};
use crate::error::Cause;
use crate::resource::Resource;
use crate::schema::same;

/// Groups whose resources come with the server and cannot be defined anew.
const RESERVED_GROUPS: [&str; 6] = [
    "apiextensions.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "events.k8s.io",
];

/// Fills in what the kind demands and says what it forbids.
pub fn settle(resource: &Resource, before: Option<&Value>, object: &mut Value, context: &WriteContext) -> Vec<Cause> {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "namespaces") => settle_namespace(before, object),
        ("", "secrets") => settle_secret(before, object),
        ("", "configmaps") => settle_immutable(before, object, &["data", "binaryData"]),
        ("certificates.k8s.io", "certificatesigningrequests") => settle_signing_request(before, object, context),
        ("apiextensions.k8s.io", "customresourcedefinitions") => settle_definition(before, object, context),
        _ => Vec::new(),
    }
}

fn settle_namespace(before: Option<&Value>, object: &mut Value) -> Vec<Cause> {
    let name = object["metadata"]["name"].clone();
    set_in(&mut object["metadata"]["labels"], "kubernetes.io/metadata.name", name);
    match before {
        None => {
            object["spec"] = json!({"finalizers": ["kubernetes"]});
            object["status"] = json!({"phase": "Active"});
        }
        // Its own finalizer is taken away when the namespace is empty, not by clients.
        Some(before) => object["spec"] = before["spec"].clone(),
    }
    Vec::new()
}

/// Sets a field of a part that may be missing. What is not a map is left for validation to refuse.
fn set_in(part: &mut Value, key: &str, value: Value) {
    if part.is_null() {
        *part = Value::Object(Map::new());
    }
    if let Value::Object(map) = part {
        map.insert(key.into(), value);
    }
}

fn settle_secret(before: Option<&Value>, object: &mut Value) -> Vec<Cause> {
    if let Some(Value::Object(plain)) = object.as_object_mut().and_then(|map| map.shift_remove("stringData")) {
        if !object["data"].is_object() {
            object["data"] = Value::Object(Map::new());
        }
        for (key, value) in plain {
            let text = value.as_str().unwrap_or_default();
            object["data"][key] = base64::engine::general_purpose::STANDARD.encode(text).into();
        }
    }
    if object["type"].as_str().unwrap_or_default().is_empty() {
        object["type"] = before.map_or_else(|| "Opaque".into(), |before| before["type"].clone());
    }
    let mut causes = settle_immutable(before, object, &["data"]);
    if before.is_some_and(|before| before["type"] != object["type"]) {
        causes.push(Cause::invalid("type", &object["type"], "field is immutable"));
    }
    causes
}

fn settle_immutable(before: Option<&Value>, object: &Value, fields: &[&str]) -> Vec<Cause> {
    let Some(before) = before.filter(|before| before["immutable"] == true) else { return Vec::new() };
    let changed = fields.iter().chain(&["immutable"]).filter(|field| !same(&before[**field], &object[**field]));
    changed.map(|field| Cause::forbidden(*field, "field is immutable when `immutable` is set")).collect()
}

fn settle_signing_request(before: Option<&Value>, object: &mut Value, context: &WriteContext) -> Vec<Cause> {
    match before {
        None => {
            // Who asks is what a signer trusts: it is never taken from the body.
            set_in(&mut object["spec"], "username", context.user.as_str().into());
            set_in(&mut object["spec"], "groups", context.groups.clone().into());
        }
        Some(before) => object["spec"] = before["spec"].clone(),
    }
    decisions(before.unwrap_or(&Value::Null), object)
}

/// A request is approved or denied, not both, and no decision is taken back.
fn decisions(before: &Value, object: &Value) -> Vec<Cause> {
    let conditions = &object["status"]["conditions"];
    let has = |object: &Value, kind: &str| {
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().any(|condition| condition["type"] == kind)
    };
    let mut causes = Vec::new();
    if has(object, "Approved") && has(object, "Denied") {
        let why = "Approved and Denied conditions are mutually exclusive";
        causes.push(Cause::invalid("status.conditions", conditions, why));
    }
    let removed = ["Approved", "Denied", "Failed"].into_iter().filter(|kind| has(before, kind) && !has(object, kind));
    causes.extend(removed.map(|kind| {
        Cause::forbidden("status.conditions", &format!("updates may not remove a condition of type \"{kind}\""))
    }));
    causes
}

fn settle_definition(before: Option<&Value>, object: &mut Value, context: &WriteContext) -> Vec<Cause> {
    default_definition(object);
    if let Err(causes) = parse_definition(object) {
        return causes;
    }
    if RESERVED_GROUPS.iter().any(|group| object["spec"]["group"] == *group) {
        return vec![Cause::forbidden("spec.group", "this group comes with the server")];
    }
    // What is stored under the old one would be lost from sight.
    for (field, pointer) in [("spec.scope", "/spec/scope"), ("spec.names.kind", "/spec/names/kind")] {
        if before.is_some_and(|before| before.pointer(pointer) != object.pointer(pointer)) {
            let given = object.pointer(pointer).unwrap_or(&Value::Null);
            return vec![Cause::invalid(field, given, "field is immutable")];
        }
    }
    let status = established_status(object, &context.now);
    object["status"] = status;
    Vec::new()
}
