//! What differs between two sets of profiles, by meaning.
//!
//! Profiles are paired [as in a merge](super::pairing). No differences: the order of files, groups and keys, comments, file names, UUIDs and
//! time stamps, a default that is written out, a controller by UUID here and by interface name there.

use std::collections::BTreeMap;
use std::fmt;

use super::meaning::{canonical, group_name, key_name, shown};
use super::pairing;
use super::profile::{IpSettings, Profile, Refusal, numbered};
use crate::keyfile::{ConnectionFile, Keyfile};

#[cfg(test)]
mod tests;

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// A profile that only the first set has.
    Removed(Described),
    /// A profile that only the second set has.
    Added(Described),
    /// A value that differs. None: not said.
    Changed {
        /// The file in the first set, and in the second when it has another name there.
        file: String,
        /// Group.
        group: String,
        /// Key, or the name of a list.
        key: String,
        /// In the first set.
        from: Option<String>,
        /// In the second set.
        to: Option<String>,
    },
    /// A file that NetworkManager reads in one set only.
    ReadInOneOnly {
        /// The file.
        file: String,
        /// Whether it is read in the second set.
        in_second: bool,
        /// Why not in the other.
        reason: Refusal,
    },
}

/// A file with what it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// The file.
    pub file: String,
    /// `bond bond0`.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Removed(Described { file, what }) => write!(f, "- {file} ({what})"),
            Difference::Added(Described { file, what }) => write!(f, "+ {file} ({what})"),
            Difference::Changed { file, group, key, from, to } => match (from, to) {
                (Some(from), Some(to)) => write!(f, "~ {file} [{group}] {key}: {from} -> {to}"),
                (Some(from), None) => write!(f, "~ {file} [{group}] {key}: {from} -> nothing"),
                (None, Some(to)) => write!(f, "~ {file} [{group}] {key}: nothing -> {to}"),
                (None, None) => write!(f, "~ {file} [{group}] {key}"),
            },
            Difference::ReadInOneOnly { file, in_second, reason } => {
                let (read, skipped) = if *in_second { ("second", "first") } else { ("first", "second") };
                write!(f, "! {file} is read in the {read} set only; in the {skipped}: {reason}")
            }
        }
    }
}

/// Compares two sets; nothing means that NetworkManager does the same with both.
pub fn diff(first: &[ConnectionFile], second: &[ConnectionFile]) -> Vec<Difference> {
    // The usual answer of a node where nothing has to change, a hundred times over.
    if first == second {
        return Vec::new();
    }
    let mut differences = reading(first, second);
    let [first, second] = [first, second].map(|files| {
        let mut read: Vec<_> = files.iter().filter(|file| file.ignored().is_none()).collect();
        read.sort_by(|a, b| a.name.cmp(&b.name));
        read
    });
    let [ours, theirs] =
        [&first, &second].map(|files| files.iter().map(|file| Profile::read(file)).collect::<Vec<_>>());
    let pairs = pairing::pair(&ours, &theirs);
    for (place, profile) in ours.iter().enumerate() {
        let Some(pair) = pairs.iter().find(|pair| pair.first == place) else {
            differences.push(Difference::Removed(describe(profile)));
            continue;
        };
        let other = &second[pair.second];
        let file = match first[place].name == other.name {
            true => other.name.clone(),
            false => format!("{} / {}", first[place].name, other.name),
        };
        let mut before = values(&first[place].keyfile, &ours);
        let mut after = values(&other.keyfile, &theirs);
        // An id that is not written is the file name, which does not matter.
        let id = ("connection".to_owned(), "id".to_owned());
        if !(before.contains_key(&id) && after.contains_key(&id)) {
            before.remove(&id);
            after.remove(&id);
        }
        differences.extend(changes(&file, &before, &after));
    }
    let added = theirs.iter().enumerate().filter(|(place, _)| pairs.iter().all(|pair| pair.second != *place));
    differences.extend(added.map(|(_, profile)| Difference::Added(describe(profile))));
    differences
}

