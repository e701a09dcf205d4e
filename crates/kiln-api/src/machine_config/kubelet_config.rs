//! `KubeletConfig` (machineconfiguration.openshift.io/v1): carried.

use kiln_core::document::Node;
use kiln_core::world::Meta;
use serde::Deserialize;

use crate::carried::Carried;
use crate::intake::Intake;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct KubeletConfigSpec {
    auto_sizing_reserved: Carried,
    kubelet_config: Carried,
    log_level: Carried,
    machine_config_pool_selector: Carried,
    tls_security_profile: Carried,
}

pub(crate) fn read(root: &Node, _meta: Meta, intake: &mut Intake) {
    let KubeletConfigSpec {
        auto_sizing_reserved: Carried,
        kubelet_config: Carried,
        log_level: Carried,
        machine_config_pool_selector: Carried,
        tls_security_profile: Carried,
    } = intake.read_spec(root);
}
