//! `kustomization.yaml`, as far as it says which objects there are.
//!
//! Carried out: `resources`, `bases`, `components` and `generators` (in zero-touch provisioning folders these are
//! SiteConfigs), `namespace`, `configMapGenerator`, `secretGenerator`. Generated names get no hash suffix, so that
//! references by the plain name, which kustomize rewrites, resolve. Everything else that would change an object is
//! reported as not applied. Nothing is fetched.

use std::path::{Path, PathBuf};

use kiln_core::diagnostic::{Code, Diagnostic};
use kiln_core::document::yaml::parse_yaml;
use kiln_core::document::{Entry, Node, Value};
use kiln_core::source::{Location, SourceMap, Sourced, Span};

use super::Loader;

/// How kustomize accepts its file to be called.
pub(super) const NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// Lists of files and folders that hold objects.
const LISTS: [&str; 4] = ["resources", "bases", "components", "generators"];

/// Fields that change no object, or are carried out here.
const HARMLESS: [&str; 12] = [
    "apiVersion",
    "kind",
    "metadata",
    "namespace",
    "configMapGenerator",
    "secretGenerator",
    "generatorOptions",
    "openapi",
    "buildMetadata",
    "sortOptions",
    "configurations",
    "crds",
];

/// Kinds without a namespace, which `namespace:` leaves alone.
const CLUSTER_SCOPED: [&str; 21] = [
    "AgentServiceConfig",
    "ClusterImageSet",
    "ClusterRole",
    "ClusterRoleBinding",
    "ClusterVersion",
    "CustomResourceDefinition",
    "DNS",
    "EgressIP",
    "Infrastructure",
    "KubeletConfig",
    "MachineConfig",
    "MachineConfigPool",
    "ManagedCluster",
    "Namespace",
    "Network",
    "Node",
    "NodeNetworkConfigurationPolicy",
    "PersistentVolume",
    "PriorityClass",
    "Provisioning",
    "StorageClass",
];

/// What the API server accepts in one ConfigMap or Secret.
const GENERATED_BYTES: usize = 1 << 20;

/// One parsed kustomization.
pub(super) struct Kustomization {
    folder: PathBuf,
    node: Node,
}

/// The kustomization of a folder.
pub(super) fn find(folder: &Path) -> Option<PathBuf> {
    NAMES.iter().map(|name| folder.join(name)).find(|path| path.is_file())
}

/// The local folders a kustomization includes. What is wrong with it is reported when it is read.
pub(super) fn included_folders(file: &Path) -> Vec<PathBuf> {
    let Some(folder) = file.parent() else { return Vec::new() };
    let small = std::fs::metadata(file).is_ok_and(|metadata| metadata.len() < 1 << 20);
    let Some(text) = small.then(|| std::fs::read_to_string(file).ok()).flatten() else { return Vec::new() };
    let mut sources = SourceMap::default();
    let id = sources.add("", text);
    let (documents, _) = parse_yaml(id, sources.file(id));
    let Some(node) = documents.into_iter().next() else { return Vec::new() };
    let kustomization = Kustomization { folder: folder.to_owned(), node };
    kustomization
        .listed()
        .filter_map(|item| item.as_str())
        .map(|item| folder.join(item))
        .filter(|path| path.is_dir())
        .collect()
}

impl Kustomization {
    /// The items of all lists of files and folders.
    fn listed(&self) -> impl Iterator<Item = &Node> {
        LISTS.iter().filter_map(|list| self.node.get(list)).flat_map(Node::items)
    }

    fn not_applied(&self) -> Vec<&Sourced<Box<str>>> {
        let known = |key: &str| LISTS.contains(&key) || HARMLESS.contains(&key);
        self.node.entries().iter().filter(|e| !known(&e.key.value) && !is_empty(&e.value)).map(|e| &e.key).collect()
    }
}

