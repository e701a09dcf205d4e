//! agent-install.openshift.io: discovery of machines before a cluster exists.

pub(crate) mod agent;
pub(crate) mod agent_service_config;
pub(crate) mod infra_env;
pub(crate) mod nm_state_config;
