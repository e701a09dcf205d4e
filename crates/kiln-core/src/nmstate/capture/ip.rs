//! `ipv4` and `ipv6` of an interface, and the name servers, which nmstate keeps for the whole machine.

use serde_json::{Map, Value, json};

use super::Gathered;
use super::profile::Profile;
use crate::diagnostic::{Code, Diagnostic};

/// What nmstate sets when a profile may wait for DHCP forever.
const FOREVER: &str = "2147483647";

/// Writes both sections.
pub fn families(profile: &Profile<'_>, name: &str, entry: &mut Map<String, Value>, gathered: &mut Gathered) {
    let mut waits = Vec::new();
    for family in ["ipv4", "ipv6"] {
        let section = section(profile, family);
        let enabled = section["enabled"] == true;
        entry.insert(family.to_owned(), section);
        if let Some(may_fail) = profile.take_flag(family, "may-fail").filter(|_| enabled) {
            waits.push((family, may_fail));
        }
        gathered.name_servers.add(profile, family, name);
    }
    let required: Vec<&str> = waits.iter().filter(|(_, may_fail)| !may_fail).map(|(family, _)| *family).collect();
    if !waits.is_empty() {
        let word = if required.is_empty() { "any".to_owned() } else { required.join("+") };
        entry.insert("wait-ip".to_owned(), word.into());
    }
}

fn section(profile: &Profile<'_>, family: &str) -> Value {
    // A profile that says nothing about a family leaves it automatic.
    let method = profile.take(family, "method").unwrap_or_else(|| "auto".to_owned());
    let six = family == "ipv6";
    let mut section = Map::new();
    let mut say = |key: &str, value: Value| drop(section.insert(key.to_owned(), value));
    let automatic = matches!(method.as_str(), "auto" | "dhcp");
    let enabled = match method.as_str() {
        "auto" | "dhcp" | "manual" => true,
        "link-local" => six,
        "disabled" | "ignore" => false,
        _ => {
            profile.give_back(family, "method");
            false
        }
    };
    if (method == "link-local" && !six) || method == "ignore" {
        profile.give_back(family, "method");
    }
    say("enabled", enabled.into());
    for key in ["addr-gen-mode", "dhcp-timeout", "ra-timeout", "dhcp-iaid"] {
        let default = profile.take(family, key);
        let sayable = match key {
            "addr-gen-mode" => true,
            "dhcp-iaid" => default.as_deref() == Some("mac"),
            _ => default.as_deref() == Some(FOREVER),
        };
        if !sayable && automatic {
            profile.give_back(family, key);
        }
    }
    if !enabled {
        return section.into();
    }
    say("dhcp", automatic.into());
    if six {
        say("autoconf", (method == "auto").into());
        // nmcli writes `default`, which is stable-privacy unless NetworkManager.conf says otherwise.
        let mode = profile.take(family, "addr-gen-mode");
        if matches!(mode.as_deref(), Some("1" | "3" | "stable-privacy" | "default")) {
            say("addr-gen-mode", "stable-privacy".into());
        }
    }
    let addresses = addresses(profile, family);
    if !addresses.is_empty() {
        say("address", addresses.into());
    }
    if automatic {
        automatic_options(profile, family, &mut section);
    } else if let Some(metric) = profile.take_number(family, "route-metric").filter(|metric| *metric >= 0) {
        match six {
            true => profile.give_back(family, "route-metric"),
            false => drop(section.insert("prefix-route-metric".to_owned(), metric.into())),
        }
    }
    section.into()
}

