//! What must be written so that nodes get their networks in the right order. Pure: [`plan_network`] decides, the shell
//! carries it out in the order of [`Planned`].
//!
//! | object | written |
//! |---|---|
//! | Secret `network-HOST` | when the revision, or the reason to wait, is another one; it goes with its Host |
//! | Lease `slot-NAMESPACE.HOST` | made when a slot is given, removed when it ends; taken and renewed by the endpoints |
//! | NodeNetworkConfigurationEnactment `NODE.POLICY` | for each selected node; removed when the policy is neither wished nor in force there |
//! | status of policies | conditions in upstream's words, nodes that are out, a generation that was taken back |
//! | `status.network.failed` of a Host | when a node came back from a change without it |
//! | `status.network.layers` of a Host | when other layers own fields of its interfaces |

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln_core::assignment::{Assignment, DriftAction, Permit, Proof};
use kiln_core::policy::{self, AFTER_PROOF, LONGEST_TIME, NetworkPolicy, NodeChoice, OnFailure, RolloutWish};
use kiln_core::rollout::conditions::{self, of_enactment, of_policy};
use kiln_core::rollout::{
    self, Budget, Canary, Enactment, Ended, Holder, Loss, Lost, Node, Policy, Progress, Rollout, Situation, Slot,
    Standing, Waves, Wished, plan_rollout,
};
use kiln_core::timeline::Moment;
use serde_json::{Value, json};

use super::compose::{Composition, Memo, Policies};
use super::records::{
    ASSIGNMENT, AssignmentRecord, EnactmentRecord, HOST_ANNOTATION, HostRecord, NodeRecord, PolicyRecord, SlotRecord,
};
use super::seen::Seen;
use crate::hub::controllers::cache::FROM_LABEL;
use crate::hub::controllers::difference::diff_merge;
use crate::hub::controllers::kinds::{ENACTMENT, HOST, NETWORK_POLICY, SECRET};
use crate::hub::controllers::plan_objects::{Action, ObjectChange};
use crate::hub::mirror::{StatusPatch, Truth, render_conditions};
use crate::hub::pools::{HOST_LABEL, LABEL, label};
use crate::hub::timeline::render_time;

/// How long after a permit a try may begin, in seconds.
pub const WINDOW: i64 = 60;
/// What is added to the longest try, in seconds: the way to the hub and back.
pub const MARGIN: i64 = 15;
/// A node that does not say what it would change within so many seconds is taken for silent.
pub const PATIENCE: i64 = 300;

/// What is to be done, in this order.
#[derive(Debug, Default)]
pub struct Planned {
    /// Slots that end.
    pub releases: Vec<(Arc<SlotRecord>, Ended)>,
    /// Assignments and enactments.
    pub changes: Vec<ObjectChange>,
    /// Slots that are given: Host, holder, seconds.
    pub grants: Vec<(String, Holder, i64)>,
    /// Slots of which nobody knows whether they were made.
    pub uncertain: Vec<Arc<SlotRecord>>,
    /// Slots of nodes that are lost.
    pub lost: Vec<Arc<SlotRecord>>,
    /// Statuses.
    pub statuses: Vec<StatusPatch>,
    /// When to look again.
    pub next: Option<Moment>,
    /// For figures.
    pub rollout: Rollout,
}

/// No proof of policies takes longer, in milliseconds: their times have limits, and a checkpoint outlasts what it covers.
const LONGEST_PROOF: u64 = 2 * LONGEST_TIME + (2 * LONGEST_TIME + AFTER_PROOF);

/// How long a try may take, in seconds. A node that goes on for longer is lost, so everything a policy may ask for fits.
pub fn longest_try(proof: &Proof) -> i64 {
    let millis = proof.within.saturating_add(proof.soak).saturating_add(proof.checkpoint).min(LONGEST_PROOF);
    i64::try_from(millis / 1000).unwrap_or(i64::MAX / 4) + MARGIN
}

struct View<'a> {
    host: &'a HostRecord,
    labels: BTreeMap<String, String>,
    ready: bool,
    composition: Arc<Composition>,
}

