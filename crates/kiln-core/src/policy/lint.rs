//! What does not fit together in the composed networks of a fleet, although each part of it is right.
//!
//! nmstate takes an address that another node has, and a gateway that nobody can reach. What depends on DHCP is not judged.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

/// Something that does not fit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// What.
    pub kind: FlawKind,
    /// The fields to look at: node and path as in [`super::Composed::owners`], the worse one first.
    pub fields: Vec<(String, String)>,
}

/// What does not fit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlawKind {
    /// Two nodes have one address.
    SameAddress {
        /// The address.
        address: IpAddr,
        /// Who, by name.
        nodes: (String, String),
    },
    /// Two VLANs of one interface have one id.
    SameVlan {
        /// On which node.
        node: String,
        /// The interface below.
        base: String,
        /// The id.
        id: u64,
        /// The VLANs.
        names: (String, String),
    },
    /// No subnet of the interface has the gateway.
    GatewayOutside {
        /// On which node.
        node: String,
        /// The gateway.
        gateway: IpAddr,
        /// The interface.
        interface: String,
    },
    /// An interface sends larger packets than the one below it.
    LargerThanBelow {
        /// On which node.
        node: String,
        /// The interface.
        interface: String,
        /// Its MTU.
        mtu: u64,
        /// The interface below.
        below: String,
        /// Its MTU.
        below_mtu: u64,
    },
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            FlawKind::SameAddress { address, nodes: (one, two) } => {
                write!(f, "nodes `{one}` and `{two}` both get the address {address}")
            }
            FlawKind::SameVlan { node, base, id, names: (one, two) } => {
                write!(f, "`{one}` and `{two}` of node `{node}` are both VLAN {id} on `{base}`")
            }
            FlawKind::GatewayOutside { node, gateway, interface } => {
                write!(f, "gateway {gateway} of node `{node}` is in no subnet of `{interface}`")
            }
            FlawKind::LargerThanBelow { node, interface, mtu, below, below_mtu } => {
                write!(f, "`{interface}` of node `{node}` has MTU {mtu}, and `{below}` below it {below_mtu}")
            }
        }
    }
}

/// Everything that does not fit together, in the order of the nodes.
pub fn lint<'n>(nodes: impl IntoIterator<Item = (&'n str, &'n Value)>) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    let mut owners: HashMap<IpAddr, (&str, String)> = HashMap::new();
    for (node, network) in nodes {
        let interfaces = Interface::all(network);
        for interface in &interfaces {
            for (net, family) in &interface.addresses {
                let local = match net.addr() {
                    IpAddr::V4(address) => address.is_link_local() || address.is_loopback(),
                    IpAddr::V6(address) => address.is_unicast_link_local() || address.is_loopback(),
                };
                if local {
                    continue;
                }
                let field = format!("interfaces[{}].{family}.address", interface.name);
                match owners.get(&net.addr()) {
                    Some((other, other_field)) if *other != node => flaws.push(Flaw {
                        kind: FlawKind::SameAddress {
                            address: net.addr(),
                            nodes: ((*other).to_owned(), node.to_owned()),
                        },
                        fields: vec![(node.to_owned(), field), ((*other).to_owned(), other_field.clone())],
                    }),
                    Some(_) => {}
                    None => drop(owners.insert(net.addr(), (node, field))),
                }
            }
        }
        vlans(node, &interfaces, &mut flaws);
        sizes(node, &interfaces, &mut flaws);
        gateways(node, network, &interfaces, &mut flaws);
    }
    flaws
}

struct Interface<'n> {
    name: &'n str,
    /// With the name of the family.
    addresses: Vec<(IpNet, &'static str)>,
    /// Whether somebody else gives it addresses.
    dynamic: bool,
    mtu: Option<u64>,
    /// The interface below and the section that says so.
    base: Option<(&'n str, &'n str)>,
    vlan: Option<u64>,
}

