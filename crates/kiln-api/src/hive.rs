//! hive.openshift.io and extensions.hive.openshift.io: clusters to be installed.

pub(crate) mod agent_cluster_install;
pub(crate) mod cluster_deployment;
pub(crate) mod cluster_image_set;
