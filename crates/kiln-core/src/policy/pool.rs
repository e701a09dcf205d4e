//! Pools of addresses: which there are, and who gets which.
//!
//! **Invariant:** no address is given twice, and an address once given stays its node's as long as the pool contains it. What
//! a node that is no longer chosen had is given to another only when nothing else is left.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde_json::{Map, Value};

use super::error::malformed;
use super::parameters::read_name;
use super::read::{Section, text};
use super::{Allocations, NetworkPolicy, PolicyError};

/// How many ranges and exclusions a pool may have.
const MAX_SPANS: usize = 1024;

/// Addresses that are given to nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct AddressPool {
    /// As in `{{ pool.NAME }}`.
    pub name: String,
    /// As in `{{ pool.NAME.prefix }}`.
    pub prefix: Option<u8>,
    family: Family,
    /// First and last, in rising order, none touching the next.
    spans: Vec<(u128, u128)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

type Span = (Family, u128, u128);

impl AddressPool {
    pub(super) fn read(value: &Value, at: &str) -> Result<AddressPool, PolicyError> {
        let none = Map::new();
        let pool = Section::of(value, at, &none)?;
        pool.only(&["cidr", "exclude", "name", "prefix", "ranges"])?;
        let name = read_name(&pool)?;
        let mut given: Vec<Span> = Vec::new();
        let mut prefix = None;
        if let Some(cidr) = pool.get("cidr") {
            let at = pool.path("cidr");
            let written = text(cidr, &at)?;
            let net: IpNet = written.parse().map_err(|_| malformed(&at, format!("`{written}` is not a network")))?;
            prefix = Some(net.prefix_len());
            given.push(usable(&net));
        }
        given.extend(pool.list("ranges", read_span)?.unwrap_or_default());
        let Some((family, _, _)) = given.first().copied() else {
            return Err(malformed(at, "needs `cidr` or `ranges`"));
        };
        let excluded = pool.list("exclude", read_span)?.unwrap_or_default();
        if given.iter().chain(&excluded).any(|(other, _, _)| *other != family) {
            return Err(malformed(at, "mixes IPv4 and IPv6"));
        }
        if let Some(number) = pool.get("prefix") {
            let most = if family == Family::V4 { 32 } else { 128 };
            let number = number.as_u64().and_then(|number| u8::try_from(number).ok()).filter(|number| *number <= most);
            prefix = Some(number.ok_or_else(|| malformed(pool.path("prefix"), format!("must be 0 to {most}")))?);
        }
        if given.len() + excluded.len() > MAX_SPANS {
            return Err(malformed(at, format!("has more than {MAX_SPANS} ranges and exclusions")));
        }
        let spans = without(joined(given), &joined(excluded));
        if spans.is_empty() {
            return Err(malformed(at, "has no address left after `exclude`"));
        }
        Ok(AddressPool { name, prefix, family, spans })
    }

    /// Whether an address is of this pool.
    pub fn contains(&self, address: IpAddr) -> bool {
        let (family, number) = number(address);
        let at = self.spans.partition_point(|(_, last)| *last < number);
        family == self.family && self.spans.get(at).is_some_and(|(first, _)| *first <= number)
    }

    /// How many addresses it has, as far as that can be counted.
    pub fn len(&self) -> u128 {
        self.spans.iter().fold(0, |sum: u128, (first, last)| sum.saturating_add((last - first).saturating_add(1)))
    }

    /// Never: a pool without addresses is refused.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    fn address(&self, number: u128) -> IpAddr {
        match self.family {
            // The spans of IPv4 hold nothing above 32 bits.
            Family::V4 => Ipv4Addr::from(number as u32).into(),
            Family::V6 => Ipv6Addr::from(number).into(),
        }
    }

    /// Everybody's address: those that are held, and new ones for `nodes` in their order; and who got none.
    fn give(&self, nodes: &BTreeSet<&str>, held: &BTreeMap<String, IpAddr>) -> (BTreeMap<String, IpAddr>, Vec<String>) {
        let mut used = BTreeSet::new();
        let mut given: BTreeMap<String, IpAddr> = BTreeMap::new();
        for (node, address) in held.iter().filter(|(_, address)| self.contains(**address)) {
            if used.insert(number(*address).1) {
                given.insert(node.clone(), *address);
            }
        }
        let mut left: Vec<String> = given.keys().filter(|node| !nodes.contains(node.as_str())).rev().cloned().collect();
        let mut free =
            self.spans.iter().flat_map(|(first, last)| *first..=*last).filter(|number| !used.contains(number));
        let mut without = Vec::new();
        for node in nodes.iter().copied() {
            if given.contains_key(node) {
                continue;
            }
            let taken_back = |left: &mut Vec<String>, given: &mut BTreeMap<String, IpAddr>| given.remove(&left.pop()?);
            let address = free.next().map(|number| self.address(number)).or_else(|| taken_back(&mut left, &mut given));
            match address {
                Some(address) => drop(given.insert(node.to_owned(), address)),
                None => without.push(node.to_owned()),
            }
        }
        (given, without)
    }
}

