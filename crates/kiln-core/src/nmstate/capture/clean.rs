//! A profile without what belongs to one moment of one machine.

use uuid::Uuid;

use crate::diagnostic::{Code, Diagnostic};
use crate::keyfile::{ConnectionFile, Keyfile};

/// What NetworkManager writes down about a profile and nobody configured.
const VOLATILE: [(&str, &str); 4] =
    [("connection", "timestamp"), ("connection", "permissions"), ("wifi", "seen-bssids"), ("connection", "read-only")];

/// Keys that say what is true without them. Only where a missing key means the same in a keyfile: `addr-gen-mode` and
/// `vlan.flags`, for example, have another default when they are missing than when nmcli makes the profile.
const DEFAULTS: [(&str, &str, &str); 14] = [
    ("connection", "autoconnect-priority", "0"),
    ("connection", "autoconnect-slaves", "-1"),
    ("connection", "multi-connect", "0"),
    ("connection", "lldp", "-1"),
    ("ip", "may-fail", "true"),
    ("ip", "never-default", "false"),
    ("ip", "ignore-auto-dns", "false"),
    ("ip", "ignore-auto-routes", "false"),
    ("ip", "dhcp-send-hostname", "true"),
    ("ip", "route-metric", "-1"),
    ("ip", "route-table", "0"),
    ("ip", "dad-timeout", "-1"),
    ("ip", "dns-priority", "0"),
    ("ip", "dhcp-timeout", "0"),
];

/// The cleaned profile, or nothing when it is not configuration.
pub fn clean(file: &ConnectionFile, diagnostics: &mut Vec<Diagnostic>) -> Option<ConnectionFile> {
    if let Some(reason) = not_configuration(&file.keyfile) {
        let id = file.keyfile.get("connection", "id").unwrap_or_default();
        let message = format!("{}: the profile `{id}` is not captured: {reason}", file.name);
        diagnostics.push(
            Diagnostic::new(Code(0241), None, message)
                .cause("it describes what something else configured on this machine")
                .help("nothing to do; clone it with nmcli to make it a profile of its own"),
        );
        return None;
    }
    let mut keyfile = file.keyfile.clone();
    keyfile.remove_group(".nmmeta");
    VOLATILE.iter().for_each(|(group, key)| keyfile.remove(group, key));
    for (group, key, value) in DEFAULTS {
        let groups: &[&str] = if group == "ip" { &["ipv4", "ipv6"] } else { &[group] };
        for group in groups {
            if keyfile.raw(group, key).is_some_and(|found| found == value) {
                keyfile.remove(group, key);
            }
        }
    }
    remove_empty(&mut keyfile);
    if keyfile.get("connection", "uuid").is_none() {
        keyfile.set("connection", "uuid", &stable_uuid(&keyfile, &file.name));
    }
    let stem = file.name.strip_suffix(".nmconnection").unwrap_or(&file.name);
    Some(ConnectionFile::new(format!("{stem}.nmconnection"), keyfile))
}

fn not_configuration(keyfile: &Keyfile) -> Option<&'static str> {
    let marked = |key: &str| keyfile.get(".nmmeta", key).is_some_and(|value| value == "true");
    if keyfile.get("connection", "type").is_some_and(|kind| kind == "loopback") {
        Some("it is the loopback's")
    } else if marked("nm-generated") {
        Some("NetworkManager made it by itself")
    } else if marked("external") {
        Some("it mirrors an interface made by another program")
    } else if marked("volatile") {
        Some("it disappears with its interface")
    } else {
        None
    }
}

/// Keys without a value, and groups without a key. `[bond]` and its like stay: they are part of the profile's type.
fn remove_empty(keyfile: &mut Keyfile) {
    let groups: Vec<String> = keyfile.groups().map(str::to_owned).collect();
    for group in groups {
        let keys: Vec<String> = keyfile.keys(&group).map(str::to_owned).collect();
        for key in &keys {
            if keyfile.raw(&group, key).is_some_and(str::is_empty) {
                keyfile.remove(&group, key);
            }
        }
        let optional = ["proxy", "ethernet", "802-3-ethernet", "ethtool", "user", "match", "bond-port", "bridge-port"];
        if optional.contains(&group.as_str()) && keyfile.keys(&group).next().is_none() {
            keyfile.remove_group(&group);
        }
    }
}

/// NetworkManager would derive one from the path of the file, which changes when the file is copied.
fn stable_uuid(keyfile: &Keyfile, file: &str) -> String {
    let kind = keyfile.get("connection", "type").unwrap_or_default();
    let name = keyfile.get("connection", "interface-name").unwrap_or(file.into());
    Uuid::new_v5(&Uuid::NAMESPACE_URL, format!("{kind}://{name}").as_bytes()).hyphenated().to_string()
}