/// A node that came back so often from a change without it has failed.
const MOST_LOSSES: u32 = 3;

/// Decides everything. What was composed before is taken from `memo`.
pub fn plan_network(seen: &Seen, memo: &mut Memo, now: Moment) -> Planned {
    let policies = Policies::of(seen);
    let given = allocations(seen, &policies);
    if !given.is_empty() {
        // First what was given out is written down; then it is composed with.
        return Planned { statuses: given, ..Planned::default() };
    }
    let views = view(seen, &policies, memo, now);
    let nodes: Vec<Node> = views.iter().map(|(id, view)| node(seen, id, view)).collect();
    let policies: Vec<Policy> = seen.policies.values().map(|record| self::policy(record, &views)).collect();
    let slots: Vec<Slot> = seen.slots.values().map(|record| record.slot.clone()).collect();
    let pools = seen.pools.iter().filter_map(|(id, pool)| Some((id.clone(), pool.budget?))).collect();
    let situation = Situation { now, nodes: &nodes, slots: &slots, policies: &policies, pools: &pools };
    let rollout = plan_rollout(&situation);
    let mut planned = Planned { next: rollout.next, ..Planned::default() };
    let names = node_names(&views);
    for (id, view) in &views {
        let wait = wait_reason(rollout.nodes.get(*id));
        planned.changes.extend(assignment(view, seen.assignments.get(*id).map(|record| &**record), &wait, now));
        let since = seen.assignments.get(*id).map_or(now, |record| record.since);
        if rollout.nodes.get(*id) == Some(&Standing::Unheard) && view.ready {
            let silent = Moment(since.0.saturating_add(PATIENCE));
            planned.next = Some(planned.next.map_or(silent, |next| next.min(silent)));
        }
        planned.statuses.extend(host_status(view, rollout.failures.get(*id), now));
    }
    for (host, holder) in &rollout.grants {
        let proof = views.get(host.as_str()).map(|view| &view.composition.proof);
        let seconds = WINDOW + longest_try(proof.unwrap_or(&Proof::default()));
        planned.grants.push((host.clone(), holder.clone(), seconds));
    }
    for record in seen.slots.values() {
        if let Some(why) = rollout.releases.get(&record.slot.node) {
            planned.releases.push((Arc::clone(record), *why));
        } else if record.at.revision.is_empty() {
            planned.uncertain.push(Arc::clone(record));
        } else if rollout.nodes.get(&record.slot.node) == Some(&Standing::Lost) {
            planned.lost.push(Arc::clone(record));
        }
    }
    plan_enactments(seen, &views, &names, &rollout, now, &mut planned);
    for record in seen.policies.values() {
        let progress = rollout.policies.get(&record.at.name).copied().unwrap_or_default();
        let withdraw = rollout.withdraw.iter().any(|reference| reference.name == record.at.name);
        planned.statuses.extend(policy_status(record, &progress, withdraw, now));
    }
    planned.rollout = rollout;
    planned
}

/// What the leader says on a Host: that its node came back without a change, and which layers own fields of its interfaces.
fn host_status(view: &View, failure: Option<&Loss>, now: Moment) -> Option<StatusPatch> {
    let View { host, composition, .. } = view;
    let mut network = json!({});
    if let Some(Loss { revision, policies }) = failure {
        let same = host.failed.as_ref().filter(|(known, _)| known.revision == *revision);
        let times = same.map_or(0, |(_, times)| *times) + 1;
        network["failed"] = json!({"revision": revision, "policies": policies, "times": times, "at": render_time(now)});
    }
    let known: Value = serde_json::from_str(&host.layers).unwrap_or_default();
    // Nothing is not written where nothing is.
    let said = composition.layers.as_ref().filter(|layers| !(layers.is_empty() && known.is_null()));
    if let Some(patch) = said.and_then(|layers| diff_merge(&known, &json!(layers))) {
        network["layers"] = patch;
    }
    (network != json!({})).then(|| StatusPatch {
        kind: &HOST,
        namespace: host.at.namespace.clone(),
        name: host.at.name.clone(),
        patch: json!({"metadata": {"resourceVersion": host.at.revision}, "status": {"network": network}}),
    })
}

