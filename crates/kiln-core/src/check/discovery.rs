//! Which network reaches which host (rules R11, and the selection that ignores namespaces).
//!
//! An InfraEnv selects NMStateConfigs by label, in every namespace. Of those, a booting host takes each that names
//! any of its MAC addresses; when none does, it says so on its console and stays on DHCP, and the hub sees nothing.

use std::collections::{HashMap, HashSet};

use super::Rule;
use super::context::Context;
use super::words::{counted, full_name};
use crate::diagnostic::{Code, Diagnostic};
use crate::document::Node;
use crate::net::MacAddress;
use crate::world::HostNetwork;

pub(super) const RULES: &[Rule] =
    &[hosts_without_network, networks_without_host, unselected_networks, leaking_networks, unmapped_nics];

fn hosts_without_network(context: &Context, findings: &mut Vec<Diagnostic>) {
    for (index, discovery) in context.world.discoveries.iter().enumerate() {
        let selected = context.selected_networks(index);
        if selected.is_empty() {
            continue;
        }
        for host in context.hosts_of_discovery[index].iter().map(|host| &context.hosts[*host]) {
            let Some(mac) = host.host.boot_mac.as_ref().filter(|_| host.documents.is_empty()) else { continue };
            let named = selected.iter().map(|network| &context.world.host_networks[*network]);
            let named = named.take(64).find(|network| network.meta.id.name == host.host.meta.id.name);
            let finding = Diagnostic::new(
                Code(330),
                mac.at,
                format!(
                    "no NMStateConfig of InfraEnv `{}` names {mac}, the boot NIC of host `{}`",
                    discovery.meta.id.name, host.host.meta.id.name
                ),
            )
            .cause(
                "a host takes the network that names one of its MAC addresses; when none does, it prints `No matching \
                host directories found` on its console and tries DHCP",
            )
            .help(format!(
                "name the NIC in the host's NMStateConfig:\nspec:\n  interfaces:\n  - name: {}\n    macAddress: \
                \"{mac}\"",
                named.and_then(first_nic).unwrap_or("eno1")
            ));
            findings.push(match named {
                Some(network) => finding.related(network.meta.at, "the NMStateConfig of the same name"),
                None => finding,
            });
        }
    }
}

/// The first NIC a network speaks of.
fn first_nic(network: &HostNetwork) -> Option<&str> {
    let interfaces = network.document.as_ref().and_then(|root| root.get("interfaces")).map_or(&[][..], Node::items);
    let described = || interfaces.iter().find(|node| is_ethernet(node))?.get("name")?.as_str();
    network.interfaces.first().map(|nic| nic.name.as_str()).or_else(described)
}

fn networks_without_host(context: &Context, findings: &mut Vec<Diagnostic>) {
    let macs: HashSet<MacAddress> =
        context.world.hosts.iter().filter_map(|host| host.boot_mac.as_ref()).map(|mac| mac.value).collect();
    let copied = hosts_with_a_copied_mac(context);
    let mut told = HashSet::new();
    for (index, discovery) in context.world.discoveries.iter().enumerate() {
        if context.hosts_of_discovery[index].is_empty() {
            continue;
        }
        for network in context.selected_networks(index) {
            let declared = &context.world.host_networks[*network];
            let Some(first) = declared.interfaces.first() else { continue };
            let known = declared.interfaces.iter().any(|interface| macs.contains(&interface.mac.value));
            let id = (declared.meta.id.namespace.as_str(), declared.meta.id.name.as_str());
            if known || copied.contains(&id) || !told.insert(*network) {
                continue;
            }
            findings.push(
                Diagnostic::new(
                    Code(331),
                    first.mac.at,
                    format!(
                        "NMStateConfig `{}` is for no declared host: {} is nobody's boot NIC",
                        declared.meta.id.name,
                        macs_of(declared)
                    ),
                )
                .cause(format!(
                    "InfraEnv `{}` puts it into the image, but a host is only recognised by the MAC addresses it \
                    names",
                    discovery.meta.id.name
                ))
                .help(
                    "compare `macAddress` with `spec.bootMACAddress` of the BareMetalHost it is meant for; if the \
                    boot NIC is another one, list it too",
                ),
            );
        }
    }
}

