//! `MachineConfigPool` (machineconfiguration.openshift.io/v1): which nodes get which MachineConfigs.

use kiln_core::diagnostic::Diagnostic;
use kiln_core::document::Node;
use kiln_core::source::Sourced;
use kiln_core::world::{FirstBootNetwork, Labels, Meta, Pool, PoolOrigin};
use serde::Deserialize;

use crate::carried::Carried;
use crate::intake::Intake;
use crate::manifest::{Selector, annotated_ignition, selector};
use crate::value;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MachineConfigPoolSpec {
    configuration: Carried,
    machine_config_selector: Option<Sourced<Selector>>,
    max_unavailable: Option<Node>,
    node_selector: Option<Sourced<Selector>>,
    os_image_stream: Carried,
    paused: Option<Sourced<bool>>,
    pinned_image_sets: Carried,
}

pub(crate) fn read(root: &Node, meta: Meta, intake: &mut Intake) {
    let spec: MachineConfigPoolSpec = intake.read_spec(root);
    let pool = Pool { within: intake.within.clone(), ..spec.convert(meta, &mut intake.findings) };
    intake.world.pools.push(pool);
}

impl MachineConfigPoolSpec {
    fn convert(self, meta: Meta, findings: &mut Vec<Diagnostic>) -> Pool {
        let MachineConfigPoolSpec {
            configuration: Carried,
            machine_config_selector,
            max_unavailable,
            node_selector,
            os_image_stream: Carried,
            paused,
            pinned_image_sets: Carried,
        } = self;
        Pool {
            ignition: annotated_ignition(&meta),
            first_boot_network: FirstBootNetwork::Composed,
            proxy: None,
            own_bootstrap_user: false,
            meta,
            origin: PoolOrigin::MachineConfigPool,
            config_selector: selector(machine_config_selector, findings),
            node_selector: selector(node_selector, findings),
            config_maps: Vec::new(),
            replicas: None,
            platform: None,
            upgrade_type: None,
            auto_repair: None,
            cluster_name: None,
            release_image: None,
            max_unavailable: value::int_or_string(max_unavailable),
            network: None,
            paused: paused.filter(|paused| paused.value).map(|_| "true".to_owned()),
            node_labels: Labels::new(),
            node_taints: Vec::new(),
            within: None,
        }
    }
}