impl Loader {
    /// Reads what a kustomization lists and makes what it generates.
    pub(super) fn kustomization(&mut self, folder: &Path, file: &Path, listed: Option<Location>) {
        let Some(id) = self.read(file) else { return };
        let (documents, diagnostics) = parse_yaml(id, self.loaded.sources.file(id));
        self.loaded.diagnostics.extend(diagnostics);
        let Some(node) = documents.into_iter().next() else { return };
        let kustomization = Kustomization { folder: folder.to_owned(), node };
        let first_document = self.loaded.documents.len();
        self.open.push((super::real(folder), listed));
        for item in kustomization.listed() {
            self.resource(&kustomization, item);
        }
        self.open.pop();
        self.generate(&kustomization, "configMapGenerator", "ConfigMap", "data");
        self.generate(&kustomization, "secretGenerator", "Secret", "stringData");
        if let Some(namespace) = kustomization.node.get("namespace") {
            for document in &mut self.loaded.documents[first_document..] {
                set_namespace(document, namespace);
            }
        }
        self.report_not_applied(&kustomization);
    }

    fn resource(&mut self, kustomization: &Kustomization, item: &Node) {
        let Some(text) = item.as_str() else { return };
        // Generators may be written out in place.
        if text.contains('\n') {
            return;
        }
        if is_remote(text) {
            self.report(
                Diagnostic::new(Code(0026), item.at, format!("the remote resource `{text}` was not read"))
                    .cause("Kiln works offline")
                    .help("keep a local copy and list that, or check the output of `kustomize build`"),
            );
            return;
        }
        let path = kustomization.folder.join(text);
        if path.is_dir() {
            self.included(&path, item);
        } else if path.is_file() {
            self.file(&path);
        } else {
            self.missing(item, format!("`{text}` does not exist"));
        }
    }

    fn included(&mut self, folder: &Path, item: &Node) {
        let real = super::real(folder);
        if let Some((_, listed)) = self.open.iter().find(|(open, _)| *open == real) {
            let name = super::name(folder);
            let mut diagnostic = Diagnostic::new(
                Code(0025),
                item.at,
                format!("the kustomization in `{name}` includes itself through this entry"),
            )
            .cause("kustomize refuses kustomizations that include each other in a circle")
            .help("remove one of the entries of the circle");
            if let Some(listed) = listed {
                diagnostic = diagnostic.related(*listed, "it was included here");
            }
            self.report(diagnostic);
            return;
        }
        match find(folder) {
            Some(file) => self.kustomization(folder, &file, Some(item.at)),
            None => self.missing(item, format!("the folder `{}` has no kustomization.yaml", super::name(folder))),
        }
    }

    fn missing(&mut self, item: &Node, message: String) {
        self.report(
            Diagnostic::new(Code(0023), item.at, message)
                .cause("paths in a kustomization are relative to its folder, and `kustomize build` stops at one that is missing")
                .help("correct the path, or add what is missing"),
        );
    }

    fn report_not_applied(&mut self, kustomization: &Kustomization) {
        let fields = kustomization.not_applied();
        let Some(first) = fields.first() else { return };
        let names: Vec<String> = fields.iter().map(|field| format!("`{}`", field.value)).collect();
        let verb = if names.len() == 1 { "is" } else { "are" };
        self.report(
            Diagnostic::new(Code(0024), first.at, format!("{} {verb} not applied", names.join(", ")))
                .cause("Kiln reads the objects as they are written in the files of the kustomization")
                .help("to check the exact result, use `kustomize build … | kiln check -`"),
        );
    }

