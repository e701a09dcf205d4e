//! `ClusterImageSet` (hive.openshift.io/v1): which release a cluster gets.

use kiln_core::document::Node;
use kiln_core::source::Sourced;
use kiln_core::world::{ImageSet, Meta};
use serde::Deserialize;

use crate::intake::Intake;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClusterImageSetSpec {
    release_image: Option<Sourced<String>>,
}

pub(crate) fn read(root: &Node, meta: Meta, intake: &mut Intake) {
    let ClusterImageSetSpec { release_image } = intake.read_spec(root);
    intake.world.image_sets.push(ImageSet { meta, release_image });
}
