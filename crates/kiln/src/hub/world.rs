//! The world as the API has it: the same [`World`] and the same findings that `kiln check` has of a folder.
//!
//! [`WorldCache`] is told of every change of an object ([`update`](WorldCache::update)) and gives, whenever somebody asks,
//! the world of all of them ([`judge`](WorldCache::judge)). Each object is a document called `baremetalhost/site/worker-0`;
//! [`kiln_api::build_world`] and [`kiln_core::check`] do the rest, so a folder and an API with the same objects are judged
//! by the same code. Whoever controls something asks for the world once per batch of changes, not once per change.
//!
//! What nobody reads is not kept: status, managed fields, uids, the copy `kubectl apply` keeps. A write that changes only
//! these does not change the cache, and `update` says so. An object that Kiln itself made from another kind (a Host owned
//! by a BareMetalHost) is left out: its origin speaks for it, and one machine must not count twice.
//!
//! **Invariant:** the contents of a Secret never enter the cache. Of each value only what a rule asks about is kept:
//! whether it is empty and whether it is a registry's credentials.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln_apiserver::packed::{Packed, Sample};
use kiln_core::check::check;
use kiln_core::diagnostic::{Diagnostic, ObjectId, attribute};
use kiln_core::document::Node;
use kiln_core::document::json::parse_json;
use kiln_core::provision::{Inputs, Provision};
use kiln_core::source::SourceMap;
use kiln_core::world::World;
use rpds::RedBlackTreeMapSync;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};

use super::pools::LABEL;

pub mod neighbours;

/// Which object. Versions of one group share their objects, so there is none here.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Empty for the core group.
    pub group: String,
    /// `BareMetalHost`.
    pub kind: String,
    /// Empty for cluster-wide objects.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl ObjectKey {
    /// The key of an object with `apiVersion`, `kind` and `metadata`.
    pub fn of(object: &Value) -> ObjectKey {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        ObjectKey {
            group: group_of(object["apiVersion"].as_str().unwrap_or_default()).to_owned(),
            kind: text(&object["kind"]),
            namespace: text(&metadata["namespace"]),
            name: text(&metadata["name"]),
        }
    }

    /// The object in the words of findings.
    pub fn id(&self) -> ObjectId {
        ObjectId { kind: self.kind.clone(), namespace: self.namespace.clone(), name: self.name.clone() }
    }

    /// What the document is called: `baremetalhost/site/worker-0`.
    pub(super) fn document_name(&self) -> String {
        let kind = self.kind.to_lowercase();
        if self.namespace.is_empty() {
            format!("{kind}/{}", self.name)
        } else {
            format!("{kind}/{}/{}", self.namespace, self.name)
        }
    }
}

/// A world and everything there is to say about it.
#[derive(Debug)]
pub struct JudgedWorld {
    /// What the objects declare.
    pub world: World,
    /// The documents, by name.
    pub sources: SourceMap,
    /// Every finding, with its object and field.
    pub findings: Vec<Diagnostic>,
}

impl JudgedWorld {
    /// The findings about one object.
    pub fn findings_of<'a>(&'a self, id: &'a ObjectId) -> impl Iterator<Item = &'a Diagnostic> {
        self.findings.iter().filter(move |finding| finding.object.as_ref() == Some(id))
    }
}

/// The objects that say something, each reduced to what is read. A clone costs nothing and shares what stays the same.
#[derive(Debug, Clone, Default)]
pub struct WorldCache {
    documents: RedBlackTreeMapSync<ObjectKey, Packed>,
    /// What the documents of each kind are packed by.
    samples: HashMap<String, Sample>,
}

/// Some of the objects, to be judged elsewhere while the cache goes on.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    documents: Vec<(ObjectKey, String)>,
}

impl FromIterator<(ObjectKey, String)> for Selection {
    fn from_iter<T: IntoIterator<Item = (ObjectKey, String)>>(documents: T) -> Selection {
        Selection { documents: documents.into_iter().collect() }
    }
}

impl Selection {
    /// Puts an object, as the rules read it, in the place of its namesake, or adds it.
    pub(super) fn with(mut self, key: ObjectKey, text: &str) -> Selection {
        self.documents.retain(|(other, _)| *other != key);
        self.documents.push((key, text.into()));
        self
    }

    /// How many they are.
    pub(super) fn len(&self) -> usize {
        self.documents.len()
    }

    /// Their world, and what cannot be read of it.
    pub(super) fn read(&self) -> JudgedWorld {
        let (world, sources, mut findings) = build(self.documents.iter().cloned());
        attribute(&mut findings, &world.objects, &sources);
        JudgedWorld { world, sources, findings }
    }

    /// Their world, and what is to be said about it.
    pub fn judge(&self) -> JudgedWorld {
        judge(self.documents.iter().cloned())
    }
}

