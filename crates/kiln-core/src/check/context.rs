//! What rules look things up in, built once per run.
//!
//! The joins that upstream makes at run time are made here: host to discovery environment (label, same namespace),
//! discovery to cluster (`clusterRef`), host to network (MAC address among the NMStateConfigs its InfraEnv selects),
//! host to pool (annotation, else a custom pool's node selector, else the role).
//!
//! **Invariant:** building costs a constant per object and label. Nothing here compares all hosts with all networks.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::addresses::NetworkFacts;
use crate::diagnostic::{Diagnostic, ObjectId};
use crate::document::Node;
use crate::machine_config;
use crate::net::MacAddress;
use crate::policy::{NetworkPolicy, PolicyError};
use crate::source::Sourced;
use crate::world::{
    Cluster, ConfigMap, Discovery, Host, HostNetwork, LabelSelector, Labels, MachineConfig, Meta, NicMapping, Policy,
    Pool, PoolOrigin, Reference, Role, Secret, World,
};

/// Objects by namespace and name.
pub(crate) type Names<'w, T> = HashMap<(&'w str, &'w str), &'w T>;

/// The world with its indexes.
pub(crate) struct Context<'w> {
    pub world: &'w World,
    /// Parallel to `world.hosts`.
    pub hosts: Vec<HostView<'w>>,
    /// Every network document of a host.
    pub documents: Vec<NetworkDocument<'w>>,
    pub discoveries: Names<'w, Discovery>,
    pub secrets: Names<'w, Secret>,
    pub config_maps: Names<'w, ConfigMap>,
    /// Documents as written, by kind, namespace and name: for what has no place in the world.
    documents_written: HashMap<(&'w str, &'w str, &'w str), &'w Node>,
    /// Host networks that one selector selects; indexes of `world.host_networks`. Discoveries share their selectors.
    selections: Vec<Vec<usize>>,
    /// Which of the selections a discovery has, parallel to `world.discoveries`.
    selection_of_discovery: Vec<usize>,
    /// Hosts by discovery, parallel to `world.discoveries`.
    pub hosts_of_discovery: Vec<Vec<usize>>,
    /// Hosts by cluster, parallel to `world.clusters`.
    pub hosts_of_cluster: Vec<Vec<usize>>,
    /// Nodes that will exist, with the labels they will have.
    pub nodes: Vec<NodeView<'w>>,
    /// Which nodes have a label.
    pub node_labels: LabelIndex<'w>,
    /// Nodes each policy selects, parallel to `world.policies`; indexes of [`Context::nodes`].
    pub nodes_of_policy: Vec<Vec<usize>>,
    /// Policies as they are composed, or why not; parallel to `world.policies`.
    pub policies_read: Vec<Result<NetworkPolicy, PolicyError>>,
    /// The document of a host network: index of `world.host_networks` to index of [`Context::documents`].
    pub document_of_network: HashMap<usize, usize>,
    /// Hosts by the name of the pool they go to.
    pub hosts_of_pool: HashMap<&'w str, Vec<usize>>,
    /// What each pool gets, by name; every pool that is declared or that a host goes to.
    pub pools: BTreeMap<&'w str, PoolView<'w>>,
}

/// A host and what it is joined with.
pub(crate) struct HostView<'w> {
    pub host: &'w Host,
    /// Index of `world.discoveries`.
    pub discovery: Option<usize>,
    /// Index of `world.clusters`.
    pub cluster: Option<usize>,
    /// Indexes of [`Context::documents`].
    pub documents: Vec<usize>,
    /// Name of the pool it goes to.
    pub pool: &'w str,
}

/// A pool's MachineConfigs and what they become.
pub(crate) struct PoolView<'w> {
    pub configs: Vec<&'w MachineConfig>,
    /// None when there are no MachineConfigs.
    pub rendered: Option<machine_config::Rendered>,
}

/// One network document of a host.
pub(crate) struct NetworkDocument<'w> {
    /// Who declares it.
    pub meta: &'w Meta,
    /// What it declares.
    pub facts: NetworkFacts<'w>,
    /// Which NICs its names stand for.
    pub nics: &'w [NicMapping],
    /// NetworkManager files it becomes.
    pub files: Vec<crate::keyfile::ConnectionFile>,
}

