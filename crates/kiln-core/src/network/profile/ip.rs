//! `[ipv4]` and `[ipv6]`: method, addresses, gateway, routes, name servers.
//!
//! Lists are spread over numbered keys (`address1`, `address2`). NetworkManager reads first the key without number, then by
//! number; gaps do not matter. An address without prefix length gets 24 or 64, not 32 or 128.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use super::fits;
use crate::keyfile::Keyfile;

/// One address family of a profile.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IpSettings {
    /// Whether the group stands in the file at all.
    pub present: bool,
    /// `auto`, `manual`, `disabled`, ….
    pub method: Option<String>,
    /// Addresses in order.
    pub addresses: Vec<IpNet>,
    /// The default gateway: `gateway=`, or the one behind the first address that has one.
    pub gateway: Option<IpAddr>,
    /// Routes in order.
    pub routes: Vec<Route>,
    /// Name servers.
    pub dns: Vec<IpAddr>,
}

/// One static route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Where to.
    pub destination: IpNet,
    /// Via whom; none is the link itself.
    pub next_hop: Option<IpAddr>,
    /// Lower is preferred.
    pub metric: Option<u32>,
    /// `routeN_options` as written: `table=5,mtu=1400`.
    pub options: Option<String>,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.destination.fmt(f)?;
        self.next_hop.iter().try_for_each(|hop| write!(f, " via {hop}"))?;
        self.metric.iter().try_for_each(|metric| write!(f, " metric {metric}"))?;
        self.options.iter().try_for_each(|options| write!(f, " ({options})"))
    }
}

impl IpSettings {
    /// Reads group `ipv4` or `ipv6`.
    pub(crate) fn read(keyfile: &Keyfile, group: &str) -> IpSettings {
        let lines = numbered(keyfile, group, "address");
        let addresses: Vec<_> = lines.iter().filter_map(|key| address(&keyfile.get(group, key)?, group)).collect();
        let gateway = keyfile.get(group, "gateway").and_then(|gateway| gateway.parse().ok());
        IpSettings {
            present: keyfile.groups().any(|candidate| candidate == group),
            method: keyfile.get(group, "method").map(String::from),
            gateway: gateway.or_else(|| addresses.iter().find_map(|(_, gateway)| *gateway)),
            addresses: addresses.into_iter().map(|(address, _)| address).collect(),
            routes: numbered(keyfile, group, "route").iter().filter_map(|key| route(keyfile, group, key)).collect(),
            dns: keyfile
                .get_list(group, "dns")
                .into_iter()
                .flatten()
                .filter_map(|server| server.parse().ok())
                .filter(|server| fits(group, *server))
                .collect(),
        }
    }
}

/// The keys of a spread list (`address`, `addresses`, `address1`, …) in the order NetworkManager reads them.
pub(crate) fn numbered(keyfile: &Keyfile, group: &str, stem: &str) -> Vec<String> {
    let place = |key: &str| {
        let rest = key.strip_prefix(stem)?;
        let plural = rest.strip_prefix("es").or_else(|| rest.strip_prefix('s')).filter(|_| stem != "routing-rule");
        let digits = plural.unwrap_or(rest);
        let number = if digits.is_empty() { Some(-1) } else { plain_number(digits) };
        number.map(|number| (number, plural.is_some()))
    };
    let mut keys: Vec<_> = keyfile.keys(group).filter_map(|key| Some((place(key)?, key))).collect();
    keys.sort_unstable();
    keys.into_iter().map(|(_, key)| key.to_owned()).collect()
}

fn plain_number(digits: &str) -> Option<i64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// `192.0.2.10/24,192.0.2.1`, or in the spelling of long ago `192.0.2.10;24;192.0.2.1;`.
fn address(text: &str, group: &str) -> Option<(IpNet, Option<IpAddr>)> {
    let (address, rest) = network(&parts(text), group)?;
    Some((address, rest.first().and_then(|gateway| host(gateway, group))))
}

fn route(keyfile: &Keyfile, group: &str, key: &str) -> Option<Route> {
    let (destination, rest) = network(&parts(&keyfile.get(group, key)?), group)?;
    Some(Route {
        destination: destination.trunc(),
        next_hop: rest.first().and_then(|hop| host(hop, group)),
        metric: rest.get(1).and_then(|metric| metric.parse().ok()),
        options: keyfile.get(group, &format!("{key}_options")).map(String::from),
    })
}

pub(super) fn parts(text: &str) -> Vec<String> {
    text.split([',', ';']).map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

/// The network the parts begin with, and the parts behind it.
pub(super) fn network(parts: &[String], group: &str) -> Option<(IpNet, Vec<String>)> {
    let (first, rest) = parts.split_first()?;
    let (address, prefix, rest) = match (first.split_once('/'), rest.split_first()) {
        (Some((address, prefix)), _) => (address, prefix.parse().ok()?, rest),
        (None, Some((prefix, behind))) if prefix.parse::<u8>().is_ok() => {
            (first.as_str(), prefix.parse().ok()?, behind)
        }
        (None, _) => (first.as_str(), if group == "ipv4" { 24 } else { 64 }, rest),
    };
    let address: IpAddr = address.parse().ok().filter(|address| fits(group, *address))?;
    Some((IpNet::new(address, prefix).ok()?, rest.to_vec()))
}

/// An address of a neighbour. `0.0.0.0` and `::` are how "none" is written.
fn host(text: &str, group: &str) -> Option<IpAddr> {
    text.parse().ok().filter(|address: &IpAddr| fits(group, *address) && !address.is_unspecified())
}
