//! Routes and rules, which nmstate keeps beside the interfaces.

use serde_json::{Map, Value, json};

use super::Gathered;
use super::ip::numbered;
use super::profile::Profile;

/// Route attributes with the same meaning in nmstate.
const ATTRIBUTES: [(&str, &str); 8] = [
    ("table", "table-id"),
    ("weight", "weight"),
    ("cwnd", "cwnd"),
    ("initcwnd", "initcwnd"),
    ("initrwnd", "initrwnd"),
    ("mtu", "mtu"),
    ("advmss", "advmss"),
    ("src", "source"),
];

/// Adds what the profile says.
pub fn gather(profile: &Profile<'_>, interface: &str, kind: &str, gathered: &mut Gathered) {
    for family in ["ipv4", "ipv6"] {
        let metric = profile.keyfile.get(family, "route-metric").and_then(|text| text.parse().ok());
        let metric = metric.filter(|metric: &i64| *metric >= 0).unwrap_or(default_metric(kind));
        gateways(profile, family, interface, metric, gathered);
        let mut keys = numbered(profile, family, "route");
        keys.sort();
        for (_, key) in keys {
            match route(profile, family, &key, interface, metric) {
                Some(route) => gathered.routes.push(route),
                None => profile.give_back(family, &key),
            }
        }
        let mut keys = numbered(profile, family, "routing-rule");
        keys.sort();
        for (_, key) in keys {
            match profile.take(family, &key).as_deref().and_then(rule) {
                Some(rule) => gathered.rules.push(rule),
                None => profile.give_back(family, &key),
            }
        }
    }
}

/// What NetworkManager gives routes that say nothing; nmstate would write zero, the most preferred of all.
fn default_metric(kind: &str) -> i64 {
    match kind {
        "bond" => 300,
        "vlan" => 400,
        "linux-bridge" => 425,
        "dummy" => 550,
        _ => 100,
    }
}

/// `gateway=` and the old form behind an address.
fn gateways(profile: &Profile<'_>, family: &str, interface: &str, metric: i64, gathered: &mut Gathered) {
    let mut found: Vec<String> = profile.take(family, "gateway").into_iter().collect();
    for (_, key) in numbered(profile, family, "address") {
        let value = profile.keyfile.get(family, &key).unwrap_or_default();
        found.extend(value.split(',').nth(1).map(str::trim).filter(|gateway| !gateway.is_empty()).map(str::to_owned));
    }
    found.dedup();
    let destination = if family == "ipv6" { "::/0" } else { "0.0.0.0/0" };
    gathered.routes.extend(found.into_iter().map(|gateway| {
        json!({ "destination": destination, "next-hop-interface": interface, "next-hop-address": gateway, "metric": metric })
    }));
}

fn route(profile: &Profile<'_>, family: &str, key: &str, interface: &str, metric: i64) -> Option<Value> {
    let value = profile.take(family, key)?;
    let mut parts = value.split(',').map(str::trim);
    let mut entry = Map::new();
    let mut say = |key: &str, value: Value| drop(entry.insert(key.to_owned(), value));
    say("destination", parts.next()?.into());
    let next_hop = parts.next().filter(|hop| !hop.is_empty() && *hop != "0.0.0.0" && *hop != "::");
    let written = parts.next().and_then(|metric| metric.parse::<i64>().ok());
    let options_key = format!("{key}_options");
    let options = profile.take(family, &options_key).unwrap_or_default();
    let (mut unicast, mut said) = (true, true);
    for option in options.split(',').filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let word = ATTRIBUTES.iter().find(|(known, _)| *known == name).map(|(_, word)| *word);
        match (name, word) {
            ("table", _) if value == "254" => {}
            ("type", _) if value == "unicast" => {}
            ("type", _) => {
                unicast = false;
                say("route-type", value.into());
            }
            ("lock-cwnd", _) => {}
            ("lock-mtu" | "quickack", _) => say(name, (value == "true").into()),
            (_, Some(word)) => say(word, value.parse::<i64>().map_or_else(|_| value.into(), Value::from)),
            _ => said = false,
        }
    }
    if !said {
        profile.give_back(family, &options_key);
    }
    if unicast {
        say("next-hop-interface", interface.into());
        if let Some(next_hop) = next_hop {
            say("next-hop-address", next_hop.into());
        }
    }
    // Zero is what nmstate writes when nothing is said.
    if written != Some(0) {
        say("metric", written.unwrap_or(metric).into());
    }
    Some(entry.into())
}

/// `priority 5 from 192.0.2.0/24 table 100` in nmstate's words; none when a word has no counterpart.
fn rule(text: &str) -> Option<Value> {
    let mut entry = Map::new();
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        let value = words.next()?;
        let number = || value.parse::<i64>().ok().map(Value::from);
        let (key, value) = match word {
            "priority" => ("priority", number()?),
            "from" => ("ip-from", value.into()),
            "to" => ("ip-to", value.into()),
            "table" | "lookup" => ("route-table", number()?),
            "iif" => ("iif", value.into()),
            "type" => ("action", value.into()),
            "suppress_prefixlength" => ("suppress-prefix-length", number()?),
            "fwmark" => {
                let (mark, mask) = value.split_once('/').unwrap_or((value, ""));
                if !mask.is_empty() {
                    entry.insert("fwmask".to_owned(), mask.into());
                }
                ("fwmark", mark.into())
            }
            _ => return None,
        };
        entry.insert(key.to_owned(), value);
    }
    Some(entry.into())
}
