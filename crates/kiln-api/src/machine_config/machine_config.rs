//! `MachineConfig` (machineconfiguration.openshift.io/v1): an Ignition config and kernel settings for a role.

use kiln_core::document::Node;
use kiln_core::source::Sourced;
use kiln_core::world::{MachineConfig, Meta};
use serde::Deserialize;

use crate::carried::Carried;
use crate::intake::Intake;

const ROLE_LABEL: &str = "machineconfiguration.openshift.io/role";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MachineConfigSpec {
    #[serde(rename = "baseOSExtensionsContainerImage")]
    base_os_extensions_container_image: Carried,
    config: Option<Node>,
    extensions: Vec<Sourced<String>>,
    fips: Option<Sourced<bool>>,
    kernel_arguments: Vec<Sourced<String>>,
    kernel_type: Option<Sourced<String>>,
    #[serde(rename = "osImageURL")]
    os_image_url: Option<Sourced<String>>,
}

pub(crate) fn read(root: &Node, meta: Meta, intake: &mut Intake) {
    let spec: MachineConfigSpec = intake.read_spec(root);
    let config = MachineConfig { within: intake.within.clone(), ..spec.convert(meta) };
    intake.world.machine_configs.push(config);
}

impl MachineConfigSpec {
    fn convert(self, meta: Meta) -> MachineConfig {
        let MachineConfigSpec {
            base_os_extensions_container_image: Carried,
            config,
            extensions,
            fips,
            kernel_arguments,
            kernel_type,
            os_image_url,
        } = self;
        MachineConfig {
            role: meta.labels.get(ROLE_LABEL).cloned(),
            meta,
            config: config.filter(|config| !config.is_null()),
            kernel_arguments,
            extensions,
            fips,
            kernel_type,
            os_image_url,
            within: None,
        }
    }
}
