//! nmstate.io: network policies for running nodes.
//!
//! Only the policy declares something. NodeNetworkState and NodeNetworkConfigurationEnactment are observations
//! (they have no spec), so [`crate::kinds`] carries them.

pub(crate) mod node_network_configuration_policy;
