//! The world: everything the manifests declare, in Kiln's own words.
//!
//! Upstream kinds are translated into these types at the edge (`kiln-api`); rules and plans see nothing else.
//! Each value that a person wrote keeps its place. What could not be read is absent here and was reported there,
//! so a rule never sees a malformed MAC address, only a missing one.
//!
//! References stay names, as written: whether they lead anywhere is for the rules to say.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::diagnostic::ObjectId;
use crate::document::Node;
use crate::net::{InterfaceName, MacAddress};
use crate::source::{Location, Sourced};

/// Labels or annotations, each value with its place.
pub type Labels = BTreeMap<String, Sourced<String>>;

/// Everything that was declared.
#[derive(Debug, Default)]
pub struct World {
    /// Every document, acted on or carried, in the order read.
    pub objects: Vec<Object>,
    /// Machines.
    pub hosts: Vec<Host>,
    /// Networks declared for machines by MAC address (NMStateConfig).
    pub host_networks: Vec<HostNetwork>,
    /// Discovery environments (InfraEnv).
    pub discoveries: Vec<Discovery>,
    /// Clusters to be installed (AgentClusterInstall with its ClusterDeployment).
    pub clusters: Vec<Cluster>,
    /// ClusterDeployments that no AgentClusterInstall refers to.
    pub deployments: Vec<Deployment>,
    /// The discovery service's own settings (AgentServiceConfig).
    pub services: Vec<DiscoveryService>,
    /// Release images (ClusterImageSet).
    pub image_sets: Vec<ImageSet>,
    /// Groups of nodes that share config (MachineConfigPool, NodePool, Pool).
    pub pools: Vec<Pool>,
    /// Pieces of node config (MachineConfig), also those inside manifest ConfigMaps.
    pub machine_configs: Vec<MachineConfig>,
    /// What changes of node config take on running nodes (MachineConfiguration).
    pub disruption_policies: Vec<DisruptionPolicy>,
    /// Network policies for running nodes (NodeNetworkConfigurationPolicy).
    pub policies: Vec<Policy>,
    /// Ingress controllers, also those inside manifest ConfigMaps.
    pub ingresses: Vec<Ingress>,
    /// Egress addresses.
    pub egress_ips: Vec<EgressIp>,
    /// Declared Node objects: names and labels only.
    pub nodes: Vec<DeclaredNode>,
    /// Subnets and gateways that belong together (native Site).
    pub sites: Vec<Site>,
    /// Secrets: which keys they have, never their contents.
    pub secrets: Vec<Secret>,
    /// ConfigMaps with their texts.
    pub config_maps: Vec<ConfigMap>,
    /// Namespaces declared.
    pub namespaces: Vec<Meta>,
    /// metal3 Provisioning objects.
    pub provisionings: Vec<Provisioning>,
}

/// One document as it was written, for carrying and for naming fields in messages.
#[derive(Debug)]
pub struct Object {
    /// Kind, namespace, name.
    pub id: ObjectId,
    /// `group/version`.
    pub api_version: String,
    /// The whole document. The values of a Secret are blanked.
    pub root: Node,
    /// The ConfigMap it was found in, or the SiteConfig or ClusterInstance it was rendered from.
    pub within: Option<ObjectId>,
}

/// `metadata` of an object.
#[derive(Debug, Clone)]
pub struct Meta {
    /// Kind, namespace, name.
    pub id: ObjectId,
    /// Where `metadata.name` stands, or the object when it has none.
    pub at: Location,
    /// `metadata.labels`.
    pub labels: Labels,
    /// `metadata.annotations`.
    pub annotations: Labels,
}

/// What a host is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Runs the control plane.
    Master,
    /// Runs workloads.
    Worker,
    /// Votes only.
    Arbiter,
    /// Left to the installer.
    Auto,
}

/// A reference by name. An empty namespace means "the referrer's own".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Namespace, or empty.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Where the reference stands.
    pub at: Location,
}

