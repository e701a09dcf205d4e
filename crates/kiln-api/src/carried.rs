//! The type of a field that exists upstream and that Kiln does not act on.
//!
//! Each kind lists all its fields, so that a misspelt one is noticed; those Kiln has no use for are [`Carried`].
//! Conversions destructure them by name (`taints: Carried`), so a new field does not compile until someone decides.

use serde::de::{Deserialize, Deserializer, IgnoredAny};

/// Accepted, kept in the document, not read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Carried;

impl<'de> Deserialize<'de> for Carried {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(from).map(|_| Carried)
    }
}
