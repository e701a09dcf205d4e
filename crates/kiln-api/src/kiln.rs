//! kiln.dev/v1alpha1: Kiln's own kinds, small and flat. They become the same world as the upstream ones.

pub(crate) mod host;
pub(crate) mod image;
pub(crate) mod pool;
pub(crate) mod site;
