//! `SiteConfig` (ran.openshift.io/v1, v2): clusters of a site, rendered to the objects its generator makes.
//!
//! Its extra manifests are files in folders, which the generator packs into a ConfigMap of its own: they are read as
//! ordinary documents of the folder, and no reference to that ConfigMap is rendered.

use kiln_core::document::{Entry, Node, Value};
use kiln_core::source::{Location, Sourced};
use serde::Deserialize;

use crate::carried::Carried;
use crate::intake::Intake;
use crate::rendering::{self, ClusterRequest, ControlPlane, DiscoveryLayout, Extra, NodeRequest};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SiteConfigSpec {
    base_domain: Option<Node>,
    bios_config_ref: Carried,
    cluster_image_set_name_ref: Option<Node>,
    clusters: Vec<SiteCluster>,
    cr_annotations: CrAnnotations,
    cr_templates: Carried,
    pull_secret_ref: Option<Node>,
    ssh_private_key_secret_ref: Carried,
    ssh_public_key: Option<Node>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SiteCluster {
    #[serde(rename = "additionalNTPSources")]
    additional_ntp_sources: Option<Node>,
    #[serde(rename = "apiVIP")]
    api_vip: Option<Node>,
    #[serde(rename = "apiVIPs")]
    api_vips: Option<Node>,
    bios_config_ref: Carried,
    cluster_image_set_name_ref: Option<Node>,
    cluster_labels: Option<Node>,
    cluster_name: Option<Sourced<String>>,
    cluster_network: Option<Node>,
    cluster_profile: Carried,
    cluster_type: Carried,
    cpu_partitioning_mode: Carried,
    cr_annotations: CrAnnotations,
    cr_suppression: Vec<String>,
    cr_templates: Carried,
    disk_encryption: Carried,
    extra_manifest_only: Carried,
    extra_manifest_path: Carried,
    extra_manifests: Carried,
    hold_installation: Carried,
    ignition_config_override: Option<Node>,
    #[serde(rename = "ingressVIP")]
    ingress_vip: Option<Node>,
    #[serde(rename = "ingressVIPs")]
    ingress_vips: Option<Node>,
    install_config_overrides: Option<Node>,
    legacy_config: Carried,
    machine_network: Option<Node>,
    merge_default_machine_configs: Carried,
    network_type: Option<Node>,
    nodes: Vec<Sourced<SiteNode>>,
    num_masters: Carried,
    num_workers: Carried,
    proxy: Option<Node>,
    service_network: Option<Node>,
    site_config_map: Carried,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SiteNode {
    automated_cleaning_mode: Carried,
    bios_config_ref: Carried,
    bmc_address: Option<Node>,
    bmc_credentials_name: Option<SecretName>,
    #[serde(rename = "bootMACAddress")]
    boot_mac_address: Option<Node>,
    boot_mode: Option<Node>,
    cpuset: Carried,
    cr_annotations: CrAnnotations,
    cr_suppression: Vec<String>,
    cr_templates: Carried,
    disk_partition: Carried,
    host_name: Option<Sourced<String>>,
    ignition_config_override: Option<Node>,
    installer_args: Option<Node>,
    ironic_inspect: Option<Node>,
    node_labels: Option<Node>,
    node_network: Option<Node>,
    role: Option<Sourced<String>>,
    root_device_hints: Option<Node>,
    user_data: Carried,
}

/// `{name: …}`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SecretName {
    pub(crate) name: Option<Node>,
}

/// Annotations to add, by kind. The innermost level that speaks of a kind decides.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
struct CrAnnotations {
    add: Option<Node>,
}

pub(crate) fn render(root: &Node, intake: &mut Intake) -> Vec<Node> {
    let spec: SiteConfigSpec = intake.read_spec(root);
    spec.requests(root.at).iter().flat_map(rendering::render).collect()
}

impl SiteConfigSpec {
    fn requests(self, at: Location) -> Vec<ClusterRequest> {
        let SiteConfigSpec {
            base_domain,
            bios_config_ref: Carried,
            cluster_image_set_name_ref,
            clusters,
            cr_annotations,
            cr_templates: Carried,
            pull_secret_ref,
            ssh_private_key_secret_ref: Carried,
            ssh_public_key,
        } = self;
        clusters
            .into_iter()
            .filter_map(|cluster| {
                let request = cluster.request(at, &cr_annotations)?;
                Some(ClusterRequest {
                    base_domain: base_domain.clone(),
                    pull_secret_ref: pull_secret_ref.clone(),
                    image_set_name: request.image_set_name.or_else(|| cluster_image_set_name_ref.clone()),
                    ssh_public_key: ssh_public_key.clone(),
                    ..request
                })
            })
            .collect()
    }
}

impl SiteCluster {
    fn request(self, at: Location, site_annotations: &CrAnnotations) -> Option<ClusterRequest> {
        let SiteCluster {
            additional_ntp_sources,
            api_vip,
            api_vips,
            bios_config_ref: Carried,
            cluster_image_set_name_ref,
            cluster_labels,
            cluster_name,
            cluster_network,
            cluster_profile: Carried,
            cluster_type: Carried,
            cpu_partitioning_mode: Carried,
            cr_annotations,
            cr_suppression,
            cr_templates: Carried,
            disk_encryption: Carried,
            extra_manifest_only: Carried,
            extra_manifest_path: Carried,
            extra_manifests: Carried,
            hold_installation: Carried,
            ignition_config_override,
            ingress_vip,
            ingress_vips,
            install_config_overrides,
            legacy_config: Carried,
            machine_network,
            merge_default_machine_configs: Carried,
            network_type,
            nodes,
            num_masters: Carried,
            num_workers: Carried,
            proxy,
            service_network,
            site_config_map: Carried,
        } = self;
        let annotations = cr_annotations.over(site_annotations);
        Some(ClusterRequest {
            at,
            name: cluster_name.filter(|name| !name.is_empty())?,
            base_domain: None,
            pull_secret_ref: None,
            image_set_name: cluster_image_set_name_ref,
            ssh_public_key: None,
            api_vip,
            api_vips,
            ingress_vip,
            ingress_vips,
            cluster_network,
            machine_network,
            service_network,
            network_type,
            platform_type: None,
            install_config_overrides,
            ignition_config_override,
            cpu_architecture: None,
            proxy,
            ntp_sources: additional_ntp_sources,
            manifest_maps: None,
            labels: cluster_labels,
            suppressed: cr_suppression,
            nodes: nodes.into_iter().filter_map(|node| node.value.request(node.at, &annotations)).collect(),
            extra: annotations.extra(),
            control_plane: ControlPlane::Own,
            discovery: DiscoveryLayout::PerCluster,
        })
    }
}

impl SiteNode {
    fn request(self, at: Location, cluster_annotations: &CrAnnotations) -> Option<NodeRequest> {
        let SiteNode {
            automated_cleaning_mode: Carried,
            bios_config_ref: Carried,
            bmc_address,
            bmc_credentials_name,
            boot_mac_address,
            boot_mode,
            cpuset: Carried,
            cr_annotations,
            cr_suppression,
            cr_templates: Carried,
            disk_partition: Carried,
            host_name,
            ignition_config_override,
            installer_args,
            ironic_inspect,
            node_labels,
            node_network,
            role,
            root_device_hints,
            user_data: Carried,
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
            cpu_architecture: None,
            suppressed: cr_suppression,
            extra: cr_annotations.over(cluster_annotations).extra(),
        })
    }
}

impl CrAnnotations {
    /// These, and for kinds they do not speak of those of the level above.
    fn over(self, outer: &CrAnnotations) -> CrAnnotations {
        CrAnnotations { add: by_kind(self.add, outer.add.as_ref()) }
    }

    fn extra(self) -> Extra {
        let CrAnnotations { add } = self;
        Extra { annotations: add, labels: None }
    }
}

/// A map by kind over the map of the level above: a kind that is in the inner one is taken from there alone.
pub(crate) fn by_kind(inner: Option<Node>, outer: Option<&Node>) -> Option<Node> {
    let Some(mut inner) = inner else { return outer.cloned() };
    let missing: Vec<Entry> = outer
        .map(Node::entries)
        .unwrap_or_default()
        .iter()
        .filter(|entry| inner.get(&entry.key.value).is_none())
        .cloned()
        .collect();
    if let Value::Mapping(entries) = &mut inner.value {
        entries.extend(missing);
    }
    Some(inner)
}
