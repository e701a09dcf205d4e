//! What the controllers need to know of a world, small enough to keep: the world itself is let go.
//!
//! [`summarize`] is pure. It also decides which of Kiln's objects the upstream kinds stand for:
//!
//! | source | becomes |
//! |---|---|
//! | BareMetalHost | Host of the same name, with the network its InfraEnv and NMStateConfigs give it |
//! | NMStateConfig that an InfraEnv selects and no host has the addresses of | Host of the same name: somebody will boot it |
//! | NodePool | Pool of the same name |
//! | MachineConfigPool | Pool of the same name in the namespace `default`: it has none itself |
//! | each `osImages` of an AgentServiceConfig | Image |

use std::collections::{HashMap, HashSet};

use kiln_core::diagnostic::{Diagnostic, ObjectId, Severity};
use kiln_core::net::MacAddress;
use kiln_core::world::{
    Bmc, Host, HostNetwork, IgnitionSource, LabelSelector, Labels, NicMapping, Pool, PoolOrigin, Role, Taint, World,
};
use serde_json::{Map, Value, json};

use super::kinds::{HOST, IMAGE, POOL, Watched};
use crate::hub::world::JudgedWorld;

/// Where a Pool is made of a MachineConfigPool, which has no namespace.
pub const POOL_NAMESPACE: &str = "default";

/// A world in short.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Objects of Kiln's that the upstream kinds stand for.
    pub wanted: Vec<Wanted>,
    /// Every host, by the object that declares it.
    pub hosts: Vec<HostFacts>,
    /// What was found, by object.
    pub findings: HashMap<ObjectId, Vec<Finding>>,
    /// Clusters to be installed.
    pub clusters: Vec<ClusterFacts>,
}

/// An object Kiln makes.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// Host, Pool or Image.
    pub kind: &'static Watched,
    /// Empty for an Image.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What it is made from.
    pub from: ObjectId,
    /// Its spec as JSON.
    pub spec: Box<str>,
}

/// A host in short.
#[derive(Debug, Clone, PartialEq)]
pub struct HostFacts {
    /// What declares it.
    pub id: ObjectId,
    /// Name of its Node.
    pub node: String,
    /// The pool it goes to.
    pub pool: String,
    /// The AgentClusterInstall it belongs to.
    pub cluster: Option<ObjectId>,
    /// Namespace and name of its ClusterDeployment, as referred to.
    pub deployment: Option<(String, String)>,
    /// Addresses of its NICs, as far as declared.
    pub macs: Vec<String>,
    /// Whether it has a management controller.
    pub has_bmc: bool,
    /// The Site it stands at.
    pub site: Option<Box<str>>,
    /// The NMStateConfigs it gets its network from.
    pub networks: Vec<ObjectId>,
}

/// A finding in the words of a status.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// `KLN0101`.
    pub code: String,
    /// How bad.
    pub severity: Severity,
    /// What.
    pub message: String,
    /// Where.
    pub field: Option<String>,
    /// Which rule decides.
    pub cause: Option<String>,
    /// The edit that repairs it.
    pub fix: Option<String>,
}

/// A cluster in short.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterFacts {
    /// The AgentClusterInstall.
    pub id: ObjectId,
    /// Name of its ClusterDeployment, by which Agents are bound.
    pub deployment: Option<(String, String)>,
    /// Masters, workers and arbiters it wants.
    pub wanted: [u32; 3],
}

/// Findings kept per object; the rest is counted by nobody, `kiln check` has them all.
const KEPT_FINDINGS: usize = 20;