    /// The ConfigMaps or Secrets a kustomization generates.
    fn generate(&mut self, kustomization: &Kustomization, list: &str, kind: &str, data_field: &str) {
        for generator in kustomization.node.get(list).map_or(&[][..], Node::items) {
            let Some(name) = generator.get("name") else { continue };
            let mut data = Vec::new();
            for literal in generator.get("literals").map_or(&[][..], Node::items) {
                if let Some((key, value)) = literal.as_str().and_then(|text| text.split_once('=')) {
                    data.push(text_entry(key, value, literal.at));
                }
            }
            for field in ["files", "envs"] {
                for file in generator.get(field).map_or(&[][..], Node::items) {
                    self.generate_from_file(kustomization, file, field == "envs", &mut data);
                }
            }
            let mut metadata = vec![Entry { key: Sourced::new("name".into(), name.at), value: name.clone() }];
            metadata.extend(
                generator
                    .get("namespace")
                    .map(|n| Entry { key: Sourced::new("namespace".into(), n.at), value: n.clone() }),
            );
            let mut entries = vec![
                text_entry("apiVersion", "v1", generator.at),
                text_entry("kind", kind, generator.at),
                entry("metadata", Value::Mapping(metadata), generator.at),
                entry(data_field, Value::Mapping(data), generator.at),
            ];
            entries.extend(
                generator.get("type").map(|t| Entry { key: Sourced::new("type".into(), t.at), value: t.clone() }),
            );
            self.loaded.documents.push(Node { at: generator.at, value: Value::Mapping(entries) });
        }
    }

    fn generate_from_file(&mut self, kustomization: &Kustomization, item: &Node, is_env: bool, data: &mut Vec<Entry>) {
        let Some(text) = item.as_str() else { return };
        let (key, path) = match text.split_once('=') {
            Some((key, path)) if !is_env => (Some(key), path),
            _ => (None, text),
        };
        let full = kustomization.folder.join(path);
        if !full.is_file() {
            return self.missing(item, format!("`{path}` does not exist"));
        }
        // Read again even if another generator, or `resources`, has the same file; bytes that are no text stand for
        // `binaryData`, which nobody looks into.
        let content = match super::read_bounded(&full) {
            Ok(bytes) if bytes.len() <= GENERATED_BYTES => String::from_utf8_lossy(&bytes).into_owned(),
            Ok(_) => return self.missing(item, format!("`{path}` is larger than a ConfigMap may be (1 MiB)")),
            Err(error) => return self.unreadable(&full, &error),
        };
        if is_env {
            let lines = content.lines().filter(|line| !line.trim_start().starts_with('#'));
            data.extend(
                lines.filter_map(|line| line.split_once('=')).map(|(key, value)| text_entry(key, value, item.at)),
            );
            return;
        }
        let name = full.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let key = Sourced::new(key.unwrap_or(&name).into(), item.at);
        let span = Span::new(0, content.len() as u32);
        let value = Value::String(content.as_str().into());
        let file = self.loaded.sources.add(super::name(&full), content);
        data.push(Entry { key, value: Node { at: Location { file, span }, value } });
    }
}

fn set_namespace(document: &mut Node, namespace: &Node) {
    let kind = document.get("kind").and_then(Node::as_str).unwrap_or("");
    if CLUSTER_SCOPED.contains(&kind) {
        return;
    }
    let Value::Mapping(entries) = &mut document.value else { return };
    let Some(metadata) = entries.iter_mut().find(|entry| &*entry.key.value == "metadata") else { return };
    let Value::Mapping(fields) = &mut metadata.value.value else { return };
    match fields.iter_mut().find(|entry| &*entry.key.value == "namespace") {
        Some(entry) => entry.value = namespace.clone(),
        None => fields.push(Entry { key: Sourced::new("namespace".into(), namespace.at), value: namespace.clone() }),
    }
}

fn is_remote(text: &str) -> bool {
    text.contains("://") || text.contains("?ref=") || text.starts_with("github.com/") || text.starts_with("git@")
}

fn is_empty(node: &Node) -> bool {
    match &node.value {
        Value::Null => true,
        Value::Sequence(items) => items.is_empty(),
        Value::Mapping(entries) => entries.is_empty(),
        Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::String(_) => false,
    }
}

fn entry(key: &str, value: Value, at: Location) -> Entry {
    Entry { key: Sourced::new(key.into(), at), value: Node { at, value } }
}

fn text_entry(key: &str, text: &str, at: Location) -> Entry {
    entry(key, Value::String(text.into()), at)
}
