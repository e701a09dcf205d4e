//! `InfraEnv` (agent-install.openshift.io/v1beta1): a discovery image and what goes into it.

use kiln_core::diagnostic::Diagnostic;
use kiln_core::document::Node;
use kiln_core::source::Sourced;
use kiln_core::world::{Discovery, Meta};
use serde::Deserialize;

use crate::carried::Carried;
use crate::intake::Intake;
use crate::manifest::{LocalReference, NamespacedReference, ProxySettings, Selector, selector};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct InfraEnvSpec {
    #[serde(rename = "additionalNTPSources")]
    additional_ntp_sources: Vec<Sourced<String>>,
    additional_trust_bundle: Option<Sourced<String>>,
    agent_approval: Carried,
    agent_labels: Carried,
    /// Gone upstream; the rules say what took over.
    agent_label_selector: Carried,
    #[serde(rename = "approvedMACAddressConfigMapLabelSelector")]
    approved_mac_address_config_map_label_selector: Carried,
    cluster_ref: Option<NamespacedReference>,
    cpu_architecture: Option<Sourced<String>>,
    ignition_config_override: Option<Sourced<String>>,
    image_type: Carried,
    ipxe_script_type: Carried,
    kernel_arguments: Vec<KernelArgument>,
    mirror_registry_ref: Option<NamespacedReference>,
    network_discovery_delay_seconds: Carried,
    #[serde(rename = "nmStateConfigLabelSelector")]
    nmstate_config_label_selector: Option<Sourced<Selector>>,
    ntp_sources: Vec<Sourced<String>>,
    os_image_version: Option<Sourced<String>>,
    proxy: Option<ProxySettings>,
    pull_secret_ref: Option<LocalReference>,
    ssh_authorized_key: Option<Sourced<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct KernelArgument {
    operation: Option<Sourced<String>>,
    value: Option<Sourced<String>>,
}

pub(crate) fn read(root: &Node, meta: Meta, intake: &mut Intake) {
    let spec: InfraEnvSpec = intake.read_spec(root);
    let discovery = spec.convert(meta, &mut intake.findings);
    intake.world.discoveries.push(discovery);
}

impl InfraEnvSpec {
    fn convert(self, meta: Meta, findings: &mut Vec<Diagnostic>) -> Discovery {
        let InfraEnvSpec {
            additional_ntp_sources,
            additional_trust_bundle,
            agent_approval: Carried,
            agent_labels: Carried,
            agent_label_selector: Carried,
            approved_mac_address_config_map_label_selector: Carried,
            cluster_ref,
            cpu_architecture,
            ignition_config_override,
            image_type: Carried,
            ipxe_script_type: Carried,
            kernel_arguments,
            mirror_registry_ref,
            network_discovery_delay_seconds: Carried,
            nmstate_config_label_selector,
            ntp_sources,
            os_image_version,
            proxy,
            pull_secret_ref,
            ssh_authorized_key,
        } = self;
        Discovery {
            meta,
            cluster: cluster_ref.and_then(NamespacedReference::convert),
            pull_secret: pull_secret_ref.and_then(LocalReference::convert),
            network_selector: selector(nmstate_config_label_selector, findings),
            ntp_sources: additional_ntp_sources.into_iter().chain(ntp_sources).collect(),
            proxy: proxy.map(ProxySettings::convert),
            ignition_override: ignition_config_override,
            kernel_arguments: kernel_arguments.into_iter().filter_map(KernelArgument::convert).collect(),
            architecture: cpu_architecture,
            os_image_version,
            ssh_key: ssh_authorized_key,
            trust_bundle: additional_trust_bundle,
            mirror_registry: mirror_registry_ref.and_then(NamespacedReference::convert),
        }
    }
}

impl KernelArgument {
    fn convert(self) -> Option<(Sourced<String>, Sourced<String>)> {
        let KernelArgument { operation, value } = self;
        Some((operation?, value?))
    }
}