/// Addresses of pools that have to be written down.
fn allocations(seen: &Seen, policies: &Policies) -> Vec<StatusPatch> {
    let labelled: Vec<(&str, BTreeMap<String, String>)> = seen
        .hosts
        .values()
        .map(|host| (host.node.as_str(), labels(host, seen.nodes.get(&host.node).map(|node| &**node))))
        .collect();
    let nodes: Vec<(&str, &BTreeMap<String, String>)> = labelled.iter().map(|(name, labels)| (*name, labels)).collect();
    let patch = |(name, given): (String, Value)| {
        let record = seen.policies.get(&name)?;
        let patch = diff_merge(&record.status["kiln"]["allocations"], &given)?;
        Some(StatusPatch {
            kind: &NETWORK_POLICY,
            namespace: String::new(),
            name,
            patch: json!({"metadata": {"resourceVersion": record.at.revision}, "status": {"kiln": {"allocations": patch}}}),
        })
    };
    policies.allocate(&nodes).into_iter().filter_map(patch).collect()
}

/// Labels of a host's Node, as they are or as they are declared.
fn labels(host: &HostRecord, node: Option<&NodeRecord>) -> BTreeMap<String, String> {
    let mut labels = host.labels.clone();
    labels.extend(node.into_iter().flat_map(|node| node.labels.clone()));
    labels.entry("kubernetes.io/hostname".into()).or_insert_with(|| host.node.clone());
    labels
}

fn view<'a>(seen: &'a Seen, policies: &Policies, memo: &mut Memo, now: Moment) -> BTreeMap<&'a str, View<'a>> {
    memo.retain(seen);
    let mut views = BTreeMap::new();
    for (id, host) in &seen.hosts {
        let node = seen.nodes.get(&host.node);
        let labels = labels(host, node.map(|node| &**node));
        let composition = memo.compose(seen, id, host, &labels, policies);
        let assigned = seen.assignments.get(id);
        let heard = host.told.as_ref().is_some_and(|told| told.revision == composition.revision);
        let silent = !heard
            && assigned.is_some_and(|record| {
                now.0 >= record.since.0.saturating_add(PATIENCE) && record.text.contains(&composition.revision)
            });
        let ready = node.is_none_or(|node| node.ready) && !silent;
        views.insert(id.as_str(), View { host, labels, ready, composition });
    }
    views
}

fn node(seen: &Seen, id: &str, view: &View) -> Node {
    let View { host, labels, ready, composition, .. } = view;
    let told_applied = host.told.as_ref().is_some_and(|told| {
        told.revision == composition.revision
            && matches!(told.phase, kiln_core::assignment::Phase::Applied | kiln_core::assignment::Phase::Drifted(_))
    });
    let applied = match (&host.applied, told_applied) {
        (_, true) => composition.policies.clone(),
        (Some((_, policies)), false) => policies.clone(),
        (None, false) => Vec::new(),
    };
    Node {
        id: id.to_owned(),
        pool: seen.pool_of(host),
        labels: labels.clone(),
        ready: *ready,
        wished: Some(Wished {
            revision: composition.revision.clone(),
            policies: composition.policies.clone(),
            // Where drift of an interface is only told, the node is done when it has told it; to repair, it asks for a slot.
            repair: composition.drift == DriftAction::Repair && composition.drift_of.is_empty(),
        }),
        applied,
        told: host.told.clone(),
        lost: host.failed.as_ref().map(|(loss, times)| Lost { loss: loss.clone(), given_up: *times >= MOST_LOSSES }),
        refused: composition.refused.clone(),
        upkeep: host.upkeep,
    }
}

