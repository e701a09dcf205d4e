//! One document for one node.
//!
//! In this order: which policies choose the node; what each becomes on it (parameters, captures); who quarrels with whom,
//! oldest first; who stands on whom; the layers. Nothing here depends on the order the policies are given in.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::fields::{Path, canonical};
use super::order::{self, Placed};
use super::stack::{Layer, Stack, is_route, overrules};
use super::{
    AFTER_PROOF, Captured, Composed, Conflict, MAX_CONFLICTS, NetworkPolicy, Node, Persistence, PolicyError, captures,
    fields, parameters, select, trunk,
};
use crate::assignment::{DriftAction, PolicyReference, Probe, Proof};

/// Composes the network of a node. `policies` are all that exist, in any order: which of them choose the node is found here.
pub fn compose(node: &Node<'_>, policies: &[NetworkPolicy]) -> Composed {
    let mut refused: BTreeMap<String, PolicyError> = BTreeMap::new();
    let mut captured = Captured::new();
    let names: BTreeSet<&str> = policies.iter().map(|policy| policy.name.as_str()).collect();
    let circles = order::cycles(policies);
    let mut placed = Vec::new();
    for policy in policies.iter().filter(|policy| select(policy, node)) {
        let own = || follows_existing(policy, &names, &circles).and_then(|()| resolve(policy, node, &mut captured));
        match { own }() {
            Ok(document) => {
                let layer = Layer::new(format!("policy/{}", policy.name), Some(policy.options.priority), &document);
                placed.push(Placed { policy, layer });
            }
            Err(error) => drop(refused.insert(policy.name.clone(), error)),
        }
    }
    placed.sort_by(|one, two| one.policy.name.cmp(&two.policy.name));
    placed.dedup_by(|two, one| one.policy.name == two.policy.name);
    let conflicts = settle(&mut placed, &mut refused);
    refuse_those_in_the_air(&mut placed, &mut refused, policies, node);
    refuse_unreadable(&mut placed, &mut refused, policies, node);

    let needs = order::needs(&placed);
    let ordered = order::order(&placed, &needs);
    let stack = pile(node, ordered.iter().map(|index| &placed[*index]));
    let temporary = temporary(&placed, &needs);
    let lasting = ordered.iter().filter(|index| !temporary.contains(index));
    let (network, persistent) = match temporary.is_empty() {
        true => (stack.render(), stack.render()),
        false => (stack.render(), pile(node, lasting.map(|index| &placed[*index])).render()),
    };
    let in_force: Vec<&NetworkPolicy> = ordered.iter().map(|index| placed[*index].policy).collect();
    captured.retain(|name, _| in_force.iter().any(|policy| policy.name == *name));
    let proof = proof(&in_force);
    let drift = in_force.iter().rev().find_map(|policy| policy.options.drift).unwrap_or_default();
    let layers = stack.layers();
    let drift_of = drift_of(&layers, &in_force, drift);
    let references =
        |policy: &&NetworkPolicy| PolicyReference { name: policy.name.clone(), generation: policy.generation };
    let policies: Vec<PolicyReference> = in_force.iter().map(references).collect();
    let mut counts = json!({
        "network": network,
        "persistent": persistent,
        "policies": in_force.iter().map(|policy| json!([policy.name, policy.generation, policy.created])).collect::<Vec<_>>(),
        "proof": proof,
        "drift": drift,
    });
    if !drift_of.is_empty() {
        counts["driftOf"] = json!(drift_of);
    }
    let digest = Sha256::digest(canonical(&counts).as_bytes());
    Composed {
        owners: stack.owners(),
        revision: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        network,
        persistent,
        policies,
        captured,
        refused: refused.into_iter().collect(),
        conflicts,
        proof,
        drift,
        drift_of,
        layers,
    }
}

/// What is done about drift of each interface, where that is not what is done elsewhere: the strictest of what its owners say. The
/// host, its pool and a policy that says nothing want to be told.
fn drift_of(
    layers: &BTreeMap<String, BTreeSet<String>>,
    policies: &[&NetworkPolicy],
    elsewhere: DriftAction,
) -> BTreeMap<String, DriftAction> {
    let said = |layer: &String| {
        let name = layer.strip_prefix("policy/")?;
        policies.iter().find(|policy| policy.name == name)?.options.drift
    };
    let of = |owners: &BTreeSet<String>| owners.iter().filter_map(said).max().unwrap_or_default();
    layers.iter().map(|(name, owners)| (name.clone(), of(owners))).filter(|(_, said)| *said != elsewhere).collect()
}

