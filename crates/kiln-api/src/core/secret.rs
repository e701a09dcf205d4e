//! `Secret` (v1): which keys it has, never what is under them.
//!
//! [`blank`] takes the values out of the document and makes them unreadable in the source text before anything else
//! sees either, so that no report, plan or log can repeat them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln_core::document::{Node, Value};
use kiln_core::source::{SourceMap, Sourced};
use kiln_core::world::{Meta, Secret, SecretKey};
use serde::Deserialize;

use crate::carried::Carried;
use crate::intake::Intake;
use crate::manifest::ObjectMeta;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SecretManifest {
    api_version: Carried,
    data: Option<Node>,
    immutable: Carried,
    kind: Carried,
    metadata: ObjectMeta,
    string_data: Option<Node>,
    r#type: Option<Sourced<String>>,
}

/// Reads the shape. `root` still has its values; the caller blanks it afterwards.
pub(crate) fn read(root: &Node, mut meta: Meta, intake: &mut Intake) {
    meta.annotations.remove(LAST_APPLIED);
    let SecretManifest { api_version: Carried, data, immutable: Carried, kind: Carried, metadata, string_data, r#type } =
        intake.read(root);
    metadata.carried();
    let keys = keys(data.as_ref(), decode).chain(keys(string_data.as_ref(), |text| Some(text.as_bytes().to_vec())));
    let secret = Secret { meta, kind: r#type, keys: keys.collect() };
    if !intake.is_embedded() {
        intake.world.secrets.push(secret);
    }
}

/// Where `kubectl apply` keeps a copy of the whole object, values included.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Empties every value of `data` and `stringData`, in the document and in the texts it came from.
pub(crate) fn blank(root: &mut Node, sources: &mut SourceMap) {
    for (key, value) in mapping(root) {
        match key {
            "data" | "stringData" if !value.entries().is_empty() => {
                mapping(value).for_each(|(_, secret)| blank_value(secret, sources));
            }
            "data" | "stringData" => blank_value(value, sources),
            "metadata" => mapping(value)
                .filter(|(key, _)| *key == "annotations")
                .flat_map(|(_, annotations)| mapping(annotations))
                .filter(|(key, _)| *key == LAST_APPLIED)
                .for_each(|(_, copy)| blank_value(copy, sources)),
            _ => {}
        }
    }
}

fn blank_value(node: &mut Node, sources: &mut SourceMap) {
    sources.redact(node.at);
    node.value = Value::Null;
}

fn mapping(node: &mut Node) -> impl Iterator<Item = (&str, &mut Node)> {
    let entries = if let Value::Mapping(entries) = &mut node.value { entries.as_mut_slice() } else { &mut [] };
    entries.iter_mut().map(|entry| (&*entry.key.value, &mut entry.value))
}

fn keys<'a>(
    map: Option<&'a Node>,
    decode: impl Fn(&str) -> Option<Vec<u8>> + 'a,
) -> impl Iterator<Item = SecretKey> + 'a {
    map.into_iter().flat_map(Node::entries).map(move |entry| {
        let content = entry.value.as_str().and_then(&decode);
        let name = entry.key.clone().map(String::from);
        SecretKey {
            empty: entry.value.is_null() || content.as_ref().is_some_and(Vec::is_empty),
            docker_config: (name.value == ".dockerconfigjson")
                .then(|| content.as_deref().is_some_and(is_docker_config)),
            name,
        }
    })
}

/// Base64 as Kubernetes reads it: line breaks are allowed.
fn decode(text: &str) -> Option<Vec<u8>> {
    let compact: String = text.chars().filter(|letter| !letter.is_ascii_whitespace()).collect();
    STANDARD.decode(compact).ok()
}

fn is_docker_config(content: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Value>(content)
        .is_ok_and(|config| config.get("auths").is_some_and(serde_json::Value::is_object))
}
