//! `NodeNetworkConfigurationPolicy` (nmstate.io/v1, v1beta1): an nmstate document for chosen nodes.
//!
//! `nodeSelector` is a plain map: it compares for equality and knows no expressions. `spec.kiln`, which does, is kept as it was
//! written: `kiln_core::policy` reads it where it judges.

use kiln_core::diagnostic::Diagnostic;
use kiln_core::document::Node;
use kiln_core::world::{Meta, Policy};
use serde::Deserialize;

use crate::intake::Intake;
use crate::value;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PolicySpec {
    capture: Option<Node>,
    desired_state: Option<Node>,
    kiln: Option<Node>,
    max_unavailable: Option<Node>,
    node_selector: Option<Node>,
}

pub(crate) fn read(root: &Node, meta: Meta, intake: &mut Intake) {
    let spec: PolicySpec = intake.read_spec(root);
    let policy = spec.convert(meta, &mut intake.findings);
    intake.world.policies.push(policy);
}

impl PolicySpec {
    fn convert(self, meta: Meta, findings: &mut Vec<Diagnostic>) -> Policy {
        let PolicySpec { capture, desired_state, kiln, max_unavailable, node_selector } = self;
        Policy {
            meta,
            node_selector: value::labels(node_selector.as_ref(), findings),
            node_selector_at: node_selector.map(|node| node.at),
            captures: value::labels(capture.as_ref(), findings),
            desired: desired_state.filter(|state| !state.is_null()),
            max_unavailable: value::int_or_string(max_unavailable),
            kiln: kiln.filter(|kiln| !kiln.is_null()),
        }
    }
}
