//! What the document asks for and no keyfile can hold, or the crate leaves out of it.

use crate::diagnostic::{Code, Diagnostic};
use crate::document::Node;
use crate::nmstate::view::{Family, Interface, View, flag, key_place, number_of, text_of};
use crate::world::NicMapping;

/// Interface types whose own settings the crate does not write into the keyfile.
const UNRENDERED_TYPES: [&str; 6] = ["hsr", "ipvlan", "ip-tunnel", "xfrm", "tun", "other"];

/// Fields that nmstate shows and never applies.
const READ_ONLY: [&str; 4] = ["permanent-mac-address", "driver", "min-mtu", "max-mtu"];

/// Which interfaces may copy the address of another one.
const MAY_COPY_MAC: [&str; 3] = ["bond", "linux-bridge", "ovs-interface"];

pub fn check(view: &View<'_>, nics: &[NicMapping], found: &mut Vec<Diagnostic>) {
    outside_of_interfaces(view.document, found);
    for interface in &view.interfaces {
        if interface.state == "absent" {
            found.push(absent(interface));
            continue;
        }
        if interface.is_configured() {
            alternative_names(interface, found);
            copied_mac(view, interface, nics, found);
            dispatch(interface, found);
            unrendered_type(interface, found);
            missing_identity(interface, found);
            silent_fields(interface, found);
            unwritable_keys(interface, found);
            settings_without_vswitch(view, interface, found);
            newer_settings(interface, found);
        }
    }
    absent_routes(view.document, found);
    numbers_too_large(view.document, found);
}

fn outside_of_interfaces(document: &Node, found: &mut Vec<Diagnostic>) {
    if let Some(hostname) = document.path(&["hostname", "config"]).filter(|name| name.as_str().is_some()) {
        let name = hostname.as_str().unwrap_or_default();
        found.push(
            Diagnostic::new(Code(0202), hostname.at, format!("the host name `{name}` is not part of any keyfile"))
                .cause("NetworkManager keeps the static host name outside of its profiles")
                .help(format!("let the Ignition config write `{name}` to /etc/hostname; Kiln's own plans do")),
        );
    }
    for path in
        [["hostname", "running"], ["dns-resolver", "running"], ["routes", "running"], ["route-rules", "running"]]
    {
        if let Some(at) = document.get(path[0]).and_then(|section| key_place(section, path[1])) {
            let message = format!("`{}.running` is left out", path[0]);
            found.push(
                Diagnostic::new(Code(0230), at, message)
                    .cause("`running` describes a live machine; nmstate renders only `config`")
                    .help(format!("move what you want to keep to `{}.config` and delete `running`", path[0])),
            );
        }
    }
    if let Some(at) = key_place(document, "ovs-db") {
        found.push(
            Diagnostic::new(Code(0204), at, "`ovs-db` is left out")
                .cause("global settings of Open vSwitch live in its database, which keyfiles do not reach")
                .help("set them with ovs-vsctl in a systemd unit, or with a NodeNetworkConfigurationPolicy on the running node"),
        );
    }
    if let Some(at) = key_place(document, "ovn") {
        found.push(
            Diagnostic::new(Code(0208), at, "`ovn.bridge-mappings` is left out")
                .cause("bridge mappings live in the Open vSwitch database, which keyfiles do not reach")
                .help("declare the mapping in a NodeNetworkConfigurationPolicy for the running node"),
        );
    }
}

fn absent(interface: &Interface<'_>) -> Diagnostic {
    let message = format!("`state: absent` of interface `{}` is left out", interface.name);
    Diagnostic::new(Code(0205), interface.node.get("state").map(|state| state.at), message)
        .cause("keyfiles can only add profiles; a new machine has nothing to remove")
        .help("delete the entry, or use a NodeNetworkConfigurationPolicy to remove the interface from a running node")
}

fn absent_routes(document: &Node, found: &mut Vec<Diagnostic>) {
    for section in ["routes", "route-rules"] {
        let entries = document.path(&[section, "config"]).map(Node::items).unwrap_or_default();
        for entry in entries.iter().filter(|entry| text_of(entry, "state") == Some("absent")) {
            let at = entry.get("state").map(|state| state.at);
            found.push(
                Diagnostic::new(Code(0205), at, format!("`state: absent` in `{section}` is left out"))
                    .cause("keyfiles can only add; a new machine has nothing to remove")
                    .help("delete the entry"),
            );
        }
    }
}

