//! Documents go in one by one; the world and the findings come out.
//!
//! Order matters in three places: SiteConfigs are rendered when all written documents are in (a written Namespace wins
//! over a rendered one), manifests inside ConfigMaps are read when all who refer to them are in, and ClusterDeployments
//! are joined last. Each document costs time in proportion to its size.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use kiln_core::diagnostic::{Code, Diagnostic, ObjectId};
use kiln_core::document::read;
use kiln_core::document::yaml::parse_yaml;
use kiln_core::document::{Node, Value};
use kiln_core::source::{FileId, Location, SourceMap, Sourced};
use kiln_core::world::{ConfigMap, Deployment, Meta, Object, PoolOrigin, Reference, World};
use serde::de::DeserializeOwned;

use crate::kinds::{Action, Kind};
use crate::manifest::Manifest;
use crate::metadata::{self, Header};
use crate::redaction::{blank_nested_secrets, blank_secret, hide_unread_secrets};
use crate::required::report_missing;

/// Reads all documents of a run. Embedded manifests are added to `sources`, secrets are made unreadable in it.
pub fn build_world(documents: Vec<Node>, sources: &mut SourceMap) -> (World, Vec<Diagnostic>) {
    let files: Vec<FileId> = sources.files().map(|(file, _)| file).collect();
    hide_unread_secrets(&files, &documents, sources);
    let mut intake = Intake {
        world: World::default(),
        findings: Vec::new(),
        deployments: Vec::new(),
        within: None,
        rendered: Vec::new(),
        seen: HashMap::new(),
        sources,
    };
    documents.into_iter().for_each(|document| intake.take(document));
    intake.take_rendered();
    intake.take_embedded();
    intake.join_deployments();
    (intake.world, without_repetition(intake.findings))
}

/// What was read so far.
pub(crate) struct Intake<'a> {
    pub(crate) world: World,
    pub(crate) findings: Vec<Diagnostic>,
    /// Not yet joined to their clusters.
    pub(crate) deployments: Vec<Deployment>,
    /// The object the current document was found in or rendered from.
    pub(crate) within: Option<ObjectId>,
    rendered: Vec<(ObjectId, Node)>,
    seen: HashMap<Identity, Location>,
    pub(crate) sources: &'a mut SourceMap,
}

/// Group, object, and the ConfigMap whose manifests go to another cluster.
type Identity = (String, ObjectId, Option<ObjectId>);

