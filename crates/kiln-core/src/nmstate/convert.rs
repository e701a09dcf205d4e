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
        write_group_address(&mut keyfile);
        let interface = keyfile.get("connection", "interface-name").unwrap_or_default().into_owned();
        if let Some((_, flags)) = prepared.mptcp.iter().find(|(name, _)| *name == interface) {
            keyfile.set("connection", "mptcp-flags", &flags.to_string());
        }
        files.push(ConnectionFile { name: format!("{stem}.nmconnection"), mode: KEYFILE_MODE, keyfile });
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    ["ipv4", "ipv6"].into_iter().for_each(|group| settle_rules(&mut files, group));
    Ok(files)
}

/// The crate's own texts, in no particular order.
pub fn generate(json: &Value) -> Result<Vec<(String, String)>, String> {
    let state = NetworkState::deserialize(json).map_err(|error| error.to_string())?;
    let mut texts = state.gen_conf().map_err(|error| error.msg().to_owned())?;
    Ok(texts.remove("NetworkManager").unwrap_or_default())
}

/// Rules keep their order and their place. The crate holds both in hash tables: which number a rule gets, and which of
/// several interfaces with a route in its table carries it, changes from run to run. Its meaning does not.
fn settle_rules(files: &mut [ConnectionFile], group: &str) {
    let mut settled: Vec<Vec<String>> = vec![Vec::new(); files.len()];
    for (index, file) in files.iter().enumerate() {
        for rule in numbered(&file.keyfile, group, "routing-rule") {
            let free = word_after(&rule, "iif").is_none() && has_route_in(&file.keyfile, group, table(&rule));
            // Not the loopback, if another one will do: it is there for routes without an interface.
            let carries = |candidate: &ConnectionFile| has_route_in(&candidate.keyfile, group, table(&rule));
            let loopback =
                |at: &usize| files[*at].keyfile.get("connection", "type").is_some_and(|kind| kind == "loopback");
            let home = (0..files.len()).filter(|at| free && carries(&files[*at])).min_by_key(|at| (loopback(at), *at));
            settled[home.unwrap_or(index)].push(rule);
        }
    }
    for (file, mut rules) in files.iter_mut().zip(settled) {
        let before = numbered(&file.keyfile, group, "routing-rule").len();
        (0..before).for_each(|number| file.keyfile.remove(group, &format!("routing-rule{number}")));
        rules.sort_by_cached_key(|rule| {
            (word_after(rule, "priority").and_then(|it| it.parse::<u32>().ok()), rule.clone())
        });
        for (number, rule) in rules.iter().enumerate() {
            file.keyfile.set(group, &format!("routing-rule{number}"), rule);
        }
    }
}

/// Values of `stem0`, `stem1`, … as the crate numbers them.
fn numbered(keyfile: &Keyfile, group: &str, stem: &str) -> Vec<String> {
    let values = (0..).map_while(|number| keyfile.get(group, &format!("{stem}{number}")));
    values.map(|value| value.into_owned()).collect()
}

fn word_after<'r>(rule: &'r str, word: &str) -> Option<&'r str> {
    let mut words = rule.split(' ');
    words.find(|found| *found == word)?;
    words.next()
}

fn table(rule: &str) -> &str {
    word_after(rule, "table").unwrap_or("254")
}

fn has_route_in(keyfile: &Keyfile, group: &str, table: &str) -> bool {
    let routes = numbered(keyfile, group, "route").len();
    (0..routes).any(|number| {
        let options = keyfile.get(group, &format!("route{number}_options")).unwrap_or_default();
        options.split(',').any(|option| option.strip_prefix("table=") == Some(table))
    })
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