/// One machine (BareMetalHost, native Host).
#[derive(Debug, Clone)]
pub struct Host {
    /// Name and labels.
    pub meta: Meta,
    /// Hostname it will have, when declared.
    pub hostname: Option<Sourced<String>>,
    /// Role, when declared.
    pub role: Option<Sourced<Role>>,
    /// Boot NIC.
    pub boot_mac: Option<Sourced<MacAddress>>,
    /// Management controller.
    pub bmc: Option<Bmc>,
    /// Discovery environment it boots from.
    pub discovery: Option<Reference>,
    /// Cluster it joins, when said on the host itself.
    pub cluster: Option<Reference>,
    /// Pool it is put into.
    pub pool: Option<Sourced<String>>,
    /// coreos-installer arguments as written: a JSON array in a string.
    pub installer_args: Option<Sourced<String>>,
    /// Ignition override as written: JSON in a string.
    pub ignition_override: Option<Sourced<String>>,
    /// Labels its Node will get.
    pub node_labels: Labels,
    /// Hints by name: `deviceName`, `wwn`, …
    pub disk_hints: Vec<(String, Sourced<String>)>,
    /// Whether the hints object stands at all, and where.
    pub disk_hints_at: Option<Location>,
    /// Inspection switched off (then the boot MAC is required).
    pub inspection_disabled: bool,
    /// UEFI, UEFISecureBoot, legacy.
    pub boot_mode: Option<Sourced<String>>,
    /// Kernel arguments of its installed system, when declared (native Host).
    pub kernel_arguments: Vec<Sourced<String>>,
    /// Network declared on the host itself: nmstate document (native Host).
    pub network: Option<Node>,
    /// Which NIC each logical name of that document stands for (native Host).
    pub nics: Vec<NicMapping>,
    /// Ignition config declared on the host itself (native Host).
    pub ignition: Option<Node>,
    /// Site it stands at (native Host).
    pub site: Option<Sourced<String>>,
    /// Names of BMH `preprovisioningNetworkDataName` or similar Secret.
    pub network_secret: Option<Reference>,
}

/// A management controller.
#[derive(Debug, Clone)]
pub struct Bmc {
    /// `redfish-virtualmedia+https://…`.
    pub address: Sourced<String>,
    /// Secret with `username` and `password`.
    pub credentials: Option<Reference>,
    /// TLS verification switched off.
    pub insecure: Option<Sourced<bool>>,
}

/// A network for the machine that has these MAC addresses.
#[derive(Debug, Clone)]
pub struct HostNetwork {
    /// Name and labels.
    pub meta: Meta,
    /// Logical name and address of each NIC it speaks of.
    pub interfaces: Vec<NicMapping>,
    /// The nmstate document.
    pub document: Option<Node>,
}

/// Which NIC a logical name stands for.
#[derive(Debug, Clone)]
pub struct NicMapping {
    /// Name used in the document.
    pub name: Sourced<InterfaceName>,
    /// Address of the NIC.
    pub mac: Sourced<MacAddress>,
}

/// A discovery image and what goes into it (InfraEnv).
#[derive(Debug, Clone)]
pub struct Discovery {
    /// Name and labels.
    pub meta: Meta,
    /// Cluster its hosts join.
    pub cluster: Option<Reference>,
    /// Pull secret.
    pub pull_secret: Option<Reference>,
    /// `matchLabels` that choose host networks; empty chooses none.
    pub network_selector: LabelSelector,
    /// NTP sources.
    pub ntp_sources: Vec<Sourced<String>>,
    /// Proxy.
    pub proxy: Option<Proxy>,
    /// Ignition override of the discovery image, JSON in a string.
    pub ignition_override: Option<Sourced<String>>,
    /// Kernel arguments: operation and value.
    pub kernel_arguments: Vec<(Sourced<String>, Sourced<String>)>,
    /// `x86_64`, `arm64`, …
    pub architecture: Option<Sourced<String>>,
    /// `osImageVersion`.
    pub os_image_version: Option<Sourced<String>>,
    /// SSH key.
    pub ssh_key: Option<Sourced<String>>,
    /// `additionalTrustBundle`.
    pub trust_bundle: Option<Sourced<String>>,
    /// `mirrorRegistryRef`.
    pub mirror_registry: Option<Reference>,
}

