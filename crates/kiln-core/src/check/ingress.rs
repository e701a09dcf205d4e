//! IngressControllers: selectors the operator cannot use, routers where no VIP leads, domains that shadow each other
//! (rules R4, R5, R7), and selectors by a hostname no node has.

use std::collections::{BTreeSet, HashMap};

use super::Rule;
use super::cluster_network::keeps_its_vips;
use super::context::Context;
use super::remote::{Place, place};
use super::words::{counted, listed};
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::source::Sourced;
use crate::world::{Cluster, Ingress, LabelSelector, Requirement};

pub(super) const RULES: &[Rule] =
    &[unconvertible_selectors, routers_on_remote_nodes, shadowed_domains, hostnames_in_selectors];

const HOSTNAME: &str = "kubernetes.io/hostname";

fn unconvertible_selectors(context: &Context, findings: &mut Vec<Diagnostic>) {
    for ingress in &context.world.ingresses {
        let Some(selector) = &ingress.node_selector else { continue };
        let mut refused = selector.expressions.iter().filter_map(|found| Some((found, conversion_error(found)?)));
        if let Some((requirement, reason)) = refused.next() {
            let name = &ingress.meta.id.name;
            let finding = Diagnostic::new(
                Code(506),
                requirement.operator.at,
                format!(
                    "the node selector of IngressController `{name}` uses `{}` on `{}`, which the ingress operator \
                    cannot use",
                    requirement.operator, requirement.key
                ),
            )
            .cause(format!(
                "the operator logs `ingresscontroller \"{name}\" has invalid spec.nodePlacement.nodeSelector: \
                {reason}` and makes no router"
            ))
            .help(concrete_selector(context, ingress, selector));
            findings.push(refused.fold(finding, |finding, (other, _)| {
                finding.related(other.operator.at, format!("`{}` cannot be used either", other.operator))
            }));
        }
    }
}

/// Only `In` with one value can become a plain label.
fn conversion_error(requirement: &Requirement) -> Option<String> {
    match (requirement.operator.as_str(), requirement.values.len()) {
        ("In", 1) => None,
        ("In", _) => Some(
            "operator \"In\" without a single value cannot be converted into the old label selector format".to_owned(),
        ),
        (operator @ ("NotIn" | "Exists" | "DoesNotExist"), _) => {
            Some(format!("operator \"{operator}\" cannot be converted into the old label selector format"))
        }
        (operator, _) => Some(format!("\"{operator}\" is not a valid label selector operator")),
    }
}

/// The same choice in plain labels: one that all chosen nodes share and no other has, else a new one. Remote nodes
/// are left out of the default routers, which must be where the cluster's own ingress address is.
fn concrete_selector(context: &Context, ingress: &Ingress, selector: &LabelSelector) -> String {
    let cluster = cluster_of(context, ingress);
    let host = |node: &usize| context.nodes[*node].host.map(|host| &context.hosts[host]);
    let of_cluster = |node: &usize| {
        cluster.is_none_or(|(index, _)| host(node).is_none_or(|host| host.cluster.is_none_or(|own| own == index)))
    };
    let is_remote = |node: &usize| {
        let keeper = cluster.filter(|(_, cluster)| ingress.meta.id.name == "default" && keeps_its_vips(cluster));
        keeper.is_some_and(|(_, cluster)| host(node).is_some_and(|host| place(context, host, cluster) == Place::Remote))
    };
    let everybody: Vec<usize> = (0..context.nodes.len()).filter(of_cluster).collect();
    let mut chosen: BTreeSet<usize> = context.nodes_selected(selector).into_iter().filter(of_cluster).collect();
    let selected = chosen.len();
    chosen.retain(|node| !is_remote(node));
    let those = if chosen.len() == selected { "the same nodes" } else { "those of the nodes that are not remote" };
    let first = chosen.first().map(|node| &context.nodes[*node]);
    let mut own: Vec<(&str, &str)> =
        first.into_iter().flat_map(|node| node.labels.iter().map(|(key, value)| (*key, *value))).collect();
    // Every node has these: whoever excludes nodes today did not mean all of tomorrow's.
    own.retain(|(key, _)| !["kubernetes.io/os", "node.openshift.io/os_id"].contains(key));
    // A hostname names one node; a role says what was meant.
    own.sort_unstable_by_key(|label| (label.0 == HOSTNAME, *label));
    let shared = own.into_iter().find(|(key, value)| {
        let has = |node: &super::context::NodeView| node.labels.get(key) == Some(value);
        everybody.iter().all(|node| chosen.contains(node) == has(&context.nodes[*node]))
    });
    match shared {
        Some((key, value)) => format!(
            "{those} have one label in common:\nspec:\n  nodePlacement:\n    nodeSelector:\n      \
            matchLabels:\n        {key}: \"{value}\"{}",
            if is_control_plane(key) {
                "\n    tolerations:\n    - key: node-role.kubernetes.io/master\n      effect: NoSchedule"
            } else {
                ""
            }
        ),
        None => {
            let nodes = match chosen.len() {
                0 => "the nodes you mean".to_owned(),
                count => format!(
                    "{} ({})",
                    counted(count, "node"),
                    listed(chosen.iter().map(|node| context.nodes[*node].name))
                ),
            };
            format!(
                "label {nodes}, on each BareMetalHost:\nmetadata:\n  annotations:\n    \
                bmac.agent-install.openshift.io.node-label.openshift.io/ingress: \"true\"\nand select the \
                label:\nspec:\n  nodePlacement:\n    nodeSelector:\n      matchLabels:\n        \
                openshift.io/ingress: \"true\""
            )
        }
    }
}

