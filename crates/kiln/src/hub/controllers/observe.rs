//! What the objects of the API prove about hosts: Agents that report, Nodes, certificates that were approved.
//!
//! Pure: [`observations`] reads the cache and gives entries for timelines. Times come from the objects, so looking twice
//! gives the same entries.

use std::collections::HashMap;

use kiln_core::timeline::{Entry, Moment, Stage};
use serde_json::Value;

use super::cache::{Cache, Item};
use super::summary::{HostFacts, Summary};
use crate::hub::timeline::parse_time;

/// Entries by host, parallel to `summary.hosts`.
pub fn observations(summary: &Summary, cache: &Cache) -> Vec<Vec<Entry>> {
    let there = |kinds: [&str; 2]| kinds.into_iter().any(|kind| cache.of_kind(kind).next().is_some());
    let by_mac = if there(["Agent"; 2]) { unambiguous(summary, |host| host.macs.clone()) } else { HashMap::new() };
    let by_node = match there(["Node", "CertificateSigningRequest"]) {
        true => unambiguous(summary, |host| vec![host.node.clone()]),
        false => HashMap::new(),
    };
    let mut found: Vec<Vec<Entry>> = summary.hosts.iter().map(|host| declared(host, cache)).collect();
    for ((namespace, name), item) in cache.of_kind("Agent") {
        let value = item.value();
        let macs = agent_macs(&value).find_map(|mac| by_mac.get(&mac).copied());
        if let Some(host) = macs {
            found[host].extend(agent_entries(item, &value, &format!("Agent {namespace}/{name}")));
        }
    }
    for ((_, name), item) in cache.of_kind("Node") {
        if let Some(host) = by_node.get(name) {
            found[*host].extend(node_entries(item, name));
        }
    }
    for ((_, name), item) in cache.of_kind("CertificateSigningRequest") {
        let value = item.value();
        let node = value["spec"]["username"].as_str().and_then(|user| user.strip_prefix("system:node:"));
        if let Some(host) = node.and_then(|node| by_node.get(node)) {
            found[*host].extend(serving_entry(&value, name));
        }
    }
    found
}

/// The addresses an Agent reported, in small letters.
pub fn agent_macs(agent: &Value) -> impl Iterator<Item = String> {
    let interfaces = agent["status"]["inventory"]["interfaces"].as_array().into_iter().flatten();
    interfaces.filter_map(|interface| Some(interface["macAddress"].as_str()?.to_lowercase()))
}

/// Hosts by a name of theirs. A name that two hosts share proves nothing about either.
fn unambiguous(summary: &Summary, names: impl Fn(&HostFacts) -> Vec<String>) -> HashMap<String, usize> {
    let mut by_name: HashMap<String, Option<usize>> = HashMap::new();
    for (index, host) in summary.hosts.iter().enumerate() {
        for name in names(host) {
            by_name.entry(name).and_modify(|known| *known = None).or_insert(Some(index));
        }
    }
    by_name.into_iter().filter_map(|(name, host)| Some((name, host?))).collect()
}

fn declared(host: &HostFacts, cache: &Cache) -> Vec<Entry> {
    let id = &host.id;
    let item = cache.get(&id.kind, &id.namespace, &id.name);
    let source = format!("{} {}/{}", id.kind, id.namespace, id.name);
    item.map(|item| Entry::reached(Stage::Declared, item.created, source, "the object was created"))
        .into_iter()
        .collect()
}

fn agent_entries(item: &Item, value: &Value, source: &str) -> Vec<Entry> {
    let mut entries = vec![Entry::reached(Stage::Discovered, item.created, source, "the machine reported itself")];
    // Only what somebody else says: what Kiln wrote there came from the timeline.
    if item.foreign_status {
        for (condition, stage) in [("Validated", Stage::Validated), ("Installed", Stage::Installed)] {
            if let Some((time, reason)) = true_condition(value, condition) {
                entries.push(Entry::reached(stage, time, source, format!("condition {condition}: {reason}")));
            }
        }
    }
    entries
}

fn node_entries(item: &Item, name: &str) -> Vec<Entry> {
    let source = format!("Node {name}");
    let mut entries = vec![Entry::reached(Stage::Registered, item.created, source.clone(), "the Node was created")];
    if let Some((time, reason)) = true_condition(&item.value(), "Ready") {
        entries.push(Entry::reached(Stage::Ready, time, source, reason));
    }
    entries
}

fn serving_entry(value: &Value, name: &str) -> Option<Entry> {
    let signer = value["spec"]["signerName"].as_str()?;
    let (time, reason) = true_condition(value, "Approved")?;
    (signer == "kubernetes.io/kubelet-serving")
        .then(|| Entry::reached(Stage::ServingCsr, time, format!("CertificateSigningRequest {name}"), reason))
}

/// When a condition became true, and its reason.
fn true_condition(value: &Value, wanted: &str) -> Option<(Moment, String)> {
    let conditions = value["status"]["conditions"].as_array()?;
    let condition = conditions.iter().find(|condition| condition["type"] == wanted)?;
    // An approval has no status in old clusters.
    if !matches!(condition["status"].as_str(), Some("True") | None) {
        return None;
    }
    let time = condition["lastTransitionTime"].as_str().or(condition["lastUpdateTime"].as_str())?;
    Some((parse_time(time)?, condition["reason"].as_str().unwrap_or(wanted).to_owned()))
}