/// Everything the controllers need of a world.
pub fn summarize(judged: &JudgedWorld) -> Summary {
    let world = &judged.world;
    let joins = Joins::new(world);
    let hosts: Vec<(&Host, HostFacts)> = world.hosts.iter().map(|host| (host, joins.host(host))).collect();
    let mut wanted: Vec<Wanted> = hosts
        .iter()
        .filter(|(host, _)| host.meta.id.kind == "BareMetalHost")
        .map(|(host, facts)| wanted_host(host, facts, &joins))
        .collect();
    let mut facts: Vec<HostFacts> = hosts.into_iter().map(|(_, facts)| facts).collect();
    let taken: HashSet<(String, String)> =
        facts.iter().map(|host| (host.id.namespace.clone(), host.id.name.clone())).collect();
    for network in joins.unclaimed(world) {
        let id = &network.meta.id;
        if !taken.contains(&(id.namespace.clone(), id.name.clone())) {
            wanted.push(wanted_from_network(network));
            facts.push(facts_from_network(network));
        }
    }
    let made = world.pools.iter().filter(|pool| pool.origin != PoolOrigin::Native && pool.within.is_none());
    wanted.extend(made.map(wanted_pool));
    wanted.extend(world.services.iter().flat_map(wanted_images));
    wanted.retain(|wanted| !wanted.name.is_empty());
    Summary { wanted, hosts: facts, findings: findings_by_object(&judged.findings), clusters: clusters(world) }
}

fn findings_by_object(findings: &[Diagnostic]) -> HashMap<ObjectId, Vec<Finding>> {
    let mut by_object: HashMap<ObjectId, Vec<Finding>> = HashMap::new();
    for finding in findings {
        let Some(object) = &finding.object else { continue };
        by_object.entry(object.clone()).or_default().push(Finding {
            code: finding.code.to_string(),
            severity: finding.severity,
            message: finding.message.clone(),
            field: finding.field.clone(),
            cause: finding.cause.clone(),
            fix: finding.help.clone(),
        });
    }
    for found in by_object.values_mut() {
        // the worst first, otherwise as they stand in the document
        found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        found.truncate(KEPT_FINDINGS);
    }
    by_object
}

fn clusters(world: &World) -> Vec<ClusterFacts> {
    let number = |value: &Option<kiln_core::source::Sourced<u32>>| value.as_ref().map_or(0, |value| value.value);
    let of = |cluster: &kiln_core::world::Cluster| ClusterFacts {
        id: cluster.meta.id.clone(),
        deployment: cluster
            .deployment_ref
            .as_ref()
            .map(|reference| (cluster.meta.id.namespace.clone(), reference.name.clone())),
        wanted: [
            number(&cluster.control_plane_agents),
            number(&cluster.worker_agents),
            number(&cluster.arbiter_agents),
        ],
    };
    world.clusters.iter().map(of).collect()
}

/// What one object has to do with another, as upstream joins them.
struct Joins<'w> {
    discoveries: HashMap<(&'w str, &'w str), &'w kiln_core::world::Discovery>,
    clusters: HashMap<(&'w str, &'w str), &'w ObjectId>,
    networks: HashMap<MacAddress, Vec<&'w HostNetwork>>,
    /// MachineConfigPools that choose nodes by label.
    custom_pools: Vec<&'w Pool>,
}

impl<'w> Joins<'w> {
    fn new(world: &'w World) -> Self {
        let mut networks: HashMap<MacAddress, Vec<&HostNetwork>> = HashMap::new();
        for network in &world.host_networks {
            for nic in &network.interfaces {
                networks.entry(nic.mac.value).or_default().push(network);
            }
        }
        let place = |id: &'w ObjectId| (id.namespace.as_str(), id.name.as_str());
        let clusters = world.clusters.iter().filter_map(|cluster| {
            let reference = cluster.deployment_ref.as_ref()?;
            Some(((cluster.meta.id.namespace.as_str(), reference.name.as_str()), &cluster.meta.id))
        });
        let custom = |pool: &&Pool| {
            pool.origin == PoolOrigin::MachineConfigPool
                && !["master", "worker", "arbiter"].contains(&pool.meta.id.name.as_str())
                && !pool.node_selector.is_empty()
        };
        Joins {
            discoveries: world.discoveries.iter().map(|discovery| (place(&discovery.meta.id), discovery)).collect(),
            clusters: clusters.collect(),
            networks,
            custom_pools: world.pools.iter().filter(custom).collect(),
        }
    }

