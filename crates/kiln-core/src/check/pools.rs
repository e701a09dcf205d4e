//! Pools: who is in them, which configs reach them, and settings that do nothing (rule R14, NodePools of platform None).

use std::collections::{BTreeMap, HashSet};

use super::Rule;
use super::context::{Context, is_base_pool};
use super::words::{counted, listed, nearest};
use crate::diagnostic::{Code, Diagnostic};
use crate::ignition::Config;
use crate::ignition::validate::validate;
use crate::machine::rules::parse_rules;
use crate::world::{Pool, PoolOrigin};

pub(super) const RULES: &[Rule] =
    &[nodes_of_two_pools, configs_of_no_pool, ignition_configs, idle_settings, disruption_policies];

fn disruption_policies(context: &Context, findings: &mut Vec<Diagnostic>) {
    for policy in &context.world.disruption_policies {
        let name = &policy.meta.id.name;
        let Some(written) = &policy.policy else { continue };
        let Err(mistakes) = parse_rules(&written.to_json()) else { continue };
        for mistake in mistakes {
            findings.push(
                Diagnostic::new(
                    Code(526),
                    written.at,
                    format!("the nodeDisruptionPolicy of MachineConfiguration `{name}` cannot be read: {mistake}"),
                )
                .cause("without rules that can be read, what is built in decides, and most files take a reboot")
                .help("correct it; `kiln explain KLN0526` shows every field"),
            );
        }
    }
}

fn nodes_of_two_pools(context: &Context, findings: &mut Vec<Diagnostic>) {
    let custom = |pool: &&Pool| {
        pool.origin == PoolOrigin::MachineConfigPool
            && !is_base_pool(&pool.meta.id.name)
            && !pool.node_selector.is_empty()
    };
    let mut first: BTreeMap<usize, &Pool> = BTreeMap::new();
    let mut shared: BTreeMap<(&str, &str), (Vec<&str>, &Pool, &Pool)> = BTreeMap::new();
    for pool in context.world.pools.iter().filter(custom) {
        for node in context.nodes_selected(&pool.node_selector) {
            let other = *first.entry(node).or_insert(pool);
            let same_place = other.within == pool.within || other.within.is_none() || pool.within.is_none();
            if other.meta.id != pool.meta.id && same_place {
                let pair = (other.meta.id.name.as_str(), pool.meta.id.name.as_str());
                shared.entry(pair).or_insert((Vec::new(), other, pool)).0.push(context.nodes[node].name);
            }
        }
    }
    for (nodes, one, two) in shared.into_values() {
        findings.push(
            Diagnostic::new(
                Code(516),
                two.node_selector.at.unwrap_or(two.meta.at),
                format!(
                    "{} in both pools `{}` and `{}`: {}",
                    if nodes.len() == 1 {
                        "1 node is".to_owned()
                    } else {
                        format!("{} are", counted(nodes.len(), "node"))
                    },
                    one.meta.id.name,
                    two.meta.id.name,
                    listed(&nodes)
                ),
            )
            .cause(
                "a node may be in one custom pool beside `worker`; of a node in two the operator says `belongs to 2 \
                custom roles, cannot proceed` and updates it no more",
            )
            .help(format!(
                "change `spec.nodeSelector` of `{}` or `{}` so that no node has the labels of both",
                one.meta.id.name, two.meta.id.name
            ))
            .related(one.node_selector.at.unwrap_or(one.meta.at), format!("pool `{}`", one.meta.id.name)),
        );
    }
}

