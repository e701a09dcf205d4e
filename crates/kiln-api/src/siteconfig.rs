//! siteconfig.open-cluster-management.io: the successor of SiteConfig.

pub(crate) mod cluster_instance;
