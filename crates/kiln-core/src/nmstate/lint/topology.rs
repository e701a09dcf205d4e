//! How interfaces hang together: names, ports, parents, MTUs.

use std::collections::HashMap;

use super::nearest_interface;
use crate::diagnostic::{Code, Diagnostic};
use crate::net::InterfaceName;
use crate::nmstate::view::{Interface, View, number, text_of};
use crate::source::Sourced;
use crate::world::NicMapping;

/// What the kernel's 32-bit field, and a keyfile, can hold.
const LARGEST_MTU: i128 = u32::MAX as i128;

pub fn check(view: &View<'_>, nics: &[NicMapping], found: &mut Vec<Diagnostic>) {
    for interface in view.configured() {
        name(interface, found);
        kind(interface, found);
        parent(view, interface, nics, found);
        mtu(view, interface, found);
        vlan_id(interface, found);
    }
    duplicates(view, found);
    ports(view, nics, found);
}

fn name(interface: &Interface<'_>, found: &mut Vec<Diagnostic>) {
    // With another identifier the name is only the profile's; Open vSwitch bridges and VPNs have no kernel interface.
    let identified = !matches!(text_of(interface.node, "identifier"), None | Some("name"));
    if !identified && !matches!(interface.kind, "ovs-bridge" | "ipsec") {
        kernel_name(interface.name, found);
    }
}

fn kernel_name(name: Sourced<&str>, found: &mut Vec<Diagnostic>) {
    if let Err(error) = name.value.parse::<InterfaceName>() {
        let (cause, help) = if name.value.starts_with("sriov:") {
            ("the name of a virtual function is looked up on the live machine", "write the name the kernel gives it")
        } else {
            (
                "NetworkManager refuses a profile whose interface name the kernel cannot have",
                "choose a shorter or plainer name and use it everywhere",
            )
        };
        found.push(Diagnostic::new(Code(0212), name.at, error.to_string()).cause(cause).help(help));
    }
}

fn kind(interface: &Interface<'_>, found: &mut Vec<Diagnostic>) {
    if interface.node.get("type").is_none() {
        let message = format!("interface `{}` has no type and is taken for an Ethernet NIC", interface.name);
        found.push(
            Diagnostic::new(Code(0233), interface.name.at, message)
                .cause("on a live machine nmstate looks the type up; offline it assumes Ethernet")
                .help("add `type: ethernet`, or the type it really has"),
        );
    }
}

fn duplicates(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    let mut seen: HashMap<(&str, bool), &Interface<'_>> = HashMap::new();
    for interface in &view.interfaces {
        // An Open vSwitch bridge and its internal interface share one name by custom.
        let key = (interface.name.value, interface.kind == "ovs-bridge");
        if let Some(first) = seen.insert(key, interface) {
            let message =
                format!("interface `{}` is declared twice; the second entry replaces the first", interface.name);
            found.push(
                Diagnostic::new(Code(0227), interface.name.at, message)
                    .cause("nmstate keeps the last entry of a name and does not merge them")
                    .help("put everything about the interface into one entry")
                    .related(first.name.at, "this entry is lost"),
            );
        }
    }
}

fn ports(view: &View<'_>, nics: &[NicMapping], found: &mut Vec<Diagnostic>) {
    let mut owner: HashMap<&str, (&str, Sourced<&str>)> = HashMap::new();
    for controller in view.configured() {
        if controller.kind == "bond" && controller.ports().is_empty() {
            found.push(no_ports(controller));
        }
        for port in controller.ports() {
            if let Some((other, first)) = owner.insert(port.value, (controller.name.value, port)) {
                let message = format!("`{port}` is a port of both `{other}` and `{}`", controller.name);
                found.push(
                    Diagnostic::new(Code(0214), port.at, message)
                        .cause("an interface has one controller at most")
                        .help(format!("remove `{port}` from the ports of one of them"))
                        .related(first.at, format!("it is a port of `{other}` here")),
                );
            }
            missing_port(view, controller, port, nics, found);
        }
    }
}

