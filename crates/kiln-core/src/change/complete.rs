//! A document that mentions a few fields, completed to one that profiles can be rendered from.
//!
//! A policy says `mtu: 9000` about `eth1` and nothing about its addresses: these stay. So each interface a document touches is
//! laid over what its own profile says, in nmstate's words. Touched are also the ports of its bridges and bonds, the interfaces
//! of its routes, and those that carry the default route when it speaks of DNS.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::compare::{interface, list, ports};
use crate::keyfile::ConnectionFile;
use crate::nmstate::describe_profiles;

/// Completes a document. `profile_of` gives the profile an interface has before the document comes, with its own name in it.
pub(super) fn complete(
    current: &Value,
    document: &Value,
    profile_of: &dyn Fn(&str) -> Option<ConnectionFile>,
) -> Completed {
    let wanted = resolve(current, document);
    let touched = touched(current, &wanted);
    let profiles: Vec<ConnectionFile> = touched.iter().filter_map(|name| profile_of(name)).collect();
    let before = describe_profiles(&profiles);
    let moves = Moves::between(current, &wanted);
    let mut interfaces = Vec::new();
    // Those whose routes go on: what becomes a port, or goes, gives them up.
    let mut carrying = BTreeSet::new();
    for name in &touched {
        let said = interface(&wanted, name);
        if said.is_some_and(|said| said["state"] == "absent" || said["state"] == "down" || said["state"] == "ignore") {
            continue;
        }
        let mut all = interface(&before, name).cloned().unwrap_or_else(|| without_profile(current, name));
        if let Some(said) = said {
            lay_over(&mut all, said);
        }
        let controller = moves.controllers.get(name.as_str()).copied();
        if controller.is_none_or(|controller| controller["type"] == "vrf") {
            carrying.insert(name.as_str());
        }
        match controller {
            Some(controller) => become_port(&mut all, controller),
            None if moves.let_go.contains(name.as_str()) => {
                drop(all.as_object_mut().map(|it| it.shift_remove("controller")))
            }
            None => {}
        }
        interfaces.push(all);
    }
    let mut network = json!({ "interfaces": interfaces });
    network["routes"] = json!({"config": unite(&before["routes"], &wanted["routes"], &carrying)});
    network["route-rules"] = json!({"config": unite(&before["route-rules"], &wanted["route-rules"], &carrying)});
    let dns = [&wanted, &before].map(|document| &document["dns-resolver"]["config"]);
    if let Some(dns) = dns.into_iter().find(|dns| !dns.is_null()) {
        network["dns-resolver"] = json!({ "config": dns });
    }
    Completed { wanted, before, network, touched }
}

/// A document and what it stands for on one node.
pub(super) struct Completed {
    /// What was asked for, with the names the node knows.
    pub wanted: Value,
    /// What the profiles of the touched interfaces say without it.
    pub before: Value,
    /// Both together.
    pub network: Value,
    /// Every interface it has an effect on, by name.
    pub touched: BTreeSet<String>,
}

/// Interfaces that are meant by their address get their name; an address that is to be copied is copied.
fn resolve(current: &Value, document: &Value) -> Value {
    let mut document = document.clone();
    let address = |name: &str| interface(current, name).map(|found| found["mac-address"].clone());
    let Some(interfaces) = document["interfaces"].as_array_mut() else { return document };
    for entry in interfaces {
        if entry["identifier"] == "mac-address" {
            let mac = entry["mac-address"].as_str().unwrap_or_default().to_ascii_lowercase();
            let same = |other: &&Value| other["mac-address"].as_str().is_some_and(|it| it.to_ascii_lowercase() == mac);
            let named = list(current, "interfaces").iter().find(same).and_then(|other| other["name"].as_str());
            if let (Some(name), Some(fields)) = (named, entry.as_object_mut()) {
                fields.insert("name".into(), name.into());
                fields.shift_remove("identifier");
                fields.shift_remove("mac-address");
                fields.shift_remove("profile-name");
            }
        }
        let source = entry["copy-mac-from"].as_str().and_then(address);
        if let (Some(mac), Some(fields)) = (source, entry.as_object_mut()) {
            fields.shift_remove("copy-mac-from");
            fields.entry("mac-address").or_insert(mac);
        }
    }
    document
}

fn touched(current: &Value, wanted: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in list(wanted, "interfaces") {
        names.extend(entry["name"].as_str().map(str::to_owned));
        names.extend(ports(entry).unwrap_or_default().into_iter().map(str::to_owned));
        // A port that is let go must lose its controller.
        let before = entry["name"].as_str().and_then(|name| interface(current, name)).and_then(ports);
        if ports(entry).is_some() {
            names.extend(before.unwrap_or_default().into_iter().map(str::to_owned));
        }
    }
    for route in list(&wanted["routes"], "config") {
        names.extend(route["next-hop-interface"].as_str().map(str::to_owned));
    }
    if !wanted["dns-resolver"]["config"].is_null() {
        names.extend(primary_interfaces(current).into_iter().map(str::to_owned));
    }
    names
}