fn pile<'p>(node: &Node<'_>, placed: impl Iterator<Item = &'p Placed<'p>>) -> Stack {
    let mut stack = Stack::default();
    let own = [("host", node.base), ("pool", node.pool)].into_iter();
    own.filter_map(|(name, document)| Some(Layer::new(name, None, document?))).for_each(|layer| stack.add(layer));
    placed.for_each(|placed| stack.add(placed.layer.clone()));
    stack
}

fn follows_existing(
    policy: &NetworkPolicy,
    names: &BTreeSet<&str>,
    circles: &[Vec<String>],
) -> Result<(), PolicyError> {
    for (index, name) in policy.options.after.iter().enumerate() {
        if !names.contains(name.as_str()) {
            return Err(PolicyError::UnknownAfter { at: format!("spec.kiln.after[{index}]"), name: name.clone() });
        }
    }
    match circles.iter().find(|circle| circle.contains(&policy.name)) {
        Some(circle) => Err(PolicyError::Cycle(circle.clone())),
        None => Ok(()),
    }
}

/// The document a policy becomes on a node.
fn resolve(policy: &NetworkPolicy, node: &Node<'_>, captured: &mut Captured) -> Result<Value, PolicyError> {
    let mut document = parameters::fill(policy, node)?;
    let found = match policy.captures.is_empty() {
        true => json!({}),
        false => captures::capture(policy, node.current, node.captured.get(&policy.name))?,
    };
    document = captures::fill(&document, &found)?;
    fields::refuse_shapes(&document)?;
    trunk::add_trunks(&mut document);
    readable(&document)?;
    if !policy.captures.is_empty() {
        captured.insert(policy.name.clone(), found);
    }
    Ok(document)
}

fn readable(document: &Value) -> Result<(), PolicyError> {
    // By way of text: the crate reads numbers in quotes only from there.
    let read = nmstate::NetworkState::new_from_json(&document.to_string());
    read.map(drop).map_err(|error| {
        let message = error.msg().trim_start_matches("Invalid JSON string: ");
        // The place is one of a text that nobody wrote.
        let message = message.rsplit_once(" at line ").map_or(message, |(message, _)| message);
        PolicyError::Document(message.split_whitespace().collect::<Vec<_>>().join(" "))
    })
}

/// Takes out whoever wants something else than an older policy of the same priority.
fn settle(placed: &mut Vec<Placed<'_>>, refused: &mut BTreeMap<String, PolicyError>) -> Vec<Conflict> {
    let mut by_age: Vec<usize> = (0..placed.len()).collect();
    by_age.sort_by_key(|index| (&placed[*index].policy.created, &placed[*index].policy.name));
    let mut claims: HashMap<i64, Claims<'_>> = HashMap::new();
    let mut conflicts = Vec::new();
    let mut losers = BTreeSet::new();
    for index in by_age {
        let Placed { policy, layer } = &placed[index];
        let claims = claims.entry(policy.options.priority).or_default();
        let quarrels = claims.quarrels(policy, layer);
        match quarrels.first() {
            None => claims.add(policy, layer),
            Some(first) => {
                let error = PolicyError::Conflict {
                    field: first.field.clone(),
                    other: first.kept.clone(),
                    theirs: shown(&first.kept_value),
                    own: shown(&first.refused_value),
                };
                refused.insert(policy.name.clone(), error);
                losers.insert(policy.name.clone());
                conflicts.extend(quarrels);
            }
        }
    }
    placed.retain(|placed| !losers.contains(&placed.policy.name));
    conflicts.sort_by(|one, two| (&one.refused, &one.kept, &one.field).cmp(&(&two.refused, &two.kept, &two.field)));
    conflicts
}

