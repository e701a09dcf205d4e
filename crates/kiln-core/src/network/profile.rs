//! The meaning of one profile, as NetworkManager 1.42 reads it.
//!
//! [`Profile::read`] cannot fail: a value NetworkManager ignores (with a line in its log) is ignored here too.
//! [`Profile::refusal`] says whether NetworkManager would refuse the whole file, and why.
//!
//! Surprising: booleans are `true`, `false`, `1` and `0` only, so `autoconnect=no` still connects; a `[ipv4]` group without
//! `method` makes the whole file unusable; a controller is named by interface or UUID, never by id; without `id` the
//! file name is the id, and without `uuid` the UUID follows from the path.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::keyfile::{ConnectionFile, Keyfile};
use crate::net::{ConnectionUuid, InterfaceName, MacAddress, VlanId};

mod ignored_values;
mod ip;
mod refusal;
#[cfg(test)]
mod tests;

pub use ignored_values::{IgnoredValue, ignored_values};
pub(crate) use ip::numbered;
pub use ip::{IpSettings, Route};
pub use refusal::Refusal;

/// Where profiles lie on a running system.
pub const FOLDER: &str = "/etc/NetworkManager/system-connections";

/// One connection profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Name of its file.
    pub file: String,
    /// Name for people.
    pub id: String,
    /// Written, or derived from the path below [`FOLDER`] as NetworkManager does.
    pub uuid: ConnectionUuid,
    /// Whether the UUID stands in the file.
    pub uuid_is_written: bool,
    /// `ethernet`, `bond`, `vlan`, … in the short spelling. None: NetworkManager refuses the file.
    pub kind: Option<String>,
    /// `interface-name`.
    pub interface: Option<InterfaceName>,
    /// The permanent address the NIC must have.
    pub mac: Option<MacAddress>,
    /// NICs with these addresses are not meant.
    pub mac_deny_list: Vec<MacAddress>,
    /// Patterns of `[match] interface-name`.
    pub name_patterns: Vec<String>,
    /// The bond, bridge, … it is a port of.
    pub controller: Option<Reference>,
    /// `bond`, `bridge`, …
    pub port_type: Option<String>,
    /// The device below a VLAN, macvlan, ….
    pub parent: Option<Reference>,
    /// `[vlan] id`.
    pub vlan_id: Option<VlanId>,
    /// Whether NetworkManager may activate it by itself.
    pub autoconnect: bool,
    /// −999 to 999, higher first.
    pub priority: i32,
    /// On how many NICs it may be active at once.
    pub multi_connect: MultiConnect,
    /// Whether activating this controller also activates its ports, whatever they did before.
    pub pulls_ports: bool,
    /// `[ipv4]`.
    pub ipv4: IpSettings,
    /// `[ipv6]`.
    pub ipv6: IpSettings,
}

/// How another profile's device is named.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reference {
    /// By the UUID of its profile.
    Uuid(ConnectionUuid),
    /// By its interface name.
    Name(String),
}

/// On how many NICs a profile may be active at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MultiConnect {
    /// One (the default).
    Single,
    /// Several, but only one by itself.
    ManualMultiple,
    /// Every NIC it fits.
    Multiple,
}

/// What NetworkManager knows a profile by, without reading the rest of it.
pub fn uuid_of(file: &ConnectionFile) -> ConnectionUuid {
    written_uuid(&file.keyfile).unwrap_or_else(|| ConnectionUuid::of_path(&format!("{FOLDER}/{}", file.name)))
}

fn written_uuid(keyfile: &Keyfile) -> Option<ConnectionUuid> {
    keyfile.get("connection", "uuid")?.parse().ok()
}

