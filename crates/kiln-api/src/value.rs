//! Small values out of text. What cannot be read is reported with the repaired form and is absent afterwards.

use std::net::IpAddr;

use ipnet::IpNet;
use kiln_core::diagnostic::{Code, Diagnostic};
use kiln_core::document::{Node, Value};
use kiln_core::net::{InterfaceName, MacAddress};
use kiln_core::source::Sourced;
use kiln_core::world::{Labels, Role};

/// The roles of assisted-service, in the order they are suggested.
const ROLES: [(&str, Role); 4] =
    [("master", Role::Master), ("worker", Role::Worker), ("arbiter", Role::Arbiter), ("auto-assign", Role::Auto)];

/// A MAC address in the only form all upstream schemas accept: six pairs with colons.
pub(crate) fn mac(text: Sourced<String>, findings: &mut Vec<Diagnostic>) -> Option<Sourced<MacAddress>> {
    let problem = match text.parse::<MacAddress>() {
        Ok(mac) if !text.contains('-') => return Some(Sourced::new(mac, text.at)),
        Ok(mac) => Diagnostic::new(Code(60), text.at, format!("`{text}` is a MAC address with dashes"))
            .cause("the schemas of BareMetalHost and NMStateConfig accept only six pairs separated by colons")
            .help(format!("write {mac}")),
        Err(_) => Diagnostic::new(Code(60), text.at, format!("`{text}` is not a MAC address"))
            .cause("the schemas of BareMetalHost and NMStateConfig accept only six pairs separated by colons")
            .help("write six pairs of hexadecimal digits with colons between them, as in 52:54:00:12:34:56"),
    };
    findings.push(problem);
    None
}

/// An IPv4 or IPv6 address without a prefix length.
pub(crate) fn address(text: Sourced<String>, findings: &mut Vec<Diagnostic>) -> Option<Sourced<IpAddr>> {
    if let Ok(address) = text.parse() {
        return Some(Sourced::new(address, text.at));
    }
    let help = match text.parse::<IpNet>() {
        Ok(network) => format!("write {} without the prefix length", network.addr()),
        Err(_) => {
            "write four numbers from 0 to 255 with dots between them, as in 192.168.126.3, or an IPv6 address".into()
        }
    };
    findings.push(
        Diagnostic::new(Code(61), text.at, format!("`{text}` is not an IP address"))
            .cause("the field is read as one address; no name, range or prefix is accepted")
            .help(help),
    );
    None
}

/// A network in CIDR notation.
pub(crate) fn network(text: Sourced<String>, findings: &mut Vec<Diagnostic>) -> Option<Sourced<IpNet>> {
    if let Ok(network) = text.parse() {
        return Some(Sourced::new(network, text.at));
    }
    let help = match text.parse::<IpAddr>() {
        Ok(address) => format!("add the prefix length, as in {address}/{}", if address.is_ipv4() { 24 } else { 64 }),
        Err(_) => "write a network address and a prefix length, as in 192.168.126.0/24 or fd00:1::/64".into(),
    };
    findings.push(
        Diagnostic::new(Code(62), text.at, format!("`{text}` is not a network in CIDR notation"))
            .cause("the field is read as an address with a prefix length; the object is refused otherwise")
            .help(help),
    );
    None
}

/// A role by the words of assisted-service.
pub(crate) fn role(text: Sourced<String>, findings: &mut Vec<Diagnostic>) -> Option<Sourced<Role>> {
    if let Some((_, role)) = ROLES.iter().find(|(name, _)| *name == text.value) {
        return Some(Sourced::new(*role, text.at));
    }
    let names = ROLES.map(|(name, _)| name);
    let known = names.join(", ");
    let help = match nearest(&text, names) {
        Some(name) => format!("did you mean {name}? The roles are {known}"),
        None => format!("write one of {known}"),
    };
    findings.push(
        Diagnostic::new(Code(63), text.at, format!("`{text}` is not a role"))
            .cause("the installer refuses the host's agent and the cluster waits for it without end")
            .help(help),
    );
    None
}

/// The name of a NIC by the kernel's rules.
pub(crate) fn interface_name(text: Sourced<String>, findings: &mut Vec<Diagnostic>) -> Option<Sourced<InterfaceName>> {
    match text.parse() {
        Ok(name) => Some(Sourced::new(name, text.at)),
        Err(error) => {
            findings.push(
                Diagnostic::new(Code(64), text.at, error.to_string())
                    .cause("the kernel refuses to give a device this name")
                    .help("choose a name of 1 to 15 letters, digits, dots and dashes, as in eth0 or ens1f0"),
            );
            None
        }
    }
}

/// A map of strings. A number or a truth value is reported and kept in the form the author meant.
pub(crate) fn labels(node: Option<&Node>, findings: &mut Vec<Diagnostic>) -> Labels {
    let mut labels = Labels::new();
    for entry in node.into_iter().flat_map(Node::entries) {
        let key = &entry.key.value;
        let Some(text) = scalar_text(&entry.value) else {
            findings.push(
                Diagnostic::new(Code(65), entry.value.at, format!("`{key}` holds {}", entry.value.kind_name()))
                    .cause(
                        "labels, annotations, selectors and ConfigMap data map strings to strings; the API server refuses the object",
                    )
                    .help(format!("write one string under `{key}`")),
            );
            continue;
        };
        // nothing at all is fine: the API server reads it as an empty string
        if entry.value.as_str().is_none() && !entry.value.is_null() {
            findings.push(
                Diagnostic::new(
                    Code(65),
                    entry.value.at,
                    format!("`{key}` is {} here, not a string", entry.value.kind_name()),
                )
                .cause("labels, annotations, selectors and ConfigMap data map strings to strings; the API server refuses the object")
                .help(format!("put it in quotes: {key}: \"{text}\"")),
            );
        }
        labels.insert(key.to_string(), Sourced::new(text, entry.value.at));
    }
    labels
}

/// `1` or `50%`: a budget as it was written.
pub(crate) fn int_or_string(node: Option<Node>) -> Option<Sourced<String>> {
    let node = node?;
    scalar_text(&node).filter(|_| !node.is_null()).map(|text| Sourced::new(text, node.at))
}

/// The text of a scalar; an empty value is an empty text.
pub(crate) fn scalar_text(node: &Node) -> Option<String> {
    match &node.value {
        Value::Null => Some(String::new()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::String(text) => Some(text.to_string()),
        Value::Sequence(_) | Value::Mapping(_) => None,
    }
}

/// Names that differ by more letters are never compared: comparing costs the product of their lengths.
pub(crate) const LONGEST_SLIP: usize = 20;

/// The candidate that was probably meant.
pub(crate) fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = text.to_lowercase();
    candidates
        .into_iter()
        .filter(|candidate| text.len().abs_diff(candidate.len()) <= LONGEST_SLIP)
        .map(|candidate| (strsim::normalized_damerau_levenshtein(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(similarity, _)| *similarity >= 0.7)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}
