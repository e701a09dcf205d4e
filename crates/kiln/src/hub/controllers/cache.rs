//! What the watches have seen, each object reduced to what is looked at again.
//!
//! Ten thousand objects live here, so each is kept as one packed text and taken apart when it is needed. What an object
//! declares goes to the [`WorldCache`], which `kiln check` could have filled from files.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kiln_apiserver::packed::{Packed, Sample};
use kiln_core::timeline::{Moment, Timeline};
use rpds::RedBlackTreeMapSync;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::kinds::{Use, Watched};
use crate::hub::machines::records::MachineRecord;
use crate::hub::mirror::FINDINGS;
use crate::hub::pools::report::PoolReports;
use crate::hub::timeline::{parse_time, read_timeline};
use crate::hub::world::{ObjectKey, WorldCache, is_for_nodes};

/// The label that says which kind an object of Kiln's was made from.
pub const FROM_LABEL: &str = "kiln.dev/from";
/// Under which name the controllers write.
pub const MANAGER: &str = "kiln";

/// An object as the controllers remember it.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub revision: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// `metadata.creationTimestamp`.
    pub created: Moment,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether Kiln made it from another kind.
    pub made: bool,
    /// Whether somebody else writes its status.
    pub foreign_status: bool,
    /// Whether its status has the condition [`FINDINGS`].
    pub has_findings: bool,
    /// Labels, owners, spec and status, as far as its kind needs them.
    text: Packed,
}

/// What is looked at in the status of a Host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostStatus {
    /// What happened to it.
    pub timeline: Timeline,
    /// The payload it fetched, if that is known.
    pub payload: Option<Box<str>>,
    /// How far it is with its files and units.
    pub machine: MachineRecord,
}

impl Item {
    /// The part that is kept: `metadata.labels`, `metadata.ownerReferences`, `spec`, `status`.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.text.text()).unwrap_or_default()
    }

    /// What the status of a Host says. The rest is only walked over: all hosts are asked at every look.
    pub fn host_status(&self) -> HostStatus {
        #[derive(Deserialize)]
        struct Host {
            status: Status,
        }
        #[derive(Deserialize)]
        struct Status {
            #[serde(default)]
            timeline: Value,
            #[serde(default)]
            provision: Value,
            #[serde(default)]
            machine: Value,
        }
        let Ok(Host { status: Status { timeline, provision, machine } }) = serde_json::from_slice(&self.text.text())
        else {
            return HostStatus::default();
        };
        HostStatus {
            payload: provision["payload"].as_str().map(Box::from),
            timeline: read_timeline(&json!({"timeline": timeline, "provision": provision})),
            machine: MachineRecord::read(&machine),
        }
    }

    /// Reduces an object, and packs what is kept of it with others of its kind.
    pub fn of(object: &Value, use_: Use, others: &mut Sample) -> Item {
        let metadata = &object["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut kept = Map::new();
        if use_ == Use::Own {
            kept.insert(
                "metadata".into(),
                json!({"labels": metadata["labels"], "ownerReferences": metadata["ownerReferences"]}),
            );
        }
        if matches!(use_, Use::Own | Use::Evidence | Use::MirroredEvidence) {
            kept.insert("spec".into(), object["spec"].clone());
        }
        if let Some(spoken) = (use_ == Use::Mirrored).then(|| spoken_of(object)).flatten() {
            kept.insert("spec".into(), spoken);
        }
        let conditions = &object["status"]["conditions"];
        match use_ {
            Use::Declares => {}
            // One condition among others' is all that is written.
            Use::Checked if conditions.is_null() => {}
            Use::Checked => drop(kept.insert("status".into(), json!({"conditions": conditions}))),
            Use::Own | Use::Mirrored | Use::Evidence | Use::MirroredEvidence => {
                kept.insert("status".into(), object["status"].clone());
            }
        }
        Item {
            uid: text(&metadata["uid"]),
            revision: text(&metadata["resourceVersion"]),
            generation: metadata["generation"].as_i64().unwrap_or_default(),
            created: metadata["creationTimestamp"].as_str().and_then(parse_time).unwrap_or(Moment(0)),
            deleting: metadata["deletionTimestamp"].is_string(),
            made: metadata["labels"][FROM_LABEL].is_string(),
            foreign_status: has_foreign_status(metadata) || (use_ == Use::Checked && says_more(&object["status"])),
            has_findings: conditions.as_array().is_some_and(|all| all.iter().any(|one| one["type"] == FINDINGS)),
            text: others.pack(&serde_json::to_vec(&kept).unwrap_or_default()),
        }
    }
}

/// The part of a spec that upstream's status repeats. The rest of it is only declared, and there may be ten thousand.
fn spoken_of(object: &Value) -> Option<Value> {
    let spec = &object["spec"];
    (object["kind"] == "NodePool").then(
        || json!({"autoScaling": spec["autoScaling"], "management": {"autoRepair": spec["management"]["autoRepair"]}}),
    )
}

/// On a cluster where the upstream controller of a kind runs, the status is its own: two writers would fight for ever.
pub(crate) fn has_foreign_status(metadata: &Value) -> bool {
    let managers = metadata["managedFields"].as_array().into_iter().flatten();
    managers.into_iter().any(|entry| {
        entry["subresource"] == "status"
            && entry["manager"] != MANAGER
            // kubectl is a person, whose word is corrected
            && !entry["manager"].as_str().is_some_and(|name| name.starts_with("kubectl"))
    })
}

