//! `ConfigMap` (v1). Manifests inside it are read later, when it is known who refers to it.

use kiln_core::document::Node;
use kiln_core::world::{ConfigMap, Meta};
use serde::Deserialize;

use crate::carried::Carried;
use crate::intake::Intake;
use crate::manifest::ObjectMeta;
use crate::value;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ConfigMapManifest {
    api_version: Carried,
    binary_data: Carried,
    data: Option<Node>,
    immutable: Carried,
    kind: Carried,
    metadata: ObjectMeta,
}

pub(crate) fn read(root: &Node, meta: Meta, intake: &mut Intake) {
    let ConfigMapManifest {
        api_version: Carried,
        binary_data: Carried,
        data,
        immutable: Carried,
        kind: Carried,
        metadata,
    } = intake.read(root);
    metadata.carried();
    let data = value::labels(data.as_ref(), &mut intake.findings);
    if !intake.is_embedded() {
        intake.world.config_maps.push(ConfigMap { meta, data });
    }
}
