//! What a create or an update makes of an object. Pure: time, identity and randomness come in as arguments.
//!
//! The order is that of the real server: check type and name, keep what only the server decides, prune, default,
//! settle what is special about the kind, validate.

use serde_json::{Map, Value};

use crate::error::{ApiError, Cause, Named};
use crate::kinds;
use crate::managed_fields;
use crate::metadata::{
    keep_own_fields, prune_metadata, text_problem, validate_finalizer_change, validate_metadata, warn_about_finalizers,
};
use crate::resource::Resource;
use crate::schema::same;

/// What to do about unknown fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    /// Drop them.
    Ignore,
    /// Drop them and say so.
    #[default]
    Warn,
    /// Refuse.
    Strict,
}

/// Which part of an object a request writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All but the status, if the status is a subresource.
    Main,
    /// The status alone.
    Status,
    /// The number of replicas, which was put into its place before; treated as the main part.
    Scale,
    /// The conditions of a certificate request, by whoever approves or denies it.
    Approval,
}

/// Who writes, when, and how strictly it is judged.
#[derive(Debug, Clone)]
pub struct WriteContext {
    /// Now, as the API writes it.
    pub now: String,
    /// What to do about unknown fields.
    pub validation: FieldValidation,
    /// The field manager.
    pub manager: String,
    /// Who asked.
    pub user: String,
    /// Their groups.
    pub groups: Vec<String>,
    /// Whether a new object comes from an apply, which brings `managedFields` of its own.
    pub applied: bool,
}

/// An object as it should be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// The object.
    pub object: Value,
    /// What the client should know.
    pub warnings: Vec<String>,
}

/// Where a new object goes, and what makes it unique.
#[derive(Debug, Clone, Copy)]
pub struct NewPlace<'a> {
    /// From the path; empty for cluster-wide resources.
    pub namespace: &'a str,
    /// A new uid.
    pub uid: &'a str,
    /// Random letters for `generateName`.
    pub suffix: &'a str,
}

/// Mistakes after which rules would only repeat that the object does not have its form.
const HIDES_RULES: [&str; 5] =
    ["FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid"];

/// A new object.
pub fn plan_create(
    resource: &Resource,
    body: Value,
    place: NewPlace<'_>,
    context: &WriteContext,
) -> Result<Planned, ApiError> {
    let mut object = checked_type(resource, body)?;
    if !context.applied {
        resource.schema.drop_nulls(&mut object);
    }
    let metadata = metadata_of(&mut object)?;
    check_texts(resource, metadata)?;
    let mut unknown = prune_metadata(metadata);
    keep_own_fields(metadata, None);
    if let (None, Some(prefix)) = (text(metadata, "name"), text(metadata, "generateName")) {
        // 63 is the longest name that fits everywhere, for example in a label.
        let prefix: String = prefix.chars().take(58).collect();
        metadata.insert("name".into(), format!("{prefix}{}", place.suffix).into());
    }
    check_namespace(resource, metadata, place.namespace)?;
    metadata.insert("uid".into(), place.uid.into());
    metadata.insert("creationTimestamp".into(), context.now.as_str().into());
    if resource.counts_generation {
        metadata.insert("generation".into(), 1.into());
    }
    if resource.status && !resource.is("", "nodes") {
        remove(&mut object, "status");
    }
    unknown.extend(resource.schema.prune(&mut object));
    let mut warnings = judge_unknown(resource, unknown, context.validation)?;
    resource.schema.default_fields(&mut object);
    let causes = kinds::settle(resource, None, &mut object, context);
    warnings.extend(judge(resource, None, &object, causes)?);
    managed_fields::record_update(resource, None, &mut object, Part::Main, context);
    Ok(Planned { object, warnings })
}

/// A change of an object. `given` is the whole object as the client wants it.
pub fn plan_update(
    resource: &Resource,
    before: &Value,
    given: Value,
    part: Part,
    context: &WriteContext,
) -> Result<Planned, ApiError> {
    let mut given = given;
    resource.schema.drop_nulls(&mut given);
    let planned = plan_unmanaged(resource, before, given, part, context)?;
    let mut object = planned.object;
    managed_fields::record_update(resource, Some(before), &mut object, part, context);
    Ok(Planned { object, warnings: planned.warnings })
}

