//! The kinds the controllers watch, and what for.

use kube::api::ApiResource;

/// Where a kind is found in the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watched {
    /// Empty for the core group.
    pub group: &'static str,
    /// Version that is asked for.
    pub version: &'static str,
    /// `BareMetalHost`.
    pub kind: &'static str,
    /// `baremetalhosts`.
    pub plural: &'static str,
    /// What is remembered of its objects.
    pub use_: Use,
}

/// What is remembered of the objects of a kind, besides what they declare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Only what is declared: upstream gives the kind no status that could say more.
    Declares,
    /// What is declared; what the rules find in it is written as a condition.
    Checked,
    /// Its status is written by the controllers.
    Mirrored,
    /// Kiln's own: made from others or written by people; the whole object is compared.
    Own,
    /// It is evidence: status and spec are looked at, and it declares nothing.
    Evidence,
    /// Evidence with a status that is written.
    MirroredEvidence,
}

impl Watched {
    /// Whether the controllers write the status of its objects.
    pub const fn has_written_status(&self) -> bool {
        match self.use_ {
            Use::Checked | Use::Mirrored | Use::Own | Use::MirroredEvidence => true,
            Use::Declares | Use::Evidence => false,
        }
    }

    /// As kube-rs wants it.
    pub fn resource(&self) -> ApiResource {
        let api_version =
            if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) };
        ApiResource {
            group: self.group.into(),
            version: self.version.into(),
            api_version,
            kind: self.kind.into(),
            plural: self.plural.into(),
        }
    }

    /// `baremetalhosts.metal3.io`, `secrets`.
    pub fn resource_name(&self) -> String {
        format!("{}.{}", self.plural, self.group).trim_end_matches('.').to_owned()
    }

    /// `group/version`.
    pub fn api_version(&self) -> String {
        self.resource().api_version
    }
}

const fn watched(
    (group, version): (&'static str, &'static str),
    kind: &'static str,
    plural: &'static str,
    use_: Use,
) -> Watched {
    Watched { group, version, kind, plural, use_ }
}

const KILN: (&str, &str) = ("kiln.dev", "v1alpha1");
const METAL3: (&str, &str) = ("metal3.io", "v1alpha1");
const AGENT_INSTALL: (&str, &str) = ("agent-install.openshift.io", "v1beta1");
const MACHINE_CONFIG: (&str, &str) = ("machineconfiguration.openshift.io", "v1");
const HYPERSHIFT: (&str, &str) = ("hypershift.openshift.io", "v1beta1");
const HIVE: (&str, &str) = ("hive.openshift.io", "v1");
const CORE: (&str, &str) = ("", "v1");

/// Kiln's own Host.
pub const HOST: Watched = watched(KILN, "Host", "hosts", Use::Own);
/// Kiln's own Pool.
pub const POOL: Watched = watched(KILN, "Pool", "pools", Use::Own);
/// Kiln's own Image.
pub const IMAGE: Watched = watched(KILN, "Image", "images", Use::Own);

/// The pool of a hosted cluster.
pub const NODE_POOL: Watched = watched(HYPERSHIFT, "NodePool", "nodepools", Use::Mirrored);
/// Everything for nodes is in Secrets.
pub const SECRET: Watched = watched(CORE, "Secret", "secrets", Use::Declares);
/// Plain texts.
pub const CONFIG_MAP: Watched = watched(CORE, "ConfigMap", "configmaps", Use::Declares);
/// A node that has registered.
pub const NODE: Watched = watched(CORE, "Node", "nodes", Use::Evidence);
/// A request for a certificate.
pub const CERTIFICATE_REQUEST: Watched =
    watched(("certificates.k8s.io", "v1"), "CertificateSigningRequest", "certificatesigningrequests", Use::Evidence);

/// What nodes' networks shall be.
pub const NETWORK_POLICY: Watched =
    watched(("nmstate.io", "v1"), "NodeNetworkConfigurationPolicy", "nodenetworkconfigurationpolicies", Use::Mirrored);
/// What became of a policy on a node.
pub const ENACTMENT: Watched = watched(
    ("nmstate.io", "v1beta1"),
    "NodeNetworkConfigurationEnactment",
    "nodenetworkconfigurationenactments",
    Use::MirroredEvidence,
);
/// The network of a node as it is.
pub const NETWORK_STATE: Watched =
    watched(("nmstate.io", "v1beta1"), "NodeNetworkState", "nodenetworkstates", Use::MirroredEvidence);
