//! `AgentClusterInstall` (extensions.hive.openshift.io/v1beta1): the cluster as it shall be installed.
//!
//! The singular `apiVIP`, `ingressVIP` and `manifestsConfigMapRef` are deprecated upstream but still honoured when
//! their plural successors are empty; the world gets what counts and remembers that the old form was used.

use std::net::IpAddr;

use kiln_core::diagnostic::Diagnostic;
use kiln_core::document::Node;
use kiln_core::source::Sourced;
use kiln_core::world::{Cluster, Meta, Reference};
use serde::Deserialize;

use crate::carried::Carried;
use crate::intake::Intake;
use crate::manifest::{LocalReference, ProxySettings};
use crate::value;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AgentClusterInstallSpec {
    #[serde(rename = "apiVIP")]
    api_vip: Option<Sourced<String>>,
    #[serde(rename = "apiVIPs")]
    api_vips: Vec<Sourced<String>>,
    arbiter: Carried,
    cluster_deployment_ref: Option<LocalReference>,
    cluster_metadata: Carried,
    compute: Carried,
    control_plane: Carried,
    disk_encryption: Carried,
    external: Carried,
    fencing_credentials: Carried,
    hold_installation: Carried,
    ignition_endpoint: Carried,
    image_set_ref: Option<LocalReference>,
    #[serde(rename = "ingressVIP")]
    ingress_vip: Option<Sourced<String>>,
    #[serde(rename = "ingressVIPs")]
    ingress_vips: Vec<Sourced<String>>,
    load_balancer: Option<LoadBalancer>,
    manifests_config_map_ref: Option<LocalReference>,
    manifests_config_map_refs: Vec<LocalReference>,
    masters_schedulable: Carried,
    mirror_registry_ref: Carried,
    networking: Networking,
    ntp_sources: Carried,
    platform_type: Option<Sourced<String>>,
    provision_requirements: ProvisionRequirements,
    proxy: Option<ProxySettings>,
    ssh_public_key: Carried,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LoadBalancer {
    r#type: Option<Sourced<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Networking {
    cluster_network: Vec<ClusterNetworkEntry>,
    machine_network: Vec<MachineNetworkEntry>,
    network_type: Option<Sourced<String>>,
    service_network: Vec<Sourced<String>>,
    user_managed_networking: Option<Sourced<bool>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClusterNetworkEntry {
    cidr: Option<Sourced<String>>,
    host_prefix: Option<Sourced<u32>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MachineNetworkEntry {
    cidr: Option<Sourced<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ProvisionRequirements {
    arbiter_agents: Option<Sourced<u32>>,
    control_plane_agents: Option<Sourced<u32>>,
    worker_agents: Option<Sourced<u32>>,
}

pub(crate) fn read(root: &Node, meta: Meta, intake: &mut Intake) {
    let spec: AgentClusterInstallSpec = intake.read_spec(root);
    let cluster = spec.convert(meta, &mut intake.findings);
    intake.world.clusters.push(cluster);
}

impl AgentClusterInstallSpec {
    fn convert(self, meta: Meta, findings: &mut Vec<Diagnostic>) -> Cluster {
        let AgentClusterInstallSpec {
            api_vip,
            api_vips,
            arbiter: Carried,
            cluster_deployment_ref,
            cluster_metadata: Carried,
            compute: Carried,
            control_plane: Carried,
            disk_encryption: Carried,
            external: Carried,
            fencing_credentials: Carried,
            hold_installation: Carried,
            ignition_endpoint: Carried,
            image_set_ref,
            ingress_vip,
            ingress_vips,
            load_balancer,
            manifests_config_map_ref,
            manifests_config_map_refs,
            masters_schedulable: Carried,
            mirror_registry_ref: Carried,
            networking,
            ntp_sources: Carried,
            platform_type,
            provision_requirements,
            proxy,
            ssh_public_key: Carried,
        } = self;
        let Networking { cluster_network, machine_network, network_type, service_network, user_managed_networking } =
            networking;
        let ProvisionRequirements { arbiter_agents, control_plane_agents, worker_agents } = provision_requirements;
        let annotation = |name: &str| meta.annotations.get(&format!("agent-install.openshift.io/{name}")).cloned();

        let mut deprecated = Vec::new();
        let api_vips = vips(api_vips, api_vip, ("apiVIP", "apiVIPs"), &mut deprecated, findings);
        let ingress_vips = vips(ingress_vips, ingress_vip, ("ingressVIP", "ingressVIPs"), &mut deprecated, findings);
        let manifest_maps = manifest_maps(manifests_config_map_refs, manifests_config_map_ref, &mut deprecated);
        let platform_none = platform_type.filter(|platform| platform.value == "None");
        Cluster {
            deployment_ref: cluster_deployment_ref.and_then(LocalReference::convert),
            deployment: None,
            image_set: image_set_ref.and_then(LocalReference::convert),
            api_vips,
            ingress_vips,
            cluster_networks: cluster_network
                .into_iter()
                .filter_map(|ClusterNetworkEntry { cidr, host_prefix }| {
                    Some((value::network(cidr?, findings)?, host_prefix))
                })
                .collect(),
            service_networks: service_network.into_iter().filter_map(|cidr| value::network(cidr, findings)).collect(),
            machine_networks: machine_network
                .into_iter()
                .filter_map(|MachineNetworkEntry { cidr }| value::network(cidr?, findings))
                .collect(),
            network_type,
            user_managed_networking: user_managed_networking
                .or_else(|| platform_none.map(|platform| Sourced::new(true, platform.at))),
            user_managed_load_balancer: load_balancer
                .and_then(|LoadBalancer { r#type }| r#type)
                .is_some_and(|managed| managed.value == "UserManaged"),
            control_plane_agents,
            worker_agents,
            arbiter_agents,
            manifest_maps,
            install_config_overrides: annotation("install-config-overrides"),
            ignored_host_validations: annotation("ignored-host-validations"),
            proxy: proxy.map(ProxySettings::convert),
            deprecated,
            meta,
        }
    }
}

type Deprecated = Vec<(Sourced<String>, &'static str)>;

/// The plural field, or the singular one when the plural is empty.
fn vips(
    plural: Vec<Sourced<String>>,
    singular: Option<Sourced<String>>,
    (old, new): (&str, &'static str),
    deprecated: &mut Deprecated,
    findings: &mut Vec<Diagnostic>,
) -> Vec<Sourced<IpAddr>> {
    let singular = singular.filter(|vip| !vip.is_empty());
    if let Some(vip) = &singular {
        deprecated.push((Sourced::new(old.to_owned(), vip.at), new));
    }
    let counted = if plural.is_empty() { singular.into_iter().collect() } else { plural };
    counted.into_iter().filter_map(|vip| value::address(vip, findings)).collect()
}

fn manifest_maps(
    plural: Vec<LocalReference>,
    singular: Option<LocalReference>,
    deprecated: &mut Deprecated,
) -> Vec<Reference> {
    let singular = singular.and_then(LocalReference::convert);
    if let Some(reference) = &singular {
        let field = Sourced::new("manifestsConfigMapRef".to_owned(), reference.at);
        deprecated.push((field, "manifestsConfigMapRefs"));
    }
    let plural: Vec<_> = plural.into_iter().filter_map(LocalReference::convert).collect();
    if plural.is_empty() { singular.into_iter().collect() } else { plural }
}
