//! The way through the `nmstate` crate: a [`Node`] becomes the JSON the crate reads, its texts become keyfiles.
//!
//! What the crate cannot carry, or would look up on the machine it runs on, is taken out before and put back after:
//! MPTCP flags (the crate asks `/proc` of the build machine), MAC addresses for `copy-mac-from`, dispatch scripts.
//! Indices of lists never change on the way, so that a path in the JSON is a path in the document.

use std::collections::HashSet;

use ::nmstate::NetworkState;
use serde::Deserialize;
use serde_json::Value;

use super::lint::known_mac;
use super::text;
use super::view::{Spelled, View};
use crate::keyfile::{ConnectionFile, Keyfile};
use crate::world::NicMapping;

/// NetworkManager refuses a keyfile that anybody else may read.
const KEYFILE_MODE: u32 = 0o600;

/// A document in the form the crate can take.
pub struct Prepared {
    /// What is left for the crate.
    pub json: Value,
    /// Interface name and `connection.mptcp-flags`.
    mptcp: Vec<(String, u32)>,
}

/// Takes out what the crate must not see.
pub fn prepare(view: &View<'_>, nics: &[NicMapping]) -> Prepared {
    let mut json = view.document.to_json();
    text::escape_all(&mut json);
    let mut mptcp = Vec::new();
    for interface in &view.interfaces {
        let entry = json.get_mut("interfaces").and_then(|list| list.get_mut(interface.index));
        let Some(entry) = entry.and_then(Value::as_object_mut) else { continue };
        entry.shift_remove("dispatch");
        if let Some(flags) = mptcp_flags(interface.node.path(&["mptcp", "address-flags"]).map(|flags| flags.to_json()))
        {
            entry.shift_remove("mptcp");
            mptcp.push((interface.name.value.to_owned(), flags));
        }
        if let Some(source) = interface.node.get("copy-mac-from").and_then(|source| source.as_str()) {
            // Written down as a plain address: the crate would ask the live machine.
            entry.shift_remove("copy-mac-from");
            if let Some(mac) = known_mac(view, source, nics) {
                entry.entry("mac-address").or_insert(mac.to_uppercase().into());
            }
        }
    }
    Prepared { json, mptcp }
}

/// The flags as NetworkManager counts them; None when they are not what nmstate accepts, which it then says itself.
fn mptcp_flags(flags: Option<Value>) -> Option<u32> {
    const DISABLED: u32 = 0x01;
    // nmstate promises the flags also without a default route, so it always adds this one.
    const ALSO_WITHOUT_DEFAULT_ROUTE: u32 = 0x08;
    let flags: Vec<String> = serde_json::from_value(flags?).ok()?;
    let bits = flags.iter().map(|flag| match flag.as_str() {
        "signal" => Some(0x10),
        "subflow" => Some(0x20),
        "backup" => Some(0x40),
        "fullmesh" => Some(0x80),
        _ => None,
    });
    let bits = bits.collect::<Option<Vec<u32>>>()?;
    // The kernel refuses the two together; the crate says so.
    let refused = flags.iter().any(|flag| flag == "signal") && flags.iter().any(|flag| flag == "fullmesh");
    match bits.iter().fold(0, |all, bit| all | bit) {
        _ if refused => None,
        0 => Some(DISABLED),
        all => Some(all | ALSO_WITHOUT_DEFAULT_ROUTE),
    }
}

/// Renders the profiles. The error is the crate's message.
pub fn to_files(prepared: &Prepared) -> Result<Vec<ConnectionFile>, String> {
    let mut taken = HashSet::new();
    let mut files = Vec::new();
    let mut texts = generate(&prepared.json)?;
    texts.sort();
    for (name, text) in &texts {
        let mut keyfile = Keyfile::parse(text).map_err(|error| format!("{name}: {error}"))?;
        let stem = text::file_name(name.strip_suffix(".nmconnection").unwrap_or(name));
        let uuid = keyfile.get("connection", "uuid").unwrap_or_default().into_owned();
        // Two interfaces may carry the same profile name, which is also the crate's file name.
        let stem = if taken.contains(&stem) { format!("{stem}-{uuid}") } else { stem };
        taken.insert(stem.clone());
        sort_rules(&mut keyfile);
        write_group_address(&mut keyfile);
        let interface = keyfile.get("connection", "interface-name").unwrap_or_default().into_owned();
        if let Some((_, flags)) = prepared.mptcp.iter().find(|(name, _)| *name == interface) {
            keyfile.set("connection", "mptcp-flags", &flags.to_string());
        }
        files.push(ConnectionFile { name: format!("{stem}.nmconnection"), mode: KEYFILE_MODE, keyfile });
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

/// The crate's own texts, in no particular order.
pub fn generate(json: &Value) -> Result<Vec<(String, String)>, String> {
    let state = NetworkState::deserialize(json).map_err(|error| error.to_string())?;
    let mut texts = state.gen_conf().map_err(|error| error.msg().to_owned())?;
    Ok(texts.remove("NetworkManager").unwrap_or_default())
}

/// The crate keeps rules in a hash set: their numbers change from run to run, their meaning does not.
fn sort_rules(keyfile: &mut Keyfile) {
    for group in ["ipv4", "ipv6"] {
        let key = |index: usize| format!("routing-rule{index}");
        let mut rules = Vec::new();
        while let Some(rule) = keyfile.get(group, &key(rules.len())) {
            rules.push(rule.into_owned());
        }
        rules.sort_by_cached_key(|rule| (priority(rule), rule.clone()));
        for (index, rule) in rules.iter().enumerate() {
            keyfile.set(group, &key(index), rule);
        }
    }
}

/// The crate writes the bytes of this one address as a list of numbers, which NetworkManager does not read.
fn write_group_address(keyfile: &mut Keyfile) {
    let bytes = keyfile.get_list("bridge", "group-address").unwrap_or_default();
    let bytes: Option<Vec<String>> =
        bytes.iter().map(|byte| byte.parse::<u8>().ok().map(|byte| format!("{byte:02X}"))).collect();
    if let Some(bytes) = bytes.filter(|bytes| bytes.len() == 6) {
        keyfile.set("bridge", "group-address", &bytes.join(":"));
    }
}

fn priority(rule: &str) -> Option<u32> {
    let mut words = rule.split(' ');
    words.find(|word| *word == "priority")?;
    words.next()?.parse().ok()
}

/// Whether any text of the document is a template that only a policy on a live node can fill in.
pub fn template(view: &View<'_>) -> Option<crate::source::Location> {
    fn find(node: &crate::document::Node) -> Option<crate::source::Location> {
        if node.as_str().is_some_and(|text| text.contains("{{") && text.contains("capture.")) {
            return Some(node.at);
        }
        let inside = node.entries().iter().find_map(|entry| find(&entry.value));
        inside.or_else(|| node.items().iter().find_map(find))
    }
    find(view.document).or_else(|| view.document.any(&["capture"]).map(|capture| capture.at))
}
