//! The kinds Kiln knows, and which one a document means.
//!
//! A kind that is not in [`KINDS`] is carried without a word, unless its name or its group is so close to a known one
//! that it must be a slip. Many names are shared (`NodePool` is also a Karpenter kind), so a known name in a foreign
//! group is taken for a slip only when the groups resemble each other.

use kiln_core::diagnostic::{Code, Diagnostic};
use kiln_core::document::Node;
use kiln_core::source::Sourced;
use kiln_core::world::Meta;

use crate::intake::Intake;
use crate::value::LONGEST_SLIP;
use crate::{
    agent_install, cluster_management, core, hive, hypershift, kiln, machine_config, metal3, nmstate_io, operator, ovn,
    ran, siteconfig,
};

/// Whether objects of a kind live in namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Cluster,
    Namespaced,
}

/// What is done with a document of a kind.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Action {
    /// Kept as it is.
    Carry,
    /// Read into the world.
    Read(fn(&Node, Meta, &mut Intake)),
    /// Turned into other documents, which are read as if they had been written.
    Render(fn(&Node, &mut Intake) -> Vec<Node>),
}

/// One kind.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// Empty for the core group.
    pub(crate) group: &'static str,
    /// The first one is suggested.
    pub(crate) versions: &'static [&'static str],
    pub(crate) scope: Scope,
    /// Fields the API server demands when their parent is there; `[]` stands for every item of a list.
    pub(crate) required: &'static [&'static str],
    pub(crate) action: Action,
}

use Action::{Carry, Read, Render};
use Scope::{Cluster, Namespaced};

const fn kind(
    (group, name): (&'static str, &'static str),
    versions: &'static [&'static str],
    scope: Scope,
    required: &'static [&'static str],
    action: Action,
) -> Kind {
    Kind { name, group, versions, scope, required, action }
}

const METAL3: &str = "metal3.io";
const AGENT_INSTALL: &str = "agent-install.openshift.io";
const HIVE: &str = "hive.openshift.io";
const HYPERSHIFT: &str = "hypershift.openshift.io";
const MACHINE_CONFIG: &str = "machineconfiguration.openshift.io";
const NMSTATE: &str = "nmstate.io";
/// The group of Kiln's own kinds.
pub const NATIVE_GROUP: &str = "kiln.dev";
const KILN: &str = NATIVE_GROUP;

