//! `MachineConfiguration` (operator.openshift.io/v1): what changes of node config take on running nodes.

use kiln_core::document::Node;
use kiln_core::world::{DisruptionPolicy, Meta};
use serde::Deserialize;

use crate::carried::Carried;
use crate::intake::Intake;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MachineConfigurationSpec {
    boot_image_skew_enforcement: Carried,
    failed_revision_limit: Carried,
    force_redeployment_reason: Carried,
    irreconcilable_validation_overrides: Carried,
    log_level: Carried,
    managed_boot_images: Carried,
    management_state: Carried,
    node_disruption_policy: Option<Node>,
    observed_config: Carried,
    operator_log_level: Carried,
    succeeded_revision_limit: Carried,
    unsupported_config_overrides: Carried,
}

pub(crate) fn read(root: &Node, meta: Meta, intake: &mut Intake) {
    let MachineConfigurationSpec {
        boot_image_skew_enforcement: Carried,
        failed_revision_limit: Carried,
        force_redeployment_reason: Carried,
        irreconcilable_validation_overrides: Carried,
        log_level: Carried,
        managed_boot_images: Carried,
        management_state: Carried,
        node_disruption_policy: policy,
        observed_config: Carried,
        operator_log_level: Carried,
        succeeded_revision_limit: Carried,
        unsupported_config_overrides: Carried,
    } = intake.read_spec(root);
    let within = intake.within.clone();
    intake.world.disruption_policies.push(DisruptionPolicy { meta, policy, within });
}
