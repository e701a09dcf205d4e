//! Interfaces, addresses and default routes, from `/sys`, `/proc` and the kernel's list of addresses.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use kiln_core::beacon::{DefaultRoute, Interface};
use kiln_core::network::choice::Nic;
use nix::ifaddrs::getifaddrs;

use crate::folder::read_bounded;
use crate::root::Root;

const SYS: &str = "/sys/class/net";
const LONGEST_TABLE: usize = 4 << 20;
/// Flags of a route: it leads through a gateway; it refuses.
const GATEWAY: u32 = 0x2;
const REJECT: u32 = 0x200;

/// What is seen of the network.
pub struct Seen {
    /// All but the loopback, by name.
    pub interfaces: Vec<Interface>,
    /// Those that are cards and not made by a profile.
    pub nics: Vec<Nic>,
    /// The preferred one first.
    pub default_routes: Vec<DefaultRoute>,
}

/// Looks.
pub fn observe(root: &Root) -> Seen {
    let folder = root.at(SYS);
    let mut names: Vec<String> = fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name != "lo" && name != "bonding_masters")
        .collect();
    names.sort();
    // A folder that stands for a machine has no addresses, and this machine's are not its.
    let live = fs::canonicalize(&folder).is_ok_and(|folder| folder == Path::new(SYS));
    let addresses = if live { addresses() } else { BTreeMap::new() };
    let text = |name: &str, file: &str| {
        let bytes = read_bounded(&folder.join(name).join(file), 4096).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned()).filter(|text| !text.is_empty())
    };
    let interface = |name: &String| Interface {
        name: name.clone(),
        mac: text(name, "address"),
        up: text(name, "carrier").as_deref() == Some("1"),
        addresses: addresses.get(name).cloned().unwrap_or_default(),
    };
    let nic = |name: &String| Nic {
        name: name.parse().ok(),
        // A bond gives its ports its own address.
        mac: text(name, "bonding_slave/perm_hwaddr").or_else(|| text(name, "address")).and_then(|mac| mac.parse().ok()),
    };
    let is_made =
        |name: &&String| fs::canonicalize(folder.join(name)).is_ok_and(|path| path.starts_with("/sys/devices/virtual"));
    Seen {
        interfaces: names.iter().map(interface).collect(),
        nics: names.iter().filter(|name| !is_made(name)).map(nic).collect(),
        default_routes: default_routes(root),
    }
}

fn addresses() -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in getifaddrs().into_iter().flatten() {
        let (Some(address), Some(mask)) = (entry.address, entry.netmask) else { continue };
        let (address, prefix) = if let (Some(address), Some(mask)) = (address.as_sockaddr_in(), mask.as_sockaddr_in()) {
            (IpAddr::V4(address.ip()), u32::from(mask.ip()).count_ones())
        } else if let (Some(address), Some(mask)) = (address.as_sockaddr_in6(), mask.as_sockaddr_in6()) {
            (IpAddr::V6(address.ip()), u128::from(mask.ip()).count_ones())
        } else {
            continue;
        };
        let local = match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        if !local {
            found.entry(entry.interface_name).or_default().push(format!("{address}/{prefix}"));
        }
    }
    found
}

fn default_routes(root: &Root) -> Vec<DefaultRoute> {
    let table = |path: &str| {
        let bytes = read_bounded(&root.at(path), LONGEST_TABLE).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let mut routes: Vec<(u32, DefaultRoute)> = Vec::new();
    routes.extend(table("/proc/net/route").lines().filter_map(parse_route));
    routes.extend(table("/proc/net/ipv6_route").lines().filter_map(parse_ipv6_route));
    routes.sort_by_key(|(metric, _)| *metric);
    routes.into_iter().map(|(_, route)| route).collect()
}

/// `Iface Destination Gateway Flags RefCnt Use Metric Mask …`, addresses as the machine has them in memory.
fn parse_route(line: &str) -> Option<(u32, DefaultRoute)> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [interface, "00000000", gateway, flags, _, _, metric, "00000000", ..] = words.as_slice() else { return None };
    let flags = u32::from_str_radix(flags, 16).ok()?;
    let gateway = Ipv4Addr::from(u32::from_str_radix(gateway, 16).ok()?.to_ne_bytes());
    let gateway = (flags & GATEWAY != 0).then(|| gateway.to_string());
    (flags & REJECT == 0)
        .then_some((metric.parse().ok()?, DefaultRoute { gateway, interface: (*interface).to_owned() }))
}

/// `destination prefix source prefix gateway metric references use flags interface`.
fn parse_ipv6_route(line: &str) -> Option<(u32, DefaultRoute)> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [destination, "00", _, _, gateway, metric, _, _, flags, interface] = words.as_slice() else { return None };
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    let flags = number(flags)?;
    let destination = u128::from_str_radix(destination, 16).ok()?;
    let gateway = Ipv6Addr::from(u128::from_str_radix(gateway, 16).ok()?);
    let gateway = (flags & GATEWAY != 0).then(|| gateway.to_string());
    let leads_out = destination == 0 && flags & REJECT == 0 && *interface != "lo";
    leads_out.then_some((number(metric)?, DefaultRoute { gateway, interface: (*interface).to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_routes_are_found_among_others() {
        let route = |metric, gateway: Option<&str>, interface: &str| {
            Some((metric, DefaultRoute { gateway: gateway.map(str::to_owned), interface: interface.to_owned() }))
        };
        for (line, expected) in [
            (
                "bond0.110\t00000000\t010B000A\t0003\t0\t0\t400\t00000000\t0\t0\t0",
                route(400, Some("10.0.11.1"), "bond0.110"),
            ),
            ("ppp0\t00000000\t00000000\t0001\t0\t0\t0\t00000000\t0\t0\t0", route(0, None, "ppp0")),
            ("eth0\t000B000A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0", None),
            ("Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT", None),
            ("", None),
        ] {
            assert_eq!(parse_route(line), expected, "{line}");
        }
        let zeros = "0".repeat(32);
        let gateway = format!("fd00{}1", "0".repeat(27));
        for (line, expected) in [
            (
                format!("{zeros} 00 {zeros} 00 {gateway} 00000064 1 0 00450003 eth0"),
                route(100, Some("fd00::1"), "eth0"),
            ),
            (format!("{zeros} 00 {zeros} 00 {zeros} ffffffff 1 0 00200200 lo"), None),
            (format!("{gateway} 40 {zeros} 00 {zeros} 00000100 1 0 00000001 eth0"), None),
        ] {
            assert_eq!(parse_ipv6_route(&line), expected, "{line}");
        }
    }
}
