//! Whether a running network is what a document says, field by field.
//!
//! Only what a document mentions counts, and of that only what a kernel can show: links, addresses, ports, routes, rules. Settings
//! that live in profiles alone (`auto-dns`, `dhcp-client-id`) are compared there, and so are name servers: `/etc/resolv.conf` is
//! often not NetworkManager's own.
//! An interface that asks for IPv4 addresses is right when it has one, for IPv6 addresses when IPv6 is on.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

/// One field that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// What it belongs to.
    pub of: Of,
    /// For people: `eth1 mtu: 1500 -> 9000`.
    pub line: String,
}

/// What a field belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Of {
    /// An interface.
    Interface(String),
    /// The rules of one family. The kernel has them without an interface; a profile brings them.
    Rules(Family),
    /// The machine.
    Host,
}

/// Of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    Four,
    /// IPv6.
    Six,
}

/// What differs between a running network and what is wanted of it. Empty: nothing.
pub fn differences(current: &Value, wanted: &Value) -> Vec<Mismatch> {
    let mut found = Vec::new();
    for interface in list(wanted, "interfaces") {
        compare_interface(current, interface, &mut found);
    }
    for route in list(&wanted["routes"], "config") {
        compare_route(current, route, &mut found);
    }
    for rule in list(&wanted["route-rules"], "config") {
        compare_rule(current, rule, &mut found);
    }
    let (running, name) = (current["hostname"]["running"].as_str(), wanted["hostname"]["config"].as_str());
    if let (Some(running), Some(name)) = (running, name)
        && running != name
    {
        found.push(Mismatch { of: Of::Host, line: format!("hostname: {running} -> {name}") });
    }
    found
}

/// The entries of a list, none when it is absent or something else.
pub(super) fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// The interface of this name.
pub(super) fn interface<'v>(document: &'v Value, name: &str) -> Option<&'v Value> {
    // The name stands first almost always: asking for it by key, hashed, among a hundred interfaces a hundred times was a fifth of
    // all instructions of a run that found nothing to do.
    let is_named = |interface: &&Value| {
        let mut fields = interface.as_object().into_iter().flatten();
        fields.find(|(key, _)| *key == "name").is_some_and(|(_, value)| value == name)
    };
    list(document, "interfaces").iter().find(is_named)
}

/// The members of a bond, bridge, VRF or OVS bridge, by name. None for what has no ports, or does not mention them.
pub(super) fn ports(interface: &Value) -> Option<Vec<&str>> {
    let lists = [
        &interface["link-aggregation"]["port"],
        &interface["link-aggregation"]["slaves"],
        &interface["bridge"]["port"],
        &interface["bridge"]["ports"],
        &interface["vrf"]["port"],
        &interface["vrf"]["ports"],
    ];
    let ports = lists.into_iter().find_map(Value::as_array)?;
    Some(ports.iter().filter_map(|port| port.as_str().or_else(|| port["name"].as_str())).collect())
}

