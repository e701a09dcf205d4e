//! What the node's network is: the kernel, the profiles from NetworkManager and its files.
//!
//! [`observe`] is quick, since it comes before every decision: nmstate asks NetworkManager for each profile, which took
//! 11 s for a hundred bridges; here the kernel answers four questions ([`crate::kernel`]), NetworkManager one, and files
//! are read from the disk. [`observe_full`] is nmstate's own, for showing.
//!
//! Not here: what is done about it.

use std::collections::{HashMap, HashSet};
use std::fs;

use kiln_core::change::{Held, Observed, Place};
use kiln_core::keyfile::{ConnectionFile, Keyfile};
use nmstate::NetworkState;
use serde_json::Value;

use crate::AgentError;
use crate::files::{Folders, read_image};
use crate::kernel::read_kernel;
use crate::nm::{NetworkManager, Profile, Snapshot};

/// Flags of profiles that are NetworkManager's own description of what others made: generated, volatile, external.
const NOT_SAVED: u32 = 2 | 4 | 8;

/// The largest document that is published.
const LARGEST_DOCUMENT: usize = 512 * 1024;

/// Everything that counts for planning.
pub async fn observe(nm: &NetworkManager, folders: &Folders) -> Result<Observed, AgentError> {
    let (current, snapshot) = running(nm).await?;
    Ok(Observed { current, profiles: profiles(nm, folders, &snapshot).await? })
}

/// nmstate's document of what the kernel has, with the states NetworkManager gives its devices.
pub async fn running(nm: &NetworkManager) -> Result<(Value, Snapshot), AgentError> {
    // NetworkManager is asked first: while it gathers its answer, the kernel gives its own.
    let (snapshot, current) = futures::future::join(nm.snapshot(), kernel()).await;
    let (mut current, snapshot) = (current?, snapshot?);
    lay_states_over(&mut current, &snapshot);
    Ok((current, snapshot))
}

/// To the kernel a bridge without ports is down; what counts is whether a profile is in force on it. The numbers are those
/// of nmstate, which does the same: 10 is unmanaged, 20 unavailable, 30 disconnected.
fn lay_states_over(current: &mut Value, snapshot: &Snapshot) {
    let states: HashMap<&str, u32> = snapshot
        .devices
        .iter()
        .filter(|device| device.real)
        .map(|device| (device.interface.as_str(), device.state))
        .collect();
    for interface in current["interfaces"].as_array_mut().into_iter().flatten() {
        let device = interface["name"].as_str().and_then(|name| states.get(name));
        let state = match device {
            _ if interface["state"] == "ignore" => continue,
            None | Some(0) => continue,
            Some(1..20) => "ignore",
            Some(20..40) => "down",
            Some(_) => "up",
        };
        // A NIC that is unavailable although it is managed waits for a link; nmstate has no word for it.
        if device == Some(&20) {
            interface["carrier"] = false.into();
        }
        interface["state"] = state.into();
    }
}

async fn kernel() -> Result<Value, AgentError> {
    read_running_kernel()
}

/// What the kernel has, and the running hostname.
pub fn read_running_kernel() -> Result<Value, AgentError> {
    let mut document = read_kernel().map_err(|error| AgentError::Kernel(error.to_string()))?;
    let hostname = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    document["hostname"] = serde_json::json!({"running": hostname.trim()});
    Ok(document)
}

/// nmstate's document of the kernel and of NetworkManager, within bounds and without what changes by itself.
pub async fn observe_full() -> Result<Value, AgentError> {
    let mut document = retrieve(&mut NetworkState::new()).await?;
    quieten(&mut document);
    bound(&mut document);
    Ok(document)
}

async fn retrieve(state: &mut NetworkState) -> Result<Value, AgentError> {
    let failed = |error: &dyn std::fmt::Display| AgentError::Kernel(error.to_string());
    let state = state.retrieve_async().await.map_err(|error| failed(&error))?;
    serde_json::to_value(&*state).map_err(|error| failed(&error))
}

