//! metal3.io: machines and the service that provisions them.

pub(crate) mod bare_metal_host;
pub(crate) mod provisioning;
