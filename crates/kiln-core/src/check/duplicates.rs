//! Things that exist once in the world but are declared twice (rule R10): MAC and IP addresses, hostnames, BMCs.
//!
//! Namespaces do not matter: two hosts with one MAC address are one machine, wherever they are declared. Hostnames
//! must differ only inside a cluster. Nothing upstream compares NMStateConfigs with each other.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

use super::Rule;
use super::context::{Context, node_name};
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::net::MacAddress;
use crate::source::Location;

pub(super) const RULES: &[Rule] = &[boot_macs, network_macs, macs_in_one_network, addresses, hostnames, bmc_addresses];

/// Calls `told` for everything that has the same key as an earlier one.
pub(super) fn repeated<K: Eq + Hash, T: Copy>(items: impl IntoIterator<Item = (K, T)>, mut told: impl FnMut(&K, T, T)) {
    let mut first: HashMap<K, T> = HashMap::new();
    for (key, item) in items {
        match first.get(&key) {
            Some(earlier) => told(&key, *earlier, item),
            None => drop(first.insert(key, item)),
        }
    }
}

fn boot_macs(context: &Context, findings: &mut Vec<Diagnostic>) {
    let networks = super::context::named(&context.world.host_networks, |network| &network.meta);
    let macs = context.world.hosts.iter().filter_map(|host| Some((host.boot_mac.as_ref()?.value, host)));
    repeated(macs, |mac, first, second| {
        let at = second.boot_mac.as_ref().map(|mac| mac.at);
        let finding = Diagnostic::new(
            Code(315),
            at,
            format!("hosts `{}` and `{}` have the same boot MAC address {mac}", full(first), full(second)),
        )
        .cause(
            "a MAC address is one machine's: only one of the hosts can be registered, in whatever namespace they are",
        )
        .help({
            let id = &second.meta.id;
            let network = networks.get(&(id.namespace.as_str(), id.name.as_str()));
            let nic = network.and_then(|network| network.interfaces.first()).filter(|nic| nic.mac.value != *mac);
            match nic {
                Some(nic) => format!(
                    "the NMStateConfig of `{0}` names another NIC; write on host `{0}`:\nspec:\n  bootMACAddress: \
                    \"{1}\"",
                    id.name, nic.mac
                ),
                None => "give each host the address of its own boot NIC in `spec.bootMACAddress`, or remove the host \
                    declared twice"
                    .to_owned(),
            }
        });
        findings.push(match &first.boot_mac {
            Some(mac) => finding.related(mac.at, format!("host `{}`", first.meta.id.name)),
            None => finding,
        });
    });
}

fn full(host: &crate::world::Host) -> String {
    super::words::full_name(&host.meta.id.namespace, &host.meta.id.name)
}

fn network_macs(context: &Context, findings: &mut Vec<Diagnostic>) {
    let mut earlier: HashMap<MacAddress, (usize, Location)> = HashMap::new();
    for (index, network) in context.world.host_networks.iter().enumerate() {
        for interface in &network.interfaces {
            let mac = interface.mac.value;
            let (other, other_at) = *earlier.entry(mac).or_insert((index, interface.mac.at));
            if other == index {
                continue;
            }
            let first = &context.world.host_networks[other];
            findings.push(
                Diagnostic::new(
                    Code(316),
                    interface.mac.at,
                    format!(
                        "NMStateConfigs `{}` and `{}` both speak of the NIC {mac}",
                        first.meta.id.name, network.meta.id.name
                    ),
                )
                .cause(
                    "nothing upstream compares NMStateConfigs: the host takes the files of every one that names any \
                    of its MAC addresses, mixed in one directory",
                )
                .help("give each host one NMStateConfig with the addresses of its own NICs, and remove the other")
                .related(other_at, format!("NMStateConfig `{}`", first.meta.id.name)),
            );
        }
    }
}

