//! What SiteConfig and ClusterInstance have in common: a request for a cluster, rendered to the objects that the
//! default templates of both projects make.
//!
//! The rendered documents consist of the request's own nodes, so every finding about them points at the line the person
//! wrote. What no line stands for (`online: true`) is placed at the value it follows from.
//! Templates of one's own (`crTemplates`, `templateRefs`) cannot be seen from here; the default ones are assumed.

use kiln_core::document::{Entry, Node, Value};
use kiln_core::source::{Location, Sourced};

use crate::value::scalar_text;

/// A cluster to be installed.
pub(crate) struct ClusterRequest {
    /// The whole SiteConfig or ClusterInstance: rendered objects stand where it stands.
    pub(crate) at: Location,
    pub(crate) name: Sourced<String>,
    pub(crate) base_domain: Option<Node>,
    pub(crate) pull_secret_ref: Option<Node>,
    pub(crate) image_set_name: Option<Node>,
    pub(crate) ssh_public_key: Option<Node>,
    pub(crate) api_vip: Option<Node>,
    pub(crate) api_vips: Option<Node>,
    pub(crate) ingress_vip: Option<Node>,
    pub(crate) ingress_vips: Option<Node>,
    pub(crate) cluster_network: Option<Node>,
    pub(crate) machine_network: Option<Node>,
    /// A list of texts.
    pub(crate) service_network: Option<Node>,
    pub(crate) network_type: Option<Node>,
    pub(crate) platform_type: Option<Node>,
    pub(crate) install_config_overrides: Option<Node>,
    pub(crate) ignition_config_override: Option<Node>,
    pub(crate) cpu_architecture: Option<Node>,
    pub(crate) proxy: Option<Node>,
    pub(crate) ntp_sources: Option<Node>,
    pub(crate) manifest_maps: Option<Node>,
    pub(crate) labels: Option<Node>,
    /// Kinds that shall not be rendered.
    pub(crate) suppressed: Vec<String>,
    /// Annotations and labels to add, by kind.
    pub(crate) extra: Extra,
    pub(crate) control_plane: ControlPlane,
    pub(crate) discovery: DiscoveryLayout,
    pub(crate) nodes: Vec<NodeRequest>,
}

/// Annotations and labels by kind.
#[derive(Clone, Default)]
pub(crate) struct Extra {
    pub(crate) annotations: Option<Node>,
    pub(crate) labels: Option<Node>,
}

/// Where the control plane runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ControlPlane {
    /// On the nodes of the request.
    Own,
    /// Elsewhere: nothing is installed, machines only join.
    Hosted,
}

/// How many discovery environments a cluster gets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiscoveryLayout {
    PerCluster,
    PerNode,
}

/// One machine of the cluster.
pub(crate) struct NodeRequest {
    pub(crate) at: Location,
    pub(crate) host_name: Sourced<String>,
    pub(crate) role: Option<Sourced<String>>,
    pub(crate) bmc_address: Option<Node>,
    /// The name of the Secret.
    pub(crate) bmc_credentials: Option<Node>,
    pub(crate) boot_mac_address: Option<Node>,
    pub(crate) boot_mode: Option<Node>,
    pub(crate) root_device_hints: Option<Node>,
    /// `interfaces` and `config`, just as NMStateConfig has them.
    pub(crate) network: Option<Node>,
    pub(crate) node_labels: Option<Node>,
    pub(crate) installer_args: Option<Node>,
    pub(crate) ignition_config_override: Option<Node>,
    pub(crate) inspect: Option<Node>,
    pub(crate) cpu_architecture: Option<Node>,
    pub(crate) suppressed: Vec<String>,
    pub(crate) extra: Extra,
}

impl NodeRequest {
    /// Both projects make a node without a role a master.
    fn role(&self) -> Sourced<String> {
        self.role.clone().unwrap_or_else(|| Sourced::new("master".to_owned(), self.host_name.at))
    }
}

