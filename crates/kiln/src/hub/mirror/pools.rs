//! NodePool, MachineConfigPool and Kiln's own Pool: how many hosts, and whether their config can be rendered and was fetched.
//!
//! Upstream's words, but true: a host has reached the endpoint when *it* fetched, not when any machine did, and a change of the
//! config goes on until every host that runs has fetched the new one.

use kiln_core::diagnostic::ObjectId;
use kiln_core::machine::MachinePhase;
use kiln_core::timeline::{Moment, Stage};
use serde_json::{Value, json};

use super::condition::{Condition, Truth, render_conditions};
use super::{HostView, Object, View, host};
use crate::hub::pools::report::{ConfigReport, OutOfService, PoolReport};

/// Names in a message; the rest is counted.
const SHOWN: usize = 10;

/// Hosts of a pool, by how far they are.
struct Counts<'v> {
    /// All of them.
    everywhere: usize,
    /// Those in service; the others below are among them.
    declared: usize,
    registered: usize,
    ready: usize,
    /// Names of those that have not fetched.
    unfetched: Vec<&'v str>,
    /// Names of those that fetched another config than the present one and were not changed to it since.
    outdated: Vec<&'v str>,
    /// Names of those whose running nodes have what they shall have; none when nobody keeps running nodes.
    updated: Option<Vec<&'v str>>,
    /// Those that are changed now, or wait for it.
    changing: Vec<&'v str>,
    /// How many are out for it.
    out: usize,
    /// Those on which it failed or that others changed, and what they say.
    degraded: Vec<(&'v str, String)>,
}

impl Counts<'_> {
    /// Whether every host in service is ready, and there is one.
    fn are_ready(&self) -> bool {
        self.declared > 0 && self.ready == self.declared
    }

    fn progress(&self) -> String {
        format!("{} of {} hosts are ready", self.ready, self.declared)
    }
}

fn counts<'v>(view: &'v View, name: &str, in_namespace: Option<&str>, report: Option<&PoolReport>) -> Counts<'v> {
    let belongs = |host: &&HostView| {
        host.facts.pool == name && in_namespace.is_none_or(|namespace| host.facts.id.namespace == namespace)
    };
    let all: Vec<&HostView> = view.hosts.iter().filter(belongs).collect();
    let everywhere = all.len();
    let hosts: Vec<&HostView> = all.into_iter().filter(|host| view.out_of_service(&host.facts.id).is_none()).collect();
    let since = since(report);
    let is_present = |payload: &str| report.is_some_and(|report| report.payloads.contains(payload));
    let at = |stage| hosts.iter().filter(|host| host.timeline.reached(stage).is_some()).count();
    let named = |host: &&&'v HostView| host.facts.id.name.as_str();
    let fetched = |host: &HostView| host.timeline.reached(Stage::IgnitionFetched).map(|entry| entry.time);
    let is_changed = |host: &HostView| host.machine.revision.is_some() && host.machine.applied == host.machine.revision;
    let is_outdated = |host: &HostView| match (fetched(host).zip(since), &host.fetched) {
        (None, _) => false,
        _ if is_changed(host) => false,
        (Some(_), Some(payload)) => !is_present(payload),
        // Nobody wrote down which it was.
        (Some((time, since)), None) => time < since,
    };
    let kept: Vec<&HostView> = hosts.iter().copied().filter(|host| host.machine.revision.is_some()).collect();
    let is_settled = |host: &HostView| is_changed(host) && trouble(host).is_none();
    Counts {
        everywhere,
        declared: hosts.len(),
        registered: at(Stage::Registered),
        ready: at(Stage::Ready),
        unfetched: hosts.iter().filter(|host| fetched(host).is_none()).map(|host| named(&host)).collect(),
        outdated: hosts.iter().filter(|host| is_outdated(host)).map(|host| named(&host)).collect(),
        updated: (!kept.is_empty())
            .then(|| kept.iter().filter(|host| is_settled(host)).map(|host| named(&host)).collect()),
        changing: kept
            .iter()
            .filter(|host| !is_settled(host) && trouble(host).is_none())
            .map(|host| named(&host))
            .collect(),
        out: kept.iter().filter(|host| host.machine.upkeep.is_some() && host.machine.waits.is_none()).count(),
        degraded: kept.iter().filter_map(|host| Some((named(&host), trouble(host)?))).collect(),
    }
}

