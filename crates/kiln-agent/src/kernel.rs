//! What the kernel says about its network, in nmstate's words: four dumps of rtnetlink, and only what a change is judged by.
//!
//! nmstate's own reading of the kernel takes a third of a second of processor time for a hundred bridges, most of it for
//! ethtool and the many attributes of a link; a plan that finds nothing to do shall take milliseconds. [`read_kernel`] has the
//! fields [`kiln_core::change::differences`] and the planner look at, with nmstate's names and spelling; a test beside a
//! real NetworkManager compares both. For showing there is nmstate's, see [`crate::observe`].
//!
//! The bytes come from the kernel, and are read as if they did not: nothing is taken for granted about lengths.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::{Map, Value, json};

/// Routes that are kept at most. A routing daemon's tables are not what a document speaks about.
const MOST_ROUTES: usize = 10_000;

/// The dumps of one moment.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Dumps {
    /// Answers to RTM_GETLINK.
    pub links: Vec<u8>,
    /// Answers to RTM_GETADDR.
    pub addresses: Vec<u8>,
    /// Answers to RTM_GETROUTE.
    pub routes: Vec<u8>,
    /// Answers to RTM_GETRULE.
    pub rules: Vec<u8>,
}

/// Asks the kernel.
pub fn read_kernel() -> io::Result<Value> {
    use crate::netlink::dump;
    let dumps = Dumps { links: dump(18, 16)?, addresses: dump(22, 8)?, routes: dump(26, 12)?, rules: dump(34, 12)? };
    Ok(render_kernel(&dumps))
}

/// The document. Pure.
pub fn render_kernel(dumps: &Dumps) -> Value {
    let mut links: Vec<Link> =
        messages(&dumps.links).filter_map(|(kind, body)| (kind == 16).then(|| link(body))?).collect();
    links.sort_by_key(|link| link.index);
    links.dedup_by_key(|link| link.index);
    let names: HashMap<u32, String> = links.iter().map(|link| (link.index, link.name.clone())).collect();
    let mut addresses: HashMap<u32, [Vec<Value>; 2]> = HashMap::new();
    for (index, six, address) in
        messages(&dumps.addresses).filter_map(|(kind, body)| (kind == 20).then(|| address(body))?)
    {
        addresses.entry(index).or_default()[usize::from(six)].push(address);
    }
    let interfaces: Vec<Value> = links
        .iter()
        .map(|link| interface(link, &links, &names, addresses.remove(&link.index).unwrap_or_default()))
        .collect();
    let routes = messages(&dumps.routes).filter_map(|(kind, body)| (kind == 24).then(|| route(body, &names))?);
    let rules = messages(&dumps.rules).filter_map(|(kind, body)| (kind == 32).then(|| rule(body))?);
    json!({
        "interfaces": interfaces,
        "routes": {"running": routes.take(MOST_ROUTES).collect::<Vec<_>>()},
        "route-rules": {"config": rules.take(MOST_ROUTES).collect::<Vec<_>>()},
    })
}

#[derive(Debug, Default)]
struct Link {
    index: u32,
    name: String,
    up: bool,
    mtu: u32,
    mac: Option<String>,
    permanent_mac: Option<String>,
    parent: u32,
    controller: u32,
    hardware: u16,
    kind: String,
    data: Vec<(u16, Vec<u8>)>,
}

impl Link {
    fn number(&self, attribute: u16) -> Option<u32> {
        let (_, bytes) = self.data.iter().find(|(kind, _)| *kind == attribute)?;
        match bytes.len() {
            1 => Some(u32::from(bytes[0])),
            2 => u16_of(bytes).map(u32::from),
            _ => u32_of(bytes),
        }
    }
}