#[rustfmt::skip]
pub(crate) const KINDS: &[Kind] = &[
    kind((METAL3, "BareMetalHost"), &["v1alpha1"], Namespaced,
        &["spec.online", "spec.bmc.address", "spec.bmc.credentialsName"], Read(metal3::bare_metal_host::read)),
    kind((METAL3, "Provisioning"), &["v1alpha1"], Cluster, &[], Read(metal3::provisioning::read)),
    kind((AGENT_INSTALL, "AgentServiceConfig"), &["v1beta1"], Cluster,
        &["spec.databaseStorage", "spec.filesystemStorage", "spec.osImages[].openshiftVersion",
          "spec.osImages[].version", "spec.osImages[].url"], Read(agent_install::agent_service_config::read)),
    kind((AGENT_INSTALL, "InfraEnv"), &["v1beta1"], Namespaced, &["spec.pullSecretRef"], Read(agent_install::infra_env::read)),
    kind((AGENT_INSTALL, "NMStateConfig"), &["v1beta1"], Namespaced,
        &["spec.interfaces[].name", "spec.interfaces[].macAddress"], Read(agent_install::nm_state_config::read)),
    kind((AGENT_INSTALL, "Agent"), &["v1beta1"], Namespaced, &[], Read(agent_install::agent::read)),
    kind(("extensions.hive.openshift.io", "AgentClusterInstall"), &["v1beta1"], Namespaced,
        &["spec.clusterDeploymentRef", "spec.networking", "spec.provisionRequirements",
          "spec.provisionRequirements.controlPlaneAgents", "spec.networking.clusterNetwork[].cidr",
          "spec.networking.machineNetwork[].cidr"], Read(hive::agent_cluster_install::read)),
    kind((HIVE, "ClusterDeployment"), &["v1"], Namespaced,
        &["spec.baseDomain", "spec.clusterName", "spec.platform"], Read(hive::cluster_deployment::read)),
    kind((HIVE, "ClusterImageSet"), &["v1"], Cluster, &["spec.releaseImage"], Read(hive::cluster_image_set::read)),
    kind((HYPERSHIFT, "NodePool"), &["v1beta1", "v1alpha1"], Namespaced,
        &["spec.clusterName", "spec.management", "spec.management.upgradeType", "spec.platform", "spec.platform.type",
          "spec.release", "spec.release.image"], Read(hypershift::node_pool::read)),
    kind((HYPERSHIFT, "HostedCluster"), &["v1beta1", "v1alpha1"], Namespaced, &[], Read(hypershift::hosted_cluster::read)),
    kind((MACHINE_CONFIG, "MachineConfig"), &["v1"], Cluster, &[], Read(machine_config::machine_config::read)),
    kind((MACHINE_CONFIG, "MachineConfigPool"), &["v1"], Cluster, &[], Read(machine_config::machine_config_pool::read)),
    kind((MACHINE_CONFIG, "KubeletConfig"), &["v1"], Cluster, &[], Read(machine_config::kubelet_config::read)),
    kind((NMSTATE, "NodeNetworkConfigurationPolicy"), &["v1", "v1beta1", "v1alpha1"], Cluster, &[],
        Read(nmstate_io::node_network_configuration_policy::read)),
    kind((NMSTATE, "NodeNetworkConfigurationEnactment"), &["v1beta1", "v1alpha1"], Cluster, &[], Carry),
    kind((NMSTATE, "NodeNetworkState"), &["v1beta1", "v1alpha1"], Cluster, &[], Carry),
    kind(("k8s.ovn.org", "EgressIP"), &["v1"], Cluster, &["spec.egressIPs", "spec.namespaceSelector"], Read(ovn::egress_ip::read)),
    kind(("operator.openshift.io", "IngressController"), &["v1"], Namespaced, &[], Read(operator::ingress_controller::read)),
    kind(("operator.openshift.io", "MachineConfiguration"), &["v1"], Cluster, &[], Read(operator::machine_configuration::read)),
    kind(("cluster.open-cluster-management.io", "ManagedCluster"), &["v1"], Cluster, &[],
        Read(cluster_management::managed_cluster::read)),
    kind(("agent.open-cluster-management.io", "KlusterletAddonConfig"), &["v1"], Namespaced, &[],
        Read(cluster_management::klusterlet_addon_config::read)),
    kind(("", "Namespace"), &["v1"], Cluster, &[], Read(core::namespace::read)),
    kind(("", "Secret"), &["v1"], Namespaced, &[], Read(core::secret::read)),
    kind(("", "ConfigMap"), &["v1"], Namespaced, &[], Read(core::config_map::read)),
    kind(("", "Node"), &["v1"], Cluster, &[], Read(core::node::read)),
    kind(("", "Event"), &["v1"], Namespaced, &[], Carry),
    kind(("coordination.k8s.io", "Lease"), &["v1"], Namespaced, &[], Carry),
    kind(("certificates.k8s.io", "CertificateSigningRequest"), &["v1"], Cluster, &[], Carry),
    kind(("apiextensions.k8s.io", "CustomResourceDefinition"), &["v1"], Cluster, &[], Carry),
    kind((KILN, "Host"), &["v1alpha1"], Namespaced, &["spec.bmc.address", "spec.nics[].name", "spec.nics[].macAddress"],
        Read(kiln::host::read)),
    kind((KILN, "Pool"), &["v1alpha1"], Namespaced, &[], Read(kiln::pool::read)),
    kind((KILN, "Site"), &["v1alpha1"], Cluster, &["spec.subnets"], Read(kiln::site::read)),
    kind((KILN, "Image"), &["v1alpha1"], Cluster, &["spec.url"], Read(kiln::image::read)),
    kind(("ran.openshift.io", "SiteConfig"), &["v1", "v2"], Namespaced,
        &["spec.baseDomain", "spec.clusters[].clusterName", "spec.clusters[].nodes[].hostName"],
        Render(ran::site_config::render)),
    kind(("siteconfig.open-cluster-management.io", "ClusterInstance"), &["v1alpha1"], Namespaced,
        &["spec.baseDomain", "spec.clusterName", "spec.clusterImageSetNameRef", "spec.nodes", "spec.pullSecretRef",
          "spec.templateRefs", "spec.nodes[].bmcAddress", "spec.nodes[].bmcCredentialsName",
          "spec.nodes[].bootMACAddress", "spec.nodes[].hostName", "spec.nodes[].templateRefs"],
        Render(siteconfig::cluster_instance::render)),
];