/// Hosts whose boot MAC address is an earlier host's: they hear of that, and their network is not to blame.
fn hosts_with_a_copied_mac<'w>(context: &Context<'w>) -> HashSet<(&'w str, &'w str)> {
    let mut seen = HashSet::new();
    let hosts = context.world.hosts.iter();
    let copied = hosts.filter(|host| host.boot_mac.as_ref().is_some_and(|mac| !seen.insert(mac.value)));
    copied.map(|host| (host.meta.id.namespace.as_str(), host.meta.id.name.as_str())).collect()
}

fn macs_of(network: &HostNetwork) -> String {
    super::words::listed(network.interfaces.iter().map(|interface| &interface.mac))
}

fn unselected_networks(context: &Context, findings: &mut Vec<Diagnostic>) {
    if context.world.discoveries.is_empty() {
        return;
    }
    let selected: HashSet<usize> = (0..context.world.discoveries.len())
        .flat_map(|discovery| context.selected_networks(discovery))
        .copied()
        .collect();
    let by_namespace: HashMap<&str, &crate::world::Discovery> =
        context.world.discoveries.iter().map(|discovery| (discovery.meta.id.namespace.as_str(), discovery)).collect();
    for (index, network) in context.world.host_networks.iter().enumerate() {
        let id = &network.meta.id;
        let Some(discovery) = by_namespace.get(id.namespace.as_str()).filter(|_| !selected.contains(&index)) else {
            continue;
        };
        let wanted = discovery.network_selector.labels.iter().map(|(key, value)| format!("    {key}: {value}\n"));
        let wanted: String = wanted.collect();
        let finding =
            Diagnostic::new(Code(332), network.meta.at, format!("no InfraEnv selects NMStateConfig `{}`", id.name))
                .cause(
                    "an InfraEnv takes the NMStateConfigs that carry the labels of its `nmStateConfigLabelSelector`; \
                    an empty selector takes none",
                );
        findings.push(if wanted.is_empty() {
            finding
                .help(format!(
                    "label it, and select the label in InfraEnv `{}`:\nspec:\n  nmStateConfigLabelSelector:\n    \
                    matchLabels:\n      infraenv: {}",
                    discovery.meta.id.name, discovery.meta.id.name
                ))
                .related(discovery.meta.at, "this InfraEnv has no `nmStateConfigLabelSelector`")
        } else {
            finding
                .help(format!("write:\nmetadata:\n  name: {}\n  labels:\n{}", id.name, wanted.trim_end()))
                .related(discovery.network_selector.at.unwrap_or(discovery.meta.at), "what this InfraEnv selects")
        });
    }
}

fn leaking_networks(context: &Context, findings: &mut Vec<Diagnostic>) {
    for (index, discovery) in context.world.discoveries.iter().enumerate() {
        let own = discovery.meta.id.namespace.as_str();
        let foreign = context.selected_networks(index).iter().map(|network| &context.world.host_networks[*network]);
        let foreign: Vec<_> = foreign.filter(|network| network.meta.id.namespace != own).take(1000).collect();
        let Some(first) = foreign.first() else { continue };
        let names = super::words::listed(
            foreign.iter().map(|network| full_name(&network.meta.id.namespace, &network.meta.id.name)),
        );
        let at = discovery.network_selector.at.unwrap_or(discovery.meta.at);
        findings.push(
            Diagnostic::new(
                Code(333),
                at,
                format!(
                    "InfraEnv `{own}/{}` also selects {} of other namespaces: {names}",
                    discovery.meta.id.name,
                    counted(foreign.len(), "NMStateConfig")
                ),
            )
            .cause(
                "NMStateConfigs are selected by label in all namespaces; foreign ones go into this image, and a \
                mistake in one of them fails the image of both",
            )
            .help(format!(
                "use a label that is unique across namespaces, on the InfraEnv and on its NMStateConfigs:\nspec:\n  \
                nmStateConfigLabelSelector:\n    matchLabels:\n      infraenv: {own}-{}",
                discovery.meta.id.name
            ))
            .related(first.meta.at, "selected from another namespace"),
        );
    }
}

