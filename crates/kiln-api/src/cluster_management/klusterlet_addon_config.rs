//! `KlusterletAddonConfig` (agent.open-cluster-management.io/v1): carried; which add-ons exist differs by release.

use kiln_core::document::Node;
use kiln_core::world::Meta;

use crate::carried::Carried;
use crate::intake::Intake;

pub(crate) fn read(root: &Node, _meta: Meta, intake: &mut Intake) {
    let Carried = intake.read_spec(root);
}