    fn discovery(&self, host: &'w Host) -> Option<&'w kiln_core::world::Discovery> {
        let reference = host.discovery.as_ref()?;
        let namespace = or_own(&reference.namespace, &host.meta.id.namespace);
        self.discoveries.get(&(namespace, reference.name.as_str())).copied()
    }

    fn networks(&self, host: &'w Host) -> Vec<&'w HostNetwork> {
        let Some(discovery) = self.discovery(host) else { return Vec::new() };
        let of_mac = host.boot_mac.as_ref().and_then(|mac| self.networks.get(&mac.value));
        let mut chosen: Vec<&HostNetwork> = of_mac.into_iter().flatten().copied().collect();
        chosen.dedup_by_key(|network| &network.meta.id);
        chosen.retain(|network| selects(&discovery.network_selector, &network.meta.labels));
        chosen
    }

    fn host(&self, host: &'w Host) -> HostFacts {
        let discovery = self.discovery(host);
        let reference = host.cluster.as_ref().map(|reference| (reference, &host.meta.id)).or_else(|| {
            let discovery = discovery?;
            Some((discovery.cluster.as_ref()?, &discovery.meta.id))
        });
        let deployment = reference
            .map(|(reference, referrer)| (or_own(&reference.namespace, &referrer.namespace), reference.name.as_str()));
        let cluster = deployment.and_then(|deployment| self.clusters.get(&deployment));
        let networks = self.networks(host);
        let nics = networks.iter().flat_map(|network| &network.interfaces).chain(&host.nics);
        let mut macs: Vec<String> = host.boot_mac.iter().map(|mac| mac.value.to_string()).collect();
        macs.extend(nics.map(|nic| nic.mac.value.to_string()));
        macs.sort();
        macs.dedup();
        HostFacts {
            id: host.meta.id.clone(),
            node: host.hostname.as_ref().map_or(&host.meta.id.name, |name| &name.value).clone(),
            pool: self.pool(host),
            cluster: cluster.map(|id| (*id).clone()),
            deployment: deployment.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())),
            macs,
            has_bmc: host.bmc.is_some(),
            site: host.site.as_ref().map(|site| site.value.as_str().into()),
            networks: networks.iter().map(|network| network.meta.id.clone()).collect(),
        }
    }

    /// As upstream: what the host says, else a custom pool that selects its labels, else its role.
    fn pool(&self, host: &Host) -> String {
        if let Some(pool) = &host.pool {
            return pool.value.clone();
        }
        let role = host.role.as_ref().map_or(Role::Worker, |role| role.value);
        let role = match role {
            Role::Master => "master",
            Role::Arbiter => "arbiter",
            Role::Worker | Role::Auto => "worker",
        };
        let role_label = format!("node-role.kubernetes.io/{role}");
        let label = |key: &str| match host.node_labels.get(key) {
            Some(value) => Some(value.value.as_str()),
            None => (key == role_label).then_some(""),
        };
        let custom = self.custom_pools.iter().rev().find(|pool| pool.node_selector.matches(label));
        custom.map_or(role.to_owned(), |pool| pool.meta.id.name.clone())
    }

