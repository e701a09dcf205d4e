//! The Secrets for nodes as they are written: objects to be created. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln_core::diagnostic::ObjectId;
use kiln_core::ignition::SpecVersion;
use kiln_core::ignition::pointer::{Header, PointerRequest, Reference, render_pointer};
use kiln_core::machine::System;
use kiln_core::payload::digest::Inputs;
use kiln_core::payload::overlay::Overlay;
use kiln_core::provision::{HostProvision, PoolConfig, PoolProvision, StoredPayload, names};
use kiln_core::timeline::Moment;
use serde_json::{Map, Value, json};

use super::held::annotation;
use super::{Endpoint, HOST_LABEL, LABEL, PAYLOAD_ANNOTATION, POOL_LABEL};
use crate::hub::timeline::render_time;

/// The longest value of a label.
const LONGEST_LABEL: usize = 63;
/// With this much in it a Secret is still taken.
const LARGEST_SECRET: usize = 1_000_000;

/// Who owns a Secret: kind and API version, name, uid.
#[derive(Debug, Clone, PartialEq)]
pub struct Owner {
    /// `kiln.dev/v1alpha1`.
    pub api_version: String,
    /// What it is.
    pub id: ObjectId,
    /// Which one.
    pub uid: String,
}

/// The value of a label; long names are cut and end in a hash.
pub fn label(name: &str) -> String {
    if name.len() <= LONGEST_LABEL {
        return name.to_owned();
    }
    let hash = Inputs::of("kiln label").with(name).digest().short();
    let end = (0..=LONGEST_LABEL - hash.len() - 1).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    format!("{}-{hash}", name[..end].trim_end_matches(['-', '.', '_']))
}

fn encode(bytes: impl AsRef<[u8]>) -> Value {
    STANDARD.encode(bytes).into()
}

fn owner_reference(owner: &Owner) -> Value {
    json!([{"apiVersion": owner.api_version, "kind": owner.id.kind, "name": owner.id.name, "uid": owner.uid}])
}

/// A pool's config. None when its bytes are not at hand.
pub fn payload(payload: &StoredPayload, owner: &Owner) -> Option<Value> {
    let packed = payload.packed.as_ref()?;
    let mut data = json!({"id": encode(payload.id.to_string()), "config": encode(packed)});
    if !payload.writers.is_empty() {
        data["writers"] = encode(json!(payload.writers).to_string());
    }
    if !payload.kubeconfigs.is_empty() {
        data["kubeconfigs"] = encode(json!(payload.kubeconfigs).to_string());
    }
    if payload.system != System::default() {
        data["system"] = encode(json!(payload.system).to_string());
    }
    Some(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kiln.dev/ignition-payload",
        "metadata": {"name": payload.name, "namespace": payload.namespace,
            "labels": {LABEL: "payload", POOL_LABEL: label(&payload.pool.name)}, "ownerReferences": owner_reference(owner)},
        "data": data,
    }))
}

/// The data of an overlay; the config is there when the host has one.
pub fn overlay_data(host: &HostProvision, overlay: &Overlay) -> Value {
    let mut data =
        json!({"id": encode(host.id.to_string()), "payload": encode(&host.payload), "files": encode(&overlay.files)});
    if let Some(config) = &overlay.config {
        data["config"] = encode(config);
    }
    data
}

/// What a host adds.
pub fn overlay(host: &HostProvision, overlay: &Overlay, owner: &Owner) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kiln.dev/ignition-overlay",
        "metadata": {"name": names::overlay(&host.host.name), "namespace": host.host.namespace,
            "labels": {LABEL: "overlay", HOST_LABEL: label(&host.host.name)}, "ownerReferences": owner_reference(owner)},
        "data": overlay_data(host, overlay),
    })
}

/// The key of a token Secret with the hash of its cluster's configuration.
pub const CONFIGURATION_HASH: &str = "hc-configuration-hash";

/// HyperShift's hashes of what else a token's config was made from; none where it is not known yet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hashes<'a> {
    /// Of the pull secret.
    pub pull_secret: Option<&'a str>,
    /// Of the additional authorities.
    pub trust_bundle: Option<&'a str>,
}

