//! The default gateways of the main table, from the kernel's two lists of routes.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    /// Of the gateway.
    pub address: IpAddr,
    /// The way to it.
    pub interface: String,
    /// The smallest counts.
    pub metric: u32,
}

/// The best of each family.
pub fn gateways() -> Vec<Gateway> {
    let best = |path, parse: fn(&str) -> Option<Gateway>| {
        read(path).lines().filter_map(parse).min_by_key(|gateway: &Gateway| gateway.metric)
    };
    let v4 = best("/proc/net/route", parse_route_v4);
    v4.into_iter().chain(best("/proc/net/ipv6_route", parse_route_v6)).collect()
}

/// A line of `/proc/net/route`, if it is a default route through a gateway.
pub fn parse_route_v4(line: &str) -> Option<Gateway> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [interface, destination, gateway, flags, _, _, metric, mask, ..] = fields[..] else { return None };
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    // RTF_UP and RTF_GATEWAY
    let usable = number(flags)? & 3 == 3 && number(destination)? == 0 && number(mask)? == 0;
    // The kernel prints the memory as a number of this machine's byte order.
    let address = Ipv4Addr::from(number(gateway)?.to_ne_bytes());
    usable.then_some(Gateway {
        address: IpAddr::V4(address),
        interface: interface.to_owned(),
        metric: metric.parse().ok()?,
    })
}

/// A line of `/proc/net/ipv6_route`, if it is a default route through a gateway.
pub fn parse_route_v6(line: &str) -> Option<Gateway> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [destination, prefix, _, _, gateway, metric, _, _, flags, interface] = fields[..] else { return None };
    let flags = u32::from_str_radix(flags, 16).ok()?;
    let usable = u128::from_str_radix(destination, 16).ok()? == 0 && prefix == "00" && flags & 3 == 3;
    let address = Ipv6Addr::from(u128::from_str_radix(gateway, 16).ok()?);
    let metric = u32::from_str_radix(metric, 16).ok()?;
    usable.then(|| Gateway { address: IpAddr::V6(address), interface: interface.to_owned(), metric })
}

/// At most a megabyte: a default route stands at the beginning, a routing daemon's table may be long.
fn read(path: &str) -> String {
    let mut text = Vec::new();
    // No list, no gateway.
    let _ = File::open(path).and_then(|file| file.take(1 << 20).read_to_end(&mut text));
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_routes_are_found_in_the_kernels_lists() {
        let v4 = "eth0\t00000000\tFE0200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0";
        let expected = Gateway { address: "192.0.2.254".parse().unwrap(), interface: "eth0".to_owned(), metric: 100 };
        assert_eq!(parse_route_v4(v4), Some(expected));
        for other in [
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT",
            "eth0\t000200C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0",
            "eth0\t00000000\t00000000\t0001\t0\t0\t100\t00000000\t0\t0\t0",
            "",
        ] {
            assert_eq!(parse_route_v4(other), None, "{other}");
        }
        let zeros = "0".repeat(32);
        let v6 = format!(
            "{zeros} 00 {zeros} 00 fe800000000000000000000000000001 00000064 00000001 00000000 00000003     eth0"
        );
        let expected = Gateway { address: "fe80::1".parse().unwrap(), interface: "eth0".to_owned(), metric: 100 };
        assert_eq!(parse_route_v6(&v6), Some(expected));
        assert_eq!(parse_route_v6(&v6.replace(" 00 ", " 40 ")), None);
    }
}