/// A policy as far as the rollout goes. One that was taken back keeps its nodes, and one nobody can read has none.
fn policy(record: &PolicyRecord, views: &BTreeMap<&str, View>) -> Policy {
    let (name, generation, withdrawn) = (record.at.name.clone(), record.generation, record.is_withdrawn());
    let Ok(read) = &record.policy else { return Policy { name, generation, withdrawn, ..Policy::default() } };
    let NetworkPolicy { selector, max_unavailable, options, .. } = read;
    let RolloutWish { canary, by, on_failure } = &options.rollout;
    let chosen = |choice: &NodeChoice| {
        let nodes = views.iter().filter(|(_, view)| choice.matches(&view.host.node, &view.labels));
        nodes.map(|(id, _)| (*id).to_owned()).collect()
    };
    Policy {
        name,
        generation,
        members: chosen(selector),
        budget: Budget::of_policy(max_unavailable.as_deref()),
        canary: canary.as_ref().map(|canary| match canary {
            policy::Canary::Count(count) => Canary::Count(usize::try_from(*count).unwrap_or(usize::MAX)),
            policy::Canary::Nodes(choice) => Canary::Nodes(chosen(choice)),
        }),
        waves: by.as_ref().map(|label| Waves { label: label.clone(), order: Vec::new() }),
        paused: options.paused,
        revert: *on_failure == OnFailure::Revert,
        withdrawn,
    }
}

/// Names of Nodes. Two hosts of one name: the second is told apart by its namespace.
fn node_names(views: &BTreeMap<&str, View>) -> HashMap<String, String> {
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    let mut names = HashMap::new();
    for (id, view) in views {
        let name = match taken.insert(&view.host.node) {
            true => view.host.node.clone(),
            false => format!("{}-{}", view.host.at.namespace, view.host.node),
        };
        names.insert((*id).to_owned(), name);
    }
    names
}

fn wait_reason(standing: Option<&Standing>) -> String {
    match standing {
        Some(Standing::Settled) => "nothing is to be changed".into(),
        // Said when the slot is not there yet, or was just taken away.
        Some(Standing::Going) => "a slot is on its way".into(),
        Some(Standing::Free) => String::new(),
        Some(Standing::Failed(_)) => "it failed on this node; edit the policy".into(),
        Some(Standing::Lost) => "the hub lost sight of the node while it tried; say how it ended".into(),
        Some(Standing::Waiting(reason)) => reason.to_string(),
        Some(Standing::Unheard) | None => "say what would change".into(),
    }
}

fn assignment(view: &View, stored: Option<&AssignmentRecord>, wait: &str, now: Moment) -> Option<ObjectChange> {
    let Composition { revision, network, persistent, policies, proof, drift, drift_of, .. } = &*view.composition;
    let at = &view.host.at;
    let permit = if wait.is_empty() { Permit::Go(MILLIS_WITHOUT_SLOT) } else { Permit::Wait(wait.to_owned()) };
    let assignment = Assignment {
        revision: revision.clone(),
        network: network.clone(),
        persistent: persistent.clone(),
        policies: policies.clone(),
        proof: proof.clone(),
        drift: *drift,
        drift_of: drift_of.clone(),
        permit,
    };
    let text = serde_json::to_string(&assignment).unwrap_or_default();
    let encode = |text: &str| Value::from(STANDARD.encode(text));
    let name = assignment_name(&at.name);
    let change =
        |action: Action| ObjectChange { kind: &SECRET, namespace: at.namespace.clone(), name: name.clone(), action };
    let Some(stored) = stored else {
        return Some(change(Action::Create(json!({"apiVersion": "v1", "kind": "Secret", "type": "kiln.dev/network",
            "metadata": {"name": name, "namespace": at.namespace,
                "labels": {LABEL: ASSIGNMENT, HOST_LABEL: label(&at.name)}, "annotations": {HOST_ANNOTATION: at.id()},
                "ownerReferences": [{"apiVersion": HOST.api_version(), "kind": "Host", "name": at.name, "uid": at.uid}]},
            "data": {"assignment": encode(&text), "since": encode(&render_time(now))}}))));
    };
    if stored.text == text {
        return None;
    }
    let known: Option<Assignment> = serde_json::from_str(&stored.text).ok();
    let mut data = json!({"assignment": encode(&text)});
    if known.is_none_or(|known| known.revision != *revision) {
        data["since"] = encode(&render_time(now));
    }
    Some(change(Action::Patch(json!({"metadata": {"resourceVersion": stored.at.revision}, "data": data}))))
}