fn automatic_options(profile: &Profile<'_>, family: &str, section: &mut Map<String, Value>) {
    let mut say = |key: &str, value: Value| drop(section.insert(key.to_owned(), value));
    for (key, word) in
        [("ignore-auto-dns", "auto-dns"), ("never-default", "auto-gateway"), ("ignore-auto-routes", "auto-routes")]
    {
        if profile.take_flag(family, key) == Some(true) {
            say(word, false.into());
        }
    }
    if let Some(metric) = profile.take_number(family, "route-metric").filter(|metric| *metric >= 0) {
        say("auto-route-metric", metric.into());
    }
    if let Some(table) = profile.take_number(family, "route-table").filter(|table| *table > 0) {
        say("auto-route-table-id", table.into());
    }
    if profile.take_flag(family, "dhcp-send-hostname") == Some(false) {
        say("dhcp-send-hostname", false.into());
    }
    if let Some(hostname) = profile.take(family, "dhcp-fqdn").or_else(|| profile.take(family, "dhcp-hostname")) {
        say("dhcp-custom-hostname", hostname.into());
    }
    match (family, profile.take(family, "dhcp-client-id").as_deref()) {
        ("ipv4", Some("duid")) => say("dhcp-client-id", "iaid+duid".into()),
        // Without a word nmstate asks with the link-layer address, as this does.
        ("ipv4", Some("mac")) | (_, None) => {}
        ("ipv4", Some(other)) => say("dhcp-client-id", other.into()),
        _ => profile.give_back(family, "dhcp-client-id"),
    }
    if let Some(duid) = profile.take(family, "dhcp-duid").filter(|duid| duid != "ll") {
        say("dhcp-duid", duid.into());
    }
    if let Some(token) = profile.take(family, "token") {
        say("token", token.into());
    }
}

/// `address1=192.0.2.10/24,192.0.2.1`: the gateway behind the comma is a route and read with the routes.
fn addresses(profile: &Profile<'_>, family: &str) -> Vec<Value> {
    let mut keys = numbered(profile, family, "address");
    keys.sort();
    let read = |key: &str| {
        let value = profile.take(family, key)?;
        let (ip, prefix) = value.split(',').next()?.split_once('/')?;
        Some(json!({ "ip": ip, "prefix-length": prefix.parse::<u8>().ok()? }))
    };
    keys.iter().filter_map(|(_, key)| read(key)).collect()
}

/// Keys such as `address`, `address1`, `addresses2` in the order of their numbers.
pub fn numbered(profile: &Profile<'_>, group: &str, stem: &str) -> Vec<(u32, String)> {
    let number = |key: &str| {
        let rest = key.strip_prefix(stem)?;
        let digits = rest.strip_prefix("es").or_else(|| rest.strip_prefix('s')).unwrap_or(rest);
        if digits.is_empty() { Some(0) } else { digits.parse().ok() }
    };
    profile.keyfile.keys(group).filter_map(|key| Some((number(key)?, key.to_owned()))).collect()
}

/// Name servers of all profiles.
#[derive(Default)]
pub struct NameServers {
    found: Vec<Found>,
}

struct Found {
    interface: String,
    priority: i64,
    servers: Vec<String>,
    search: Vec<String>,
    options: Vec<String>,
}

impl NameServers {
    fn add(&mut self, profile: &Profile<'_>, family: &str, interface: &str) {
        let found = Found {
            interface: interface.to_owned(),
            priority: profile.take_number(family, "dns-priority").filter(|priority| *priority != 0).unwrap_or(100),
            servers: profile.take_list(family, "dns"),
            search: profile.take_list(family, "dns-search"),
            options: profile.take_list(family, "dns-options"),
        };
        if !(found.servers.is_empty() && found.search.is_empty() && found.options.is_empty()) {
            self.found.push(found);
        }
    }

    /// One list for the machine, in NetworkManager's order of priority.
    pub fn into_value(mut self, diagnostics: &mut Vec<Diagnostic>) -> Option<Value> {
        self.found.sort_by_key(|found| found.priority);
        let first = self.found.first()?.interface.clone();
        if let Some(other) = self.found.iter().find(|found| found.interface != first) {
            let message = format!("name servers of `{first}` and `{}` become one list", other.interface);
            diagnostics.push(
                Diagnostic::new(Code(0240), None, message)
                    .cause("nmstate has one list of name servers per machine and puts it into one profile")
                    .help("use `-o keyfiles` if each interface must keep its own name servers"),
            );
        }
        let gather = |pick: fn(&Found) -> &Vec<String>| {
            let mut all: Vec<String> = Vec::new();
            for item in self.found.iter().flat_map(pick) {
                if !all.contains(item) {
                    all.push(item.clone());
                }
            }
            all
        };
        let mut value = Map::new();
        for (key, list) in [
            ("server", gather(|found| &found.servers)),
            ("search", gather(|found| &found.search)),
            ("options", gather(|found| &found.options)),
        ] {
            if !list.is_empty() {
                value.insert(key.to_owned(), list.into());
            }
        }
        Some(value.into())
    }
}