/// A pool's token, in HyperShift's form.
pub fn pool_token(
    pool: &PoolProvision,
    config: &PoolConfig,
    owner: &Owner,
    token: &str,
    hashes: Hashes<'_>,
    now: Moment,
) -> Value {
    let mut annotations = Map::new();
    annotations.insert(annotation::CONFIG.into(), "true".into());
    annotations.insert(annotation::NODE_POOL.into(), node_pool(pool).into());
    annotations.insert(annotation::GENERATED.into(), render_time(now).into());
    annotations.insert(PAYLOAD_ANNOTATION.into(), config.payload.clone().into());
    if let Some(kind) = &pool.upgrade_type {
        annotations.insert(annotation::UPGRADE_TYPE.into(), kind.clone().into());
    }
    let mut data = json!({
        "token": encode(token),
        "config": encode(STANDARD.encode(pack(&pool.manifests))),
        "reason": encode("AsExpected"),
        "message": encode(message(&config.notes)),
        CONFIGURATION_HASH: encode(&pool.configuration_hash),
        // There is no cloud here, and no stream was chosen: upstream writes nothing into these then.
        "cloud-config-hash": "",
        "os-stream": "",
    });
    if let Some(image) = &pool.release_image {
        data["release"] = encode(image);
    }
    if let Some(version) = &pool.release_version {
        data["release-version"] = encode(version);
    }
    for (key, hash) in [("pull-secret-hash", hashes.pull_secret), ("additional-trust-bundle-hash", hashes.trust_bundle)]
    {
        if let Some(hash) = hash {
            data[key] = encode(hash);
        }
    }
    if let Some(packed) = config.packed.as_ref().filter(|_| pool.upgrade_type.as_deref() == Some("InPlace")) {
        let payload = STANDARD.encode(packed);
        if payload.len() + pool.manifests.len() < LARGEST_SECRET {
            data["payload"] = encode(payload);
        }
    }
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": names::token(&pool.name, &config.hash), "namespace": pool.namespace, "annotations": annotations,
            "labels": {LABEL: "pool-token", POOL_LABEL: label(&pool.name)}, "ownerReferences": owner_reference(owner)},
        "data": data,
    })
}

/// What stands in `message` of a token, and in the condition that speaks of the payload.
pub fn message(notes: &[String]) -> String {
    match notes {
        [] => String::new(),
        notes => format!("Ignition has no word for these, so they are not in the payload: {}", notes.join(", ")),
    }
}

/// `namespace/name`, as HyperShift's header and annotation have it.
pub fn node_pool(pool: &PoolProvision) -> String {
    format!("{}/{}", pool.namespace, pool.name)
}

/// The pointer config with a pool's token. None when the endpoint's authorities cannot be pointed at.
pub fn pool_pointer(pool: &PoolProvision, config: &PoolConfig, endpoint: &Endpoint, token: &str) -> Option<String> {
    let header = |name: &str, value: String| Header { name: name.into(), value };
    let request = PointerRequest {
        source: format!("{}/ignition", endpoint.url.trim_end_matches('/')),
        reference: Reference::Merge,
        authorities: endpoint.authorities.clone(),
        headers: vec![
            header("Authorization", format!("Bearer {}", STANDARD.encode(token))),
            header("NodePool", node_pool(pool)),
            header("TargetConfigVersionHash", config.hash.clone()),
        ],
        verification: None,
        proxy: pool.proxy.clone(),
        version: SpecVersion::V3_2,
    };
    render_pointer(&request).ok()
}

/// The data of user-data. HyperShift encodes `true` twice.
pub fn user_data_data(pointer: &str) -> Value {
    json!({"value": encode(pointer), "disableTemplating": encode(STANDARD.encode("true"))})
}

/// A pool's pointer config, in HyperShift's form.
pub fn user_data(pool: &PoolProvision, config: &PoolConfig, owner: &Owner, pointer: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": names::user_data(&pool.name, &config.hash), "namespace": pool.namespace,
            "annotations": {annotation::NODE_POOL: node_pool(pool)},
            "labels": {LABEL: "user-data", POOL_LABEL: label(&pool.name)}, "ownerReferences": owner_reference(owner)},
        "data": user_data_data(pointer),
    })
}

fn pack(text: &str) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    // Writing to memory does not fail.
    encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_fit_and_stay_apart() {
        assert_eq!(label("workers"), "workers");
        let (one, two) = (label(&format!("{}a", "x".repeat(80))), label(&format!("{}b", "x".repeat(80))));
        assert!(one.len() <= 63 && one != two, "{one}");
    }
}
