//! What the hub must hold ready for nodes: the payload of each pool, the overlay of each host, and what they are called.
//!
//! [`judge`] takes a world and gives what `kiln check` says about it together with its [`Provision`]; both look things up
//! in the same place, so the world is joined once. Whoever carries it out compares names and digests with what is stored
//! and writes what differs.
//!
//! **Invariant:** nothing is rendered whose inputs are as they were ([`Inputs::previous`]), and bytes are given out only
//! for what is not stored ([`Inputs::stored`]): ten thousand hosts that did not change cost their digests.
//! **Invariant:** when a pool cannot be rendered, nothing is said about its hosts: what is stored stays.
//!
//! Not here: hosts of pools that nobody declares. Their config comes from the cluster's own machine-config-server.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use crate::check;
use crate::check::context::{Context, HostView, node_name};
use crate::diagnostic::{Diagnostic, ObjectId};
use crate::document::Node;
use crate::document::emit::to_yaml;
use crate::document::json::parse_json;
use crate::ignition::pointer::PointerProxy;
use crate::machine::rules::parse_rules;
use crate::machine::{Rules, System};
use crate::machine_config;
use crate::payload::digest::{ConfigHash, Digest, hash_simple};
use crate::payload::overlay::{HostParts, Overlay, render_overlay};
use crate::payload::{self, Base, KubeletConfig, Payload, RenderedPool};
use crate::replicas::{HOLD, HOLDS_OF_METAL3, MARK, wanted};
use crate::source::{SourceMap, Sourced};
use crate::world::{DisruptionPolicy, FirstBootNetwork, IgnitionSource, MachineConfig, Pool, PoolOrigin, Proxy, World};

pub mod names;

/// The folder of ifcfg files, which nothing reads any more and which still counts at the end of the initramfs.
const NETWORK_SCRIPTS: &str = "/etc/sysconfig/network-scripts/";
/// Where the Secrets of a pool are that has no namespace itself.
pub const POOL_NAMESPACE: &str = "default";

/// A base config as somebody fetched it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FetchedBase {
    /// Here it is.
    Ready {
        /// `Secret edge/base`.
        what: String,
        /// Its bytes.
        bytes: Arc<[u8]>,
    },
    /// It could not be had.
    Failed(String),
}

/// What is stored already.
#[derive(Debug, Clone, Default)]
pub struct Stored {
    /// Namespace and name of every Secret of this hub's making.
    pub secrets: HashSet<(String, String)>,
    /// The digest of each overlay, by namespace and host.
    pub overlays: HashMap<(String, String), String>,
}

/// What a provision is worked out from besides the world.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// Base configs by the object that declares the pool.
    pub bases: &'a BTreeMap<ObjectId, FetchedBase>,
    /// What is stored.
    pub stored: &'a Stored,
    /// The provision before this one.
    pub previous: &'a Provision,
    /// Pools that another controller drives.
    pub foreign: &'a HashSet<ObjectId>,
}

/// Everything nodes must be able to fetch.
#[derive(Debug, Clone, Default)]
pub struct Provision {
    /// Every declared pool.
    pub pools: Vec<PoolProvision>,
    /// Every payload that is referred to.
    pub payloads: Vec<StoredPayload>,
    /// Every host of these pools.
    pub hosts: Vec<HostProvision>,
    /// Hosts of these pools, by namespace and name, whose overlay cannot be made: what is stored stays. With their pool.
    pub waiting: HashMap<(String, String), ObjectId>,
    /// What is wrong with what is declared of a host, by namespace and name. Whoever attributes findings to objects adds it.
    pub errors: HashMap<(String, String), String>,
    /// Hosts of pools that nobody declares: namespace and name, and the pool they say they are in.
    pub elsewhere: HashMap<(String, String), String>,
    /// What changes of files and units take on running nodes.
    pub rules: Rules,
    groups: HashMap<Digest, Arc<Group>>,
}

