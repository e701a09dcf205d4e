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
    /// Only what is declared.
    Declares,
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

/// Everything that is watched.
#[rustfmt::skip]
pub const WATCHED: &[Watched] = &[
    HOST,
    POOL,
    IMAGE,
    watched(KILN, "Site", "sites", Use::Own),
    watched(METAL3, "BareMetalHost", "baremetalhosts", Use::Mirrored),
    watched(METAL3, "Provisioning", "provisionings", Use::Declares),
    watched(AGENT_INSTALL, "AgentServiceConfig", "agentserviceconfigs", Use::Declares),
    watched(AGENT_INSTALL, "InfraEnv", "infraenvs", Use::Mirrored),
    watched(AGENT_INSTALL, "NMStateConfig", "nmstateconfigs", Use::Declares),
    watched(AGENT_INSTALL, "Agent", "agents", Use::MirroredEvidence),
    watched(("extensions.hive.openshift.io", "v1beta1"), "AgentClusterInstall", "agentclusterinstalls", Use::Mirrored),
    watched(HIVE, "ClusterDeployment", "clusterdeployments", Use::Declares),
    watched(HIVE, "ClusterImageSet", "clusterimagesets", Use::Declares),
    NODE_POOL,
    watched(HYPERSHIFT, "HostedCluster", "hostedclusters", Use::Declares),
    watched(MACHINE_CONFIG, "MachineConfig", "machineconfigs", Use::Declares),
    watched(MACHINE_CONFIG, "MachineConfigPool", "machineconfigpools", Use::Mirrored),
    watched(MACHINE_CONFIG, "KubeletConfig", "kubeletconfigs", Use::Declares),
    watched(("nmstate.io", "v1"), "NodeNetworkConfigurationPolicy", "nodenetworkconfigurationpolicies", Use::Mirrored),
    watched(("k8s.ovn.org", "v1"), "EgressIP", "egressips", Use::Declares),
    watched(("operator.openshift.io", "v1"), "IngressController", "ingresscontrollers", Use::Declares),
    watched(("cluster.open-cluster-management.io", "v1"), "ManagedCluster", "managedclusters", Use::Declares),
    watched(("agent.open-cluster-management.io", "v1"), "KlusterletAddonConfig", "klusterletaddonconfigs", Use::Declares),
    watched(("ran.openshift.io", "v1"), "SiteConfig", "siteconfigs", Use::Declares),
    watched(("siteconfig.open-cluster-management.io", "v1alpha1"), "ClusterInstance", "clusterinstances", Use::Declares),
    watched(CORE, "Namespace", "namespaces", Use::Declares),
    SECRET,
    CONFIG_MAP,
    NODE,
    CERTIFICATE_REQUEST,
];

/// The kind of that name. Names are unique among what is watched.
pub fn find(kind: &str) -> Option<&'static Watched> {
    WATCHED.iter().find(|watched| watched.kind == kind)
}
