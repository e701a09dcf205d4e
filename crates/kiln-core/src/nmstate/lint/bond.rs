//! Bond options against the bond's mode.
//!
//! nmstate checks a few of them; NetworkManager refuses a profile for others, and the kernel ignores the rest. A bond whose
//! profile is refused does not exist at all, so these are found here. (Observed with NetworkManager 1.42.)

use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::document::{Node, Value};
use crate::nmstate::view::{Interface, Spelled, View, number_of};

/// Options, the modes that use them, and what happens in another mode.
const RULES: [(&str, &[&str], Effect); 14] = [
    ("primary", &["active-backup", "balance-tlb", "balance-alb"], Effect::Refused),
    ("lacp_rate", &["802.3ad"], Effect::Refused),
    ("lacp_active", &["802.3ad"], Effect::Refused),
    ("arp_interval", &["balance-rr", "active-backup", "balance-xor", "broadcast"], Effect::Refused),
    ("balance_slb", &["balance-xor"], Effect::Refused),
    ("ad_select", &["802.3ad"], Effect::Ignored),
    ("ad_actor_sys_prio", &["802.3ad"], Effect::Ignored),
    ("ad_actor_system", &["802.3ad"], Effect::Ignored),
    ("ad_user_port_key", &["802.3ad"], Effect::Ignored),
    ("packets_per_slave", &["balance-rr"], Effect::Ignored),
    ("tlb_dynamic_lb", &["balance-tlb"], Effect::Ignored),
    ("fail_over_mac", &["active-backup"], Effect::Ignored),
    ("primary_reselect", &["active-backup", "balance-tlb", "balance-alb"], Effect::Ignored),
    ("xmit_hash_policy", &["balance-xor", "802.3ad", "balance-tlb", "balance-alb"], Effect::Ignored),
];

#[derive(Clone, Copy, PartialEq)]
enum Effect {
    Refused,
    Ignored,
}

pub fn check(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for bond in view.configured().filter(|interface| interface.kind == "bond") {
        let section = bond.node.any(&["link-aggregation", "bond"]);
        let Some(mode) = section.any(&["mode"]).and_then(mode_name) else { continue };
        let Some(options) = section.any(&["options"]) else { continue };
        for (option, modes, effect) in RULES {
            if let Some(value) = options.get(option).filter(|value| is_set(value))
                && !modes.contains(&mode)
            {
                found.push(misplaced(bond, option, value, mode, modes, effect));
            }
        }
        arp_monitoring(bond, options, found);
    }
}

/// The mode in words; nmstate also takes the kernel's numbers and `lacp`.
fn mode_name(mode: &Node) -> Option<&'static str> {
    const MODES: [&str; 7] =
        ["balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"];
    match &mode.value {
        Value::String(text) if &**text == "lacp" => Some("802.3ad"),
        Value::String(text) => MODES
            .into_iter()
            .find(|known| **known == **text)
            .or_else(|| MODES.get(text.parse::<usize>().ok()?).copied()),
        Value::Integer(number) => MODES.get(usize::try_from(*number).ok()?).copied(),
        _ => None,
    }
}

/// Zero, `none` and nothing switch an option off, which every mode allows.
fn is_set(value: &Node) -> bool {
    match &value.value {
        Value::Null | Value::Bool(false) | Value::Integer(0) => false,
        Value::String(text) => !matches!(&**text, "" | "0" | "none" | "false" | "off"),
        _ => true,
    }
}

fn misplaced(
    bond: &Interface<'_>,
    option: &str,
    value: &Node,
    mode: &str,
    modes: &[&str],
    effect: Effect,
) -> Diagnostic {
    let message = format!("bond option `{option}` of `{}` does not fit mode {mode}", bond.name);
    let help = format!("delete `{option}`, or use mode {}", modes.join(" or "));
    let finding = Diagnostic::new(Code(0225), value.at, message).help(help);
    match effect {
        Effect::Refused => {
            finding.cause("the profile is refused, by nmstate or by NetworkManager, and the bond would not exist")
        }
        Effect::Ignored => finding.cause("the kernel ignores the option in this mode").severity(Severity::Warning),
    }
}

fn arp_monitoring(bond: &Interface<'_>, options: &Node, found: &mut Vec<Diagnostic>) {
    let interval = number_of(options, "arp_interval").unwrap_or(0) > 0;
    let set = |key: &str| options.get(key).filter(|value| is_set(value));
    let targets = ["arp_ip_target", "ns_ip6_target"].into_iter().find_map(|key| Some((key, set(key)?)));
    let finding = match (interval, targets) {
        (true, None) => {
            let message = format!("`arp_interval` of `{}` has no `arp_ip_target`", bond.name);
            Diagnostic::new(Code(0225), options.get("arp_interval").map(|value| value.at), message)
                .help("add `arp_ip_target` with the address of a neighbour, or use `miimon` instead")
        }
        (false, Some((key, target))) => {
            let message = format!("`{key}` of `{}` has no `arp_interval`", bond.name);
            Diagnostic::new(Code(0225), target.at, message).help(format!("add `arp_interval: 100`, or delete `{key}`"))
        }
        _ => return,
    };
    found.push(finding.cause("NetworkManager refuses the profile: ARP monitoring needs both an interval and a target"));
}
