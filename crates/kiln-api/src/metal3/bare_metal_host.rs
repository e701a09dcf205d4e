//! `BareMetalHost` (metal3.io/v1alpha1), with the labels and annotations by which assisted-service steers a host.
//!
//! Most of what the installer needs to know about a host is not in the spec: the bare-metal agent controller reads
//! role, hostname, pool, installer arguments and Ignition override from annotations and the discovery environment
//! from a label.

use kiln_core::diagnostic::{Code, Diagnostic};
use kiln_core::document::Node;
use kiln_core::source::Sourced;
use kiln_core::world::{Bmc, Host, Labels, Meta, Reference};
use serde::Deserialize;

use crate::carried::Carried;
use crate::intake::Intake;
use crate::manifest::{NamespacedReference, local};
use crate::value;

const INFRAENV_LABEL: &str = "infraenvs.agent-install.openshift.io";
const NODE_LABEL_PREFIX: &str = "bmac.agent-install.openshift.io.node-label.";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BareMetalHostSpec {
    architecture: Carried,
    automated_cleaning_mode: Carried,
    bmc: Option<BmcDetails>,
    #[serde(rename = "bootMACAddress")]
    boot_mac_address: Option<Sourced<String>>,
    boot_mode: Option<Sourced<String>>,
    consumer_ref: Carried,
    custom_deploy: Carried,
    description: Carried,
    disable_power_off: Carried,
    externally_provisioned: Carried,
    firmware: Carried,
    hardware_profile: Carried,
    image: Carried,
    inspection_mode: Option<Sourced<String>>,
    meta_data: Carried,
    network_data: Option<NamespacedReference>,
    network_interfaces: Carried,
    online: Carried,
    preprovisioning_network_data_name: Option<Sourced<String>>,
    raid: Carried,
    root_device_hints: Option<Sourced<RootDeviceHints>>,
    taints: Carried,
    user_data: Carried,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct BmcDetails {
    address: Option<Sourced<String>>,
    credentials_name: Option<Sourced<String>>,
    disable_certificate_verification: Option<Sourced<bool>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RootDeviceHints {
    device_name: Option<Sourced<String>>,
    hctl: Option<Sourced<String>>,
    model: Option<Sourced<String>>,
    vendor: Option<Sourced<String>>,
    serial_number: Option<Sourced<String>>,
    min_size_gigabytes: Option<Sourced<u64>>,
    wwn: Option<Sourced<String>>,
    wwn_with_extension: Option<Sourced<String>>,
    wwn_vendor_extension: Option<Sourced<String>>,
    rotational: Option<Sourced<bool>>,
}

pub(crate) fn read(root: &Node, meta: Meta, intake: &mut Intake) {
    let spec: BareMetalHostSpec = intake.read_spec(root);
    let host = spec.convert(meta, &mut intake.findings);
    intake.world.hosts.push(host);
}

impl BareMetalHostSpec {
    fn convert(self, meta: Meta, findings: &mut Vec<Diagnostic>) -> Host {
        let BareMetalHostSpec {
            architecture: Carried,
            automated_cleaning_mode: Carried,
            bmc,
            boot_mac_address,
            boot_mode,
            consumer_ref: Carried,
            custom_deploy: Carried,
            description: Carried,
            disable_power_off: Carried,
            externally_provisioned: Carried,
            firmware: Carried,
            hardware_profile: Carried,
            image: Carried,
            inspection_mode,
            meta_data: Carried,
            network_data,
            network_interfaces: Carried,
            online: Carried,
            preprovisioning_network_data_name,
            raid: Carried,
            root_device_hints,
            taints: Carried,
            user_data: Carried,
        } = self;
        let agent = |name: &str| meta.annotations.get(&format!("bmac.agent-install.openshift.io/{name}")).cloned();
        let inspection_disabled = inspection_mode.is_some_and(|mode| mode.value == "disabled")
            || meta.annotations.get("inspect.metal3.io").is_some_and(|mode| mode.value == "disabled");
        let (disk_hints_at, disk_hints) =
            root_device_hints.map_or((None, Vec::new()), |hints| (Some(hints.at), hints.value.convert()));
        Host {
            hostname: agent("hostname"),
            role: agent("role").filter(|role| !role.is_empty()).and_then(|role| value::role(role, findings)),
            boot_mac: boot_mac_address.and_then(|mac| value::mac(mac, findings)),
            bmc: bmc.and_then(BmcDetails::convert),
            discovery: local(meta.labels.get(INFRAENV_LABEL).cloned()),
            cluster: agent("cluster-reference").and_then(|text| cluster_reference(text, findings)),
            pool: agent("machine-config-pool"),
            installer_args: agent("installer-args"),
            ignition_override: agent("ignition-config-overrides"),
            node_labels: node_labels(&meta.annotations),
            disk_hints,
            disk_hints_at,
            inspection_disabled,
            boot_mode,
            kernel_arguments: Vec::new(),
            network: None,
            nics: Vec::new(),
            ignition: None,
            site: None,
            network_secret: local(preprovisioning_network_data_name)
                .or_else(|| network_data.and_then(NamespacedReference::convert)),
            meta,
        }
    }
}

impl BmcDetails {
    pub(crate) fn convert(self) -> Option<Bmc> {
        let BmcDetails { address, credentials_name, disable_certificate_verification } = self;
        Some(Bmc {
            address: address?,
            credentials: local(credentials_name),
            insecure: disable_certificate_verification,
        })
    }
}

impl RootDeviceHints {
    /// Hints by name, in the order of the schema.
    pub(crate) fn convert(self) -> Vec<(String, Sourced<String>)> {
        let RootDeviceHints {
            device_name,
            hctl,
            model,
            vendor,
            serial_number,
            min_size_gigabytes,
            wwn,
            wwn_with_extension,
            wwn_vendor_extension,
            rotational,
        } = self;
        [
            ("deviceName", device_name),
            ("hctl", hctl),
            ("model", model),
            ("vendor", vendor),
            ("serialNumber", serial_number),
            ("minSizeGigabytes", min_size_gigabytes.map(|size| size.map(|size| size.to_string()))),
            ("wwn", wwn),
            ("wwnWithExtension", wwn_with_extension),
            ("wwnVendorExtension", wwn_vendor_extension),
            ("rotational", rotational.map(|truth| truth.map(|truth| truth.to_string()))),
        ]
        .into_iter()
        .filter_map(|(name, hint)| Some((name.to_owned(), hint?)))
        .collect()
    }
}

fn cluster_reference(text: Sourced<String>, findings: &mut Vec<Diagnostic>) -> Option<Reference> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Some(Reference { namespace: namespace.into(), name: name.into(), at: text.at })
        }
        _ => {
            findings.push(
                Diagnostic::new(Code(66), text.at, format!("`{text}` does not name a ClusterDeployment"))
                    .cause("the annotation cluster-reference is read as namespace/name; anything else binds the host to no cluster")
                    .help("write the ClusterDeployment's namespace and name with a slash between them, as in ztp/ztp"),
            );
            None
        }
    }
}

fn node_labels(annotations: &Labels) -> Labels {
    annotations
        .iter()
        .filter_map(|(key, label)| Some((key.strip_prefix(NODE_LABEL_PREFIX)?.to_owned(), label.clone())))
        .collect()
}