/// Slots of nodes that are out.
pub const LEASE: Watched = watched(("coordination.k8s.io", "v1"), "Lease", "leases", Use::Evidence);
/// What only the rollout of networks reads and writes.
pub const OF_NETWORKS: &[Watched] = &[ENACTMENT, NETWORK_STATE, LEASE];

/// Everything that is watched.
#[rustfmt::skip]
pub const WATCHED: &[Watched] = &[
    HOST,
    POOL,
    IMAGE,
    watched(KILN, "Site", "sites", Use::Own),
    watched(METAL3, "BareMetalHost", "baremetalhosts", Use::Mirrored),
    watched(METAL3, "Provisioning", "provisionings", Use::Checked),
    watched(AGENT_INSTALL, "AgentServiceConfig", "agentserviceconfigs", Use::Checked),
    watched(AGENT_INSTALL, "InfraEnv", "infraenvs", Use::Mirrored),
    watched(AGENT_INSTALL, "NMStateConfig", "nmstateconfigs", Use::Checked),
    watched(AGENT_INSTALL, "Agent", "agents", Use::MirroredEvidence),
    watched(("extensions.hive.openshift.io", "v1beta1"), "AgentClusterInstall", "agentclusterinstalls", Use::Mirrored),
    watched(HIVE, "ClusterDeployment", "clusterdeployments", Use::Checked),
    watched(HIVE, "ClusterImageSet", "clusterimagesets", Use::Checked),
    NODE_POOL,
    watched(HYPERSHIFT, "HostedCluster", "hostedclusters", Use::Checked),
    watched(MACHINE_CONFIG, "MachineConfig", "machineconfigs", Use::Declares),
    watched(MACHINE_CONFIG, "MachineConfigPool", "machineconfigpools", Use::Mirrored),
    watched(MACHINE_CONFIG, "KubeletConfig", "kubeletconfigs", Use::Checked),
    NETWORK_POLICY,
    watched(("k8s.ovn.org", "v1"), "EgressIP", "egressips", Use::Declares),
    watched(("operator.openshift.io", "v1"), "MachineConfiguration", "machineconfigurations", Use::Checked),
    watched(("operator.openshift.io", "v1"), "IngressController", "ingresscontrollers", Use::Checked),
    watched(("cluster.open-cluster-management.io", "v1"), "ManagedCluster", "managedclusters", Use::Checked),
    watched(("agent.open-cluster-management.io", "v1"), "KlusterletAddonConfig", "klusterletaddonconfigs", Use::Checked),
    watched(("ran.openshift.io", "v1"), "SiteConfig", "siteconfigs", Use::Checked),
    watched(("siteconfig.open-cluster-management.io", "v1alpha1"), "ClusterInstance", "clusterinstances", Use::Checked),
    watched(CORE, "Namespace", "namespaces", Use::Declares),
    SECRET,
    CONFIG_MAP,
    NODE,
    CERTIFICATE_REQUEST,
];

/// The kind of that name. Names are unique among what is watched.
pub fn find(kind: &str) -> Option<&'static Watched> {
    WATCHED.iter().chain(OF_NETWORKS).find(|watched| watched.kind == kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_declared_kind_with_a_status_of_its_own_is_told_what_is_found_in_it() {
        let definitions = kiln_api::definitions::definitions().unwrap();
        let has_status = |watched: &Watched| {
            let name = format!("{}.{}", watched.plural, watched.group);
            let definition = definitions.iter().find(|definition| definition.name == name);
            definition.is_some_and(|found| found.manifest["spec"]["versions"][0]["subresources"]["status"].is_object())
        };
        for watched in WATCHED.iter().filter(|watched| watched.use_ != Use::Evidence) {
            assert_eq!(watched.has_written_status(), has_status(watched), "{}", watched.kind);
        }
        let without: Vec<&str> =
            WATCHED.iter().filter(|watched| watched.use_ == Use::Declares).map(|watched| watched.kind).collect();
        assert_eq!(without, ["MachineConfig", "EgressIP", "Namespace", "Secret", "ConfigMap"]);
    }
}
