//! What a network document declares about addresses and routes, and whether a host can live with it (rule R12).
//!
//! Read straight from the document, not from rendered profiles, so that every address keeps its place.
//! Whether nmstate accepts the document is said by [`crate::nmstate`]; here is what nmstate accepts and the
//! installer's validations or the network do not.

use std::net::IpAddr;

use ipnet::IpNet;

use super::Rule;
use super::context::Context;
use crate::diagnostic::{Code, Diagnostic};
use crate::document::Node;
use crate::source::Location;

pub(crate) const RULES: &[Rule] = &[default_route, name_servers, overlapping_subnets];

/// What one nmstate document says.
pub(crate) struct NetworkFacts<'w> {
    /// Its interfaces, by the order written.
    pub interfaces: Vec<Interface<'w>>,
    /// Static addresses of interfaces that are not taken away.
    pub addresses: Vec<StaticAddress<'w>>,
    /// Default routes.
    pub default_routes: Vec<DefaultRoute<'w>>,
    /// Name servers.
    pub name_servers: usize,
    /// Whether any interface asks DHCP or listens to router advertisements.
    pub dynamic: bool,
}

/// One entry of `interfaces`.
pub(crate) struct Interface<'w> {
    pub name: &'w str,
    pub kind: &'w str,
    pub node: &'w Node,
}

/// An address with its prefix.
pub(crate) struct StaticAddress<'w> {
    pub interface: &'w str,
    pub net: IpNet,
    pub at: Location,
}

/// A route to everywhere.
pub(crate) struct DefaultRoute<'w> {
    pub interface: &'w str,
    /// As written.
    pub destination: &'w str,
    pub gateway: Option<&'w str>,
}

impl<'w> NetworkFacts<'w> {
    /// Reads what is there; what has an unexpected shape was reported by the renderer.
    pub fn read(root: &'w Node) -> Self {
        let mut facts = NetworkFacts {
            interfaces: Vec::new(),
            addresses: Vec::new(),
            default_routes: default_routes(root),
            name_servers: root.path(&["dns-resolver", "config", "server"]).map_or(0, |servers| servers.items().len()),
            dynamic: false,
        };
        for node in root.get("interfaces").map_or(&[][..], Node::items) {
            let Some(name) = node.get("name").and_then(Node::as_str) else { continue };
            let kind = node.get("type").and_then(Node::as_str).unwrap_or("");
            facts.interfaces.push(Interface { name, kind, node });
            if matches!(node.get("state").and_then(Node::as_str), Some("absent" | "down" | "ignore")) {
                continue;
            }
            for family in ["ipv4", "ipv6"].into_iter().filter_map(|family| node.get(family)) {
                if family.get("enabled").and_then(Node::as_bool) == Some(false) {
                    continue;
                }
                let on = |key: &str| family.get(key).and_then(Node::as_bool) == Some(true);
                facts.dynamic |= on("dhcp") || on("autoconf");
                let addresses = family.get("address").map_or(&[][..], Node::items);
                facts.addresses.extend(addresses.iter().filter_map(|address| static_address(name, address)));
            }
        }
        facts
    }

    /// The interface that carries the default route, else the first with an address.
    pub fn primary(&self) -> Option<&'w str> {
        let routed = self.default_routes.first().map(|route| route.interface);
        routed.or_else(|| self.addresses.first().map(|address| address.interface))
    }
}

/// The ports of a bond or bridge, as written.
pub(crate) fn ports(interface: &Node) -> Vec<&Node> {
    let bond = interface.get("link-aggregation");
    let bond = bond.and_then(|bond| bond.get("port").or_else(|| bond.get("slaves")).or_else(|| bond.get("ports")));
    let bridge = interface.path(&["bridge", "port"]);
    let bond = bond.map_or(&[][..], Node::items).iter();
    let bridge = bridge.map_or(&[][..], Node::items).iter().filter_map(|port| port.get("name"));
    bond.chain(bridge).filter(|port| port.as_str().is_some()).collect()
}

fn static_address<'w>(interface: &'w str, node: &'w Node) -> Option<StaticAddress<'w>> {
    let ip: IpAddr = node.get("ip")?.as_str()?.parse().ok()?;
    let prefix = u8::try_from(node.get("prefix-length")?.as_integer()?).ok()?;
    Some(StaticAddress { interface, net: IpNet::new(ip, prefix).ok()?, at: node.get("ip")?.at })
}

