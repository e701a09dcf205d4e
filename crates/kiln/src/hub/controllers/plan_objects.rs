//! Which of Kiln's objects must be made, changed or removed. Pure: [`plan_objects`] decides, `execute` does it.
//!
//! **Invariant:** an object without the label [`FROM_LABEL`] was written by a person and is never touched.
//! When a source is deleted, the garbage collector removes what was made from it; only an object whose source is still
//! there but no longer stands for it is removed from here.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::cache::{Cache, FROM_LABEL, Item};
use super::difference::diff_merge;
use super::kinds::{HOST, IMAGE, POOL, Watched, find};
use super::summary::{Summary, Wanted};

/// What must be done with one object.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectChange {
    /// Of which kind.
    pub kind: &'static Watched,
    /// Empty for cluster-wide objects.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What.
    pub action: Action,
}

/// What is done with an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// It is made.
    Create(Value),
    /// It is changed by a merge patch, unless somebody else changed it since.
    Patch(Value),
    /// It is removed, if it is still the same.
    Delete {
        /// Which one.
        uid: String,
        /// In which state.
        revision: String,
    },
}

/// Compares what the upstream kinds stand for with what exists.
pub fn plan_objects(summary: &Summary, cache: &Cache) -> Vec<ObjectChange> {
    let mut changes = Vec::new();
    let mut wanted_names: HashSet<(&str, &str, &str)> = HashSet::new();
    for wanted in &summary.wanted {
        // Of two sources with one name the first has it.
        if !wanted_names.insert((wanted.kind.kind, &wanted.namespace, &wanted.name)) {
            continue;
        }
        let from = cache.get(&wanted.from.kind, &wanted.from.namespace, &wanted.from.name);
        let Some(source) = from.filter(|source| !source.deleting) else { continue };
        let existing = cache.get(wanted.kind.kind, &wanted.namespace, &wanted.name);
        let action = match existing {
            None => Some(Action::Create(render(wanted, source))),
            Some(existing) if !existing.made || existing.deleting => None,
            Some(existing) => change(wanted, source, existing).map(Action::Patch),
        };
        changes.extend(action.map(|action| ObjectChange {
            kind: wanted.kind,
            namespace: wanted.namespace.clone(),
            name: wanted.name.clone(),
            action,
        }));
    }
    for kind in [&HOST, &POOL, &IMAGE] {
        for ((namespace, name), item) in cache.of_kind(kind.kind).filter(|(_, item)| item.made && !item.deleting) {
            if wanted_names.contains(&(kind.kind, namespace, name)) || !has_living_source(item, namespace, cache) {
                continue;
            }
            let action = Action::Delete { uid: item.uid.clone(), revision: item.revision.clone() };
            changes.push(ObjectChange { kind, namespace: namespace.clone(), name: name.clone(), action });
        }
    }
    changes
}

fn render(wanted: &Wanted, source: &Item) -> Value {
    let mut object = json!({
        "apiVersion": wanted.kind.api_version(),
        "kind": wanted.kind.kind,
        "metadata": {"name": wanted.name, "labels": from_label(wanted), "ownerReferences": owners(wanted, source)},
        "spec": spec(wanted),
    });
    if !wanted.namespace.is_empty() {
        object["metadata"]["namespace"] = json!(wanted.namespace);
    }
    object
}

fn change(wanted: &Wanted, source: &Item, existing: &Item) -> Option<Value> {
    let found = existing.value();
    let mut old = json!({"metadata": {"labels": {}, "ownerReferences": found["metadata"]["ownerReferences"]},
        "spec": found["spec"]});
    // Other labels are other people's.
    if let Some(from) = found["metadata"]["labels"].get(FROM_LABEL) {
        old["metadata"]["labels"][FROM_LABEL] = from.clone();
    }
    let new = json!({"metadata": {"labels": from_label(wanted), "ownerReferences": owners(wanted, source)},
        "spec": spec(wanted)});
    let mut patch = diff_merge(&old, &new)?;
    patch["metadata"]["resourceVersion"] = json!(existing.revision);
    Some(patch)
}

fn spec(wanted: &Wanted) -> Value {
    serde_json::from_str(&wanted.spec).unwrap_or_default()
}

fn from_label(wanted: &Wanted) -> Value {
    json!({FROM_LABEL: wanted.from.kind.to_lowercase()})
}

fn owners(wanted: &Wanted, source: &Item) -> Value {
    let api_version = find(&wanted.from.kind).map(Watched::api_version).unwrap_or_default();
    json!([{"apiVersion": api_version, "kind": wanted.from.kind, "name": wanted.from.name, "uid": source.uid,
        "controller": true}])
}

/// Whether the object it was made from is there; if not, the garbage collector knows what to do.
fn has_living_source(item: &Item, namespace: &str, cache: &Cache) -> bool {
    let value = item.value();
    let owners = value["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.into_iter().any(|owner| {
        let (kind, name) = (owner["kind"].as_str().unwrap_or_default(), owner["name"].as_str().unwrap_or_default());
        let source = cache.get(kind, namespace, name).or_else(|| cache.get(kind, "", name));
        source.is_some_and(|source| owner["uid"] == source.uid.as_str())
    })
}
