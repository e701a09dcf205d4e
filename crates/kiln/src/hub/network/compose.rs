//! A host's network from its layers, by [`kiln_core::policy`], remembered until something it depends on changes.
//!
//! What a policy captured on a node is kept in the node's enactment and used again: a bridge over the default gateway's NIC
//! stays where it is when the gateway moves.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use kiln_core::assignment::{Assignment, DriftAction, PolicyReference, Proof};
use kiln_core::policy::{Allocations, Captured, Composed, NetworkPolicy, Node, allocate, compose, select};
use serde_json::{Value, json};

use super::records::HostRecord;
use super::seen::Seen;

/// A host's network with every layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Composition {
    /// Names all of it.
    pub revision: String,
    /// The whole document.
    pub network: Value,
    /// Without what a reboot undoes.
    pub persistent: Value,
    /// What is in it.
    pub policies: Vec<PolicyReference>,
    /// How a change is proved.
    pub proof: Proof,
    /// What is done about drift.
    pub drift: DriftAction,
    /// The same for interfaces where it is something else.
    pub drift_of: BTreeMap<String, DriftAction>,
    /// Which layers own fields of each interface; none when the host keeps what it has.
    pub layers: Option<BTreeMap<String, BTreeSet<String>>>,
    /// Policies that are not in it, and why.
    pub refused: BTreeMap<String, String>,
    /// Policies that select the host.
    pub selected: BTreeSet<String>,
    /// What captures found.
    pub captured: Captured,
    /// Policies with templates as they are on this node.
    pub filled: BTreeMap<String, Value>,
}

/// Compositions that are still right, by host.
#[derive(Debug, Default)]
pub struct Memo(HashMap<String, (u64, Arc<Composition>)>);

/// The policies of one look.
pub struct Policies {
    all: Vec<NetworkPolicy>,
    /// Addresses that were given out, as they are stored.
    held: Allocations,
    /// Exist, and nobody can read them.
    unreadable: BTreeSet<String>,
    print: u64,
}

impl Policies {
    /// Those that are in force.
    pub fn of(seen: &Seen) -> Policies {
        let mut hasher = DefaultHasher::new();
        let (mut all, mut unreadable, mut held) = (Vec::new(), BTreeSet::new(), Allocations::new());
        for (name, record) in &seen.policies {
            if record.is_withdrawn() {
                continue;
            }
            (name, record.generation, &record.at.uid).hash(&mut hasher);
            let stored = &record.status["kiln"]["allocations"];
            if let Ok(given) = serde_json::from_value::<BTreeMap<_, _>>(stored.clone()) {
                stored.to_string().hash(&mut hasher);
                held.insert(name.clone(), given);
            }
            match &record.policy {
                Ok(policy) => all.push(policy.clone()),
                Err(_) => drop(unreadable.insert(name.clone())),
            }
        }
        Policies { all, held, unreadable, print: hasher.finish() }
    }

    /// Addresses that must be given to these nodes before anything is composed with them, by policy: what is composed is
    /// stored already, so that no two leaders give one address to two nodes.
    pub fn allocate(&self, nodes: &[(&str, &BTreeMap<String, String>)]) -> BTreeMap<String, Value> {
        if self.all.iter().all(|policy| policy.options.parameters.pools.is_empty()) {
            return BTreeMap::new();
        }
        let (given, _too_small) = allocate(&self.all, nodes.iter().copied(), &self.held);
        let new = given.into_iter().filter(|(name, given)| self.held.get(name) != Some(given));
        new.map(|(name, given)| (name, json!(given))).collect()
    }
}