/// Names the image service takes for real NICs, so that they need no mapping: `^en[PsvxXbucaipod]`.
pub(super) fn looks_like_a_real_nic(name: &str) -> bool {
    name.strip_prefix("en").and_then(|rest| rest.chars().next()).is_some_and(|next| "PsvxXbucaipod".contains(next))
}

fn unmapped_nics(context: &Context, findings: &mut Vec<Diagnostic>) {
    let selected: HashSet<usize> = (0..context.world.discoveries.len())
        .flat_map(|discovery| context.selected_networks(discovery))
        .copied()
        .collect();
    for network in selected_in_order(&selected).map(|index| &context.world.host_networks[index]) {
        let mapped: HashSet<&str> = network.interfaces.iter().map(|interface| interface.name.as_str()).collect();
        // What is mapped to an address that cannot be read was reported by the reader.
        let written = context.written(&network.meta.id).and_then(|root| root.path(&["spec", "interfaces"]));
        let written = written.map_or(&[][..], Node::items).iter().filter(|entry| entry.get("macAddress").is_some());
        let written: HashSet<&str> = written.filter_map(|entry| entry.get("name")?.as_str()).collect();
        let Some(root) = &network.document else { continue };
        let interfaces = root.get("interfaces").map_or(&[][..], Node::items);
        let virtual_names: HashSet<&str> =
            interfaces.iter().filter(|node| !is_ethernet(node)).filter_map(|node| node.get("name")?.as_str()).collect();
        let by_mac = |node: &&Node| node.get("identifier").and_then(Node::as_str) == Some("mac-address");
        let ethernet =
            interfaces.iter().filter(|node| is_ethernet(node) && !by_mac(node)).filter_map(|node| node.get("name"));
        let bonds = interfaces.iter().filter(|node| node.get("link-aggregation").is_some());
        let by_mac_names: HashSet<&str> =
            interfaces.iter().filter(by_mac).filter_map(|node| node.get("name")?.as_str()).collect();
        let mut told = HashSet::new();
        for node in ethernet.chain(bonds.flat_map(super::addresses::ports)) {
            let Some(name) = node.as_str() else { continue };
            let fine = mapped.contains(name)
                || written.contains(name)
                || virtual_names.contains(name)
                || by_mac_names.contains(name)
                || looks_like_a_real_nic(name);
            if fine || !told.insert(name) {
                continue;
            }
            findings.push(
                Diagnostic::new(
                    Code(334),
                    node.at,
                    format!(
                        "NMStateConfig `{}` uses the NIC `{name}` without saying which one it is",
                        network.meta.id.name
                    ),
                )
                .cause(
                    "names such as this one are logical: `spec.interfaces` must map each Ethernet NIC and bond port \
                    to a MAC address, or the image of the whole InfraEnv is refused (real names as in `eno1` or \
                    `ens3f0` need no mapping)",
                )
                .help(format!("add:\nspec:\n  interfaces:\n  - name: {name}\n    macAddress: \"52:54:00:…\"")),
            );
        }
    }
}

fn selected_in_order(selected: &HashSet<usize>) -> impl Iterator<Item = usize> {
    let mut order: Vec<usize> = selected.iter().copied().collect();
    order.sort_unstable();
    order.into_iter()
}

fn is_ethernet(node: &Node) -> bool {
    matches!(node.get("type").and_then(Node::as_str), Some("ethernet"))
}

#[cfg(test)]
mod tests {
    use super::looks_like_a_real_nic;

    #[test]
    fn predictable_names_need_no_mapping_and_logical_ones_do() {
        for (name, real) in [
            ("eno1", true),
            ("ens3f0", true),
            ("enp1s0", true),
            ("enP2p1s0", true),
            ("eth0", false),
            ("en1", false),
            ("nic1", false),
        ] {
            assert_eq!(looks_like_a_real_nic(name), real, "{name}");
        }
    }
}