fn compare_interface(current: &Value, wanted: &Value, found: &mut Vec<Mismatch>) {
    let Some(name) = wanted["name"].as_str() else { return };
    let mut differ = |field: &str, from: String, to: String| {
        found.push(Mismatch { of: Of::Interface(name.into()), line: format!("{name}{field}: {from} -> {to}") });
    };
    let is = interface(current, name);
    let state = wanted["state"].as_str().unwrap_or("up");
    match (state, is) {
        ("absent", None) | ("ignore", _) => return,
        ("absent", Some(is)) => {
            // A NIC stays; what is to be absent is its configuration.
            let physical = is["type"] == "ethernet" || is["type"] == "infiniband";
            if !physical || is["state"] == "up" && addresses(is).next().is_some() {
                differ("", text(&is["type"]), "absent".into());
            }
            return;
        }
        (state, None) => {
            return differ("", "absent".into(), format!("{} {state}", text(&wanted["type"])).trim().into());
        }
        ("down", Some(is)) => {
            if is["state"] == "up" {
                differ(" state", "up".into(), "down".into());
            }
            return;
        }
        (_, Some(_)) => {}
    }
    let Some(is) = is else { return };
    if is["state"] != "up" {
        differ(" state", text(&is["state"]), "up".into());
    }
    for path in PLAIN {
        let (from, to) = (at(is, path), at(wanted, path));
        // nmstate calls one end of a pair `veth` and takes `ethernet` for it.
        let cable = |value: &Value| *path == ["type"] && (value == "ethernet" || value == "veth");
        let right = to.is_null() || same(from, to) || cable(from) && cable(to);
        if !right {
            differ(&format!(" {}", path.join(".")), text(from), text(to));
        }
    }
    if let Some(mut to) = ports(wanted) {
        let mut from = ports(is).unwrap_or_default();
        from.sort_unstable();
        to.sort_unstable();
        if from != to {
            differ(" ports", format!("[{}]", from.join(", ")), format!("[{}]", to.join(", ")));
        }
    }
    for family in ["ipv4", "ipv6"] {
        if let Some((from, to)) = compare_addresses(family, &is[family], &wanted[family]) {
            differ(&format!(" {family}"), from, to);
        }
    }
}

/// Fields that are compared as they stand.
const PLAIN: &[&[&str]] = &[
    &["type"],
    &["mtu"],
    &["mac-address"],
    &["controller"],
    &["vlan", "base-iface"],
    &["vlan", "id"],
    &["vrf", "route-table-id"],
    &["vxlan", "id"],
    &["vxlan", "remote"],
    &["link-aggregation", "mode"],
    &["bridge", "options", "stp", "enabled"],
    &["mac-vlan", "mode"],
];

/// What a device is made with and cannot be given later.
const FIXED: &[&[&str]] = &[
    &["type"],
    &["vlan", "base-iface"],
    &["vlan", "id"],
    &["vlan", "protocol"],
    &["vrf", "route-table-id"],
    &["vxlan", "id"],
    &["vxlan", "base-iface"],
    &["mac-vlan", "mode"],
    &["link-aggregation", "mode"],
];

/// Whether an interface that is there must go before it can be as wanted.
pub(super) fn must_be_made_anew(current: &Value, wanted: &Value, name: &str) -> bool {
    let (Some(is), Some(wanted)) = (interface(current, name), interface(wanted, name)) else { return false };
    // The kernel calls a veth what a document may call ethernet.
    let nic = |entry: &Value| matches!(entry["type"].as_str(), Some("ethernet" | "veth" | "infiniband"));
    let differs = |path: &&[&str]| {
        let (from, to) = (at(is, path), at(wanted, path));
        !from.is_null() && !to.is_null() && !same(from, to)
    };
    !nic(is) && FIXED.iter().any(differs)
}

fn compare_addresses(family: &str, is: &Value, wanted: &Value) -> Option<(String, String)> {
    let shown = |value: &Value| {
        let all: Vec<String> = own_addresses(value).map(|address| address.to_string()).collect();
        if all.is_empty() { "no address".to_owned() } else { all.join(", ") }
    };
    match wanted["enabled"].as_bool() {
        Some(false) => own_addresses(is).next().map(|_| (shown(is), "disabled".to_owned())),
        Some(true) if wanted["dhcp"] == true || wanted["autoconf"] == true => {
            // Whether there is a router is not the node's doing: the address IPv6 itself brings shows that it listens for one.
            let none =
                if family == "ipv6" { list(is, "address").is_empty() } else { own_addresses(is).next().is_none() };
            none.then(|| ("no address".to_owned(), "automatic".to_owned()))
        }
        // Fewer than there are is a difference as well: the document owns the list.
        Some(true) if wanted["address"].is_array() => {
            let [mut from, mut to] = [is, wanted].map(|side| own_addresses(side).collect::<Vec<_>>());
            from.sort_unstable();
            to.sort_unstable();
            (from != to).then(|| (shown(is), shown(wanted)))
        }
        _ => None,
    }
}