/// Proxy settings.
#[derive(Debug, Clone, Default)]
pub struct Proxy {
    /// `httpProxy`.
    pub http: Option<Sourced<String>>,
    /// `httpsProxy`.
    pub https: Option<Sourced<String>>,
    /// `noProxy`, as written.
    pub no_proxy: Option<Sourced<String>>,
}

/// A cluster to install.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// Name and labels of the AgentClusterInstall.
    pub meta: Meta,
    /// Its ClusterDeployment, by reference.
    pub deployment_ref: Option<Reference>,
    /// The ClusterDeployment, when it was found.
    pub deployment: Option<Deployment>,
    /// ClusterImageSet.
    pub image_set: Option<Reference>,
    /// API addresses.
    pub api_vips: Vec<Sourced<IpAddr>>,
    /// Ingress addresses.
    pub ingress_vips: Vec<Sourced<IpAddr>>,
    /// Pod networks with their host prefix.
    pub cluster_networks: Vec<(Sourced<IpNet>, Option<Sourced<u32>>)>,
    /// Service networks.
    pub service_networks: Vec<Sourced<IpNet>>,
    /// Machine networks.
    pub machine_networks: Vec<Sourced<IpNet>>,
    /// `OVNKubernetes`, …
    pub network_type: Option<Sourced<String>>,
    /// `userManagedNetworking` or platform None.
    pub user_managed_networking: Option<Sourced<bool>>,
    /// `loadBalancer.type: UserManaged`.
    pub user_managed_load_balancer: bool,
    /// Masters wanted.
    pub control_plane_agents: Option<Sourced<u32>>,
    /// Workers wanted.
    pub worker_agents: Option<Sourced<u32>>,
    /// Arbiters wanted.
    pub arbiter_agents: Option<Sourced<u32>>,
    /// Extra manifests.
    pub manifest_maps: Vec<Reference>,
    /// Annotation `install-config-overrides`, JSON in a string.
    pub install_config_overrides: Option<Sourced<String>>,
    /// Annotation `ignored-host-validations`.
    pub ignored_host_validations: Option<Sourced<String>>,
    /// Proxy.
    pub proxy: Option<Proxy>,
    /// Deprecated fields in use: name of the field and its successor.
    pub deprecated: Vec<(Sourced<String>, &'static str)>,
}

/// A ClusterDeployment.
#[derive(Debug, Clone)]
pub struct Deployment {
    /// Name and labels.
    pub meta: Meta,
    /// `clusterName`.
    pub cluster_name: Option<Sourced<String>>,
    /// `baseDomain`.
    pub base_domain: Option<Sourced<String>>,
    /// Pull secret.
    pub pull_secret: Option<Reference>,
    /// `installed`, when written.
    pub installed: Option<Sourced<bool>>,
    /// `clusterInstallRef.name`.
    pub install_ref: Option<Reference>,
}

/// The discovery service's settings.
#[derive(Debug, Clone)]
pub struct DiscoveryService {
    /// Name, labels, annotations.
    pub meta: Meta,
    /// `(openshiftVersion, cpuArchitecture, url)` of each OS image.
    pub os_images: Vec<OsImage>,
    /// ConfigMap with environment overrides (`DISABLED_HOST_VALIDATIONS`).
    pub environment_map: Option<Reference>,
}

/// One OS image of the discovery service.
#[derive(Debug, Clone)]
pub struct OsImage {
    /// `4.9`.
    pub openshift_version: Sourced<String>,
    /// `x86_64`.
    pub architecture: Option<Sourced<String>>,
    /// Where it is downloaded from.
    pub url: Option<Sourced<String>>,
}

/// A ClusterImageSet.
#[derive(Debug, Clone)]
pub struct ImageSet {
    /// Name.
    pub meta: Meta,
    /// Release image.
    pub release_image: Option<Sourced<String>>,
}

/// A label selector, evaluated by [`LabelSelector::matches`].
#[derive(Debug, Clone, Default)]
pub struct LabelSelector {
    /// `matchLabels`.
    pub labels: Labels,
    /// `matchExpressions`.
    pub expressions: Vec<Requirement>,
    /// Where the selector stands.
    pub at: Option<Location>,
}