/// What the policies of one priority want so far.
#[derive(Default)]
struct Claims<'p> {
    wants: BTreeMap<Path, (&'p str, Value)>,
    routes: Vec<(&'p str, Value)>,
    absent_routes: Vec<(&'p str, Value)>,
}

impl<'p> Claims<'p> {
    fn add(&mut self, policy: &'p NetworkPolicy, layer: &Layer) {
        for (path, value) in wants(layer) {
            if is_route(&path) {
                let list = if value["state"] == "absent" { &mut self.absent_routes } else { &mut self.routes };
                list.push((&policy.name, value.clone()));
            }
            self.wants.entry(path).or_insert((&policy.name, value));
        }
    }

    fn quarrels(&self, policy: &NetworkPolicy, layer: &Layer) -> Vec<Conflict> {
        let mut found: Vec<Conflict> = Vec::new();
        let mut told: BTreeSet<(String, String)> = BTreeSet::new();
        let mut tell = |path: &Path, other: &str, theirs: &Value, own: &Value| {
            if told.insert((path.to_string(), other.to_owned())) {
                found.push(Conflict {
                    field: path.to_string(),
                    kept: other.to_owned(),
                    kept_value: theirs.clone(),
                    refused: policy.name.clone(),
                    refused_value: own.clone(),
                });
            }
            found.len() >= MAX_CONFLICTS
        };
        let mut full = false;
        for (path, own) in wants(layer) {
            if full {
                break;
            }
            if let Some((other, theirs)) = self.wants.get(&path).filter(|(_, theirs)| differ(theirs, &own)) {
                full |= tell(&path, other, theirs, &own);
            }
            // A value here and a mapping there.
            for length in 1..path.0.len() {
                let above = Path(path.0[..length].to_vec());
                let empty = |value: &Value| value.as_object().is_some_and(serde_json::Map::is_empty);
                if let Some((other, theirs)) = self.wants.get(&above).filter(|(_, theirs)| !empty(theirs)) {
                    full |= tell(&above, other, theirs, &own);
                }
            }
            let nothing = own.as_object().is_some_and(serde_json::Map::is_empty);
            let mut below = self.wants.range(path.clone()..).take_while(|(found, _)| found.starts_with(&path));
            if let Some((_, (other, theirs))) = below.find(|(found, _)| **found != path && !nothing) {
                full |= tell(&path, other, theirs, &own);
            }
            if is_route(&path) {
                // Only an absent one can overrule a present one, and the other way round.
                let (present, absent) = (&self.routes, &self.absent_routes);
                let others = if own["state"] == "absent" { present } else { absent };
                for (other, theirs) in others.iter().filter(|(_, theirs)| overrules(theirs, &own)) {
                    full |= tell(&path, other, theirs, &own);
                }
            }
        }
        found
    }
}

/// What a layer wants, with the state of each interface said aloud: one policy that describes an interface and one that
/// takes it away quarrel.
fn wants(layer: &Layer) -> Vec<(Path, Value)> {
    let mut wanted: Vec<(Path, Value)> =
        layer.fields.iter().map(|field| (field.path.clone(), field.value.clone())).collect();
    let stated: BTreeSet<Path> = wanted.iter().map(|(path, _)| path.clone()).collect();
    let interfaces: BTreeSet<Path> = wanted.iter().filter_map(|(path, _)| path.interface()).collect();
    let unstated =
        interfaces.into_iter().map(|interface| interface.key("state")).filter(|state| !stated.contains(state));
    wanted.extend(unstated.map(|state| (state, Value::from("up"))));
    wanted
}

/// The order of addresses and ports is no quarrel.
fn differ(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Array(one), Value::Array(two)) => sorted(one) != sorted(two),
        _ => one != two,
    }
}

fn sorted(items: &[Value]) -> Vec<String> {
    let mut items: Vec<String> = items.iter().map(canonical).collect();
    items.sort_unstable();
    items
}

/// A value short enough for a message.
fn shown(value: &Value) -> String {
    let text = canonical(value);
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("`{}…`", &text[..end]),
        None => format!("`{text}`"),
    }
}

