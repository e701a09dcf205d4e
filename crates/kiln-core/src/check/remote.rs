//! Which hosts stand in the subnet of the cluster's VIPs and which do not (rules R2 and R3).
//!
//! A worker is remote when none of its addresses shares a subnet with a VIP: the node itself decides so at boot and
//! then keeps keepalived asleep (4.13 and later). Upstream still rejects remote workers at installation with
//! cluster-managed VIPs, unless two validations are switched off.

use super::Rule;
use super::cluster_network::{is_installed, is_nowhere, keeps_its_vips};
use super::context::{Context, HostView};
use super::words::{counted, listed};
use crate::diagnostic::{Code, Diagnostic};
use crate::world::{Cluster, Role};

pub(super) const RULES: &[Rule] = &[rejected_hosts, remote_masters, remote_hosts];

/// Where a host stands, seen from its cluster's VIPs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Shares a subnet with a VIP.
    Local,
    /// Does not.
    Remote,
    /// Its addresses come from DHCP, or nothing is declared.
    Unknown,
}

const REMOTE_LABEL: &str = "node.openshift.io/remote-worker";

pub(super) fn place(context: &Context, host: &HostView, cluster: &Cluster) -> Place {
    if host.host.node_labels.contains_key(REMOTE_LABEL) {
        return Place::Remote;
    }
    let mut known = false;
    for document in context.documents(host) {
        let vips = || cluster.api_vips.iter().chain(&cluster.ingress_vips);
        for address in &document.facts.addresses {
            known = true;
            if vips().any(|vip| address.net.trunc().contains(&vip.value)) {
                return Place::Local;
            }
        }
    }
    let dynamic = context.documents(host).any(|document| document.facts.dynamic);
    if known && !dynamic { Place::Remote } else { Place::Unknown }
}

/// Whether a validation is switched off, for this cluster or for the whole service.
fn is_ignored(context: &Context, cluster: &Cluster, validation: &str) -> bool {
    let listed =
        |text: &str| text.split([',', '"', '[', ']', ' ', '\'']).any(|word| word == validation || word == "all");
    if let Some(own) = &cluster.ignored_host_validations {
        return listed(own);
    }
    let maps = context.world.services.iter().filter_map(|service| service.environment_map.as_ref());
    maps.flat_map(|reference| context.world.config_maps.iter().filter(|map| map.meta.id.name == reference.name))
        .filter_map(|map| map.data.get("DISABLED_HOST_VALIDATIONS"))
        .any(|disabled| listed(disabled))
}

fn rejected_hosts(context: &Context, findings: &mut Vec<Diagnostic>) {
    // Hosts added to an installed cluster pass these validations.
    let judged = |cluster: &Cluster| keeps_its_vips(cluster) && !is_installed(cluster);
    for (index, cluster) in context.world.clusters.iter().enumerate().filter(|(_, cluster)| judged(cluster)) {
        let hosts = context.hosts_of_cluster[index].iter().map(|host| &context.hosts[*host]);
        let hosts = hosts.filter(|host| !is_master(host));
        let remote: Vec<&HostView> = hosts.filter(|host| is_outside(context, host, cluster)).collect();
        let Some(first) = remote.first() else { continue };
        let missing: Vec<&str> = ["belongs-to-machine-cidr", "belongs-to-majority-group"]
            .into_iter()
            .filter(|validation| !is_ignored(context, cluster, validation))
            .collect();
        if missing.is_empty() {
            continue;
        }
        let ids: Vec<String> = missing.iter().map(|id| format!("\"{id}\"")).collect();
        let at =
            context.documents(first).flat_map(|document| &document.facts.addresses).map(|address| address.at).next();
        let names = listed(remote.iter().map(|host| &host.host.meta.id.name));
        findings.push(
            Diagnostic::new(
                Code(502),
                at.or(Some(first.host.meta.at)),
                format!(
                    "{} of cluster `{}` without an address in every machine network ({}) will be rejected: {names}",
                    counted(remote.len(), "host"),
                    cluster.meta.id.name,
                    listed(cluster.machine_networks.iter())
                ),
            )
            .cause(format!(
                "with VIPs the cluster keeps itself, {} hold the installation until every host is in the VIPs' \
                subnet; remote workers are refused at installation by default",
                missing.join(" and ")
            ))
            .help(format!(
                "if the hosts are meant to be remote workers, write on AgentClusterInstall `{}`:\nmetadata:\n  \
                annotations:\n    agent-install.openshift.io/ignored-host-validations: '[{}]'\nor bring a load \
                balancer of your own (`spec.loadBalancer.type: UserManaged`, 4.16 and later), or give the hosts an \
                address of {}",
                cluster.meta.id.name,
                ids.join(","),
                listed(cluster.machine_networks.iter())
            ))
            .related(cluster.machine_networks.first().map_or(cluster.meta.at, |net| net.at), "the machine networks"),
        );
    }
}