/// The interfaces the default routes leave by.
pub(super) fn primary_interfaces(current: &Value) -> Vec<&str> {
    let default = |route: &&Value| matches!(route["destination"].as_str(), Some("0.0.0.0/0" | "::/0"));
    let routes = list(&current["routes"], "running").iter().filter(default);
    routes.filter_map(|route| route["next-hop-interface"].as_str()).collect()
}

/// An interface nobody has a profile for: what the kernel says of it, as far as a profile would.
fn without_profile(current: &Value, name: &str) -> Value {
    let mut entry = json!({"name": name, "state": "up"});
    let Some(is) = interface(current, name) else { return entry };
    entry["type"] = is["type"].clone();
    for family in ["ipv4", "ipv6"] {
        let addresses = list(&is[family], "address");
        let own: Vec<&Value> = addresses
            .iter()
            .filter(|address| !address["ip"].as_str().unwrap_or_default().to_ascii_lowercase().starts_with("fe80:"))
            .collect();
        if !own.is_empty() {
            entry[family] = json!({"enabled": true, "dhcp": false, "address": own});
        }
    }
    entry
}

/// What is said replaces what was: mappings are merged, lists and values replaced, `null` removes.
fn lay_over(base: &mut Value, said: &Value) {
    let (Some(fields), Some(said)) = (base.as_object_mut(), said.as_object()) else {
        *base = said.clone();
        return;
    };
    for (key, value) in said {
        match value {
            Value::Null => drop(fields.shift_remove(key)),
            Value::Object(_) => lay_over(fields.entry(key.clone()).or_insert_with(|| Map::new().into()), value),
            other => drop(fields.insert(key.clone(), other.clone())),
        }
    }
    // Addresses that were static make no sense beside DHCP, unless they are asked for.
    let automatic = said.get("dhcp") == Some(&json!(true)) || said.get("autoconf") == Some(&json!(true));
    if automatic && !said.contains_key("address") {
        fields.shift_remove("address");
    }
    if said.get("enabled") == Some(&json!(false)) {
        fields.retain(|key, _| key == "enabled");
    }
}

/// What becomes a port, and what ceases to be one. Gathered once: a hundred bridges would each look through all others.
struct Moves<'v> {
    /// The bond, bridge or VRF a document makes an interface a port of.
    controllers: HashMap<&'v str, &'v Value>,
    /// Interfaces a document takes from the ports of their bond or bridge.
    let_go: HashSet<&'v str>,
}

impl<'v> Moves<'v> {
    fn between(current: &'v Value, wanted: &'v Value) -> Moves<'v> {
        let mut moves = Moves { controllers: HashMap::new(), let_go: HashSet::new() };
        for entry in list(wanted, "interfaces") {
            let Some(after) = ports(entry) else { continue };
            let before = entry["name"].as_str().and_then(|name| interface(current, name)).and_then(ports);
            moves.let_go.extend(before.unwrap_or_default().into_iter().filter(|port| !after.contains(port)));
            for port in after {
                moves.controllers.entry(port).or_insert(entry);
            }
        }
        moves
    }
}

/// A port has no addresses of its own, except in a VRF.
fn become_port(entry: &mut Value, controller: &Value) {
    let Some(fields) = entry.as_object_mut() else { return };
    fields.insert("controller".into(), controller["name"].clone());
    if controller["type"] != "vrf" {
        fields.shift_remove("ipv4");
        fields.shift_remove("ipv6");
    }
}

/// Routes and rules add up; what is said to be absent goes, and so does what is written twice.
fn unite(before: &Value, wanted: &Value, carrying: &BTreeSet<&str>) -> Vec<Value> {
    let said = list(wanted, "config");
    let (absent, added): (Vec<&Value>, Vec<&Value>) = said.iter().partition(|entry| entry["state"] == "absent");
    let is_kept = |entry: &&Value| entry["next-hop-interface"].as_str().is_none_or(|name| carrying.contains(name));
    // The same way to the same place, however it is described further, is what was said last.
    const PLACE: [&str; 5] = ["destination", "next-hop-address", "next-hop-interface", "table-id", "priority"];
    let removed = |entry: &&Value| {
        let replaced =
            |new: &&Value| new.get("destination").is_some() && PLACE.iter().all(|key| new[key] == entry[key]);
        added.iter().any(replaced)
            || absent.iter().any(|gone| {
                let fields = gone.as_object().into_iter().flatten().filter(|(key, _)| key.as_str() != "state");
                fields.into_iter().all(|(key, value)| entry[key] == *value)
            })
    };
    let mut all: Vec<Value> = Vec::new();
    for entry in
        list(before, "config").iter().filter(is_kept).filter(|entry| !removed(entry)).chain(added.iter().copied())
    {
        if !all.contains(entry) {
            all.push(entry.clone());
        }
    }
    all
}
