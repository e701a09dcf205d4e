//! machineconfiguration.openshift.io: pieces of node config and the pools that get them.

pub(crate) mod kubelet_config;
#[expect(clippy::module_inception, reason = "the kind bears the name of its group")]
pub(crate) mod machine_config;
pub(crate) mod machine_config_pool;