/// One `matchExpressions` entry.
#[derive(Debug, Clone)]
pub struct Requirement {
    /// Label key.
    pub key: Sourced<String>,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, as written.
    pub operator: Sourced<String>,
    /// Values.
    pub values: Vec<Sourced<String>>,
}

impl LabelSelector {
    /// Whether it says nothing at all.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.expressions.is_empty()
    }

    /// Whether it chooses something with these labels, by the Kubernetes rules. An unknown operator chooses nothing.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        let listed = |requirement: &Requirement, value: &str| requirement.values.iter().any(|v| v.value == value);
        self.labels.iter().all(|(key, value)| label(key) == Some(value.value.as_str()))
            && self.expressions.iter().all(|requirement| {
                let found = label(&requirement.key);
                match requirement.operator.as_str() {
                    "In" => found.is_some_and(|value| listed(requirement, value)),
                    "NotIn" => !found.is_some_and(|value| listed(requirement, value)),
                    "Exists" => found.is_some(),
                    "DoesNotExist" => found.is_none(),
                    _ => false,
                }
            })
    }
}

/// What made a [`Pool`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolOrigin {
    /// machineconfiguration.openshift.io.
    MachineConfigPool,
    /// hypershift.openshift.io.
    NodePool,
    /// kiln.dev.
    Native,
}

/// Nodes that share config.
#[derive(Debug, Clone)]
pub struct Pool {
    /// Name and labels.
    pub meta: Meta,
    /// Which kind it was.
    pub origin: PoolOrigin,
    /// Which MachineConfigs (by labels of theirs).
    pub config_selector: LabelSelector,
    /// Which nodes.
    pub node_selector: LabelSelector,
    /// ConfigMaps with config (NodePool `spec.config`).
    pub config_maps: Vec<Reference>,
    /// Wanted size.
    pub replicas: Option<Sourced<u32>>,
    /// `None`, `Agent`, `AWS`, …
    pub platform: Option<Sourced<String>>,
    /// `InPlace` or `Replace`.
    pub upgrade_type: Option<Sourced<String>>,
    /// `autoRepair`.
    pub auto_repair: Option<Sourced<bool>>,
    /// HostedCluster name.
    pub cluster_name: Option<Sourced<String>>,
    /// Release image.
    pub release_image: Option<Sourced<String>>,
    /// Budget, as written.
    pub max_unavailable: Option<Sourced<String>>,
    /// nmstate document laid over the networks of its running hosts.
    pub network: Option<Node>,
    /// Running nodes are left as they are: `true`, or until this time.
    pub paused: Option<String>,
    /// Labels its nodes get (NodePool).
    pub node_labels: Labels,
    /// Taints its nodes register with.
    pub node_taints: Vec<Taint>,
    /// The Ignition config its own config is laid over.
    pub ignition: Option<IgnitionSource>,
    /// What the configs of its hosts say about their network.
    pub first_boot_network: FirstBootNetwork,
    /// The proxy its machines fetch their config through.
    pub proxy: Option<Proxy>,
    /// Whether each host asks for its certificate as a user of its own.
    pub own_bootstrap_user: bool,
    /// The manifest ConfigMap it was found in.
    pub within: Option<ObjectId>,
}

/// What a host's config says about its network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FirstBootNetwork {
    /// The host's own profiles, merged with those of its pool.
    #[default]
    Composed,
    /// Only what the pool's config has: what stock pipelines do. The host's own come from its image, if from anywhere.
    Stock,
}

/// A taint of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint {
    /// `dedicated`.
    pub key: String,
    /// May be empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// Where a pool's base config comes from. Objects are in the pool's namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IgnitionSource {
    /// The machine-config-server of an existing cluster.
    Upstream {
        /// `https://api-int.cluster.lab:22623/config/worker`.
        url: Sourced<String>,
        /// Secret with the authorities it is trusted by, under the key `ca.crt`.
        authority: Option<Reference>,
    },
    /// A Secret with a whole config.
    Secret(Reference),
    /// A ConfigMap with a whole config.
    ConfigMap(Reference),
}

