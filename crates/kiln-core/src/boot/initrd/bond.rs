//! Options of bonds: what NetworkManager 1.42 takes, and which of them contradict each other.

use std::collections::BTreeMap;

use super::finding::nearest;
use super::scan;

const MODES: &[&str] =
    &["balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"];
const ARP_VALIDATE: &[&str] = &["none", "active", "backup", "all", "filter", "filter_active", "filter_backup"];
const HASH_POLICIES: &[&str] = &["layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4", "vlan+srcmac"];
const INT_MAX: i64 = i32::MAX as i64;

/// What an option takes.
#[derive(Debug, Clone, Copy)]
enum Domain {
    Number(i64, i64),
    /// One of these words, or its index.
    Word(&'static [&'static str]),
    Addresses,
    Interface,
    Mac,
}

const OPTIONS: &[(&str, Domain)] = &[
    ("active_slave", Domain::Interface),
    ("ad_actor_sys_prio", Domain::Number(1, 65535)),
    ("ad_actor_system", Domain::Mac),
    ("ad_select", Domain::Word(&["stable", "bandwidth", "count"])),
    ("ad_user_port_key", Domain::Number(0, 1023)),
    ("all_slaves_active", Domain::Number(0, 1)),
    ("arp_all_targets", Domain::Word(&["any", "all"])),
    ("arp_interval", Domain::Number(0, INT_MAX)),
    ("arp_ip_target", Domain::Addresses),
    ("arp_validate", Domain::Word(ARP_VALIDATE)),
    ("balance-slb", Domain::Number(0, 1)),
    ("downdelay", Domain::Number(0, INT_MAX)),
    ("fail_over_mac", Domain::Word(&["none", "active", "follow"])),
    ("lacp_rate", Domain::Word(&["slow", "fast"])),
    ("lp_interval", Domain::Number(1, INT_MAX)),
    ("miimon", Domain::Number(0, INT_MAX)),
    ("min_links", Domain::Number(0, INT_MAX)),
    ("mode", Domain::Word(MODES)),
    ("num_grat_arp", Domain::Number(0, 255)),
    ("num_unsol_na", Domain::Number(0, 255)),
    ("packets_per_slave", Domain::Number(0, 65535)),
    ("peer_notif_delay", Domain::Number(0, INT_MAX)),
    ("primary", Domain::Interface),
    ("primary_reselect", Domain::Word(&["always", "better", "failure"])),
    ("resend_igmp", Domain::Number(0, 255)),
    ("tlb_dynamic_lb", Domain::Number(0, 1)),
    ("updelay", Domain::Number(0, INT_MAX)),
    ("use_carrier", Domain::Number(0, 1)),
    ("xmit_hash_policy", Domain::Word(HASH_POLICIES)),
];

/// Why an option is ignored and what was probably meant; none when it is taken.
pub(super) fn refusal(name: &str, value: &str) -> Option<(String, Option<String>)> {
    let Some((_, domain)) = OPTIONS.iter().find(|(known, _)| *known == name) else {
        let meant = nearest(name, OPTIONS.iter().map(|(known, _)| *known));
        return Some((format!("`{name}` is no bond option"), meant.map(|known| format!("write `{known}={value}`"))));
    };
    if domain.takes(value) {
        return None;
    }
    let meant = match domain {
        Domain::Word(words) => nearest(value, words.iter().copied()).map(|known| format!("write `{name}={known}`")),
        Domain::Addresses if value.contains([';', ',']) => {
            Some("this NetworkManager takes one address here; newer ones take several with `;` between them".to_owned())
        }
        _ => None,
    };
    Some((format!("bond option `{name}` does not take `{value}`"), meant))
}

impl Domain {
    fn takes(self, value: &str) -> bool {
        let number = |minimum, maximum| {
            !value.is_empty()
                && value.bytes().all(|digit| digit.is_ascii_digit())
                && scan::integer(value, 10, minimum, maximum).is_some()
        };
        match self {
            Domain::Number(minimum, maximum) => number(minimum, maximum),
            Domain::Word(words) => words.contains(&value) || number(0, words.len() as i64 - 1),
            Domain::Addresses => value.parse::<std::net::Ipv4Addr>().is_ok(),
            Domain::Interface => is_kernel_interface(value),
            Domain::Mac => scan::hardware_address_of(value, 6).is_some(),
        }
    }
}

