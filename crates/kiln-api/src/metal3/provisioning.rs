//! `Provisioning` (metal3.io/v1alpha1): which namespaces the bare-metal operator looks at.

use kiln_core::document::Node;
use kiln_core::source::Sourced;
use kiln_core::world::{Meta, Provisioning};
use serde::Deserialize;

use crate::carried::Carried;
use crate::intake::Intake;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ProvisioningSpec {
    #[serde(rename = "additionalNTPServers")]
    additional_ntp_servers: Carried,
    boot_iso_source: Carried,
    #[serde(rename = "disableVirtualMediaTLS")]
    disable_virtual_media_tls: Carried,
    #[serde(rename = "preProvisioningOSDownloadURLs")]
    pre_provisioning_os_download_urls: Carried,
    prometheus_exporter: Carried,
    #[serde(rename = "provisioningDHCPExternal")]
    provisioning_dhcp_external: Carried,
    #[serde(rename = "provisioningDHCPRange")]
    provisioning_dhcp_range: Carried,
    #[serde(rename = "provisioningDNS")]
    provisioning_dns: Carried,
    provisioning_interface: Carried,
    #[serde(rename = "provisioningIP")]
    provisioning_ip: Carried,
    provisioning_mac_addresses: Carried,
    provisioning_network: Carried,
    #[serde(rename = "provisioningNetworkCIDR")]
    provisioning_network_cidr: Carried,
    #[serde(rename = "provisioningOSDownloadURL")]
    provisioning_os_download_url: Carried,
    unsupported_config_overrides: Carried,
    virtual_media_via_external_network: Carried,
    watch_all_namespaces: Option<Sourced<bool>>,
}

pub(crate) fn read(root: &Node, meta: Meta, intake: &mut Intake) {
    let spec: ProvisioningSpec = intake.read_spec(root);
    intake.world.provisionings.push(spec.convert(meta));
}

impl ProvisioningSpec {
    fn convert(self, meta: Meta) -> Provisioning {
        let ProvisioningSpec {
            additional_ntp_servers: Carried,
            boot_iso_source: Carried,
            disable_virtual_media_tls: Carried,
            pre_provisioning_os_download_urls: Carried,
            prometheus_exporter: Carried,
            provisioning_dhcp_external: Carried,
            provisioning_dhcp_range: Carried,
            provisioning_dns: Carried,
            provisioning_interface: Carried,
            provisioning_ip: Carried,
            provisioning_mac_addresses: Carried,
            provisioning_network: Carried,
            provisioning_network_cidr: Carried,
            provisioning_os_download_url: Carried,
            unsupported_config_overrides: Carried,
            virtual_media_via_external_network: Carried,
            watch_all_namespaces,
        } = self;
        Provisioning { meta, watch_all_namespaces }
    }
}
