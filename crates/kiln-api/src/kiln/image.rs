//! `Image` (kiln.dev/v1alpha1): an OS image to import. Carried: nothing offline depends on its bytes.

use kiln_core::document::Node;
use kiln_core::world::Meta;
use serde::Deserialize;

use crate::carried::Carried;
use crate::intake::Intake;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ImageSpec {
    /// `x86_64`, `aarch64`, …
    architecture: Carried,
    /// SHA-256 of the bytes at `url`.
    sha256: Carried,
    /// Where it is fetched from.
    url: Carried,
    /// What the image calls itself, as in 39.20240322.3.1.
    version: Carried,
}

pub(crate) fn read(root: &Node, _meta: Meta, intake: &mut Intake) {
    let ImageSpec { architecture: Carried, sha256: Carried, url: Carried, version: Carried } = intake.read_spec(root);
}
