//! The networks of one cluster: addresses inside, networks apart, counts that match (rules R1 and R8).

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::Rule;
use super::context::Context;
use super::words::listed;
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::source::{Location, Sourced};
use crate::world::{Cluster, Role};

pub(super) const RULES: &[Rule] =
    &[vips_in_machine_networks, networks_apart, hosts_outside_cluster_networks, vip_collisions, host_counts];

/// Whether the cluster keeps its VIPs itself, with keepalived on its nodes.
pub(super) fn keeps_its_vips(cluster: &Cluster) -> bool {
    let own = cluster.user_managed_networking.as_ref().is_some_and(|own| own.value);
    let has_vips = !cluster.api_vips.is_empty() || !cluster.ingress_vips.is_empty();
    has_vips && !own && !cluster.user_managed_load_balancer
}

/// Whether the ClusterDeployment says so.
pub(super) fn is_installed(cluster: &Cluster) -> bool {
    let installed = cluster.deployment.as_ref().and_then(|deployment| deployment.installed.as_ref());
    installed.is_some_and(|installed| installed.value)
}

/// Both kinds of VIP with the name of their field.
fn vips(cluster: &Cluster) -> impl Iterator<Item = (&'static str, &Sourced<IpAddr>)> {
    let api = cluster.api_vips.iter().map(|vip| ("apiVIPs", vip));
    api.chain(cluster.ingress_vips.iter().map(|vip| ("ingressVIPs", vip)))
}

fn vips_in_machine_networks(context: &Context, findings: &mut Vec<Diagnostic>) {
    for cluster in &context.world.clusters {
        let Some(first) = cluster.machine_networks.first() else { continue };
        for (field, vip) in vips(cluster) {
            if cluster.machine_networks.iter().any(|net| net.contains(&vip.value)) {
                continue;
            }
            let net = listed(cluster.machine_networks.iter());
            findings.push(
                Diagnostic::new(
                    Code(500),
                    vip.at,
                    format!(
                        "{vip} of `{field}` is in no machine network of cluster `{}` ({net})",
                        cluster.meta.id.name
                    ),
                )
                .cause("the validations api-vips-valid and ingress-vips-valid want each VIP inside a machine network")
                .help(format!(
                    "choose a free address of {first}, or add the network of the VIP:\nspec:\n  networking:\n    \
                    machineNetwork:\n    - cidr: {first}\n    - cidr: {}",
                    around(vip.value)
                ))
                .related(first.at, "the machine network"),
            );
        }
    }
}

/// The /24 or /64 an address lies in: a guess for the reader to correct.
fn around(address: IpAddr) -> IpNet {
    let prefix = if address.is_ipv4() { 24 } else { 64 };
    IpNet::new(address, prefix).map_or_else(|_| address.into(), |net| net.trunc())
}

fn networks_of(cluster: &Cluster) -> impl Iterator<Item = (&'static str, IpNet, Location)> {
    let pods = cluster.cluster_networks.iter().map(|(net, _)| ("clusterNetwork", net.value, net.at));
    let services = cluster.service_networks.iter().map(|net| ("serviceNetwork", net.value, net.at));
    let machines = cluster.machine_networks.iter().map(|net| ("machineNetwork", net.value, net.at));
    pods.chain(services).chain(machines)
}

fn networks_apart(context: &Context, findings: &mut Vec<Diagnostic>) {
    for cluster in &context.world.clusters {
        let mut nets: Vec<_> = networks_of(cluster).collect();
        nets.sort_by_key(|(_, net, at)| (net.network(), net.prefix_len(), *at));
        // Sorted by first address, a network that overlaps an earlier one lies inside the widest still open.
        let mut open: Option<(&str, IpNet, Location)> = None;
        for (field, net, at) in nets {
            match open {
                Some((other_field, other, other_at)) if other.contains(&net.network()) => {
                    let twice = field == other_field && net == other;
                    // Machines are where they are; pods and services can be numbered anew before the installation.
                    let (change, keep) = if field == "machineNetwork" { (other_field, net) } else { (field, other) };
                    findings.push(
                        Diagnostic::new(
                            Code(501),
                            at,
                            format!(
                                "{net} of `{field}` overlaps {other} of `{other_field}` in cluster `{}`",
                                cluster.meta.id.name
                            ),
                        )
                        .cause(
                            "an address must belong to exactly one of pods, services and machines; the validation \
                            no-cidrs-overlapping compares only the first machine networks, so an overlap further \
                            down shows up as traffic that goes nowhere",
                        )
                        .help(if twice {
                            format!("remove the second `{net}`")
                        } else {
                            format!("choose another network for `{change}`, one that shares no address with {keep}")
                        })
                        .related(other_at, format!("`{other_field}`")),
                    );
                }
                _ => open = Some((field, net, at)),
            }
        }
    }
}

