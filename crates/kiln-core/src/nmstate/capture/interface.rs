//! One entry of `interfaces`.

use serde_json::{Map, Value, json};

use super::profile::Profile;
use super::{Gathered, ip, routes};

/// Bond options that are numbers; the others are words.
const NUMBERS: [&str; 15] = [
    "miimon",
    "updelay",
    "downdelay",
    "arp_interval",
    "min_links",
    "resend_igmp",
    "num_grat_arp",
    "num_unsol_na",
    "packets_per_slave",
    "lp_interval",
    "ad_actor_sys_prio",
    "ad_user_port_key",
    "peer_notif_delay",
    "arp_missed_max",
    "lacp_active",
];

/// Bond options nmstate knows beside the numbers.
const WORDS: [&str; 15] = [
    "ad_actor_system",
    "ad_select",
    "all_slaves_active",
    "arp_all_targets",
    "arp_ip_target",
    "arp_validate",
    "fail_over_mac",
    "lacp_rate",
    "primary",
    "primary_reselect",
    "tlb_dynamic_lb",
    "use_carrier",
    "xmit_hash_policy",
    "ns_ip6_target",
    "balance_slb",
];

/// Bridge options that have the same name in nmstate.
const BRIDGE_OPTIONS: [(&str, &str); 6] = [
    ("ageing-time", "mac-ageing-time"),
    ("group-forward-mask", "group-forward-mask"),
    ("multicast-snooping", "multicast-snooping"),
    ("multicast-querier", "multicast-querier"),
    ("multicast-router", "multicast-router"),
    ("vlan-default-pvid", "vlan-default-pvid"),
];

/// Who is under whose control, by interface name.
pub struct Ports<'p, 'f>(&'p [Profile<'f>]);

impl<'p, 'f> Ports<'p, 'f> {
    pub fn new(all: &'p [Profile<'f>]) -> Self {
        Ports(all)
    }

    /// The interface behind a name or UUID.
    fn resolve(&self, reference: &str) -> String {
        let owner = self.0.iter().find(|profile| profile.uuid() == reference);
        owner.and_then(document_name).unwrap_or_else(|| reference.to_owned())
    }

    fn of(&self, controller: &Profile<'_>) -> Vec<(String, &'p Profile<'f>)> {
        let wanted = document_name(controller);
        let mine = |port: &&Profile<'_>| port.controller().map(|reference| self.resolve(&reference)) == wanted;
        let mut ports: Vec<_> =
            self.0.iter().filter(mine).filter_map(|port| Some((document_name(port)?, port))).collect();
        ports.sort_by(|a, b| a.0.cmp(&b.0));
        ports
    }
}

/// How the document calls the interface: by its name, or by the profile's when only the MAC address is known.
fn document_name(profile: &Profile<'_>) -> Option<String> {
    let by_mac = || {
        profile.keyfile.get(profile.ethernet(), "mac-address")?;
        profile.keyfile.get("connection", "id").map(|id| id.into_owned())
    };
    profile.name().or_else(by_mac)
}

/// The entry for a profile; none when nmstate has no words for it.
pub fn interface(profile: &Profile<'_>, ports: &Ports<'_, '_>, gathered: &mut Gathered) -> Option<Value> {
    let kind = match profile.kind().as_str() {
        "ethernet" => "ethernet",
        "bond" => "bond",
        "vlan" => "vlan",
        "bridge" => "linux-bridge",
        "dummy" => "dummy",
        _ => return None,
    };
    let name = document_name(profile)?;
    let mut entry = Map::new();
    entry.insert("name".to_owned(), name.clone().into());
    let id = profile.keyfile.get("connection", "id").unwrap_or_default();
    if id != name && !id.is_empty() {
        entry.insert("profile-name".to_owned(), id.into_owned().into());
    }
    entry.insert("type".to_owned(), kind.into());
    let down = profile.keyfile.get("connection", "autoconnect").is_some_and(|value| value == "false");
    entry.insert("state".to_owned(), if down { "down" } else { "up" }.into());
    link(profile, kind, &mut entry);
    match kind {
        "bond" => drop(entry.insert("link-aggregation".to_owned(), bond(profile, ports))),
        "vlan" => drop(entry.insert("vlan".to_owned(), vlan(profile, ports))),
        "linux-bridge" => drop(entry.insert("bridge".to_owned(), bridge(profile, ports))),
        _ => {}
    }
    if profile.controller().is_none() {
        ip::families(profile, &name, &mut entry, gathered);
        routes::gather(profile, &name, kind, gathered);
    }
    Some(entry.into())
}