/// The documents of one cluster.
pub(crate) fn render(request: &ClusterRequest) -> Vec<Node> {
    let mut documents = vec![managed_cluster(request)];
    if request.discovery == DiscoveryLayout::PerCluster {
        documents.push(namespace(request));
    }
    if request.control_plane == ControlPlane::Own {
        documents.extend([agent_cluster_install(request), cluster_deployment(request)]);
    }
    if request.discovery == DiscoveryLayout::PerCluster {
        documents.push(infra_env(request, &request.name, None));
    }
    documents.retain(|document| !is_suppressed(document, &request.suppressed));
    for node in &request.nodes {
        let mut own = Vec::new();
        let discovery = match request.discovery {
            DiscoveryLayout::PerCluster => &request.name,
            DiscoveryLayout::PerNode => {
                own.push(infra_env(request, &node.host_name, Some(node)));
                &node.host_name
            }
        };
        own.extend(node.network.as_ref().map(|network| nm_state_config(request, node, network, discovery)));
        own.push(bare_metal_host(request, node, discovery));
        own.retain(|document| {
            !is_suppressed(document, &request.suppressed) && !is_suppressed(document, &node.suppressed)
        });
        documents.append(&mut own);
    }
    documents
}

/// Only SiteConfig's generator makes one.
fn namespace(request: &ClusterRequest) -> Node {
    let spec = mapping(request.name.at, []);
    let object = Draft { kind: "Namespace", name: &request.name, labels: Vec::new(), annotations: Vec::new(), spec };
    object.finish("v1", None, request, &request.extra)
}

fn managed_cluster(request: &ClusterRequest) -> Node {
    let labels = request.labels.as_ref().map(Node::entries).unwrap_or_default().iter().cloned().map(as_text).collect();
    let spec = mapping(request.name.at, [("hubAcceptsClient", Some(truth(request.name.at)))]);
    let object = Draft { kind: "ManagedCluster", name: &request.name, labels, annotations: Vec::new(), spec };
    object.finish("cluster.open-cluster-management.io/v1", None, request, &request.extra)
}

fn agent_cluster_install(request: &ClusterRequest) -> Node {
    let at = request.name.at;
    let count = |role: &str| request.nodes.iter().filter(|node| *node.role() == role).count();
    let (masters, arbiters) = (count("master"), count("arbiter"));
    let workers = request.nodes.len() - masters - arbiters;
    // a single-node cluster is installed alone; its workers join afterwards
    let workers = if masters == 1 { 0 } else { workers };
    let networking = [
        ("clusterNetwork", request.cluster_network.clone()),
        ("machineNetwork", request.machine_network.clone()),
        ("serviceNetwork", request.service_network.clone()),
        ("networkType", request.network_type.clone()),
    ];
    let requirements = [
        ("controlPlaneAgents", Some(number(masters, at))),
        ("workerAgents", Some(number(workers, at))),
        ("arbiterAgents", (arbiters > 0).then(|| number(arbiters, at))),
    ];
    let spec = [
        ("clusterDeploymentRef", Some(name_reference(text(&request.name)))),
        ("imageSetRef", request.image_set_name.clone().map(name_reference)),
        ("apiVIP", request.api_vip.clone()),
        ("apiVIPs", request.api_vips.clone()),
        ("ingressVIP", request.ingress_vip.clone()),
        ("ingressVIPs", request.ingress_vips.clone()),
        ("networking", Some(mapping(at, networking))),
        ("platformType", request.platform_type.clone()),
        ("provisionRequirements", Some(mapping(at, requirements))),
        ("proxy", request.proxy.clone()),
        ("manifestsConfigMapRefs", request.manifest_maps.clone()),
        ("sshPublicKey", request.ssh_public_key.clone()),
    ];
    let overrides = ("agent-install.openshift.io/install-config-overrides", request.install_config_overrides.clone());
    let object = Draft {
        kind: "AgentClusterInstall",
        name: &request.name,
        labels: Vec::new(),
        annotations: entries([overrides]),
        spec: mapping(at, spec),
    };
    object.finish("extensions.hive.openshift.io/v1beta1", Some(&request.name), request, &request.extra)
}

