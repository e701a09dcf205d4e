//! EgressIPs that some labelled node can host (rule R6).
//!
//! An address is put on a node that carries the label `k8s.ovn.org/egress-assignable` and has a subnet that contains
//! it, on its primary or a secondary NIC. It must be nobody else's address.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::Rule;
use super::context::Context;
use super::words::listed;
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::source::Location;

pub(super) const RULES: &[Rule] = &[reachable_egress, taken_egress];

const LABEL: &str = "k8s.ovn.org/egress-assignable";

fn reachable_egress(context: &Context, findings: &mut Vec<Diagnostic>) {
    if context.world.egress_ips.is_empty() || context.hosts.is_empty() {
        return;
    }
    let labelled: Vec<&super::context::NodeView> =
        context.nodes.iter().filter(|node| node.labels.contains_key(LABEL)).collect();
    let subnets = Subnets::of(context, labelled.iter().filter_map(|node| node.host));
    let everywhere = Subnets::of(context, 0..context.hosts.len());
    for egress in &context.world.egress_ips {
        let name = &egress.meta.id.name;
        for address in &egress.addresses {
            if subnets.find(address.value).is_some() {
                continue;
            }
            let near = everywhere.find(address.value).map(|host| &context.hosts[host]);
            let nowhere = near.is_none() && !everywhere.incomplete;
            let edit = |host: &str| {
                format!(
                    "label a node that has the subnet, on BareMetalHost `{host}`:\nmetadata:\n  annotations:\n    \
                    bmac.agent-install.openshift.io.node-label.{LABEL}: \"\""
                )
            };
            if labelled.is_empty() || subnets.incomplete || labelled.iter().any(|node| node.host.is_none()) {
                if labelled.is_empty() {
                    findings.push(
                        Diagnostic::new(
                            Code(508),
                            address.at,
                            if nowhere {
                                format!("no declared node has the subnet of EgressIP {address} of `{name}`")
                            } else {
                                format!("no declared node is labelled to take EgressIP {address} of `{name}`")
                            },
                        )
                        .severity(if nowhere { Severity::Error } else { Severity::Note })
                        .cause(format!(
                            "only nodes with the label `{LABEL}` take egress addresses, and only in a subnet of theirs"
                        ))
                        .help(match near {
                            Some(host) => edit(&host.host.meta.id.name),
                            None => format!(
                                "choose an address in a subnet of the nodes, for example of {}",
                                everywhere.example()
                            ),
                        }),
                    );
                }
                continue;
            }
            findings.push(
                Diagnostic::new(
                    Code(508),
                    address.at,
                    match nowhere {
                        true => format!("no declared node has the subnet of EgressIP {address} of `{name}`"),
                        false => format!(
                            "no labelled node has the subnet of EgressIP {address} of `{name}`; labelled: {}",
                            listed(labelled.iter().map(|node| node.name))
                        ),
                    },
                )
                .cause(format!(
                    "an egress address goes to a node with the label `{LABEL}` that has the address's subnet on one \
                    of its NICs; without such a node it stays unassigned and traffic leaves with the node's own \
                    address"
                ))
                .help(match near {
                    Some(host) => edit(&host.host.meta.id.name),
                    None => format!(
                        "choose an address in a subnet of the labelled nodes, for example of {}",
                        subnets.example()
                    ),
                })
                .related(
                    labelled[0].host.map_or(egress.meta.at, |host| context.hosts[host].host.meta.at),
                    "a labelled node",
                ),
            );
        }
        if !labelled.is_empty() && egress.addresses.len() > labelled.len() {
            findings.push(
                Diagnostic::new(
                    Code(525),
                    egress.meta.at,
                    format!(
                        "EgressIP `{name}` has {} addresses, but only {} of the declared nodes is labelled to take \
                        them",
                        egress.addresses.len(),
                        labelled.len()
                    ),
                )
                .cause("a node takes at most one address of an EgressIP; the others stay unassigned")
                .help(format!("label as many nodes as there are addresses with `{LABEL}: \"\"`, or remove addresses")),
            );
        }
    }
}

fn taken_egress(context: &Context, findings: &mut Vec<Diagnostic>) {
    if context.world.egress_ips.is_empty() {
        return;
    }
    let mut taken: HashMap<IpAddr, (String, Location)> = HashMap::new();
    for view in &context.hosts {
        for address in context.documents(view).flat_map(|document| &document.facts.addresses) {
            taken.insert(address.net.addr(), (format!("host `{}`", view.host.meta.id.name), address.at));
        }
    }
    for cluster in &context.world.clusters {
        for vip in cluster.api_vips.iter().chain(&cluster.ingress_vips) {
            taken.insert(vip.value, (format!("cluster `{}`", cluster.meta.id.name), vip.at));
        }
    }
    let mut egress: HashMap<IpAddr, (&str, Location)> = HashMap::new();
    for object in &context.world.egress_ips {
        for address in &object.addresses {
            let mut owner = taken.get(&address.value).map(|(owner, at)| (owner.clone(), *at));
            if owner.is_none() {
                owner = egress.get(&address.value).map(|(name, at)| (format!("EgressIP `{name}`"), *at));
                egress.entry(address.value).or_insert((&object.meta.id.name, address.at));
            }
            let Some((owner, at)) = owner else { continue };
            findings.push(
                Diagnostic::new(
                    Code(509),
                    address.at,
                    format!("EgressIP {address} of `{}` is already the address of {owner}", object.meta.id.name),
                )
                .cause("an egress address must be free: two machines would answer for it")
                .help("choose an address of the same subnet that nobody has")
                .related(at, owner),
            );
        }
    }
}

/// Subnets of some hosts, found by address in constant time.
struct Subnets {
    first_host: HashMap<IpNet, usize>,
    prefixes: HashSet<u8>,
    /// Some host's subnets are not declared.
    incomplete: bool,
}

impl Subnets {
    fn of(context: &Context, hosts: impl IntoIterator<Item = usize>) -> Self {
        let mut subnets = Subnets { first_host: HashMap::new(), prefixes: HashSet::new(), incomplete: false };
        for index in hosts {
            let view = &context.hosts[index];
            let mut known = false;
            for document in context.documents(view) {
                subnets.incomplete |= document.facts.dynamic;
                for address in &document.facts.addresses {
                    known = true;
                    subnets.prefixes.insert(address.net.prefix_len());
                    subnets.first_host.entry(address.net.trunc()).or_insert(index);
                }
            }
            subnets.incomplete |= !known;
        }
        subnets
    }

    fn find(&self, address: IpAddr) -> Option<usize> {
        let nets = self.prefixes.iter().filter_map(|prefix| IpNet::new(address, *prefix).ok());
        nets.filter_map(|net| self.first_host.get(&net.trunc())).min().copied()
    }

    fn example(&self) -> String {
        self.first_host.keys().min().map_or_else(|| "a machine network".to_owned(), IpNet::to_string)
    }
}