/// Roles whose nodes are tainted.
fn is_control_plane(label: &str) -> bool {
    ["node-role.kubernetes.io/master", "node-role.kubernetes.io/control-plane"].contains(&label)
}

/// The cluster an ingress belongs to: of its manifest ConfigMap, else the only one there is.
fn cluster_of<'w>(context: &Context<'w>, ingress: &Ingress) -> Option<(usize, &'w Cluster)> {
    let clusters = &context.world.clusters;
    match &ingress.within {
        Some(map) => clusters.iter().enumerate().find(|(_, cluster)| {
            cluster.meta.id.namespace == map.namespace
                && cluster.manifest_maps.iter().any(|reference| reference.name == map.name)
        }),
        None => clusters.iter().enumerate().next().filter(|_| clusters.len() == 1),
    }
}

fn routers_on_remote_nodes(context: &Context, findings: &mut Vec<Diagnostic>) {
    for ingress in context.world.ingresses.iter().filter(|ingress| ingress.meta.id.name == "default") {
        let Some((index, cluster)) = cluster_of(context, ingress).filter(|(_, cluster)| keeps_its_vips(cluster)) else {
            continue;
        };
        let Some(selector) = &ingress.node_selector else { continue };
        if selector.expressions.iter().any(|requirement| conversion_error(requirement).is_some()) {
            continue;
        }
        let chosen = context.nodes_selected(selector);
        let hosts = chosen.iter().filter_map(|node| context.nodes[*node].host.map(|host| &context.hosts[host]));
        let hosts: Vec<_> = hosts.filter(|host| host.cluster == Some(index)).collect();
        let remote: Vec<_> = hosts.iter().filter(|host| place(context, host, cluster) == Place::Remote).collect();
        if remote.is_empty() {
            continue;
        }
        let all = remote.len() == hosts.len();
        let vips = listed(cluster.ingress_vips.iter());
        findings.push(
            Diagnostic::new(
                Code(505),
                selector.at.unwrap_or(ingress.meta.at),
                format!(
                    "the default routers may run on {}, which cannot hold the ingress address {vips}: {}",
                    counted(remote.len(), "remote node"),
                    listed(remote.iter().map(|host| &host.host.meta.id.name))
                ),
            )
            .severity(if all { Severity::Error } else { Severity::Warning })
            .cause(if all {
                "every selected node is outside the subnet of the ingress address; the router would start there and \
                nothing could reach it"
            } else {
                "a router on a node outside the subnet of the ingress address starts, but traffic for the address \
                never reaches it"
            })
            .help(
                "select nodes in the subnet of the VIP, for example the control plane:\nspec:\n  nodePlacement:\n    \
                nodeSelector:\n      matchLabels:\n        node-role.kubernetes.io/master: \"\"\n    tolerations:\n    \
                - key: node-role.kubernetes.io/master\n      effect: NoSchedule\nand give remote nodes an \
                IngressController of their own with another `domain`",
            )
            .related(remote[0].host.meta.at, "a remote node"),
        );
    }
}

