//! `metadata.managedFields`: who manages which field.
//!
//! An update makes its manager the owner of what it changed and takes that from everybody else. An apply owns exactly
//! what it lists. Entries are kept per manager, operation, version and subresource.

use serde_json::{Map, Value, json};

use crate::change::{Part, WriteContext};
use crate::field_set::{FieldSet, Path};
use crate::field_walk::{Comparison, compare, fields_of};
use crate::resource::Resource;

/// One manager's entry.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Who.
    pub manager: String,
    /// `Apply` or `Update`.
    pub operation: String,
    /// The version the paths are in.
    pub api_version: String,
    /// Empty for the main resource.
    pub subresource: String,
    /// When the entry last changed.
    pub time: String,
    /// What is managed.
    pub fields: FieldSet,
}

/// Fields of an object that nobody manages.
const UNMANAGED: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Fields of `metadata` that nobody manages.
const UNMANAGED_METADATA: [&str; 9] = [
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "generation",
    "managedFields",
    "resourceVersion",
    "generateName",
];

/// Records what an update by `context.manager` changed.
pub fn record_update(
    resource: &Resource,
    before: Option<&Value>,
    object: &mut Value,
    part: Part,
    context: &WriteContext,
) {
    if before.is_none() && context.applied {
        return;
    }
    let given = parse_entries(&object["metadata"]["managedFields"]);
    let stored = before.map(|before| parse_entries(&before["metadata"]["managedFields"])).unwrap_or_default();
    let mut entries = match given {
        // A client that leaves them out does not mean to drop them; one that sends an empty entry does.
        Some(given) if before.is_some() => given,
        _ => stored.unwrap_or_default(),
    };
    let empty = json!({});
    let Comparison { added, modified, removed } = compare(&resource.schema, before.unwrap_or(&empty), object);
    let mut changed = added;
    changed.0.extend(modified.0);
    keep_managed_part(resource, &mut changed, part);
    let own = own_entry(&entries, context, "Update", resource, part);
    for (index, entry) in entries.iter_mut().enumerate() {
        let lost = |path: &Path| removed.0.contains(path) || (Some(index) != own && changed.0.contains(path));
        entry.fields.0.retain(|path| !lost(path));
    }
    match own {
        Some(index) => {
            let known = entries[index].fields.0.len();
            entries[index].fields.0.extend(changed.0);
            if entries[index].fields.0.len() != known {
                entries[index].time.clone_from(&context.now);
            }
        }
        None if !changed.is_empty() => entries.push(new_entry(context, "Update", resource, part, changed)),
        None => {}
    }
    write_entries(object, entries);
}

/// The entry of a manager that applied an object that did not exist.
pub fn applied_entry(resource: &Resource, wanted: &Value, part: Part, context: &WriteContext) -> Value {
    render_entry(&new_entry(context, "Apply", resource, part, applied_fields(resource, wanted, part)))
}

/// What an apply of this manages.
pub fn applied_fields(resource: &Resource, wanted: &Value, part: Part) -> FieldSet {
    let mut known = wanted.clone();
    resource.schema.prune(&mut known);
    let mut fields = fields_of(&resource.schema, &known);
    keep_managed_part(resource, &mut fields, part);
    fields
}

/// Reads the entries; `None` when there are none to read.
pub fn parse_entries(value: &Value) -> Option<Vec<Entry>> {
    let list = value.as_array()?;
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let entries = list.iter().filter(|entry| !text(entry, "operation").is_empty()).map(|entry| Entry {
        manager: text(entry, "manager"),
        operation: text(entry, "operation"),
        api_version: text(entry, "apiVersion"),
        subresource: text(entry, "subresource"),
        time: text(entry, "time"),
        fields: FieldSet::parse(&entry["fieldsV1"]),
    });
    Some(entries.collect())
}

/// Writes the entries that manage something.
pub fn write_entries(object: &mut Value, entries: Vec<Entry>) {
    let rendered: Vec<Value> = entries.iter().filter(|entry| !entry.fields.is_empty()).map(render_entry).collect();
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if rendered.is_empty() {
        metadata.shift_remove("managedFields");
    } else {
        metadata.insert("managedFields".into(), rendered.into());
    }
}

/// Where the entry of this manager is.
pub fn own_entry(
    entries: &[Entry],
    context: &WriteContext,
    operation: &str,
    resource: &Resource,
    part: Part,
) -> Option<usize> {
    let version = resource.api_version();
    entries.iter().position(|entry| {
        entry.manager == context.manager
            && entry.operation == operation
            && entry.subresource == subresource(part)
            && (operation == "Apply" || entry.api_version == version)
    })
}

/// A new entry of this manager.
pub fn new_entry(context: &WriteContext, operation: &str, resource: &Resource, part: Part, fields: FieldSet) -> Entry {
    Entry {
        manager: context.manager.clone(),
        operation: operation.into(),
        api_version: resource.api_version(),
        subresource: subresource(part).into(),
        time: context.now.clone(),
        fields,
    }
}

fn subresource(part: Part) -> &'static str {
    match part {
        Part::Main => "",
        Part::Scale => "scale",
        Part::Status => "status",
    }
}

/// Keeps only what this part of the object may change, and what can be managed at all.
fn keep_managed_part(resource: &Resource, set: &mut FieldSet, part: Part) {
    let is_field = |element: &String, name: &str| element.strip_prefix("f:").unwrap_or(element) == name;
    set.0.retain(|path| {
        let Some(first) = path.first() else { return false };
        let is_status = first == "f:status";
        let in_part = match part {
            Part::Main | Part::Scale => !(is_status && resource.status),
            Part::Status => is_status,
        };
        let unmanaged = match path.as_slice() {
            [first] => UNMANAGED.iter().any(|name| is_field(first, name)),
            [first, second, rest @ ..] if is_field(first, "metadata") => {
                let named = |names: &[&str]| names.iter().any(|name| is_field(second, name));
                if rest.is_empty() { named(&UNMANAGED_METADATA) } else { named(&["managedFields"]) }
            }
            _ => false,
        };
        in_part && !unmanaged
    });
}

fn render_entry(entry: &Entry) -> Value {
    let Entry { manager, operation, api_version, subresource, time, fields } = entry;
    let mut map = Map::new();
    let texts = [("manager", manager), ("operation", operation), ("apiVersion", api_version), ("time", time)];
    for (key, text) in texts {
        map.insert(key.into(), text.as_str().into());
    }
    map.insert("fieldsType".into(), "FieldsV1".into());
    map.insert("fieldsV1".into(), fields.render());
    if !subresource.is_empty() {
        map.insert("subresource".into(), subresource.as_str().into());
    }
    Value::Object(map)
}
