//! hypershift.openshift.io: pools of nodes for hosted control planes.

pub(crate) mod hosted_cluster;
pub(crate) mod node_pool;