async fn profiles(nm: &NetworkManager, folders: &Folders, snapshot: &Snapshot) -> Result<Vec<Held>, AgentError> {
    let in_force: HashMap<_, _> = snapshot
        .active
        .iter()
        .filter_map(|active| Some((&active.profile, snapshot.interface_of(active)?.to_owned())))
        .collect();
    let mut held = Vec::with_capacity(snapshot.profiles.len());
    for profile in &snapshot.profiles {
        if let Some((place, file)) = profile_file(nm, folders, profile).await? {
            held.push(Held { place, file, active_on: in_force.get(&profile.path).cloned() });
        }
    }
    held.extend(shadowed(folders, &held)?);
    // NetworkManager's order is a hash table's.
    held.sort_by(|a, b| (&a.file.name, a.place).cmp(&(&b.file.name, b.place)));
    Ok(held)
}

async fn profile_file(
    nm: &NetworkManager,
    folders: &Folders,
    profile: &Profile,
) -> Result<Option<(Option<Place>, ConnectionFile)>, AgentError> {
    if let Some(path) = &profile.filename
        && let Some(image) = read_image(path)?
        && let Ok(keyfile) = Keyfile::parse_bytes(&image.bytes)
    {
        let (place, name) = match folders.locate(path) {
            Some((place, name)) => ((profile.flags & NOT_SAVED == 0).then_some(place), name),
            None => (None, path.file_name().unwrap_or_default().to_string_lossy().into_owned()),
        };
        return Ok(Some((place, ConnectionFile { name, mode: image.mode, keyfile })));
    }
    // In memory only, or its file went while we looked: what makes it known is enough, it cannot be edited.
    let Ok(settings) = nm.settings(&profile.path).await else { return Ok(None) };
    let mut keyfile = Keyfile::default();
    for key in ["id", "uuid", "type", "interface-name"] {
        let value = settings.get("connection").and_then(|connection| connection.get(key));
        if let Some(text) = value.and_then(|value| value.downcast_ref::<&str>().ok()) {
            keyfile.set("connection", key, text);
        }
    }
    let name = format!("{}.nmconnection", keyfile.get("connection", "id").unwrap_or_default());
    Ok(Some((None, ConnectionFile { name, mode: 0o600, keyfile })))
}

/// Persistent profiles that NetworkManager does not name, because a runtime one has their UUID.
fn shadowed(folders: &Folders, held: &[Held]) -> Result<Vec<Held>, AgentError> {
    let uuid = |keyfile: &Keyfile| keyfile.get("connection", "uuid").map(|uuid| uuid.into_owned());
    let runtime: HashSet<_> = held
        .iter()
        .filter(|held| held.place == Some(Place::Runtime))
        .filter_map(|held| uuid(&held.file.keyfile))
        .collect();
    if runtime.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(&folders.persistent).into_iter().flatten().flatten() {
        let path = entry.path();
        let Some((place, name)) = folders.locate(&path) else { continue };
        let Ok(Some(image)) = read_image(&path) else { continue };
        let Ok(keyfile) = Keyfile::parse_bytes(&image.bytes) else { continue };
        let file = ConnectionFile { name, mode: image.mode, keyfile };
        if file.ignored().is_none() && uuid(&file.keyfile).is_some_and(|uuid| runtime.contains(&uuid)) {
            found.push(Held { place: Some(place), file, active_on: None });
        }
    }
    Ok(found)
}

/// Leaves out what changes without anybody changing it, and what belongs to containers: published, it would never be quiet.
fn quieten(document: &mut Value) {
    let mut foreign = HashSet::new();
    if let Some(Value::Array(interfaces)) = document.get_mut("interfaces") {
        interfaces.retain(|interface| {
            let is = |key: &str, value: &str| interface.get(key).and_then(Value::as_str) == Some(value);
            let ignored = is("type", "veth") && is("state", "ignore");
            if ignored && let Some(name) = interface.get("name").and_then(Value::as_str) {
                foreign.insert(name.to_owned());
            }
            !ignored
        });
        for interface in interfaces {
            for family in ["ipv4", "ipv6"] {
                let addresses = interface.pointer_mut(&format!("/{family}/address")).and_then(Value::as_array_mut);
                for address in addresses.into_iter().flatten().filter_map(Value::as_object_mut) {
                    address.retain(|key, _| !key.ends_with("-life-time"));
                }
            }
            if let Some(options) = interface.pointer_mut("/bridge/options").and_then(Value::as_object_mut) {
                options.retain(|key, _| key != "gc-timer" && key != "hello-timer");
            }
        }
    }
    for list in ["/routes/running", "/routes/config"] {
        if let Some(Value::Array(routes)) = document.pointer_mut(list) {
            let interface = |route: &Value| route.get("next-hop-interface").and_then(Value::as_str).map(str::to_owned);
            routes.retain(|route| !interface(route).is_some_and(|name| foreign.contains(&name)));
        }
    }
}