/// A node that will exist: of a declared host, or declared itself.
pub(crate) struct NodeView<'w> {
    pub name: &'w str,
    /// Index of [`Context::hosts`].
    pub host: Option<usize>,
    pub labels: HashMap<&'w str, &'w str>,
}

/// Things by the labels they have, so that a selector looks only at few of them.
#[derive(Default)]
pub(crate) struct LabelIndex<'w> {
    by_label: HashMap<(&'w str, &'w str), Vec<usize>>,
    count: usize,
}

impl<'w> LabelIndex<'w> {
    fn add(&mut self, labels: impl IntoIterator<Item = (&'w str, &'w str)>) {
        for label in labels {
            self.by_label.entry(label).or_default().push(self.count);
        }
        self.count += 1;
    }

    /// Everything that has all these labels is among the answer, in order.
    pub fn candidates(&self, labels: &Labels) -> Vec<usize> {
        let lists = labels.iter().map(|(key, value)| self.by_label.get(&(key.as_str(), value.as_str())));
        match lists.map(|list| list.map_or(&[][..], Vec::as_slice)).min_by_key(|list| list.len()) {
            Some(shortest) => shortest.to_vec(),
            None => (0..self.count).collect(),
        }
    }
}

impl<'w> Context<'w> {
    /// Joins everything; what rendering the network documents finds goes to `findings`.
    pub fn new(world: &'w World, findings: &mut Vec<Diagnostic>) -> Self {
        let mut networks = LabelIndex::default();
        for network in &world.host_networks {
            networks.add(network.meta.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        }
        let mut selections = Vec::new();
        let mut known: HashMap<String, usize> = HashMap::new();
        let selection_of_discovery = world.discoveries.iter().map(|discovery| {
            *known.entry(selector_key(&discovery.network_selector)).or_insert_with(|| {
                selections.push(select_networks(&networks, world, &discovery.network_selector));
                selections.len() - 1
            })
        });
        let selection_of_discovery = selection_of_discovery.collect();
        let mut context = Context {
            world,
            hosts: Vec::with_capacity(world.hosts.len()),
            documents: Vec::new(),
            discoveries: named(&world.discoveries, |discovery| &discovery.meta),
            secrets: named(&world.secrets, |secret| &secret.meta),
            config_maps: named(&world.config_maps, |map| &map.meta),
            documents_written: world.objects.iter().map(|object| (key(&object.id), &object.root)).collect(),
            selections,
            selection_of_discovery,
            hosts_of_discovery: vec![Vec::new(); world.discoveries.len()],
            hosts_of_cluster: vec![Vec::new(); world.clusters.len()],
            nodes: Vec::new(),
            node_labels: LabelIndex::default(),
            nodes_of_policy: Vec::new(),
            policies_read: Vec::new(),
            document_of_network: HashMap::new(),
            hosts_of_pool: HashMap::new(),
            pools: BTreeMap::new(),
        };
        context.join_hosts(findings);
        context.add_nodes();
        context.assign_pools(findings);
        context.policies_read = world.policies.iter().map(|policy| context.read_policy(policy)).collect();
        context.nodes_of_policy = world
            .policies
            .iter()
            .zip(&context.policies_read)
            .map(|(policy, read)| context.chosen(policy, read))
            .collect();
        context
    }

    /// The document of an object, as it was written.
    pub fn written(&self, id: &ObjectId) -> Option<&'w Node> {
        self.documents_written.get(&key(id)).copied()
    }

