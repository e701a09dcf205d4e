//! `Secret` (v1): which keys it has, never what is under them. Afterwards [`crate::redaction`] takes the values away.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln_core::document::Node;
use kiln_core::source::Sourced;
use kiln_core::world::{Meta, Secret, SecretKey};
use serde::Deserialize;

use crate::carried::Carried;
use crate::intake::Intake;
use crate::manifest::ObjectMeta;
use crate::redaction;

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

/// Reads the shape. `root` still has its values; they are taken away afterwards.
pub(crate) fn read(root: &Node, mut meta: Meta, intake: &mut Intake) {
    meta.annotations.remove(redaction::LAST_APPLIED);
    let SecretManifest { api_version: Carried, data, immutable: Carried, kind: Carried, metadata, string_data, r#type } =
        intake.read(root);
    metadata.carried();
    let keys = keys(data.as_ref(), decode).chain(keys(string_data.as_ref(), |text| Some(text.as_bytes().to_vec())));
    let secret = Secret { meta, kind: r#type, keys: keys.collect() };
    if !intake.is_embedded() {
        intake.world.secrets.push(secret);
    }
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