fn cluster_deployment(request: &ClusterRequest) -> Node {
    let at = request.name.at;
    let install = |key: &'static str, value: &str| (key, Some(text(&Sourced::new(value.to_owned(), at))));
    let install_ref = [
        install("group", "extensions.hive.openshift.io"),
        install("version", "v1beta1"),
        install("kind", "AgentClusterInstall"),
        install("name", &request.name),
    ];
    let spec = [
        ("baseDomain", request.base_domain.clone()),
        ("clusterName", Some(text(&request.name))),
        ("clusterInstallRef", Some(mapping(at, install_ref))),
        ("platform", Some(mapping(at, [("agentBareMetal", Some(mapping(at, [])))]))),
        ("pullSecretRef", request.pull_secret_ref.clone()),
    ];
    let object = Draft {
        kind: "ClusterDeployment",
        name: &request.name,
        labels: Vec::new(),
        annotations: Vec::new(),
        spec: mapping(at, spec),
    };
    object.finish("hive.openshift.io/v1", Some(&request.name), request, &request.extra)
}

fn infra_env(request: &ClusterRequest, name: &Sourced<String>, node: Option<&NodeRequest>) -> Node {
    let at = name.at;
    let cluster = [("name", Some(text(&request.name))), ("namespace", Some(text(&request.name)))];
    let chosen = mapping(at, [("matchLabels", Some(mapping(at, [("nmstate-label", Some(text(name)))])))]);
    let architecture = node.and_then(|node| node.cpu_architecture.clone()).or_else(|| request.cpu_architecture.clone());
    let own_control_plane = request.control_plane == ControlPlane::Own;
    let spec = [
        ("clusterRef", own_control_plane.then(|| mapping(request.name.at, cluster))),
        ("pullSecretRef", request.pull_secret_ref.clone()),
        ("sshAuthorizedKey", request.ssh_public_key.clone()),
        ("proxy", request.proxy.clone()),
        ("ignitionConfigOverride", request.ignition_config_override.clone()),
        ("nmStateConfigLabelSelector", Some(chosen)),
        ("additionalNTPSources", request.ntp_sources.clone()),
        ("cpuArchitecture", architecture),
    ];
    let extra = node.map_or(&request.extra, |node| &node.extra);
    let object = Draft { kind: "InfraEnv", name, labels: Vec::new(), annotations: Vec::new(), spec: mapping(at, spec) };
    object.finish("agent-install.openshift.io/v1beta1", Some(&request.name), request, extra)
}

fn nm_state_config(request: &ClusterRequest, node: &NodeRequest, network: &Node, discovery: &Sourced<String>) -> Node {
    let object = Draft {
        kind: "NMStateConfig",
        name: &node.host_name,
        labels: entries([("nmstate-label", Some(text(discovery)))]),
        annotations: Vec::new(),
        spec: network.clone(),
    };
    object.finish("agent-install.openshift.io/v1beta1", Some(&request.name), request, &node.extra)
}

fn bare_metal_host(request: &ClusterRequest, node: &NodeRequest, discovery: &Sourced<String>) -> Node {
    let agent = |key: &str, value: Option<Node>| (format!("bmac.agent-install.openshift.io/{key}"), value);
    let mut annotations = entries([
        agent("hostname", Some(text(&node.host_name))),
        agent("role", Some(text(&node.role()))),
        agent("installer-args", node.installer_args.clone()),
        agent("ignition-config-overrides", node.ignition_config_override.clone()),
        ("inspect.metal3.io".to_owned(), node.inspect.clone()),
    ]);
    annotations.extend(node.node_labels.as_ref().map(Node::entries).unwrap_or_default().iter().cloned().map(|label| {
        let key = format!("bmac.agent-install.openshift.io.node-label.{}", label.key.value);
        as_text(Entry { key: Sourced::new(key.into(), label.key.at), ..label })
    }));
    let bmc_at = node.bmc_address.as_ref().map_or(node.at, |address| address.at);
    let bmc = [
        ("address", node.bmc_address.clone()),
        ("credentialsName", node.bmc_credentials.clone()),
        // both projects' templates switch verification off, whatever the site says
        ("disableCertificateVerification", Some(truth(bmc_at))),
    ];
    let spec = [
        ("bmc", Some(mapping(bmc_at, bmc))),
        ("bootMACAddress", node.boot_mac_address.clone()),
        ("bootMode", node.boot_mode.clone()),
        ("online", Some(truth(node.host_name.at))),
        ("rootDeviceHints", node.root_device_hints.clone()),
    ];
    let object = Draft {
        kind: "BareMetalHost",
        name: &node.host_name,
        labels: entries([("infraenvs.agent-install.openshift.io", Some(text(discovery)))]),
        annotations,
        spec: mapping(node.at, spec),
    };
    object.finish("metal3.io/v1alpha1", Some(&request.name), request, &node.extra)
}