fn hosts_outside_cluster_networks(context: &Context, findings: &mut Vec<Diagnostic>) {
    for view in &context.hosts {
        let Some(cluster) = context.cluster(view) else { continue };
        let name = &view.host.meta.id.name;
        for address in context.documents(view).flat_map(|document| &document.facts.addresses) {
            let inner = networks_of(cluster).filter(|(field, ..)| *field != "machineNetwork");
            let mut clash = inner.filter(|(_, net, _)| {
                net.contains(&address.net.addr()) || address.net.trunc().contains(&net.network())
            });
            let Some((field, net, at)) = clash.next() else { continue };
            findings.push(
                Diagnostic::new(
                    Code(501),
                    address.at,
                    format!("the subnet {} of host `{name}` overlaps {net} of `{field}`", address.net.trunc()),
                )
                .cause(
                    "every node sends traffic for pod and service networks into the overlay; machines with such an \
                    address cannot be reached",
                )
                .help(format!(
                    "choose another `{field}` for cluster `{}`, or another subnet for the host",
                    cluster.meta.id.name
                ))
                .related(at, format!("`{field}`")),
            );
        }
    }
}

fn vip_collisions(context: &Context, findings: &mut Vec<Diagnostic>) {
    for (index, cluster) in context.world.clusters.iter().enumerate() {
        let by_address: HashMap<IpAddr, (&str, Location)> =
            vips(cluster).map(|(field, vip)| (vip.value, (field, vip.at))).collect();
        for (api, ingress) in cluster.api_vips.iter().zip(&cluster.ingress_vips) {
            if api.value == ingress.value && keeps_its_vips(cluster) {
                findings.push(
                    Diagnostic::new(
                        Code(518),
                        ingress.at,
                        format!("cluster `{}` has {api} as API and as ingress address", cluster.meta.id.name),
                    )
                    .cause(
                        "each address is moved between nodes on its own; one address for both is only allowed with a \
                        load balancer of your own",
                    )
                    .help(
                        "give `ingressVIPs` a second free address of the machine network, or write:\nspec:\n  \
                        loadBalancer:\n    type: UserManaged",
                    )
                    .related(api.at, "the API address"),
                );
            }
        }
        for view in context.hosts_of_cluster[index].iter().map(|host| &context.hosts[*host]) {
            for address in context.documents(view).flat_map(|document| &document.facts.addresses) {
                let Some((field, at)) = by_address.get(&address.net.addr()) else { continue };
                findings.push(
                    Diagnostic::new(
                        Code(518),
                        address.at,
                        format!(
                            "{} of host `{}` is also in `{field}` of cluster `{}`",
                            address.net.addr(),
                            view.host.meta.id.name,
                            cluster.meta.id.name
                        ),
                    )
                    .cause(
                        "a VIP must be free: it moves from node to node. The service pings it before the installation \
                        and refuses one that answers",
                    )
                    .help(format!("choose another address for the host, or another one in `spec.{field}`"))
                    .related(*at, "the VIP"),
                );
            }
        }
    }
}

fn host_counts(context: &Context, findings: &mut Vec<Diagnostic>) {
    for (index, cluster) in context.world.clusters.iter().enumerate() {
        let hosts = &context.hosts_of_cluster[index];
        if hosts.is_empty() || is_installed(cluster) {
            continue;
        }
        let role = |host: &usize| context.hosts[*host].host.role.as_ref().map_or(Role::Auto, |role| role.value);
        let count = |wanted: Role| hosts.iter().filter(|host| role(host) == wanted).count();
        let free = count(Role::Auto);
        for (field, wanted, found, severity) in [
            ("controlPlaneAgents", &cluster.control_plane_agents, count(Role::Master), Severity::Error),
            ("workerAgents", &cluster.worker_agents, count(Role::Worker), Severity::Warning),
            ("arbiterAgents", &cluster.arbiter_agents, count(Role::Arbiter), Severity::Warning),
        ] {
            let Some(wanted) = wanted else { continue };
            let number = wanted.value as usize;
            if found == number || (found < number && found + free >= number) {
                continue;
            }
            findings.push(
                Diagnostic::new(
                    Code(510),
                    wanted.at,
                    format!(
                        "cluster `{}` wants `{field}: {number}`, but there {} with that role",
                        cluster.meta.id.name,
                        if found == 1 { "is 1 host".to_owned() } else { format!("are {found} hosts") }
                    ),
                )
                .severity(severity)
                .cause(
                    "the installation starts only when the number of approved hosts equals the requirement exactly, \
                    for every role",
                )
                .help(format!(
                    "write:\nspec:\n  provisionRequirements:\n    {field}: {found}\nor {}",
                    if found < number {
                        "declare the missing hosts"
                    } else {
                        "remove the hosts that are too many; if the cluster already runs and they are added to it, \
                        write `installed: true` in its ClusterDeployment"
                    }
                )),
            );
        }
    }
}