/// One MachineConfig.
#[derive(Debug, Clone)]
pub struct MachineConfig {
    /// Name and labels.
    pub meta: Meta,
    /// Label `machineconfiguration.openshift.io/role`.
    pub role: Option<Sourced<String>>,
    /// `spec.config`: an Ignition config.
    pub config: Option<Node>,
    /// `spec.kernelArguments`.
    pub kernel_arguments: Vec<Sourced<String>>,
    /// `spec.extensions`.
    pub extensions: Vec<Sourced<String>>,
    /// `spec.fips`.
    pub fips: Option<Sourced<bool>>,
    /// `spec.kernelType`.
    pub kernel_type: Option<Sourced<String>>,
    /// `spec.osImageURL`.
    pub os_image_url: Option<Sourced<String>>,
    /// The manifest ConfigMap it was found in.
    pub within: Option<ObjectId>,
}

/// A network policy for running nodes.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Name and labels.
    pub meta: Meta,
    /// Equality-only node selector; empty chooses every node.
    pub node_selector: Labels,
    /// Where `spec.nodeSelector` stands.
    pub node_selector_at: Option<Location>,
    /// Captures by name.
    pub captures: Labels,
    /// nmstate document, perhaps with `{{ capture… }}` templates.
    pub desired: Option<Node>,
    /// Budget, as written.
    pub max_unavailable: Option<Sourced<String>>,
    /// What Kiln adds to upstream's policy, as written; [`crate::policy::NetworkPolicy`] reads it.
    pub kiln: Option<Node>,
}

/// What a MachineConfiguration says about running nodes. Only the one called `cluster` counts.
#[derive(Debug, Clone)]
pub struct DisruptionPolicy {
    /// Name and labels.
    pub meta: Meta,
    /// `spec.nodeDisruptionPolicy`.
    pub policy: Option<Node>,
    /// The manifest ConfigMap it was found in.
    pub within: Option<ObjectId>,
}

/// An IngressController.
#[derive(Debug, Clone)]
pub struct Ingress {
    /// Name and labels.
    pub meta: Meta,
    /// `spec.domain`.
    pub domain: Option<Sourced<String>>,
    /// `spec.nodePlacement.nodeSelector`.
    pub node_selector: Option<LabelSelector>,
    /// `spec.replicas`.
    pub replicas: Option<Sourced<u32>>,
    /// The manifest ConfigMap it was found in.
    pub within: Option<ObjectId>,
}

/// An EgressIP.
#[derive(Debug, Clone)]
pub struct EgressIp {
    /// Name and labels.
    pub meta: Meta,
    /// Addresses.
    pub addresses: Vec<Sourced<IpAddr>>,
}

/// A Node object in the manifests.
#[derive(Debug, Clone)]
pub struct DeclaredNode {
    /// Name and labels.
    pub meta: Meta,
    /// The manifest ConfigMap it was found in.
    pub within: Option<ObjectId>,
}

/// A place with its own subnets (native Site).
#[derive(Debug, Clone)]
pub struct Site {
    /// Name.
    pub meta: Meta,
    /// Subnets of the place.
    pub subnets: Vec<Sourced<IpNet>>,
    /// Gateways.
    pub gateways: Vec<Sourced<IpAddr>>,
}

/// A Secret's shape.
#[derive(Debug, Clone)]
pub struct Secret {
    /// Name and labels.
    pub meta: Meta,
    /// `type`.
    pub kind: Option<Sourced<String>>,
    /// Keys of `data` and `stringData`; whether the value is empty.
    pub keys: Vec<SecretKey>,
}

/// One key of a Secret.
#[derive(Debug, Clone)]
pub struct SecretKey {
    /// The key.
    pub name: Sourced<String>,
    /// Whether there is anything under it.
    pub empty: bool,
    /// For `.dockerconfigjson`: whether it is JSON with `auths`. None for other keys.
    pub docker_config: Option<bool>,
}

/// A ConfigMap's texts.
#[derive(Debug, Clone)]
pub struct ConfigMap {
    /// Name and labels.
    pub meta: Meta,
    /// `data`.
    pub data: Labels,
}

/// metal3 Provisioning.
#[derive(Debug, Clone)]
pub struct Provisioning {
    /// Name.
    pub meta: Meta,
    /// `watchAllNamespaces`.
    pub watch_all_namespaces: Option<Sourced<bool>>,
}
