//! What every object has: apiVersion, kind, and metadata with places.

use kiln_core::diagnostic::{Code, Diagnostic, ObjectId};
use kiln_core::document::Node;
use kiln_core::source::Sourced;
use kiln_core::world::Meta;
use serde::Deserialize;

use crate::carried::Carried;
use crate::intake::Intake;
use crate::kinds::{self, Kind, Scope};
use crate::value;

/// A document's own words about what it is.
pub(crate) struct Header {
    /// As written, or as it should have been.
    pub(crate) api_version: String,
    /// None for a kind that is only carried.
    pub(crate) kind: Option<&'static Kind>,
    pub(crate) meta: Meta,
}

/// `metav1.ObjectMeta`. Name, namespace, labels and annotations are read from the document itself: a wrong label must
/// not cost the others.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ObjectMeta {
    annotations: Carried,
    creation_timestamp: Carried,
    deletion_grace_period_seconds: Carried,
    deletion_timestamp: Carried,
    finalizers: Carried,
    generate_name: Carried,
    generation: Carried,
    labels: Carried,
    managed_fields: Carried,
    name: Carried,
    namespace: Carried,
    owner_references: Carried,
    resource_version: Carried,
    self_link: Carried,
    uid: Carried,
}

/// Reads the header. None when the document cannot be an object at all.
pub(crate) fn header(root: &Node, intake: &mut Intake) -> Option<Header> {
    let (api_version, kind) = (root.get("apiVersion"), root.get("kind"));
    if api_version.is_none() && kind.is_none() && near_key(root, "apiVersion").is_none() {
        intake.findings.push(
            Diagnostic::new(Code(27), root.at, "this document has neither apiVersion nor kind and is not checked")
                .help("add apiVersion and kind if it is meant to be an object; otherwise keep it outside this folder"),
        );
        return None;
    }
    let kind = text_field(root, "kind", Code(52), "add the kind, as in kind: BareMetalHost", &mut intake.findings)?;
    let guess = kinds::by_name(&kind).map(Kind::api_version);
    let help = format!("add apiVersion: {}", guess.as_deref().unwrap_or("with the group and version of the kind"));
    let written = text_field(root, "apiVersion", Code(51), &help, &mut intake.findings);
    let known = match &written {
        Some(api_version) => kinds::identify(api_version, &kind, &mut intake.findings),
        None => kinds::by_name(&kind),
    };
    let name = known.map_or(kind.value.as_str(), |known| known.name);
    let meta = metadata(root, name, known, intake);
    Some(Header { api_version: written.map(|text| text.value).or(guess).unwrap_or_default(), kind: known, meta })
}

/// A field at the top of a document that must hold text. Help is for the case that it is missing.
fn text_field(
    root: &Node,
    field: &str,
    code: Code,
    help: &str,
    findings: &mut Vec<Diagnostic>,
) -> Option<Sourced<String>> {
    let cause = "the API server takes the type of an object from apiVersion and kind and refuses it otherwise";
    let problem = match root.get(field) {
        Some(node) => match node.as_str() {
            Some(text) if !text.is_empty() => return Some(Sourced::new(text.to_owned(), node.at)),
            _ => Diagnostic::new(code, node.at, format!("{field} holds {}", node.kind_name())).help(help),
        },
        None => match near_key(root, field) {
            Some(key) => Diagnostic::new(code, key.at, format!("there is no {field}, but there is `{key}`"))
                .help(format!("did you mean {field}? Write {field}: instead of {key}:")),
            None => Diagnostic::new(code, root.at, format!("this object has no {field}")).help(help),
        },
    };
    findings.push(problem.cause(cause));
    None
}

/// A key that was probably meant to be `field`.
fn near_key(root: &Node, field: &str) -> Option<Sourced<String>> {
    let keys = root.entries().iter().map(|entry| &entry.key);
    let name = value::nearest(field, keys.clone().map(|key| &*key.value))?;
    keys.into_iter().find(|key| &*key.value == name).map(|key| key.clone().map(String::from))
}

