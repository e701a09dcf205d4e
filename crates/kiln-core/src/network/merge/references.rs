//! References between profiles: they follow what they mean, and none by UUID leads nowhere.

use std::collections::BTreeMap;

use super::decision::Decision;
use super::{Draft, Pair};
use crate::keyfile::Keyfile;
use crate::net::ConnectionUuid;
use crate::network::meaning::{find, is_reference};
use crate::network::profile::{Profile, Reference};

/// What profiles of the base are called after they were joined.
pub(super) struct Renames {
    uuids: BTreeMap<ConnectionUuid, ConnectionUuid>,
    interfaces: BTreeMap<String, String>,
}

impl Renames {
    /// `drafts` are still those of the base, in its order.
    pub(super) fn of(base: &[Profile], drafts: &[Draft], pairs: &[Pair]) -> Renames {
        let mut renames = Renames { uuids: BTreeMap::new(), interfaces: BTreeMap::new() };
        for pair in pairs {
            let (before, after) = (&base[pair.first], Profile::read(&drafts[pair.first].file));
            if before.uuid != after.uuid {
                renames.uuids.insert(before.uuid, after.uuid);
            }
            if let (Some(before), Some(after)) = (&before.interface, &after.interface)
                && before != after
            {
                renames.interfaces.insert(before.to_string(), after.to_string());
            }
        }
        renames
    }

    /// A profile was replaced by another.
    pub(super) fn add_uuid(&mut self, before: ConnectionUuid, after: ConnectionUuid) {
        self.uuids.insert(before, after);
    }

    fn new_name(&self, value: &str, provided: &[Profile]) -> Option<String> {
        let reference = Reference::from(value);
        if provided.iter().any(|profile| profile.is_meant_by(&reference)) {
            return None;
        }
        match reference {
            Reference::Uuid(uuid) => self.uuids.get(&uuid).map(ToString::to_string),
            Reference::Name(name) => self.interfaces.get(&name).cloned(),
        }
    }
}

/// Changes the references to profiles that have a new UUID or interface name.
pub(super) fn follow(drafts: &mut [Draft], renames: &Renames, decisions: &mut Vec<Decision>) {
    let profiles: Vec<_> = drafts.iter().map(|draft| Profile::read(&draft.file)).collect();
    for draft in drafts {
        for (group, key) in references(&draft.file.keyfile) {
            let Some(from) = draft.file.keyfile.get(&group, &key).map(String::from) else { continue };
            let Some(to) = renames.new_name(&from, &profiles) else { continue };
            draft.file.keyfile.set(&group, &key, &to);
            decisions.push(Decision::Followed { file: draft.file.name.clone(), group, key, from, to });
        }
        follow_secondaries(draft, renames, &profiles, decisions);
    }
}

/// A port says what kind its controller is; when the overlay made that another kind, the port must say so too.
pub(super) fn follow_kinds(drafts: &mut [Draft], decisions: &mut Vec<Decision>) {
    let controllers: Vec<_> = drafts
        .iter()
        .filter(|draft| draft.has_overlay())
        .map(|draft| Profile::read(&draft.file))
        .filter(|profile| matches!(profile.kind.as_deref(), Some("bond" | "bridge" | "team" | "vrf")))
        .collect();
    for draft in drafts {
        let port = Profile::read(&draft.file);
        let Some((reference, from)) = port.controller.zip(port.port_type) else { continue };
        let controller = controllers.iter().find(|controller| controller.is_meant_by(&reference));
        let Some(to) = controller.and_then(|controller| controller.kind.clone()).filter(|kind| *kind != from) else {
            continue;
        };
        let (group, key) = find(&draft.file.keyfile, "connection", "slave-type").unwrap_or_default();
        draft.file.keyfile.set(&group, &key, &to);
        decisions.push(Decision::Followed { file: draft.file.name.clone(), group, key, from, to });
    }
}

/// `connection.secondaries` is a list of UUIDs.
fn follow_secondaries(draft: &mut Draft, renames: &Renames, profiles: &[Profile], decisions: &mut Vec<Decision>) {
    let (group, key) = ("connection", "secondaries");
    let Some(before) = draft.file.keyfile.get_list(group, key) else { return };
    let after: Vec<_> =
        before.iter().map(|uuid| renames.new_name(uuid, profiles).unwrap_or_else(|| uuid.clone())).collect();
    if before != after {
        draft.file.keyfile.set_list(group, key, &after);
        decisions.push(Decision::Followed {
            file: draft.file.name.clone(),
            group: group.to_owned(),
            key: key.to_owned(),
            from: before.join(";"),
            to: after.join(";"),
        });
    }
}

/// Leaves out profiles whose reference by UUID nobody can satisfy, and those that hang on them in turn. A controller named by
/// interface may come from elsewhere (`br-ex` is made by a script on the node), so that is only told.
pub(super) fn leave_out_dangling(drafts: &mut Vec<Draft>, decisions: &mut Vec<Decision>) {
    loop {
        let profiles: Vec<_> = drafts.iter().map(|draft| Profile::read(&draft.file)).collect();
        let before = drafts.len();
        drafts.retain(|draft| {
            let dangling = dangling(&draft.file.keyfile, &profiles);
            let lost = dangling.into_iter().find(|(_, reference)| matches!(reference, Reference::Uuid(_)));
            let Some((what, reference)) = lost else { return true };
            let (file, reference) = (draft.file.name.clone(), reference.to_string());
            decisions.push(Decision::Dangling { file, what, reference, left_out: true });
            false
        });
        if drafts.len() == before {
            for draft in drafts.iter() {
                // The parent of a VLAN by name may be a NIC without profile; a controller is always made by one.
                let controllers =
                    dangling(&draft.file.keyfile, &profiles).into_iter().filter(|(what, _)| !what.ends_with("parent"));
                decisions.extend(controllers.map(|(what, reference)| Decision::Dangling {
                    file: draft.file.name.clone(),
                    what,
                    reference: reference.to_string(),
                    left_out: false,
                }));
            }
            return;
        }
    }
}

fn dangling(keyfile: &Keyfile, profiles: &[Profile]) -> Vec<(String, Reference)> {
    references(keyfile)
        .into_iter()
        .filter_map(|(group, key)| {
            let reference = Reference::from(&*keyfile.get(&group, &key)?);
            let found = profiles.iter().any(|profile| profile.is_meant_by(&reference));
            (!found).then(|| (format!("[{group}] {key}"), reference))
        })
        .collect()
}

/// Where a keyfile names another profile.
fn references(keyfile: &Keyfile) -> Vec<(String, String)> {
    let places = keyfile.groups().flat_map(|group| keyfile.keys(group).map(move |key| (group, key)));
    places
        .filter(|(group, key)| is_reference(group, key) && keyfile.raw(group, key).is_some_and(|raw| !raw.is_empty()))
        .map(|(group, key)| (group.to_owned(), key.to_owned()))
        .collect()
}
