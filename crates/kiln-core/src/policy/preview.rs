//! What policies would change on a node, and what could go wrong with it, before anything is tried.
//!
//! The change is planned by the same function as on the node ([`plan_change`]), against the state the node published. Its
//! profiles are not published, so they are taken to be what the state would be written as: a node whose profiles say more than
//! its state shows may see more lines than are told here, never another network.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::{Composed, NetworkPolicy, Node, compose};
use crate::assignment::{Disruption, Probe};
use crate::change::{Change, Held, Observed, Ownership, Place, plan_change};
use crate::keyfile::{ConnectionFile, Keyfile};

/// What would happen on one node.
#[derive(Debug, Clone, PartialEq)]
pub struct Preview {
    /// The composition, with everything that is refused.
    pub composed: Composed,
    /// What would change, or why nothing can.
    pub outcome: Outcome,
}

/// What would change on a node.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The node has not published its state.
    Unknown,
    /// It cannot be done there, and why.
    Impossible(String),
    /// This; no lines mean nothing.
    Changes {
        /// A line for people each: `eth1 mtu: 1500 -> 9000`.
        lines: Vec<String>,
        /// The strongest effect.
        disruption: Disruption,
        /// What could go wrong, worst first.
        risks: Vec<Risk>,
    },
}

/// Something that could go wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// An address by which the node is known is no longer configured.
    LosesAddress(IpAddr),
    /// The way to the default gateway changes.
    DefaultRoute(String),
    /// Nothing that is asked afterwards depends on what changes.
    Unproved(Vec<String>),
}

impl Risk {
    /// For people.
    pub fn told(&self) -> String {
        match self {
            Risk::LosesAddress(address) => {
                format!("{address}, by which the node is known, is no longer configured anywhere on it")
            }
            Risk::DefaultRoute(interface) => {
                format!(
                    "`{interface}` carries the default route: the node may be cut off until the change is rolled back"
                )
            }
            Risk::Unproved(interfaces) => format!(
                "no probe depends on {}: gateway, DNS and hub are reached another way; add a probe of type Tcp, Http or Ping",
                interfaces.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
            ),
        }
    }
}

/// Looks ahead. `policies` are all that would then exist.
pub fn preview(node: &Node<'_>, policies: &[NetworkPolicy]) -> Preview {
    let composed = compose(node, policies);
    let outcome = match node.current {
        None => Outcome::Unknown,
        Some(current) => {
            let observed = Observed { current: current.clone(), profiles: profiles_of(current) };
            match plan_change(&observed, &Ownership::default(), &composed.network, &composed.persistent) {
                Err(error) => Outcome::Impossible(error.to_string()),
                Ok(change) => {
                    let risks = risks(current, &change, &composed);
                    // How files are written is of no interest to whoever wants to know what changes.
                    let (files, mut lines): (Vec<String>, Vec<String>) =
                        change.lines.into_iter().partition(|line| line.starts_with("profile "));
                    if lines.is_empty() {
                        lines = files;
                    }
                    Outcome::Changes { lines, disruption: change.disruption, risks }
                }
            }
        }
    };
    Preview { composed, outcome }
}

/// The profiles a state would be written as.
fn profiles_of(current: &Value) -> Vec<Held> {
    let interfaces = current["interfaces"].as_array().into_iter().flatten();
    let interfaces: Vec<&Value> = interfaces
        .filter(|interface| interface["state"] == "up")
        .filter(|interface| {
            !matches!(interface["type"].as_str(), None | Some("loopback" | "unknown" | "ovs-bridge" | "ovs-interface"))
        })
        .collect();
    let names: BTreeSet<&str> = interfaces.iter().filter_map(|interface| interface["name"].as_str()).collect();
    let known = |route: &&Value| route["next-hop-interface"].as_str().is_some_and(|name| names.contains(name));
    let routes: Vec<&Value> = current["routes"]["config"].as_array().into_iter().flatten().filter(known).collect();
    let mut documents = vec![json!({"interfaces": interfaces, "routes": {"config": routes}})];
    if current["dns-resolver"]["config"].as_object().is_some_and(|config| !config.is_empty()) {
        let mut with_servers = documents[0].clone();
        with_servers["dns-resolver"] = json!({"config": current["dns-resolver"]["config"]});
        documents.insert(0, with_servers);
    }
    let observed = Observed { current: current.clone(), profiles: Vec::new() };
    let plan = |document: &Value| plan_change(&observed, &Ownership::default(), document, document).ok();
    let writes = documents.iter().find_map(plan).map(|change| change.writes).unwrap_or_default();
    let held = writes.into_iter().filter_map(|write| {
        let keyfile = Keyfile::parse(&write.content?).ok()?;
        let active_on = keyfile.get("connection", "interface-name").map(|name| name.into_owned());
        Some(Held { place: Some(Place::Persistent), file: ConnectionFile::new(write.name, keyfile), active_on })
    });
    held.collect()
}