/// Refuses policies that need one that is refused, until all that are left have what they need.
fn refuse_those_in_the_air(
    placed: &mut Vec<Placed<'_>>,
    refused: &mut BTreeMap<String, PolicyError>,
    policies: &[NetworkPolicy],
    node: &Node<'_>,
) {
    let own: BTreeSet<String> = [node.base, node.pool]
        .into_iter()
        .flatten()
        .flat_map(|document| document["interfaces"].as_array().into_iter().flatten())
        .filter_map(|interface| interface["name"].as_str().map(str::to_owned))
        .collect();
    loop {
        let described: BTreeSet<String> = placed.iter().flat_map(Placed::defines).collect();
        let missing = |name: &String| {
            let makers = policies.iter().filter(|policy| refused.contains_key(&policy.name));
            let maker = makers.filter(|policy| order::makes(policy).contains(name)).map(|policy| &policy.name).min();
            maker.filter(|_| !own.contains(name) && !described.contains(name))
        };
        let lost = placed.iter().find_map(|placed| {
            let after = placed.policy.options.after.iter().find(|name| refused.contains_key(*name));
            let needed = after.cloned().or_else(|| placed.stands_on().iter().find_map(missing).cloned())?;
            Some((placed.policy.name.clone(), needed))
        });
        let Some((name, needed)) = lost else { return };
        placed.retain(|placed| placed.policy.name != name);
        refused.insert(name, PolicyError::Needs(needed));
    }
}

/// Each document can be read; together they may still not. Then the layer with which it begins is refused.
fn refuse_unreadable(
    placed: &mut Vec<Placed<'_>>,
    refused: &mut BTreeMap<String, PolicyError>,
    policies: &[NetworkPolicy],
    node: &Node<'_>,
) {
    loop {
        let needs = order::needs(placed);
        let ordered = order::order(placed, &needs);
        if readable(&pile(node, ordered.iter().map(|index| &placed[*index])).render()).is_ok() {
            return;
        }
        let culprit = (1..=ordered.len()).find_map(|count| {
            let part = pile(node, ordered[..count].iter().map(|index| &placed[*index]));
            Some((ordered[count - 1], readable(&part.render()).err()?))
        });
        // Without any policy it cannot be read either: then it is the host's own document, which others judge.
        let base = readable(&pile(node, std::iter::empty()).render()).is_err();
        let Some((culprit, error)) = culprit.filter(|_| !base) else { return };
        let name = placed[culprit].policy.name.clone();
        placed.remove(culprit);
        refused.insert(name, error);
        refuse_those_in_the_air(placed, refused, policies, node);
    }
}

/// Policies that a reboot undoes, and those that stand on them. Indexes of `placed`.
fn temporary(placed: &[Placed<'_>], needs: &[BTreeSet<usize>]) -> BTreeSet<usize> {
    let runtime = |index: &usize| placed[*index].policy.options.persistence == Persistence::Runtime;
    let mut found: BTreeSet<usize> = (0..placed.len()).filter(runtime).collect();
    loop {
        let more: Vec<usize> = (0..placed.len())
            .filter(|index| !found.contains(index) && needs[*index].iter().any(|needed| found.contains(needed)))
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

/// What all policies ask for together: every probe, the longest times. The hub is always asked: a node that has lost it
/// cannot be helped from there.
fn proof(policies: &[&NetworkPolicy]) -> Proof {
    let usual = Proof::default();
    let longest = |of: fn(&NetworkPolicy) -> Option<u64>, usual: u64| {
        policies.iter().filter_map(|policy| of(policy)).max().unwrap_or(usual)
    };
    let mut probes: Vec<Probe> = Vec::new();
    for policy in policies {
        let asked = policy.options.probes.as_ref().unwrap_or(&usual.probes);
        asked.iter().for_each(|probe| {
            if !probes.contains(probe) {
                probes.push(probe.clone());
            }
        });
    }
    if policies.is_empty() {
        probes.clone_from(&usual.probes);
    }
    if !probes.contains(&Probe::Hub) {
        probes.push(Probe::Hub);
    }
    let within = longest(|policy| policy.options.within, usual.within);
    let soak = longest(|policy| policy.options.soak, usual.soak);
    let checkpoint = longest(|policy| policy.options.checkpoint, usual.checkpoint);
    Proof { probes, within, soak, checkpoint: checkpoint.max(within + soak + AFTER_PROOF) }
}