/// The kernel's rule for names: `%` asks it to number the device, and some words it keeps for itself.
pub(super) fn is_kernel_interface(name: &str) -> bool {
    scan::is_interface_name(name) && !name.contains('%') && !matches!(name, "all" | "default" | "bonding_masters")
}

/// Writes the mode as a word and removes options the mode has no use for; says which rule forbids the combination.
pub(super) fn normalise(options: &mut BTreeMap<String, String>, over_infiniband: bool) -> Result<(), String> {
    let number = |name: &str, default: i64| {
        options.get(name).and_then(|value| scan::integer(value, 10, 0, INT_MAX)).unwrap_or(default)
    };
    let mode = options.get("mode").map_or("balance-rr", String::as_str);
    let mode = scan::integer(mode, 10, 0, 6).map_or(mode, |index| MODES[index as usize]).to_owned();
    let balancing = matches!(mode.as_str(), "balance-tlb" | "balance-alb");
    let (miimon, arp_interval) = (number("miimon", 100), number("arp_interval", 0));
    let has = |name: &str| options.contains_key(name);
    if balancing && arp_interval > 0 {
        return Err(format!("bond mode {mode} cannot be used with `arp_interval`"));
    }
    if has("primary") && !balancing && mode != "active-backup" {
        return Err("bond option `primary` needs mode active-backup, balance-tlb or balance-alb".to_owned());
    }
    if over_infiniband && mode != "active-backup" {
        return Err(format!("bond mode {mode} cannot be used with InfiniBand"));
    }
    for delay in ["updelay", "downdelay", "peer_notif_delay"] {
        if miimon == 0 && number(delay, 0) != 0 {
            return Err(format!("bond option `{delay}` needs `miimon`"));
        }
    }
    if miimon != 0 && number("peer_notif_delay", 0) % miimon != 0 && arp_interval == 0 {
        return Err("bond option `peer_notif_delay` must be a multiple of `miimon`".to_owned());
    }
    match (arp_interval > 0, has("arp_ip_target")) {
        (true, false) => return Err("bond option `arp_interval` needs `arp_ip_target`".to_owned()),
        (false, true) => return Err("bond option `arp_ip_target` needs `arp_interval`".to_owned()),
        _ => {}
    }
    let slow = options.get("lacp_rate").is_none_or(|rate| matches!(rate.as_str(), "0" | "slow"));
    if !slow && mode != "802.3ad" {
        return Err("bond option `lacp_rate` needs mode 802.3ad".to_owned());
    }
    if has("num_grat_arp") && has("num_unsol_na") && number("num_grat_arp", 1) != number("num_unsol_na", 1) {
        return Err("bond options `num_grat_arp` and `num_unsol_na` must be equal".to_owned());
    }
    if number("balance-slb", 0) > 0 {
        if mode != "balance-xor" {
            return Err("bond option `balance-slb` needs mode balance-xor".to_owned());
        }
        if options.get("xmit_hash_policy").is_some_and(|policy| !matches!(policy.as_str(), "5" | "vlan+srcmac")) {
            return Err("bond option `balance-slb` needs xmit_hash_policy vlan+srcmac".to_owned());
        }
    }
    options.retain(|name, _| supports(&mode, name));
    options.insert("mode".to_owned(), mode);
    Ok(())
}

fn supports(mode: &str, option: &str) -> bool {
    let balancing = matches!(mode, "balance-tlb" | "balance-alb");
    match option {
        "active_slave" | "primary" => balancing || mode == "active-backup",
        "ad_actor_sys_prio" | "ad_actor_system" | "ad_user_port_key" | "lacp_rate" => mode == "802.3ad",
        "arp_interval" | "arp_ip_target" | "arp_validate" => !balancing && mode != "802.3ad",
        "packets_per_slave" => mode == "balance-rr",
        "tlb_dynamic_lb" => balancing,
        _ => true,
    }
}