/// A permit for a change that changes nothing.
const MILLIS_WITHOUT_SLOT: u64 = 60_000;

/// The Secret with a host's assignment.
pub fn assignment_name(host: &str) -> String {
    format!("network-{host}")
}

fn plan_enactments(
    seen: &Seen,
    views: &BTreeMap<&str, View>,
    names: &HashMap<String, String>,
    rollout: &Rollout,
    now: Moment,
    planned: &mut Planned,
) {
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    for (policy, enactments) in &rollout.enactments {
        let Some(record) = seen.policies.get(policy) else { continue };
        let members = seen.policies.get(policy).and_then(|record| record.policy.as_ref().ok());
        for (id, view) in views {
            let selects = members.is_some_and(|policy| policy.selector.matches(&view.host.node, &view.labels));
            let Some(node) = names.get(*id).filter(|_| selects) else { continue };
            let name = format!("{node}.{policy}");
            wanted.insert(name.clone());
            let Some(enactment) = enactments.get(*id) else { continue };
            match seen.enactments.get(&name) {
                None => planned.changes.push(ObjectChange {
                    kind: &ENACTMENT,
                    namespace: String::new(),
                    name: name.clone(),
                    action: Action::Create(json!({"apiVersion": ENACTMENT.api_version(), "kind": ENACTMENT.kind,
                        "metadata": {"name": name, "labels": {"nmstate.io/policy": policy, "nmstate.io/node": node,
                            FROM_LABEL: NETWORK_POLICY.kind}}})),
                }),
                Some(known) if known.ours => {
                    planned.statuses.extend(enactment_status(known, record, enactment, &view.composition, now));
                }
                Some(_) => {}
            }
        }
    }
    // What is in force somewhere although nobody wishes it is on its way back.
    for (id, view) in views {
        let Some((_, policies)) = &view.host.applied else { continue };
        let settled = rollout.nodes.get(*id) == Some(&Standing::Settled);
        for reference in policies.iter().filter(|_| !settled) {
            if let Some(node) = names.get(*id) {
                wanted.insert(format!("{node}.{}", reference.name));
            }
        }
    }
    for (name, record) in &seen.enactments {
        // Others' enactments of policies that others drive are theirs.
        if record.ours && !wanted.contains(name) {
            planned.changes.push(ObjectChange {
                kind: &ENACTMENT,
                namespace: String::new(),
                name: name.clone(),
                action: Action::Delete { uid: record.at.uid.clone(), revision: record.at.revision.clone() },
            });
        }
    }
}

fn conditions_value(old: &Value, conditions: Vec<conditions::Condition>, now: Moment) -> Value {
    let list: Vec<crate::hub::mirror::Condition> = conditions
        .into_iter()
        .map(|conditions::Condition { kind, truth, reason, message }| {
            let truth = truth.map_or(Truth::Unknown, Truth::of);
            crate::hub::mirror::Condition::new(kind, truth, reason, message)
        })
        .collect();
    let mut value = render_conditions(old, &list, now, &Value::Null);
    for condition in value.as_array_mut().into_iter().flatten() {
        let known = old.as_array().into_iter().flatten().find(|known| known["type"] == condition["type"]);
        let same = known.filter(|known| {
            ["status", "reason", "message"].iter().all(|key| known[*key].as_str() == condition[*key].as_str())
        });
        condition["lastHeartbeatTime"] =
            same.map_or_else(|| json!(render_time(now)), |known| known["lastHeartbeatTime"].clone());
    }
    value
}