/// Halves the longest list until the document is small enough to be an object of an API server.
fn bound(document: &mut Value) {
    const LISTS: [&str; 4] = ["/routes/running", "/routes/config", "/route-rules/config", "/interfaces"];
    while serde_json::to_string(document).map_or(0, |text| text.len()) > LARGEST_DOCUMENT {
        let length = |list: &str| document.pointer(list).and_then(Value::as_array).map_or(0, Vec::len);
        let Some(longest) = LISTS.into_iter().max_by_key(|list| length(list)).filter(|list| length(list) > 1) else {
            return;
        };
        if let Some(Value::Array(entries)) = document.pointer_mut(longest) {
            tracing::warn!(
                list = longest,
                entries = entries.len(),
                "the state of the network is too large; half is left out"
            );
            entries.truncate(entries.len() / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nm::Device;
    use serde_json::json;
    use zbus::zvariant::OwnedObjectPath;

    #[test]
    fn a_state_is_what_networkmanager_says() {
        let device = |interface: &str, state| Device {
            path: OwnedObjectPath::try_from("/d").unwrap(),
            interface: interface.to_owned(),
            state,
            reason: 0,
            managed: true,
            real: true,
        };
        for (state, kernel, expected) in [
            (100, "down", "up"),
            (70, "down", "up"),
            (30, "up", "down"),
            (20, "up", "down"),
            (10, "up", "ignore"),
            (100, "ignore", "ignore"),
        ] {
            let mut current = json!({"interfaces": [{"name": "br0", "state": kernel}, {"name": "x", "state": "up"}]});
            let snapshot = Snapshot { devices: vec![device("br0", state)], ..Snapshot::default() };
            lay_states_over(&mut current, &snapshot);
            assert_eq!(current["interfaces"][0]["state"], expected, "{state} {kernel}");
            assert_eq!(current["interfaces"][1]["state"], "up");
        }
    }

    #[test]
    fn what_changes_by_itself_is_not_published() {
        let mut document = json!({
            "interfaces": [
                {"name": "veth1", "type": "veth", "state": "ignore"},
                {"name": "br0", "type": "linux-bridge", "state": "up",
                 "bridge": {"options": {"gc-timer": 7, "hello-timer": 8, "hello-time": 2}},
                 "ipv4": {"address": [{"ip": "192.0.2.1", "prefix-length": 24, "valid-life-time": "9sec"}]}},
            ],
            "routes": {"running": [{"next-hop-interface": "veth1"}, {"next-hop-interface": "br0"}]},
        });
        quieten(&mut document);
        let expected = json!({
            "interfaces": [{"name": "br0", "type": "linux-bridge", "state": "up", "bridge": {"options": {"hello-time": 2}},
                "ipv4": {"address": [{"ip": "192.0.2.1", "prefix-length": 24}]}}],
            "routes": {"running": [{"next-hop-interface": "br0"}]},
        });
        assert_eq!(document, expected);
    }

    #[test]
    fn a_document_stays_small_enough_for_an_api_server() {
        let routes: Vec<Value> =
            (0..20_000).map(|n| json!({"destination": format!("10.0.{n}.0/24"), "table-id": 254})).collect();
        let mut document = json!({"interfaces": [{"name": "eth0"}], "routes": {"running": routes}});
        bound(&mut document);
        assert!(serde_json::to_string(&document).unwrap().len() <= LARGEST_DOCUMENT);
        assert_eq!(document["interfaces"][0]["name"], "eth0");
        assert!(document["routes"]["running"].as_array().unwrap().len() > 5000);
    }
}
