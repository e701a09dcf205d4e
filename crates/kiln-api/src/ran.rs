//! ran.openshift.io: one file per site, from which the objects of its clusters are generated.

pub(crate) mod site_config;
