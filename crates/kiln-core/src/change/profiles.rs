//! Profiles that say what a document asks for, and otherwise what they said before.
//!
//! Rendering is done twice, without the document and with it; keys that differ are set in the profile the interface already
//! has. So the DHCP identifiers, routes and comments somebody put there survive a policy that changes the MTU.

use std::collections::BTreeMap;

use serde_json::Value;

use super::ChangeError;
use super::complete::Completed;
use crate::diagnostic::Severity;
use crate::document::json::parse_json;
use crate::keyfile::{ConnectionFile, Keyfile};
use crate::network::meaning;
use crate::network::profile::{Profile, uuid_of};
use crate::nmstate::{self, describe_profiles};
use crate::source::SourceMap;

/// The profile of each touched interface that is to be up, by interface.
pub(super) fn render_profiles(
    completed: &Completed,
    profile_of: &dyn Fn(&str) -> Option<ConnectionFile>,
) -> Result<BTreeMap<String, ConnectionFile>, ChangeError> {
    let with = by_interface(render(&completed.network)?);
    // What was there before may have mistakes; they are not the document's.
    let without = by_interface(render(&completed.before).unwrap_or_default());
    let mut all = BTreeMap::new();
    for (name, rendered) in with.into_iter().filter(|(name, _)| completed.touched.contains(name)) {
        let file = match (profile_of(&name), without.get(&name)) {
            (Some(base), before) => {
                let before = before.map(|file| file.keyfile.clone()).unwrap_or_default();
                ConnectionFile { keyfile: set_differences(&base.keyfile, &before, &rendered.keyfile), ..base }
            }
            (None, _) => rendered,
        };
        all.insert(name, ConnectionFile { mode: 0o600, ..file });
    }
    Ok(all)
}

/// Whether a profile has the UUID the renderer gives an interface of its name and kind.
pub(super) fn is_rendered(file: &ConnectionFile) -> bool {
    let uuid = uuid_of(file);
    let rendered = render(&describe_profiles(std::slice::from_ref(file))).unwrap_or_default();
    rendered.iter().any(|rendered| uuid_of(rendered) == uuid)
}

fn render(document: &Value) -> Result<Vec<ConnectionFile>, ChangeError> {
    if super::compare::list(document, "interfaces").is_empty() {
        return Ok(Vec::new());
    }
    let mut sources = SourceMap::default();
    let file = sources.add("the node's network", document.to_string());
    let (node, findings) = parse_json(file, sources.file(file));
    let rendered = node.map(|node| nmstate::render(&node)).unwrap_or_default();
    let errors = findings.iter().chain(&rendered.diagnostics).filter(|finding| finding.severity == Severity::Error);
    let errors: Vec<String> = errors.map(|error| format!("{}: {}", error.code, error.message)).collect();
    if errors.is_empty() { Ok(rendered.files) } else { Err(ChangeError::Document(errors.join("; "))) }
}

fn by_interface(files: Vec<ConnectionFile>) -> BTreeMap<String, ConnectionFile> {
    let named = |file: ConnectionFile| Some((Profile::read(&file).interface?.to_string(), file));
    files.into_iter().filter_map(named).collect()
}

/// `base` with the keys that differ between `before` and `after`.
fn set_differences(base: &Keyfile, before: &Keyfile, after: &Keyfile) -> Keyfile {
    let mut result = base.clone();
    for group in ["ipv4", "ipv6"] {
        if addressing(before, group) != addressing(after, group) {
            let old: Vec<String> = result.keys(group).filter(|key| is_addressing(key)).map(str::to_owned).collect();
            old.iter().for_each(|key| result.remove(group, key));
            for key in after.keys(group).filter(|key| is_addressing(key)) {
                copy(&mut result, after, group, key);
            }
        }
    }
    let told_apart = |group: &str, key: &str| matches!(group, "ipv4" | "ipv6") && is_addressing(key);
    for (group, key) in entries(before).chain(entries(after)).filter(|(group, key)| !told_apart(group, key)) {
        let value = |keyfile: &Keyfile| {
            let (group, key) = meaning::find(keyfile, &group, &key)?;
            keyfile.raw(&group, &key).map(str::to_owned)
        };
        match (value(before), value(after)) {
            (one, other) if one == other => {}
            (_, Some(_)) => {
                if let Some((old_group, old_key)) = meaning::find(&result, &group, &key) {
                    result.remove(&old_group, &old_key);
                }
                copy(&mut result, after, &group, &key);
            }
            (_, None) => {
                if let Some((old_group, old_key)) = meaning::find(&result, &group, &key) {
                    result.remove(&old_group, &old_key);
                }
            }
        }
    }
    // A port has neither group, and a profile that was one before has to lose its settings as a port.
    for group in before.groups().filter(|group| after.groups().all(|other| other != *group)) {
        result.remove_group(group);
    }
    for group in after.groups().filter(|group| before.groups().all(|other| other != *group)) {
        result.add_group(group);
    }
    result
}

fn copy(to: &mut Keyfile, from: &Keyfile, group: &str, key: &str) {
    let Some(value) = from.get(group, key) else { return };
    let home = to.groups().find(|other| meaning::group_name(other) == meaning::group_name(group));
    let home = home.unwrap_or(group).to_owned();
    to.set(&home, key, &value);
}

fn entries(keyfile: &Keyfile) -> impl Iterator<Item = (String, String)> {
    let all = keyfile.groups().flat_map(|group| keyfile.keys(group).map(move |key| (group.to_owned(), key.to_owned())));
    all.collect::<Vec<_>>().into_iter()
}

/// Addresses, gateways and routes are numbered lists that depend on each other: one differs, all are written.
fn is_addressing(key: &str) -> bool {
    let numbered = |stem: &str| {
        let rest = key.strip_prefix(stem).map(|rest| rest.trim_end_matches("_options"));
        rest.is_some_and(|rest| matches!(rest, "" | "s" | "es") || rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    matches!(key, "method" | "gateway") || numbered("address") || numbered("route") || numbered("routing-rule")
}

fn addressing(keyfile: &Keyfile, group: &str) -> Vec<(String, Option<String>)> {
    let keys = keyfile.keys(group).filter(|key| is_addressing(key));
    let mut all: Vec<_> =
        keys.map(|key| (key.to_owned(), keyfile.get(group, key).map(|value| value.into_owned()))).collect();
    all.sort();
    all
}