/// Addresses of one family that somebody gave it: link-local ones come with IPv6 itself.
fn own_addresses(family: &Value) -> impl Iterator<Item = IpNet> {
    list(family, "address").iter().filter_map(|entry| {
        let address: IpAddr = entry["ip"].as_str()?.parse().ok()?;
        let link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        let length = entry["prefix-length"].as_u64().and_then(|length| u8::try_from(length).ok())?;
        if link_local { None } else { IpNet::new(address, length).ok() }
    })
}

fn addresses(interface: &Value) -> impl Iterator<Item = IpNet> {
    ["ipv4", "ipv6"].into_iter().flat_map(|family| own_addresses(&interface[family]).collect::<Vec<_>>())
}

/// The table routes are in without one.
const MAIN_TABLE: u64 = 254;

fn compare_route(current: &Value, wanted: &Value, found: &mut Vec<Mismatch>) {
    let through = wanted["next-hop-interface"].as_str();
    let matches = |route: &Value| {
        let table = |route: &Value| route["table-id"].as_u64().filter(|table| *table != 0).unwrap_or(MAIN_TABLE);
        ["destination", "next-hop-address", "next-hop-interface", "metric"].into_iter().all(|key| {
            let to = &wanted[key];
            // "no next hop" has three spellings
            let none = |value: &Value| value.is_null() || matches!(value.as_str(), Some("" | "0.0.0.0" | "::"));
            let any = to.is_null() || key == "metric" && to.as_i64().is_some_and(|metric| metric <= 0);
            any || same(&route[key], to) || key == "next-hop-address" && none(to) && none(&route[key])
        }) && (wanted["table-id"].is_null() || table(route) == table(wanted))
    };
    let there = list(&current["routes"], "running").iter().any(matches);
    let absent = wanted["state"] == "absent";
    if there == absent {
        let described = ["destination", "next-hop-address", "next-hop-interface"]
            .into_iter()
            .zip(["to", "via", "on"])
            .filter_map(|(key, word)| Some(format!("{word} {}", wanted[key].as_str()?)))
            .collect::<Vec<_>>()
            .join(" ");
        let line = match absent {
            true => format!("route {described}: there -> absent"),
            false => format!("route {described}: absent -> there"),
        };
        let of = through.map_or(Of::Host, |name| Of::Interface(name.to_owned()));
        found.push(Mismatch { of, line });
    }
}

fn compare_rule(current: &Value, wanted: &Value, found: &mut Vec<Mismatch>) {
    // What the kernel is not asked for: marks, and rules that lead to no table.
    let unseen = ["fwmark", "fwmask", "action", "suppress-prefix-length"];
    // An observation without rules was not asked for any.
    if unseen.iter().any(|key| !wanted[key].is_null()) || !current["route-rules"]["config"].is_array() {
        return;
    }
    let rule = Rule::read(wanted);
    let there = list(&current["route-rules"], "config").iter().any(|running| rule.fits(&Rule::read(running)));
    let absent = wanted["state"] == "absent";
    if there == absent {
        let line = match absent {
            true => format!("rule{}: there -> absent", describe_rule(wanted)),
            false => format!("rule{}: absent -> there", describe_rule(wanted)),
        };
        found.push(Mismatch { of: Of::Rules(rule.family()), line });
    }
}

/// A rule, as far as it is said.
struct Rule<'v> {
    family: Option<&'v str>,
    from: Option<IpNet>,
    to: Option<IpNet>,
    priority: Option<u64>,
    table: Option<u64>,
    iif: Option<&'v str>,
}