/// A pool and its token.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolProvision {
    /// What declares it.
    pub source: ObjectId,
    /// Where its Secrets are.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Where its base config comes from.
    pub base: Option<IgnitionSource>,
    /// Its config, or why there is none.
    pub config: Result<PoolConfig, NoConfig>,
    /// How many hosts it has in service; all of them without.
    pub replicas: Option<u32>,
    /// `InPlace` or `Replace`.
    pub upgrade_type: Option<String>,
    /// No running node begins a change: `true`, or until this time.
    pub paused: Option<String>,
    /// How many of its hosts may be out at once, as written.
    pub max_unavailable: Option<String>,
    /// Release image.
    pub release_image: Option<String>,
    /// `4.14.3`, when the image says so.
    pub release_version: Option<String>,
    /// Name of the pull secret of its cluster.
    pub pull_secret: Option<String>,
    /// Name of the ConfigMap with more authorities its cluster trusts.
    pub trust_bundle: Option<String>,
    /// HyperShift's hash of its cluster's configuration.
    pub configuration_hash: String,
    /// The proxy its machines fetch through: its own, else its cluster's.
    pub proxy: Option<PointerProxy>,
    /// The manifests of its ConfigMaps, sorted and joined.
    pub manifests: String,
}

/// A pool's config.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolConfig {
    /// The digest of its inputs.
    pub id: Digest,
    /// The Secret that holds it.
    pub payload: String,
    /// The eight digits in the names of its token.
    pub hash: String,
    /// What Ignition has no word for.
    pub notes: Vec<String>,
    /// The packed config; only where a token needs it that is not stored.
    pub packed: Option<Arc<[u8]>>,
}

/// Why a pool has no config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoConfig {
    /// Its base has not been fetched yet.
    Pending,
    /// It cannot be had or rendered.
    Failed(String),
}

/// A payload that must be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredPayload {
    /// What declares the pool.
    pub pool: ObjectId,
    /// Where.
    pub namespace: String,
    /// Under which name.
    pub name: String,
    /// The digest of its inputs.
    pub id: Digest,
    /// Which objects put network files into it, by path.
    pub writers: BTreeMap<String, String>,
    /// Bootstrap kubeconfigs that hosts get with a token of their own, by path.
    pub kubeconfigs: BTreeMap<String, Value>,
    /// What Ignition has no word for.
    pub system: System,
    /// Its bytes; none when it is stored.
    pub packed: Option<Arc<[u8]>>,
}

/// What one host gets.
#[derive(Debug, Clone, PartialEq)]
pub struct HostProvision {
    /// What declares it. Its Host has the same namespace and name.
    pub host: ObjectId,
    /// What declares its pool.
    pub pool: ObjectId,
    /// Name of its Node.
    pub node: String,
    /// Why it may not be put into service.
    pub held: Option<String>,
    /// Whether it goes first when the pool has too many.
    pub marked: bool,
    /// The Secret with its payload.
    pub payload: String,
    /// The digest of its overlay.
    pub id: Digest,
    /// Its overlay; none when it is stored.
    pub overlay: Option<Overlay>,
}

/// A payload in gzip.
type Packed = Arc<[u8]>;
/// A pool, and the cluster among the world's whose hosts are meant.
type PoolInCluster<'w> = (&'w ObjectId, Option<usize>);

/// One rendered config: of a pool, or of the hosts of one cluster in it.
#[derive(Debug)]
struct Group {
    /// Without texts.
    pool: RenderedPool,
    /// Which objects put network files into it, by path.
    writers: BTreeMap<String, String>,
    /// The bytes of both payloads, as long as they are needed.
    packed: Option<(Packed, Packed)>,
}

/// Judges a world and says what must be held ready for its nodes.
pub fn judge(world: &World, inputs: Inputs<'_>) -> (Vec<Diagnostic>, Provision) {
    let mut reading = Vec::new();
    let context = Context::new(world, &mut reading);
    let provision = Work::new(&context, inputs).plan();
    (check::findings(&context, reading), provision)
}

struct Work<'w, 'i> {
    context: &'i Context<'w>,
    inputs: Inputs<'i>,
    groups: HashMap<Digest, Arc<Group>>,
    /// Which of them the hosts of a cluster get: MachineConfigs of a cluster are its own.
    by_cluster: HashMap<PoolInCluster<'w>, Result<Arc<Group>, NoConfig>>,
    payloads: BTreeMap<(String, String), StoredPayload>,
    /// Manifests by the ConfigMap they were found in.
    manifests: HashMap<&'w ObjectId, Vec<&'w crate::world::Object>>,
    /// KubeletConfigs outside of ConfigMaps.
    kubelet_configs: Vec<&'w crate::world::Object>,
    hosted_clusters: HashMap<(&'w str, &'w str), &'w Node>,
}