fn link(body: &[u8]) -> Option<Link> {
    let mut link = Link { hardware: u16_of(body.get(2..)?)?, index: u32_of(body.get(4..)?)?, ..Link::default() };
    let flags = u32_of(body.get(8..)?)?;
    let mut operational = 0;
    for (kind, value) in attributes(body.get(16..)?) {
        match kind {
            1 => link.mac = mac(value),
            3 => link.name = text(value),
            4 => link.mtu = u32_of(value)?,
            5 => link.parent = u32_of(value)?,
            10 => link.controller = u32_of(value)?,
            16 => operational = *value.first()?,
            18 => {
                for (kind, value) in attributes(value) {
                    match kind {
                        1 => link.kind = text(value),
                        2 => link.data = attributes(value).map(|(kind, value)| (kind, value.to_vec())).collect(),
                        _ => {}
                    }
                }
            }
            54 => link.permanent_mac = mac(value),
            _ => {}
        }
    }
    // IF_OPER_UP, or IFF_RUNNING
    link.up = operational == 6 || flags & 0x40 != 0;
    (!link.name.is_empty()).then_some(link)
}

/// nmstate's name of a kind; None for what it leaves alone.
fn kind_of(link: &Link) -> Option<&'static str> {
    Some(match (link.kind.as_str(), link.hardware) {
        ("", 772) => "loopback",
        ("", 32) => "infiniband",
        ("", 1) => "ethernet",
        ("bridge", _) => "linux-bridge",
        ("bond", _) => "bond",
        ("vlan", _) => "vlan",
        ("vxlan", _) => "vxlan",
        ("dummy", _) => "dummy",
        ("veth", _) => "veth",
        ("vrf", _) => "vrf",
        ("macvlan", _) => "mac-vlan",
        ("macvtap", _) => "mac-vtap",
        ("macsec", _) => "macsec",
        ("ipvlan", _) => "ipvlan",
        ("hsr", _) => "hsr",
        ("xfrm", _) => "xfrm",
        ("openvswitch", _) => "ovs-interface",
        _ => return None,
    })
}

fn interface(link: &Link, links: &[Link], names: &HashMap<u32, String>, addresses: [Vec<Value>; 2]) -> Value {
    let mut entry = Map::new();
    let kind = kind_of(link);
    let state = match (kind, link.up) {
        (None, _) => "ignore",
        (Some(_), true) => "up",
        (Some(_), false) => "down",
    };
    entry.insert("name".into(), link.name.clone().into());
    entry.insert("type".into(), kind.unwrap_or("unknown").into());
    entry.insert("state".into(), state.into());
    entry.insert("mtu".into(), link.mtu.into());
    for (key, mac) in [("mac-address", &link.mac), ("permanent-mac-address", &link.permanent_mac)] {
        if let Some(mac) = mac {
            entry.insert(key.into(), mac.clone().into());
        }
    }
    if let Some(controller) = names.get(&link.controller) {
        entry.insert("controller".into(), controller.clone().into());
    }
    for (family, addresses) in ["ipv4", "ipv6"].into_iter().zip(addresses) {
        // An address with an end was leased.
        let leased = addresses.iter().any(|address| address.get("valid-life-time").is_some());
        let mut family_entry = json!({"enabled": !addresses.is_empty()});
        if !addresses.is_empty() {
            family_entry["address"] = addresses.into();
        }
        if leased && family == "ipv4" {
            family_entry["dhcp"] = true.into();
        }
        entry.insert(family.into(), family_entry);
    }
    let ports =
        || links.iter().filter(|port| port.controller == link.index && link.index != 0).map(|port| port.name.clone());
    let parent = || names.get(&link.parent).cloned();
    let own = match kind {
        Some("linux-bridge") => {
            let ports: Vec<Value> = ports().map(|name| json!({"name": name})).collect();
            let stp = link.number(5).is_some_and(|state| state != 0);
            Some(("bridge", json!({"options": {"stp": {"enabled": stp}}, "port": ports})))
        }
        Some("bond") => {
            const MODES: [&str; 7] =
                ["balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"];
            let mode = link.number(1).and_then(|mode| MODES.get(usize::try_from(mode).ok()?)).copied();
            Some(("link-aggregation", json!({"mode": mode, "port": ports().collect::<Vec<_>>()})))
        }
        Some("vlan") => Some(("vlan", json!({"base-iface": parent(), "id": link.number(1)}))),
        Some("vrf") => Some(("vrf", json!({"port": ports().collect::<Vec<_>>(), "route-table-id": link.number(1)}))),
        Some("vxlan") => {
            let base = link.number(3).and_then(|index| names.get(&index));
            let far =
                |attribute: u16| link.data.iter().find(|(kind, _)| *kind == attribute).and_then(|(_, bytes)| ip(bytes));
            let remote = far(2).or_else(|| far(16)).map(|address| address.to_string());
            Some(("vxlan", json!({"base-iface": base, "id": link.number(1), "remote": remote})))
        }
        Some(kind @ ("mac-vlan" | "mac-vtap")) => {
            let mode = match link.number(1) {
                Some(1) => "private",
                Some(2) => "vepa",
                Some(4) => "bridge",
                Some(8) => "passthru",
                _ => "unknown",
            };
            Some((kind, json!({"base-iface": parent(), "mode": mode})))
        }
        _ => None,
    };
    if let Some((key, value)) = own {
        entry.insert(key.into(), value);
    }
    entry.into()
}