/// Why a running node does not have what it shall have, in its own words.
fn trouble(host: &HostView) -> Option<String> {
    let (report, _) = host.machine.told.as_ref()?;
    if Some(&report.revision) != host.machine.revision.as_ref() {
        return None;
    }
    match &report.phase {
        MachinePhase::RolledBack(why) | MachinePhase::Refused(why) => Some(why.clone()),
        MachinePhase::Drifted(lines) => Some(format!("unexpected on-disk state: {}", lines.join(", "))),
        _ => None,
    }
}

fn listed(names: &[&str]) -> String {
    let shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn since(report: Option<&PoolReport>) -> Option<Moment> {
    match report.map(|report| &report.config) {
        Some(ConfigReport::Ready { since, .. }) => *since,
        _ => None,
    }
}

fn payload(report: Option<&PoolReport>, kind: &'static str) -> Condition {
    match report.map(|report| &report.config) {
        None => Condition::new(kind, Truth::Unknown, "NotRendered", "the config has not been looked at yet"),
        Some(ConfigReport::Pending) => {
            Condition::new(kind, Truth::Unknown, "BasePending", "the base config is being fetched")
        }
        Some(ConfigReport::Failed(why)) => Condition::new(kind, Truth::False, "InvalidConfig", why.clone()),
        Some(ConfigReport::Ready { since: None, .. }) => {
            Condition::new(kind, Truth::Unknown, "NotStored", "the payload is being stored")
        }
        Some(ConfigReport::Ready { message, .. }) => Condition::new(kind, Truth::True, "AsExpected", message.clone()),
    }
}

fn reached(report: Option<&PoolReport>, counts: &Counts) -> Condition {
    let kind = "ReachedIgnitionEndpoint";
    let by_token = report.is_some_and(|report| report.reached);
    match (counts.declared, &counts.unfetched[..]) {
        (0, _) if by_token => Condition::new(kind, Truth::True, "AsExpected", ""),
        (0, _) => Condition::new(kind, Truth::False, "ignitionNotReached", "no host has fetched its config"),
        (_, []) => Condition::new(kind, Truth::True, "AsExpected", ""),
        (declared, missing) => {
            let message =
                format!("{} of {declared} hosts have not fetched their config: {}", missing.len(), listed(missing));
            Condition::new(kind, Truth::False, "ignitionNotReached", message)
        }
    }
}

fn updating(report: Option<&PoolReport>, counts: &Counts) -> Condition {
    let hash = match report.map(|report| &report.config) {
        Some(ConfigReport::Ready { hash, .. }) => hash.as_str(),
        _ => {
            return Condition::new(
                "UpdatingConfig",
                Truth::Unknown,
                "NotRendered",
                "there is no config to compare with",
            );
        }
    };
    match &counts.outdated[..] {
        [] => Condition::new("UpdatingConfig", Truth::False, "AsExpected", ""),
        old => {
            let message =
                format!("config {hash} is not on {} hosts, which fetched another one: {}", old.len(), listed(old));
            Condition::new("UpdatingConfig", Truth::True, "AsExpected", message)
        }
    }
}

/// Whether the pool has as many hosts in service as it says. Nothing to say of one that says no number.
fn resized(report: Option<&PoolReport>, status: &Value) -> Option<Condition> {
    let kind = "Resized";
    let said = status["conditions"].as_array().is_some_and(|known| known.iter().any(|known| known["type"] == kind));
    let Some(replicas) = report.and_then(|report| report.replicas.as_ref()) else {
        return said.then(|| Condition::new(kind, Truth::True, "AsExpected", "every host is in service"));
    };
    let (wanted, taken) = (replicas.wanted, replicas.in_service);
    let going: Vec<&str> = replicas.releasing().map(|(name, _)| name).collect();
    Some(match going[..] {
        [] if taken as u64 >= u64::from(wanted) => {
            Condition::new(kind, Truth::True, "AsExpected", format!("{taken} of {wanted} hosts are in service"))
        }
        [] => {
            let named = |((_, name), out): (&(String, String), &OutOfService)| format!("{name}: {}", out.message);
            let others: Vec<String> = replicas.others.iter().take(SHOWN).map(named).collect();
            let others = if others.is_empty() { "it has no others".to_owned() } else { others.join("; ") };
            let message = format!("{taken} of {wanted} hosts are in service and no other is available: {others}");
            Condition::new(kind, Truth::False, "TooFewHosts", message)
        }
        _ => {
            let why = replicas.releasing().next().map(|(_, out)| out.message.as_str()).unwrap_or_default();
            Condition::new(kind, Truth::False, "ScalingDown", format!("{} go out of service: {why}", listed(&going)))
        }
    })
}

/// What the pool shall do without being told. Upstream says True when it is asked for; here nothing does it.
fn by_itself(spec: &Value) -> [Condition; 2] {
    let asked = |asked: bool, kind, what: &str| match asked {
        true => Condition::not_driven(kind, what),
        false => Condition::new(kind, Truth::False, "AsExpected", ""),
    };
    let scaling = &spec["autoScaling"];
    let bounds = format!(
        "the number of nodes follows the load (Maximum nodes: {}, Minimum nodes: {})",
        scaling["max"], scaling["min"]
    );
    let repair = spec["management"]["autoRepair"] == true;
    [
        asked(scaling.is_object(), "AutoscalingEnabled", &bounds),
        asked(repair, "AutorepairEnabled", "machines whose nodes are not healthy are replaced"),
    ]
}

/// HyperShift's words; the reason of what is well is always `AsExpected`.
pub fn node_pool(view: &View, object: &Object) -> Value {
    let report = view.cache.pools.get(&object.id);
    let counts = counts(view, &object.id.name, Some(&object.id.namespace), report);
    let (all_ready, progress) = (counts.are_ready(), counts.progress());
    let config = match view.error(&object.id) {
        Some(error) => Condition::new("ValidMachineConfig", Truth::False, "ValidationFailed", error),
        None => Condition::new("ValidMachineConfig", Truth::True, "AsExpected", ""),
    };
    let waiting = |kind, true_reason: &'static str| match all_ready {
        true => Condition::new(kind, Truth::True, true_reason, ""),
        false => Condition::new(kind, Truth::False, "WaitingForHosts", progress.clone()),
    };
    let mut all = vec![
        config,
        payload(report, "ValidGeneratedPayload"),
        reached(report, &counts),
        updating(report, &counts),
        waiting("AllMachinesReady", "AsExpected"),
        waiting("AllNodesHealthy", "AsExpected"),
        waiting("Ready", "AsExpected"),
    ];
    all.extend(resized(report, object.status));
    all.extend(by_itself(object.spec));
    // What runs is known when every host is ready on the present config.
    let wanted = report.and_then(|report| report.release_version.as_deref());
    let proven = wanted.filter(|_| all_ready && counts.outdated.is_empty() && counts.unfetched.is_empty());
    let version = proven.or(object.status["version"].as_str());
    if let Some(wanted) = wanted {
        all.push(match version {
            Some(version) if version == wanted => Condition::new("UpdatingVersion", Truth::False, "AsExpected", ""),
            _ if counts.declared == 0 => Condition::new("UpdatingVersion", Truth::False, "AsExpected", ""),
            _ => {
                let message = format!("version {wanted} is not proven on every host: {progress}");
                Condition::new("UpdatingVersion", Truth::True, "AsExpected", message)
            }
        });
    }
    // As upstream, this one is there only while it is not so.
    let endpoint = "IgnitionEndpointAvailable";
    if report.is_some_and(|report| !report.has_endpoint) {
        let message = "this hub does not know under which address nodes reach it, so it makes no user-data";
        all.push(Condition::new(endpoint, Truth::False, "IgnitionEndpointMissing", message));
    }
    let old: Value = object.status["conditions"]
        .as_array()
        .map_or(Value::Null, |old| old.iter().filter(|condition| condition["type"] != endpoint).cloned().collect());
    let extra = json!({"observedGeneration": object.item.generation});
    let mut status = json!({
        "replicas": counts.registered,
        "conditions": render_conditions(&old, &all, view.now, &extra),
    });
    if let Some(version) = version {
        status["version"] = json!(version);
    }
    status
}