impl<'w, 'i> Work<'w, 'i> {
    fn new(context: &'i Context<'w>, inputs: Inputs<'i>) -> Self {
        let mut work = Work {
            context,
            inputs,
            groups: HashMap::new(),
            by_cluster: HashMap::new(),
            payloads: BTreeMap::new(),
            manifests: HashMap::new(),
            kubelet_configs: Vec::new(),
            hosted_clusters: HashMap::new(),
        };
        for object in &context.world.objects {
            let id = &object.id;
            match (&object.within, id.kind.as_str()) {
                (Some(map), _) if map.kind == "ConfigMap" => work.manifests.entry(map).or_default().push(object),
                (_, "KubeletConfig") => work.kubelet_configs.push(object),
                (_, "HostedCluster") => {
                    work.hosted_clusters.insert((id.namespace.as_str(), id.name.as_str()), &object.root);
                }
                _ => {}
            }
        }
        work
    }

    fn plan(mut self) -> Provision {
        let declared = |pool: &&Pool| {
            pool.within.is_none() && !pool.meta.id.name.is_empty() && !self.inputs.foreign.contains(&pool.meta.id)
        };
        let declared: Vec<&Pool> = self.context.world.pools.iter().filter(declared).collect();
        // A pool of the host's namespace comes before one that has none.
        let mut by_name: HashMap<(&str, &str), &Pool> = HashMap::new();
        for pool in &declared {
            by_name.entry((pool.meta.id.namespace.as_str(), pool.meta.id.name.as_str())).or_insert(pool);
        }
        let pools = declared.iter().map(|pool| self.pool(pool)).collect();
        let (mut hosts, mut waiting, mut elsewhere) = (Vec::new(), HashMap::new(), HashMap::new());
        let mut seen = HashSet::new();
        for view in &self.context.hosts {
            let namespace = view.host.meta.id.namespace.as_str();
            // A Host beside the BareMetalHost of its name is one machine. The first speaks; in the order of an API that is the Host.
            if !seen.insert((namespace, view.host.meta.id.name.as_str())) {
                continue;
            }
            let pool = by_name.get(&(namespace, view.pool)).or_else(|| by_name.get(&("", view.pool)));
            let place = (namespace.to_owned(), view.host.meta.id.name.clone());
            let Some(pool) = pool else {
                elsewhere.insert(place, view.pool.to_owned());
                continue;
            };
            match self.host(view, pool) {
                Some(host) => hosts.push(host),
                None => drop(waiting.insert(place, pool.meta.id.clone())),
            }
        }
        let Work { mut groups, payloads, .. } = self;
        let needed: HashSet<Digest> =
            payloads.values().filter(|payload| payload.packed.is_some()).map(|payload| payload.id).collect();
        for group in groups.values_mut() {
            if group.packed.is_some() && ![group.pool.whole.id, group.pool.bare.id].iter().any(|id| needed.contains(id))
            {
                let (pool, writers) = (group.pool.clone(), group.writers.clone());
                *group = Arc::new(Group { pool, writers, packed: None });
            }
        }
        let payloads = payloads.into_values().collect();
        // What cannot be read is a finding; what is built in holds then.
        let rules = rules(self.context.world).and_then(Result::ok).unwrap_or_default();
        Provision { pools, payloads, hosts, waiting, errors: HashMap::new(), elsewhere, rules, groups }
    }

