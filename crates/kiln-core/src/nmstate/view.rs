//! A nmstate document seen as interfaces, ports, parents and addresses, each with its place.
//!
//! Reads leniently: what has the wrong shape is absent here, because the `nmstate` crate refuses it anyway and says why.
//! A field that may be written as a number or as text (`mtu: "9000"`) is understood both ways, as the crate does.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::document::{Node, Value};
use crate::source::{Location, Sourced};

/// What the checks look at.
pub struct View<'d> {
    /// The whole document.
    pub document: &'d Node,
    /// Every entry of `interfaces` that has a name, in order.
    pub interfaces: Vec<Interface<'d>>,
    /// Index of the entry of a name.
    by_name: HashMap<&'d str, usize>,
    /// Index of the controller of a port.
    controllers: HashMap<&'d str, usize>,
}

/// One entry of `interfaces`.
pub struct Interface<'d> {
    /// The entry.
    pub node: &'d Node,
    /// Its position in the list.
    pub index: usize,
    /// `name`.
    pub name: Sourced<&'d str>,
    /// `type`; an entry without one is an Ethernet NIC to nmstate.
    pub kind: &'d str,
    /// `state`; `up` when nothing is said.
    pub state: &'d str,
}

/// IPv4 or IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both, in the order of a document.
    pub const BOTH: [Family; 2] = [Family::V4, Family::V6];

    /// The section of an interface.
    pub const fn section(self) -> &'static str {
        match self {
            Family::V4 => "ipv4",
            Family::V6 => "ipv6",
        }
    }

    /// How a message calls it.
    pub const fn label(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    /// The family of an address.
    pub const fn of(address: IpAddr) -> Family {
        match address {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }
}

impl<'d> View<'d> {
    /// Reads the document.
    pub fn new(document: &'d Node) -> Self {
        let entries = document.get("interfaces").map(Node::items).unwrap_or_default();
        let named = entries.iter().enumerate().filter_map(|(index, node)| Interface::new(node, index));
        let interfaces: Vec<Interface<'d>> = named.collect();
        let mut by_name = HashMap::new();
        // Open vSwitch bridges live beside interfaces: another entry of the same name goes first.
        let kernel = |(_, interface): &(usize, &Interface<'d>)| interface.kind != "ovs-bridge";
        let bridges = interfaces.iter().enumerate().filter(|entry| !kernel(entry));
        for (index, interface) in bridges.chain(interfaces.iter().enumerate().filter(kernel)) {
            by_name.insert(interface.name.value, index);
        }
        let mut controllers = HashMap::new();
        for (index, interface) in interfaces.iter().enumerate().filter(|(_, interface)| interface.is_configured()) {
            for port in interface.ports() {
                controllers.entry(port.value).or_insert(index);
            }
            if let Some(controller) = interface.controller().and_then(|name| by_name.get(name.value)) {
                controllers.entry(interface.name.value).or_insert(*controller);
            }
        }
        View { document, interfaces, by_name, controllers }
    }

    /// The last entry of that name, which is the one nmstate uses.
    pub fn find(&self, name: &str) -> Option<&Interface<'d>> {
        self.by_name.get(name).map(|index| &self.interfaces[*index])
    }

    /// Entries that become profiles.
    pub fn configured(&self) -> impl Iterator<Item = &Interface<'d>> {
        self.interfaces.iter().filter(|interface| interface.is_configured())
    }

    /// The controller that lists this interface as its port, or that the interface names itself.
    pub fn controller_of(&self, name: &str) -> Option<&Interface<'d>> {
        self.controllers.get(name).map(|index| &self.interfaces[*index])
    }

    /// `routes.config` without the removals.
    pub fn routes(&self) -> impl Iterator<Item = &'d Node> {
        let routes = self.document.path(&["routes", "config"]).map(Node::items).unwrap_or_default();
        routes.iter().filter(|route| text_of(route, "state") != Some("absent"))
    }
}

impl<'d> Interface<'d> {
    fn new(node: &'d Node, index: usize) -> Option<Self> {
        let name = sourced(node.get("name")?)?;
        let kind = text_of(node, "type").unwrap_or("ethernet");
        Some(Interface { node, index, name, kind, state: text_of(node, "state").unwrap_or("up") })
    }

    /// Whether it becomes a profile.
    pub fn is_configured(&self) -> bool {
        matches!(self.state, "up" | "down")
    }