    /// Networks for machines that no object declares, but that somebody may boot from a discovery image.
    fn unclaimed(&self, world: &'w World) -> impl Iterator<Item = &'w HostNetwork> {
        let claimed: HashSet<MacAddress> = world
            .hosts
            .iter()
            .flat_map(|host| host.boot_mac.iter().map(|mac| mac.value).chain(host.nics.iter().map(|nic| nic.mac.value)))
            .collect();
        // Most selectors want a label: by its first one only few of them are looked at.
        let mut by_label: HashMap<Option<(&str, &str)>, Vec<&LabelSelector>> = HashMap::new();
        for discovery in &world.discoveries {
            let first = discovery.network_selector.labels.first_key_value();
            let first = first.map(|(key, value)| (key.as_str(), value.value.as_str()));
            by_label.entry(first).or_default().push(&discovery.network_selector);
        }
        world.host_networks.iter().filter(move |network| {
            let labels = network.meta.labels.iter().map(|(key, value)| Some((key.as_str(), value.value.as_str())));
            let mut selectors = labels.chain([None]).filter_map(|label| by_label.get(&label)).flatten();
            !network.interfaces.is_empty()
                && network.interfaces.iter().all(|nic| !claimed.contains(&nic.mac.value))
                && selectors.any(|selector| selects(selector, &network.meta.labels))
        })
    }
}

/// An empty selector chooses no network at all, unlike everywhere else in Kubernetes.
fn selects(selector: &LabelSelector, labels: &Labels) -> bool {
    !selector.is_empty() && selector.matches(|key| labels.get(key).map(|value| value.value.as_str()))
}

fn or_own<'a>(written: &'a str, own: &'a str) -> &'a str {
    if written.is_empty() { own } else { written }
}

fn wanted_host(host: &Host, facts: &HostFacts, joins: &Joins) -> Wanted {
    let mut spec = Map::new();
    let mut put = |key: &str, value: Option<Value>| drop(value.map(|value| spec.insert(key.into(), value)));
    put("bmc", host.bmc.as_ref().map(bmc));
    put("bootMode", host.boot_mode.as_ref().map(|mode| json!(mode.value)));
    let reference = facts.deployment.as_ref();
    put("cluster", reference.map(|(namespace, name)| json!({"name": name, "namespace": namespace})));
    put("hostname", Some(json!(facts.node)));
    put("installDisk", (!host.disk_hints.is_empty()).then(|| disk_hints(host)));
    put("macAddress", host.boot_mac.as_ref().map(|mac| json!(mac.value.to_string())));
    // With two documents for one machine the last word is the rules', not a guess of which one is meant.
    if let [network] = joins.networks(host)[..] {
        put("network", network.document.as_ref().map(kiln_core::document::Node::to_json));
        put("nics", Some(nics(&network.interfaces)));
    }
    put("nodeLabels", (!host.node_labels.is_empty()).then(|| labels(&host.node_labels)));
    put("pool", Some(json!(facts.pool)));
    put("role", host.role.as_ref().map(|role| json!(role_name(role.value))));
    made(&HOST, &host.meta.id, host.meta.id.namespace.clone(), host.meta.id.name.clone(), spec)
}

fn wanted_from_network(network: &HostNetwork) -> Wanted {
    let mut spec = Map::new();
    if let Some(document) = &network.document {
        spec.insert("network".into(), document.to_json());
    }
    spec.insert("nics".into(), nics(&network.interfaces));
    let id = &network.meta.id;
    made(&HOST, id, id.namespace.clone(), id.name.clone(), spec)
}

fn facts_from_network(network: &HostNetwork) -> HostFacts {
    HostFacts {
        id: network.meta.id.clone(),
        node: network.meta.id.name.clone(),
        pool: "worker".into(),
        cluster: None,
        deployment: None,
        macs: network.interfaces.iter().map(|nic| nic.mac.value.to_string()).collect(),
        has_bmc: false,
        site: None,
        networks: Vec::new(),
    }
}

fn wanted_pool(pool: &Pool) -> Wanted {
    let mut spec = Map::new();
    if !pool.config_maps.is_empty() {
        let maps: Vec<Value> = pool.config_maps.iter().map(|map| json!({"name": map.name})).collect();
        spec.insert("config".into(), maps.into());
    }
    if let Some(source) = &pool.ignition {
        spec.insert("ignition".into(), ignition_source(source));
    }
    if !pool.config_selector.is_empty() {
        spec.insert("machineConfigSelector".into(), selector(&pool.config_selector));
    }
    if let Some(budget) = &pool.max_unavailable {
        let budget = budget.value.parse::<u64>().map_or_else(|_| json!(budget.value), |number| json!(number));
        spec.insert("maxUnavailable".into(), budget);
    }
    if !pool.node_labels.is_empty() {
        spec.insert("nodeLabels".into(), labels(&pool.node_labels));
    }
    if !pool.node_selector.is_empty() {
        spec.insert("nodeSelector".into(), selector(&pool.node_selector));
    }
    if !pool.node_taints.is_empty() {
        let taint = |taint: &Taint| json!({"key": taint.key, "value": taint.value, "effect": taint.effect});
        spec.insert("nodeTaints".into(), pool.node_taints.iter().map(taint).collect());
    }
    if pool.paused.as_deref() == Some("true") {
        spec.insert("paused".into(), json!(true));
    }
    if let Some(replicas) = &pool.replicas {
        spec.insert("replicas".into(), json!(replicas.value));
    }
    let id = &pool.meta.id;
    let namespace = or_own(&id.namespace, POOL_NAMESPACE).to_owned();
    made(&POOL, id, namespace, id.name.clone(), spec)
}

fn ignition_source(source: &IgnitionSource) -> Value {
    match source {
        IgnitionSource::Secret(reference) => json!({"secret": reference.name}),
        IgnitionSource::ConfigMap(reference) => json!({"configMap": reference.name}),
        IgnitionSource::Upstream { url, authority: None } => json!({"upstream": {"url": url.value}}),
        IgnitionSource::Upstream { url, authority: Some(authority) } => {
            json!({"upstream": {"url": url.value, "caSecret": authority.name}})
        }
    }
}

fn wanted_images(service: &kiln_core::world::DiscoveryService) -> Vec<Wanted> {
    let image = |image: &kiln_core::world::OsImage| {
        let architecture = image.architecture.as_ref().map_or("x86_64", |text| text.value.as_str());
        let name = object_name(&format!("os-{}-{architecture}", image.openshift_version));
        let spec = [("architecture", json!(architecture)), ("url", json!(image.url.as_ref()?.value))];
        let spec = spec.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        Some(made(&IMAGE, &service.meta.id, String::new(), name, spec))
    };
    service.os_images.iter().filter_map(image).collect()
}

/// Lower-case letters, digits, dashes and dots, as names of objects are.
fn object_name(text: &str) -> String {
    let letter = |letter: char| match letter.to_ascii_lowercase() {
        letter @ ('a'..='z' | '0'..='9' | '-' | '.') => letter,
        _ => '-',
    };
    text.chars().map(letter).collect()
}

fn made(kind: &'static Watched, from: &ObjectId, namespace: String, name: String, spec: Map<String, Value>) -> Wanted {
    Wanted { kind, namespace, name, from: from.clone(), spec: Value::Object(spec).to_string().into() }
}

fn bmc(bmc: &Bmc) -> Value {
    let mut value = json!({"address": bmc.address.value});
    if let Some(credentials) = &bmc.credentials {
        value["credentialsName"] = json!(credentials.name);
    }
    if let Some(insecure) = &bmc.insecure {
        value["disableCertificateVerification"] = json!(insecure.value);
    }
    value
}

fn disk_hints(host: &Host) -> Value {
    let typed = |name: &str, text: &str| match name {
        "minSizeGigabytes" => text.parse::<u64>().map_or_else(|_| json!(text), |number| json!(number)),
        "rotational" => json!(text == "true"),
        _ => json!(text),
    };
    host.disk_hints.iter().map(|(name, hint)| (name.clone(), typed(name, &hint.value))).collect()
}

fn nics(nics: &[NicMapping]) -> Value {
    nics.iter()
        .map(|nic| json!({"name": nic.name.value.to_string(), "macAddress": nic.mac.value.to_string()}))
        .collect()
}

fn labels(labels: &Labels) -> Value {
    labels.iter().map(|(key, value)| (key.clone(), json!(value.value))).collect()
}

fn selector(selector: &LabelSelector) -> Value {
    let mut value = Map::new();
    if !selector.labels.is_empty() {
        value.insert("matchLabels".into(), labels(&selector.labels));
    }
    if !selector.expressions.is_empty() {
        let expressions = selector.expressions.iter().map(|requirement| {
            let values: Vec<&str> = requirement.values.iter().map(|value| value.value.as_str()).collect();
            json!({"key": requirement.key.value, "operator": requirement.operator.value, "values": values})
        });
        value.insert("matchExpressions".into(), expressions.collect());
    }
    Value::Object(value)
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Master => "master",
        Role::Worker => "worker",
        Role::Arbiter => "arbiter",
        Role::Auto => "auto-assign",
    }
}
