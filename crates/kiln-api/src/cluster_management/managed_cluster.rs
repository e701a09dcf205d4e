//! `ManagedCluster` (cluster.open-cluster-management.io/v1): carried.

use kiln_core::document::Node;
use kiln_core::world::Meta;
use serde::Deserialize;

use crate::carried::Carried;
use crate::intake::Intake;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ManagedClusterSpec {
    hub_accepts_client: Carried,
    lease_duration_seconds: Carried,
    managed_cluster_client_configs: Carried,
    taints: Carried,
}

pub(crate) fn read(root: &Node, _meta: Meta, intake: &mut Intake) {
    let ManagedClusterSpec {
        hub_accepts_client: Carried,
        lease_duration_seconds: Carried,
        managed_cluster_client_configs: Carried,
        taints: Carried,
    } = intake.read_spec(root);
}
