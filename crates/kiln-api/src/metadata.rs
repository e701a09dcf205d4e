//! What every object has: apiVersion, kind, and metadata with places.
//!
//! A wrong label must not cost the others, so all of it is taken from the document piece by piece; unknown fields of
//! metadata are noticed by [`crate::manifest::ObjectMeta`].

use kiln_core::diagnostic::{Code, Diagnostic, ObjectId};
use kiln_core::document::{Node, Value};
use kiln_core::source::{Location, SourceMap, Sourced};
use kiln_core::world::Meta;

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

/// Reads the header. None when the document cannot be an object at all.
pub(crate) fn header(root: &mut Node, intake: &mut Intake) -> Option<Header> {
    repair_key(root, "apiVersion", Code(51), &mut intake.findings);
    repair_key(root, "kind", Code(52), &mut intake.findings);
    if root.get("apiVersion").is_none() && root.get("kind").is_none() {
        intake.findings.push(
            Diagnostic::new(Code(27), root.at, "this document has neither apiVersion nor kind and is not checked")
                .help("add apiVersion and kind if it is meant to be an object; otherwise keep it outside this folder"),
        );
        return None;
    }
    let kind = text_field(root, "kind", Code(52), "add the kind, as in kind: BareMetalHost", &mut intake.findings)?;
    let guess = kinds::by_name(&kind).map(Kind::api_version);
    let help = match &guess {
        Some(api_version) => format!("write apiVersion: {api_version}"),
        None => "write the group and version of the kind, as in apiVersion: apps/v1".to_owned(),
    };
    let written = text_field(root, "apiVersion", Code(51), &help, &mut intake.findings);
    let known = match &written {
        Some(api_version) => kinds::identify(api_version, &kind, &mut intake.findings),
        None => kinds::by_name(&kind),
    };
    let name = known.map_or(kind.value.as_str(), |known| known.name);
    let meta = metadata(root, name, known, intake.sources, &mut intake.findings);
    Some(Header { api_version: written.map(|text| text.value).or(guess).unwrap_or_default(), kind: known, meta })
}

const TYPE_CAUSE: &str = "the API server takes the type of an object from apiVersion and kind and refuses it otherwise";

/// Gives a misspelt key its name back, so that the rest of the object can be read.
fn repair_key(root: &mut Node, field: &str, code: Code, findings: &mut Vec<Diagnostic>) {
    if root.get(field).is_some() {
        return;
    }
    let Value::Mapping(entries) = &mut root.value else { return };
    let meant = value::nearest(field, entries.iter().map(|entry| &*entry.key.value)).map(str::to_owned);
    let Some(entry) = entries.iter_mut().find(|entry| Some(&*entry.key.value) == meant.as_deref()) else { return };
    let key = std::mem::replace(&mut entry.key.value, field.into());
    findings.push(
        Diagnostic::new(code, entry.key.at, format!("there is no {field}, but there is `{key}`"))
            .cause(TYPE_CAUSE)
            .help(format!("write {field}: instead of {key}:")),
    );
}

/// A field at the top of a document that must hold text.
fn text_field(
    root: &Node,
    field: &str,
    code: Code,
    help: &str,
    findings: &mut Vec<Diagnostic>,
) -> Option<Sourced<String>> {
    let (at, message) = match root.get(field) {
        Some(node) => match node.as_str() {
            Some(text) if !text.is_empty() => return Some(Sourced::new(text.to_owned(), node.at)),
            Some(_) => (node.at, format!("{field} is empty")),
            None => (node.at, format!("{field} holds {}", node.kind_name())),
        },
        None => (root.at, format!("this object has no {field}")),
    };
    findings.push(Diagnostic::new(code, at, message).cause(TYPE_CAUSE).help(help));
    None
}

fn metadata(
    root: &Node,
    kind: &str,
    known: Option<&Kind>,
    sources: &SourceMap,
    findings: &mut Vec<Diagnostic>,
) -> Meta {
    let node = root.get("metadata");
    let part = |key| node.and_then(|node| node.get(key)).filter(|part| !part.is_null());
    let name = name(root, kind, part("name"), part("generateName"), sources, findings);
    let at = part("name").unwrap_or(root).at;
    // an empty text is no namespace to the API server either
    let written = part("namespace").filter(|node| node.as_str() != Some(""));
    let text = written.and_then(|node| text_of("namespace", kind, node, sources, findings));
    let namespace = match known.map(|known| known.scope) {
        // a rule reports the line, which changes nothing
        Some(Scope::Cluster) => None,
        Some(Scope::Namespaced) if written.is_none() => {
            findings.push(no_namespace(kind, at));
            None
        }
        _ => text,
    };
    Meta {
        id: ObjectId {
            kind: kind.to_owned(),
            namespace: namespace.unwrap_or_default(),
            name: name.unwrap_or_default(),
        },
        at,
        labels: value::labels(part("labels"), findings),
        annotations: value::labels(part("annotations"), findings),
    }
}

fn name(
    root: &Node,
    kind: &str,
    name: Option<&Node>,
    generated: Option<&Node>,
    sources: &SourceMap,
    findings: &mut Vec<Diagnostic>,
) -> Option<String> {
    match name {
        Some(node) => return text_of("name", kind, node, sources, findings),
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

/// The text of a name or namespace. Another scalar is reported and taken as the author meant it.
fn text_of(
    field: &str,
    kind: &str,
    node: &Node,
    sources: &SourceMap,
    findings: &mut Vec<Diagnostic>,
) -> Option<String> {
    if let Some(text) = node.as_str().filter(|text| !text.is_empty()) {
        return Some(text.to_owned());
    }
    let found = if node.as_str().is_some() { "empty" } else { node.kind_name() };
    let meant = written(node, sources);
    findings.push(
        Diagnostic::new(Code(53), node.at, format!("metadata.{field} of this {kind} is {found}"))
            .cause(format!(
                "the {field} of an object is a string that is not empty; the API server refuses anything else"
            ))
            .help(match &meant {
                Some(text) => format!("put it in quotes: {field}: \"{text}\""),
                None if field == "namespace" => "write a namespace of lower-case letters, digits and dashes".to_owned(),
                None => "write a name of lower-case letters, digits, dashes and dots".to_owned(),
            }),
    );
    meant
}

/// The words of a scalar as they stand in the file: YAML makes `true` of `on` and 16 of `0x10`.
fn written(node: &Node, sources: &SourceMap) -> Option<String> {
    let value = value::scalar_text(node)?;
    let span = node.at.span;
    let source = sources.file(node.at.file).text.get(span.start as usize..span.end as usize);
    let is_word = |text: &&str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-._".contains(&byte));
    Some(source.filter(is_word).map_or(value, str::to_owned)).filter(|text| !text.is_empty())
}

fn no_namespace(kind: &str, at: Location) -> Diagnostic {
    Diagnostic::new(Code(57), at, format!("this {kind} says no namespace"))
        .cause("it ends up in whatever namespace the one who applies it has chosen, and references from other objects may miss it")
        .help("add namespace: below metadata.name")
}