impl Profile {
    /// Reads the meaning of a file.
    pub fn read(file: &ConnectionFile) -> Profile {
        let keyfile = &file.keyfile;
        let text = |group, key| keyfile.get(group, key).map(String::from).filter(|value| !value.is_empty());
        let reference = |group, key| text(group, key).map(|value| Reference::from(value.as_str()));
        let kind = kind(keyfile);
        // Before 0.9.10 virtual interfaces had their name in their own group; NetworkManager still reads it there.
        let interface = text("connection", "interface-name").or_else(|| text(kind.as_deref()?, "interface-name"));
        Profile {
            file: file.name.clone(),
            id: text("connection", "id")
                .unwrap_or_else(|| file.name.strip_suffix(".nmconnection").unwrap_or(&file.name).to_owned()),
            uuid_is_written: written_uuid(keyfile).is_some(),
            uuid: uuid_of(file),
            interface: interface.and_then(|name| name.parse().ok()),
            mac: ethernet(keyfile, "mac-address").and_then(|mac| mac.parse().ok()),
            mac_deny_list: ["mac-address-denylist", "mac-address-blacklist"]
                .into_iter()
                .find_map(|key| ETHERNET.iter().find_map(|group| keyfile.get_list(group, key)))
                .into_iter()
                .flatten()
                .filter_map(|mac| mac.parse().ok())
                .collect(),
            name_patterns: keyfile.get_list("match", "interface-name").unwrap_or_default(),
            // `controller` and `port-type` are the new spellings; older versions ignore them.
            controller: reference("connection", "controller").or_else(|| reference("connection", "master")),
            port_type: text("connection", "port-type").or_else(|| text("connection", "slave-type")),
            parent: kind.as_deref().and_then(|kind| reference(kind, "parent")),
            vlan_id: number(keyfile, "vlan", "id"),
            autoconnect: boolean(keyfile, "connection", "autoconnect").unwrap_or(true),
            priority: number(keyfile, "connection", "autoconnect-priority")
                .filter(|priority| (-999..=999).contains(priority))
                .unwrap_or(0),
            multi_connect: match number(keyfile, "connection", "multi-connect") {
                Some(3) => MultiConnect::Multiple,
                Some(2) => MultiConnect::ManualMultiple,
                _ => MultiConnect::Single,
            },
            pulls_ports: ["autoconnect-ports", "autoconnect-slaves"]
                .into_iter()
                .any(|key| number(keyfile, "connection", key) == Some(1)),
            ipv4: IpSettings::read(keyfile, "ipv4"),
            ipv6: IpSettings::read(keyfile, "ipv6"),
            kind,
        }
    }

    /// Whether the device exists only because of the profile (bond, VLAN, bridge), unlike a NIC.
    pub fn is_virtual(&self) -> bool {
        self.kind.as_deref().is_some_and(|kind| VIRTUAL.contains(&kind))
    }

    /// Whether a reference means this profile's device.
    pub fn is_meant_by(&self, reference: &Reference) -> bool {
        match reference {
            Reference::Uuid(uuid) => *uuid == self.uuid,
            Reference::Name(name) => self.interface.as_ref().is_some_and(|interface| interface.as_str() == name),
        }
    }
}

impl From<&str> for Reference {
    fn from(text: &str) -> Self {
        text.parse().map_or_else(|_| Reference::Name(text.to_owned()), Reference::Uuid)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reference::Uuid(uuid) => write!(f, "the profile with UUID {uuid}"),
            Reference::Name(name) => f.write_str(name),
        }
    }
}

/// The two names of the group with a NIC's settings.
const ETHERNET: [&str; 2] = ["ethernet", "802-3-ethernet"];

/// Kinds of device that exist because a profile says so.
const VIRTUAL: [&str; 19] = [
    "bond",
    "bridge",
    "team",
    "vlan",
    "dummy",
    "macvlan",
    "vxlan",
    "vrf",
    "veth",
    "tun",
    "ip-tunnel",
    "ovs-bridge",
    "ovs-port",
    "ovs-interface",
    "wireguard",
    "macsec",
    "hsr",
    "ipvlan",
    "loopback",
];

/// The kind in its short spelling; when it is not written it follows from the group that only that kind has.
fn kind(keyfile: &Keyfile) -> Option<String> {
    let written = keyfile.get("connection", "type").filter(|kind| !kind.is_empty());
    let inferred = || VIRTUAL.iter().chain(&ETHERNET).find(|kind| keyfile.groups().any(|group| group == **kind));
    let kind = written.map(String::from).or_else(|| inferred().map(|kind| (*kind).to_owned()))?;
    Some(match kind.as_str() {
        "802-3-ethernet" => "ethernet".to_owned(),
        "802-11-wireless" => "wifi".to_owned(),
        _ => kind,
    })
}

fn ethernet(keyfile: &Keyfile, key: &str) -> Option<String> {
    ETHERNET.iter().find_map(|group| keyfile.get(group, key)).map(String::from)
}

/// `true`, `false`, `1` or `0`; everything else is as good as absent.
fn boolean(keyfile: &Keyfile, group: &str, key: &str) -> Option<bool> {
    match keyfile.get(group, key)?.trim_end() {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

fn number<T: FromStr>(keyfile: &Keyfile, group: &str, key: &str) -> Option<T> {
    keyfile.get(group, key)?.trim().parse().ok()
}

/// Whether an address belongs to the family a group is about.
fn fits(group: &str, address: IpAddr) -> bool {
    (group == "ipv4") == address.is_ipv4()
}