impl WorldCache {
    /// Takes the newest state of an object, or forgets it. Says whether the world may have changed by it.
    pub fn update(&mut self, key: ObjectKey, object: Option<&Value>) -> bool {
        let Some(text) = object.and_then(document) else { return self.documents.remove_mut(&key) };
        let changed = self.documents.get(&key).is_none_or(|known| *known != *text.as_bytes());
        if changed {
            let packed = match self.samples.get_mut(&key.kind) {
                Some(sample) => sample.pack(text.as_bytes()),
                None => self.samples.entry(key.kind.clone()).or_default().pack(text.as_bytes()),
            };
            self.documents.insert_mut(key, packed);
        }
        changed
    }

    /// Takes the newest state of an object under its own name.
    pub fn put(&mut self, object: &Value) -> bool {
        self.update(ObjectKey::of(object), Some(object))
    }

    /// How many objects are kept.
    pub fn len(&self) -> usize {
        self.documents.size()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }

    /// Whether the object is kept.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        self.documents.contains_key(key)
    }

    /// The world of all objects, and what is to be said about it.
    pub fn judge(&self) -> JudgedWorld {
        judge(self.texts())
    }

    /// The same, together with what must be held ready for its nodes.
    pub fn judge_with(&self, inputs: Inputs<'_>) -> (JudgedWorld, Provision) {
        let (world, sources, mut findings) = build(self.texts());
        let (found, provision) = kiln_core::provision::judge(&world, inputs);
        findings.extend(found);
        attribute(&mut findings, &world.objects, &sources);
        findings.sort_by_key(|finding| (finding.at, finding.code));
        (JudgedWorld { world, sources, findings }, provision)
    }

    /// The world of all objects, and what could not be read of it.
    pub fn build(&self) -> (World, Vec<Diagnostic>) {
        let (world, _, findings) = build(self.texts());
        (world, findings)
    }

    fn texts(&self) -> impl Iterator<Item = (ObjectKey, String)> {
        self.documents.iter().map(|(key, packed)| (key.clone(), unpack(packed)))
    }
}

/// Only texts were packed.
fn unpack(packed: &Packed) -> String {
    String::from_utf8(packed.text().into_owned()).unwrap_or_default()
}

fn judge(documents: impl Iterator<Item = (ObjectKey, String)>) -> JudgedWorld {
    let (world, sources, mut findings) = build(documents);
    findings.extend(check(&world));
    attribute(&mut findings, &world.objects, &sources);
    findings.sort_by_key(|finding| (finding.at, finding.code));
    JudgedWorld { world, sources, findings }
}

fn build(documents: impl Iterator<Item = (ObjectKey, String)>) -> (World, SourceMap, Vec<Diagnostic>) {
    let (mut sources, mut findings) = (SourceMap::default(), Vec::new());
    let nodes: Vec<Node> = documents
        .filter_map(|(key, text)| {
            let file = sources.add(key.document_name(), text);
            let (node, problems) = parse_json(file, sources.file(file));
            findings.extend(problems);
            node
        })
        .collect();
    let (world, unread) = kiln_api::build_world(nodes, &mut sources);
    findings.extend(unread);
    (world, sources, findings)
}

/// The text of an object as the rules read it; none for one that says nothing.
pub(super) fn document(object: &Value) -> Option<String> {
    let key = ObjectKey::of(object);
    if !kiln_api::is_read(&key.group, &key.kind) || is_made_by_kiln(&key, object) || is_for_nodes(object) {
        return None;
    }
    let reduced = Reduced { object: object.as_object()?, is_secret: key.kind == "Secret" };
    serde_json::to_string(&reduced).ok()
}

/// An object without what nobody reads. It is written from where it is: this is done with every change of every object.
struct Reduced<'a> {
    object: &'a Map<String, Value>,
    is_secret: bool,
}

impl Serialize for Reduced<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.object {
            match name.as_str() {
                "status" => {}
                "metadata" => map.serialize_entry(name, &reduced_metadata(value))?,
                "data" | "stringData" if self.is_secret => {
                    map.serialize_entry(name, &without_contents(value, name == "data"))?;
                }
                _ => map.serialize_entry(name, value)?,
            }
        }
        map.end()
    }
}

/// Whether the object only repeats another one in Kiln's words.
fn is_made_by_kiln(key: &ObjectKey, object: &Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    key.group == kiln_api::NATIVE_GROUP
        && owners.into_iter().any(|owner| {
            let group = group_of(owner["apiVersion"].as_str().unwrap_or_default());
            group != key.group && kiln_api::is_read(group, owner["kind"].as_str().unwrap_or_default())
        })
}

/// Whether it is a Secret that Kiln made for nodes: it declares nothing, and there is one for each host.
pub(super) fn is_for_nodes(object: &Value) -> bool {
    object["kind"] == "Secret" && object["metadata"]["labels"][LABEL].is_string()
}

