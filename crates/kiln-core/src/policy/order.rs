//! What comes before what: `after`, and interfaces that stand on others.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use super::NetworkPolicy;
use super::fields::{Field, Segment};
use super::stack::{Layer, ports_of};

/// Circles of `after`, each found once, with its first name repeated at the end. The smallest name comes first.
pub(super) fn cycles(policies: &[NetworkPolicy]) -> Vec<Vec<String>> {
    let after: BTreeMap<&str, Vec<&str>> = policies
        .iter()
        .map(|policy| (policy.name.as_str(), policy.options.after.iter().map(String::as_str).collect()))
        .collect();
    let mut found: BTreeSet<Vec<String>> = BTreeSet::new();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    for start in after.keys().copied() {
        // Depth first with the way on a stack of our own: a chain of policies may be long.
        let mut way: Vec<(&str, usize)> = vec![(start, 0)];
        while let Some((name, next)) = way.last().copied() {
            let target = after.get(name).and_then(|targets| targets.get(next)).copied();
            if done.contains(name) || target.is_none() {
                done.insert(name);
                way.pop();
                continue;
            }
            if let Some((_, next)) = way.last_mut() {
                *next += 1;
            }
            let Some(target) = target else { continue };
            match way.iter().position(|(name, _)| *name == target) {
                Some(from) => {
                    let mut circle: Vec<String> = way[from..].iter().map(|(name, _)| (*name).to_owned()).collect();
                    let smallest = circle.iter().enumerate().min_by_key(|(_, name)| *name).map_or(0, |(at, _)| at);
                    circle.rotate_left(smallest);
                    circle.push(circle[0].clone());
                    found.insert(circle);
                }
                None if after.contains_key(target) && !done.contains(target) => way.push((target, 0)),
                None => {}
            }
        }
    }
    found.into_iter().collect()
}

/// Interfaces that do not exist unless somebody makes them, and that a policy makes as far as it can be read.
pub(super) fn makes(policy: &NetworkPolicy) -> BTreeSet<String> {
    let interfaces = policy.desired["interfaces"].as_array().into_iter().flatten();
    let made = interfaces.filter(|interface| {
        let hardware = matches!(interface["type"].as_str(), None | Some("ethernet" | "infiniband" | "unknown"));
        !hardware && interface["state"] != "absent"
    });
    made.filter_map(|interface| interface["name"].as_str().map(str::to_owned)).collect()
}

/// A policy on one node, as far as its order goes.
pub(super) struct Placed<'p> {
    pub(super) policy: &'p NetworkPolicy,
    pub(super) layer: Layer,
}

impl Placed<'_> {
    /// Interfaces it makes or changes.
    pub(super) fn defines(&self) -> BTreeSet<String> {
        let names = self.layer.fields.iter().filter(|field| field.path.0.len() == 3 && ends_with(field, "name"));
        names.filter_map(|field| field.value.as_str()).map(str::to_owned).collect()
    }

    /// Interfaces it stands on and does not describe itself.
    pub(super) fn stands_on(&self) -> BTreeSet<String> {
        let mut names = ports_of(&self.layer);
        for field in &self.layer.fields {
            if ends_with(field, "base-iface") {
                names.extend(field.value.as_str().map(str::to_owned));
            }
            if let [_, _, Segment::Key(section), Segment::Key(key)] = &field.path.0[..]
                && section == "vrf"
                && key == "port"
            {
                let ports = field.value.as_array().into_iter().flatten();
                names.extend(ports.filter_map(Value::as_str).map(str::to_owned));
            }
            if super::stack::is_route(&field.path) {
                names.extend(field.value["next-hop-interface"].as_str().map(str::to_owned));
            }
        }
        let own = self.defines();
        names.retain(|name| !own.contains(name));
        names
    }
}

fn ends_with(field: &Field, key: &str) -> bool {
    matches!(field.path.0.last(), Some(Segment::Key(last)) if last == key)
}

/// Which policies each stands on: `after` first, then what it is built on. Indexes of `placed`.
pub(super) fn needs(placed: &[Placed<'_>]) -> Vec<BTreeSet<usize>> {
    let by_name: HashMap<&str, usize> =
        placed.iter().enumerate().map(|(index, placed)| (placed.policy.name.as_str(), index)).collect();
    let mut makers: HashMap<String, Vec<usize>> = HashMap::new();
    for (index, policy) in placed.iter().enumerate() {
        policy.defines().into_iter().for_each(|name| makers.entry(name).or_default().push(index));
    }
    let needs = placed.iter().enumerate().map(|(index, placed)| {
        let after = placed.policy.options.after.iter().filter_map(|name| by_name.get(name.as_str()).copied());
        let below = placed.stands_on().into_iter().filter_map(|name| makers.get(&name)).flatten().copied();
        after.chain(below).filter(|other| *other != index).collect()
    });
    needs.collect()
}

/// Lowest layer first: by priority, then what others need before the others, then by name. Where needs go in circles
/// (two policies may each put an interface of the other into a bridge), `after` and then names decide.
pub(super) fn order(placed: &[Placed<'_>], needs: &[BTreeSet<usize>]) -> Vec<usize> {
    let key = |index: &usize| (placed[*index].policy.options.priority, placed[*index].policy.name.as_str());
    let mut waiting: Vec<usize> = (0..placed.len()).collect();
    waiting.sort_by_key(key);
    let mut open = vec![true; placed.len()];
    let mut ordered = Vec::with_capacity(waiting.len());
    while let Some(first) = waiting.first().copied() {
        let priority = placed[first].policy.options.priority;
        let peers = waiting.iter().copied().take_while(|index| placed[*index].policy.options.priority == priority);
        let peers: Vec<usize> = peers.collect();
        let is_open = |needed: &usize| open[*needed] && placed[*needed].policy.options.priority == priority;
        let follows = |index: &usize| {
            let after = &placed[*index].policy.options.after;
            needs[*index].iter().any(|other| is_open(other) && after.contains(&placed[*other].policy.name))
        };
        let free = peers.iter().find(|index| !needs[**index].iter().any(is_open));
        let ready = free.or_else(|| peers.iter().find(|index| !follows(index))).copied().unwrap_or(first);
        waiting.retain(|index| *index != ready);
        open[ready] = false;
        ordered.push(ready);
    }
    ordered
}