/// As [`plan_update`], leaving `managedFields` as they are given.
pub fn plan_unmanaged(
    resource: &Resource,
    before: &Value,
    given: Value,
    part: Part,
    context: &WriteContext,
) -> Result<Planned, ApiError> {
    let mut object = checked_type(resource, given)?;
    let old = before["metadata"].as_object();
    let name = before["metadata"]["name"].as_str().unwrap_or_default();
    let metadata = metadata_of(&mut object)?;
    check_texts(resource, metadata)?;
    let mut unknown = prune_metadata(metadata);
    check_identity(resource, before, metadata)?;
    keep_own_fields(metadata, old);
    for field in ["name", "namespace", "generateName"] {
        match old.and_then(|old| old.get(field)) {
            Some(value) => metadata.insert(field.into(), value.clone()),
            None => metadata.shift_remove(field),
        };
    }
    let mut object = match part {
        Part::Main | Part::Scale if resource.status => with_field(object, "status", before.get("status")),
        Part::Main | Part::Scale => object,
        Part::Status | Part::Approval => {
            let given = object.get("status");
            let status = match part {
                Part::Approval => Some(approved_status(before.get("status"), given)),
                _ => given.cloned(),
            };
            let managed = object["metadata"].get("managedFields").cloned();
            let mut kept = with_field(before.clone(), "status", status.as_ref());
            // A status update may clean up who manages what.
            if let Some(metadata) = kept.get_mut("metadata").and_then(Value::as_object_mut) {
                match managed {
                    Some(managed) => metadata.insert("managedFields".into(), managed),
                    None => metadata.shift_remove("managedFields"),
                };
            }
            kept["apiVersion"] = resource.api_version().into();
            kept
        }
    };
    unknown.extend(resource.schema.prune(&mut object));
    let mut warnings = judge_unknown(resource, unknown, context.validation)?;
    resource.schema.default_fields(&mut object);
    let mut causes = kinds::settle(resource, Some(before), &mut object, context);
    causes.extend(validate_finalizer_change(before, &object));
    let judged = judge(resource, Some(before), &object, causes);
    warnings.extend(judged.map_err(|error| error.about(resource.named_kind(name)))?);
    if resource.counts_generation && !same_contents(resource, before, &object) {
        let generation = before["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        object["metadata"]["generation"] = generation.into();
    }
    Ok(Planned { object, warnings })
}

/// Whoever approves writes conditions; the certificate is the signer's.
fn approved_status(before: Option<&Value>, given: Option<&Value>) -> Value {
    let mut status = before.filter(|before| before.is_object()).cloned().unwrap_or_else(|| Value::Object(Map::new()));
    match given.and_then(|given| given.get("conditions")) {
        Some(conditions) => status["conditions"] = conditions.clone(),
        None => drop(status.as_object_mut().and_then(|status| status.shift_remove("conditions"))),
    }
    status
}

/// Whether storing `after` would change nothing that matters: who wrote the same value when does not.
pub fn is_unchanged(before: &Value, after: &Value) -> bool {
    let (known, now) = (entries_of(before), entries_of(after));
    // Entries are sorted by time, so that the same ones may stand elsewhere.
    let is_known = |entry: &Value| known.iter().any(|other| same_except(other, entry, &["time"]));
    same_except(before, after, &["metadata"])
        && same_except(&before["metadata"], &after["metadata"], &["resourceVersion", "managedFields"])
        && known.len() == now.len()
        && now.iter().all(is_known)
}

fn entries_of(object: &Value) -> &[Value] {
    object["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Whether the finalizers allow an object under deletion to go.
pub fn may_go(object: &Value) -> bool {
    let empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    let is_namespace = object["kind"] == "Namespace" && object["apiVersion"] == "v1";
    !object["metadata"]["deletionTimestamp"].is_null()
        && empty(&object["metadata"]["finalizers"])
        && (!is_namespace || empty(&object["spec"]["finalizers"]))
}

fn same_contents(resource: &Resource, before: &Value, after: &Value) -> bool {
    let apart: &[&str] =
        if resource.status { &["apiVersion", "metadata", "status"] } else { &["apiVersion", "metadata"] };
    same_except(before, after, apart)
}

/// Whether two objects are the same apart from some fields.
fn same_except(before: &Value, after: &Value, apart: &[&str]) -> bool {
    let (Value::Object(before), Value::Object(after)) = (before, after) else { return same(before, after) };
    let count = |map: &Map<String, Value>| map.keys().filter(|key| !apart.contains(&key.as_str())).count();
    let kept = |(key, _): &(&String, &Value)| !apart.contains(&key.as_str());
    count(before) == count(after)
        && before.iter().filter(kept).all(|(key, value)| after.get(key).is_some_and(|other| same(value, other)))
}

fn checked_type(resource: &Resource, body: Value) -> Result<Value, ApiError> {
    let Value::Object(mut map) = body else { return Err(ApiError::bad_request("the body must be an object")) };
    let named = map.get("metadata").and_then(|metadata| metadata["name"].as_str()).unwrap_or_default().to_owned();
    for (key, label, expected) in
        [("apiVersion", "API version", resource.api_version()), ("kind", "kind", resource.kind.clone())]
    {
        match map.get(key).and_then(Value::as_str) {
            None | Some("") => {
                map.insert(key.into(), expected.into());
            }
            Some(given) if given == expected => {}
            Some(given) if key == "kind" && !resource.builtin => {
                let cause = Cause::invalid("kind", &given.into(), &format!("must be {expected}"));
                let other = Named { group: &resource.group, resource: given, name: &named };
                return Err(ApiError::invalid(other, vec![cause]));
            }
            Some(given) => {
                return Err(ApiError::bad_request(format!(
                    "the {label} in the data ({given}) does not match the expected {label} ({expected})"
                )));
            }
        }
    }
    Ok(Value::Object(map))
}

fn metadata_of(object: &mut Value) -> Result<&mut Map<String, Value>, ApiError> {
    let Value::Object(map) = object else { return Err(ApiError::bad_request("the body must be an object")) };
    match map.entry("metadata").or_insert_with(|| Value::Object(Map::new())) {
        Value::Object(metadata) => Ok(metadata),
        _ => Err(ApiError::bad_request("metadata must be an object")),
    }
}

fn check_texts(resource: &Resource, metadata: &Map<String, Value>) -> Result<(), ApiError> {
    let Some(why) = text_problem(metadata) else { return Ok(()) };
    let (kind, version) = (&resource.kind, &resource.version);
    Err(ApiError::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}")))
}

fn check_namespace(resource: &Resource, metadata: &mut Map<String, Value>, namespace: &str) -> Result<(), ApiError> {
    if !resource.namespaced {
        metadata.shift_remove("namespace");
        return Ok(());
    }
    match text(metadata, "namespace") {
        Some(given) if given != namespace => Err(ApiError::bad_request(format!(
            "the namespace of the provided object does not match the namespace sent on the request ({given} is not {namespace})"
        ))),
        _ => {
            metadata.insert("namespace".into(), namespace.into());
            Ok(())
        }
    }
}

fn check_identity(resource: &Resource, before: &Value, given: &Map<String, Value>) -> Result<(), ApiError> {
    let old = |key: &str| before["metadata"][key].as_str().unwrap_or_default();
    let name = old("name");
    if let Some(other) = text(given, "name").filter(|other| *other != name) {
        let message = format!("the name of the object ({other}) does not match the name on the URL ({name})");
        return Err(ApiError::bad_request(message));
    }
    if let Some(other) = text(given, "namespace").filter(|other| *other != old("namespace")) {
        let message = format!(
            "the namespace of the object ({other}) does not match the namespace on the request ({})",
            old("namespace")
        );
        return Err(ApiError::bad_request(message));
    }
    if let Some(uid) = text(given, "uid").filter(|uid| *uid != old("uid")) {
        let why = format!(
            "StorageError: invalid object, Code: 4, Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            old("uid")
        );
        return Err(ApiError::conflict(resource.named(name), &why));
    }
    match text(given, "resourceVersion") {
        Some(revision) if revision != old("resourceVersion") => Err(ApiError::stale(resource.named(name))),
        _ => Ok(()),
    }
}

fn judge_unknown(
    resource: &Resource,
    unknown: Vec<String>,
    validation: FieldValidation,
) -> Result<Vec<String>, ApiError> {
    let told: Vec<String> = unknown.iter().map(|field| format!("unknown field \"{field}\"")).collect();
    match validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Strict if !told.is_empty() => Err(ApiError::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {kind}: strict decoding error: {}",
            told.join(", "),
            kind = resource.kind,
            version = resource.version,
        ))),
        FieldValidation::Strict | FieldValidation::Warn => Ok(told),
    }
}

