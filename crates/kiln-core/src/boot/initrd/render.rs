//! A profile as a keyfile, with groups and keys in the order libnm writes them.

use crate::keyfile::{ConnectionFile, Keyfile};

use super::profile::{Family, Infiniband, Kind, Method, Profile, Wired};
use super::scan;

/// The file of a profile; none for the nameless one.
pub(super) fn file(profile: &Profile) -> Option<ConnectionFile> {
    let name = format!("{}.nmconnection", file_name(profile.name.as_deref()?));
    Some(ConnectionFile { name, mode: 0o600, keyfile: keyfile(profile) })
}

/// A name that no one takes for a hidden file or a backup.
fn file_name(name: &str) -> String {
    let mut name = name.replace('/', "*");
    for (wrong, at_start) in [('.', true), ('~', false)] {
        if at_start && name.starts_with(wrong) {
            name.replace_range(..1, "_");
        } else if !at_start && name.ends_with(wrong) {
            name.replace_range(name.len() - 1.., "_");
        }
    }
    name
}

fn keyfile(profile: &Profile) -> Keyfile {
    let mut file = Keyfile::default();
    connection(&mut file, profile);
    if let Some(wired) = &profile.wired {
        ethernet(&mut file, wired);
    }
    if let Some(options) = &profile.bond {
        for (name, value) in options {
            file.set("bond", name, value);
        }
    }
    if profile.bridge {
        file.set("bridge", "stp", "false");
    }
    if let Some(device) = &profile.infiniband {
        infiniband(&mut file, device);
    }
    if profile.team {
        file.add_group("team");
    }
    if let Some(vlan) = &profile.vlan {
        file.set("vlan", "flags", "1");
        if vlan.id != 0 {
            file.set("vlan", "id", &vlan.id.to_string());
        }
        if let Some(parent) = &vlan.parent {
            file.set("vlan", "parent", parent);
        }
    }
    match profile.controller {
        Some((Kind::Bridge, _)) => file.add_group("bridge-port"),
        Some((Kind::Team, _)) => file.add_group("team-port"),
        Some(_) => {}
        None => {
            family(&mut file, "ipv4", &profile.ipv4);
            family(&mut file, "ipv6", &profile.ipv6);
            file.add_group("proxy");
        }
    }
    file.set("user", "org.freedesktop.NetworkManager.origin", "nm-initrd-generator");
    file.set_opening("Created by nm-initrd-generator");
    file
}

fn connection(file: &mut Keyfile, profile: &Profile) {
    let mut set = |key: &str, value: &str| file.set("connection", key, value);
    set("id", &profile.id);
    set("uuid", &profile.uuid.to_string());
    set("type", profile.kind.name());
    set("autoconnect-priority", if profile.from_boot_loader { "-200" } else { "-100" });
    set("autoconnect-retries", "1");
    if let Some(interface) = &profile.interface {
        set("interface-name", interface);
    }
    if let Some((_, uuid)) = profile.controller {
        set("master", &uuid.to_string());
    }
    set("multi-connect", if profile.shared { "3" } else { "1" });
    if let Some((kind, _)) = profile.controller {
        set("slave-type", kind.name());
    }
    if profile.wait_device {
        set("wait-device-timeout", "60000");
    }
}

fn ethernet(file: &mut Keyfile, wired: &Wired) {
    file.add_group("ethernet");
    let mut set = |key: &str, value: &str| file.set("ethernet", key, value);
    if wired.auto_negotiate {
        set("auto-negotiate", "true");
    }
    if let Some(mac) = &wired.cloned_mac {
        set("cloned-mac-address", mac);
    }
    if wired.full_duplex {
        set("duplex", "full");
    }
    if let Some(mac) = &wired.mac {
        set("mac-address", mac);
    }
    if wired.mtu != 0 {
        set("mtu", &wired.mtu.to_string());
    }
    if let Some(nettype) = &wired.s390_nettype {
        set("s390-nettype", nettype);
    }
    if !wired.s390_subchannels.is_empty() {
        set("s390-subchannels", &format!("{};", wired.s390_subchannels.join(";")));
    }
    if wired.speed != 0 {
        set("speed", &wired.speed.to_string());
    }
    for (name, value) in &wired.s390_options {
        file.set("ethernet-s390-options", name, value);
    }
}

fn infiniband(file: &mut Keyfile, infiniband: &Infiniband) {
    let mut set = |key: &str, value: &str| file.set("infiniband", key, value);
    if let Some(mac) = &infiniband.mac {
        set("mac-address", mac);
    }
    if let Some((parent, key)) = &infiniband.partition {
        set("p-key", &key.to_string());
        set("parent", parent);
    }
    if infiniband.datagram {
        set("transport-mode", "datagram");
    }
}

fn family(file: &mut Keyfile, group: &str, family: &Family) {
    let mut set = |key: &str, value: &str| file.set(group, key, value);
    for (index, (address, prefix)) in family.addresses.iter().enumerate() {
        let gateway = family.gateway.filter(|_| index == 0).map(|gateway| format!(",{}", scan::show(gateway)));
        let value = format!("{}/{prefix}{}", scan::show(*address), gateway.unwrap_or_default());
        set(&format!("address{}", index + 1), &value);
    }
    if let Some(hostname) = &family.dhcp_hostname {
        set("dhcp-hostname", hostname);
    }
    set("dhcp-timeout", &family.dhcp_timeout.to_string());
    if let Some(class) = &family.vendor_class {
        set("dhcp-vendor-class-identifier", class);
    }
    if !family.dns.is_empty() {
        set("dns", &family.dns.iter().map(|server| format!("{};", scan::show(*server))).collect::<String>());
    }
    if family.ignore_auto_dns {
        set("ignore-auto-dns", "true");
    }
    if !family.may_fail {
        set("may-fail", "false");
    }
    let method = match family.method {
        Method::Auto => "auto",
        Method::Manual => "manual",
        Method::Disabled => "disabled",
        Method::LinkLocal => "link-local",
    };
    set("method", method);
    if let Some(timeout) = family.required_timeout {
        set("required-timeout", &timeout.to_string());
    }
    for (index, (net, prefix, gateway)) in family.routes.iter().enumerate() {
        let gateway = gateway.map(|gateway| format!(",{}", scan::show(gateway))).unwrap_or_default();
        set(&format!("route{}", index + 1), &format!("{}/{prefix}{gateway}", scan::show(*net)));
    }
}
