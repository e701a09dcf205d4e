//! NodePool, MachineConfigPool and Kiln's own Pool: how many hosts, and whether their config can be rendered.

use kiln_core::timeline::Stage;
use serde_json::{Value, json};

use super::condition::{Condition, Truth, render_conditions};
use super::{HostView, Object, View, host};

/// Hosts of a pool, by how far they are.
struct Counts {
    declared: usize,
    registered: usize,
    ready: usize,
    fetched: bool,
}

fn counts(view: &View, name: &str, in_namespace: Option<&str>) -> Counts {
    let belongs = |host: &&HostView| {
        host.facts.pool == name && in_namespace.is_none_or(|namespace| host.facts.id.namespace == namespace)
    };
    let hosts: Vec<&HostView> = view.hosts.iter().filter(belongs).collect();
    let at = |stage| hosts.iter().filter(|host| host.timeline.reached(stage).is_some()).count();
    Counts {
        declared: hosts.len(),
        registered: at(Stage::Registered),
        ready: at(Stage::Ready),
        fetched: at(Stage::IgnitionFetched) > 0,
    }
}

/// HyperShift's words; the reason of what is well is always `AsExpected`.
pub fn node_pool(view: &View, object: &Object) -> Value {
    let counts = counts(view, &object.id.name, Some(&object.id.namespace));
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
    let all = [
        config,
        match counts.fetched {
            true => Condition::new("ReachedIgnitionEndpoint", Truth::True, "AsExpected", ""),
            false => Condition::new(
                "ReachedIgnitionEndpoint",
                Truth::False,
                "ignitionNotReached",
                "no host has fetched its config",
            ),
        },
        waiting("AllMachinesReady", "AsExpected"),
        waiting("AllNodesHealthy", "AsExpected"),
        waiting("Ready", "AsExpected"),
    ];
    let extra = json!({"observedGeneration": object.item.generation});
    json!({
        "replicas": counts.registered,
        "conditions": render_conditions(&object.status["conditions"], &all, view.now, &extra),
    })
}

/// The machine-config-operator's words. Which config a node runs is known when an agent on it says so.
pub fn machine_config_pool(view: &View, object: &Object) -> Value {
    let counts = counts(view, &object.id.name, None);
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
            let id = kiln_core::diagnostic::ObjectId { kind: kind.into(), namespace, name: object.id.name.clone() };
            view.cache.get(kind, &id.namespace, &id.name).map(|_| id)
        }),
        false => None,
    };
    let id = source.unwrap_or_else(|| object.id.clone());
    let in_namespace = (id.kind != "MachineConfigPool").then_some(id.namespace.as_str());
    let counts = counts(view, &id.name, in_namespace);
    let error = view.error(&id);
    let mut status =
        host::plain_status(view, &Object { id, item: object.item, spec: object.spec, status: object.status });
    let extra = json!({"observedGeneration": object.item.generation});
    let conditions = [host::valid(error)];
    status["conditions"] = render_conditions(&object.status["conditions"], &conditions, view.now, &extra);
    status["hosts"] = json!(counts.declared);
    status["readyHosts"] = json!(counts.ready);
    status
}
