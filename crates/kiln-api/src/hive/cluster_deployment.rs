//! `ClusterDeployment` (hive.openshift.io/v1): the name and domain of a cluster.
//!
//! It becomes part of the cluster whose AgentClusterInstall refers to it; that join is made when all is read.

use kiln_core::document::Node;
use kiln_core::source::Sourced;
use kiln_core::world::{Deployment, Meta};
use serde::Deserialize;

use crate::carried::Carried;
use crate::intake::Intake;
use crate::manifest::{LocalReference, local};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClusterDeploymentSpec {
    base_domain: Option<Sourced<String>>,
    bound_service_account_signing_key_secret_ref: Carried,
    certificate_bundles: Carried,
    cluster_install_ref: Option<ClusterInstallRef>,
    cluster_metadata: Carried,
    cluster_name: Option<Sourced<String>>,
    cluster_pool_ref: Carried,
    control_plane_config: Carried,
    hibernate_after: Carried,
    ingress: Carried,
    install_attempts_limit: Carried,
    installed: Option<Sourced<bool>>,
    #[serde(rename = "manageDNS")]
    manage_dns: Carried,
    platform: Carried,
    power_state: Carried,
    preserve_on_delete: Carried,
    provisioning: Carried,
    pull_secret_ref: Option<LocalReference>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClusterInstallRef {
    group: Carried,
    kind: Carried,
    name: Option<Sourced<String>>,
    version: Carried,
}

pub(crate) fn read(root: &Node, meta: Meta, intake: &mut Intake) {
    let spec: ClusterDeploymentSpec = intake.read_spec(root);
    intake.deployments.push(spec.convert(meta));
}

impl ClusterDeploymentSpec {
    fn convert(self, meta: Meta) -> Deployment {
        let ClusterDeploymentSpec {
            base_domain,
            bound_service_account_signing_key_secret_ref: Carried,
            certificate_bundles: Carried,
            cluster_install_ref,
            cluster_metadata: Carried,
            cluster_name,
            cluster_pool_ref: Carried,
            control_plane_config: Carried,
            hibernate_after: Carried,
            ingress: Carried,
            install_attempts_limit: Carried,
            installed,
            manage_dns: Carried,
            platform: Carried,
            power_state: Carried,
            preserve_on_delete: Carried,
            provisioning: Carried,
            pull_secret_ref,
        } = self;
        let install_ref = cluster_install_ref.and_then(|reference| {
            let ClusterInstallRef { group: Carried, kind: Carried, name, version: Carried } = reference;
            local(name)
        });
        Deployment {
            meta,
            cluster_name,
            base_domain,
            pull_secret: pull_secret_ref.and_then(LocalReference::convert),
            installed,
            install_ref,
        }
    }
}