/// What every kind has: addresses, MTU, description.
fn link(profile: &Profile<'_>, kind: &str, entry: &mut Map<String, Value>) {
    let group = profile.ethernet();
    if profile.name().is_none() {
        entry.insert("identifier".to_owned(), "mac-address".into());
        entry.insert("mac-address".to_owned(), profile.take(group, "mac-address").into());
    } else if let Some(mac) = profile.take(group, "cloned-mac-address") {
        match mac.parse::<crate::net::MacAddress>() {
            Ok(mac) => drop(entry.insert("mac-address".to_owned(), mac.to_string().to_uppercase().into())),
            Err(_) => profile.give_back(group, "cloned-mac-address"),
        }
    }
    if let Some(mtu) = profile.take_number(group, "mtu").filter(|mtu| *mtu > 0) {
        entry.insert("mtu".to_owned(), mtu.into());
    }
    if profile.take(group, "accept-all-mac-addresses").as_deref() == Some("1") {
        entry.insert("accept-all-mac-addresses".to_owned(), true.into());
    }
    if let Some(text) = profile.take("user", "nmstate.interface.description") {
        entry.insert("description".to_owned(), text.into());
    }
    if let Some(lldp) = profile.take_number("connection", "lldp").filter(|lldp| *lldp >= 0) {
        entry.insert("lldp".to_owned(), json!({ "enabled": lldp > 0 }));
    }
    // One device at a time is also what NetworkManager does when nothing is said.
    if profile.take("connection", "multi-connect").is_some_and(|value| value != "1") {
        profile.give_back("connection", "multi-connect");
    }
    if kind == "ethernet" && profile.take(group, "speed").is_some() {
        let negotiate = profile.take_flag(group, "auto-negotiate") == Some(true);
        let mut section = json!({ "auto-negotiation": negotiate, "speed": profile.take_number(group, "speed") });
        if let Some(duplex) = profile.take(group, "duplex") {
            section["duplex"] = duplex.into();
        }
        entry.insert("ethernet".to_owned(), section);
    }
}

fn bond(profile: &Profile<'_>, ports: &Ports<'_, '_>) -> Value {
    let mut options = Map::new();
    for key in NUMBERS.iter().chain(&WORDS) {
        let Some(value) = profile.take("bond", key) else { continue };
        let number = value.parse::<i64>().ok().filter(|_| NUMBERS.contains(key));
        options.insert((*key).to_owned(), number.map_or_else(|| value.into(), Value::from));
    }
    let mode = profile.take("bond", "mode").unwrap_or_else(|| "balance-rr".to_owned());
    let mut section = Map::new();
    section.insert("mode".to_owned(), mode.into());
    if !options.is_empty() {
        section.insert("options".to_owned(), options.into());
    }
    section.insert("port".to_owned(), ports.of(profile).into_iter().map(|(name, _)| name).collect());
    section.into()
}