/// Gives addresses of every pool of every policy to the nodes it chooses, and says which pools are too small. `held` is what
/// was given before; pools and policies that are no more are forgotten. `nodes` are names with labels, in any order.
pub fn allocate<'n>(
    policies: &[NetworkPolicy],
    nodes: impl IntoIterator<Item = (&'n str, &'n BTreeMap<String, String>)> + Clone,
    held: &Allocations,
) -> (Allocations, Vec<(String, PolicyError)>) {
    let mut allocations = Allocations::new();
    let mut refused = Vec::new();
    for policy in policies.iter().filter(|policy| !policy.options.parameters.pools.is_empty()) {
        let chosen = nodes.clone().into_iter().filter(|(name, labels)| policy.selector.matches(name, labels));
        let chosen: BTreeSet<&str> = chosen.map(|(name, _)| name).collect();
        for (index, pool) in policy.options.parameters.pools.iter().enumerate() {
            let nobody = BTreeMap::new();
            let before = held.get(&policy.name).and_then(|pools| pools.get(&pool.name)).unwrap_or(&nobody);
            let (given, without) = pool.give(&chosen, before);
            allocations.entry(policy.name.clone()).or_default().insert(pool.name.clone(), given);
            if !without.is_empty() {
                let at = format!("spec.kiln.parameters.pools[{index}]");
                let error = PolicyError::Exhausted { at, pool: pool.name.clone(), nodes: without };
                refused.push((policy.name.clone(), error));
            }
        }
    }
    refused.sort_by(|one, two| one.0.cmp(&two.0));
    (allocations, refused)
}

fn number(address: IpAddr) -> (Family, u128) {
    match address {
        IpAddr::V4(address) => (Family::V4, u32::from(address).into()),
        IpAddr::V6(address) => (Family::V6, address.into()),
    }
}

/// The addresses of a network that a machine can have: not the network's own, and not the broadcast address of IPv4.
fn usable(net: &IpNet) -> Span {
    let (family, first) = number(net.network());
    let (_, last) = number(net.broadcast());
    match (family, last - first) {
        (_, 0 | 1) => (family, first, last),
        (Family::V4, _) => (family, first + 1, last - 1),
        (Family::V6, _) => (family, first + 1, last),
    }
}

/// `10.0.0.1`, `10.0.0.1-10.0.0.9` or `10.0.0.0/28`.
fn read_span(value: &Value, at: &str) -> Result<Span, PolicyError> {
    let written = text(value, at)?;
    let wrong =
        || malformed(at, format!("`{written}` is not an address, a range such as 10.0.0.1-10.0.0.9, or a network"));
    if let Ok(net) = written.parse::<IpNet>() {
        return Ok((number(net.network()).0, number(net.network()).1, number(net.broadcast()).1));
    }
    let (first, last) = written.split_once('-').unwrap_or((written, written));
    let parse = |text: &str| text.trim().parse::<IpAddr>().map(number).map_err(|_| wrong());
    let ((family, first), (other, last)) = (parse(first)?, parse(last)?);
    if family != other || first > last {
        return Err(wrong());
    }
    Ok((family, first, last))
}

/// Spans of one family in rising order, none touching the next.
fn joined(spans: Vec<Span>) -> Vec<(u128, u128)> {
    let mut spans: Vec<(u128, u128)> = spans.into_iter().map(|(_, first, last)| (first, last)).collect();
    spans.sort_unstable();
    let mut all: Vec<(u128, u128)> = Vec::new();
    for (first, last) in spans {
        match all.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            _ => all.push((first, last)),
        }
    }
    all
}

fn without(given: Vec<(u128, u128)>, excluded: &[(u128, u128)]) -> Vec<(u128, u128)> {
    let mut left = given;
    for (from, to) in excluded {
        let pieces = left.into_iter().flat_map(|(first, last)| {
            if *to < first || last < *from {
                return [Some((first, last)), None];
            }
            [(first < *from).then(|| (first, from - 1)), (*to < last).then(|| (to + 1, last))]
        });
        left = pieces.flatten().collect();
    }
    left
}