/// The crate cuts these numbers to 32 bits.
fn numbers_too_large(document: &Node, found: &mut Vec<Diagnostic>) {
    for (section, key) in [("routes", "metric"), ("route-rules", "priority")] {
        for entry in document.path(&[section, "config"]).map(Node::items).unwrap_or_default() {
            let Some(value) = number_of(entry, key).filter(|value| *value > i128::from(u32::MAX)) else { continue };
            let message = format!("`{key}: {value}` in `{section}` does not fit");
            found.push(
                Diagnostic::new(Code(0238), entry.get(key).map(|value| value.at), message)
                    .cause("a profile holds 32 bits; nmstate would cut the number and write another one")
                    .help(format!("choose a {key} below 4294967296")),
            );
        }
    }
}

/// The crate writes names of Open vSwitch settings as keys, whatever is in them.
fn unwritable_keys(interface: &Interface<'_>, found: &mut Vec<Diagnostic>) {
    for section in ["external_ids", "other_config"] {
        let entries = interface.node.path(&["ovs-db", section]).map(Node::entries).unwrap_or_default();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/');
        for entry in entries.iter().filter(|entry| !entry.key.value.chars().all(plain)) {
            let message =
                format!("`{}` of interface `{}` cannot be a key of a keyfile", &*entry.key.value, interface.name);
            found.push(
                Diagnostic::new(Code(0238), entry.key.at, message)
                    .cause("`=`, brackets, blanks and line breaks have a meaning of their own in a keyfile")
                    .help("use letters, digits, `-`, `_`, `.`, `:` and `/` in names of Open vSwitch settings"),
            );
        }
    }
}

fn settings_without_vswitch(view: &View<'_>, interface: &Interface<'_>, found: &mut Vec<Diagnostic>) {
    let Some(at) = key_place(interface.node, "ovs-db") else { return };
    let controlled = view.controller_of(interface.name.value).is_some_and(|controller| controller.kind == "ovs-bridge");
    if !controlled && !matches!(interface.kind, "ovs-bridge" | "ovs-interface") {
        let message = format!("`ovs-db` of interface `{}` is left out", interface.name);
        found.push(
            Diagnostic::new(Code(0204), at, message)
                .cause("the interface is not part of any Open vSwitch bridge of the document")
                .help("add it to the ports of an `ovs-bridge`, or delete the section"),
        );
    }
}

/// Observed with NetworkManager 1.42.4, which reads the profile without these keys.
fn newer_settings(interface: &Interface<'_>, found: &mut Vec<Diagnostic>) {
    let newer: [&[&str]; 5] = [
        &["ipv4", "forwarding"],
        &["ethtool", "fec"],
        &["link-aggregation", "options", "lacp_active"],
        &["link-aggregation", "options", "arp_missed_max"],
        &["link-aggregation", "options", "ns_ip6_target"],
    ];
    for (path, value) in newer.iter().filter_map(|path| Some((path, interface.node.path(path)?))) {
        let setting = path.join(".");
        let message = format!("`{setting}` of interface `{}` needs a newer NetworkManager than 1.42", interface.name);
        found.push(
            Diagnostic::new(Code(0252), value.at, message)
                .cause("NetworkManager 1.42 does not know the key and ignores it")
                .help("make sure that the image has a newer NetworkManager, or delete the setting"),
        );
    }
}

fn alternative_names(interface: &Interface<'_>, found: &mut Vec<Diagnostic>) {
    let Some(at) = key_place(interface.node, "alt-names") else { return };
    let message = format!("the alternative names of interface `{}` are left out", interface.name);
    found.push(
        Diagnostic::new(Code(0203), at, message)
            .cause("NetworkManager has no setting for alternative names; nmstate writes systemd .link files on a live machine")
            .help("write a file below /etc/systemd/network with `AlternativeName=` through Ignition, or delete `alt-names`"),
    );
}

fn copied_mac(view: &View<'_>, interface: &Interface<'_>, nics: &[NicMapping], found: &mut Vec<Diagnostic>) {
    let Some(source) = interface.node.get("copy-mac-from") else { return };
    let name = source.as_str().unwrap_or_default();
    if !MAY_COPY_MAC.contains(&interface.kind) {
        let message = format!("`copy-mac-from` of interface `{}` has no effect", interface.name);
        found.push(
            Diagnostic::new(Code(0206), source.at, message)
                .cause(format!(
                    "nmstate copies addresses only to bond, linux-bridge and ovs-interface, not to {}",
                    interface.kind
                ))
                .help("write the address itself as `mac-address`"),
        );
    } else if known_mac(view, name, nics).is_none() {
        let message =
            format!("`copy-mac-from: {name}` of interface `{}` needs an address nobody knows yet", interface.name);
        found.push(
            Diagnostic::new(Code(0206), source.at, message)
                .cause(format!("nmstate reads the MAC address of `{name}` from the live machine; offline there is none"))
                .help(format!("map `{name}` to its MAC address in `spec.interfaces` of the NMStateConfig, or replace `copy-mac-from` by `mac-address`")),
        );
    }
}