/// The machine-config-operator's words. Which config a node runs is known when an agent on it says so.
pub fn machine_config_pool(view: &View, object: &Object) -> Value {
    let counts = counts(view, &object.id.name, None, None);
    let degraded = match view.error(&object.id) {
        Some(error) => Condition::new("RenderDegraded", Truth::True, "FailedToRender", error),
        None => Condition::new("RenderDegraded", Truth::False, "", ""),
    };
    let cannot_render = degraded.is_true();
    let mut all = vec![degraded];
    all.extend(of_running_nodes(&counts, cannot_render));
    let mut status = json!({
        "observedGeneration": object.item.generation,
        "machineCount": counts.registered,
        "readyMachineCount": counts.ready,
        "unavailableMachineCount": counts.registered - counts.ready.min(counts.registered),
        "conditions": render_conditions(&object.status["conditions"], &all, view.now, &Value::Null),
    });
    if let Some(updated) = &counts.updated {
        // An agent that speaks runs on a machine, whoever has seen its Node.
        let machines = counts.registered.max(updated.len() + counts.changing.len() + counts.degraded.len());
        let out = counts.out.max(counts.registered - counts.ready.min(counts.registered));
        status["machineCount"] = json!(machines);
        status["updatedMachineCount"] = json!(updated.len());
        status["degradedMachineCount"] = json!(counts.degraded.len());
        status["unavailableMachineCount"] = json!(out);
        status["readyMachineCount"] = json!(updated.len().min(machines.saturating_sub(out)));
    }
    status
}