    /// The networks that reach a host.
    pub fn documents<'c>(&'c self, host: &'c HostView<'w>) -> impl Iterator<Item = &'c NetworkDocument<'w>> {
        host.documents.iter().map(|document| &self.documents[*document])
    }

    /// The cluster a host joins.
    pub fn cluster(&self, host: &HostView<'w>) -> Option<&'w Cluster> {
        host.cluster.map(|cluster| &self.world.clusters[cluster])
    }

    /// Which selection a discovery has; discoveries with equal selectors share it.
    pub fn selection(&self, discovery: usize) -> usize {
        self.selection_of_discovery[discovery]
    }

    /// The host networks a discovery selects: indexes of `world.host_networks`.
    pub fn selected_networks(&self, discovery: usize) -> &[usize] {
        &self.selections[self.selection_of_discovery[discovery]]
    }

    fn join_hosts(&mut self, findings: &mut Vec<Diagnostic>) {
        let world = self.world;
        let discoveries: HashMap<(&str, &str), usize> = positions(&world.discoveries, |discovery| &discovery.meta);
        let clusters = clusters_by_deployment(world);
        let selections_of_network = selections_by_network(&self.selections);
        let mut networks_by_mac: HashMap<MacAddress, Vec<usize>> = HashMap::new();
        for (index, network) in world.host_networks.iter().enumerate() {
            if let Some(document) = document_of_network(network, findings) {
                self.document_of_network.insert(index, self.documents.len());
                self.documents.push(document);
            }
            for interface in &network.interfaces {
                let of_mac = networks_by_mac.entry(interface.mac.value).or_default();
                if of_mac.last() != Some(&index) {
                    of_mac.push(index);
                }
            }
        }
        for (index, host) in world.hosts.iter().enumerate() {
            let discovery = host.discovery.as_ref().and_then(|reference| {
                discoveries.get(&(namespace(reference, &host.meta), reference.name.as_str())).copied()
            });
            let cluster_ref = host.cluster.as_ref().map(|reference| (reference, &host.meta)).or_else(|| {
                let discovery = &world.discoveries[discovery?];
                discovery.cluster.as_ref().map(|reference| (reference, &discovery.meta))
            });
            let cluster = cluster_ref.and_then(|(reference, referrer)| {
                clusters.get(&(namespace(reference, referrer), reference.name.as_str())).copied()
            });
            let mut documents = Vec::new();
            if let Some(root) = &host.network {
                let rendered = crate::nmstate::render_for_nics(root, &host.nics);
                findings.extend(rendered.diagnostics.into_iter().filter(is_not_judged_here));
                documents.push(self.documents.len());
                self.documents.push(NetworkDocument {
                    meta: &host.meta,
                    nics: &host.nics,
                    facts: NetworkFacts::read(root),
                    files: rendered.files,
                });
            }
            let of_mac = host.boot_mac.as_ref().and_then(|mac| networks_by_mac.get(&mac.value));
            for network in of_mac.into_iter().flatten() {
                let selection = discovery.map(|discovery| self.selection_of_discovery[discovery]);
                let chosen = selection.is_some_and(|selection| selections_of_network.contains(&(*network, selection)));
                documents.extend(self.document_of_network.get(network).filter(|_| chosen));
            }
            self.hosts_of_discovery.get_mut(discovery.unwrap_or(usize::MAX)).into_iter().for_each(|of| of.push(index));
            self.hosts_of_cluster.get_mut(cluster.unwrap_or(usize::MAX)).into_iter().for_each(|of| of.push(index));
            self.hosts.push(HostView { host, discovery, cluster, documents, pool: "" });
        }
    }

    fn add_nodes(&mut self) {
        for (index, view) in self.hosts.iter().enumerate() {
            let name = node_name(view.host);
            let mut labels: HashMap<&str, &str> = HashMap::from([
                ("kubernetes.io/hostname", name),
                ("kubernetes.io/os", "linux"),
                ("node.openshift.io/os_id", "rhcos"),
            ]);
            for role in role_labels(view.host) {
                labels.insert(role, "");
            }
            labels.extend(view.host.node_labels.iter().map(|(key, value)| (key.as_str(), value.as_str())));
            self.nodes.push(NodeView { name, host: Some(index), labels });
        }
        let known: HashMap<&str, usize> =
            self.nodes.iter().enumerate().map(|(index, node)| (node.name, index)).collect();
        for node in &self.world.nodes {
            let name = node.meta.id.name.as_str();
            let labels = node.meta.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
            match known.get(name) {
                Some(known) => self.nodes[*known].labels.extend(labels),
                None => {
                    let mut labels: HashMap<&str, &str> = labels.collect();
                    labels.entry("kubernetes.io/hostname").or_insert(name);
                    self.nodes.push(NodeView { name, host: None, labels });
                }
            }
        }
        for node in &self.nodes {
            self.node_labels.add(node.labels.iter().map(|(key, value)| (*key, *value)));
        }
    }

    fn assign_pools(&mut self, findings: &mut Vec<Diagnostic>) {
        let world = self.world;
        for view in &mut self.hosts {
            view.pool = match (&view.host.pool, view.host.role.as_ref().map(|role| role.value)) {
                (Some(pool), _) => pool.as_str(),
                (None, Some(Role::Master)) => "master",
                (None, Some(Role::Arbiter)) => "arbiter",
                (None, Some(Role::Worker | Role::Auto) | None) => "worker",
            };
        }
        let custom = |pool: &&Pool| {
            pool.origin == PoolOrigin::MachineConfigPool
                && !is_base_pool(&pool.meta.id.name)
                && !pool.node_selector.is_empty()
        };
        for pool in world.pools.iter().filter(custom) {
            for node in self.nodes_selected(&pool.node_selector) {
                let host = self.nodes[node].host.map(|host| &mut self.hosts[host]);
                host.into_iter()
                    .filter(|view| view.host.pool.is_none())
                    .for_each(|view| view.pool = &pool.meta.id.name);
            }
        }
        for (index, view) in self.hosts.iter().enumerate() {
            self.hosts_of_pool.entry(view.pool).or_default().push(index);
        }
        let declared: HashMap<&str, &Pool> =
            world.pools.iter().map(|pool| (pool.meta.id.name.as_str(), pool)).collect();
        let names = self.hosts_of_pool.keys().chain(declared.keys()).copied();
        let names: BTreeSet<&str> = names.chain(["master", "worker"]).collect();
        for name in names {
            let configs = match declared.get(name) {
                Some(pool) => machine_config::members(pool, &world.machine_configs),
                None => machine_config::members_of_role(name, &world.machine_configs),
            };
            let rendered = machine_config::render(name, &configs);
            findings.extend(rendered.iter().flat_map(|rendered| rendered.diagnostics.clone()));
            self.pools.insert(name, PoolView { configs, rendered });
        }
    }

    /// Indexes of the nodes that have all these labels.
    fn nodes_with(&self, labels: &Labels) -> Vec<usize> {
        let mut chosen = self.node_labels.candidates(labels);
        let has = |node: &NodeView, (key, value): (&String, &Sourced<String>)| {
            node.labels.get(key.as_str()) == Some(&value.as_str())
        };
        chosen.retain(|node| labels.iter().all(|label| has(&self.nodes[*node], label)));
        chosen
    }

    fn read_policy(&self, policy: &Policy) -> Result<NetworkPolicy, PolicyError> {
        let written = self.written(&policy.meta.id).map(Node::to_json);
        NetworkPolicy::read(&written.unwrap_or_default())
    }

    /// Indexes of the nodes a policy chooses, by upstream's selector and by Kiln's.
    fn chosen(&self, policy: &Policy, read: &Result<NetworkPolicy, PolicyError>) -> Vec<usize> {
        let mut chosen = self.nodes_with(&policy.node_selector);
        if let (Ok(read), true) = (read, policy.kiln.is_some()) {
            chosen.retain(|node| {
                let NodeView { name, labels, .. } = &self.nodes[*node];
                let owned = |(key, value): (&&str, &&str)| ((*key).to_owned(), (*value).to_owned());
                read.selector.matches(name, &labels.iter().map(owned).collect())
            });
        }
        chosen
    }

    /// Indexes of the nodes a selector chooses.
    pub fn nodes_selected(&self, selector: &LabelSelector) -> Vec<usize> {
        let mut chosen = self.node_labels.candidates(&selector.labels);
        chosen.retain(|node| selector.matches(|key| self.nodes[*node].labels.get(key).copied()));
        chosen
    }

    /// Whether a config from extra manifests is one of the host's cluster; configs outside ConfigMaps are everybody's.
    pub fn config_reaches(&self, config: &MachineConfig, host: &HostView<'w>) -> bool {
        let Some(map) = &config.within else { return true };
        match self.cluster(host) {
            Some(cluster) if !cluster.manifest_maps.is_empty() => {
                cluster.manifest_maps.iter().any(|reference| reference.name == map.name)
                    && cluster.meta.id.namespace == map.namespace
            }
            _ => true,
        }
    }
}

