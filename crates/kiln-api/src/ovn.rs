//! k8s.ovn.org: addresses for traffic that leaves the cluster.

pub(crate) mod egress_ip;