impl<'n> Interface<'n> {
    fn all(network: &'n Value) -> Vec<Interface<'n>> {
        let entries = network["interfaces"].as_array().into_iter().flatten();
        let present = entries.filter(|entry| !matches!(entry["state"].as_str(), Some("absent" | "down" | "ignore")));
        present.filter_map(Interface::read).collect()
    }

    fn read(entry: &'n Value) -> Option<Interface<'n>> {
        let mut addresses = Vec::new();
        let mut dynamic = false;
        for family in ["ipv4", "ipv6"] {
            let section = &entry[family];
            if section["enabled"] == false {
                continue;
            }
            dynamic |= section["dhcp"] == true || section["autoconf"] == true;
            let nets = section["address"].as_array().into_iter().flatten().filter_map(|address| {
                let ip: IpAddr = address["ip"].as_str()?.parse().ok()?;
                IpNet::new(ip, u8::try_from(address["prefix-length"].as_u64()?).ok()?).ok()
            });
            addresses.extend(nets.map(|net| (net, family)));
        }
        let base = ["vlan", "vxlan", "mac-vlan", "mac-vtap", "ipvlan", "macsec"]
            .into_iter()
            .find_map(|section| Some((section, entry[section]["base-iface"].as_str()?)));
        Some(Interface {
            name: entry["name"].as_str()?,
            addresses,
            dynamic,
            mtu: entry["mtu"].as_u64(),
            vlan: entry["vlan"]["id"].as_u64(),
            base,
        })
    }
}

fn vlans(node: &str, interfaces: &[Interface<'_>], flaws: &mut Vec<Flaw>) {
    let mut seen: BTreeMap<(&str, u64), &str> = BTreeMap::new();
    for interface in interfaces {
        let (Some(("vlan", base)), Some(id)) = (interface.base, interface.vlan) else { continue };
        let other = *seen.entry((base, id)).or_insert(interface.name);
        if other != interface.name {
            flaws.push(Flaw {
                kind: FlawKind::SameVlan {
                    node: node.to_owned(),
                    base: base.to_owned(),
                    id,
                    names: (other.to_owned(), interface.name.to_owned()),
                },
                fields: [interface.name, other]
                    .map(|name| (node.to_owned(), format!("interfaces[{name}].vlan.id")))
                    .to_vec(),
            });
        }
    }
}

fn sizes(node: &str, interfaces: &[Interface<'_>], flaws: &mut Vec<Flaw>) {
    let by_name: HashMap<&str, u64> =
        interfaces.iter().filter_map(|interface| Some((interface.name, interface.mtu?))).collect();
    for interface in interfaces {
        // The outer packet of a VXLAN is larger than the inner one, but it may be fragmented: only what shares a frame counts.
        let Some((_, below)) = interface.base.filter(|(section, _)| *section != "vxlan") else { continue };
        let (Some(mtu), Some(below_mtu)) = (interface.mtu, by_name.get(below).copied()) else { continue };
        if mtu > below_mtu {
            flaws.push(Flaw {
                kind: FlawKind::LargerThanBelow {
                    node: node.to_owned(),
                    interface: interface.name.to_owned(),
                    mtu,
                    below: below.to_owned(),
                    below_mtu,
                },
                fields: [interface.name, below]
                    .map(|name| (node.to_owned(), format!("interfaces[{name}].mtu")))
                    .to_vec(),
            });
        }
    }
}

fn gateways(node: &str, network: &Value, interfaces: &[Interface<'_>], flaws: &mut Vec<Flaw>) {
    let routes = network["routes"]["config"].as_array().into_iter().flatten();
    for route in routes.filter(|route| route["state"] != "absent") {
        let gateway = route["next-hop-address"].as_str().and_then(|text| text.parse::<IpAddr>().ok());
        let interface = route["next-hop-interface"].as_str();
        let interface = interfaces.iter().find(|known| Some(known.name) == interface);
        let (Some(gateway), Some(interface)) = (gateway, interface) else { continue };
        let link_local = matches!(gateway, IpAddr::V6(address) if address.is_unicast_link_local());
        let same = |net: &IpNet| net.addr().is_ipv4() == gateway.is_ipv4();
        let known = interface.addresses.iter().any(|(net, _)| same(net));
        let reached = interface.addresses.iter().any(|(net, _)| net.contains(&gateway));
        if link_local || interface.dynamic || !known || reached {
            continue;
        }
        let family = if gateway.is_ipv4() { "ipv4" } else { "ipv6" };
        let path = super::fields::fields(&serde_json::json!({"routes": {"config": [route]}}));
        let route_field = path.first().map(|field| field.path.to_string()).unwrap_or_default();
        flaws.push(Flaw {
            kind: FlawKind::GatewayOutside { node: node.to_owned(), gateway, interface: interface.name.to_owned() },
            fields: vec![
                (node.to_owned(), route_field),
                (node.to_owned(), format!("interfaces[{}].{family}.address", interface.name)),
            ],
        });
    }
}