impl Intake<'_> {
    /// The spec of a custom resource; what cannot be read is reported and empty.
    pub(crate) fn read_spec<Spec: DeserializeOwned + Default>(&mut self, root: &Node) -> Spec {
        self.read::<Manifest<Spec>>(root).into_spec()
    }

    /// A value; what cannot be read is reported and empty.
    pub(crate) fn read<T: DeserializeOwned + Default>(&mut self, node: &Node) -> T {
        read(node, &mut self.findings).unwrap_or_default()
    }

    /// Whether the current document is a manifest for the cluster that is yet to be installed: its namespaces, secrets
    /// and config maps are not those of the hub, to which all references go.
    pub(crate) fn is_embedded(&self) -> bool {
        self.within.as_ref().is_some_and(|within| within.kind == "ConfigMap")
    }

    fn take(&mut self, document: Node) {
        match document.value {
            Value::Null => {}
            Value::Mapping(_) if is_list(&document) => self.take_items(document),
            Value::Mapping(_) => self.take_object(document),
            _ => self.findings.push(
                Diagnostic::new(
                    Code(50),
                    document.at,
                    format!("this document is {}, not an object", document.kind_name()),
                )
                .cause("a Kubernetes object is a mapping with apiVersion, kind and metadata")
                .help("write the object as a mapping, or put several objects under the items of a kind: List"),
            ),
        }
    }

    fn take_items(&mut self, list: Node) {
        let Value::Mapping(entries) = list.value else { return };
        for entry in entries.into_iter().filter(|entry| &*entry.key.value == "items") {
            if let Value::Sequence(items) = entry.value.value {
                items.into_iter().for_each(|item| self.take(item));
            }
        }
    }

    fn take_object(&mut self, mut root: Node) {
        let Some(Header { api_version, kind, meta }) = metadata::header(&mut root, self) else { return };
        let id = meta.id.clone();
        let first = self.is_first(&api_version, &id, meta.at);
        if let Some(kind) = kind.filter(|_| first) {
            // a rendered object lacks what its SiteConfig lacks, and there it is reported
            if self.within.is_none() || self.is_embedded() {
                report_missing(&root, kind, &mut self.findings);
            }
            self.act(kind, &root, meta);
        }
        match kind.map(|kind| kind.name) {
            Some("Secret") => blank_secret(&mut root, self.sources),
            Some(_) => {}
            None => blank_nested_secrets(&mut root, self.sources),
        }
        self.world.objects.push(Object { id, api_version, root, within: self.within.clone() });
    }

    fn act(&mut self, kind: &Kind, root: &Node, meta: Meta) {
        match kind.action {
            Action::Carry => {}
            Action::Read(read) => read(root, meta, self),
            Action::Render(render) => {
                let documents = render(root, self);
                self.rendered.extend(documents.into_iter().map(|document| (meta.id.clone(), document)));
            }
        }
    }

    /// Whether nothing of this name was read before. The second one is reported and left out.
    fn is_first(&mut self, api_version: &str, id: &ObjectId, at: Location) -> bool {
        if id.name.is_empty() {
            return true;
        }
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let elsewhere = self.within.clone().filter(|_| self.is_embedded());
        let first = match self.seen.entry((group.to_owned(), id.clone(), elsewhere)) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                entry.insert(at);
                return true;
            }
        };
        // whoever renders a Namespace does not mind that it is there
        if id.kind == "Namespace" && self.within.is_some() {
            return false;
        }
        let place = if id.namespace.is_empty() { id.name.clone() } else { format!("{}/{}", id.namespace, id.name) };
        self.findings.push(
            Diagnostic::new(Code(58), at, format!("{} {place} is declared twice", id.kind))
                .cause("whichever is applied last wins, and the order of files is nobody's promise")
                .help("keep one of the two, or give this one another name")
                .related(first, "declared here first; this is the one that is checked"),
        );
        false
    }

    fn take_rendered(&mut self) {
        for (origin, document) in std::mem::take(&mut self.rendered) {
            self.within = Some(origin);
            self.take(document);
        }
        self.within = None;
    }

    /// Reads the manifests in ConfigMaps that a cluster or a pool refers to, each ConfigMap once.
    fn take_embedded(&mut self) {
        let clusters = self.world.clusters.iter().flat_map(|cluster| {
            cluster.manifest_maps.iter().map(|map| (Carrier::Cluster, cluster.meta.id.namespace.clone(), map.clone()))
        });
        let pools =
            self.world.pools.iter().filter(|pool| pool.origin != PoolOrigin::MachineConfigPool).flat_map(|pool| {
                pool.config_maps.iter().map(|map| (Carrier::Pool, pool.meta.id.namespace.clone(), map.clone()))
            });
        let wanted: Vec<(Carrier, String, Reference)> = clusters.chain(pools).collect();
        let mut maps: HashMap<(String, String), ConfigMap> = self
            .world
            .config_maps
            .iter()
            .map(|map| ((map.meta.id.namespace.clone(), map.meta.id.name.clone()), map.clone()))
            .collect();
        for (carrier, namespace, reference) in wanted {
            if let Some(map) = maps.remove(&(namespace, reference.name.clone())) {
                self.take_manifests(carrier, map, &reference);
            }
        }
    }

    fn take_manifests(&mut self, carrier: Carrier, map: ConfigMap, reference: &Reference) {
        if carrier == Carrier::Pool && !map.data.contains_key("config") {
            self.findings.push(
                Diagnostic::new(Code(68), map.meta.at, format!("ConfigMap {} has no key `config`", map.meta.id.name))
                    .cause("the pool takes MachineConfigs only from the key `config` of the ConfigMaps it names")
                    .help("put the MachineConfigs under data: with the one key config:")
                    .related(reference.at, "named by the pool here"),
            );
        }
        self.within = Some(map.meta.id.clone());
        for (key, text) in &map.data {
            match (carrier, key.as_str()) {
                (Carrier::Pool, "config") => self.take_manifest(key, text),
                (Carrier::Pool, _) => {}
                (Carrier::Cluster, _) if is_manifest_name(key) => self.take_manifest(key, text),
                (Carrier::Cluster, _) if is_patch_name(key) => {}
                (Carrier::Cluster, _) => self.findings.push(
                    Diagnostic::new(Code(67), text.at, format!("`{key}` is not the name of a manifest"))
                        .cause("the installer takes only keys that end in .yaml, .yml or .json and refuses the cluster otherwise")
                        .help(format!("rename the key to {key}.yaml"))
                        .related(reference.at, "its ConfigMap is used for manifests here"),
                ),
            }
        }
        self.within = None;
    }

    fn take_manifest(&mut self, key: &str, text: &Sourced<String>) {
        let name = format!("{} (data.{key})", self.sources.file(text.at.file).name);
        let file = self.sources.embed(name, text.value.clone(), text.at);
        let (documents, problems) = parse_yaml(file, self.sources.file(file));
        self.findings.extend(problems);
        hide_unread_secrets(&[file], &documents, self.sources);
        documents.into_iter().for_each(|document| self.take(document));
        let left = &self.sources.file(file).text;
        if *left != text.value {
            let left = left.clone();
            self.replace_manifest(key, &left);
        }
    }

    /// A Secret was among the manifests of the current ConfigMap: the ConfigMap forgets it, too.
    fn replace_manifest(&mut self, key: &str, text: &str) {
        let Some(id) = &self.within else { return };
        let maps = self.world.config_maps.iter_mut().filter(|map| map.meta.id == *id);
        maps.filter_map(|map| map.data.get_mut(key)).for_each(|kept| kept.value = text.to_owned());
        for object in self.world.objects.iter_mut().filter(|object| object.id == *id) {
            replace_data(&mut object.root, key, text);
        }
    }

    /// Gives each cluster the ClusterDeployment it refers to; the others stay in the world on their own.
    fn join_deployments(&mut self) {
        let mut deployments: HashMap<(String, String), Deployment> = std::mem::take(&mut self.deployments)
            .into_iter()
            .map(|deployment| ((deployment.meta.id.namespace.clone(), deployment.meta.id.name.clone()), deployment))
            .collect();
        for cluster in &mut self.world.clusters {
            let Some(reference) = &cluster.deployment_ref else { continue };
            cluster.deployment = deployments.remove(&(cluster.meta.id.namespace.clone(), reference.name.clone()));
        }
        self.world.deployments = deployments.into_values().collect();
        self.world.deployments.sort_by_key(|deployment| deployment.meta.at);
    }
}

