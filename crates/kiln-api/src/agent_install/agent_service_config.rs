//! `AgentServiceConfig` (agent-install.openshift.io/v1beta1): the OS images discovery may boot.

use kiln_core::document::Node;
use kiln_core::source::Sourced;
use kiln_core::world::{DiscoveryService, Meta, OsImage};
use serde::Deserialize;

use crate::carried::Carried;
use crate::intake::Intake;
use crate::manifest::local;

const ENVIRONMENT_ANNOTATION: &str = "unsupported.agent-install.openshift.io/assisted-service-configmap";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AgentServiceConfigSpec {
    database_storage: Carried,
    filesystem_storage: Carried,
    #[serde(rename = "iPXEHTTPRoute")]
    ipxe_http_route: Carried,
    image_storage: Carried,
    ingress: Carried,
    mirror_registry_ref: Carried,
    must_gather_images: Carried,
    os_images: Vec<OsImageEntry>,
    #[serde(rename = "OSImageAdditionalParamsRef")]
    os_image_additional_params_ref: Carried,
    #[serde(rename = "OSImageCACertRef")]
    os_image_ca_cert_ref: Carried,
    unauthenticated_registries: Carried,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OsImageEntry {
    cpu_architecture: Option<Sourced<String>>,
    openshift_version: Option<Sourced<String>>,
    /// Ignored upstream since the image service reads the root file system out of the ISO.
    #[serde(rename = "rootFSUrl")]
    root_fs_url: Carried,
    url: Option<Sourced<String>>,
    version: Carried,
}

pub(crate) fn read(root: &Node, meta: Meta, intake: &mut Intake) {
    let spec: AgentServiceConfigSpec = intake.read_spec(root);
    intake.world.services.push(spec.convert(meta));
}

impl AgentServiceConfigSpec {
    fn convert(self, meta: Meta) -> DiscoveryService {
        let AgentServiceConfigSpec {
            database_storage: Carried,
            filesystem_storage: Carried,
            ipxe_http_route: Carried,
            image_storage: Carried,
            ingress: Carried,
            mirror_registry_ref: Carried,
            must_gather_images: Carried,
            os_images,
            os_image_additional_params_ref: Carried,
            os_image_ca_cert_ref: Carried,
            unauthenticated_registries: Carried,
        } = self;
        DiscoveryService {
            os_images: os_images.into_iter().filter_map(OsImageEntry::convert).collect(),
            environment_map: local(meta.annotations.get(ENVIRONMENT_ANNOTATION).cloned()),
            meta,
        }
    }
}

impl OsImageEntry {
    fn convert(self) -> Option<OsImage> {
        let OsImageEntry { cpu_architecture, openshift_version, root_fs_url: Carried, url, version: Carried } = self;
        Some(OsImage { openshift_version: openshift_version?, architecture: cpu_architecture, url })
    }
}
