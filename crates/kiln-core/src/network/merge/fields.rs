//! Two keyfiles of one connection, joined key by key.
//!
//! Where both speak the overlay wins. Lists are merged as nmstate does it: addresses and name servers are one value each and are
//! replaced, routes and routing rules are added to those there are, the overlay's taking the place of one to the same destination.
//! Comments of the base stay where they were; those of the overlay are lost.

use std::net::IpAddr;

use super::decision::Decision;
use crate::keyfile::Keyfile;
use crate::network::meaning::{canonical, find, key_name, shown};
use crate::network::profile::{IpSettings, Profile, numbered};

/// What fields are merged with.
pub(super) struct Sets<'a> {
    pub base: &'a [Profile],
    pub overlay: &'a [Profile],
}

/// Joins two keyfiles; `file` is the name of the result.
pub(super) fn merge_fields(
    base: &Keyfile,
    overlay: &Keyfile,
    file: &str,
    sets: &Sets,
    decisions: &mut Vec<Decision>,
) -> Keyfile {
    let mut result = base.clone();
    for group in overlay.groups() {
        for key in overlay.keys(group).filter(|key| !is_listed(overlay, group, key)) {
            let raw = overlay.raw(group, key).unwrap_or_default();
            let place = find(base, group, key).unwrap_or_else(|| (group.to_owned(), key_name(group, key).to_owned()));
            let before = canonical(base, &place.0, &place.1, sets.base);
            let after = canonical(overlay, group, key, sets.overlay);
            if base.raw(&place.0, &place.1).is_some() && before != after {
                decisions.push(Decision::Conflict {
                    file: file.to_owned(),
                    group: group.to_owned(),
                    key: key.to_owned(),
                    base: shown(key, &before),
                    overlay: shown(key, &after),
                });
            }
            // An equal meaning keeps the base's spelling, so that nothing changes that need not.
            if base.raw(&place.0, &place.1).is_none() || before != after {
                result.set_raw(&place.0, &place.1, raw.to_owned());
            }
        }
        if overlay.keys(group).next().is_none() {
            result.add_group(group);
        }
    }
    for family in ["ipv4", "ipv6"] {
        replace_addresses(&mut result, overlay, family, file, decisions);
        add_routes(&mut result, overlay, family, file, decisions);
        add_rules(&mut result, overlay, family);
    }
    result
}

/// Whether a key belongs to one of the lists below.
fn is_listed(keyfile: &Keyfile, group: &str, key: &str) -> bool {
    let stem = key.strip_suffix("_options").unwrap_or(key);
    matches!(group, "ipv4" | "ipv6")
        && ["address", "route", "routing-rule"]
            .iter()
            .any(|list| numbered(keyfile, group, list).iter().any(|known| known == stem))
}

fn values(keyfile: &Keyfile, group: &str, keys: &[String]) -> Vec<String> {
    keys.iter().filter_map(|key| keyfile.get(group, key)).map(String::from).collect()
}

fn replace_addresses(result: &mut Keyfile, overlay: &Keyfile, group: &str, file: &str, decisions: &mut Vec<Decision>) {
    let (ours, theirs) = (numbered(result, group, "address"), numbered(overlay, group, "address"));
    if theirs.is_empty() {
        return;
    }
    let (before, after) = (values(result, group, &ours), values(overlay, group, &theirs));
    if !before.is_empty() && before != after {
        decisions.push(Decision::Conflict {
            file: file.to_owned(),
            group: group.to_owned(),
            key: "addresses".to_owned(),
            base: before.join("; "),
            overlay: after.join("; "),
        });
    }
    let gateway = kept_gateway(&IpSettings::read(result, group), &IpSettings::read(overlay, group));
    for key in ours {
        result.remove(group, &key);
    }
    for (number, address) in (1..).zip(after) {
        result.set(group, &format!("address{number}"), &address);
    }
    match gateway {
        Some(gateway) => result.set(group, "gateway", &gateway.to_string()),
        // A `gateway=` of the base would win over one behind the overlay's address.
        None if overlay.raw(group, "gateway").is_none() => result.remove(group, "gateway"),
        None => {}
    }
}

/// The base's gateway stays when the overlay names none and can still reach it.
fn kept_gateway(base: &IpSettings, overlay: &IpSettings) -> Option<IpAddr> {
    let reachable = |gateway: &IpAddr| overlay.addresses.iter().any(|network| network.contains(gateway));
    base.gateway.filter(|gateway| overlay.gateway.is_none() && reachable(gateway))
}

/// A route as text, with what makes it the same route as another: destination and table.
struct RouteText {
    identity: (String, String),
    value: String,
    options: Option<String>,
}

fn routes(keyfile: &Keyfile, group: &str) -> Vec<RouteText> {
    let read = |key: String| {
        let value = keyfile.get(group, &key)?.into_owned();
        let options = keyfile.get(group, &format!("{key}_options")).map(String::from);
        let table =
            options.iter().flat_map(|options| options.split(',')).find_map(|option| option.strip_prefix("table="));
        let destination = value.split([',', ';']).next().unwrap_or_default().trim();
        let destination =
            destination.parse::<ipnet::IpNet>().map_or(destination.to_owned(), |net| net.trunc().to_string());
        Some(RouteText { identity: (destination, table.unwrap_or_default().to_owned()), value, options })
    };
    numbered(keyfile, group, "route").into_iter().filter_map(read).collect()
}

fn add_routes(result: &mut Keyfile, overlay: &Keyfile, group: &str, file: &str, decisions: &mut Vec<Decision>) {
    let mut all = routes(result, group);
    let added = routes(overlay, group);
    if added.is_empty() {
        return;
    }
    for key in numbered(result, group, "route") {
        result.remove(group, &key);
        result.remove(group, &format!("{key}_options"));
    }
    for route in added {
        match all.iter_mut().find(|known| known.identity == route.identity) {
            Some(known) => {
                if (&known.value, &known.options) != (&route.value, &route.options) {
                    decisions.push(Decision::Conflict {
                        file: file.to_owned(),
                        group: group.to_owned(),
                        key: format!("route to {}", route.identity.0),
                        base: known.value.clone(),
                        overlay: route.value.clone(),
                    });
                }
                *known = route;
            }
            None => all.push(route),
        }
    }
    for (number, route) in (1..).zip(all) {
        result.set(group, &format!("route{number}"), &route.value);
        if let Some(options) = route.options {
            result.set(group, &format!("route{number}_options"), &options);
        }
    }
}

fn add_rules(result: &mut Keyfile, overlay: &Keyfile, group: &str) {
    let keys = numbered(result, group, "routing-rule");
    let mut all = values(result, group, &keys);
    let added = values(overlay, group, &numbered(overlay, group, "routing-rule"));
    if added.is_empty() {
        return;
    }
    for key in keys {
        result.remove(group, &key);
    }
    for rule in added {
        if !all.contains(&rule) {
            all.push(rule);
        }
    }
    for (number, rule) in (1..).zip(all) {
        result.set(group, &format!("routing-rule{number}"), &rule);
    }
}