/// A value of a SiteConfig that goes into several objects is judged in each of them, and reported once.
fn without_repetition(mut findings: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let mut told = HashSet::new();
    findings.retain(|finding| told.insert((finding.code, finding.at, finding.message.clone())));
    findings
}

/// Who refers to a ConfigMap decides which of its keys are manifests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carrier {
    /// AgentClusterInstall: every key.
    Cluster,
    /// NodePool and Pool: the key `config`.
    Pool,
}

fn replace_data(root: &mut Node, key: &str, text: &str) {
    let Value::Mapping(entries) = &mut root.value else { return };
    for entry in entries.iter_mut().filter(|entry| &*entry.key.value == "data") {
        let Value::Mapping(data) = &mut entry.value.value else { continue };
        for entry in data.iter_mut().filter(|entry| &*entry.key.value == key) {
            entry.value.value = Value::String(text.into());
        }
    }
}

fn is_manifest_name(key: &str) -> bool {
    [".yaml", ".yml", ".json"].iter().any(|ending| key.ends_with(ending))
}

/// `99-x.yaml.patch_01`: a patch of one of the installer's own manifests, which are not known here.
fn is_patch_name(key: &str) -> bool {
    key.split_once(".patch_").is_some_and(|(manifest, _)| is_manifest_name(manifest))
}

fn is_list(document: &Node) -> bool {
    document.get("kind").and_then(Node::as_str).is_some_and(|kind| kind.ends_with("List"))
        && document.get("items").is_some_and(|items| matches!(items.value, Value::Sequence(_)))
}
