//! NodePool, MachineConfigPool and Kiln's own Pool: how many hosts, and whether their config can be rendered and was fetched.
//!
//! Upstream's words, but true: a host has reached the endpoint when *it* fetched, not when any machine did, and a change of the
//! config goes on until every host that runs has fetched the new one.

use kiln_core::diagnostic::ObjectId;
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
    /// Names of those that fetched another config than the present one.
    outdated: Vec<&'v str>,
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
    let is_outdated = |host: &HostView| match (fetched(host).zip(since), &host.fetched) {
        (None, _) => false,
        (Some(_), Some(payload)) => !is_present(payload),
        // Nobody wrote down which it was.
        (Some((time, since)), None) => time < since,
    };
    Counts {
        everywhere,
        declared: hosts.len(),
        registered: at(Stage::Registered),
        ready: at(Stage::Ready),
        unfetched: hosts.iter().filter(|host| fetched(host).is_none()).map(|host| named(&host)).collect(),
        outdated: hosts.iter().filter(|host| is_outdated(host)).map(|host| named(&host)).collect(),
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

/// HyperShift's words; the reason of what is well is always `AsExpected`.
pub fn node_pool(view: &View, object: &Object) -> Value {
    let report = view.cache.pools.get(&object.id);
    let counts = counts(view, &object.id.name, Some(&object.id.namespace), report);
    let all_ready = counts.declared > 0 && counts.ready == counts.declared;
    let progress = format!("{} of {} hosts are ready", counts.ready, counts.declared);
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
    let unknown = |kind| Condition::not_driven(kind, "the nodes' agents report which config they run");
    let all = [degraded, unknown("Updated"), unknown("Updating"), unknown("Degraded")];
    json!({
        "observedGeneration": object.item.generation,
        "machineCount": counts.registered,
        "readyMachineCount": counts.ready,
        "unavailableMachineCount": counts.registered - counts.ready.min(counts.registered),
        "conditions": render_conditions(&object.status["conditions"], &all, view.now, &Value::Null),
    })
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
    let error = view.error(&id);
    let mut status =
        host::plain_status(view, &Object { id, item: object.item, spec: object.spec, status: object.status });
    let extra = json!({"observedGeneration": object.item.generation});
    let mut conditions = vec![host::valid(error)];
    if report.is_some() {
        conditions.extend([payload(report, "PayloadReady"), reached(report, &counts), updating(report, &counts)]);
    }
    conditions.extend(resized(report, object.status));
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