/// Whether a status says anything but [`FINDINGS`], where that is all that Kiln writes. Who owns the list of conditions does
/// not tell: it is whoever wrote it last.
fn says_more(status: &Value) -> bool {
    status.as_object().into_iter().flatten().any(|(key, value)| match (key.as_str(), value) {
        ("conditions", Value::Array(conditions)) => conditions.iter().any(|condition| condition["type"] != FINDINGS),
        (_, value) => !value.is_null(),
    })
}

type Items = RedBlackTreeMapSync<(String, String), Arc<Item>>;

/// Everything the watches have seen. A clone costs little, so that nobody need hold up the watches to look at all of it.
#[derive(Debug, Clone, Default)]
pub struct Cache {
    items: HashMap<&'static str, Items>,
    samples: HashMap<&'static str, Sample>,
    /// What is declared.
    pub world: WorldCache,
    /// What was declared since the rules looked last, by kind and place: nobody knows yet what to say about it.
    pub unjudged: HashSet<(&'static str, (String, String))>,
    /// What is known of the configs of pools.
    pub pools: PoolReports,
    /// Kinds whose definition has no room for the condition [`FINDINGS`]: the API dropped or refused it.
    pub without_findings: HashSet<&'static str>,
}

impl Cache {
    /// Takes the newest state of an object. Says what changed by it.
    pub fn put(&mut self, watched: &'static Watched, object: &Value) -> Change {
        let key = ObjectKey::of(object);
        if is_for_nodes(object) {
            return Change::Nothing;
        }
        let declares = !matches!(watched.use_, Use::Evidence | Use::MirroredEvidence) || watched.kind == "Agent";
        let item = Item::of(object, watched.use_, self.samples.entry(watched.kind).or_default());
        let of_kind = self.items.entry(watched.kind).or_default();
        let place = (key.namespace.clone(), key.name.clone());
        let seen = match of_kind.get(&place) {
            Some(known) if **known == item => Change::Nothing,
            _ => {
                of_kind.insert_mut(place.clone(), Arc::new(item));
                Change::Status
            }
        };
        if declares && self.world.update(key, Some(object)) {
            self.unjudged.insert((watched.kind, place));
            return Change::World;
        }
        seen
    }

    /// Forgets an object.
    pub fn remove(&mut self, watched: &'static Watched, namespace: &str, name: &str) -> Change {
        let of_kind = self.items.get_mut(watched.kind);
        let known = of_kind.is_some_and(|of_kind| of_kind.remove_mut(&place(namespace, name)));
        let key = ObjectKey {
            group: watched.group.into(),
            kind: watched.kind.into(),
            namespace: namespace.into(),
            name: name.into(),
        };
        match (self.world.update(key, None), known) {
            (true, _) => Change::World,
            (false, true) => Change::Status,
            (false, false) => Change::Nothing,
        }
    }

    /// Forgets every object of a kind that is not among these names: a list was read anew.
    pub fn retain(&mut self, watched: &'static Watched, names: &HashSet<(String, String)>) -> Change {
        let gone: Vec<(String, String)> = self.of_kind(watched.kind).map(|(place, _)| place.clone()).collect();
        let gone = gone.into_iter().filter(|place| !names.contains(place));
        gone.map(|(namespace, name)| self.remove(watched, &namespace, &name)).max().unwrap_or(Change::Nothing)
    }

    /// The objects of a kind, by namespace and name.
    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = (&(String, String), &Item)> {
        self.items.get(kind).into_iter().flatten().map(|(place, item)| (place, &**item))
    }

    /// Whether the rules have looked at an object as it is now.
    pub fn is_judged(&self, kind: &'static str, namespace: &str, name: &str) -> bool {
        self.unjudged.is_empty() || !self.unjudged.contains(&(kind, place(namespace, name)))
    }

    /// One object.
    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<&Item> {
        self.items.get(kind)?.get(&place(namespace, name)).map(|item| &**item)
    }
}

/// What a change of an object means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Nothing that is looked at.
    Nothing,
    /// What is declared is as it was, but something was observed or written.
    Status,
    /// The rules must look again.
    World,
}

fn place(namespace: &str, name: &str) -> (String, String) {
    (namespace.to_owned(), name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::kinds::find;
    use super::*;

    fn host(status: Value, managers: Value) -> Value {
        json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": "a", "namespace": "n",
            "uid": "u", "resourceVersion": "1", "generation": 3, "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": managers}, "spec": {"online": true}, "status": status})
    }

    #[test]
    fn a_status_alone_does_not_wake_the_rules() {
        let watched = find("BareMetalHost").unwrap();
        let mut cache = Cache::default();
        assert_eq!(cache.put(watched, &host(Value::Null, Value::Null)), Change::World);
        assert_eq!(cache.put(watched, &host(Value::Null, Value::Null)), Change::Nothing);
        assert_eq!(cache.put(watched, &host(json!({"poweredOn": true}), Value::Null)), Change::Status);
        assert_eq!(cache.get("BareMetalHost", "n", "a").unwrap().value()["status"]["poweredOn"], true);
        assert_eq!(cache.retain(watched, &HashSet::new()), Change::World);
        assert_eq!(cache.remove(watched, "n", "a"), Change::Nothing);
    }

    #[test]
    fn a_status_that_another_controller_writes_is_its_own() {
        let cases = [
            (json!([{"manager": "kiln", "subresource": "status"}]), false),
            (json!([{"manager": "kubectl-edit", "subresource": "status"}]), false),
            (json!([{"manager": "baremetal-operator", "subresource": "status"}]), true),
            (json!([{"manager": "argocd"}]), false),
        ];
        for (managers, foreign) in cases {
            let item = Item::of(&host(Value::Null, managers.clone()), Use::Mirrored, &mut Sample::default());
            assert_eq!(item.foreign_status, foreign, "{managers}");
        }
    }
}