fn key(id: &ObjectId) -> (&str, &str, &str) {
    (&id.kind, &id.namespace, &id.name)
}

/// The namespace a reference leads to.
pub(crate) fn namespace<'a>(reference: &'a Reference, referrer: &'a Meta) -> &'a str {
    if reference.namespace.is_empty() { &referrer.id.namespace } else { &reference.namespace }
}

/// The name its Node will have.
pub(crate) fn node_name(host: &Host) -> &str {
    host.hostname.as_ref().map_or(host.meta.id.name.as_str(), |hostname| hostname.value.as_str())
}

/// Pools that exist in every cluster.
pub(crate) fn is_base_pool(name: &str) -> bool {
    matches!(name, "master" | "worker" | "arbiter")
}

fn role_labels(host: &Host) -> &'static [&'static str] {
    match host.role.as_ref().map(|role| role.value) {
        Some(Role::Master) => &["node-role.kubernetes.io/master", "node-role.kubernetes.io/control-plane"],
        Some(Role::Worker) => &["node-role.kubernetes.io/worker"],
        Some(Role::Arbiter) => &["node-role.kubernetes.io/arbiter"],
        Some(Role::Auto) | None => &[],
    }
}

pub(crate) fn named<T>(items: &[T], meta: impl Fn(&T) -> &Meta) -> Names<'_, T> {
    items.iter().map(|item| ((meta(item).id.namespace.as_str(), meta(item).id.name.as_str()), item)).collect()
}