fn risks(current: &Value, change: &Change, composed: &Composed) -> Vec<Risk> {
    if change.is_empty() {
        return Vec::new();
    }
    let primary = default_interfaces(current);
    let touched: BTreeSet<&str> = change.interfaces().collect();
    let mut risks = Vec::new();
    let after = addresses_after(current, &composed.network);
    for interface in &primary {
        let before = addresses(entry(current, interface).unwrap_or(&Value::Null));
        let lost = before.into_iter().filter(|address| !after.contains(address));
        risks.extend(lost.map(Risk::LosesAddress));
    }
    if change.disruption == Disruption::PrimaryPath {
        let named = primary.iter().find(|name| touched.contains(**name)).or(primary.iter().next());
        risks.extend(named.map(|name| Risk::DefaultRoute((*name).to_owned())));
    } else {
        let aimed = |probe: &Probe| !matches!(probe, Probe::Gateway | Probe::Dns | Probe::Hub | Probe::FromHub(_));
        if !touched.is_empty() && !composed.proof.probes.iter().any(aimed) {
            risks.push(Risk::Unproved(touched.iter().map(|name| (*name).to_owned()).collect()));
        }
    }
    risks.sort();
    risks
}

fn entry<'v>(document: &'v Value, name: &str) -> Option<&'v Value> {
    document["interfaces"].as_array()?.iter().find(|interface| interface["name"] == name)
}

/// Interfaces of default routes, by name.
fn default_interfaces(current: &Value) -> BTreeSet<&str> {
    let routes = current["routes"]["running"].as_array().into_iter().flatten();
    let routes = routes.filter(|route| matches!(route["destination"].as_str(), Some("0.0.0.0/0" | "::/0")));
    let main = routes.filter(|route| matches!(route["table-id"].as_u64(), None | Some(254)));
    main.filter_map(|route| route["next-hop-interface"].as_str()).collect()
}

/// Static or not: what an interface has, but for link-local ones.
fn addresses(interface: &Value) -> Vec<IpAddr> {
    let families = ["ipv4", "ipv6"].into_iter().map(|family| &interface[family]);
    let on = families.filter(|family| family["enabled"] != false);
    let all = on.flat_map(|family| family["address"].as_array().into_iter().flatten());
    let all = all.filter_map(|address| address["ip"].as_str()?.parse::<IpAddr>().ok());
    all.filter(|address| !matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())).collect()
}

/// What the node has afterwards: what the document says, and what it does not mention.
fn addresses_after(current: &Value, network: &Value) -> BTreeSet<IpAddr> {
    let none = Map::new();
    let mut ports = BTreeSet::new();
    for interface in network["interfaces"].as_array().into_iter().flatten() {
        for (section, key) in [("bridge", "port"), ("link-aggregation", "port")] {
            let list = interface[section][key].as_array().into_iter().flatten();
            ports.extend(list.filter_map(|port| port.as_str().or_else(|| port["name"].as_str())));
        }
    }
    let mut found = BTreeSet::new();
    for interface in network["interfaces"].as_array().into_iter().flatten() {
        if !matches!(interface["state"].as_str(), Some("absent" | "down")) {
            found.extend(addresses(interface));
        }
    }
    for interface in current["interfaces"].as_array().into_iter().flatten() {
        let name = interface["name"].as_str().unwrap_or_default();
        let wanted = entry(network, name);
        let wanted_entries = wanted.and_then(Value::as_object).unwrap_or(&none);
        let gone = wanted.is_some_and(|wanted| matches!(wanted["state"].as_str(), Some("absent" | "down")));
        if gone || ports.contains(name) {
            continue;
        }
        for family in ["ipv4", "ipv6"] {
            let kept = match wanted_entries.get(family) {
                None => true,
                // A lease that is asked for again is most often the same.
                Some(family) => family["enabled"] != false && family.get("address").is_none() && family["dhcp"] != true,
            };
            let dynamic = wanted_entries.get(family).is_some_and(|wanted| wanted["dhcp"] == true)
                && interface[family]["dhcp"] == true;
            if kept || dynamic {
                found.extend(addresses(&json!({family: interface[family]})));
            }
        }
    }
    found
}
