//! Server-side apply: a manager says what it wants, fields it no longer wants go, fields of others are conflicts.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::change::{Part, WriteContext};
use crate::field_set::{FieldSet, render_path};
use crate::field_walk::{compare, fields_of, merge, take_out, with_named_parents};
use crate::managed_fields::{
    Entry, in_part, known_part, managed_part, new_entry, own_entry, parse_entries, untracked_entry, write_entries,
};
use crate::resource::Resource;
use crate::schema::{Schema, same};

/// Why an apply was refused.
#[derive(Debug, Clone, PartialEq)]
pub enum ApplyError {
    /// The request makes no sense.
    Malformed(String),
    /// Others manage fields with other values.
    Conflicts(Vec<Conflict>),
}

/// A field that somebody else manages.
#[derive(Debug, Clone, PartialEq)]
pub struct Conflict {
    /// Who, and how they wrote it.
    pub entry: Entry,
    /// Where.
    pub field: String,
}

impl Conflict {
    /// As messages name the manager.
    pub fn manager_text(&self) -> String {
        let Entry { manager, operation, api_version, subresource, time, .. } = &self.entry;
        let mut text = format!("{manager:?}");
        if !subresource.is_empty() {
            text.push_str(&format!(" with subresource {subresource:?}"));
        }
        if operation == "Update" {
            text.push_str(&format!(" using {api_version} at {time}"));
        }
        text
    }
}

/// The object after an apply, `managedFields` included.
pub fn plan_apply(
    resource: &Resource,
    live: &Value,
    wanted: &Value,
    part: Part,
    force: bool,
    context: &WriteContext,
) -> Result<Value, ApplyError> {
    if !wanted.is_object() {
        return Err(ApplyError::Malformed("the body of an apply must be an object".into()));
    }
    if wanted["metadata"]["managedFields"].as_array().is_some_and(|entries| !entries.is_empty()) {
        return Err(ApplyError::Malformed("metadata.managedFields must be nil".into()));
    }
    let mut entries = parse_entries(&live["metadata"]["managedFields"]).unwrap_or_default();
    let mut live = live.clone();
    if let Some(metadata) = live.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("managedFields");
    }
    if entries.is_empty() {
        entries.push(untracked_entry(resource, &live, part));
    }
    let schema = &resource.schema;
    let wanted = wanted_part(resource, wanted, part);
    refuse_wrong_types(schema, &wanted)?;
    // Names and versions too, until the end: they hold the metadata in place.
    let claimed = in_part(resource, &fields_of(schema, &known_part(resource, &wanted)), part);
    let own = own_entry(&entries, context, "Apply", resource, part);
    let mut object = merge(schema, &live, &wanted);
    // Who claims everything again, as controllers do each time, has abandoned nothing.
    if let Some(last) = own.map(|index| &entries[index].fields).filter(|last| !last.0.is_subset(&claimed.0)) {
        let others = entries.iter().enumerate().filter(|(index, _)| Some(*index) != own);
        let everybody = others.fold(claimed.clone(), |all, (_, entry)| all.union(&entry.fields));
        object = without_abandoned(schema, &object, last, &everybody);
        put_nulls_back(&mut object, &wanted);
    }
    let comparison = compare(schema, &live, &object);
    let changed = in_part(resource, &comparison.added.union(&comparison.modified), part);
    let removed = in_part(resource, &comparison.removed, part);
    let mut conflicts = Vec::new();
    for (_, entry) in entries.iter_mut().enumerate().filter(|(index, _)| Some(*index) != own) {
        let taken = entry.fields.intersection(&changed);
        conflicts.extend(taken.0.iter().map(|path| Conflict { entry: entry.clone(), field: render_path(path) }));
        entry.fields = entry.fields.difference(&taken).difference(&removed);
    }
    if !conflicts.is_empty() && !force {
        return Err(ApplyError::Conflicts(conflicts));
    }
    let mut entry = new_entry(context, "Apply", resource, part, managed_part(resource, &claimed, part));
    match own {
        Some(index) => {
            if same(&live, &object) {
                entry.time.clone_from(&entries[index].time);
            }
            entries[index] = entry;
        }
        None => entries.push(entry),
    }
    if context.manager == "kubectl" && part == Part::Main {
        refresh_last_applied(&mut object, &wanted);
    }
    write_entries(&mut object, entries);
    Ok(object)
}

/// A value of a wrong type cannot be merged: it is refused before anything is taken away for it.
fn refuse_wrong_types(schema: &Schema, wanted: &Value) -> Result<(), ApplyError> {
    match schema.wrong_type(wanted) {
        Some(cause) => Err(ApplyError::Malformed(format!("{}: {}", cause.field, cause.message))),
        None => Ok(()),
    }
}

/// Where `kubectl apply` keeps what it applied last.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Somebody who goes back from server-side to client-side apply must not find what they applied long ago.
fn refresh_last_applied(object: &mut Value, wanted: &Value) {
    if object["metadata"]["annotations"].get(LAST_APPLIED).is_none() {
        return;
    }
    let mut applied = sorted(wanted);
    if let Some(annotations) = applied["metadata"].get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.shift_remove(LAST_APPLIED);
    }
    object["metadata"]["annotations"][LAST_APPLIED] = format!("{applied}\n").into();
}

/// The value with its keys in order, as kubectl writes it.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let fields: BTreeMap<&String, Value> = map.iter().map(|(key, value)| (key, sorted(value))).collect();
            Value::Object(fields.into_iter().map(|(key, value)| (key.clone(), value)).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

/// The merged object without what this manager applied last, no longer wants and nobody else claims.
fn without_abandoned(schema: &Schema, merged: &Value, last: &FieldSet, everybody: &FieldSet) -> Value {
    let named = |set: &FieldSet| with_named_parents(schema, set);
    let last = named(last);
    let there = named(&fields_of(schema, merged));
    // Without everything that was applied last; then with what somebody claims; then with what was never applied.
    let bare = take_out(schema, merged, &last);
    let kept = named(&fields_of(schema, &bare)).union(&named(everybody));
    let claimed = take_out(schema, merged, &there.difference(&kept));
    let gone = there.difference(&named(&fields_of(schema, &claimed))).intersection(&last);
    take_out(schema, merged, &gone)
}

/// A null has no fields by which it could be kept. Whether it may be there is for the schema to say, the first time too.
fn put_nulls_back(object: &mut Value, wanted: &Value) {
    let (Value::Object(object), Value::Object(wanted)) = (object, wanted) else { return };
    for (key, value) in wanted {
        match object.get_mut(key) {
            Some(child) => put_nulls_back(child, value),
            None if value.is_null() => drop(object.insert(key.clone(), Value::Null)),
            None => {}
        }
    }
}

/// What an apply to this part may change.
fn wanted_part(resource: &Resource, wanted: &Value, part: Part) -> Value {
    let mut wanted = wanted.clone();
    if let Value::Object(map) = &mut wanted {
        match part {
            Part::Main | Part::Scale if resource.status => drop(map.shift_remove("status")),
            Part::Main | Part::Scale => {}
            Part::Status | Part::Approval => {
                map.retain(|key, _| ["apiVersion", "kind", "metadata", "status"].contains(&key.as_str()));
                // Only what says which object is meant.
                if let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.retain(|key, _| ["name", "namespace", "uid", "resourceVersion"].contains(&key.as_str()));
                }
            }
        }
    }
    wanted
}

#[cfg(test)]
mod tests;
