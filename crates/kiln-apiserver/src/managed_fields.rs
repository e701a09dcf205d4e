//! `metadata.managedFields`: who manages which field.
//!
//! An update makes its manager the owner of what it changed and takes that from everybody else. An apply owns exactly
//! what it lists. Entries are kept per manager, operation, version and subresource.

use serde_json::{Map, Value, json};

use crate::change::{Part, WriteContext};
use crate::field_set::{Element, FieldSet};
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
const UNMANAGED: [&str; 3] = ["f:apiVersion", "f:kind", "f:metadata"];

/// Fields of `metadata` that nobody manages.
const UNMANAGED_METADATA: [&str; 9] = [
    "f:name",
    "f:namespace",
    "f:creationTimestamp",
    "f:selfLink",
    "f:uid",
    "f:generation",
    "f:managedFields",
    "f:resourceVersion",
    "f:generateName",
];

/// How many entries of updates an object keeps; the oldest are put together.
const MOST_UPDATERS: usize = 10;
/// Who owns the fields of entries that were put together.
const ANCIENT: &str = "ancient-changes";
/// Who owns the fields of an object that nobody tracked before it was applied.
pub const BEFORE_FIRST_APPLY: &str = "before-first-apply";

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
    // A client that leaves them out does not mean to drop them; one that sends an empty entry does. Only the main
    // resource can be cleaned up in this way.
    let cleanable = before.is_some() && part == Part::Main;
    let given = cleanable.then(|| parse_entries(&object["metadata"]["managedFields"])).flatten();
    let stored = || parse_entries(&before?["metadata"]["managedFields"]);
    let mut entries = given.or_else(stored).unwrap_or_default();
    if before.is_some() && entries.is_empty() {
        // Nobody keeps track of this object until it is applied.
        write_entries(object, entries);
        return;
    }
    let empty = json!({});
    let Comparison { added, modified, mut removed } = compare(&resource.schema, before.unwrap_or(&empty), object);
    let mut changed = added;
    changed.0.extend(modified.0);
    changed.0.retain(|path| is_in_part(resource, path, part) && is_managed(path));
    removed.0.retain(|path| is_in_part(resource, path, part));
    // A Scale leaves a zero out: who scales to zero owns nothing, and neither does anybody else.
    let to_zero = part == Part::Scale && resource.scale.as_ref().is_some_and(|paths| paths.wanted(object) == 0);
    let own = own_entry(&entries, context, "Update", resource, part);
    for entry in &mut entries {
        entry.fields.0.retain(|path| !removed.0.contains(path) && !changed.0.contains(path));
    }
    match own {
        _ if changed.is_empty() || to_zero => {}
        Some(index) => {
            entries[index].time.clone_from(&context.now);
            entries[index].fields.0.extend(changed.0);
        }
        None => entries.push(new_entry(context, "Update", resource, part, changed)),
    }
    write_entries(object, put_oldest_together(entries));
}

/// An entry for what is in a part of an object nobody kept track of.
pub fn untracked_entry(resource: &Resource, live: &Value, part: Part) -> Entry {
    let added = compare(&resource.schema, &json!({}), live).added;
    Entry {
        manager: BEFORE_FIRST_APPLY.into(),
        operation: "Update".into(),
        api_version: resource.api_version(),
        subresource: subresource(part).into(),
        time: live["metadata"]["creationTimestamp"].as_str().unwrap_or_default().into(),
        fields: managed_part(resource, &added, part),
    }
}

/// Bounds the entries of updates.
fn put_oldest_together(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.retain(|entry| !entry.fields.is_empty());
    let updaters = |entries: &[Entry]| entries.iter().filter(|entry| entry.operation == "Update").count();
    while updaters(&entries) > MOST_UPDATERS {
        let mut oldest: Vec<usize> = (0..entries.len()).filter(|index| entries[*index].operation == "Update").collect();
        let age = |index: &usize| (&entries[*index].time, &entries[*index].manager);
        oldest.sort_by(|a, b| age(a).cmp(&age(b)));
        let pair = oldest.iter().enumerate().find_map(|(rank, first)| {
            let version = &entries[*first].api_version;
            let next = oldest[rank + 1..].iter().find(|next| entries[**next].api_version == *version)?;
            Some((*first, *next))
        });
        let Some((first, next)) = pair else { break };
        entries[next].fields = entries[next].fields.union(&entries[first].fields);
        entries[next].manager = ANCIENT.into();
        entries[next].subresource.clear();
        entries.remove(first);
    }
    entries
}

/// The entry of a manager that applied an object that did not exist.
pub fn applied_entry(resource: &Resource, wanted: &Value, part: Part, context: &WriteContext) -> Value {
    render_entry(&new_entry(context, "Apply", resource, part, applied_fields(resource, wanted, part)))
}

/// What an apply of this manages.
pub fn applied_fields(resource: &Resource, wanted: &Value, part: Part) -> FieldSet {
    managed_part(resource, &fields_of(&resource.schema, &known_part(resource, wanted)), part)
}

/// What is wanted without what the schema does not know.
pub fn known_part(resource: &Resource, wanted: &Value) -> Value {
    let mut known = wanted.clone();
    resource.schema.prune(&mut known);
    known
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

/// Writes the entries that manage something: those of applies first, the oldest first.
pub fn write_entries(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.fields.is_empty());
    entries.sort_by(|a, b| {
        let key = |entry: &Entry| {
            let Entry { manager, operation, api_version, subresource, time, .. } = entry.clone();
            (operation, time, manager, api_version, subresource)
        };
        key(a).cmp(&key(b))
    });
    let rendered: Vec<Value> = entries.iter().map(render_entry).collect();
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
        Part::Approval => "approval",
    }
}

/// Only what a write to this part of the object may change.
pub fn in_part(resource: &Resource, set: &FieldSet, part: Part) -> FieldSet {
    set.filter(|path| is_in_part(resource, path, part))
}

fn is_in_part(resource: &Resource, path: &[Element], part: Part) -> bool {
    let first = path.first().map_or("", |first| first);
    match part {
        Part::Main | Part::Scale => !(first == "f:status" && resource.status),
        Part::Status | Part::Approval => !["f:metadata", "f:spec"].contains(&first),
    }
}

/// Of these only what can be managed at all.
pub fn managed_part(resource: &Resource, set: &FieldSet, part: Part) -> FieldSet {
    set.filter(|path| is_in_part(resource, path, part) && is_managed(path))
}

/// Whether a field can be managed at all.
fn is_managed(path: &[Element]) -> bool {
    match path {
        [] => false,
        [field] => !UNMANAGED.contains(&&**field),
        [metadata, field, rest @ ..] if **metadata == *"f:metadata" => {
            !(UNMANAGED_METADATA.contains(&&**field) && (rest.is_empty() || **field == *"f:managedFields"))
        }
        _ => true,
    }
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
