//! `Node` (v1): only its name and labels matter, for selectors.

use kiln_core::document::Node;
use kiln_core::world::{DeclaredNode, Meta};
use serde::Deserialize;

use crate::carried::Carried;
use crate::intake::Intake;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeSpec {
    config_source: Carried,
    #[serde(rename = "externalID")]
    external_id: Carried,
    #[serde(rename = "podCIDR")]
    pod_cidr: Carried,
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Carried,
    #[serde(rename = "providerID")]
    provider_id: Carried,
    taints: Carried,
    unschedulable: Carried,
}

pub(crate) fn read(root: &Node, meta: Meta, intake: &mut Intake) {
    let NodeSpec {
        config_source: Carried,
        external_id: Carried,
        pod_cidr: Carried,
        pod_cidrs: Carried,
        provider_id: Carried,
        taints: Carried,
        unschedulable: Carried,
    } = intake.read_spec(root);
    let within = intake.within.clone();
    intake.world.nodes.push(DeclaredNode { meta, within });
}