fn macs_in_one_network(context: &Context, findings: &mut Vec<Diagnostic>) {
    for network in &context.world.host_networks {
        let cause = "the image service accepts each name and each address once per NMStateConfig; one refused \
            config fails the image of the whole InfraEnv";
        let macs = network.interfaces.iter().map(|interface| (interface.mac.value, interface));
        repeated(macs, |mac, first, second| {
            findings.push(
                Diagnostic::new(
                    Code(335),
                    second.mac.at,
                    format!(
                        "NMStateConfig `{}` maps `{}` and `{}` to the same NIC {mac}",
                        network.meta.id.name, first.name, second.name
                    ),
                )
                .cause(cause)
                .help(format!(
                    "write the address of the second NIC:\nspec:\n  interfaces:\n  - name: {}\n    macAddress: \"…\"",
                    second.name
                ))
                .related(first.mac.at, "first used here"),
            );
        });
        let names = network.interfaces.iter().map(|interface| (interface.name.as_str(), interface));
        repeated(names, |name, first, second| {
            findings.push(
                Diagnostic::new(
                    Code(335),
                    second.name.at,
                    format!(
                        "NMStateConfig `{}` gives the name `{name}` to two NICs, {} and {}",
                        network.meta.id.name, first.mac, second.mac
                    ),
                )
                .cause(cause)
                .help("give each NIC a name of its own in `spec.interfaces`, and use it in `spec.config`")
                .related(first.name.at, "first used here"),
            );
        });
    }
}

fn addresses(context: &Context, findings: &mut Vec<Diagnostic>) {
    // Which host an address belongs to; two documents of one host may repeat it.
    let mut first: HashMap<IpAddr, (usize, Location)> = HashMap::new();
    for (index, view) in context.hosts.iter().enumerate() {
        for address in context.documents(view).flat_map(|document| &document.facts.addresses) {
            let (other, other_at) = *first.entry(address.net.addr()).or_insert((index, address.at));
            // Hosts that share a boot NIC share its document too, and hear of the NIC.
            if other == index || other_at == address.at {
                continue;
            }
            let other = &context.hosts[other];
            let names = (full(other.host), full(view.host));
            let same_cluster = other.cluster == view.cluster;
            let finding = Diagnostic::new(
                Code(317),
                address.at,
                format!("hosts `{}` and `{}` both have the address {}", names.0, names.1, address.net.addr()),
            )
            .related(other_at, format!("host `{}`", names.0));
            findings.push(if same_cluster {
                finding
                    .cause(
                        "two machines that answer for one address cut each other off; nmstate accepts it without a \
                        word",
                    )
                    .help("give each host an address of its own in its network document")
            } else {
                finding
                    .severity(Severity::Warning)
                    .cause(
                        "the hosts are in different clusters, so the addresses may be in separate networks; the hub \
                        can reach only one of them by it",
                    )
                    .help("give each host an address of its own, unless the networks are really apart")
            });
        }
    }
}

fn hostnames(context: &Context, findings: &mut Vec<Diagnostic>) {
    let named = context.hosts.iter().filter(|view| view.cluster.is_some());
    let named = named.map(|view| ((view.cluster, node_name(view.host)), view));
    repeated(named, |(_, name), first, second| {
        let place =
            |view: &super::context::HostView| view.host.hostname.as_ref().map_or(view.host.meta.at, |name| name.at);
        findings.push(
            Diagnostic::new(
                Code(318),
                place(second),
                format!(
                    "hosts `{}` and `{}` of one cluster have the same hostname `{name}`",
                    full(first.host),
                    full(second.host)
                ),
            )
            .cause(
                "hostnames become node names; the validation hostname-unique holds the installation until they differ",
            )
            .help("write another name:\nmetadata:\n  annotations:\n    bmac.agent-install.openshift.io/hostname: …")
            .related(place(first), "first used here"),
        );
    });
}

fn bmc_addresses(context: &Context, findings: &mut Vec<Diagnostic>) {
    let hosts = context.world.hosts.iter();
    let addresses = hosts
        .filter_map(|host| Some((host.bmc.as_ref()?.address.value.trim_end_matches('/').to_ascii_lowercase(), host)));
    repeated(addresses, |_, first, second| {
        let (Some(one), Some(two)) = (&first.bmc, &second.bmc) else { return };
        findings.push(
            Diagnostic::new(
                Code(319),
                two.address.at,
                format!("hosts `{}` and `{}` have the same BMC address {}", full(first), full(second), two.address),
            )
            .cause(
                "both hosts would switch one and the same machine on and off and take its virtual media from each \
                other",
            )
            .help(
                "write the address of the second machine's own controller, with its own system id, in \
                `spec.bmc.address`",
            )
            .related(one.address.at, format!("host `{}`", first.meta.id.name)),
        );
    });
}