/// What is known of running nodes, in the machine-config-operator's words.
fn of_running_nodes(counts: &Counts, cannot_render: bool) -> Vec<Condition> {
    let Some(updated) = &counts.updated else {
        let unknown = |kind| Condition::not_driven(kind, "the nodes' agents report which config they run");
        return vec![unknown("Updated"), unknown("Updating"), unknown("Degraded")];
    };
    let said = |(name, why): &(&str, String)| format!("Node {name} is reporting: \"{why}\"");
    let node_degraded = match &counts.degraded[..] {
        [] => Condition::new("NodeDegraded", Truth::False, "AsExpected", ""),
        nodes => {
            let told: Vec<String> = nodes.iter().take(SHOWN).map(said).collect();
            let many = match nodes.len() {
                1 => "1 node is reporting degraded status on sync".to_owned(),
                many => format!("{many} nodes are reporting degraded status on sync"),
            };
            Condition::new("NodeDegraded", Truth::True, "NodesFailed", format!("{many}. {}", told.join(", ")))
        }
    };
    let degraded = node_degraded.is_true() || cannot_render;
    let changing = &counts.changing[..];
    let (is_updated, is_updating) = (changing.is_empty() && counts.degraded.is_empty(), !changing.is_empty());
    let updating = match is_updating {
        true => format!("{} of {} nodes are not updated yet: {}", changing.len(), counts.declared, listed(changing)),
        false => String::new(),
    };
    let all_updated = if is_updated { format!("All {} nodes are updated", updated.len()) } else { String::new() };
    vec![
        node_degraded,
        Condition::new("Updated", Truth::of(is_updated), "AsExpected", all_updated),
        Condition::new("Updating", Truth::of(is_updating), "AsExpected", updating),
        Condition::new("Degraded", Truth::of(degraded), "AsExpected", ""),
    ]
}

/// Kiln's own words.
pub fn pool(view: &View, object: &Object) -> Value {
    let source = match object.item.made {
        // a MachineConfigPool has no namespace and its Pool has: the source's findings are the Pool's
        true => ["NodePool", "MachineConfigPool"].into_iter().find_map(|kind| {
            let namespace = if kind == "NodePool" { object.id.namespace.clone() } else { String::new() };
            let id = ObjectId { kind: kind.into(), namespace, name: object.id.name.clone() };
            view.cache.get(kind, &id.namespace, &id.name).map(|_| id)
        }),
        false => None,
    };
    let id = source.unwrap_or_else(|| object.id.clone());
    let in_namespace = (id.kind != "MachineConfigPool").then_some(id.namespace.as_str());
    let report = view.cache.pools.get(&id);
    let counts = counts(view, &id.name, in_namespace, report);
    let valid = host::valid(view.findings(&id).iter());
    let mut status =
        host::plain_status(view, &Object { id, item: object.item, spec: object.spec, status: object.status });
    let extra = json!({"observedGeneration": object.item.generation});
    let ready = match counts.are_ready() {
        true => Condition::new("Ready", Truth::True, "HostsReady", counts.progress()),
        false => Condition::new("Ready", Truth::False, "WaitingForHosts", counts.progress()),
    };
    let mut conditions = vec![valid, ready];
    if report.is_some() {
        conditions.extend([payload(report, "PayloadReady"), reached(report, &counts), updating(report, &counts)]);
    }
    conditions.extend(resized(report, object.status));
    if counts.updated.is_some() {
        conditions.extend(of_running_nodes(&counts, false));
    }
    if let Some(ConfigReport::Ready { hash, payload, .. }) = report.map(|report| &report.config) {
        status["config"] = json!({"hash": hash, "payload": payload});
    }
    status["conditions"] = render_conditions(&object.status["conditions"], &conditions, view.now, &extra);
    status["hosts"] = json!(counts.everywhere);
    status["readyHosts"] = json!(counts.ready);
    let going = report.and_then(|report| report.replicas.as_ref()).map_or(0, |replicas| replicas.releasing().count());
    status["replicas"] = json!(counts.declared + going);
    status["readyReplicas"] = json!(counts.ready);
    status
}