fn default_routes(root: &Node) -> Vec<DefaultRoute<'_>> {
    let routes = root.path(&["routes", "config"]).map_or(&[][..], Node::items).iter();
    let routes = routes.filter(|route| route.get("state").and_then(Node::as_str) != Some("absent"));
    routes
        .filter_map(|route| {
            let destination = route.get("destination")?.as_str()?;
            let interface = route.get("next-hop-interface")?.as_str()?;
            let gateway = route.get("next-hop-address").and_then(Node::as_str);
            matches!(destination, "0.0.0.0/0" | "::/0" | "default").then_some(DefaultRoute {
                interface,
                destination,
                gateway,
            })
        })
        .collect()
}

fn default_route(context: &Context, findings: &mut Vec<Diagnostic>) {
    for document in &context.documents {
        let facts = &document.facts;
        let Some(address) = facts.addresses.first().filter(|_| !facts.dynamic && facts.default_routes.is_empty())
        else {
            continue;
        };
        let gateway = address.net.hosts().next().unwrap_or(address.net.addr());
        let everywhere = if address.net.addr().is_ipv4() { "0.0.0.0/0" } else { "::/0" };
        findings.push(
            Diagnostic::new(
                Code(336),
                address.at,
                format!("the network of `{}` has static addresses and no default route", document.meta.id.name),
            )
            .cause(
                "nothing on the host asks DHCP, so nothing else gives it a gateway; the validation has-default-route \
                holds the installation",
            )
            .help(format!(
                "add the gateway of the subnet (often {gateway}):\nroutes:\n  config:\n  - destination: \
                {everywhere}\n    next-hop-address: {gateway}\n    next-hop-interface: {}",
                address.interface
            )),
        );
    }
}

fn name_servers(context: &Context, findings: &mut Vec<Diagnostic>) {
    for document in &context.documents {
        let facts = &document.facts;
        let Some(address) = facts.addresses.first().filter(|_| !facts.dynamic && facts.name_servers == 0) else {
            continue;
        };
        findings.push(
            Diagnostic::new(
                Code(337),
                address.at,
                format!("the network of `{}` has static addresses and no name server", document.meta.id.name),
            )
            .cause(
                "nothing on the host asks DHCP, so it can resolve no name: neither the hub nor the image registry is \
                found",
            )
            .help("add:\ndns-resolver:\n  config:\n    server:\n    - 192.0.2.53"),
        );
    }
}

fn overlapping_subnets(context: &Context, findings: &mut Vec<Diagnostic>) {
    for document in &context.documents {
        let mut sorted: Vec<&StaticAddress> = document.facts.addresses.iter().collect();
        sorted.sort_by_key(|address| (address.net.network(), address.net.prefix_len(), address.at));
        // Sorted by network, a subnet that overlaps any earlier one overlaps the widest still open.
        let mut open: Option<&StaticAddress> = None;
        for address in sorted {
            let link_local = matches!(address.net.addr(), IpAddr::V6(ip) if ip.is_unicast_link_local());
            if link_local {
                continue;
            }
            match open {
                Some(wide) if wide.net.contains(&address.net.network()) => {
                    if wide.interface != address.interface {
                        findings.push(overlap(document.meta.id.name.as_str(), wide, address));
                    }
                }
                _ => open = Some(address),
            }
        }
    }
}

fn overlap(name: &str, wide: &StaticAddress, address: &StaticAddress) -> Diagnostic {
    Diagnostic::new(
        Code(338),
        address.at,
        format!(
            "`{}` and `{}` of `{name}` are in overlapping subnets, {} and {}",
            wide.interface,
            address.interface,
            wide.net.trunc(),
            address.net.trunc()
        ),
    )
    .cause(
        "with two NICs in one subnet replies leave by either; the validation non-overlapping-subnets holds the \
        installation",
    )
    .help(format!(
        "give `{}` an address of another subnet, or put both NICs into one bond that has the address",
        address.interface
    ))
    .related(wide.at, format!("`{}`", wide.interface))
}