/// `apps.CLUSTER.DOMAIN` of each cluster that says both.
fn default_domains(context: &Context) -> HashMap<String, usize> {
    let clusters = context.world.clusters.iter().enumerate();
    let domain = |cluster: &Cluster| {
        let deployment = cluster.deployment.as_ref()?;
        Some(format!("apps.{}.{}", deployment.cluster_name.as_ref()?, deployment.base_domain.as_ref()?))
    };
    clusters.filter_map(|(index, cluster)| Some((domain(cluster)?, index))).collect()
}

fn shadowed_domains(context: &Context, findings: &mut Vec<Diagnostic>) {
    let defaults = default_domains(context);
    for ingress in context.world.ingresses.iter().filter(|ingress| ingress.meta.id.name != "default") {
        let Some(domain) = &ingress.domain else { continue };
        let parents = std::iter::successors(Some(domain.as_str()), |name| name.split_once('.').map(|(_, rest)| rest));
        let Some((default, cluster)) = parents.into_iter().find_map(|parent| defaults.get_key_value(parent)) else {
            continue;
        };
        let cluster = &context.world.clusters[*cluster];
        let base = default.trim_start_matches("apps.");
        let vips = listed(cluster.ingress_vips.iter());
        let finding = Diagnostic::new(
            Code(507),
            domain.at,
            format!(
                "the domain `{domain}` of IngressController `{}` lies under `*.{default}`, which leads to the default \
                routers",
                ingress.meta.id.name
            ),
        );
        findings.push(
            finding
                .cause(format!(
                    "the wildcard record of the cluster answers for every name below `{default}` with {}; clients \
                    never come to the shard, and a domain equal to the default one is refused",
                    if vips.is_empty() { "the default ingress address".to_owned() } else { vips }
                ))
                .help(format!(
                    "choose a domain beside it, with a record of its own:\nspec:\n  domain: apps-{}.{base}",
                    ingress.meta.id.name
                )),
        );
    }
}

fn hostnames_in_selectors(context: &Context, findings: &mut Vec<Diagnostic>) {
    let mut by_short: HashMap<&str, &str> = HashMap::new();
    for node in &context.nodes {
        by_short.entry(short(node.name)).or_insert(node.name);
    }
    let names: std::collections::HashSet<&str> = context.nodes.iter().map(|node| node.name).collect();
    let mut judge = |owner: &crate::world::Meta, value: &Sourced<String>| {
        if names.contains(value.as_str()) {
            return;
        }
        let Some(node) = by_short.get(short(value)) else { return };
        findings.push(
            Diagnostic::new(
                Code(512),
                value.at,
                format!(
                    "{} `{}` selects hostname `{value}`, but the node will be called `{node}`",
                    owner.id.kind, owner.id.name
                ),
            )
            .cause(
                "labels are compared letter by letter, and a node has the hostname its host declares: the short name \
                and the full one are two different names",
            )
            .help(format!("write:\n{HOSTNAME}: {node}")),
        );
    };
    for ingress in &context.world.ingresses {
        ingress.node_selector.iter().flat_map(hostname_values).for_each(|value| judge(&ingress.meta, value));
    }
    for pool in &context.world.pools {
        hostname_values(&pool.node_selector).for_each(|value| judge(&pool.meta, value));
    }
    for policy in &context.world.policies {
        policy.node_selector.get(HOSTNAME).into_iter().for_each(|value| judge(&policy.meta, value));
    }
}

fn hostname_values(selector: &LabelSelector) -> impl Iterator<Item = &Sourced<String>> {
    let expressions = selector.expressions.iter().filter(|requirement| requirement.key.value == HOSTNAME);
    selector.labels.get(HOSTNAME).into_iter().chain(expressions.flat_map(|requirement| &requirement.values))
}

fn short(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}
