//! Values that NetworkManager passes over while it loads the rest of the file.
//!
//! The profile is active, but not as written: `autoconnect=no` still connects, an address with a slip is missing. Looked at are the
//! keys that decide whether a node can be reached; NetworkManager itself complains about each in its log.

use std::str::FromStr;

use super::{ETHERNET, fits, ip, numbered};
use crate::keyfile::Keyfile;
use crate::net::{BondMode, MacAddress, ValueError, VlanId};

/// A value without effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IgnoredValue {
    /// Group.
    pub group: String,
    /// Key.
    pub key: String,
    /// As written; of a list, the element.
    pub value: String,
    /// Why, and what to write.
    pub reason: String,
}

const BOOLEANS: [(&str, &str); 9] = [
    ("connection", "autoconnect"),
    ("ipv4", "may-fail"),
    ("ipv6", "may-fail"),
    ("ipv4", "never-default"),
    ("ipv6", "never-default"),
    ("ipv4", "ignore-auto-dns"),
    ("ipv6", "ignore-auto-dns"),
    ("ipv4", "ignore-auto-routes"),
    ("ipv6", "ignore-auto-routes"),
];

/// The values of a keyfile that have no effect.
pub fn ignored_values(keyfile: &Keyfile) -> Vec<IgnoredValue> {
    let mut search = Search { keyfile, found: Vec::new() };
    for (group, key) in BOOLEANS {
        search.judge(group, key, |value| {
            let understood = matches!(value.trim_end(), "true" | "false" | "1" | "0");
            (!understood).then(|| "only `true` and `false` are understood".to_owned())
        });
    }
    search.judge("connection", "autoconnect-priority", |value| {
        let understood = value.trim().parse().is_ok_and(|priority: i32| (-999..=999).contains(&priority));
        (!understood).then(|| "a priority is a number from -999 to 999".to_owned())
    });
    for group in ETHERNET {
        search.judge(group, "mac-address", refused::<MacAddress>);
    }
    search.judge("vlan", "id", refused::<VlanId>);
    search.judge("bond", "mode", refused::<BondMode>);
    for (group, family) in [("ipv4", "an IPv4"), ("ipv6", "an IPv6")] {
        search.judge_family(group, family);
    }
    search.found
}

struct Search<'a> {
    keyfile: &'a Keyfile,
    found: Vec<IgnoredValue>,
}

impl Search<'_> {
    /// Notes the value when there is one and `refuse` has something against it.
    fn judge(&mut self, group: &str, key: &str, refuse: impl Fn(&str) -> Option<String>) {
        let Some(value) = self.keyfile.get(group, key).filter(|value| !value.is_empty()) else { return };
        if let Some(reason) = refuse(&value) {
            self.ignore(group, key, value.into_owned(), reason);
        }
    }

    fn judge_family(&mut self, group: &str, family: &str) {
        for (stem, form) in [("address", "address"), ("route", "destination such as 0.0.0.0/0 or ::/0")] {
            for key in numbered(self.keyfile, group, stem) {
                self.judge(group, &key, |value| {
                    let unread = ip::network(&ip::parts(value), group).is_none();
                    unread.then(|| format!("it does not begin with {family} {form}"))
                });
            }
        }
        for server in self.keyfile.get_list(group, "dns").unwrap_or_default() {
            if !server.parse().is_ok_and(|address| fits(group, address)) {
                let reason = format!("it is not {family} address; separate addresses with `;`");
                self.ignore(group, "dns", server, reason);
            }
        }
    }

    fn ignore(&mut self, group: &str, key: &str, value: String, reason: String) {
        self.found.push(IgnoredValue { group: group.to_owned(), key: key.to_owned(), value, reason });
    }
}

fn refused<T: FromStr<Err = ValueError>>(value: &str) -> Option<String> {
    value.trim().parse::<T>().err().map(|error| error.to_string())
}