fn enactment_status(
    known: &EnactmentRecord,
    policy: &PolicyRecord,
    enactment: &Enactment,
    composition: &Composition,
    now: Moment,
) -> Option<StatusPatch> {
    let old = &known.status;
    let same = old["policyGeneration"].as_i64() == Some(policy.generation);
    let failing = |value: &Value| value["type"] == "Failing" && value["status"] == "True";
    // What failed stays told when its generation is taken back.
    if *enactment == Enactment::Withdrawn && same && old["conditions"].as_array().into_iter().flatten().any(failing) {
        return None;
    }
    // Conditions are of one generation.
    let conditions = if same { &old["conditions"] } else { &Value::Null };
    let mut wanted = json!({
        "conditions": conditions_value(conditions, of_enactment(enactment), now),
        "desiredState": composition.filled.get(&policy.at.name).unwrap_or(&policy.spec["desiredState"]),
        "policyGeneration": policy.generation,
    });
    let info = &old["desiredStateMetaInfo"];
    wanted["desiredStateMetaInfo"] = match same && info.is_object() {
        true => info.clone(),
        false => json!({"version": policy.generation.to_string(), "time": render_time(now)}),
    };
    let info = wanted["desiredStateMetaInfo"].clone();
    let captured = composition.captured.get(&policy.at.name);
    let states = captured.and_then(Value::as_object).into_iter().flatten();
    let states: Value = states
        .map(|(name, state)| {
            let known = &old["capturedStates"][name];
            let info = if known["state"] == *state { known["metaInfo"].clone() } else { info.clone() };
            (name.clone(), json!({"state": state, "metaInfo": info}))
        })
        .collect();
    if states.as_object().is_some_and(|states| !states.is_empty()) {
        wanted["capturedStates"] = states;
    }
    let patch = diff_merge(&known_part(old, &wanted), &wanted)?;
    Some(StatusPatch {
        kind: &ENACTMENT,
        namespace: String::new(),
        name: known.at.name.clone(),
        patch: json!({"metadata": {"resourceVersion": known.at.revision}, "status": patch}),
    })
}

fn policy_status(record: &PolicyRecord, progress: &Progress, withdraw: bool, now: Moment) -> Option<StatusPatch> {
    let old = &record.status;
    let counts = match progress.out {
        0 => json!({}),
        out => json!({record.generation.to_string(): out}),
    };
    let mut conditions = of_policy(progress);
    if let Err(why) = &record.policy {
        conditions = of_policy(&Progress { matching: 1, failed: 1, ..Progress::default() });
        for condition in conditions.iter_mut().filter(|condition| condition.truth == Some(true)) {
            condition.message = why.to_string();
        }
    }
    let mut wanted = json!({
        "conditions": conditions_value(&old["conditions"], conditions, now),
        "unavailableNodeCountMap": counts,
    });
    if withdraw || !old["kiln"]["withdrawn"].is_null() {
        let mut kiln = old["kiln"].as_object().cloned().unwrap_or_default();
        kiln.remove("withdrawn");
        if withdraw || record.is_withdrawn() {
            kiln.insert("withdrawn".into(), record.generation.into());
        }
        wanted["kiln"] = Value::Object(kiln);
    }
    let patch = diff_merge(&known_part(old, &wanted), &wanted)?;
    Some(StatusPatch {
        kind: &NETWORK_POLICY,
        namespace: String::new(),
        name: record.at.name.clone(),
        patch: json!({"metadata": {"resourceVersion": record.at.revision}, "status": patch}),
    })
}

/// The fields of the old status that the new one speaks of.
fn known_part(old: &Value, new: &Value) -> Value {
    let keys = new.as_object().into_iter().flatten().map(|(key, _)| key);
    keys.filter_map(|key| Some((key.clone(), old.get(key)?.clone()))).collect()
}

/// How many nodes drifted.
pub(super) fn drifted(seen: &Seen) -> usize {
    let drifted = |host: &&Arc<HostRecord>| {
        matches!(&host.told, Some(rollout::Told { phase: kiln_core::assignment::Phase::Drifted(_), .. }))
    };
    seen.hosts.values().filter(drifted).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_slot_holds_whatever_a_policy_may_ask_for() {
        let hour = LONGEST_TIME;
        for (within, soak, checkpoint, seconds) in [
            (20_000, 2_000, 60_000, 82),
            (hour, hour, 2 * hour + AFTER_PROOF, 4 * 3600 + 10),
            // Nobody asks for more; a Secret somebody wrote by hand holds no slot for ever.
            (u64::MAX, hour, hour, 4 * 3600 + 10),
        ] {
            let proof = Proof { within, soak, checkpoint, ..Proof::default() };
            assert_eq!(longest_try(&proof), seconds + MARGIN);
        }
    }
}
