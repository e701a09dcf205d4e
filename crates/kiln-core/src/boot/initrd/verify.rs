//! NetworkManager's own check of a profile. One that fails it is printed about and not written.

use super::bond;
use super::profile::{Family, Method, Profile};
use super::scan;

/// Brings a profile into its written form, or says which rule it breaks.
pub(super) fn normalise(profile: &mut Profile) -> Result<(), String> {
    if let Some(interface) = &profile.interface
        && !bond::is_kernel_interface(interface)
    {
        return Err(format!("`{interface}` is not allowed as an interface name"));
    }
    if profile.interface.is_none() && (profile.bond.is_some() || profile.bridge || profile.team) {
        return Err(format!("a {} needs an interface name, not a MAC address", profile.kind.name()));
    }
    check_wired(profile)?;
    check_infiniband(profile)?;
    if let Some(options) = &mut profile.bond {
        bond::normalise(options, profile.infiniband.is_some())?;
    }
    check_vlan(profile)?;
    // Ports are checked too, although their addresses are not written.
    check_family(&profile.ipv4, "IPv4")?;
    check_family(&profile.ipv6, "IPv6")?;
    for family in [&mut profile.ipv4, &mut profile.ipv6] {
        family.may_fail |= family.method == Method::Disabled;
    }
    if profile.vlan.is_some() || profile.bridge {
        profile.wired();
    }
    Ok(())
}

fn check_wired(profile: &Profile) -> Result<(), String> {
    let Some(wired) = &profile.wired else { return Ok(()) };
    if let Some(mac) = &wired.mac
        && scan::hardware_address_of(mac, 6).is_none()
    {
        return Err(format!("`{mac}` is not the MAC address of an Ethernet device"));
    }
    if let Some(mac) = &wired.cloned_mac
        && scan::hardware_address_of(mac, 6).is_none()
        && !matches!(mac.as_str(), "preserve" | "permanent" | "random" | "stable")
    {
        return Err(format!("`{mac}` is not a MAC address"));
    }
    if let Some(nettype) = &wired.s390_nettype
        && !matches!(nettype.as_str(), "qeth" | "lcs" | "ctc")
    {
        return Err(format!("`{nettype}` is no s390 network type (qeth, lcs, ctc)"));
    }
    Ok(())
}

fn check_infiniband(profile: &Profile) -> Result<(), String> {
    let Some(infiniband) = &profile.infiniband else { return Ok(()) };
    if let Some(mac) = &infiniband.mac
        && scan::hardware_address_of(mac, 20).is_none()
    {
        return Err(format!("`{mac}` is not the address of an InfiniBand device"));
    }
    if !infiniband.datagram {
        return Err("an InfiniBand profile needs a transport mode".to_owned());
    }
    if let (Some((parent, key)), Some(interface)) = (&infiniband.partition, &profile.interface) {
        if parent.is_empty() {
            return Err("an InfiniBand partition needs a parent".to_owned());
        }
        let wanted = format!("{parent}.{key:04x}");
        if *interface != wanted {
            return Err(format!("the interface must be called `{wanted}`, not `{interface}`"));
        }
    }
    Ok(())
}

fn check_vlan(profile: &Profile) -> Result<(), String> {
    let Some(vlan) = &profile.vlan else { return Ok(()) };
    match &vlan.parent {
        None if profile.wired.as_ref().is_none_or(|wired| wired.mac.is_none()) => {
            return Err("the VLAN has no parent".to_owned());
        }
        Some(parent) if !scan::is_interface_name(parent) => {
            return Err(format!("`{parent}` is not an interface name for a VLAN's parent"));
        }
        _ => {}
    }
    if vlan.id > 4094 {
        return Err(format!("VLAN id {} is above 4094", vlan.id));
    }
    Ok(())
}

fn check_family(family: &Family, version: &str) -> Result<(), String> {
    if family.gateway.is_some() && family.addresses.is_empty() {
        return Err(format!("an {version} gateway needs an {version} address"));
    }
    let off = match family.method {
        Method::Auto | Method::Manual => return Ok(()),
        Method::Disabled => "switched off",
        Method::LinkLocal => "link-local only",
    };
    if !family.addresses.is_empty() {
        return Err(format!("{version} is {off} and yet has an address"));
    }
    if !family.dns.is_empty() {
        return Err(format!("{version} is {off} and yet has a name server"));
    }
    Ok(())
}