impl Memo {
    /// Composes a host's network, or finds that it is as before.
    pub fn compose(
        &mut self,
        seen: &Seen,
        id: &str,
        host: &HostRecord,
        labels: &BTreeMap<String, String>,
        policies: &Policies,
    ) -> Arc<Composition> {
        let node = host.node.as_str();
        let choosing = || policies.all.iter().filter(|policy| policy.selector.matches(node, labels));
        let captured = captured(seen, node, choosing());
        // What captures found is kept; a table by MAC address is looked up each time.
        let answered =
            |policy: &NetworkPolicy| captured.contains_key(&policy.name) && policy.options.parameters.tables.is_empty();
        let needs_state = choosing().any(|policy| policy.needs_state() && !answered(policy));
        let state = seen.states.get(node).filter(|_| needs_state);
        let pool = seen.pools.get(&seen.pool_of(host)).map(|pool| &pool.network).filter(|network| network.is_object());
        let mut hasher = DefaultHasher::new();
        pool.map(Value::to_string).hash(&mut hasher);
        (policies.print, node, labels, host.base.to_string(), json!(captured).to_string(), state).hash(&mut hasher);
        host.applied.hash(&mut hasher);
        let key = hasher.finish();
        if let Some((known, composition)) = self.0.get(id)
            && *known == key
        {
            return Arc::clone(composition);
        }
        let current = state.and_then(|state| serde_json::from_str::<Value>(state).ok());
        let subject = Node {
            name: node,
            labels,
            base: Some(&host.base).filter(|base| base.is_object()),
            pool,
            current: current.as_ref(),
            captured: &captured,
            allocations: &policies.held,
        };
        let composed = compose(&subject, &policies.all);
        let selected: BTreeSet<String> =
            policies.all.iter().filter(|policy| select(policy, &subject)).map(|policy| policy.name.clone()).collect();
        let applied = host.applied.as_ref().map(|(_, policies)| policies.as_slice()).unwrap_or_default();
        let held = composed.is_held(applied) || applied.iter().any(|policy| policies.unreadable.contains(&policy.name));
        let kept = Some(id).filter(|_| held).and_then(|id| kept(seen, id, host));
        let filled = filled(&composed, &subject, &policies.all);
        let composition = Arc::new(Composition { filled, ..settle(composed, selected, kept) });
        self.0.insert(id.to_owned(), (key, Arc::clone(&composition)));
        composition
    }

    /// Forgets hosts that are gone.
    pub fn retain(&mut self, seen: &Seen) {
        self.0.retain(|id, _| seen.hosts.contains_key(id));
    }
}

/// Each policy with templates, filled in on a node that has nothing else.
fn filled(composed: &Composed, node: &Node, policies: &[NetworkPolicy]) -> BTreeMap<String, Value> {
    let in_force = |policy: &&NetworkPolicy| composed.policies.iter().any(|reference| reference.name == policy.name);
    let mut filled = BTreeMap::new();
    for policy in policies.iter().filter(in_force).filter(|policy| policy.desired.to_string().contains("{{")) {
        let mut alone = policy.clone();
        alone.options.after.clear();
        let node = Node { base: None, pool: None, captured: &composed.captured, ..*node };
        filled.insert(policy.name.clone(), compose(&node, &[alone]).network);
    }
    filled
}

/// What captures found before, from the enactments.
fn captured<'p>(seen: &Seen, node: &str, policies: impl Iterator<Item = &'p NetworkPolicy>) -> Captured {
    let mut captured = Captured::new();
    for policy in policies.filter(|policy| !policy.captures.is_empty()) {
        let Some(enactment) = seen.enactments.get(&format!("{node}.{}", policy.name)) else { continue };
        let states = enactment.status["capturedStates"].as_object();
        let found: Value =
            states.into_iter().flatten().map(|(name, captured)| (name.clone(), captured["state"].clone())).collect();
        if found.as_object().is_some_and(|found| !found.is_empty()) {
            captured.insert(policy.name.clone(), found);
        }
    }
    captured
}

/// What a host has, when it must keep it: a policy in force on it cannot be composed any more.
fn kept(seen: &Seen, id: &str, host: &HostRecord) -> Option<Assignment> {
    let (applied, _) = host.applied.as_ref()?;
    let assignment: Assignment = serde_json::from_str(&seen.assignments.get(id)?.text).ok()?;
    (assignment.revision == *applied).then_some(assignment)
}

fn settle(composed: Composed, selected: BTreeSet<String>, kept: Option<Assignment>) -> Composition {
    let Composed {
        network,
        persistent,
        owners: _,
        policies,
        captured,
        refused,
        conflicts: _,
        proof,
        drift,
        drift_of,
        layers,
        revision,
    } = composed;
    let refused =
        refused.into_iter().filter(|(_, why)| !why.is_waiting()).map(|(name, why)| (name, why.to_string())).collect();
    match kept {
        None => Composition {
            revision,
            network,
            persistent,
            policies,
            proof,
            drift,
            drift_of,
            layers: Some(layers),
            refused,
            selected,
            captured,
            filled: BTreeMap::new(),
        },
        Some(Assignment { revision, network, persistent, policies, proof, drift, drift_of, permit: _ }) => {
            Composition {
                revision,
                network,
                persistent,
                policies,
                proof,
                drift,
                drift_of,
                layers: None,
                refused,
                selected,
                captured,
                filled: BTreeMap::new(),
            }
        }
    }
}