fn address(body: &[u8]) -> Option<(u32, bool, Value)> {
    let (family, prefix) = (*body.first()?, *body.get(1)?);
    let index = u32_of(body.get(4..)?)?;
    let (mut local, mut far, mut valid) = (None, None, u32::MAX);
    for (kind, value) in attributes(body.get(8..)?) {
        match kind {
            1 => far = ip(value),
            2 => local = ip(value),
            6 => valid = u32_of(value.get(4..)?)?,
            _ => {}
        }
    }
    // Of a point-to-point link IFA_ADDRESS is the other end.
    let mut entry = json!({"ip": local.or(far)?.to_string(), "prefix-length": prefix});
    if valid != u32::MAX {
        entry["valid-life-time"] = format!("{valid}sec").into();
    }
    matches!(family, 2 | 10).then_some((index, family == 10, entry))
}

fn route(body: &[u8], names: &HashMap<u32, String>) -> Option<Value> {
    let [family, prefix, _, _, table, protocol, _, kind, ..] = body else { return None };
    // Unicast, of the kernel, boot, administrators, router advertisements and DHCP; daemons' routes are theirs.
    if *kind != 1 || !matches!(protocol, 2 | 3 | 4 | 9 | 16) {
        return None;
    }
    let any: IpAddr = match family {
        2 => Ipv4Addr::UNSPECIFIED.into(),
        10 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    let (mut destination, mut gateway, mut interface, mut metric, mut table) =
        (any, None, None, None, u32::from(*table));
    let mut hops: &[u8] = &[];
    for (kind, value) in attributes(body.get(12..)?) {
        match kind {
            1 => destination = ip(value)?,
            4 => interface = names.get(&u32_of(value)?),
            5 => gateway = ip(value),
            6 => metric = u32_of(value),
            9 => hops = value,
            15 => table = u32_of(value)?,
            _ => {}
        }
    }
    // Of several next hops the first is told; nmstate lists each.
    if let (None, Some(index)) = (interface, hops.get(4..).and_then(u32_of)) {
        interface = names.get(&index);
        gateway = attributes(hops.get(8..)?).find(|(kind, _)| *kind == 5).and_then(|(_, value)| ip(value));
    }
    // The kernel's local table is nobody's wish.
    if table == 255 {
        return None;
    }
    let mut entry =
        json!({"destination": format!("{destination}/{prefix}"), "next-hop-interface": interface?, "table-id": table});
    if let Some(gateway) = gateway {
        entry["next-hop-address"] = gateway.to_string().into();
    }
    if let Some(metric) = metric {
        entry["metric"] = metric.into();
    }
    Some(entry)
}

fn rule(body: &[u8]) -> Option<Value> {
    let [family, to_prefix, from_prefix, _, table, _, _, action, ..] = body else { return None };
    // FR_ACT_TO_TBL
    if *action != 1 {
        return None;
    }
    let mut table = u32::from(*table);
    let mut entry = json!({"family": match family { 2 => "ipv4", 10 => "ipv6", _ => return None }, "priority": 0});
    for (kind, value) in attributes(body.get(12..)?) {
        match kind {
            1 => entry["ip-to"] = format!("{}/{to_prefix}", ip(value)?).into(),
            2 => entry["ip-from"] = format!("{}/{from_prefix}", ip(value)?).into(),
            3 => entry["iif"] = text(value).into(),
            6 => entry["priority"] = u32_of(value)?.into(),
            15 => table = u32_of(value)?,
            _ => {}
        }
    }
    entry["route-table"] = table.into();
    Some(entry)
}

/// Type and body of each message.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::try_from(u32_of(bytes)?).ok()?;
        let kind = u16_of(bytes.get(4..)?)?;
        let body = bytes.get(16..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}

/// Kind and value of each attribute.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_of(bytes)?);
        // The two upper bits say that the value is nested, or big-endian.
        let kind = u16_of(bytes.get(2..)?)? & 0x3fff;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn u16_of(bytes: &[u8]) -> Option<u16> {
    bytes.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

pub(crate) fn u32_of(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(IpAddr::from(*bytes.first_chunk::<4>()?)),
        16 => Some(IpAddr::from(*bytes.first_chunk::<16>()?)),
        _ => None,
    }
}

fn mac(bytes: &[u8]) -> Option<String> {
    let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    (bytes.len() >= 6 && bytes.iter().any(|byte| *byte != 0)).then(|| pairs.join(":"))
}

/// A text of the kernel ends with a NUL.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Links of every kind this kernel can make, with addresses, routes and rules; what it cannot make is left out.
    const COMMANDS: &str = "
        ip link set lo up
        ip link add br0 type bridge stp_state 1
        ip link add a0 mtu 1400 type veth peer name a1
        ip link set a0 master br0
        ip link set a1 address 02:00:00:00:00:07
        for link in br0 a0 a1; do ip link set $link up; done
        ip addr add 192.0.2.1/24 dev br0
        ip addr add 192.0.2.9/32 dev br0
        ip addr add 198.51.100.1/24 dev a1 valid_lft 1000 preferred_lft 900
        ip -6 addr add 2001:db8::1/64 dev br0 nodad
        ip link add vx0 type vxlan id 7 dev br0 remote 192.0.2.77 dstport 4789
        ip link add mv0 link a1 type macvlan mode bridge
        ip link add br0.5 link br0 type vlan id 5
        ip link add bond0 type bond mode 802.3ad
        ip link add vrf0 type vrf table 77
        ip route add default via 192.0.2.254 proto static metric 50
        ip route add 203.0.113.0/24 via 192.0.2.254 dev br0 proto static table 77
        ip -6 route add 2001:db8:1::/48 via 2001:db8::2 proto static
        ip rule add from 192.0.2.0/24 to 203.0.113.0/24 lookup 77 priority 1000
        ip -6 rule add from 2001:db8::/64 lookup 77 priority 1001";

    /// What is ours and not theirs, with the way there.
    fn missing(ours: &Value, theirs: &Value, at: &str, found: &mut Vec<String>) {
        match (ours, theirs) {
            (Value::Object(ours), _) => {
                ours.iter().for_each(|(key, value)| missing(value, &theirs[key], &format!("{at}/{key}"), found));
            }
            (Value::Array(ours), Value::Array(theirs)) => {
                for value in ours {
                    let fits = |other: &Value| {
                        let mut found = Vec::new();
                        missing(value, other, "", &mut found);
                        found.is_empty()
                    };
                    if !theirs.iter().any(fits) {
                        found.push(format!("{at}: {value} is none of {theirs:?}"));
                    }
                }
            }
            (Value::Null, _) => {}
            (Value::String(ours), Value::String(_)) if at.ends_with("life-time") => assert!(ours.ends_with("sec")),
            _ if ours == theirs => {}
            _ => found.push(format!("{at}: {ours} is not {theirs}")),
        }
    }

    /// In a network of its own, on a thread of its own. None without the right to make one.
    fn both(commands: &'static str) -> Option<(Value, Value)> {
        let inside = move || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).ok()?;
            let script = format!("{{ {commands}\n}} 2>/dev/null; sleep 0.3");
            Command::new("sh").args(["-c", &script]).status().unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let theirs = runtime.block_on(async {
                let mut state = nmstate::NetworkState::new();
                state.set_kernel_only(true);
                serde_json::to_value(state.retrieve_async().await.unwrap()).unwrap()
            });
            Some((read_kernel().unwrap(), theirs))
        };
        std::thread::spawn(inside).join().unwrap()
    }

    #[test]
    fn the_kernel_is_read_as_nmstate_reads_it() {
        let Some((ours, theirs)) = both(COMMANDS) else {
            assert!(std::env::var_os("KILN_REQUIRE_ORACLES").is_none(), "making network namespaces needs root");
            return;
        };
        let mut found = Vec::new();
        let names = |document: &Value| {
            let interfaces = document["interfaces"].as_array().unwrap();
            let mut names: Vec<String> = interfaces.iter().map(|entry| entry["name"].to_string()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&ours), names(&theirs));
        for entry in ours["interfaces"].as_array().unwrap() {
            let same = |other: &&Value| other["name"] == entry["name"];
            let other = theirs["interfaces"].as_array().unwrap().iter().find(same).unwrap();
            missing(entry, other, entry["name"].as_str().unwrap(), &mut found);
        }
        // Every route and rule nmstate knows is known here; the kernel's own routes stand in ours besides.
        missing(&theirs["routes"]["running"], &ours["routes"]["running"], "routes", &mut found);
        let wanted = ["203.0.113.0/24", "2001:db8:1::/48", "0.0.0.0/0"];
        for destination in wanted {
            let there = |route: &Value| route["destination"] == destination;
            assert!(ours["routes"]["running"].as_array().unwrap().iter().any(there), "{destination}: {ours:#}");
        }
        missing(
            &json!([{"ip-from": "192.0.2.0/24", "ip-to": "203.0.113.0/24", "route-table": 77, "priority": 1000},
            {"ip-from": "2001:db8::/64", "route-table": 77, "priority": 1001}]),
            &ours["route-rules"]["config"],
            "rules",
            &mut found,
        );
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn cut_off_bytes_are_read_as_far_as_they_go() {
        // A link of three attributes, the last longer than the message.
        let mut body = vec![0, 0, 1, 0, 7, 0, 0, 0, 0x41, 0, 0, 0, 0, 0, 0, 0];
        body.extend([9, 0, 3, 0, b'e', b't', b'h', b'0', 0, 0, 0, 0]);
        body.extend([8, 0, 4, 0, 0xdc, 5, 0, 0]);
        body.extend([200, 0, 10, 0, 1, 0, 0, 0]);
        let mut message = (16 + body.len() as u32).to_ne_bytes().to_vec();
        message.extend([16, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        message.extend(&body);
        let dumps = Dumps { links: message.clone(), ..Dumps::default() };
        let document = render_kernel(&dumps);
        let expected = json!({"name": "eth0", "type": "ethernet", "state": "up", "mtu": 1500,
            "ipv4": {"enabled": false}, "ipv6": {"enabled": false}});
        assert_eq!(document["interfaces"], json!([expected]));
        for length in 0..message.len() {
            let part = message[..length].to_vec();
            let _ = render_kernel(&Dumps {
                links: part.clone(),
                addresses: part.clone(),
                routes: part.clone(),
                rules: part,
            });
        }
    }
}
