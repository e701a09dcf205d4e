//! `EgressIP` (k8s.ovn.org/v1).

use kiln_core::diagnostic::Diagnostic;
use kiln_core::document::Node;
use kiln_core::source::Sourced;
use kiln_core::world::{EgressIp, Meta};
use serde::Deserialize;

use crate::carried::Carried;
use crate::intake::Intake;
use crate::value;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EgressIpSpec {
    #[serde(rename = "egressIPs")]
    egress_ips: Vec<Sourced<String>>,
    namespace_selector: Carried,
    pod_selector: Carried,
}

pub(crate) fn read(root: &Node, meta: Meta, intake: &mut Intake) {
    let spec: EgressIpSpec = intake.read_spec(root);
    let egress_ip = spec.convert(meta, &mut intake.findings);
    intake.world.egress_ips.push(egress_ip);
}

impl EgressIpSpec {
    fn convert(self, meta: Meta, findings: &mut Vec<Diagnostic>) -> EgressIp {
        let EgressIpSpec { egress_ips, namespace_selector: Carried, pod_selector: Carried } = self;
        EgressIp { meta, addresses: egress_ips.into_iter().filter_map(|text| value::address(text, findings)).collect() }
    }
}
