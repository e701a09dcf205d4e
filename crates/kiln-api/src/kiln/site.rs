//! `Site` (kiln.dev/v1alpha1): a place with its own subnets, which is what makes a worker remote.

use kiln_core::diagnostic::Diagnostic;
use kiln_core::document::Node;
use kiln_core::source::Sourced;
use kiln_core::world::{Meta, Site};
use serde::Deserialize;

use crate::intake::Intake;
use crate::value;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SiteSpec {
    /// Gateways of the subnets.
    gateways: Vec<Sourced<String>>,
    /// Subnets of the place in CIDR notation.
    subnets: Vec<Sourced<String>>,
}

pub(crate) fn read(root: &Node, meta: Meta, intake: &mut Intake) {
    let spec: SiteSpec = intake.read_spec(root);
    let site = spec.convert(meta, &mut intake.findings);
    intake.world.sites.push(site);
}

impl SiteSpec {
    fn convert(self, meta: Meta, findings: &mut Vec<Diagnostic>) -> Site {
        let SiteSpec { gateways, subnets } = self;
        Site {
            meta,
            subnets: subnets.into_iter().filter_map(|text| value::network(text, findings)).collect(),
            gateways: gateways.into_iter().filter_map(|text| value::address(text, findings)).collect(),
        }
    }
}