    fn pool(&mut self, pool: &'w Pool) -> PoolProvision {
        let id = &pool.meta.id;
        let namespace = if id.namespace.is_empty() { POOL_NAMESPACE } else { &id.namespace };
        let release_image = pool.release_image.as_ref().map(|image| image.value.clone());
        let release_version = release_image.as_deref().and_then(release_version).map(str::to_owned);
        let cluster = pool.cluster_name.as_ref();
        let cluster = cluster.and_then(|name| self.hosted_clusters.get(&(namespace, name.value.as_str())).copied());
        let named = |field: &str| {
            let name = cluster?.path(&["spec", field, "name"])?.as_str()?;
            (!name.is_empty()).then(|| name.to_owned())
        };
        let (pull_secret, trust_bundle) = (named("pullSecret"), named("additionalTrustBundle"));
        let configuration = cluster.and_then(|cluster| cluster.path(&["spec", "configuration"])).map(Node::to_json);
        // Without a configuration Go hashes the text `null`.
        let configuration_hash = hash_simple(&configuration.as_ref().unwrap_or(&Value::Null).to_string());
        let of_cluster = || cluster_proxy(&configuration.as_ref()?["proxy"]);
        let proxy = pool.proxy.as_ref().and_then(pool_proxy).or_else(of_cluster);
        let manifests = self.manifests_text(pool);
        let upgrade_type = pool.upgrade_type.as_ref().map(|kind| kind.value.clone());
        let group = self.group(pool, None);
        let config = group.and_then(|group| {
            let digest = group.pool.whole.id;
            let payload = names::payload(&id.name, digest);
            let hash = ConfigHash {
                manifests: &manifests,
                release_version: release_version.as_deref().unwrap_or_default(),
                pull_secret: pull_secret.as_deref().unwrap_or_default(),
                trust_bundle: trust_bundle.as_deref().unwrap_or_default(),
                global: &digest.to_string(),
            };
            let hash = hash.hash();
            let token_is_stored = self.is_stored(namespace, &names::token(&id.name, &hash));
            let in_token = upgrade_type.as_deref() == Some("InPlace") && !token_is_stored;
            let group = self.with_bytes(pool, None, group, in_token || !self.is_stored(namespace, &payload))?;
            let whole = group.packed.as_ref().map(|(whole, _)| Arc::clone(whole));
            self.want(pool, namespace, &payload, (digest, &group), whole.clone());
            let packed = whole.filter(|_| in_token);
            let mut notes = group.pool.notes.clone();
            notes.extend(self.not_rendered(pool));
            Ok(PoolConfig { id: digest, payload, hash, notes, packed })
        });
        PoolProvision {
            source: id.clone(),
            namespace: namespace.to_owned(),
            name: id.name.clone(),
            base: pool.ignition.clone(),
            config,
            replicas: wanted(
                pool.platform.as_ref().map(|platform| platform.value.as_str()),
                pool.replicas.as_ref().map(|replicas| replicas.value),
            ),
            upgrade_type,
            paused: pool.paused.clone(),
            max_unavailable: pool.max_unavailable.as_ref().map(|written| written.value.clone()),
            release_image,
            release_version,
            pull_secret,
            trust_bundle,
            configuration_hash,
            proxy,
            manifests,
        }
    }