/// Files of one name that NetworkManager reads in one set and skips in the other.
fn reading(first: &[ConnectionFile], second: &[ConnectionFile]) -> Vec<Difference> {
    let mut names: Vec<_> = first.iter().chain(second).map(|file| &file.name).collect();
    names.sort_unstable();
    names.dedup();
    let skipped =
        |files: &[ConnectionFile], name: &str| files.iter().find(|file| file.name == name).map(ConnectionFile::ignored);
    let difference = |name: &String| {
        let (in_second, reason) = match (skipped(first, name), skipped(second, name)) {
            (Some(Some(reason)), Some(None)) => (true, reason),
            (Some(None), Some(Some(reason))) => (false, reason),
            _ => return None,
        };
        Some(Difference::ReadInOneOnly { file: name.clone(), in_second, reason: reason.into() })
    };
    names.into_iter().filter_map(difference).collect()
}

fn describe(profile: &Profile) -> Described {
    let kind = profile.kind.as_deref().unwrap_or("no type");
    let what = match (&profile.interface, profile.mac) {
        (Some(interface), _) => format!("{kind} {interface}"),
        (None, Some(mac)) => format!("{kind} with address {mac}"),
        (None, None) => format!("{kind} for any interface"),
    };
    Described { file: profile.file.clone(), what }
}

/// What a profile says: group and key in one spelling to the value in one spelling. Defaults are left out.
type Values = BTreeMap<(String, String), String>;

/// Values that mean nothing more than leaving the key out.
const DEFAULTS: [(&str, &str, &str); 8] = [
    ("connection", "autoconnect", "1"),
    ("connection", "autoconnect-priority", "0"),
    ("connection", "multi-connect", "0"),
    ("ipv4", "method", "auto"),
    ("ipv6", "method", "auto"),
    ("ipv4", "may-fail", "1"),
    ("ipv6", "may-fail", "1"),
    ("ipv6", "addr-gen-mode", "default"),
];

fn values(keyfile: &Keyfile, profiles: &[Profile]) -> Values {
    let mut values = Values::new();
    for group in keyfile.groups() {
        for key in keyfile.keys(group).filter(|key| !is_told_apart(keyfile, group, key)) {
            let value = canonical(keyfile, group, key, profiles);
            let place = (group_name(group), key_name(group, key));
            if !value.is_empty() && !DEFAULTS.contains(&(place.0, place.1, &value)) {
                values.insert((place.0.to_owned(), place.1.to_owned()), value);
            }
        }
    }
    for group in ["ipv4", "ipv6"] {
        let settings = IpSettings::read(keyfile, group);
        let mut add = |key: &str, list: Vec<String>| {
            if !list.is_empty() {
                values.insert((group.to_owned(), key.to_owned()), list.join(", "));
            }
        };
        add("addresses", settings.addresses.iter().map(ToString::to_string).collect());
        add("gateway", settings.gateway.iter().map(ToString::to_string).collect());
        let mut routes: Vec<_> = settings.routes.iter().map(ToString::to_string).collect();
        routes.sort_unstable();
        add("routes", routes);
        let rules = numbered(keyfile, group, "routing-rule");
        let mut rules: Vec<_> = rules.iter().filter_map(|key| keyfile.get(group, key)).map(String::from).collect();
        rules.sort_unstable();
        add("routing-rules", rules);
    }
    values
}

/// Keys that are compared as lists, and those that are no part of the meaning.
fn is_told_apart(keyfile: &Keyfile, group: &str, key: &str) -> bool {
    let stem = key.strip_suffix("_options").unwrap_or(key);
    match group {
        "connection" => matches!(key, "uuid" | "timestamp"),
        "ipv4" | "ipv6" => {
            key == "gateway"
                || ["address", "route", "routing-rule"]
                    .iter()
                    .any(|list| numbered(keyfile, group, list).iter().any(|known| known == stem))
        }
        _ => false,
    }
}

fn changes(file: &str, before: &Values, after: &Values) -> Vec<Difference> {
    let mut places: Vec<_> = before.keys().chain(after.keys()).collect();
    places.sort_unstable();
    places.dedup();
    places
        .into_iter()
        .filter(|place| before.get(*place) != after.get(*place))
        .map(|place| Difference::Changed {
            file: file.to_owned(),
            group: place.0.clone(),
            key: place.1.clone(),
            from: before.get(place).map(|value| shown(&place.1, value)),
            to: after.get(place).map(|value| shown(&place.1, value)),
        })
        .collect()
}
