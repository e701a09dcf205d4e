//! `HostedCluster` (hypershift.openshift.io/v1beta1): carried.
//!
//! A NodePool refers to it by name only. Its spec is large, changes with every release and decides nothing about a
//! node's network, so its fields are not listed.

use kiln_core::document::Node;
use kiln_core::world::Meta;

use crate::carried::Carried;
use crate::intake::Intake;

pub(crate) fn read(root: &Node, _meta: Meta, intake: &mut Intake) {
    let Carried = intake.read_spec(root);
}