/// A remote control-plane host is worse than rejected; [`remote_masters`] says so.
fn is_master(host: &HostView) -> bool {
    host.host.role.as_ref().is_some_and(|role| role.value == Role::Master)
}

/// Whether all its addresses are known and some machine network has none of them.
fn is_outside(context: &Context, host: &HostView, cluster: &Cluster) -> bool {
    if place(context, host, cluster) != Place::Remote {
        return false;
    }
    let addresses = || context.documents(host).flat_map(|document| &document.facts.addresses);
    addresses().next().is_some()
        && cluster.machine_networks.iter().any(|net| !addresses().any(|address| net.contains(&address.net.addr())))
}

fn remote_masters(context: &Context, findings: &mut Vec<Diagnostic>) {
    for (index, cluster) in context.world.clusters.iter().enumerate().filter(|(_, cluster)| keeps_its_vips(cluster)) {
        let vip = cluster.api_vips.first().or(cluster.ingress_vips.first());
        // Where no host is near it, the address is wrong and not the host.
        if vip.is_some_and(|vip| is_nowhere(context, index, vip.value)) {
            continue;
        }
        for host in context.hosts_of_cluster[index].iter().map(|host| &context.hosts[*host]) {
            let Some(role) = host.host.role.as_ref().filter(|role| role.value == Role::Master) else { continue };
            if place(context, host, cluster) != Place::Remote {
                continue;
            }
            let vip_text = vip.map(|vip| vip.to_string()).unwrap_or_default();
            let address = context.documents(host).flat_map(|document| &document.facts.addresses).next();
            findings.push(
                Diagnostic::new(
                    Code(504),
                    address.map_or(role.at, |address| address.at),
                    format!(
                        "control-plane host `{}` has no address in the subnet of {vip_text}, the API address of \
                        cluster `{}`",
                        host.host.meta.id.name, cluster.meta.id.name
                    ),
                )
                .cause(
                    "the API address moves between control-plane nodes by VRRP and needs all of them in one subnet; a \
                    remote one can never take it",
                )
                .help(format!(
                    "give the host an address in the subnet of {vip_text}, or make it a worker:\nmetadata:\n  \
                    annotations:\n    bmac.agent-install.openshift.io/role: worker"
                ))
                .related(vip.map_or(cluster.meta.at, |vip| vip.at), "the API address"),
            );
        }
    }
}

fn remote_hosts(context: &Context, findings: &mut Vec<Diagnostic>) {
    for (index, cluster) in context.world.clusters.iter().enumerate().filter(|(_, cluster)| keeps_its_vips(cluster)) {
        let hosts = || context.hosts_of_cluster[index].iter().map(|host| &context.hosts[*host]);
        let of = |wanted: Place| hosts().filter(move |host| place(context, host, cluster) == wanted);
        let remote: Vec<&HostView> = of(Place::Remote).collect();
        let Some(first) = remote.first() else { continue };
        let vips = cluster.api_vips.iter().chain(&cluster.ingress_vips);
        // Nobody is remote from an address that is near no host.
        if vips.map(|vip| vip.value).all(|vip| is_nowhere(context, index, vip)) {
            continue;
        }
        let names = listed(remote.iter().map(|host| &host.host.meta.id.name));
        let unknown = of(Place::Unknown).count();
        let unknown = if unknown == 0 { String::new() } else { format!(", {unknown} use DHCP or declare no network") };
        findings.push(
            Diagnostic::new(
                Code(503),
                first.host.meta.at,
                format!(
                    "{} of cluster `{}` will be remote: {names}; {} local{unknown}",
                    counted(remote.len(), "host"),
                    cluster.meta.id.name,
                    of(Place::Local).count()
                ),
            )
            .cause(
                "a node whose subnets contain no VIP is remote: from 4.13 it labels itself \
                `node.openshift.io/remote-worker`, runs no keepalived and gets no default router unless a nodeSelector puts \
                it there",
            )
            .help(
                "before 4.13 keep routers and keepalived off these nodes yourself; a load balancer or a routed \
                address must lead to what runs there",
            ),
        );
    }
}
