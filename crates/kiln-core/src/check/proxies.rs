//! Proxy and time sources (rule R19): their form, and whether what must be reached directly is excepted.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use super::Rule;
use super::context::Context;
use super::words::listed;
use crate::diagnostic::{Code, Diagnostic};
use crate::source::Sourced;
use crate::world::{Cluster, Proxy};

pub(super) const RULES: &[Rule] = &[proxy_addresses, addresses_behind_the_proxy, time_sources];

/// A proxy, whose it is, and the cluster whose addresses it must not be asked for.
struct Owned<'c> {
    kind: &'static str,
    name: &'c str,
    proxy: &'c Proxy,
    cluster: Option<&'c Cluster>,
}

fn proxies<'c>(context: &'c Context) -> impl Iterator<Item = Owned<'c>> {
    let discoveries = context.world.discoveries.iter().enumerate().filter_map(|(index, found)| {
        let cluster = cluster_of_discovery(context, index);
        Some(Owned { kind: "InfraEnv", name: &found.meta.id.name, proxy: found.proxy.as_ref()?, cluster })
    });
    discoveries.chain(context.world.clusters.iter().filter_map(|found| {
        Some(Owned { kind: "cluster", name: &found.meta.id.name, proxy: found.proxy.as_ref()?, cluster: None })
    }))
}

/// The cluster that hosts of a discovery join.
fn cluster_of_discovery<'c>(context: &'c Context, discovery: usize) -> Option<&'c Cluster> {
    context.hosts_of_discovery[discovery].iter().find_map(|host| context.cluster(&context.hosts[*host]))
}

/// VIPs that would be asked for through the proxy.
fn unexcepted(proxy: &Proxy, cluster: &Cluster) -> Vec<IpAddr> {
    if proxy.http.is_none() && proxy.https.is_none() {
        return Vec::new();
    }
    let vips = cluster.api_vips.iter().chain(&cluster.ingress_vips).map(|vip| vip.value);
    vips.filter(|vip| !proxy.no_proxy.as_ref().is_some_and(|no_proxy| covers(no_proxy, *vip))).collect()
}

/// What to except so that addresses are reached directly: their machine networks where they have one.
fn exceptions(cluster: &Cluster, addresses: &[IpAddr]) -> BTreeSet<String> {
    let network = |address: &IpAddr| cluster.machine_networks.iter().find(|net| net.contains(address));
    addresses
        .iter()
        .map(|address| network(address).map_or_else(|| address.to_string(), |net| net.to_string()))
        .collect()
}

/// The whole `noProxy` that has neither refused entries nor gaps.
fn repaired(proxy: &Proxy, added: &BTreeSet<String>) -> String {
    let known = proxy.no_proxy.iter().flat_map(|no_proxy| no_proxy.split(','));
    let known = known.map(|entry| entry.trim().trim_start_matches('*')).filter(|entry| !entry.is_empty());
    known.chain(added.iter().map(String::as_str)).collect::<Vec<&str>>().join(",")
}

fn proxy_addresses(context: &Context, findings: &mut Vec<Diagnostic>) {
    for Owned { kind, name, proxy, cluster } in proxies(context) {
        for (field, address) in [("httpProxy", &proxy.http), ("httpsProxy", &proxy.https)] {
            let Some(address) = address.as_ref().filter(|address| !address.starts_with("http://")) else { continue };
            let rest = address.split_once("://").map_or(address.as_str(), |(_, rest)| rest);
            findings.push(
                Diagnostic::new(
                    Code(346),
                    address.at,
                    format!("`{field}` of {kind} `{name}` is `{address}`, which does not begin with `http://`"),
                )
                .cause(
                    "the proxy itself is spoken to over HTTP, also for HTTPS traffic; another scheme or none is \
                    refused",
                )
                .help(format!("write:\nspec:\n  proxy:\n    {field}: http://{rest}")),
            );
        }
        let Some(no_proxy) = &proxy.no_proxy else { continue };
        if let Some(entry) = entries(no_proxy).find(|entry| !is_no_proxy_entry(entry)) {
            let missing = cluster.map(|cluster| (cluster, unexcepted(proxy, cluster)));
            let added = missing.map_or_else(BTreeSet::new, |(cluster, missing)| exceptions(cluster, &missing));
            findings.push(
                Diagnostic::new(
                    Code(346),
                    no_proxy.at,
                    format!("`noProxy` of {kind} `{name}` has the entry `{entry}`, which will be refused"),
                )
                .cause(
                    "`noProxy` is a list of domains, addresses and networks joined by commas without spaces; a \
                    leading dot means all subdomains, and `*` is only allowed alone",
                )
                .help(format!("write:\nspec:\n  proxy:\n    noProxy: {}", repaired(proxy, &added))),
            );
        }
    }
}

