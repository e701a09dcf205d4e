//! open-cluster-management.io: the hub's view of a cluster. Stored, never acted on.

pub(crate) mod klusterlet_addon_config;
pub(crate) mod managed_cluster;
