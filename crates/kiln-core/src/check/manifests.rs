//! What extra manifests bring along (rule R20): names used twice, Node objects that come too early, workarounds that
//! are no longer needed, addresses of the wrong config server.

use std::collections::HashMap;

use super::Rule;
use super::context::Context;
use super::propagation::written_paths;
use crate::diagnostic::{Code, Diagnostic};
use crate::document::Node;
use crate::source::Location;

pub(super) const RULES: &[Rule] = &[repeated_manifests, nodes_in_manifests, obsolete_keepalived, config_server_paths];

fn repeated_manifests(context: &Context, findings: &mut Vec<Diagnostic>) {
    for cluster in &context.world.clusters {
        let mut first: HashMap<&str, (&str, Location)> = HashMap::new();
        for reference in &cluster.manifest_maps {
            let Some(map) = context.config_maps.get(&(cluster.meta.id.namespace.as_str(), reference.name.as_str()))
            else {
                continue;
            };
            for (name, text) in &map.data {
                let (other, at) = *first.entry(name).or_insert((&reference.name, text.at));
                if at == text.at {
                    continue;
                }
                let data = context.written(&map.meta.id).and_then(|root| root.get("data"));
                let entry = data.into_iter().flat_map(Node::entries).find(|entry| &*entry.key.value == name.as_str());
                findings.push(
                    Diagnostic::new(
                        Code(515),
                        entry.map_or(text.at, |entry| entry.key.at),
                        format!(
                            "ConfigMaps `{other}` and `{}` of cluster `{}` both have a manifest `{name}`",
                            reference.name, cluster.meta.id.name
                        ),
                    )
                    .cause(
                        "all manifests of a cluster land in one directory; names must be unique across its \
                        ConfigMaps, or the manifests are refused once the cluster is otherwise ready",
                    )
                    .help(format!("rename one of them, for example to `{}`", renamed(name, &reference.name)))
                    .related(at, format!("in ConfigMap `{other}`")),
                );
            }
        }
    }
}

fn renamed(name: &str, map: &str) -> String {
    match name.rsplit_once('.') {
        Some((stem, ending)) => format!("{stem}-{map}.{ending}"),
        None => format!("{name}-{map}"),
    }
}

fn nodes_in_manifests(context: &Context, findings: &mut Vec<Diagnostic>) {
    for node in context.world.nodes.iter().filter(|node| node.within.is_some()) {
        let name = &node.meta.id.name;
        let labels: String = node
            .meta
            .labels
            .iter()
            .filter(|(key, _)| !key.starts_with("node-role.kubernetes.io/") && *key != "node.openshift.io/os_id")
            .map(|(key, value)| format!("\n    bmac.agent-install.openshift.io.node-label.{key}: \"{value}\""))
            .collect();
        findings.push(
            Diagnostic::new(
                Code(511),
                node.meta.at,
                format!("the extra manifests create Node `{name}` before the machine exists"),
            )
            .cause(
                "assisted installations fail when worker nodes are in the API before the control plane has joined; \
                Node objects in manifests only ever worked for installations by hand",
            )
            .help(if labels.is_empty() {
                "remove the Node from the ConfigMap; the machine registers itself".to_owned()
            } else {
                format!(
                    "remove the Node from the ConfigMap and let the BareMetalHost bring the labels:\nmetadata:\n  \
                    annotations:{labels}"
                )
            }),
        );
    }
}

const KEEPALIVED: &str = "/etc/kubernetes/manifests/keepalived.yaml";

fn obsolete_keepalived(context: &Context, findings: &mut Vec<Diagnostic>) {
    let say = |at: Location, who: String| {
        Diagnostic::new(
            Code(513),
            at,
            format!("{who} replaces keepalived's static pod, which is not needed from 4.13 on"),
        )
        .cause(
            "since 4.13 a node without an address in the subnet of a VIP keeps keepalived asleep and labels itself \
            `node.openshift.io/remote-worker`; the assisted agent also reads this file to guess how the cluster \
            keeps its VIPs, and an empty one misleads it",
        )
        .help("for 4.13 and later remove it, together with the pool made only for it; keep it for older versions")
    };
    for config in &context.world.machine_configs {
        for path in config.config.iter().flat_map(written_paths).filter(|path| path.as_str() == Some(KEEPALIVED)) {
            findings.push(say(path.at, format!("MachineConfig `{}`", config.meta.id.name)));
        }
    }
    for host in &context.world.hosts {
        if let Some(text) = host.ignition_override.as_ref().filter(|text| text.contains(KEEPALIVED)) {
            findings.push(say(text.at, format!("the Ignition override of host `{}`", host.meta.id.name)));
        }
    }
}

/// Port of the machine-config-server, whose path this really is.
const CONFIG_SERVER_PORTS: [&str; 2] = ["22623", "22624"];

fn config_server_paths(context: &Context, findings: &mut Vec<Diagnostic>) {
    if !context.world.pools.iter().any(|pool| pool.origin == crate::world::PoolOrigin::NodePool) {
        return;
    }
    let maps = context.world.config_maps.iter().flat_map(|map| map.data.values());
    let overrides = context.world.hosts.iter().filter_map(|host| host.ignition_override.as_ref());
    for text in maps.chain(overrides) {
        let Some(url) = text.split(['"', '\'', ' ', '\n']).find(|word| is_wrong_server(word)) else { continue };
        let server = url.split_once("/config/").map_or(url, |(server, _)| server);
        let server = server.split_once("://").map_or(server, |(_, server)| server);
        findings.push(
            Diagnostic::new(
                Code(523),
                text.at,
                format!("`{url}` is a path of the machine-config-server, but a NodePool's config is served elsewhere"),
            )
            .cause(
                "the ignition server of a hosted cluster answers `/ignition` only, with the token of the pool as \
                bearer token; `/config/worker` is not found there",
            )
            .help(format!(
                "write `https://{server}/ignition` with the headers `Authorization: Bearer …` and `NodePool: \
                NAMESPACE/NAME`"
            )),
        );
    }
}

fn is_wrong_server(word: &str) -> bool {
    let Some((_, rest)) = word.split_once("://") else { return false };
    let Some((authority, path)) = rest.split_once('/') else { return false };
    let port = authority.rsplit_once(':').map_or("", |(_, port)| port);
    matches!(path, "config/worker" | "config/master") && !CONFIG_SERVER_PORTS.contains(&port)
}

#[cfg(test)]
mod tests {
    use super::is_wrong_server;

    #[test]
    fn only_the_config_path_on_a_foreign_port_is_wrong() {
        for (url, wrong) in [
            ("http://192.0.2.1:30080/config/worker", true),
            ("https://api-int.c.example.com:22623/config/worker", false),
            ("https://192.0.2.1:30080/ignition", false),
            ("/config/worker", false),
        ] {
            assert_eq!(is_wrong_server(url), wrong, "{url}");
        }
    }
}
