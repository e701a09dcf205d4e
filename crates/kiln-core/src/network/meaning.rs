//! When two spellings of a value mean the same.
//!
//! `802-3-ethernet` and `ethernet`, `master` and `controller`, `mode=4` and `mode=802.3ad`, `1` and `true`, a controller by UUID and by
//! interface name: merge and diff must not call these differences. Secrets are never shown.

use super::profile::{Profile, Reference};
use crate::keyfile::Keyfile;
use crate::net::{BondMode, ConnectionUuid, MacAddress};

/// Old and new names of groups.
const GROUPS: [(&str, &str); 3] =
    [("802-3-ethernet", "ethernet"), ("802-11-wireless", "wifi"), ("802-11-wireless-security", "wifi-security")];

/// Old and new names of keys in `[connection]`.
const CONNECTION_KEYS: [(&str, &str); 3] =
    [("slave-type", "port-type"), ("master", "controller"), ("autoconnect-slaves", "autoconnect-ports")];

/// The name of a group that all its spellings share.
pub(crate) fn group_name(group: &str) -> &str {
    GROUPS.iter().find(|(old, _)| *old == group).map_or(group, |(_, new)| new)
}

/// The name of a key that all its spellings share: the old one, which every version of NetworkManager reads.
pub(super) fn key_name<'a>(group: &str, key: &'a str) -> &'a str {
    let known = CONNECTION_KEYS.iter().find(|(_, new)| group == "connection" && *new == key);
    known.map_or(key, |(old, _)| old)
}

/// Where a keyfile has the key that another one spells so, if it has it.
pub(crate) fn find(keyfile: &Keyfile, group: &str, key: &str) -> Option<(String, String)> {
    let groups = keyfile.groups().filter(|candidate| group_name(candidate) == group_name(group));
    groups.into_iter().find_map(|candidate| {
        let found = keyfile.keys(candidate).find(|found| key_name(candidate, found) == key_name(group, key))?;
        Some((candidate.to_owned(), found.to_owned()))
    })
}

/// Whether a key names another profile or its interface.
pub(super) fn is_reference(group: &str, key: &str) -> bool {
    key == "parent" || group == "connection" && matches!(key, "master" | "controller")
}

/// A value in the one spelling all equal ones share. `profiles` are those of its set, to follow references.
pub(super) fn canonical(keyfile: &Keyfile, group: &str, key: &str, profiles: &[Profile]) -> String {
    let raw = keyfile.raw(group, key).unwrap_or_default();
    let Some(value) = keyfile.get(group, key) else { return raw.to_owned() };
    if is_reference(group, key) {
        let reference = Reference::from(&*value);
        let meant = profiles.iter().find(|profile| profile.is_meant_by(&reference));
        return meant.and_then(|profile| profile.interface.as_ref()).map_or(value.to_string(), ToString::to_string);
    }
    if let Ok(mac) = value.parse::<MacAddress>() {
        return mac.to_string();
    }
    if let Ok(uuid) = value.parse::<ConnectionUuid>() {
        return uuid.to_string();
    }
    match (group_name(group), key, &*value) {
        ("connection", "type", kind) => group_name(kind).to_owned(),
        ("bond", "mode", mode) => mode.parse::<BondMode>().map_or(value.to_string(), |mode| mode.to_string()),
        (_, _, "true") => "1".to_owned(),
        (_, _, "false") => "0".to_owned(),
        // `a;b` and `a;b;` are one list.
        (_, _, list) => list.trim_end().strip_suffix(';').unwrap_or(list.trim_end()).to_owned(),
    }
}

/// A value for the eyes: what is secret stays so.
pub(super) fn shown(key: &str, value: &str) -> String {
    if is_secret(key) { "…".to_owned() } else { value.to_owned() }
}

/// Whether the value of a key in a keyfile must not be shown.
pub fn is_secret(key: &str) -> bool {
    const SECRET: [&str; 7] = ["password", "psk", "secret", "wep-key", "private-key", "preshared-key", "pin"];
    SECRET.iter().any(|word| key.contains(word)) && !key.ends_with("-flags")
}
