//! `Agent` (agent-install.openshift.io/v1beta1): a machine that reported itself.
//!
//! An observation, not a declaration: it is checked for misspelt fields and carried, and it makes no host.

use kiln_core::document::Node;
use kiln_core::world::Meta;
use serde::Deserialize;

use crate::carried::Carried;
use crate::intake::Intake;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AgentSpec {
    approved: Carried,
    cluster_deployment_name: Carried,
    fencing_credentials_secret_ref: Carried,
    hostname: Carried,
    ignition_config_overrides: Carried,
    #[serde(rename = "ignitionEndpointHTTPHeaders")]
    ignition_endpoint_http_headers: Carried,
    ignition_endpoint_token_reference: Carried,
    #[serde(rename = "installation_disk_id")]
    installation_disk_id: Carried,
    #[serde(rename = "installation_disk_path")]
    installation_disk_path: Carried,
    installer_args: Carried,
    machine_config_pool: Carried,
    node_labels: Carried,
    role: Carried,
}

pub(crate) fn read(root: &Node, _meta: Meta, intake: &mut Intake) {
    let AgentSpec {
        approved: Carried,
        cluster_deployment_name: Carried,
        fencing_credentials_secret_ref: Carried,
        hostname: Carried,
        ignition_config_overrides: Carried,
        ignition_endpoint_http_headers: Carried,
        ignition_endpoint_token_reference: Carried,
        installation_disk_id: Carried,
        installation_disk_path: Carried,
        installer_args: Carried,
        machine_config_pool: Carried,
        node_labels: Carried,
        role: Carried,
    } = intake.read_spec(root);
}