    fn host(&mut self, view: &HostView<'w>, pool: &'w Pool) -> Option<HostProvision> {
        let host = view.host;
        let id = &host.meta.id;
        let group = self.group(pool, Some(view)).ok()?;
        let stock = pool.first_boot_network == FirstBootNetwork::Stock;
        let digest = if stock { group.pool.whole.id } else { group.pool.bare.id };
        let payload = names::payload(&pool.meta.id.name, digest);
        if !self.payloads.contains_key(&(id.namespace.clone(), payload.clone())) {
            let group =
                self.with_bytes(pool, Some(view), Arc::clone(&group), !self.is_stored(&id.namespace, &payload)).ok()?;
            let packed = group.packed.as_ref().map(|(whole, bare)| Arc::clone(if stock { whole } else { bare }));
            self.want(pool, &id.namespace, &payload, (digest, &group), packed);
        }
        let (mut profiles, mut nics) = (Vec::new(), Vec::new());
        for document in self.context.documents(view) {
            profiles.extend(document.files.iter().cloned());
            nics.extend(document.nics.iter().cloned());
        }
        let mut labels: BTreeMap<String, String> = BTreeMap::new();
        for (key, value) in pool.node_labels.iter().chain(&host.node_labels) {
            labels.insert(key.clone(), value.value.clone());
        }
        let overriding = host.ignition_override.as_ref().map(|text| parse_override(&text.value));
        let ignition = match (&host.ignition, overriding) {
            (Some(config), _) => Some(config.clone()),
            (None, Some(parsed)) => Some(parsed?),
            (None, None) => None,
        };
        let parts = HostParts {
            node: node_name(host),
            profiles: &profiles,
            nics: &nics,
            labels: &labels,
            taints: &pool.node_taints,
            ignition: ignition.as_ref(),
            network: pool.first_boot_network,
        };
        let overlay = render_overlay(&group.pool, &payload, &parts)?;
        let stored = self.inputs.stored.overlays.get(&(id.namespace.clone(), id.name.clone()));
        let is_stored = stored.is_some_and(|stored| *stored == overlay.id.to_string());
        let annotation = |name: &str| host.meta.annotations.get(name).map(|value| value.value.clone());
        let of_metal3 = || HOLDS_OF_METAL3.into_iter().find(|name| annotation(name).is_some()).map(str::to_owned);
        Some(HostProvision {
            host: id.clone(),
            pool: pool.meta.id.clone(),
            node: node_name(host).to_owned(),
            held: annotation(HOLD).or_else(of_metal3),
            marked: annotation(MARK).is_some(),
            payload,
            id: overlay.id,
            overlay: (!is_stored).then_some(overlay),
        })
    }

    /// The rendered config of a pool as it reaches a host, or somebody without one.
    fn group(&mut self, pool: &'w Pool, view: Option<&HostView<'w>>) -> Result<Arc<Group>, NoConfig> {
        let key = (&pool.meta.id, view.and_then(|view| view.cluster));
        if let Some(known) = self.by_cluster.get(&key) {
            return known.clone();
        }
        let group = self.find_or_render(pool, view);
        self.by_cluster.insert(key, group.clone());
        group
    }

    fn find_or_render(&mut self, pool: &'w Pool, view: Option<&HostView<'w>>) -> Result<Arc<Group>, NoConfig> {
        let (configs, kubelet) = self.parts(pool, view);
        let base = self.base(pool)?;
        let part = payload::part_id(&configs, &kubelet);
        let part = if pool.own_bootstrap_user { payload::own_user_id(part) } else { part };
        let id = payload::payload_id(base.map(|(_, bytes)| bytes), part);
        if let Some(group) = self.groups.get(&id).or_else(|| self.inputs.previous.groups.get(&id)) {
            let group = Arc::clone(group);
            self.groups.insert(id, Arc::clone(&group));
            return Ok(group);
        }
        let group = Arc::new(self.render(pool, &configs, &kubelet)?);
        self.groups.insert(id, Arc::clone(&group));
        Ok(group)
    }

    /// The same group with its bytes, or without them, as they are needed.
    fn with_bytes(
        &mut self,
        pool: &'w Pool,
        view: Option<&HostView<'w>>,
        group: Arc<Group>,
        needed: bool,
    ) -> Result<Arc<Group>, NoConfig> {
        if !needed || group.packed.is_some() {
            return Ok(group);
        }
        let (configs, kubelet) = self.parts(pool, view);
        let group = Arc::new(self.render(pool, &configs, &kubelet)?);
        self.groups.insert(group.pool.whole.id, Arc::clone(&group));
        Ok(group)
    }

