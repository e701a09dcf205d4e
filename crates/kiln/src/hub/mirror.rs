//! What each object's status should say: Kiln's own kinds in Kiln's words, upstream kinds in theirs.
//!
//! [`plan_status`] is pure and total: summary, cache and time in, patches out, and no patch for a status that is right
//! already. Each patch names the revision it was made for, so a status written meanwhile is never overwritten.
//!
//! **Invariant:** only what is true. What nothing carries out yet is `Unknown` with the reason; a status that another
//! controller writes is left alone.

use std::collections::HashMap;

use kiln_core::diagnostic::{ObjectId, Severity};
use kiln_core::timeline::{Moment, Stage, Timeline};
use serde_json::{Value, json};

use super::controllers::cache::{Cache, HostStatus, Item};
use super::controllers::difference::diff_merge;
use super::controllers::kinds::{Use, WATCHED, Watched};
use super::controllers::observe::observations;
use super::controllers::summary::{Finding, HostFacts, Summary};
use super::machines::records::MachineRecord;
use super::pools::report::OutOfService;

mod bare_metal_host;
mod condition;
mod discovery;
mod findings;
mod host;
mod pools;

pub use condition::{Condition, Truth, render_conditions};
pub use findings::{FINDINGS, holds_findings};

/// The stages something in this hub carries out or witnesses. Later controllers and endpoints add theirs.
pub const DRIVEN: &[Stage] = &[
    Stage::Declared,
    Stage::IgnitionFetched,
    Stage::RealRoot,
    Stage::ClientCsr,
    Stage::Registered,
    Stage::ServingCsr,
    Stage::Ready,
];

/// The status one object should have.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusPatch {
    /// Of which kind.
    pub kind: &'static Watched,
    /// Empty for cluster-wide objects.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// A merge patch with the revision it was made for.
    pub patch: Value,
}

/// A host with everything known about it.
pub struct HostView<'a> {
    /// What declares it.
    pub facts: &'a HostFacts,
    /// Its own findings and those of its networks, the worst first.
    pub findings: Vec<&'a Finding>,
    /// What happened to it.
    pub timeline: Timeline,
    /// The payload it fetched, if that is known.
    pub fetched: Option<Box<str>>,
    /// How far it is with its files and units since.
    pub machine: MachineRecord,
}

impl HostView<'_> {
    /// How far it is. A stage that nobody saw is not missing when a later one was, so stages are compared with this.
    pub fn furthest(&self) -> Stage {
        self.timeline.furthest().map_or(Stage::Declared, |entry| entry.stage)
    }
}

/// What the statuses are worked out from.
pub struct View<'a> {
    /// The world in short.
    pub summary: &'a Summary,
    /// What exists.
    pub cache: &'a Cache,
    /// Every host.
    pub hosts: Vec<HostView<'a>>,
    by_id: HashMap<&'a ObjectId, usize>,
    by_mac: HashMap<&'a str, usize>,
    by_cluster: HashMap<&'a ObjectId, Vec<usize>>,
    /// How many hosts stand at each Site.
    at_site: HashMap<&'a str, usize>,
    /// Hosts of pools that say how many they have, by namespace and name, and why one is not among them.
    service: HashMap<(&'a str, &'a str), &'a OutOfService>,
    /// The present.
    pub now: Moment,
}

