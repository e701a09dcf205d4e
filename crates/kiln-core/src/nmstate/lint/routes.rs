//! Routes, rules and name servers: whether something carries them and whether they can work.

use std::net::IpAddr;

use ipnet::IpNet;

use super::addresses::is_link_local;
use super::nearest_interface;
use crate::diagnostic::{Code, Diagnostic};
use crate::document::Node;
use crate::nmstate::view::{Family, Interface, Spelled, View, key_place, number_of, sourced, text_of};
use crate::source::Sourced;

pub fn check(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for route in view.routes() {
        carrier(view, route, found);
    }
    rules(view, found);
    same_default_twice(view, found);
    reaches_out(view, found);
}

fn is_default(route: &Node) -> bool {
    destination(route).is_some_and(|destination| destination.prefix_len() == 0)
}

fn destination(route: &Node) -> Option<IpNet> {
    let text = text_of(route, "destination")?;
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

/// Ordinary routes have a next hop; `blackhole` and its like have none.
fn is_ordinary(route: &Node) -> bool {
    route.get("route-type").is_none_or(|kind| kind.as_str() == Some("unicast"))
}

fn carrier(view: &View<'_>, route: &Node, found: &mut Vec<Diagnostic>) {
    let Some(via) = route.get("next-hop-interface").and_then(sourced).filter(|_| is_ordinary(route)) else { return };
    let target = text_of(route, "destination").unwrap_or("?");
    let Some(interface) = view.find(via.value).filter(|interface| interface.is_configured()) else {
        if via.value != "lo" {
            found.push(missing_carrier(view, target, via));
        }
        return;
    };
    let Some(family) = destination(route).map(|destination| Family::of(destination.addr())) else { return };
    let gateway = route.get("next-hop-address").and_then(sourced);
    if !interface.ip_enabled(family)
        || view.controller_of(via.value).is_some_and(|it| !matches!(it.kind, "vrf" | "ovs-bridge"))
    {
        let message = format!("the route to {target} is lost: `{via}` has no {}", family.label());
        found.push(
            Diagnostic::new(Code(0229), via.at, message)
                .cause("nmstate drops the routes of a family that its interface does not use")
                .help(format!(
                    "enable {} on `{via}`, or move the route to the interface that has the address",
                    family.label()
                )),
        );
    } else if !interface.ip_is_automatic(family) {
        let addresses = interface.addresses(family);
        if addresses.is_empty() {
            found.push(without_address(target, via, family));
        } else if let Some(gateway) = gateway {
            unreachable_gateway(interface, family, &addresses, gateway, found);
        }
    }
}

fn missing_carrier(view: &View<'_>, target: &str, via: Sourced<&str>) -> Diagnostic {
    let message = format!("the route to {target} goes through `{via}`, which is not in the document");
    let alike = nearest_interface(via.value, view.configured().map(|interface| interface.name.value));
    let help = match alike {
        Some(alike) => format!("did you mean `{alike}`?"),
        None => format!("add the interface `{via}` to `interfaces`, or choose one that is there"),
    };
    Diagnostic::new(Code(0219), via.at, message)
        .cause("a route is part of its interface's profile; without the interface there is no profile")
        .help(help)
}

fn without_address(target: &str, via: Sourced<&str>, family: Family) -> Diagnostic {
    let message = format!("the route to {target} goes through `{via}`, which has no {} address", family.label());
    Diagnostic::new(Code(0235), via.at, message)
        .cause("NetworkManager refuses a profile with `method=manual` and no address")
        .help(format!("add an address to `{}` of `{via}`, or `dhcp: true`", family.section()))
}

fn unreachable_gateway(
    interface: &Interface<'_>,
    family: Family,
    addresses: &[Sourced<IpNet>],
    gateway: Sourced<&str>,
    found: &mut Vec<Diagnostic>,
) {
    let Ok(address) = gateway.value.parse::<IpAddr>() else { return };
    let inside = |net: &Sourced<IpNet>| net.value.contains(&address);
    if Family::of(address) != family || is_link_local(address) || addresses.iter().any(inside) {
        return;
    }
    let nets: Vec<String> = addresses.iter().map(|net| net.value.trunc().to_string()).collect();
    let message = format!("gateway {address} is outside of every subnet of `{}` ({})", interface.name, nets.join(", "));
    let mut finding = Diagnostic::new(Code(0218), gateway.at, message)
        .cause("a gateway must be a neighbour; nmstate and NetworkManager accept the route and no packet gets through")
        .help("correct the gateway, or the address and prefix length of the interface");
    for net in addresses {
        finding = finding.related(net.at, format!("`{}` is in {}", interface.name, net.value.trunc()));
    }
    found.push(finding);
}

fn rules(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for rule in view.document.any(&["route-rules"]).list(&["config"]) {
        if text_of(rule, "state") == Some("absent") {
            continue;
        }
        let six = ["ip-from", "ip-to"].iter().any(|key| text_of(rule, key).is_some_and(|text| text.contains(':')))
            || text_of(rule, "family") == Some("ipv6");
        let family = if six { Family::V6 } else { Family::V4 };
        let named = text_of(rule, "iif").and_then(|name| view.find(name));
        let carried = match named {
            Some(interface) => interface.ip_enabled(family),
            None => view.configured().any(|interface| interface.ip_enabled(family)),
        };
        if !carried {
            let message = format!("no interface with {} carries this rule, and it is lost", family.label());
            found.push(
                Diagnostic::new(Code(0229), rule.at, message)
                    .cause("a rule is part of some interface's profile; nmstate drops it when that interface does not use the family")
                    .help(format!("enable {} on the interface the rule is for", family.label())),
            );
        }
    }
}

fn same_default_twice(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    type Key = (bool, i128, Option<i128>);
    let mut seen: Vec<(Key, &Node)> = Vec::new();
    for route in view.routes().filter(|route| is_default(route) && is_ordinary(route) && route.get("weight").is_none())
    {
        let six = destination(route).is_some_and(|destination| destination.addr().is_ipv6());
        let positive = |key: &str| number_of(route, key).filter(|number| *number > 0);
        let key = (six, positive("table-id").unwrap_or(254), positive("metric"));
        match seen.iter().find(|(other, _)| *other == key) {
            Some((_, first)) => found.push(second_default(route, first, key.2)),
            None => seen.push((key, route)),
        }
    }
}

fn second_default(route: &Node, first: &Node, metric: Option<i128>) -> Diagnostic {
    let via = |route: &Node| text_of(route, "next-hop-interface").unwrap_or("?").to_owned();
    let with = metric.map_or("without a metric".to_owned(), |metric| format!("with metric {metric}"));
    let message = format!("two default routes {with}, through `{}` and `{}`", via(first), via(route));
    Diagnostic::new(Code(0222), route.at, message)
        .cause("the interface that comes up first wins, which may change from boot to boot")
        .help("give the preferred route the smaller `metric`, for example 100 and 200")
        .related(first.at, "the other default route")
}

/// Notes about a machine that cannot leave its subnet or resolve a name.
fn reaches_out(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    let automatic =
        |interface: &Interface<'_>| Family::BOTH.into_iter().any(|family| interface.ip_is_automatic(family));
    let fixed: Vec<_> = view
        .configured()
        .filter(|interface| !interface.used_addresses().is_empty() && interface.kind != "loopback")
        .collect();
    let Some(first) = fixed.first().filter(|_| !view.configured().any(automatic)) else {
        return;
    };
    let at = key_place(view.document, "interfaces").unwrap_or(first.name.at);
    if !view.routes().any(is_default) {
        found.push(
            Diagnostic::new(Code(0223), at, "no default route: the machine reaches only its own subnets")
                .cause("every address is static, so no DHCP server adds a route")
                .help("add a route to 0.0.0.0/0 (or ::/0) under `routes.config`, if the machine is to reach anything else"),
        );
    }
    if view.document.path(&["dns-resolver", "config"]).list(&["server"]).is_empty() {
        found.push(
            Diagnostic::new(Code(0224), at, "no name server: the machine resolves no names")
                .cause("every address is static, so no DHCP server tells one")
                .help("add `dns-resolver.config.server`"),
        );
    }
}
