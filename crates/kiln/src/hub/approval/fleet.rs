//! The hosts and pools of the hub as the approver sees them: what is declared, what is known, which cluster they join.
//!
//! [`read_host`] and [`read_pool`] reduce an object to what is asked about; [`Fleet::view`] joins hosts and pools. All of
//! that is pure. [`SharedFleet`] is fed by watches and publishes a new [`View`] after each burst of changes.
//!
//! What is declared comes from a Host's spec and its annotations, never from the Node's status.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kiln_core::certificate_request::{HostFacts, Mode, Names, Proof, Provision};
use kiln_core::health::parse_duration;
use kiln_core::timeline::Timeline;
use serde_json::Value;
use tokio::sync::{Notify, watch};

use super::recorded::{Recorded, approved, read_recorded};
use crate::hub::controllers::kinds::{HOST, NODE_POOL, POOL, Watched};
use crate::hub::following::{Follower, Following, Place, Query, place};
use crate::hub::timeline::{parse_time, read_timeline};

/// Requests a person vouches for, by name, with commas between them.
pub const VOUCHED: &str = "kiln.dev/approve-certificates";
/// Names and addresses of a host besides those of its network, with commas between them.
pub const ADDRESSES: &str = "kiln.dev/addresses";
/// On a NodePool: the mode, or `mode,proof`.
pub const CERTIFICATES: &str = "kiln.dev/certificates";
/// On a NodePool: the Secret with the kubeconfig, or `secret/key`.
pub const KUBECONFIG: &str = "kiln.dev/kubeconfig";
/// The key of a kubeconfig in its Secret.
const DEFAULT_KEY: &str = "kubeconfig";
/// Changes are gathered for so long.
const QUIET: Duration = Duration::from_millis(50);

/// A cluster that hosts join, by where its kubeconfig is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// Key in the Secret.
    pub key: String,
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.secret)
    }
}

/// A host, reduced.
#[derive(Debug, Clone, PartialEq)]
pub struct HostRecord {
    /// Namespace and name.
    pub place: Place,
    /// `metadata.uid`.
    pub uid: String,
    /// The pool it names.
    pub pool: Option<String>,
    /// Namespace and name of the cluster it names.
    pub cluster: Option<Box<Place>>,
    /// Labels its Node shall have.
    pub labels: BTreeMap<String, String>,
    /// What its requests are judged by; the pool's part is added by the view.
    pub facts: Arc<HostFacts>,
    /// What happened to it.
    pub timeline: Timeline,
    /// Verdicts that are written down.
    pub recorded: Vec<Recorded>,
    /// How often it was repaired since it was last well, and what is wanted of whom.
    pub wanted: Value,
    /// Its condition `Healthy` as it stands.
    pub healthy: Option<Box<(String, String, String)>>,
    /// When it was made.
    pub created: kiln_core::timeline::Moment,
}

/// A pool, reduced.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PoolRecord {
    /// What is done with requests.
    pub mode: Option<Mode>,
    /// What must prove them.
    pub proof: Option<Proof>,
    /// The Secret with the kubeconfig of its cluster.
    pub kubeconfig: Option<(String, String)>,
    /// Name of its cluster.
    pub cluster: Option<String>,
    /// Labels its Nodes shall have.
    pub labels: BTreeMap<String, String>,
    /// Taints its Nodes shall have, as they stand in a Node.
    pub taints: Vec<Value>,
    /// Its health policy, as written.
    pub health: Value,
    /// How many of its hosts may be changed at once, as written.
    pub budget: Option<String>,
    /// How long emptying a Node may take, in seconds; as long as it takes without.
    pub drain: Option<i64>,
}

/// A host with what its pool adds.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// The host.
    pub host: Arc<HostRecord>,
    /// Its mode and proof are those of its pool; where these are the usual ones, it is the host's own.
    pub facts: Arc<HostFacts>,
    /// Labels of the pool and, over them, of the host.
    pub labels: BTreeMap<String, String>,
    /// Taints of the pool.
    pub taints: Vec<Value>,
    /// The pool's health policy.
    pub health: Value,
    /// How many hosts of the pool may be changed at once, as written.
    pub budget: Option<String>,
    /// How long emptying its Node may take, in seconds; as long as it takes without.
    pub drain: Option<i64>,
}