    /// Interfaces under its control, as its own section lists them.
    pub fn ports(&self) -> Vec<Sourced<&'d str>> {
        match self.kind {
            "bond" => {
                let section = self.node.any(&["link-aggregation", "bond"]);
                let plain: Vec<_> = section.list(&["port", "ports"]).iter().filter_map(sourced).collect();
                if plain.is_empty() { names_in(section.list(&["ports-config"])) } else { plain }
            }
            "linux-bridge" => names_in(self.node.any(&["bridge"]).list(&["port", "ports"])),
            "ovs-bridge" => {
                let ports = self.node.any(&["bridge"]).list(&["port", "ports"]);
                let bonded = |port: &'d Node| port.any(&["link-aggregation", "bond"]).list(&["port", "ports"]);
                let names = |port: &'d Node| match bonded(port) {
                    [] => names_in(std::slice::from_ref(port)),
                    bonded => names_in(bonded),
                };
                ports.iter().flat_map(names).collect()
            }
            "vrf" => self.node.any(&["vrf"]).list(&["port", "ports"]).iter().filter_map(sourced).collect(),
            "hsr" => ["port1", "port2"].iter().filter_map(|key| sourced(self.node.path(&["hsr", key])?)).collect(),
            _ => Vec::new(),
        }
    }

    /// The interface it is stacked on.
    pub fn parent(&self) -> Option<Sourced<&'d str>> {
        let section = match self.kind {
            "vlan" | "vxlan" | "mac-vlan" | "mac-vtap" | "macsec" | "infiniband" | "ipvlan" | "xfrm" => self.kind,
            _ => return None,
        };
        sourced(self.node.path(&[section, "base-iface"])?).filter(|parent| !parent.value.is_empty())
    }

    /// `controller`, when it names one.
    pub fn controller(&self) -> Option<Sourced<&'d str>> {
        sourced(self.node.get("controller")?).filter(|controller| !controller.value.is_empty())
    }

    /// The section of a family.
    pub fn ip(&self, family: Family) -> Option<&'d Node> {
        self.node.get(family.section())
    }

    /// Whether the family is switched on.
    pub fn ip_enabled(&self, family: Family) -> bool {
        self.ip(family).is_some_and(|section| flag(section, "enabled") == Some(true))
    }

    /// Whether DHCP or router advertisements give it addresses.
    pub fn ip_is_automatic(&self, family: Family) -> bool {
        let asks = |section: &Node| flag(section, "dhcp") == Some(true) || flag(section, "autoconf") == Some(true);
        self.ip_enabled(family) && self.ip(family).is_some_and(asks)
    }

    /// Static addresses with their prefix, written or not put to use.
    pub fn addresses(&self, family: Family) -> Vec<Sourced<IpNet>> {
        let entries = self.ip(family).and_then(|section| section.get("address")).map(Node::items).unwrap_or_default();
        let read = |entry: &Node| {
            let ip: IpAddr = text_of(entry, "ip")?.parse().ok()?;
            let prefix = u8::try_from(number_of(entry, "prefix-length")?).ok()?;
            Some(Sourced::new(IpNet::new(ip, prefix).ok()?, entry.at))
        };
        entries.iter().filter_map(read).collect()
    }

    /// Static addresses it will really have.
    pub fn used_addresses(&self) -> Vec<Sourced<IpNet>> {
        let enabled = Family::BOTH.into_iter().filter(|family| self.ip_enabled(*family));
        enabled.flat_map(|family| self.addresses(family)).collect()
    }

    /// `mtu`.
    pub fn mtu(&self) -> Option<Sourced<i128>> {
        let node = self.node.get("mtu")?;
        Some(Sourced::new(number(node)?, node.at))
    }
}

/// Fields with more than one spelling.
pub trait Spelled<'d>: Sized {
    /// The value under the first of these keys that is there.
    fn any(self, keys: &[&str]) -> Option<&'d Node>;
    /// The list under the first of these keys that is there; empty when none is.
    fn list(self, keys: &[&str]) -> &'d [Node] {
        self.any(keys).map(Node::items).unwrap_or_default()
    }
}

impl<'d> Spelled<'d> for &'d Node {
    fn any(self, keys: &[&str]) -> Option<&'d Node> {
        keys.iter().find_map(|key| self.get(key))
    }
}

impl<'d> Spelled<'d> for Option<&'d Node> {
    fn any(self, keys: &[&str]) -> Option<&'d Node> {
        self?.any(keys)
    }
}

/// Names of list entries that are mappings with a `name`.
fn names_in(items: &[Node]) -> Vec<Sourced<&str>> {
    items.iter().filter_map(|item| sourced(item.get("name")?)).collect()
}

/// Text with its place.
pub fn sourced(node: &Node) -> Option<Sourced<&str>> {
    Some(Sourced::new(node.as_str()?, node.at))
}

/// Text under a key.
pub fn text_of<'d>(node: &'d Node, key: &str) -> Option<&'d str> {
    node.get(key)?.as_str()
}

/// A number under a key, also when it is written as text.
pub fn number_of(node: &Node, key: &str) -> Option<i128> {
    number(node.get(key)?)
}

/// A number, also when it is written as text.
pub fn number(node: &Node) -> Option<i128> {
    match &node.value {
        Value::Integer(number) => Some(*number),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// A truth value under a key, in all the spellings nmstate takes.
pub fn flag(node: &Node, key: &str) -> Option<bool> {
    match &node.get(key)?.value {
        Value::Bool(truth) => Some(*truth),
        Value::Integer(number) => Some(*number != 0),
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" | "y" => Some(true),
            "false" | "no" | "off" | "0" | "n" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// Where the key of an entry stands, which is where a reader looks for an unwanted field.
pub fn key_place(node: &Node, key: &str) -> Option<Location> {
    node.entries().iter().find(|entry| &*entry.key.value == key).map(|entry| entry.key.at)
}