/// The address of a NIC, when the document or its mapping tells it.
pub fn known_mac(view: &View<'_>, name: &str, nics: &[NicMapping]) -> Option<String> {
    let mapped = nics.iter().find(|nic| nic.name.value.as_str() == name).map(|nic| nic.mac.value.to_string());
    // A port need not have an entry of its own.
    mapped.or_else(|| {
        let node = view.find(name)?.node;
        ["permanent-mac-address", "mac-address"].iter().find_map(|key| text_of(node, key).map(str::to_owned))
    })
}

fn dispatch(interface: &Interface<'_>, found: &mut Vec<Diagnostic>) {
    let Some(at) = key_place(interface.node, "dispatch") else { return };
    let message = format!("the dispatch scripts of interface `{}` cannot be rendered", interface.name);
    found.push(
        Diagnostic::new(Code(0207), at, message)
            .cause("they are files below /etc/NetworkManager/dispatcher.d, not part of a profile")
            .help("ship the script as a file with mode 0755 in the Ignition config and delete `dispatch`"),
    );
}

fn unrendered_type(interface: &Interface<'_>, found: &mut Vec<Diagnostic>) {
    if UNRENDERED_TYPES.contains(&interface.kind) {
        let at = interface.node.get("type").map(|kind| kind.at);
        let message =
            format!("interface `{}` of type {} cannot be rendered to a keyfile", interface.name, interface.kind);
        found.push(
            Diagnostic::new(Code(0211), at, message)
                .cause(format!(
                    "nmstate writes the profile without its [{}] section, and NetworkManager would refuse it",
                    interface.kind
                ))
                .help("create the interface on the running node with a NodeNetworkConfigurationPolicy"),
        );
    }
}

fn missing_identity(interface: &Interface<'_>, found: &mut Vec<Diagnostic>) {
    let Some(identifier) = interface.node.get("identifier") else { return };
    let needed = match identifier.as_str() {
        Some("mac-address") => "mac-address",
        Some("pci-address") => "pci-address",
        _ => return,
    };
    if interface.node.get(needed).is_none() {
        let message = format!("interface `{}` is identified by its {needed}, which is not given", interface.name);
        found.push(
            Diagnostic::new(Code(0231), identifier.at, message)
                .cause("the profile would carry neither a name nor an address, and NetworkManager would use it for any NIC")
                .help(format!("add `{needed}: …` to the interface, or delete `identifier`")),
        );
    }
}

fn silent_fields(interface: &Interface<'_>, found: &mut Vec<Diagnostic>) {
    let mut lost = |node: &Node, key: &str, cause: &str, help: &str| {
        if let Some(at) = key_place(node, key) {
            let message = format!("`{key}` of interface `{}` is left out", interface.name);
            found.push(Diagnostic::new(Code(0228), at, message).cause(cause).help(help));
        }
    };
    let copies = interface.node.get("copy-mac-from").is_some();
    for key in READ_ONLY.into_iter().filter(|key| !(copies && *key == "permanent-mac-address")) {
        lost(interface.node, key, "nmstate reports this value and never sets it", "delete the line");
    }
    if let Some(ethernet) = interface.node.get("ethernet") {
        if flag(ethernet, "auto-negotiation") != Some(false) {
            for key in ["speed", "duplex"] {
                let cause = "speed and duplex are written only together with `auto-negotiation: false`";
                lost(ethernet, key, cause, "add `auto-negotiation: false` beside it, or delete the line");
            }
        }
        if let Some(virtual_functions) = ethernet.get("sr-iov").filter(|sriov| number_of(sriov, "total-vfs") == Some(0))
        {
            let cause = "nmstate leaves the whole [sriov] section out when there are none, so an existing count stays";
            lost(
                virtual_functions,
                "total-vfs",
                cause,
                "delete `sr-iov`; a new machine starts without virtual functions",
            );
        }
    }
    if let Some(pause) =
        interface.node.path(&["ethtool", "pause"]).filter(|pause| flag(pause, "autoneg") != Some(false))
    {
        for key in ["rx", "tx"] {
            lost(
                pause,
                key,
                "pause settings are written only together with `autoneg: false`",
                "add `autoneg: false` beside it",
            );
        }
    }
    if interface.kind == "loopback" {
        lost(interface.node, "mtu", "nmstate writes no [loopback] section", "delete the line");
    }
    for family in Family::BOTH {
        let addresses =
            interface.ip(family).and_then(|section| section.get("address")).map(Node::items).unwrap_or_default();
        for address in addresses {
            for key in ["valid-life-time", "preferred-life-time"] {
                lost(address, key, "a static address has no life time in a profile", "delete the line");
            }
        }
    }
}