fn reduced_metadata(metadata: &Value) -> Value {
    let mut reduced = Map::new();
    for name in ["name", "namespace", "labels", "annotations"] {
        if let Some(value) = metadata.get(name) {
            reduced.insert(name.into(), value.clone());
        }
    }
    if let Some(Value::Object(annotations)) = reduced.get_mut("annotations") {
        annotations.shift_remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    Value::Object(reduced)
}

/// A stand-in for each value of a Secret: empty or not, credentials of a registry or not.
fn without_contents(data: &Value, encoded: bool) -> Value {
    let stand_in = |plain: &str| if encoded { STANDARD.encode(plain).into() } else { Value::from(plain) };
    let Value::Object(data) = data else { return json!({}) };
    data.iter()
        .map(|(name, value)| {
            let text = value.as_str().unwrap_or_default();
            let contents = if encoded { STANDARD.decode(text).unwrap_or_default() } else { text.as_bytes().to_vec() };
            let is_registry = name == ".dockerconfigjson"
                && serde_json::from_slice::<Value>(&contents).is_ok_and(|config| config["auths"].is_object());
            let kept = match (is_registry, text.is_empty()) {
                (true, _) => stand_in(r#"{"auths":{}}"#),
                (false, true) => "".into(),
                (false, false) => stand_in("x"),
            };
            (name.clone(), kept)
        })
        .collect()
}

fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, mac: &str) -> Value {
        json!({
            "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"name": name, "namespace": "site", "uid": name, "resourceVersion": "1"},
            "spec": {"online": true, "bootMACAddress": mac},
        })
    }

    fn codes(judged: &JudgedWorld, kind: &str, name: &str) -> Vec<String> {
        let id = ObjectId { kind: kind.into(), namespace: "site".into(), name: name.into() };
        judged.findings_of(&id).map(|finding| finding.code.to_string()).collect()
    }

    #[test]
    fn rules_over_several_objects_follow_every_change() {
        let mut cache = WorldCache::default();
        assert!(cache.put(&host("a", "52:54:00:00:00:01")));
        assert!(cache.put(&host("b", "52:54:00:00:00:01")));
        assert!(codes(&cache.judge(), "BareMetalHost", "b").contains(&"KLN0315".into()));
        assert!(cache.update(ObjectKey::of(&host("a", "")), None));
        assert!(!codes(&cache.judge(), "BareMetalHost", "b").contains(&"KLN0315".into()));
        assert_eq!(cache.judge().world.hosts.len(), 1);
    }

    #[test]
    fn a_write_of_the_status_changes_nothing() {
        let mut cache = WorldCache::default();
        let mut object = host("a", "52:54:00:00:00:01");
        assert!(cache.put(&object));
        object["status"] = json!({"provisioning": {"state": "ready"}});
        object["metadata"]["resourceVersion"] = "2".into();
        assert!(!cache.put(&object));
    }

    #[test]
    fn findings_name_object_and_field() {
        let mut cache = WorldCache::default();
        cache.put(&host("a", "52-54-00-00-00-01"));
        let judged = cache.judge();
        let found = judged.findings.iter().find(|finding| finding.code.to_string() == "KLN0060").unwrap();
        assert_eq!(found.field.as_deref(), Some("spec.bootMACAddress"));
        let at = found.at.unwrap();
        assert_eq!(judged.sources.file(at.file).name, "baremetalhost/site/a");
    }

    #[test]
    fn contents_of_secrets_are_not_kept_but_what_rules_ask_is() {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": "pull", "namespace": "site", "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "hunter2"}},
            "data": {".dockerconfigjson": STANDARD.encode(r#"{"auths":{"r":{"auth":"hunter2"}}}"#),
                "password": STANDARD.encode("hunter2"), "empty": ""},
        });
        let text = document(&secret).unwrap();
        assert!(!text.contains("hunter2") && !text.contains(&STANDARD.encode("hunter2")), "{text}");
        let mut cache = WorldCache::default();
        cache.put(&secret);
        let (world, _) = cache.build();
        let kept: Vec<(String, bool, Option<bool>)> =
            world.secrets[0].keys.iter().map(|key| (key.name.value.clone(), key.empty, key.docker_config)).collect();
        let expected = [
            (".dockerconfigjson".to_owned(), false, Some(true)),
            ("password".to_owned(), false, None),
            ("empty".to_owned(), true, None),
        ];
        assert_eq!(kept, expected);
    }

    #[test]
    fn a_host_made_from_a_dialect_does_not_count_twice() {
        let mut cache = WorldCache::default();
        cache.put(&host("a", "52:54:00:00:00:01"));
        let mirrored = json!({
            "apiVersion": "kiln.dev/v1alpha1", "kind": "Host",
            "metadata": {"name": "a", "namespace": "site", "ownerReferences": [
                {"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "name": "a", "uid": "a"}]},
            "spec": {"macAddress": "52:54:00:00:00:01"},
        });
        assert!(!cache.put(&mirrored));
        assert_eq!(cache.judge().world.hosts.len(), 1);
    }

    #[test]
    fn kinds_nobody_reads_are_not_kept() {
        let mut cache = WorldCache::default();
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "x"}});
        assert!(!cache.put(&lease) && cache.is_empty());
    }
}