impl<'a> View<'a> {
    /// Joins findings, observations and the timelines that are written down.
    pub fn new(summary: &'a Summary, cache: &'a Cache, now: Moment) -> Self {
        let observed = observations(summary, cache);
        let hosts = summary.hosts.iter().zip(observed).map(|(facts, observed)| {
            let written = cache.get("Host", &facts.id.namespace, &facts.id.name);
            let HostStatus { mut timeline, payload: fetched, machine } =
                written.map(Item::host_status).unwrap_or_default();
            for entry in observed {
                timeline.merge(entry);
            }
            let ids = std::iter::once(&facts.id).chain(&facts.networks);
            let mut findings: Vec<&Finding> = ids.flat_map(|id| findings_of(summary, id)).collect();
            findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
            HostView { facts, findings, timeline, fetched, machine }
        });
        let hosts: Vec<HostView> = hosts.collect();
        let by_id = summary.hosts.iter().enumerate().map(|(index, host)| (&host.id, index)).collect();
        let (mut by_mac, mut by_cluster) = (HashMap::new(), HashMap::<&ObjectId, Vec<usize>>::new());
        let mut at_site: HashMap<&str, usize> = HashMap::new();
        for (index, host) in summary.hosts.iter().enumerate() {
            by_mac.extend(host.macs.iter().map(|mac| (mac.as_str(), index)));
            host.cluster.iter().for_each(|cluster| by_cluster.entry(cluster).or_default().push(index));
            host.site.iter().for_each(|site| *at_site.entry(&**site).or_default() += 1);
        }
        let counted = cache.pools.values().filter_map(|report| report.replicas.as_ref());
        let others = counted.flat_map(|replicas| &replicas.others);
        let service = others.map(|((namespace, name), out)| ((namespace.as_str(), name.as_str()), out)).collect();
        View { summary, cache, hosts, by_id, by_mac, by_cluster, at_site, service, now }
    }

    /// Why a host is not in service; none when it is, or when its pool has all its hosts.
    pub fn out_of_service(&self, id: &ObjectId) -> Option<&'a OutOfService> {
        self.service.get(&(id.namespace.as_str(), id.name.as_str())).copied()
    }

    /// The host that has one of these addresses.
    pub fn host_with(&self, mut macs: impl Iterator<Item = String>) -> Option<&HostView<'a>> {
        macs.find_map(|mac| self.by_mac.get(mac.as_str())).map(|index| &self.hosts[*index])
    }

    /// The hosts of a cluster.
    pub fn hosts_of(&self, cluster: &ObjectId) -> Vec<&HostView<'a>> {
        self.by_cluster.get(cluster).into_iter().flatten().map(|index| &self.hosts[*index]).collect()
    }

    /// How many hosts stand at a Site.
    pub fn hosts_at(&self, site: &str) -> usize {
        self.at_site.get(site).copied().unwrap_or_default()
    }

    /// The host an object declares.
    pub fn host(&self, id: &ObjectId) -> Option<&HostView<'a>> {
        self.by_id.get(id).map(|index| &self.hosts[*index])
    }

    /// What was found in one object.
    pub fn findings(&self, id: &ObjectId) -> &'a [Finding] {
        findings_of(self.summary, id)
    }

    /// The worst error of an object, and how many there are.
    pub fn error(&self, id: &ObjectId) -> Option<String> {
        error_text(self.findings(id).iter())
    }
}

fn findings_of<'a>(summary: &'a Summary, id: &ObjectId) -> &'a [Finding] {
    summary.findings.get(id).map_or(&[], Vec::as_slice)
}

/// What is wrong with each host and its networks, by namespace and name.
pub fn host_errors(summary: &Summary) -> HashMap<(String, String), String> {
    let errors = summary.hosts.iter().filter_map(|host| {
        let ids = std::iter::once(&host.id).chain(&host.networks);
        let error = error_text(ids.flat_map(|id| findings_of(summary, id)))?;
        Some(((host.id.namespace.clone(), host.id.name.clone()), error))
    });
    errors.collect()
}

/// `KLN0101: message (and 2 more errors)`; none without errors.
pub fn error_text<'a>(findings: impl Iterator<Item = &'a Finding>) -> Option<String> {
    let errors: Vec<&Finding> = findings.filter(|finding| finding.severity == Severity::Error).collect();
    let first = errors.first()?;
    let more = match errors.len() - 1 {
        0 => String::new(),
        1 => " (and 1 more error)".into(),
        more => format!(" (and {more} more errors)"),
    };
    Some(format!("{}: {}{more}", first.code, first.message))
}

