//! Server-side apply: a manager says what it wants, fields it no longer wants go, fields of others are conflicts.

use serde_json::Value;

use crate::change::{Part, WriteContext};
use crate::field_set::{FieldSet, render_path};
use crate::field_walk::{compare, lay_over, take_out};
use crate::managed_fields::{Entry, applied_fields, new_entry, own_entry, parse_entries, write_entries};
use crate::resource::Resource;

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
    let own = own_entry(&entries, context, "Apply", resource, part);
    let fields = applied_fields(resource, wanted, part);
    let last = own.map(|index| entries[index].fields.clone()).unwrap_or_default();
    let mut object = lay_over(&resource.schema, live, &wanted_part(resource, wanted, part));
    match own {
        Some(index) if entries[index].fields == fields => {}
        Some(index) => entries[index] = new_entry(context, "Apply", resource, part, fields),
        None => entries.push(new_entry(context, "Apply", resource, part, fields)),
    }
    let own = own.unwrap_or(entries.len() - 1);
    let everybody = entries.iter().fold(FieldSet::default(), |all, entry| all.union(&entry.fields));
    // A whole item goes before its fields: it is found by its keys.
    for path in last.difference(&everybody).0.iter().filter(|path| !everybody.touches(path) && !is_key(path)) {
        take_out(&mut object, path);
    }
    let comparison = compare(&resource.schema, live, &object);
    let changed = comparison.added.union(&comparison.modified);
    let mut conflicts = Vec::new();
    for (index, entry) in entries.iter_mut().enumerate() {
        if index != own {
            let taken = entry.fields.intersection(&changed);
            conflicts.extend(taken.0.iter().map(|path| Conflict { entry: entry.clone(), field: render_path(path) }));
            entry.fields = entry.fields.difference(&taken);
        }
        entry.fields = entry.fields.difference(&comparison.removed);
    }
    if !conflicts.is_empty() && !force {
        return Err(ApplyError::Conflicts(conflicts));
    }
    write_entries(&mut object, entries);
    Ok(object)
}

/// Whether the path is that of a field by which its list item is known: it stays as long as the item does.
fn is_key(path: &[String]) -> bool {
    let [.., item, field] = path else { return false };
    let keys = item.strip_prefix("k:").and_then(|keys| serde_json::from_str::<Value>(keys).ok());
    keys.is_some_and(|keys| field.strip_prefix("f:").is_some_and(|field| keys.get(field).is_some()))
}

/// What an apply to this part may change.
fn wanted_part(resource: &Resource, wanted: &Value, part: Part) -> Value {
    let mut wanted = wanted.clone();
    if let Value::Object(map) = &mut wanted {
        match part {
            Part::Main | Part::Scale if resource.status => drop(map.shift_remove("status")),
            Part::Main | Part::Scale => {}
            Part::Status => map.retain(|key, _| ["apiVersion", "kind", "status"].contains(&key.as_str())),
        }
    }
    wanted
}

#[cfg(test)]
mod tests;
