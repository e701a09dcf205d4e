//! `ClusterInstance` (siteconfig.open-cluster-management.io/v1alpha1), rendered to the objects of its default templates.
//!
//! They give every node a discovery environment of its own, named like the host, where SiteConfig has one per cluster.

use kiln_core::document::{Node, Value};
use kiln_core::source::{Location, Sourced};
use serde::Deserialize;

use crate::carried::Carried;
use crate::intake::Intake;
use crate::ran::site_config::{SecretName, by_kind};
use crate::rendering::{self, ClusterRequest, ControlPlane, DiscoveryLayout, Extra, NodeRequest};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClusterInstanceSpec {
    #[serde(rename = "additionalNTPSources")]
    additional_ntp_sources: Option<Node>,
    #[serde(rename = "apiVIPs")]
    api_vips: Option<Node>,
    base_domain: Option<Node>,
    ca_bundle_ref: Carried,
    cluster_image_set_name_ref: Option<Node>,
    cluster_labels: Option<Node>,
    cluster_name: Option<Sourced<String>>,
    cluster_network: Option<Node>,
    cluster_type: Option<Sourced<String>>,
    cpu_architecture: Option<Node>,
    cpu_partitioning_mode: Carried,
    disk_encryption: Carried,
    extra_annotations: Option<Node>,
    extra_labels: Option<Node>,
    extra_manifests_refs: Option<Node>,
    hold_installation: Carried,
    ignition_config_override: Option<Node>,
    #[serde(rename = "ingressVIPs")]
    ingress_vips: Option<Node>,
    install_config_overrides: Option<Node>,
    machine_network: Option<Node>,
    network_type: Option<Node>,
    nodes: Vec<Sourced<InstanceNode>>,
    platform_type: Option<Node>,
    proxy: Option<Node>,
    prune_manifests: Carried,
    pull_secret_ref: Option<Node>,
    reinstall: Carried,
    service_network: Option<Node>,
    ssh_public_key: Option<Node>,
    suppressed_manifests: Vec<String>,
    template_refs: Carried,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct InstanceNode {
    automated_cleaning_mode: Carried,
    bmc_address: Option<Node>,
    bmc_credentials_name: Option<SecretName>,
    #[serde(rename = "bootMACAddress")]
    boot_mac_address: Option<Node>,
    boot_mode: Option<Node>,
    cpu_architecture: Option<Node>,
    extra_annotations: Option<Node>,
    extra_labels: Option<Node>,
    host_name: Option<Sourced<String>>,
    host_ref: Carried,
    ignition_config_override: Option<Node>,
    installer_args: Option<Node>,
    ironic_inspect: Option<Node>,
    node_labels: Option<Node>,
    node_network: Option<Node>,
    prune_manifests: Carried,
    role: Option<Sourced<String>>,
    root_device_hints: Option<Node>,
    suppressed_manifests: Vec<String>,
    template_refs: Carried,
}

pub(crate) fn render(root: &Node, intake: &mut Intake) -> Vec<Node> {
    let spec: ClusterInstanceSpec = intake.read_spec(root);
    spec.request(root.at).as_ref().map(rendering::render).unwrap_or_default()
}

impl ClusterInstanceSpec {
    fn request(self, at: Location) -> Option<ClusterRequest> {
        let ClusterInstanceSpec {
            additional_ntp_sources,
            api_vips,
            base_domain,
            ca_bundle_ref: Carried,
            cluster_image_set_name_ref,
            cluster_labels,
            cluster_name,
            cluster_network,
            cluster_type,
            cpu_architecture,
            cpu_partitioning_mode: Carried,
            disk_encryption: Carried,
            extra_annotations,
            extra_labels,
            extra_manifests_refs,
            hold_installation: Carried,
            ignition_config_override,
            ingress_vips,
            install_config_overrides,
            machine_network,
            network_type,
            nodes,
            platform_type,
            proxy,
            prune_manifests: Carried,
            pull_secret_ref,
            reinstall: Carried,
            service_network,
            ssh_public_key,
            suppressed_manifests,
            template_refs: Carried,
        } = self;
        let extra = Extra { annotations: extra_annotations, labels: extra_labels };
        let hosted = cluster_type.is_some_and(|topology| topology.value == "HostedControlPlane");
        Some(ClusterRequest {
            at,
            name: cluster_name.filter(|name| !name.is_empty())?,
            base_domain,
            pull_secret_ref,
            image_set_name: cluster_image_set_name_ref,
            ssh_public_key,
            api_vip: None,
            api_vips,
            ingress_vip: None,
            ingress_vips,
            cluster_network,
            machine_network,
            service_network: service_network.map(texts),
            network_type,
            platform_type,
            install_config_overrides,
            ignition_config_override,
            cpu_architecture,
            proxy,
            ntp_sources: additional_ntp_sources,
            manifest_maps: extra_manifests_refs,
            labels: cluster_labels,
            suppressed: suppressed_manifests,
            nodes: nodes.into_iter().filter_map(|node| node.value.request(node.at, &extra)).collect(),
            extra,
            control_plane: if hosted { ControlPlane::Hosted } else { ControlPlane::Own },
            discovery: DiscoveryLayout::PerNode,
        })
    }
}

impl InstanceNode {
    fn request(self, at: Location, cluster: &Extra) -> Option<NodeRequest> {
        let InstanceNode {
            automated_cleaning_mode: Carried,
            bmc_address,
            bmc_credentials_name,
            boot_mac_address,
            boot_mode,
            cpu_architecture,
            extra_annotations,
            extra_labels,
            host_name,
            host_ref: Carried,
            ignition_config_override,
            installer_args,
            ironic_inspect,
            node_labels,
            node_network,
            prune_manifests: Carried,
            role,
            root_device_hints,
            suppressed_manifests,
            template_refs: Carried,
        } = self;
        Some(NodeRequest {
            at,
            host_name: host_name.filter(|name| !name.is_empty())?,
            role,
            bmc_address,
            bmc_credentials: bmc_credentials_name.and_then(|secret| secret.name),
            boot_mac_address,
            boot_mode,
            root_device_hints,
            network: node_network,
            node_labels,
            installer_args,
            ignition_config_override,
            inspect: ironic_inspect,
            cpu_architecture,
            suppressed: suppressed_manifests,
            extra: Extra {
                annotations: by_kind(extra_annotations, cluster.annotations.as_ref()),
                labels: by_kind(extra_labels, cluster.labels.as_ref()),
            },
        })
    }
}

/// `[{cidr: …}]` becomes `[…]`: ClusterInstance wraps service networks, AgentClusterInstall does not.
fn texts(networks: Node) -> Node {
    let Node { at, value } = networks;
    let value = match value {
        Value::Sequence(items) => {
            Value::Sequence(items.into_iter().map(|item| item.get("cidr").cloned().unwrap_or(item)).collect())
        }
        other => other,
    };
    Node { at, value }
}