/// All hosts at one moment.
#[derive(Debug, Default)]
pub struct View {
    /// Hosts by cluster and name of the node. Two hosts of one name are both there.
    pub clusters: BTreeMap<Target, HashMap<String, Vec<Arc<Member>>>>,
    /// Hosts that join no cluster Kiln has a kubeconfig of.
    pub others: Vec<Arc<Member>>,
}

impl View {
    /// Every host.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.clusters.values().flat_map(HashMap::values).flatten().chain(&self.others).map(|member| &**member)
    }
}

/// Reduces a Host.
pub fn read_host(object: &Value) -> HostRecord {
    let (metadata, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let some = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let place = (text(&metadata["namespace"]), text(&metadata["name"]));
    let node = some(&spec["hostname"]).unwrap_or_else(|| place.1.clone());
    let mut declared = Names::default();
    declared.add(&node);
    let dynamic = declare_network(&spec["network"], &mut declared);
    let annotation = |name: &str| metadata["annotations"][name].as_str().unwrap_or_default();
    let listed = |text: &str| -> Vec<String> {
        text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    listed(annotation(ADDRESSES)).iter().for_each(|name| declared.add(name));
    let recorded = read_recorded(status);
    let cluster = some(&spec["cluster"]["name"]);
    let namespace = some(&spec["cluster"]["namespace"]).unwrap_or_else(|| place.0.clone());
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let healthy = conditions.into_iter().find(|condition| condition["type"] == "Healthy");
    HostRecord {
        uid: text(&metadata["uid"]),
        pool: some(&spec["pool"]).or_else(|| some(&status["pool"])),
        cluster: cluster.map(|name| Box::new((namespace, name))),
        labels: read_labels(&spec["nodeLabels"]),
        facts: Arc::new(HostFacts {
            node,
            declared,
            dynamic,
            provision: read_provision(&status["provision"]),
            approved: approved(&recorded),
            vouched: listed(annotation(VOUCHED)).into_iter().collect(),
            ..HostFacts::default()
        }),
        timeline: read_timeline(status),
        recorded,
        wanted: status["provision"]["wanted"].clone(),
        healthy: healthy.map(|condition| {
            Box::new((text(&condition["status"]), text(&condition["reason"]), text(&condition["message"])))
        }),
        created: metadata["creationTimestamp"].as_str().and_then(parse_time).unwrap_or(kiln_core::timeline::Moment(0)),
        place,
    }
}

/// Collects the static addresses of an nmstate document. Says whether there are others that nobody can know: with DHCP,
/// or without any document at all.
fn declare_network(network: &Value, declared: &mut Names) -> bool {
    let Some(interfaces) = network["interfaces"].as_array() else { return true };
    let mut dynamic = false;
    for family in interfaces.iter().flat_map(|interface| [&interface["ipv4"], &interface["ipv6"]]) {
        dynamic |= family["dhcp"] == true || family["autoconf"] == true;
        for address in family["address"].as_array().into_iter().flatten() {
            if let Some(address) = address["ip"].as_str().and_then(|text| text.split('/').next()?.parse().ok()) {
                declared.addresses.insert(address);
            }
        }
    }
    dynamic
}

fn read_provision(provision: &Value) -> Option<Provision> {
    let text = |key: &str| provision[key].as_str().filter(|text| !text.is_empty());
    let keys = provision["spki"].as_array().into_iter().flatten();
    provision.is_object().then(|| Provision {
        generation: provision["generation"].as_u64().unwrap_or_default(),
        fetched: text("fetchedAt").and_then(parse_time),
        source: text("source").and_then(|source| source.parse().ok()),
        keys: keys.filter_map(|key| key.as_str()?.parse().ok()).collect(),
        user: text("bootstrapUser").map(str::to_owned),
        alarm: match &provision["alarm"] {
            Value::String(alarm) if !alarm.is_empty() => Some(alarm.clone()),
            Value::Bool(true) => Some("its token was used from a second address".into()),
            Value::Object(alarm) if !alarm.is_empty() => Some(Value::Object(alarm.clone()).to_string()),
            _ => None,
        },
    })
}

fn read_labels(labels: &Value) -> BTreeMap<String, String> {
    let labels = labels.as_object().into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// Reduces a Pool or a NodePool. What cannot be understood is as if it were not written: `kiln check` and the schema say so.
pub fn read_pool(object: &Value) -> PoolRecord {
    let spec = &object["spec"];
    let annotation = |name: &str| object["metadata"]["annotations"][name].as_str().unwrap_or_default();
    let (mode, proof) = match annotation(CERTIFICATES) {
        "" => (spec["certificates"]["mode"].as_str(), spec["certificates"]["proof"].as_str()),
        written => match written.split_once(',') {
            Some((mode, proof)) => (Some(mode.trim()), Some(proof.trim())),
            None => (Some(written.trim()), None),
        },
    };
    let some = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let kubeconfig = match annotation(KUBECONFIG) {
        "" => some(&spec["kubeconfig"]["name"])
            .map(|name| (name, some(&spec["kubeconfig"]["key"]).unwrap_or_else(|| DEFAULT_KEY.into()))),
        written => {
            let (name, key) = written.split_once('/').unwrap_or((written, DEFAULT_KEY));
            Some((name.trim().to_owned(), key.trim().to_owned()))
        }
    };
    let health = match annotation("kiln.dev/health") {
        "" => spec["health"].clone(),
        written => serde_json::from_str(written).unwrap_or_default(),
    };
    let drain = spec["drainTimeout"].as_str().or(spec["nodeDrainTimeout"].as_str());
    let taints = spec["nodeTaints"].as_array().or(spec["taints"].as_array());
    PoolRecord {
        // An unknown word must not mean "approve".
        mode: mode.map(|mode| mode.parse().unwrap_or(Mode::Observe)),
        proof: proof.map(|proof| proof.parse().unwrap_or(Proof::Key)),
        kubeconfig,
        cluster: some(&spec["clusterName"]),
        labels: read_labels(&spec["nodeLabels"]),
        taints: taints.into_iter().flatten().filter_map(read_taint).collect(),
        health,
        budget: match &spec["maxUnavailable"] {
            Value::String(budget) => Some(budget.clone()),
            Value::Number(budget) => Some(budget.to_string()),
            _ => None,
        },
        // HyperShift's 0 sets no limit.
        drain: drain.and_then(|text| parse_duration(text).ok()).filter(|seconds| *seconds > 0),
    }
}

/// `{key, value, effect}` or `key=value:Effect`.
fn read_taint(taint: &Value) -> Option<Value> {
    let (key, value, effect) = match taint {
        Value::String(text) => {
            let (name, effect) = text.rsplit_once(':')?;
            let (key, value) = name.split_once('=').unwrap_or((name, ""));
            (key.to_owned(), value.to_owned(), effect.to_owned())
        }
        taint => {
            let text = |key: &str| taint[key].as_str().unwrap_or_default().to_owned();
            (text("key"), text("value"), text("effect"))
        }
    };
    let mut read = serde_json::json!({"key": key, "effect": effect});
    if !value.is_empty() {
        read["value"] = value.into();
    }
    (!key.is_empty() && !effect.is_empty()).then_some(read)
}

/// Pools by kind and place.
type Pools = BTreeMap<(&'static str, Place), PoolRecord>;

/// Everything the watches saw.
#[derive(Debug, Default)]
pub struct Fleet {
    hosts: BTreeMap<Place, Seat>,
    pools: Pools,
}

/// A host in the fleet.
#[derive(Debug)]
struct Seat {
    host: Arc<HostRecord>,
    /// Joined with its pool, as long as neither changes: views share it.
    joined: Option<(Arc<Member>, Option<Arc<Target>>)>,
}

impl Fleet {
    /// Takes an object. Says whether anything changed.
    pub fn put(&mut self, kind: &'static str, object: &Value) -> bool {
        if kind == HOST.kind {
            let record = Arc::new(read_host(object));
            let place = record.place.clone();
            let news = self.hosts.get(&place).is_none_or(|before| before.host != record);
            if news {
                self.hosts.insert(place, Seat { host: record, joined: None });
            }
            news
        } else {
            let record = read_pool(object);
            let key = (kind, place(object));
            let news = self.pools.get(&key).is_none_or(|before| *before != record);
            if news {
                self.part();
                self.pools.insert(key, record);
            }
            news
        }
    }

    /// Forgets an object.
    pub fn remove(&mut self, kind: &'static str, place: &Place) {
        if kind == HOST.kind {
            self.hosts.remove(place);
        } else {
            self.part();
            self.pools.remove(&(kind, place.clone()));
        }
    }

    /// Every host must be joined again.
    fn part(&mut self) {
        self.hosts.values_mut().for_each(|seat| seat.joined = None);
    }

    fn retain(&mut self, kind: &'static str, listed: &HashSet<Place>) {
        self.part();
        if kind == HOST.kind {
            self.hosts.retain(|place, _| listed.contains(place));
        } else {
            self.pools.retain(|(of, place), _| *of != kind || listed.contains(place));
        }
    }

    /// Joins hosts and pools.
    pub fn view(&mut self) -> View {
        let mut view = View::default();
        for Seat { host, joined } in self.hosts.values_mut() {
            let (member, target) = joined
                .get_or_insert_with(|| {
                    let (member, target) = Fleet::member(&self.pools, Arc::clone(host));
                    (Arc::new(member), target.map(Arc::new))
                })
                .clone();
            let Some(target) = target else {
                view.others.push(member);
                continue;
            };
            let node = member.facts.node.clone();
            let nodes = match view.clusters.get_mut(&*target) {
                Some(nodes) => nodes,
                None => view.clusters.entry(Target::clone(&target)).or_default(),
            };
            nodes.entry(node).or_default().push(member);
        }
        view
    }

    /// A host with what its pool adds, and the cluster it joins.
    fn member(all: &Pools, host: Arc<HostRecord>) -> (Member, Option<Target>) {
        let pool = host.pool.as_ref();
        // A Pool of a MachineConfigPool is in `default`, wherever its hosts are.
        let places = |pool: &String| [(host.place.0.clone(), pool.clone()), ("default".to_owned(), pool.clone())];
        let of = |kind: &'static str| {
            pool.into_iter().flat_map(places).find_map(|place| Some((all.get(&(kind, place.clone()))?, place.0)))
        };
        // A Pool that was made of a NodePool says what both say; only the NodePool says the rest.
        let (own, theirs) = (of(POOL.kind), of("NodePool"));
        let either = [theirs, own];
        let pools: Vec<&(&PoolRecord, String)> = either.iter().flatten().collect();
        let mode = pools.iter().find_map(|(pool, _)| pool.mode).unwrap_or_default();
        let proof = pools.iter().find_map(|(pool, _)| pool.proof).unwrap_or_default();
        let facts = match (mode, proof) == (host.facts.mode, host.facts.proof) {
            true => Arc::clone(&host.facts),
            false => Arc::new(HostFacts { mode, proof, ..HostFacts::clone(&host.facts) }),
        };
        let mut labels = BTreeMap::new();
        pools.iter().rev().for_each(|(pool, _)| labels.extend(pool.labels.clone()));
        labels.extend(host.labels.clone());
        let taints = pools.iter().map(|(pool, _)| &pool.taints).find(|taints| !taints.is_empty());
        let health = pools.iter().map(|(pool, _)| &pool.health).find(|health| !health.is_null());
        let admin = |namespace: &str, cluster: &str| Target {
            namespace: namespace.to_owned(),
            secret: format!("{cluster}-admin-kubeconfig"),
            key: DEFAULT_KEY.to_owned(),
        };
        let named = pools.iter().find_map(|(pool, namespace)| {
            let (secret, key) = pool.kubeconfig.clone()?;
            Some(Target { namespace: namespace.clone(), secret, key })
        });
        let of_pool = || pools.iter().find_map(|(pool, namespace)| Some(admin(namespace, pool.cluster.as_ref()?)));
        let of_host = || host.cluster.as_deref().map(|(namespace, name)| admin(namespace, name));
        let target = named.or_else(of_pool).or_else(of_host);
        let member = Member {
            facts,
            labels,
            taints: taints.cloned().unwrap_or_default(),
            health: health.cloned().unwrap_or_default(),
            budget: pools.iter().find_map(|(pool, _)| pool.budget.clone()),
            drain: pools.iter().find_map(|(pool, _)| pool.drain),
            host,
        };
        (member, target)
    }

    /// The cluster a host joins.
    pub fn target_of(&self, object: &Value) -> Option<Target> {
        Fleet::member(&self.pools, Arc::new(read_host(object))).1
    }

    /// What is judged by when the newest state of a host was read just now.
    pub fn member_of(&self, object: &Value) -> Member {
        Fleet::member(&self.pools, Arc::new(read_host(object))).0
    }
}

/// The fleet, shared between the watches and whoever asks.
#[derive(Debug)]
pub struct SharedFleet {
    fleet: Mutex<Fleet>,
    changed: Notify,
    /// Kinds whose first list is not complete.
    unread: AtomicUsize,
}

/// What a fleet is made of.
const KINDS: [&Watched; 3] = [&HOST, &POOL, &NODE_POOL];

impl Default for SharedFleet {
    fn default() -> SharedFleet {
        SharedFleet { fleet: Mutex::default(), changed: Notify::new(), unread: AtomicUsize::new(KINDS.len()) }
    }
}

impl SharedFleet {
    /// Reads or changes the fleet.
    pub fn with<T>(&self, read: impl FnOnce(&mut Fleet) -> T) -> T {
        // Each change is one call: nothing is ever half done.
        read(&mut self.fleet.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Watches hosts and pools for the fleet.
    pub fn follow(self: &Arc<Self>, following: &mut Following) {
        for kind in KINDS {
            following.add(Query::all(*kind), Arc::new(OfKind { kind: kind.kind, shared: Arc::clone(self) }));
        }
    }

    /// Publishes a view after each burst of changes. Never ends.
    pub async fn publish(&self, views: &watch::Sender<Arc<View>>) {
        loop {
            self.changed.notified().await;
            tokio::time::sleep(QUIET).await;
            if self.unread.load(Ordering::Acquire) == 0 {
                let began = Instant::now();
                views.send_replace(Arc::new(self.with(Fleet::view)));
                // However fast hosts change, most of the time is left to others.
                tokio::time::sleep(began.elapsed() * 4).await;
            }
        }
    }
}

/// One kind of the fleet.
struct OfKind {
    kind: &'static str,
    shared: Arc<SharedFleet>,
}

impl Follower for OfKind {
    fn put(&self, object: &Value) {
        if self.shared.with(|fleet| fleet.put(self.kind, object)) {
            self.shared.changed.notify_one();
        }
    }

    fn remove(&self, object: &Value) {
        self.shared.with(|fleet| fleet.remove(self.kind, &place(object)));
        self.shared.changed.notify_one();
    }

    fn retain(&self, listed: &HashSet<Place>) {
        self.shared.with(|fleet| fleet.retain(self.kind, listed));
        self.shared.changed.notify_one();
    }

    fn read_once(&self) {
        self.shared.unread.fetch_sub(1, Ordering::AcqRel);
        self.shared.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn host(name: &str, spec: Value) -> Value {
        json!({"metadata": {"name": name, "namespace": "lab", "annotations": {ADDRESSES: "10.0.0.9, alias.lab", VOUCHED: "csr-1"}},
            "spec": spec, "status": {"provision": {"generation": 2, "fetchedAt": "2026-01-01T00:00:00Z", "source": "10.0.0.7",
                "spki": ["ab".repeat(32), "no key"], "alarm": ""}}})
    }

    #[test]
    fn addresses_are_those_that_were_declared() {
        let network = json!({"interfaces": [
            {"name": "eth0", "ipv4": {"enabled": true, "address": [{"ip": "192.0.2.10", "prefix-length": 24}]}, "ipv6": {"enabled": true, "address": [{"ip": "2001:db8::1"}]}},
            {"name": "eth1", "ipv4": {"enabled": false}}]});
        let read = read_host(&host("w0", json!({"hostname": "w0.lab", "network": network})));
        assert_eq!(read.facts.declared.to_string(), "alias.lab, w0.lab, 10.0.0.9, 192.0.2.10, 2001:db8::1");
        assert!(!read.facts.dynamic);
        let provision = read.facts.provision.as_ref().unwrap();
        assert_eq!((provision.generation, provision.keys.len(), provision.alarm.as_ref()), (2, 1, None));
        assert!(read.facts.vouched.contains("csr-1"));
        let dhcp = json!({"interfaces": [{"name": "eth0", "ipv4": {"enabled": true, "dhcp": true}}]});
        assert!(read_host(&host("w0", json!({"network": dhcp}))).facts.dynamic);
        assert!(read_host(&host("w0", json!({}))).facts.dynamic, "without a document the machine asks a DHCP server");
    }

    #[test]
    fn a_host_joins_the_cluster_of_its_pool_or_its_own() {
        let mut fleet = Fleet::default();
        fleet.put("Pool", &json!({"metadata": {"name": "native", "namespace": "lab"}, "spec": {"kubeconfig": {"name": "kc"}, "certificates": {"mode": "hold", "proof": "fetched"}, "nodeLabels": {"a": "pool", "b": "pool"}, "nodeTaints": [{"key": "t", "effect": "NoSchedule"}, "u=1:NoExecute", "wrong"]}}));
        fleet.put("NodePool", &json!({"metadata": {"name": "np", "namespace": "lab", "annotations": {CERTIFICATES: "manual"}}, "spec": {"clusterName": "hc"}}));
        fleet.put("Pool", &json!({"metadata": {"name": "np", "namespace": "lab"}, "spec": {"nodeLabels": {"x": "y"}}}));
        fleet.put("Pool", &json!({"metadata": {"name": "worker", "namespace": "default"}, "spec": {"certificates": {"mode": "sometimes"}}}));
        for (name, spec) in [
            ("a", json!({"pool": "native", "nodeLabels": {"a": "host"}})),
            ("b", json!({"pool": "np"})),
            ("c", json!({"pool": "worker", "cluster": {"name": "own", "namespace": "clusters"}})),
            ("d", json!({})),
        ] {
            fleet.put("Host", &host(name, spec));
        }
        let view = fleet.view();
        let told: Vec<String> = view
            .clusters
            .iter()
            .map(|(target, nodes)| {
                let member = nodes.values().next().unwrap().first().unwrap();
                format!(
                    "{target}[{}] {} {:?} {:?} {:?}",
                    target.key, member.facts.node, member.facts.mode, member.facts.proof, member.labels
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                r#"clusters/own-admin-kubeconfig[kubeconfig] c Observe Key {}"#,
                r#"lab/hc-admin-kubeconfig[kubeconfig] b Manual Key {"x": "y"}"#,
                r#"lab/kc[kubeconfig] a Hold Fetched {"a": "host", "b": "pool"}"#,
            ]
        );
        assert_eq!(view.others.len(), 1);
        let native = view.members().find(|member| member.facts.node == "a").unwrap();
        assert_eq!(
            native.taints,
            [json!({"key": "t", "effect": "NoSchedule"}), json!({"key": "u", "effect": "NoExecute", "value": "1"})]
        );
    }
}