fn metadata(root: &Node, kind: &str, known: Option<&Kind>, intake: &mut Intake) -> Meta {
    let node = root.get("metadata");
    if let Some(node) = node {
        let ObjectMeta {
            annotations: Carried,
            creation_timestamp: Carried,
            deletion_grace_period_seconds: Carried,
            deletion_timestamp: Carried,
            finalizers: Carried,
            generate_name: Carried,
            generation: Carried,
            labels: Carried,
            managed_fields: Carried,
            name: Carried,
            namespace: Carried,
            owner_references: Carried,
            resource_version: Carried,
            self_link: Carried,
            uid: Carried,
        } = intake.read(node);
    }
    let findings = &mut intake.findings;
    let part = |key| node.and_then(|node| node.get(key)).filter(|part| !part.is_null());
    let name = name(root, kind, part("name"), part("generateName"), findings);
    let id = ObjectId {
        kind: kind.to_owned(),
        namespace: namespace(
            kind,
            known,
            part("namespace"),
            name.as_ref().map_or(root, |_| part("name").unwrap_or(root)),
            findings,
        ),
        name: name.map(|name| name.value).unwrap_or_default(),
    };
    Meta {
        id,
        at: part("name").unwrap_or(root).at,
        labels: value::labels(part("labels"), findings),
        annotations: value::labels(part("annotations"), findings),
    }
}

fn name(
    root: &Node,
    kind: &str,
    name: Option<&Node>,
    generated: Option<&Node>,
    findings: &mut Vec<Diagnostic>,
) -> Option<Sourced<String>> {
    match name {
        Some(node) if node.as_str().is_some_and(|name| !name.is_empty()) => {
            return node.as_str().map(|name| Sourced::new(name.to_owned(), node.at));
        }
        Some(node) => findings.push(
            Diagnostic::new(Code(53), node.at, format!("metadata.name of this {kind} is {}", node.kind_name()))
                .cause("the name of an object is a string; the API server refuses anything else")
                .help(match value::scalar_text(node).filter(|text| !text.is_empty()) {
                    Some(text) => format!("put it in quotes: name: \"{text}\""),
                    None => "write a name of lower-case letters, digits, dashes and dots".to_owned(),
                }),
        ),
        // kustomize and its kin describe a folder, not an object: they bear no name
        None if generated.is_some() || kind == "Kustomization" || kind == "Component" => {}
        None => findings.push(
            Diagnostic::new(Code(53), root.at, format!("this {kind} has no metadata.name"))
                .cause("every object is stored under its name; the API server refuses one without")
                .help("add metadata: with name: and a name of lower-case letters, digits, dashes and dots"),
        ),
    }
    None
}

/// The namespace the object will live in: none for kinds that have none, whatever was written.
fn namespace(
    kind: &str,
    known: Option<&Kind>,
    written: Option<&Node>,
    name: &Node,
    findings: &mut Vec<Diagnostic>,
) -> String {
    let text = written.and_then(Node::as_str).filter(|text| !text.is_empty());
    match (known.map(|known| known.scope), written, text) {
        (Some(Scope::Cluster), Some(node), _) => {
            findings.push(
                Diagnostic::new(Code(56), node.at, format!("{kind} has no namespaces, but one is written"))
                    .cause("the kind is cluster-scoped: the API server drops the namespace, and tools that compare the folder with the cluster see a difference for ever")
                    .help("remove the line with namespace:"),
            );
            String::new()
        }
        (Some(Scope::Namespaced), _, None) => {
            findings.push(
                Diagnostic::new(Code(57), name.at, format!("this {kind} says no namespace"))
                    .cause("it ends up in whatever namespace the one who applies it has chosen, and references from other objects may miss it")
                    .help("add namespace: below metadata.name"),
            );
            String::new()
        }
        _ => text.unwrap_or_default().to_owned(),
    }
}