fn positions<T>(items: &[T], meta: impl Fn(&T) -> &Meta) -> HashMap<(&str, &str), usize> {
    let places = items.iter().enumerate();
    places.map(|(at, item)| ((meta(item).id.namespace.as_str(), meta(item).id.name.as_str()), at)).collect()
}

/// `clusterRef` names a ClusterDeployment; without one the install of the same name is meant.
fn clusters_by_deployment(world: &World) -> HashMap<(&str, &str), usize> {
    let mut clusters = positions(&world.clusters, |cluster| &cluster.meta);
    for (index, cluster) in world.clusters.iter().enumerate() {
        if let Some(reference) = &cluster.deployment_ref {
            clusters.insert((namespace(reference, &cluster.meta), reference.name.as_str()), index);
        }
    }
    clusters
}

fn selections_by_network(selections: &[Vec<usize>]) -> HashSet<(usize, usize)> {
    let pairs = selections.iter().enumerate();
    pairs.flat_map(|(selection, networks)| networks.iter().map(move |network| (*network, selection))).collect()
}

/// Equal for selectors that say the same in the same words.
fn selector_key(selector: &LabelSelector) -> String {
    let labels = selector.labels.iter().map(|(key, value)| format!("{key}={value}\n"));
    let expressions = selector.expressions.iter().map(|requirement| {
        let values: Vec<&str> = requirement.values.iter().map(|value| value.as_str()).collect();
        format!("{} {} {}\n", requirement.key, requirement.operator, values.join(","))
    });
    labels.chain(expressions).collect()
}

/// An empty selector chooses no network at all, unlike everywhere else in Kubernetes.
fn select_networks(networks: &LabelIndex<'_>, world: &World, selector: &LabelSelector) -> Vec<usize> {
    if selector.is_empty() {
        return Vec::new();
    }
    let mut chosen = networks.candidates(&selector.labels);
    chosen.retain(|network| {
        let labels = &world.host_networks[*network].meta.labels;
        selector.matches(|key| labels.get(key).map(|value| value.value.as_str()))
    });
    chosen
}

/// Overlapping subnets, a missing default route and missing name servers are remarks about a document, but decide
/// whether a host can be installed: the rules of `addresses` say so instead.
fn is_not_judged_here(finding: &Diagnostic) -> bool {
    !matches!(finding.code.0, 221 | 223 | 224)
}

fn document_of_network<'w>(network: &'w HostNetwork, findings: &mut Vec<Diagnostic>) -> Option<NetworkDocument<'w>> {
    let root = network.document.as_ref()?;
    let rendered = crate::nmstate::render_for_nics(root, &network.interfaces);
    findings.extend(rendered.diagnostics.into_iter().filter(is_not_judged_here));
    Some(NetworkDocument {
        meta: &network.meta,
        nics: &network.interfaces,
        facts: NetworkFacts::read(root),
        files: rendered.files,
    })
}