/// Every status that must change.
pub fn plan_status(summary: &Summary, cache: &Cache, now: Moment) -> Vec<StatusPatch> {
    let view = View::new(summary, cache, now);
    let mut patches = Vec::new();
    for watched in WATCHED.iter().filter(|watched| watched.has_written_status()) {
        for ((namespace, name), item) in cache.of_kind(watched.kind) {
            let foreign = item.foreign_status && watched.use_ != Use::Own;
            // Nobody would keep the condition right any more that was written before somebody else came.
            let outdated = foreign && item.has_findings && watched.use_ == Use::Checked;
            if item.deleting || (foreign && !outdated) || !cache.is_judged(watched.kind, namespace, name) {
                continue;
            }
            let id = ObjectId { kind: watched.kind.into(), namespace: namespace.clone(), name: name.clone() };
            // Most objects of such a kind have nothing to be told, and there may be ten thousand.
            if watched.use_ == Use::Checked && !item.has_findings && view.findings(&id).is_empty() {
                continue;
            }
            let value = item.value();
            let object = Object { id, item, spec: &value["spec"], status: &value["status"] };
            let wanted = match outdated {
                true => Some(findings::without(object.status)),
                false => findings::add(&view, &object, watched, status(&view, &object)),
            };
            let Some(wanted) = wanted else { continue };
            let Some(patch) = diff_merge(&known_part(object.status, &wanted), &wanted) else { continue };
            let patch = json!({"metadata": {"resourceVersion": item.revision}, "status": patch});
            patches.push(StatusPatch { kind: watched, namespace: namespace.clone(), name: name.clone(), patch });
        }
    }
    patches
}

/// An object whose status is worked out.
pub struct Object<'a> {
    /// Kind, namespace, name.
    pub id: ObjectId,
    /// What is remembered of it.
    pub item: &'a Item,
    /// Its spec, where it is kept.
    pub spec: &'a Value,
    /// Its status as it is.
    pub status: &'a Value,
}

fn status(view: &View, object: &Object) -> Option<Value> {
    match object.id.kind.as_str() {
        "Host" => Some(host::status(view, object)),
        "BareMetalHost" => bare_metal_host::status(view, object),
        "InfraEnv" => Some(discovery::infra_env(view, object)),
        "Agent" => Some(discovery::agent(view, object)),
        "AgentClusterInstall" => Some(discovery::cluster_install(view, object)),
        "NodePool" => Some(pools::node_pool(view, object)),
        "MachineConfigPool" => Some(pools::machine_config_pool(view, object)),
        "Pool" => Some(pools::pool(view, object)),
        // `NodeNetworkConfigurationPolicy`: what became of it is known by `hub::network`, which leaves our condition there.
        "Site" => Some(host::site_status(view, object)),
        "Image" => Some(host::plain_status(view, object)),
        _ => None,
    }
}

/// The fields of the old status that the new one speaks of; the others are not Kiln's.
fn known_part(old: &Value, new: &Value) -> Value {
    let Value::Object(new) = new else { return old.clone() };
    new.keys().filter_map(|key| Some((key.clone(), old.get(key)?.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_about_an_object_before_the_rules_have_looked_at_it() {
        let watched = crate::hub::controllers::kinds::find("Host").unwrap();
        let mut cache = Cache::default();
        let host = |generation: u64, role: &str| {
            json!({"apiVersion": watched.api_version(), "kind": "Host", "metadata": {"name": "a", "namespace": "n",
                "generation": generation}, "spec": {"role": role}})
        };
        let told = |cache: &Cache| plan_status(&Summary::default(), cache, Moment(0)).len();
        cache.put(watched, &host(1, "worker"));
        assert_eq!(told(&cache), 0, "it is new");
        cache.unjudged.clear();
        assert_eq!(told(&cache), 1);
        cache.put(watched, &host(2, "master"));
        assert_eq!(told(&cache), 0, "it is another since");
    }
}