fn missing_port(
    view: &View<'_>,
    controller: &Interface<'_>,
    port: Sourced<&str>,
    nics: &[NicMapping],
    found: &mut Vec<Diagnostic>,
) {
    match view.find(port.value) {
        Some(entry) if entry.is_configured() => return,
        Some(entry) => return found.push(left_out_port(controller, port, entry)),
        None => {}
    }
    let mapped = nics.iter().any(|nic| nic.name.value.as_str() == port.value);
    let known = view.interfaces.iter().map(|interface| interface.name.value);
    let alike = nearest_interface(port.value, known.chain(nics.iter().map(|nic| nic.name.value.as_str())))
        .filter(|alike| *alike != controller.name.value && view.controller_of(alike).is_none());
    if mapped {
        return;
    }
    let finding = match alike {
        Some(alike) => {
            let message = format!("port `{port}` of `{}` is not in the document, but `{alike}` is", controller.name);
            Diagnostic::new(Code(0213), port.at, message).help(format!("did you mean `{alike}`?"))
        }
        None => {
            let message = format!(
                "port `{port}` of `{}` is not in the document and is taken for an Ethernet NIC",
                controller.name
            );
            let help =
                format!("add an entry `name: {port}` with its type, so that a slip of the pen cannot create a NIC");
            Diagnostic::new(Code(0234), port.at, message).help(help)
        }
    };
    found.push(finding.cause("offline nmstate makes an Ethernet profile for every port it does not find"));
}

fn no_ports(bond: &Interface<'_>) -> Diagnostic {
    Diagnostic::new(Code(0239), bond.name.at, format!("bond `{}` has no ports", bond.name))
        .cause("a bond without ports has no link and never comes up with an address")
        .help("list its NICs under `link-aggregation.port`")
}

fn left_out_port(controller: &Interface<'_>, port: Sourced<&str>, entry: &Interface<'_>) -> Diagnostic {
    let message = format!("port `{port}` of `{}` has `state: {}` and is left out", controller.name, entry.state);
    let mut finding = Diagnostic::new(Code(0239), port.at, message)
        .cause("nmstate renders no profile for it, and without one it does not join its controller")
        .help(format!("write `state: up` for `{port}`, or remove it from the ports of `{}`", controller.name));
    if let Some(state) = entry.node.get("state") {
        finding = finding.related(state.at, "the state of the port");
    }
    finding
}

fn parent(view: &View<'_>, interface: &Interface<'_>, nics: &[NicMapping], found: &mut Vec<Diagnostic>) {
    let Some(parent) = interface.parent() else { return };
    if view.find(parent.value).is_some_and(Interface::is_configured) || view.controller_of(parent.value).is_some() {
        return;
    }
    let known =
        view.interfaces.iter().map(|candidate| candidate.name.value).filter(|name| *name != interface.name.value);
    let alike = nearest_interface(parent.value, known.chain(nics.iter().map(|nic| nic.name.value.as_str())));
    let message = format!("interface `{}` is stacked on `{parent}`, which is not in the document", interface.name);
    let help = match alike {
        Some(alike) => format!("did you mean `{alike}`?"),
        None => format!("add an entry `name: {parent}` with `state: up`, so that a profile brings it up"),
    };
    found.push(
        Diagnostic::new(Code(0215), parent.at, message)
            .cause(format!("no profile is rendered for `{parent}`; without one NetworkManager may leave it down"))
            .help(help),
    );
}

fn mtu(view: &View<'_>, interface: &Interface<'_>, found: &mut Vec<Diagnostic>) {
    let Some(mtu) = interface.mtu() else { return };
    if !(68..=LARGEST_MTU).contains(&mtu.value) {
        let message = format!("MTU {mtu} of interface `{}` is out of range", interface.name);
        found.push(
            Diagnostic::new(Code(0232), mtu.at, message)
                .cause("IPv4 needs 68 bytes at least, and an MTU has 32 bits")
                .help("choose a value between 68 and what the NIC and the switch can carry (1500, 9000)"),
        );
    }
    let lower = interface.parent().into_iter().chain(match interface.kind {
        "bond" => interface.ports(),
        _ => Vec::new(),
    });
    for lower in lower.filter_map(|name| view.find(name.value)) {
        let Some(carried) = lower.mtu().filter(|carried| carried.value < mtu.value) else { continue };
        let message =
            format!("MTU {mtu} of `{}` is larger than MTU {carried} of `{}` below it", interface.name, lower.name);
        found.push(
            Diagnostic::new(Code(0216), mtu.at, message)
                .cause("the kernel refuses or drops frames that do not fit the interface below")
                .help(format!("raise the MTU of `{}` to {mtu} or lower this one to {carried}", lower.name))
                .related(carried.at, "the smaller MTU"),
        );
    }
}

fn vlan_id(interface: &Interface<'_>, found: &mut Vec<Diagnostic>) {
    let Some(id) = interface.node.path(&["vlan", "id"]).filter(|_| interface.kind == "vlan") else { return };
    if let Some(number) = number(id).filter(|number| !(0..=4094).contains(number)) {
        let message = format!("VLAN id {number} of interface `{}` is outside of 0-4094", interface.name);
        found.push(
            Diagnostic::new(Code(0237), id.at, message)
                .cause("a VLAN tag has 12 bits and 4095 is reserved; NetworkManager refuses the profile")
                .help("write the id the switch uses, 1 to 4094"),
        );
    }
}