/// Refuses an object for everything that is wrong with it; says what is wrong but was so before.
fn judge(
    resource: &Resource,
    before: Option<&Value>,
    object: &Value,
    mut causes: Vec<Cause>,
) -> Result<Vec<String>, ApiError> {
    let empty = Map::new();
    causes.extend(validate_metadata(resource, object["metadata"].as_object().unwrap_or(&empty)));
    causes.extend(resource.schema.validate(object, before));
    causes.extend(resource.scale.as_ref().map(|paths| paths.validate(object)).unwrap_or_default());
    let mut warnings = if resource.builtin { Vec::new() } else { warn_about_finalizers(before, object) };
    if causes.iter().any(|cause| HIDES_RULES.contains(&cause.reason)) {
        if resource.schema.has_rules() {
            let why = "some validation rules were not checked because the object was invalid; correct the existing \
                       errors to complete validation";
            causes.push(Cause::invalid("<nil>", &Value::Null, why));
        }
    } else {
        let verdict = resource.schema.check_rules(object, before);
        causes.extend(verdict.causes);
        warnings.extend(verdict.warnings);
    }
    if causes.is_empty() {
        return Ok(warnings);
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    Err(ApiError::invalid(resource.named_kind(name), causes))
}

fn with_field(mut object: Value, key: &str, value: Option<&Value>) -> Value {
    match value {
        Some(value) => object[key] = value.clone(),
        None => remove(&mut object, key),
    }
    object
}

fn remove(object: &mut Value, key: &str) {
    if let Value::Object(map) = object {
        map.shift_remove(key);
    }
}

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    map.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
