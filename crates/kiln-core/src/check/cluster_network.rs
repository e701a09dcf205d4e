//! The networks of one cluster: addresses inside, networks apart, counts that match (rules R1 and R8).

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use ipnet::IpNet;

use super::Rule;
use super::context::{Context, HostView};
use super::words::{counted, listed, nearest};
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::source::{Location, Sourced};
use crate::world::{Cluster, Host, Role};

pub(super) const RULES: &[Rule] = &[
    vips_in_machine_networks,
    vips_without_host,
    networks_apart,
    hosts_outside_cluster_networks,
    vip_collisions,
    host_counts,
];

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
    for (index, cluster) in context.world.clusters.iter().enumerate() {
        let Some(first) = cluster.machine_networks.first() else { continue };
        for (field, vip) in vips(cluster) {
            if cluster.machine_networks.iter().any(|net| net.contains(&vip.value)) {
                continue;
            }
            let net = listed(cluster.machine_networks.iter());
            let choose =
                format!("choose a free address of {}", inhabited_network(context, index).unwrap_or(first.value));
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
                .help(if is_nowhere(context, index, vip.value) {
                    format!("{choose}; no declared host is in the subnet of {vip}")
                } else {
                    let known: String =
                        cluster.machine_networks.iter().map(|net| format!("    - cidr: {net}\n")).collect();
                    let added = subnet_of(context, index, vip.value).unwrap_or_else(|| around(vip.value));
                    format!(
                        "{choose}, or add the network of the VIP:\nspec:\n  networking:\n    \
                        machineNetwork:\n{known}    - cidr: {added}"
                    )
                })
                .related(first.at, "the machine network"),
            );
        }
    }
}

/// Every declared address of the cluster's hosts.
fn addresses_of<'c>(context: &'c Context, cluster: usize) -> impl Iterator<Item = IpNet> + 'c {
    let hosts = context.hosts_of_cluster[cluster].iter().map(|host| &context.hosts[*host]);
    hosts.flat_map(|host| context.documents(host)).flat_map(|document| &document.facts.addresses).map(|found| found.net)
}

/// The subnet of a host that contains an address.
fn subnet_of(context: &Context, cluster: usize, address: IpAddr) -> Option<IpNet> {
    addresses_of(context, cluster).map(|net| net.trunc()).find(|net| net.contains(&address))
}

/// The first machine network that some host has an address of.
fn inhabited_network(context: &Context, cluster: usize) -> Option<IpNet> {
    let mut networks = context.world.clusters[cluster].machine_networks.iter().map(|net| net.value);
    networks.find(|net| addresses_of(context, cluster).any(|address| net.contains(&address.addr())))
}

/// Whether a VIP the cluster shall keep itself is in the subnet of no host, and all their subnets are known. The
/// nodes of an installed cluster are not declared here.
pub(super) fn is_nowhere(context: &Context, index: usize, vip: IpAddr) -> bool {
    let cluster = &context.world.clusters[index];
    let mut hosts = context.hosts_of_cluster[index].iter().map(|host| &context.hosts[*host]).peekable();
    let subnets_are_known = |host: &HostView| {
        context.documents(host).any(|document| !document.facts.addresses.is_empty())
            && !context.documents(host).any(|document| document.facts.dynamic)
    };
    keeps_its_vips(cluster)
        && !is_installed(cluster)
        && hosts.peek().is_some()
        && hosts.all(subnets_are_known)
        && subnet_of(context, index, vip).is_none()
}

fn vips_without_host(context: &Context, findings: &mut Vec<Diagnostic>) {
    for (index, cluster) in context.world.clusters.iter().enumerate() {
        for (field, vip) in vips(cluster) {
            let networks = &cluster.machine_networks;
            let outside = !networks.is_empty() && !networks.iter().any(|net| net.contains(&vip.value));
            if outside || !is_nowhere(context, index, vip.value) {
                continue;
            }
            let subnets: BTreeSet<IpNet> = addresses_of(context, index).map(|net| net.trunc()).collect();
            findings.push(
                Diagnostic::new(
                    Code(519),
                    vip.at,
                    format!(
                        "no declared host of cluster `{}` has an address in the subnet of {vip} of `{field}`",
                        cluster.meta.id.name
                    ),
                )
                .cause(
                    "a VIP is held by one of the nodes, and only a node with an address in its subnet can hold it; \
                    on all others keepalived does nothing",
                )
                .help(format!(
                    "choose a free address in a subnet of the hosts ({}), or give the hosts that shall hold it an \
                    address in the subnet of {vip}",
                    listed(subnets)
                )),
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
        let mut by_address: HashMap<IpAddr, Vec<(&str, Location)>> = HashMap::new();
        for (field, vip) in vips(cluster) {
            by_address.entry(vip.value).or_default().push((field, vip.at));
        }
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
                let Some(fields) = by_address.get(&address.net.addr()) else { continue };
                let names = listed(fields.iter().map(|(field, _)| field));
                let finding = Diagnostic::new(
                    Code(518),
                    address.at,
                    format!(
                        "{} of host `{}` is also in {names} of cluster `{}`",
                        address.net.addr(),
                        view.host.meta.id.name,
                        cluster.meta.id.name
                    ),
                )
                .cause(
                    "a VIP must be free: it moves from node to node. The service pings it before the installation \
                        and refuses one that answers",
                )
                .help(format!("choose another address for the host, or another one in {names}"));
                findings.push(
                    fields.iter().fold(finding, |finding, (field, at)| finding.related(*at, format!("`{field}`"))),
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
        let role = |host: &usize| role_meant(context.hosts[*host].host);
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
                        "cluster `{}` wants `{field}: {number}`, but there {} with that role{}",
                        cluster.meta.id.name,
                        if found == 1 { "is 1 host".to_owned() } else { format!("are {found} hosts") },
                        if free == 0 {
                            String::new()
                        } else {
                            format!(" and {} without a role", counted(free, "host"))
                        }
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

/// The role of a host; a misspelt one counts as what was meant, so that repairing it changes no number.
fn role_meant(host: &Host) -> Role {
    const ROLES: [(&str, Role); 3] = [("master", Role::Master), ("worker", Role::Worker), ("arbiter", Role::Arbiter)];
    if let Some(role) = &host.role {
        return role.value;
    }
    let written = host.meta.annotations.get("bmac.agent-install.openshift.io/role");
    let meant = written.and_then(|written| nearest(&written.to_ascii_lowercase(), ROLES.map(|(name, _)| name)));
    ROLES.iter().find(|(name, _)| meant == Some(name)).map_or(Role::Auto, |(_, role)| *role)
}