impl Kind {
    /// What should stand under `apiVersion`.
    pub(crate) fn api_version(&self) -> String {
        self.in_version(self.versions.first().copied().unwrap_or_default())
    }

    fn in_version(&self, version: &str) -> String {
        if self.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.group) }
    }
}

/// Whether objects of this kind say something that is read; all others are only carried.
pub fn is_read(group: &str, kind: &str) -> bool {
    let known = KINDS.iter().find(|known| known.name == kind && known.group == group);
    known.is_some_and(|known| !matches!(known.action, Action::Carry))
}

/// The kind of that name, when there is only one.
pub(crate) fn by_name(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name)
}

/// The kind a document means. A slip in its name or version is reported and seen through.
pub(crate) fn identify(
    api_version: &Sourced<String>,
    name: &Sourced<String>,
    findings: &mut Vec<Diagnostic>,
) -> Option<&'static Kind> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if let Some(kind) = KINDS.iter().find(|kind| kind.name == name.value && kind.group == group) {
        if !kind.versions.contains(&version) {
            findings.push(wrong_version(kind, api_version));
        }
        return Some(kind);
    }
    if let Some(kind) = KINDS.iter().find(|kind| kind.name == name.value && resembles(group, kind)) {
        findings.push(wrong_version(kind, api_version));
        return Some(kind);
    }
    let kind = KINDS.iter().find(|kind| kind.group == group && misspelt(name, kind.name))?;
    findings.push(
        Diagnostic::new(Code(54), name.at, format!("{api_version} has no kind `{name}`"))
            .cause("the API server refuses kinds it does not know, and letter case counts")
            .help(format!("did you mean kind: {}?", kind.name)),
    );
    Some(kind)
}

fn wrong_version(kind: &Kind, api_version: &Sourced<String>) -> Diagnostic {
    let served: Vec<String> = kind.versions.iter().map(|version| kind.in_version(version)).collect();
    Diagnostic::new(Code(55), api_version.at, format!("there is no {} in `{api_version}`", kind.name))
        .cause(format!("{} exists as {}; the API server refuses any other apiVersion", kind.name, served.join(" and ")))
        .help(format!("write apiVersion: {}", kind.api_version()))
}

/// Whether a foreign group was probably meant to be the kind's own.
fn resembles(group: &str, kind: &Kind) -> bool {
    let known = KINDS.iter().any(|other| other.group == group);
    let core_only = kind.group.is_empty() && matches!(kind.name, "Namespace" | "Secret" | "ConfigMap");
    let comparable = group.len().abs_diff(kind.group.len()) <= LONGEST_SLIP;
    known || core_only || comparable && strsim::normalized_damerau_levenshtein(group, kind.group) >= 0.6
}

/// One slip for short names, two for long ones. Sibling kinds such as MachineConfigNode are further away.
fn misspelt(written: &str, name: &str) -> bool {
    if written.len().abs_diff(name.len()) > LONGEST_SLIP {
        return false;
    }
    let slips = strsim::damerau_levenshtein(&written.to_lowercase(), &name.to_lowercase());
    slips <= (name.len() / 4).min(2)
}
