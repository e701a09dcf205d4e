//! operator.openshift.io: settings of the cluster's own operators.

pub(crate) mod ingress_controller;
pub(crate) mod machine_configuration;
