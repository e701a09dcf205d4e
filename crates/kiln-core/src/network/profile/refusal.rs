//! Why NetworkManager refuses a whole file, as far as a file alone can tell.
//!
//! The rules that people meet, in NetworkManager's order; not every property of every kind is checked.

use super::{IpSettings, Profile};
use crate::keyfile::{ConnectionFile, Keyfile};
use crate::net::{ConnectionUuid, InterfaceName};

/// Why NetworkManager will not load a profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Passed over without reading: mode, name.
    #[error(transparent)]
    Ignored(#[from] crate::keyfile::Ignored),
    /// Read and found wrong.
    #[error("{0}")]
    Invalid(String),
}

impl Profile {
    /// Why NetworkManager will not load this file from `/etc/NetworkManager/system-connections`, if so.
    pub fn refusal(file: &ConnectionFile) -> Option<Refusal> {
        let profile = Profile::read(file);
        file.ignored().map(Refusal::Ignored).or_else(|| profile.invalid(&file.keyfile).map(Refusal::Invalid))
    }

    fn invalid(&self, keyfile: &Keyfile) -> Option<String> {
        let written = |key| keyfile.get("connection", key).filter(|value| !value.is_empty());
        let Some(kind) = &self.kind else {
            return Some("`[connection]` has no `type`; write for example `type=ethernet`".to_owned());
        };
        if let Some(Err(refusal)) = written("uuid").map(|uuid| uuid.parse::<ConnectionUuid>()) {
            return Some(refusal.to_string());
        }
        if let Some(Err(refusal)) = written("interface-name").map(|name| name.parse::<InterfaceName>()) {
            return Some(refusal.to_string());
        }
        match (&self.controller, &self.port_type) {
            (Some(controller), None) => {
                return Some(format!(
                    "it is a port of {controller} without `slave-type`; write for example `slave-type=bond`"
                ));
            }
            (None, Some(_)) => return Some("`slave-type` needs `master`; name the controller or remove it".to_owned()),
            _ => {}
        }
        if kind == "vlan" && self.parent.is_none() && self.mac.is_none() {
            return Some("the VLAN has no `parent` in `[vlan]`".to_owned());
        }
        let named_by_kernel = ["vlan", "macvlan", "vxlan", "ip-tunnel", "tun"].contains(&kind.as_str());
        if self.is_virtual() && !named_by_kernel && self.interface.is_none() {
            return Some(format!("a {kind} needs `interface-name` in `[connection]`"));
        }
        refused_family("ipv4", &self.ipv4, keyfile).or_else(|| refused_family("ipv6", &self.ipv6, keyfile))
    }
}

fn refused_family(group: &str, settings: &IpSettings, keyfile: &Keyfile) -> Option<String> {
    if !settings.present {
        return None;
    }
    let Some(method) = settings.method.as_deref() else {
        let method = if settings.addresses.is_empty() { "auto" } else { "manual" };
        return Some(format!("`[{group}]` has no `method`; write for example `method={method}`"));
    };
    let known: &[&str] = match group {
        "ipv4" => &["auto", "manual", "disabled", "link-local", "shared"],
        _ => &["auto", "manual", "disabled", "link-local", "shared", "dhcp", "ignore"],
    };
    if !known.contains(&method) {
        return Some(format!("`[{group}] method={method}` is not one of {}", known.join(", ")));
    }
    if method == "manual" && settings.addresses.is_empty() {
        return Some(format!("`[{group}] method=manual` needs an address; write for example `address1=…/…`"));
    }
    let not_allowed = match method {
        _ if !settings.addresses.is_empty() && matches!(method, "disabled" | "link-local" | "ignore") => "addresses",
        _ if settings.dns.is_empty() && keyfile.raw(group, "dns-search").is_none_or(str::is_empty) => "",
        "disabled" | "link-local" | "ignore" | "shared" => "name servers or search domains",
        _ => "",
    };
    if !not_allowed.is_empty() {
        return Some(format!(
            "`[{group}] method={method}` does not allow {not_allowed}; remove them or change the method"
        ));
    }
    (settings.gateway.is_some() && settings.addresses.is_empty())
        .then(|| format!("`[{group}]` has a gateway but no address; add the address or remove the gateway"))
}
