//! `Pool` (kiln.dev/v1alpha1): hosts that share config and a rollout budget.

use kiln_core::diagnostic::Diagnostic;
use kiln_core::document::Node;
use kiln_core::source::Sourced;
use kiln_core::world::{Meta, Pool, PoolOrigin};
use serde::Deserialize;

use crate::intake::Intake;
use crate::manifest::{LocalReference, Selector, selector};
use crate::value;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PoolSpec {
    /// ConfigMaps with MachineConfigs under the key `config`, as NodePool has them.
    config: Vec<LocalReference>,
    /// MachineConfigs by label, as MachineConfigPool has it.
    machine_config_selector: Option<Sourced<Selector>>,
    /// How many hosts may be changed at once: a number or a percentage.
    max_unavailable: Option<Node>,
    /// Labels of its nodes.
    node_labels: Option<Node>,
    /// Hosts by node label; hosts that name the pool belong to it anyway.
    node_selector: Option<Sourced<Selector>>,
}

pub(crate) fn read(root: &Node, meta: Meta, intake: &mut Intake) {
    let spec: PoolSpec = intake.read_spec(root);
    let pool = Pool { within: intake.within.clone(), ..spec.convert(meta, &mut intake.findings) };
    intake.world.pools.push(pool);
}

impl PoolSpec {
    fn convert(self, meta: Meta, findings: &mut Vec<Diagnostic>) -> Pool {
        let PoolSpec { config, machine_config_selector, max_unavailable, node_labels, node_selector } = self;
        Pool {
            meta,
            origin: PoolOrigin::Native,
            config_selector: selector(machine_config_selector, findings),
            node_selector: selector(node_selector, findings),
            config_maps: config.into_iter().filter_map(LocalReference::convert).collect(),
            replicas: None,
            platform: None,
            upgrade_type: None,
            auto_repair: None,
            cluster_name: None,
            release_image: None,
            max_unavailable: value::int_or_string(max_unavailable),
            node_labels: value::labels(node_labels.as_ref(), findings),
            within: None,
        }
    }
}
