//! `Pool` (kiln.dev/v1alpha1): hosts that share config and a rollout budget.

use kiln_core::diagnostic::Diagnostic;
use kiln_core::document::Node;
use kiln_core::source::Sourced;
use kiln_core::world::{FirstBootNetwork, IgnitionSource, Meta, Pool, PoolOrigin};
use serde::Deserialize;

use crate::carried::Carried;
use crate::intake::Intake;
use crate::manifest::{LocalReference, ProxySettings, Selector, TaintEntry, local, selector};
use crate::value;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PoolSpec {
    /// What is done when its hosts ask for certificates.
    certificates: Certificates,
    /// ConfigMaps with MachineConfigs under the key `config`, as NodePool has them.
    config: Vec<LocalReference>,
    /// How long emptying a Node may take.
    drain_timeout: Carried,
    /// Whether hosts get their network with their config.
    first_boot_network: Option<Sourced<String>>,
    /// How long hosts may take, and what is done with late ones.
    health: Carried,
    /// The config its own is laid over.
    ignition: Option<Ignition>,
    /// Secret with the kubeconfig of the cluster its hosts join.
    kubeconfig: Carried,
    /// MachineConfigs by label, as MachineConfigPool has it.
    machine_config_selector: Option<Sourced<Selector>>,
    /// How many hosts may be changed at once: a number or a percentage.
    max_unavailable: Option<Node>,
    /// nmstate document laid over the networks of its running hosts.
    network: Option<Node>,
    /// Labels of its nodes.
    node_labels: Option<Node>,
    /// Hosts by node label; hosts that name the pool belong to it anyway.
    node_selector: Option<Sourced<Selector>>,
    /// Taints of its nodes.
    node_taints: Vec<TaintEntry>,
    /// Whether running nodes are left as they are.
    paused: Option<Sourced<bool>>,
    /// The proxy its machines fetch their config through.
    proxy: Option<ProxySettings>,
    /// How many hosts it shall have.
    replicas: Option<Sourced<u32>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Certificates {
    /// As whom its hosts ask for them.
    bootstrap: Option<Sourced<String>>,
    mode: Carried,
    proof: Carried,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Ignition {
    /// ConfigMap with a whole config.
    config_map: Option<Sourced<String>>,
    /// Secret with a whole config.
    secret: Option<Sourced<String>>,
    /// The machine-config-server of an existing cluster.
    upstream: Option<Upstream>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Upstream {
    /// Secret with the authorities that server is trusted by.
    ca_secret: Option<Sourced<String>>,
    url: Option<Sourced<String>>,
}

impl Ignition {
    fn convert(self) -> Option<IgnitionSource> {
        let Ignition { config_map, secret, upstream } = self;
        let upstream = upstream.and_then(|Upstream { ca_secret, url }| {
            Some(IgnitionSource::Upstream { url: url?, authority: local(ca_secret) })
        });
        let secret = local(secret).map(IgnitionSource::Secret);
        upstream.or(secret).or_else(|| local(config_map).map(IgnitionSource::ConfigMap))
    }
}

pub(crate) fn read(root: &Node, meta: Meta, intake: &mut Intake) {
    let spec: PoolSpec = intake.read_spec(root);
    let pool = Pool { within: intake.within.clone(), ..spec.convert(meta, &mut intake.findings) };
    intake.world.pools.push(pool);
}

impl PoolSpec {
    fn convert(self, meta: Meta, findings: &mut Vec<Diagnostic>) -> Pool {
        let PoolSpec {
            certificates: Certificates { bootstrap, mode: Carried, proof: Carried },
            config,
            drain_timeout: Carried,
            first_boot_network,
            health: Carried,
            ignition,
            kubeconfig: Carried,
            machine_config_selector,
            max_unavailable,
            network,
            node_labels,
            node_selector,
            node_taints,
            paused,
            proxy,
            replicas,
        } = self;
        Pool {
            meta,
            origin: PoolOrigin::Native,
            config_selector: selector(machine_config_selector, findings),
            node_selector: selector(node_selector, findings),
            config_maps: config.into_iter().filter_map(LocalReference::convert).collect(),
            replicas,
            platform: None,
            upgrade_type: None,
            auto_repair: None,
            cluster_name: None,
            release_image: None,
            max_unavailable: value::int_or_string(max_unavailable),
            network: network.filter(|document| !document.is_null()),
            paused: paused.filter(|paused| paused.value).map(|_| "true".to_owned()),
            node_labels: value::labels(node_labels.as_ref(), findings),
            node_taints: node_taints.into_iter().filter_map(TaintEntry::convert).collect(),
            ignition: ignition.and_then(Ignition::convert),
            // Any other word is refused by the definition.
            first_boot_network: match first_boot_network.as_ref().map(|word| word.value.as_str()) {
                Some("stock") => FirstBootNetwork::Stock,
                _ => FirstBootNetwork::Composed,
            },
            proxy: proxy.map(ProxySettings::convert),
            own_bootstrap_user: bootstrap.is_some_and(|word| word.value == "token"),
            within: None,
        }
    }
}
