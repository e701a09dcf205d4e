//! Static addresses: twice the same, overlapping subnets, written but not put to use.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::nmstate::view::{Family, Interface, View, key_place};
use crate::source::Sourced;

pub fn check(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for interface in view.configured() {
        Family::BOTH.into_iter().for_each(|family| unused(view, interface, family, found));
    }
    collisions(view, found);
}

/// Addresses in use, sorted so that whatever collides stands close together.
fn collisions(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    let mut used: Vec<(&Interface<'_>, Sourced<IpNet>)> = view
        .configured()
        .filter(|interface| interface.kind != "loopback" && interface.state == "up" && !in_vrf(view, interface))
        .flat_map(|interface| interface.used_addresses().into_iter().map(move |address| (interface, address)))
        .filter(|(_, address)| !is_link_local(address.value.addr()))
        .collect();
    used.sort_by_key(|(_, address)| (address.value.network(), address.value.prefix_len(), address.at));
    for (index, (interface, address)) in used.iter().enumerate() {
        // Sorted by first address: whatever overlaps follows until a network begins behind this one's end.
        let following =
            used[index + 1..].iter().take_while(|(_, other)| address.value.contains(&other.value.network()));
        for (other_interface, other) in following {
            if other_interface.name.value == interface.name.value {
                continue;
            }
            found.push(collision((interface, address), (other_interface, other)));
        }
    }
}

fn collision(one: (&Interface<'_>, &Sourced<IpNet>), other: (&Interface<'_>, &Sourced<IpNet>)) -> Diagnostic {
    let ((first, first_address), (second, second_address)) =
        if one.1.at < other.1.at { (one, other) } else { (other, one) };
    if first_address.value.addr() == second_address.value.addr() {
        let message = format!("{} is on both `{}` and `{}`", first_address.value.addr(), first.name, second.name);
        return Diagnostic::new(Code(0217), second_address.at, message)
            .cause("an address belongs to one interface; answers would come from whichever the kernel picks")
            .help(format!("give `{}` an address of its own", second.name))
            .related(first_address.at, format!("the same address on `{}`", first.name));
    }
    let message = format!(
        "the subnets of `{}` ({}) and `{}` ({}) overlap",
        first.name, first_address.value, second.name, second_address.value
    );
    Diagnostic::new(Code(0221), second_address.at, message)
        .cause("the kernel sends to such a subnet through one of the two interfaces only")
        .help("use different subnets, or bond the NICs and put one address on the bond")
        .related(first_address.at, format!("the subnet of `{}`", first.name))
}

fn in_vrf(view: &View<'_>, interface: &Interface<'_>) -> bool {
    view.controller_of(interface.name.value).is_some_and(|controller| controller.kind == "vrf")
}

/// Link-local addresses are per link and may repeat.
pub fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => (address.segments()[0] & 0xffc0) == 0xfe80,
    }
}

fn unused(view: &View<'_>, interface: &Interface<'_>, family: Family, found: &mut Vec<Diagnostic>) {
    let Some(section) = interface.ip(family) else { return };
    let at = key_place(interface.node, family.section());
    let label = family.label();
    let addresses = !interface.addresses(family).is_empty();
    let controller = view.controller_of(interface.name.value);
    let finding = match controller.filter(|controller| !matches!(controller.kind, "vrf" | "ovs-bridge")) {
        Some(controller) if interface.ip_enabled(family) => {
            let message =
                format!("`{}` is a port of `{}` and cannot have {label} of its own", interface.name, controller.name);
            Diagnostic::new(Code(0226), at, message)
                .severity(Severity::Error)
                .cause("a port hands its traffic to the controller; nmstate refuses addresses on it")
                .help(format!("move the {label} section to `{}`", controller.name))
        }
        _ if addresses && !interface.ip_enabled(family) => {
            let message = format!("the {label} addresses of `{}` are left out: {label} is not enabled", interface.name);
            Diagnostic::new(Code(0226), at, message)
                .cause("without `enabled: true` nmstate switches the family off and forgets its addresses")
                .help(format!("add `enabled: true` to `{}`", family.section()))
        }
        _ if family == Family::V4
            && interface.ip_enabled(family)
            && !addresses
            && !interface.ip_is_automatic(family) =>
        {
            let message = format!(
                "{label} of `{}` is enabled without `dhcp` and without an address, and is switched off",
                interface.name
            );
            Diagnostic::new(Code(0226), section.get("enabled").map(|enabled| enabled.at), message)
                .cause("nmstate writes `method=disabled` when there is nothing to configure")
                .help("add `dhcp: true` or an `address`, or write `enabled: false`")
        }
        _ => return,
    };
    found.push(finding);
}
