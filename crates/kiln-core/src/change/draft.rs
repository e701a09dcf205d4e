//! A change on its way: files and steps are gathered, then put in order, weighed and described.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::compare::{Mismatch, interface, list, ports};
use super::complete::primary_interfaces;
use super::{Change, Observed, Place, Step, Write};
use crate::assignment::Disruption;
use crate::keyfile::ConnectionFile;
use crate::network::diff::{Difference, diff};
use crate::network::profile::uuid_of;

/// A change on its way.
#[derive(Default)]
pub(super) struct Draft {
    /// What is known of it; stages and disruption come last.
    pub change: Change,
    /// Interfaces that must go before they are made anew.
    pub removed_first: Vec<Step>,
    /// What each interface is told.
    pub steps: BTreeMap<String, Step>,
    /// What of the running network is not as it should be.
    pub mismatches: Vec<Mismatch>,
}

impl Draft {
    /// Everything in order. `wanted` says what stands on what.
    pub fn finish(mut self, observed: &Observed, wanted: &Value) -> Change {
        self.change.disruption = self.disruption(observed);
        let first = Some(self.removed_first).filter(|steps| !steps.is_empty());
        self.change.stages = first.into_iter().chain(stages(self.steps, observed, wanted)).collect();
        let mut lines: Vec<String> = self.mismatches.iter().map(|mismatch| mismatch.line.clone()).collect();
        for write in &self.change.writes {
            let before = observed.file(write.place, &write.name).map(|held| held.file.clone());
            lines.extend(describe_write(before, write));
        }
        if self.change.is_empty() {
            self.change.lines.clear();
        } else {
            lines.append(&mut self.change.lines);
            self.change.lines = lines;
        }
        self.change
    }

    /// NetworkManager brings up the ports of a controller that is activated.
    pub fn leave_ports_to_controllers(&mut self, wanted: &Value) {
        for entry in list(wanted, "interfaces") {
            let name = entry["name"].as_str().unwrap_or_default();
            if entry["type"] == "vrf" || !matches!(self.steps.get(name), Some(Step::Activate { .. })) {
                continue;
            }
            for port in ports(entry).unwrap_or_default() {
                self.steps.remove(port);
            }
        }
    }

    fn disruption(&self, observed: &Observed) -> Disruption {
        let current = &observed.current;
        let primary = primary_path(current);
        let effect = |(name, step): (&String, &Step)| {
            let there = interface(current, name).is_some_and(|entry| entry["state"] == "up");
            match step {
                _ if !there => Disruption::Reapply,
                _ if primary.contains(name.as_str()) => Disruption::PrimaryPath,
                Step::Reapply { .. } => Disruption::Reapply,
                Step::Activate { .. } | Step::Remove { .. } => Disruption::LinkBounce,
            }
        };
        let files = if self.change.writes.is_empty() && self.change.hostname.is_none() {
            Disruption::None
        } else {
            Disruption::Reapply
        };
        self.steps.iter().map(effect).max().unwrap_or_default().max(files)
    }
}

/// Whether NetworkManager takes both for one profile and reads the same in them.
pub(super) fn means_the_same(one: &ConnectionFile, other: &ConnectionFile) -> bool {
    uuid_of(one) == uuid_of(other) && diff(std::slice::from_ref(one), std::slice::from_ref(other)).is_empty()
}

/// Settings NetworkManager changes on an active device.
pub(super) fn can_reapply(difference: &Difference) -> bool {
    match difference {
        Difference::Changed { group, key, .. } => match group.as_str() {
            "ipv4" | "ipv6" | "proxy" | "user" => true,
            "connection" => {
                matches!(key.as_str(), "id" | "autoconnect" | "autoconnect-priority" | "zone" | "metered" | "lldp")
            }
            _ => key == "mtu",
        },
        _ => false,
    }
}

/// Interfaces whose loss takes the node off its default route: those, and what they stand on.
fn primary_path(current: &Value) -> BTreeSet<&str> {
    let mut path: BTreeSet<&str> = primary_interfaces(current).into_iter().collect();
    loop {
        let below = |name: &&str| {
            let entry = interface(current, name);
            let base = entry.and_then(|entry| entry["vlan"]["base-iface"].as_str());
            let ports = entry.and_then(ports).unwrap_or_default();
            base.into_iter().chain(ports).collect::<Vec<_>>()
        };
        let more: Vec<&str> = path.iter().flat_map(below).filter(|name| !path.contains(name)).collect();
        if more.is_empty() {
            return path;
        }
        path.extend(more);
    }
}

fn describe_write(before: Option<ConnectionFile>, write: &Write) -> Vec<String> {
    let place = match write.place {
        Place::Persistent => "",
        Place::Runtime => " (until the next boot)",
    };
    let after = write.content.as_deref().and_then(|text| crate::keyfile::Keyfile::parse(text).ok());
    match (before, after) {
        (Some(before), Some(after)) => {
            let after = ConnectionFile::new(write.name.clone(), after);
            let [old, new] = [&before, &after].map(uuid_of);
            let uuid = (old != new).then(|| format!("profile {} [connection] uuid: {old} -> {new}{place}", write.name));
            let lines = diff(&[before], &[after]);
            let told = lines.iter().map(|line| format!("profile {}{place}", line.to_string().trim_start_matches("~ ")));
            uuid.into_iter().chain(told).collect()
        }
        (None, Some(_)) => vec![format!("profile {} is added{place}", write.name)],
        (Some(_), None) => vec![format!("profile {} is removed{place}", write.name)],
        (None, None) => Vec::new(),
    }
}

/// Interfaces before what stands on them.
fn stages(steps: BTreeMap<String, Step>, observed: &Observed, wanted: &Value) -> Vec<Vec<Step>> {
    fn level(name: &str, observed: &Observed, wanted: &Value, depth: usize) -> usize {
        const DEEPEST: usize = 8;
        let Some(entry) = interface(wanted, name).or_else(|| interface(&observed.current, name)) else { return 0 };
        let bases = ["vlan", "vxlan", "mac-vlan", "mac-vtap", "ipvlan", "macsec"];
        let below = bases.into_iter().find_map(|kind| entry[kind]["base-iface"].as_str());
        let controller = list(wanted, "interfaces")
            .iter()
            .find(|entry| ports(entry).is_some_and(|ports| ports.contains(&name)))
            .and_then(|entry| entry["name"].as_str());
        // Its ports are brought up with a controller, so what they stand on comes first.
        let base_of = |port: &str| {
            let entry = interface(wanted, port)?;
            bases.into_iter().find_map(|kind| entry[kind]["base-iface"].as_str())
        };
        let under_ports = ports(entry).unwrap_or_default().into_iter().filter_map(base_of);
        let over = below.into_iter().chain(controller).chain(under_ports).filter(|_| depth < DEEPEST);
        over.map(|other| 1 + level(other, observed, wanted, depth + 1)).max().unwrap_or(0)
    }
    let mut stages: Vec<Vec<Step>> = Vec::new();
    for (name, step) in steps {
        let level = level(&name, observed, wanted, 0);
        stages.resize_with(stages.len().max(level + 1), Vec::new);
        stages[level].push(step);
    }
    stages.retain(|stage| !stage.is_empty());
    stages
}