impl<'v> Rule<'v> {
    fn read(value: &'v Value) -> Rule<'v> {
        let net = |key: &str| {
            let text = value[key].as_str()?;
            let net = text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
            // From and to everywhere is what a rule without it says.
            net.map(|net: IpNet| net.trunc()).filter(|net| net.prefix_len() > 0)
        };
        Rule {
            family: value["family"].as_str(),
            from: net("ip-from"),
            to: net("ip-to"),
            priority: value["priority"].as_u64(),
            table: value["route-table"].as_u64().map(|table| if table == 0 { MAIN_TABLE } else { table }),
            iif: value["iif"].as_str(),
        }
    }

    fn family(&self) -> Family {
        let six = self.from.or(self.to).map(|net| matches!(net, IpNet::V6(_)));
        if six.unwrap_or(self.family == Some("ipv6")) { Family::Six } else { Family::Four }
    }

    /// Whether a rule of the kernel is this one.
    fn fits(&self, running: &Rule<'_>) -> bool {
        fn same<T: PartialEq>(said: &Option<T>, is: &Option<T>) -> bool {
            said.is_none() || said == is
        }
        same(&self.from, &running.from)
            && same(&self.to, &running.to)
            && same(&self.priority, &running.priority)
            && same(&self.table, &running.table)
            && same(&self.iif, &running.iif)
            && self.family() == running.family()
    }
}

fn describe_rule(rule: &Value) -> String {
    ["ip-from", "ip-to", "iif", "priority", "route-table"]
        .into_iter()
        .zip(["from", "to", "iif", "priority", "table"])
        .filter(|(key, _)| !rule[key].is_null())
        .map(|(key, word)| format!(" {word} {}", text(&rule[key])))
        .collect()
}

fn at<'v>(value: &'v Value, path: &[&str]) -> &'v Value {
    path.iter().fold(value, |value, key| &value[*key])
}

/// Numbers may be written as text; addresses in any case.
fn same(one: &Value, other: &Value) -> bool {
    let word = |value: &Value| match value {
        Value::String(text) => text.to_ascii_lowercase(),
        other => other.to_string(),
    };
    one == other || word(one) == word(other) || modes_agree(one, other)
}

