//! Profiles for NICs whose kernel name is not known: matched by MAC address.
//!
//! An NMStateConfig calls NICs by logical names and maps each to its MAC address. The discovery service keeps the logical
//! names in the keyfiles and has a script on the node replace them, as text, by the names it finds there
//! ([`assisted_view`]). [`bind_to_macs`] needs no script: the Ethernet profile loses its name and gets the MAC address, and
//! whatever referred to the name refers to the profile's UUID, which NetworkManager accepts for controllers and parents.
//!
//! Names of bonds, bridges and VLANs are chosen, not found, and stay.

use crate::diagnostic::{Code, Diagnostic};
use crate::keyfile::{ConnectionFile, Keyfile};
use crate::world::NicMapping;

/// Groups whose `parent` may be the UUID of a profile.
const STACKED: [&str; 5] = ["vlan", "macvlan", "vxlan", "macsec", "ip-tunnel"];

/// Makes profiles right whatever the kernel calls the NICs. What has no other word than a name is reported.
pub fn bind_to_macs(files: &[ConnectionFile], nics: &[NicMapping]) -> (Vec<ConnectionFile>, Vec<Diagnostic>) {
    let mut bound = files.to_vec();
    if nics.is_empty() {
        return (bound, Vec::new());
    }
    for file in &mut bound {
        refer_by_uuid(&mut file.keyfile, files, nics);
        if let Some(nic) = nic_of(&file.keyfile, nics) {
            file.keyfile.remove("connection", "interface-name");
            file.keyfile.set("ethernet", "mac-address", &nic.mac.value.to_string().to_uppercase());
        }
    }
    let diagnostics =
        nics.iter().flat_map(|nic| files.iter().filter_map(|file| named_only(&file.keyfile, nic))).collect();
    (bound, diagnostics)
}

/// The files as the discovery service ships them, with logical names, and its table of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssistedView {
    /// Keyfiles that win against automatic profiles.
    pub files: Vec<ConnectionFile>,
    /// `mac_interface.ini`: one line `MAC=logical name` per NIC.
    pub mac_interface_ini: String,
}

/// What a stock pipeline carries to the node.
pub fn assisted_view(files: &[ConnectionFile], nics: &[NicMapping]) -> AssistedView {
    let mut files = files.to_vec();
    for file in &mut files {
        file.keyfile.set("connection", "autoconnect", "true");
        file.keyfile.set("connection", "autoconnect-priority", "1");
    }
    let lines = nics.iter().map(|nic| format!("{}={}\n", nic.mac, nic.name));
    AssistedView { files, mac_interface_ini: lines.collect() }
}

fn is_type(keyfile: &Keyfile, wanted: &str) -> bool {
    let found = keyfile.get("connection", "type").unwrap_or_default();
    found == wanted || (wanted == "ethernet" && found == "802-3-ethernet")
}

fn is_named(keyfile: &Keyfile, name: &str) -> bool {
    keyfile.get("connection", "interface-name").is_some_and(|found| found == name)
}

fn nic_of<'n>(keyfile: &Keyfile, nics: &'n [NicMapping]) -> Option<&'n NicMapping> {
    nics.iter().find(|nic| is_type(keyfile, "ethernet") && is_named(keyfile, nic.name.value.as_str()))
}

fn refer_by_uuid(keyfile: &mut Keyfile, files: &[ConnectionFile], nics: &[NicMapping]) {
    let uuid_of = |kind: &str, name: &str| {
        let owner = files.iter().find(|file| is_type(&file.keyfile, kind) && is_named(&file.keyfile, name))?;
        owner.keyfile.get("connection", "uuid").map(|uuid| uuid.into_owned())
    };
    // Bridge, port and interface of Open vSwitch share a name: only the type tells them apart.
    let controller = keyfile.get("connection", "master").map(|name| name.into_owned());
    let kind = keyfile.get("connection", "slave-type").map(|kind| kind.into_owned());
    if let (Some(name), Some(kind)) = (controller, kind)
        && let Some(uuid) = uuid_of(&kind, &name)
    {
        keyfile.set("connection", "master", &uuid);
    }
    for group in STACKED {
        let parent = keyfile.get(group, "parent").map(|name| name.into_owned());
        if let Some(name) = parent.filter(|name| nics.iter().any(|nic| nic.name.value.as_str() == name))
            && let Some(uuid) = uuid_of("ethernet", &name)
        {
            keyfile.set(group, "parent", &uuid);
        }
    }
}

/// Places where NetworkManager takes nothing but a kernel name.
fn named_only(keyfile: &Keyfile, nic: &NicMapping) -> Option<Diagnostic> {
    let name = nic.name.value.as_str();
    let option =
        ["primary", "active_slave"].into_iter().find(|key| keyfile.get("bond", key).is_some_and(|found| found == name));
    let what = match option {
        Some(option) => format!("bond option `{option}`"),
        None => {
            let rules = ["ipv4", "ipv6"].into_iter().flat_map(|group| keyfile.keys(group).map(move |key| (group, key)));
            let mut values = rules
                .filter(|(_, key)| key.starts_with("routing-rule"))
                .filter_map(|(group, key)| keyfile.get(group, key));
            let by_name = |rule: &str| {
                rule.split(' ')
                    .collect::<Vec<_>>()
                    .windows(2)
                    .any(|pair| matches!(pair[0], "iif" | "oif") && pair[1] == name)
            };
            values.any(|rule| by_name(&rule)).then(|| "a route rule".to_owned())?
        }
    };
    let id = keyfile.get("connection", "id").unwrap_or_default();
    let message = format!("{what} of `{id}` names `{name}`, whose kernel name is not known");
    Some(
        Diagnostic::new(Code(0236), nic.name.at, message)
            .cause("NetworkManager takes only kernel names there; a MAC address or a UUID would not be understood")
            .help(format!("use the name the kernel gives the NIC instead of `{name}`, or do without {what}")),
    )
}