    fn render(&self, pool: &Pool, configs: &[&'w MachineConfig], kubelet: &[KubeletConfig]) -> Result<Group, NoConfig> {
        let failed = |error: payload::PayloadError| NoConfig::Failed(error.to_string());
        let part = payload::render_part(&pool.meta.id.name, configs, kubelet);
        let part = if pool.own_bootstrap_user { part.with_own_user() } else { part };
        let base = self.base(pool)?.map(|(what, bytes)| Base { what, bytes });
        let what = base.map(|base| base.what);
        let mut pool = payload::render_pool(base, &part).map_err(failed)?;
        let pack = |payload: &Payload| payload::pack(payload).map(Arc::<[u8]>::from).map_err(failed);
        let whole = pack(&pool.whole)?;
        let bare = if pool.bare == pool.whole { Arc::clone(&whole) } else { pack(&pool.bare)? };
        pool.whole.text.clear();
        pool.bare.text.clear();
        let writers = writers(configs, &pool, what);
        Ok(Group { pool, writers, packed: Some((whole, bare)) })
    }

    fn base(&self, pool: &Pool) -> Result<Option<(&'i str, &'i [u8])>, NoConfig> {
        if pool.ignition.is_none() {
            return Ok(None);
        }
        match self.inputs.bases.get(&pool.meta.id) {
            None => Err(NoConfig::Pending),
            Some(FetchedBase::Failed(why)) => Err(NoConfig::Failed(why.clone())),
            Some(FetchedBase::Ready { what, bytes }) => Ok(Some((what, bytes))),
        }
    }

    fn parts(&self, pool: &'w Pool, view: Option<&HostView<'w>>) -> (Vec<&'w MachineConfig>, Vec<KubeletConfig>) {
        let mut configs = machine_config::members(pool, &self.context.world.machine_configs);
        configs.retain(|config| view.is_none_or(|view| self.context.config_reaches(config, view)));
        let from_maps = self.documents(pool).filter(|object| object.id.kind == "KubeletConfig");
        let selected = self.kubelet_configs.iter().copied().filter(|object| {
            let labels = object.root.path(&["spec", "machineConfigPoolSelector", "matchLabels"]);
            let labels = labels.map(Node::entries).unwrap_or_default();
            let has =
                |key: &str, value: Option<&str>| pool.meta.labels.get(key).map(|label| label.value.as_str()) == value;
            pool.origin == PoolOrigin::MachineConfigPool
                && !labels.is_empty()
                && labels.iter().all(|label| has(&label.key.value, label.value.as_str()))
        });
        let kubelet = from_maps.chain(selected).map(|object| KubeletConfig {
            name: object.id.name.clone(),
            settings: object.root.path(&["spec", "kubeletConfig"]).map(Node::to_json).unwrap_or_default(),
        });
        (configs, kubelet.collect())
    }

    /// The manifests in the pool's ConfigMaps.
    fn documents(&self, pool: &'w Pool) -> impl Iterator<Item = &'w crate::world::Object> {
        let maps = pool.config_maps.iter().filter_map(|reference| {
            let own = &pool.meta.id.namespace;
            let namespace = if reference.namespace.is_empty() { own } else { &reference.namespace };
            let id = ObjectId { kind: "ConfigMap".into(), namespace: namespace.clone(), name: reference.name.clone() };
            self.manifests.get(&id)
        });
        maps.flatten().copied()
    }

    /// As HyperShift joins them: each as text, sorted.
    fn manifests_text(&self, pool: &'w Pool) -> String {
        let mut texts: Vec<String> = self.documents(pool).map(|object| to_yaml(&object.root.to_json())).collect();
        texts.sort_unstable();
        texts.join("\n---\n")
    }

    fn not_rendered(&self, pool: &'w Pool) -> BTreeSet<String> {
        let others = self
            .documents(pool)
            .filter(|object| !["MachineConfig", "KubeletConfig"].contains(&object.id.kind.as_str()));
        others.map(|object| format!("{} {}", object.id.kind, object.id.name)).collect()
    }

    fn is_stored(&self, namespace: &str, name: &str) -> bool {
        self.inputs.stored.secrets.contains(&(namespace.to_owned(), name.to_owned()))
    }

    fn want(
        &mut self,
        pool: &Pool,
        namespace: &str,
        name: &str,
        (id, group): (Digest, &Group),
        packed: Option<Arc<[u8]>>,
    ) {
        let packed = packed.filter(|_| !self.is_stored(namespace, name));
        let key = (namespace.to_owned(), name.to_owned());
        self.payloads.entry(key).or_insert_with(|| StoredPayload {
            pool: pool.meta.id.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            id,
            writers: group.writers.clone(),
            kubeconfigs: group.pool.kubeconfigs.clone(),
            system: group.pool.system.clone(),
            packed,
        });
    }
}

/// What changes of files and units take, as the MachineConfiguration `cluster` says it; or what is wrong with it.
pub(crate) fn rules(world: &World) -> Option<Result<Rules, Vec<String>>> {
    let of_cluster = |policy: &&DisruptionPolicy| policy.within.is_none() && policy.meta.id.name == "cluster";
    let policy = world.disruption_policies.iter().find(of_cluster)?.policy.as_ref()?;
    Some(parse_rules(&policy.to_json()))
}

/// Which object puts each file where NetworkManager looks, and where the end of the initramfs looks for a reason to keep
/// nothing. What no MachineConfig writes is the base's.
fn writers(configs: &[&MachineConfig], pool: &RenderedPool, base: Option<&str>) -> BTreeMap<String, String> {
    let folders = [payload::PROFILES, NETWORK_SCRIPTS];
    let mut writers = BTreeMap::new();
    if let Some(base) = base {
        let profiles = pool.profiles.iter().map(|file| format!("{}{}", payload::PROFILES, file.name));
        let all = profiles.chain(pool.kept.iter().cloned());
        writers.extend(all.map(|path| (path, format!("the base config ({base})"))));
    }
    for config in configs {
        let lists = ["files", "links", "directories"];
        let lists = lists.iter().filter_map(|list| config.config.as_ref()?.path(&["storage", list]));
        for path in lists.flat_map(Node::items).filter_map(|entry| entry.get("path")?.as_str()) {
            if folders.iter().any(|folder| path.starts_with(folder)) {
                writers.insert(path.to_owned(), format!("MachineConfig {}", config.meta.id.name));
            }
        }
    }
    writers
}

/// As the machine's Ignition has it: a list instead of a text with commas.
fn proxy(http: Option<&str>, https: Option<&str>, except: Option<&str>) -> Option<PointerProxy> {
    let some = |text: Option<&str>| text.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
    let except = except.unwrap_or_default().split(',').filter_map(|item| some(Some(item))).collect();
    let proxy = PointerProxy { http: some(http), https: some(https), except };
    (proxy.http.is_some() || proxy.https.is_some()).then_some(proxy)
}

fn pool_proxy(written: &Proxy) -> Option<PointerProxy> {
    let Proxy { http, https, no_proxy } = written;
    let text = |value: &'_ Option<Sourced<String>>| value.as_ref().map(|value| value.value.clone());
    proxy(text(http).as_deref(), text(https).as_deref(), text(no_proxy).as_deref())
}

fn cluster_proxy(written: &Value) -> Option<PointerProxy> {
    let text = |key: &str| written[key].as_str();
    proxy(text("httpProxy"), text("httpsProxy"), text("noProxy"))
}

fn parse_override(text: &str) -> Option<Node> {
    let mut sources = SourceMap::default();
    let file = sources.add("override", text);
    parse_json(file, sources.file(file)).0
}

/// The version in the tag of a release image: `…/ocp-release:4.14.3-x86_64`.
fn release_version(image: &str) -> Option<&str> {
    const ARCHITECTURES: [&str; 6] = ["-x86_64", "-aarch64", "-ppc64le", "-s390x", "-multi", "-arm64"];
    let last = image.rsplit('/').next()?;
    let tag = last.split_once('@').map_or(last, |(name, _)| name).split_once(':')?.1;
    let version = ARCHITECTURES.iter().find_map(|suffix| tag.strip_suffix(suffix)).unwrap_or(tag);
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let mut numbers = version.split(['.', '-']);
    let is_version = (0..2).all(|_| numbers.next().is_some_and(digits));
    is_version.then_some(version)
}

#[cfg(test)]
mod tests {
    use super::release_version;

    #[test]
    fn a_release_image_may_say_its_version() {
        for (image, expected) in [
            ("quay.io/openshift-release-dev/ocp-release:4.14.3-x86_64", Some("4.14.3")),
            ("quay.io/openshift-release-dev/ocp-release:4.15.0-rc.1-multi", Some("4.15.0-rc.1")),
            ("registry.lab:5000/ocp@sha256:00", None),
            ("registry.lab:5000/ocp:latest", None),
            ("registry.lab:5000/ocp:4.16.1@sha256:00", Some("4.16.1")),
            ("", None),
        ] {
            assert_eq!(release_version(image), expected, "{image}");
        }
    }
}
