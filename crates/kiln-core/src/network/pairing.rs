//! Which profiles of two sets are the same connection.
//!
//! By UUID; else by interface name and type; else by MAC address and type; else by id and type. A weaker sign never joins profiles
//! that a stronger one tells apart: two profiles called `Wired connection 1` for different NICs stay two.

use std::cmp::Reverse;
use std::fmt;

use super::profile::Profile;
use crate::net::{ConnectionUuid, InterfaceName, MacAddress};

/// Two profiles that are one connection, by their places in the two lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// Place in the first list.
    pub first: usize,
    /// Place in the second list.
    pub second: usize,
    /// How it shows.
    pub by: Sameness,
}

/// By what two profiles are known to be one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sameness {
    /// Both have this UUID.
    Uuid(ConnectionUuid),
    /// Both are for this interface.
    Interface(InterfaceName),
    /// Both are for the NIC with this address.
    Mac(MacAddress),
    /// Both have this id, and nothing speaks against it.
    Id(String),
}

impl fmt::Display for Sameness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sameness::Uuid(uuid) => write!(f, "UUID {uuid}"),
            Sameness::Interface(name) => write!(f, "interface {name}"),
            Sameness::Mac(mac) => write!(f, "MAC address {mac}"),
            Sameness::Id(id) => write!(f, "id `{id}`"),
        }
    }
}

/// Finds the pairs, each profile in at most one, in the order of the second list.
pub fn pair(first: &[Profile], second: &[Profile]) -> Vec<Pair> {
    let mut pairs: Vec<Pair> = Vec::new();
    for rule in [same_uuid, same_interface, same_mac, same_id] {
        for (in_second, candidate) in second.iter().enumerate() {
            if pairs.iter().any(|pair| pair.second == in_second) {
                continue;
            }
            let free = |place: &usize| pairs.iter().all(|pair| pair.first != *place);
            let fitting = first.iter().enumerate().filter(|(place, _)| free(place));
            let best = fitting
                .filter_map(|(place, profile)| Some((place, profile, rule(profile, candidate)?)))
                // Of several, the one of the same name, else the one NetworkManager would take.
                .min_by_key(|(_, profile, _)| {
                    (profile.id != candidate.id, Reverse(profile.autoconnect), Reverse(profile.priority), profile.uuid)
                });
            if let Some((place, _, by)) = best {
                pairs.push(Pair { first: place, second: in_second, by });
            }
        }
    }
    pairs.sort_by_key(|pair| pair.second);
    pairs
}

fn same_uuid(a: &Profile, b: &Profile) -> Option<Sameness> {
    // A UUID that follows from the path says nothing but that the files have one name.
    (a.uuid_is_written && b.uuid_is_written && a.uuid == b.uuid).then_some(Sameness::Uuid(a.uuid))
}

fn same_interface(a: &Profile, b: &Profile) -> Option<Sameness> {
    let same = a.interface.is_some() && a.interface == b.interface;
    (same && same_kind(a, b) && agree(a.mac, b.mac)).then(|| a.interface.clone().map(Sameness::Interface)).flatten()
}

fn same_mac(a: &Profile, b: &Profile) -> Option<Sameness> {
    let same = a.mac.is_some() && a.mac == b.mac;
    (same && same_kind(a, b) && agree(a.interface.as_ref(), b.interface.as_ref()))
        .then(|| a.mac.map(Sameness::Mac))
        .flatten()
}

fn same_id(a: &Profile, b: &Profile) -> Option<Sameness> {
    let agrees = agree(a.interface.as_ref(), b.interface.as_ref()) && agree(a.mac, b.mac);
    (a.id == b.id && same_kind(a, b) && agrees).then(|| Sameness::Id(a.id.clone()))
}

/// A fragment without type goes with any.
fn same_kind(a: &Profile, b: &Profile) -> bool {
    agree(a.kind.as_ref(), b.kind.as_ref())
}

fn agree<T: PartialEq>(a: Option<T>, b: Option<T>) -> bool {
    a.is_none() || b.is_none() || a == b
}