/// An object before its frame is put around it.
struct Draft<'a> {
    kind: &'static str,
    name: &'a Sourced<String>,
    labels: Vec<Entry>,
    annotations: Vec<Entry>,
    spec: Node,
}

impl Draft<'_> {
    fn finish(
        self,
        api_version: &str,
        namespace: Option<&Sourced<String>>,
        request: &ClusterRequest,
        extra: &Extra,
    ) -> Node {
        let Draft { kind, name, labels, annotations, spec } = self;
        let at = name.at;
        let merged = |mut own: Vec<Entry>, added: &Option<Node>| {
            let added = added.as_ref().and_then(|kinds| kinds.get(kind)).map(Node::entries).unwrap_or_default();
            // the templates' own entries win over added ones
            let more: Vec<Entry> = added
                .iter()
                .filter(|entry| own.iter().all(|have| have.key.value != entry.key.value))
                .cloned()
                .collect();
            own.extend(more);
            Some(Node { at, value: Value::Mapping(own) })
        };
        let metadata = [
            ("name", Some(text(name))),
            ("namespace", namespace.map(text)),
            ("labels", merged(labels, &extra.labels)),
            ("annotations", merged(annotations, &extra.annotations)),
        ];
        let plain = |value: &str| Some(text(&Sourced::new(value.to_owned(), at)));
        let object = [
            ("apiVersion", plain(api_version)),
            ("kind", plain(kind)),
            ("metadata", Some(mapping(at, metadata))),
            ("spec", Some(spec)),
        ];
        mapping(request.at, object)
    }
}

fn is_suppressed(document: &Node, kinds: &[String]) -> bool {
    let kind = document.get("kind").and_then(Node::as_str);
    kind.is_some_and(|kind| kinds.iter().any(|suppressed| suppressed == kind))
}

fn entries<Key: Into<Box<str>>, const COUNT: usize>(fields: [(Key, Option<Node>); COUNT]) -> Vec<Entry> {
    fields
        .into_iter()
        .filter_map(|(key, value)| {
            let value = value.filter(|value| !value.is_null())?;
            Some(Entry { key: Sourced::new(key.into(), value.at), value })
        })
        .collect()
}

fn mapping<const COUNT: usize>(at: Location, fields: [(&str, Option<Node>); COUNT]) -> Node {
    Node { at, value: Value::Mapping(entries(fields)) }
}

fn name_reference(name: Node) -> Node {
    mapping(name.at, [("name", Some(name))])
}

fn text(value: &Sourced<String>) -> Node {
    Node { at: value.at, value: Value::String(value.value.as_str().into()) }
}

fn truth(at: Location) -> Node {
    Node { at, value: Value::Bool(true) }
}

fn number(count: usize, at: Location) -> Node {
    Node { at, value: Value::Integer(count as i128) }
}

/// The generators read numbers and truth values as text, where the API server would not.
fn as_text(entry: Entry) -> Entry {
    let value = scalar_text(&entry.value).map_or(entry.value.value.clone(), |text| Value::String(text.into()));
    Entry { value: Node { at: entry.value.at, value }, ..entry }
}