fn configs_of_no_pool(context: &Context, findings: &mut Vec<Diagnostic>) {
    let used = context.pools.values().flat_map(|pool| &pool.configs);
    let used: HashSet<*const crate::world::MachineConfig> = used.map(|config| std::ptr::from_ref(*config)).collect();
    let pools: Vec<&str> = context.world.pools.iter().map(|pool| pool.meta.id.name.as_str()).collect();
    for config in &context.world.machine_configs {
        if used.contains(&std::ptr::from_ref(config)) {
            continue;
        }
        let name = &config.meta.id.name;
        match &config.role {
            Some(role) if is_base_pool(role) => {}
            Some(role) => {
                let known = pools.iter().copied().chain(["master", "worker"]);
                findings.push(
                    Diagnostic::new(
                        Code(517),
                        role.at,
                        format!("MachineConfig `{name}` is for pool `{role}`, which is not declared"),
                    )
                    .cause(
                        "a MachineConfig reaches the pools whose `machineConfigSelector` matches its labels; with no \
                        such pool it is applied nowhere",
                    )
                    .help(match nearest(role, known) {
                        Some(meant) => format!(
                            "did you mean:\nmetadata:\n  labels:\n    machineconfiguration.openshift.io/role: {meant}"
                        ),
                        None => format!(
                            "use the role of an existing pool, or add:\napiVersion: \
                            machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata:\n  name: \
                            {role}\nspec:\n  machineConfigSelector:\n    matchExpressions:\n    - key: \
                            machineconfiguration.openshift.io/role\n      operator: In\n      values: [worker, \
                            {role}]\n  nodeSelector:\n    matchLabels:\n      node-role.kubernetes.io/{role}: \"\""
                        ),
                    }),
                );
            }
            None if hosted(context, config) => {}
            None => findings.push(
                Diagnostic::new(
                    Code(517),
                    config.meta.at,
                    format!("MachineConfig `{name}` has no role label, so no pool takes it"),
                )
                .cause("pools choose MachineConfigs by the label `machineconfiguration.openshift.io/role`")
                .help("write:\nmetadata:\n  labels:\n    machineconfiguration.openshift.io/role: worker"),
            ),
        }
    }
}

/// Whether a ConfigMap brings it that is no cluster's manifest map: a NodePool's config needs no role.
fn hosted(context: &Context, config: &crate::world::MachineConfig) -> bool {
    let Some(map) = &config.within else { return false };
    let names = |cluster: &crate::world::Cluster| {
        cluster.meta.id.namespace == map.namespace
            && cluster.manifest_maps.iter().any(|reference| reference.name == map.name)
    };
    !context.world.clusters.iter().any(names)
}

/// Rendering a pool reports what stops it; what Ignition ignores, or would refuse on the node, is said here.
fn ignition_configs(context: &Context, findings: &mut Vec<Diagnostic>) {
    for config in context.world.machine_configs.iter().filter_map(|config| config.config.as_ref()) {
        let (config, remarks) = Config::from_node(config.clone());
        findings.extend(remarks);
        // Special bits in a mode stop the whole pool, which rendering says; that Ignition drops them is no news then.
        findings.extend(config.iter().flat_map(validate).filter(|finding| finding.code != Code(412)));
    }
}

fn idle_settings(context: &Context, findings: &mut Vec<Diagnostic>) {
    let pools = context.world.pools.iter().filter(|pool| pool.origin == PoolOrigin::NodePool);
    for pool in pools.filter(|pool| pool.platform.as_ref().is_some_and(|platform| platform.value == "None")) {
        let name = &pool.meta.id.name;
        if let Some(kind) = pool.upgrade_type.as_ref().filter(|kind| kind.value == "InPlace") {
            findings.push(
                Diagnostic::new(
                    Code(520),
                    kind.at,
                    format!("`upgradeType: InPlace` of NodePool `{name}` does nothing on platform None"),
                )
                .cause(
                    "without machines of its own the pool upgrades no node; it reports the new version at once, while \
                    every node still runs the old one",
                )
                .help(
                    "upgrade the nodes yourself, or put them into a Kiln Pool, which rolls out node by node and \
                    reports what nodes say; `upgradeType: Replace` states the truth that new nodes get the new \
                    config",
                ),
            );
        }
        if let Some(repair) = pool.auto_repair.as_ref().filter(|repair| repair.value) {
            findings.push(
                Diagnostic::new(
                    Code(521),
                    repair.at,
                    format!("`autoRepair: true` of NodePool `{name}` does nothing on platform None"),
                )
                .cause("repair replaces machines, and platform None has none to replace")
                .help("write:\nspec:\n  management:\n    autoRepair: false"),
            );
        }
        if let Some(replicas) = pool.replicas.as_ref().filter(|replicas| replicas.value > 0) {
            findings.push(
                Diagnostic::new(
                    Code(522),
                    replicas.at,
                    format!("`replicas: {replicas}` of NodePool `{name}` creates no machine on platform None"),
                )
                .cause(
                    "machines are yours to bring; with replicas above 0 the pool stays at `AllMachinesReady=False` \
                    with `No Machines are created`",
                )
                .help("write:\nspec:\n  replicas: 0\nand boot your machines with the pool's Ignition config"),
            );
        }
    }
}
