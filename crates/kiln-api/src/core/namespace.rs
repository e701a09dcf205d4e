//! `Namespace` (v1).

use kiln_core::document::Node;
use kiln_core::world::Meta;
use serde::Deserialize;

use crate::carried::Carried;
use crate::intake::Intake;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NamespaceSpec {
    finalizers: Carried,
}

pub(crate) fn read(root: &Node, meta: Meta, intake: &mut Intake) {
    let NamespaceSpec { finalizers: Carried } = intake.read_spec(root);
    if !intake.is_embedded() {
        intake.world.namespaces.push(meta);
    }
}
