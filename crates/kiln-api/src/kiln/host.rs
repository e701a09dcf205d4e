//! `Host` (kiln.dev/v1alpha1): one machine for its whole life, all in one object.
//!
//! ```yaml
//! apiVersion: kiln.dev/v1alpha1
//! kind: Host
//! metadata: {name: worker-0, namespace: site-a}
//! spec:
//!   macAddress: 52:54:00:aa:00:10
//!   bmc: {address: redfish-virtualmedia://10.0.0.10/redfish/v1/Systems/1, credentialsName: worker-0-bmc}
//!   role: worker
//!   nics: [{name: eth0, macAddress: 52:54:00:aa:00:10}]
//!   network: {interfaces: [{name: eth0, type: ethernet, state: up, ipv4: {enabled: true, dhcp: true}}]}
//! ```

use kiln_core::diagnostic::Diagnostic;
use kiln_core::document::Node;
use kiln_core::source::Sourced;
use kiln_core::world::{Host, Meta};
use serde::Deserialize;

use crate::agent_install::nm_state_config::NicEntry;
use crate::intake::Intake;
use crate::manifest::NamespacedReference;
use crate::metal3::bare_metal_host::{BmcDetails, RootDeviceHints};
use crate::value;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct HostSpec {
    /// Management controller, in the words of BareMetalHost.
    bmc: Option<BmcDetails>,
    /// UEFI, UEFISecureBoot or legacy.
    boot_mode: Option<Sourced<String>>,
    /// Cluster it joins.
    cluster: Option<NamespacedReference>,
    /// Hostname; without one the object's name.
    hostname: Option<Sourced<String>>,
    /// Ignition config merged over the pool's.
    ignition: Option<Node>,
    /// Which disk to install on, in the words of BareMetalHost's `rootDeviceHints`.
    install_disk: Option<Sourced<RootDeviceHints>>,
    /// Kernel arguments of the installed system.
    kernel_arguments: Vec<Sourced<String>>,
    /// Address of the NIC it boots from.
    mac_address: Option<Sourced<String>>,
    /// nmstate document, honoured at every phase.
    network: Option<Node>,
    /// Which NIC each name in `network` stands for.
    nics: Vec<NicEntry>,
    /// Labels of its Node.
    node_labels: Option<Node>,
    /// Pool it belongs to.
    pool: Option<Sourced<String>>,
    /// master, worker or arbiter.
    role: Option<Sourced<String>>,
    /// Site it stands at.
    site: Option<Sourced<String>>,
}

pub(crate) fn read(root: &Node, meta: Meta, intake: &mut Intake) {
    let spec: HostSpec = intake.read_spec(root);
    let host = spec.convert(meta, &mut intake.findings);
    intake.world.hosts.push(host);
}

impl HostSpec {
    fn convert(self, meta: Meta, findings: &mut Vec<Diagnostic>) -> Host {
        let HostSpec {
            bmc,
            boot_mode,
            cluster,
            hostname,
            ignition,
            install_disk,
            kernel_arguments,
            mac_address,
            network,
            nics,
            node_labels,
            pool,
            role,
            site,
        } = self;
        let (disk_hints_at, disk_hints) =
            install_disk.map_or((None, Vec::new()), |hints| (Some(hints.at), hints.value.convert()));
        let named = (!meta.id.name.is_empty()).then(|| Sourced::new(meta.id.name.clone(), meta.at));
        Host {
            hostname: hostname.or(named),
            role: role.and_then(|role| value::role(role, findings)),
            boot_mac: mac_address.and_then(|mac| value::mac(mac, findings)),
            bmc: bmc.and_then(BmcDetails::convert),
            discovery: None,
            cluster: cluster.and_then(NamespacedReference::convert),
            pool,
            installer_args: None,
            ignition_override: None,
            node_labels: value::labels(node_labels.as_ref(), findings),
            disk_hints,
            disk_hints_at,
            inspection_disabled: false,
            boot_mode,
            kernel_arguments,
            network: network.filter(|document| !document.is_null()),
            nics: nics.into_iter().filter_map(|nic| nic.convert(findings)).collect(),
            ignition: ignition.filter(|config| !config.is_null()),
            site,
            network_secret: None,
            meta,
        }
    }
}