fn vlan(profile: &Profile<'_>, ports: &Ports<'_, '_>) -> Value {
    let parent = profile.take("vlan", "parent").map(|parent| ports.resolve(&parent));
    let mut section = json!({ "base-iface": parent, "id": profile.take_number("vlan", "id") });
    let flags = profile.take_number("vlan", "flags").unwrap_or(1);
    // Bits as in the kernel: reorder headers, GVRP, loose binding, MVRP.
    if flags & 1 == 0 {
        section["reorder-headers"] = false.into();
    }
    match (flags & 2 != 0, flags & 8 != 0) {
        (true, _) => section["registration-protocol"] = "gvrp".into(),
        (_, true) => section["registration-protocol"] = "mvrp".into(),
        _ => {}
    }
    if flags & 4 != 0 {
        section["loose-binding"] = true.into();
    }
    if let Some(protocol) = profile.take("vlan", "protocol") {
        section["protocol"] = protocol.to_lowercase().into();
    }
    section
}

fn bridge(profile: &Profile<'_>, ports: &Ports<'_, '_>) -> Value {
    let mut stp = Map::new();
    if let Some(enabled) = profile.take_flag("bridge", "stp") {
        stp.insert("enabled".to_owned(), enabled.into());
    }
    for key in ["priority", "forward-delay", "hello-time", "max-age"] {
        if let Some(value) = profile.take_number("bridge", key) {
            stp.insert(key.to_owned(), value.into());
        }
    }
    let mut options = Map::new();
    for (key, word) in BRIDGE_OPTIONS {
        let Some(value) = profile.take("bridge", key) else { continue };
        let scalar = match value.as_str() {
            "true" => true.into(),
            "false" => false.into(),
            text => text.parse::<i64>().map_or_else(|_| text.into(), Value::from),
        };
        options.insert(word.to_owned(), scalar);
    }
    if !stp.is_empty() {
        options.insert("stp".to_owned(), stp.into());
    }
    // nmstate filters VLANs exactly when a port says something about them.
    let filtering = profile.take_flag("bridge", "vlan-filtering") == Some(true);
    let list: Vec<Value> = ports.of(profile).into_iter().map(|(name, port)| bridge_port(&name, port)).collect();
    if filtering && !list.iter().any(|port| port.get("vlan").is_some()) {
        profile.give_back("bridge", "vlan-filtering");
    }
    let mut section = Map::new();
    if !options.is_empty() {
        section.insert("options".to_owned(), options.into());
    }
    section.insert("port".to_owned(), list.into());
    section.into()
}

fn bridge_port(name: &str, port: &Profile<'_>) -> Value {
    let mut entry = json!({ "name": name });
    for (key, word) in [("path-cost", "stp-path-cost"), ("priority", "stp-priority")] {
        if let Some(value) = port.take_number("bridge-port", key) {
            entry[word] = value.into();
        }
    }
    if let Some(hairpin) = port.take_flag("bridge-port", "hairpin-mode") {
        entry["stp-hairpin-mode"] = hairpin.into();
    }
    if let Some(vlans) = port.take("bridge-port", "vlans") {
        match port_vlans(&vlans) {
            Some(vlans) => entry["vlan"] = vlans,
            None => port.give_back("bridge-port", "vlans"),
        }
    }
    entry
}

/// `10 pvid untagged, 200-300` in nmstate's words.
fn port_vlans(text: &str) -> Option<Value> {
    let (mut tags, mut native) = (Vec::new(), None);
    for range in text.split(',').map(str::trim) {
        let (ids, words) = range.split_once(' ').unwrap_or((range, ""));
        let (first, last) = ids.split_once('-').unwrap_or((ids, ids));
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        match (words, first == last) {
            ("", true) => tags.push(json!({ "id": first })),
            ("", false) => tags.push(json!({ "id-range": { "min": first, "max": last } })),
            ("pvid untagged", true) if native.is_none() => native = Some(first),
            _ => return None,
        }
    }
    Some(match (native, tags.is_empty()) {
        (Some(tag), true) => json!({ "mode": "access", "tag": tag }),
        (Some(tag), false) => json!({ "mode": "trunk", "enable-native": true, "tag": tag, "trunk-tags": tags }),
        (None, _) => json!({ "mode": "trunk", "trunk-tags": tags }),
    })
}