/// Bond modes by number or by name.
fn modes_agree(one: &Value, other: &Value) -> bool {
    let mode = |value: &Value| text(value).parse::<crate::net::BondMode>().ok();
    mode(one).is_some() && mode(one) == mode(other)
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "nothing".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lines(current: &Value, wanted: &Value) -> Vec<String> {
        differences(current, wanted).into_iter().map(|mismatch| mismatch.line).collect()
    }

    #[test]
    fn what_is_not_mentioned_does_not_count() {
        let current = json!({"interfaces": [
            {"name": "eth0", "type": "ethernet", "state": "up", "mtu": 1500,
             "ipv4": {"enabled": true, "address": [{"ip": "192.0.2.5", "prefix-length": 24}]}},
            {"name": "br1", "type": "linux-bridge", "state": "up", "ipv6": {"enabled": true, "address": [{"ip": "fe80::1", "prefix-length": 64}]}, "bridge": {"port": [{"name": "eth2"}, {"name": "eth1"}]}},
        ], "routes": {"running": [
            {"destination": "0.0.0.0/0", "next-hop-address": "192.0.2.1", "next-hop-interface": "eth0", "metric": 100, "table-id": 254}]}});
        for (wanted, expected) in [
            (json!({}), vec![]),
            (json!({"interfaces": [{"name": "eth0", "state": "up"}]}), vec![]),
            (json!({"interfaces": [{"name": "eth0", "mtu": "1500"}]}), vec![]),
            (json!({"interfaces": [{"name": "eth0", "type": "veth"}]}), vec![]),
            (json!({"interfaces": [{"name": "eth0", "type": "bond"}]}), vec!["eth0 type: ethernet -> bond"]),
            (json!({"interfaces": [{"name": "eth0", "mtu": 9000}]}), vec!["eth0 mtu: 1500 -> 9000"]),
            (json!({"interfaces": [{"name": "eth9", "type": "dummy"}]}), vec!["eth9: absent -> dummy up"]),
            (json!({"interfaces": [{"name": "eth9", "state": "absent"}]}), vec![]),
            (json!({"interfaces": [{"name": "br1", "state": "absent"}]}), vec!["br1: linux-bridge -> absent"]),
            (
                json!({"interfaces": [{"name": "br1", "bridge": {"port": [{"name": "eth1"}, {"name": "eth2"}]}}]}),
                vec![],
            ),
            (json!({"interfaces": [{"name": "br1", "bridge": {"port": []}}]}), vec!["br1 ports: [eth1, eth2] -> []"]),
            (
                json!({"interfaces": [{"name": "eth0", "ipv4": {"enabled": true, "address": [{"ip": "192.0.2.6", "prefix-length": 24}]}}]}),
                vec!["eth0 ipv4: 192.0.2.5/24 -> 192.0.2.6/24"],
            ),
            (json!({"interfaces": [{"name": "eth0", "ipv4": {"enabled": true, "dhcp": true}}]}), vec![]),
            (
                json!({"interfaces": [{"name": "eth0", "ipv4": {"enabled": false}}]}),
                vec!["eth0 ipv4: 192.0.2.5/24 -> disabled"],
            ),
            (
                json!({"interfaces": [{"name": "eth0", "ipv6": {"enabled": true, "autoconf": true}}]}),
                vec!["eth0 ipv6: no address -> automatic"],
            ),
            (json!({"interfaces": [{"name": "br1", "ipv6": {"enabled": true, "autoconf": true}}]}), vec![]),
            (
                json!({"routes": {"config": [{"destination": "0.0.0.0/0", "next-hop-address": "192.0.2.1", "next-hop-interface": "eth0"}]}}),
                vec![],
            ),
            (
                json!({"routes": {"config": [{"destination": "10.0.0.0/8", "next-hop-address": "192.0.2.1", "next-hop-interface": "eth0"}]}}),
                vec!["route to 10.0.0.0/8 via 192.0.2.1 on eth0: absent -> there"],
            ),
            (
                json!({"routes": {"config": [{"state": "absent", "destination": "0.0.0.0/0", "next-hop-interface": "eth0"}]}}),
                vec!["route to 0.0.0.0/0 on eth0: there -> absent"],
            ),
        ] {
            assert_eq!(lines(&current, &wanted), expected, "{wanted}");
        }
    }

    #[test]
    fn rules_are_compared_by_what_is_said_of_them() {
        let current = json!({"route-rules": {"config": [
            {"family": "ipv4", "ip-from": "192.0.2.0/24", "priority": 1000, "route-table": 77},
            {"family": "ipv4", "ip-to": "203.0.113.7/32", "priority": 1001, "route-table": 254},
            {"family": "ipv6", "priority": 1002, "route-table": 78}]}});
        for (rule, expected) in [
            (json!({"ip-from": "192.0.2.0/24", "priority": 1000, "route-table": 77}), None),
            (json!({"ip-from": "192.0.2.9/24", "route-table": 77}), None),
            (json!({"ip-to": "203.0.113.7", "priority": 1001}), None),
            (json!({"ip-to": "203.0.113.7", "route-table": 0}), None),
            (json!({"family": "ipv6", "ip-from": "::/0", "priority": 1002, "route-table": 78}), None),
            // What the kernel is not asked for is not missed.
            (json!({"fwmark": 7, "route-table": 99}), None),
            (json!({"ip-from": "198.51.100.0/24", "action": "blackhole"}), None),
            (
                json!({"ip-from": "192.0.2.0/24", "priority": 1000, "route-table": 78}),
                Some("rule from 192.0.2.0/24 priority 1000 table 78: absent -> there"),
            ),
            (json!({"family": "ipv4", "priority": 1002}), Some("rule priority 1002: absent -> there")),
            (json!({"state": "absent", "ip-from": "192.0.2.0/24"}), Some("rule from 192.0.2.0/24: there -> absent")),
            (json!({"state": "absent", "ip-from": "198.51.100.0/24"}), None),
        ] {
            let wanted = json!({"route-rules": {"config": [rule]}});
            assert_eq!(lines(&current, &wanted), Vec::from_iter(expected), "{wanted}");
            assert_eq!(lines(&json!({}), &wanted), Vec::<String>::new(), "nobody looked");
        }
    }
}