fn entries(no_proxy: &str) -> impl Iterator<Item = &str> {
    no_proxy.split(',').filter(move |_| no_proxy != "*")
}

fn is_no_proxy_entry(entry: &str) -> bool {
    let entry = entry.strip_prefix('.').unwrap_or(entry);
    let name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    IpAddr::from_str(entry).is_ok() || IpNet::from_str(entry).is_ok() || (!entry.is_empty() && entry.bytes().all(name))
}

fn covers(no_proxy: &Sourced<String>, address: IpAddr) -> bool {
    no_proxy.value == "*"
        || entries(no_proxy).any(|entry| {
            let entry = entry.trim();
            entry.parse::<IpAddr>() == Ok(address) || entry.parse::<IpNet>().is_ok_and(|net| net.contains(&address))
        })
}

fn addresses_behind_the_proxy(context: &Context, findings: &mut Vec<Diagnostic>) {
    for (index, discovery) in context.world.discoveries.iter().enumerate() {
        let (Some(proxy), Some(cluster)) = (&discovery.proxy, cluster_of_discovery(context, index)) else { continue };
        let missing = unexcepted(proxy, cluster);
        if missing.is_empty() {
            continue;
        }
        let added = exceptions(cluster, &missing);
        let at = proxy.no_proxy.as_ref().or(proxy.https.as_ref()).or(proxy.http.as_ref()).map(|text| text.at);
        findings.push(
            Diagnostic::new(
                Code(345),
                at,
                format!(
                    "hosts of InfraEnv `{}` will ask the proxy for the cluster's own addresses {}",
                    discovery.meta.id.name,
                    listed(&missing)
                ),
            )
            .cause(
                "during discovery and installation the host reaches the API address through the proxy unless \
                `noProxy` excepts it; most proxies cannot reach machine networks",
            )
            .help(format!("write:\nspec:\n  proxy:\n    noProxy: {}", repaired(proxy, &added))),
        );
    }
}

fn time_sources(context: &Context, findings: &mut Vec<Diagnostic>) {
    for discovery in &context.world.discoveries {
        for source in &discovery.ntp_sources {
            if is_time_source(source) {
                continue;
            }
            let host = source.split_once("://").map_or(source.as_str(), |(_, rest)| rest);
            let host = host.split(['/', ' ', ',']).next().unwrap_or_default().to_ascii_lowercase();
            findings.push(
                Diagnostic::new(
                    Code(347),
                    source.at,
                    format!(
                        "InfraEnv `{}` has the NTP source `{source}`, which is neither an address nor a host name",
                        discovery.meta.id.name
                    ),
                )
                .cause(
                    "each entry is one address or one lower-case host name; anything else is refused and no image is \
                    made",
                )
                .help(format!("write:\nspec:\n  additionalNTPSources:\n  - {host}")),
            );
        }
    }
}

fn is_time_source(source: &str) -> bool {
    let name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    let ends = source.bytes().next().zip(source.bytes().last());
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    IpAddr::from_str(source).is_ok()
        || (source.len() <= 63
            && source.bytes().all(name)
            && ends.is_some_and(|(first, last)| alphanumeric(first) && alphanumeric(last)))
}

#[cfg(test)]
mod tests {
    use super::{is_no_proxy_entry, is_time_source};

    #[test]
    fn entries_are_judged_as_the_service_does() {
        for (entry, fine) in [
            ("10.0.0.0/8", true),
            (".example.com", true),
            ("localhost", true),
            (" a", false),
            ("*.example.com", false),
            ("", false),
        ] {
            assert_eq!(is_no_proxy_entry(entry), fine, "{entry}");
        }
        for (source, fine) in [
            ("clock.example.com", true),
            ("2001:db8::1", true),
            ("ntp://clock", false),
            ("Clock", false),
            ("a b", false),
            ("", false),
        ] {
            assert_eq!(is_time_source(source), fine, "{source}");
        }
    }
}
