//! `NMStateConfig` (agent-install.openshift.io/v1beta1): one machine's network, found by MAC address.

use kiln_core::diagnostic::Diagnostic;
use kiln_core::document::Node;
use kiln_core::source::Sourced;
use kiln_core::world::{HostNetwork, Meta, NicMapping};
use serde::Deserialize;

use crate::intake::Intake;
use crate::value;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NmStateConfigSpec {
    /// An nmstate document; what is inside is judged by the network rules.
    config: Option<Node>,
    interfaces: Vec<NicEntry>,
}

/// Which NIC a logical name stands for.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NicEntry {
    mac_address: Option<Sourced<String>>,
    name: Option<Sourced<String>>,
}

pub(crate) fn read(root: &Node, meta: Meta, intake: &mut Intake) {
    let spec: NmStateConfigSpec = intake.read_spec(root);
    let network = spec.convert(meta, &mut intake.findings);
    intake.world.host_networks.push(network);
}

impl NmStateConfigSpec {
    fn convert(self, meta: Meta, findings: &mut Vec<Diagnostic>) -> HostNetwork {
        let NmStateConfigSpec { config, interfaces } = self;
        HostNetwork {
            meta,
            interfaces: interfaces.into_iter().filter_map(|nic| nic.convert(findings)).collect(),
            document: config.filter(|document| !document.is_null()),
        }
    }
}

impl NicEntry {
    pub(crate) fn convert(self, findings: &mut Vec<Diagnostic>) -> Option<NicMapping> {
        let NicEntry { mac_address, name } = self;
        let name = name.and_then(|name| value::interface_name(name, findings));
        let mac = mac_address.and_then(|mac| value::mac(mac, findings));
        Some(NicMapping { name: name?, mac: mac? })
    }
}
