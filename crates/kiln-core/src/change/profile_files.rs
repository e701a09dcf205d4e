//! What must change so that a node has the profiles of a config, as files and in force.
//!
//! A profile of an interface that policies own is laid beneath them: the policy's fields stay, the rest is the new profile's, and
//! when the policy goes, the new profile is what the interface gets back. All others are written byte for byte. Then each
//! device whose profile came, changed or went gets the one NetworkManager would choose after a reboot.
//!
//! Not here: whether the config's profiles are good ones, which probes tell.
//! Surprising: a NIC without a link gets no step. NetworkManager cannot bring it up, and does so by itself when there is a link.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::compare::{interface, list, must_be_made_anew, ports};
use super::draft::{Draft, can_reapply, means_the_same};
use super::plan::draft_change;
use super::{Change, ChangeError, Held, Observed, Original, Ownership, Place, Step, Taken, Write};
use crate::keyfile::{ConnectionFile, Keyfile};
use crate::machine::wish::ProfileWish;
use crate::net::ConnectionUuid;
use crate::network::choice::{Choice, LastActive, Nic, choose, choose_after};
use crate::network::diff::diff;
use crate::network::profile::{MultiConnect, Profile, uuid_of};
use crate::nmstate::describe_profiles;

#[cfg(test)]
mod tests;

/// Plans the change of a node to the profiles of a config.
///
/// `owned` is what policies have taken over, `documents` what they ask for: the whole network, and what of it a reboot leaves.
pub fn plan_profile_files(
    observed: &Observed,
    owned: &Ownership,
    documents: Option<(&Value, &Value)>,
    wish: &ProfileWish,
) -> Result<Change, ChangeError> {
    let wanted: Vec<ConnectionFile> =
        wish.files.iter().map(|file| ConnectionFile { mode: 0o600, ..file.clone() }).collect();
    let node = Node { observed, owned, wanted: &wanted, gone: &wish.gone, nics: nics(&observed.current) };
    let beneath = node.lay_beneath();
    let mut draft = match (beneath.first_changed, documents) {
        (None, _) => Draft { change: Change { ownership: owned.clone(), ..Change::default() }, ..Draft::default() },
        (Some(_), Some((network, persistent))) => draft_change(observed, &beneath.ownership, network, persistent)?,
        (Some((interface, profile)), None) => return Err(ChangeError::PolicyUnknown { profile, interface }),
    };
    node.write_files(&beneath.files, &beneath.ownership, &mut draft)?;
    let network = node.switch_devices(&mut draft);
    Ok(draft.finish(observed, &network))
}

/// A node as it is, and the profiles it shall have.
struct Node<'a> {
    observed: &'a Observed,
    owned: &'a Ownership,
    wanted: &'a [ConnectionFile],
    gone: &'a [String],
    nics: Vec<Nic>,
}

/// What of the wanted profiles lies beneath policies.
struct Beneath {
    /// With the new profiles in the place of those the interfaces had.
    ownership: Ownership,
    /// Names of the wanted files that are not written as they are.
    files: BTreeSet<String>,
    /// An interface for which that makes a difference, and a file that does.
    first_changed: Option<(String, String)>,
}

impl Node<'_> {
    /// Replaces what interfaces had before policies took them over.
    fn lay_beneath(&self) -> Beneath {
        let mut all = Beneath { ownership: self.owned.clone(), files: BTreeSet::new(), first_changed: None };
        for (name, taken) in &mut all.ownership.interfaces {
            let before = taken.clone();
            self.replace_originals(name, taken, &mut all.files);
            self.replace_shared(taken);
            if *taken == before {
                continue;
            }
            // What lies there for the policy has the UUID of the profile that was.
            let own = before.own(name);
            let lie = self.observed.profiles.iter().map(|held| (uuid_of(&held.file), &held.file));
            taken.made.extend(lie.filter(|(uuid, file)| own.is(*uuid, file)).map(|(uuid, _)| uuid.to_string()));
            if all.first_changed.is_none() {
                let file = first_difference(&before, taken);
                all.first_changed = Some((name.clone(), file));
            }
        }
        let chosen = by_device(choose(&self.without_policies(&all.ownership), &self.nics));
        for (name, taken) in &mut all.ownership.interfaces {
            if self.owned.interfaces.get(name) != Some(taken) {
                let profile = chosen.get(name).and_then(|choice| choice.profile.as_ref());
                taken.active = profile.map(|profile| profile.uuid.to_string());
            }
        }
        all
    }

    fn replace_originals(&self, name: &str, taken: &mut Taken, beneath: &mut BTreeSet<String>) {
        // A file that is now for another interface is not the one this interface had.
        let may_be = |file: &&ConnectionFile| Profile::read(file).interface.is_none_or(|it| it.as_str() == name);
        let candidates = || self.wanted.iter().filter(may_be);
        taken.originals.retain_mut(|original| {
            let Some(was) = original.read().filter(|_| original.place == Place::Persistent) else {
                return true;
            };
            let by_uuid = candidates().find(|file| uuid_of(file) == uuid_of(&was));
            match by_uuid.or_else(|| candidates().find(|file| file.name == was.name)) {
                Some(file) => {
                    beneath.insert(file.name.clone());
                    if file.name != was.name || !means_the_same(file, &was) {
                        *original = original_of(file);
                    }
                    true
                }
                None => !self.goes(&was.name),
            }
        });
        let is_there = |file: &ConnectionFile| {
            let held = self.observed.file(Place::Persistent, &file.name);
            held.is_some_and(|held| means_the_same(&held.file, file))
        };
        let more = candidates().filter(|file| self.is_bound_to(file, name) && !is_there(file));
        let more: Vec<&ConnectionFile> = more.filter(|file| !beneath.contains(&file.name)).collect();
        for file in more {
            beneath.insert(file.name.clone());
            taken.originals.push(original_of(file));
            // The one NetworkManager prefers comes first.
            taken.originals.sort_by_key(|original| {
                let profile = original.read().map(|file| Profile::read(&file));
                std::cmp::Reverse(profile.map(|profile| (profile.autoconnect, profile.priority)))
            });
        }
    }

    /// The profile an interface shared with others, of which it has a copy.
    fn replace_shared(&self, taken: &mut Taken) {
        let Some(was) = taken.shared.as_ref().and_then(|text| Keyfile::parse(text).ok()) else { return };
        let was = ConnectionFile::new("shared.nmconnection", was);
        let same = |file: &&ConnectionFile| uuid_of(file) == uuid_of(&was);
        let lay = self.observed.profiles.iter().filter(|held| held.place == Some(Place::Persistent));
        match self.wanted.iter().find(same) {
            Some(file) if means_the_same(file, &was) => {}
            Some(file) => taken.shared = Some(file.keyfile.render()),
            None if lay.filter(|held| same(&&held.file)).any(|held| self.goes(&held.file.name)) => taken.shared = None,
            None => {}
        }
    }

    /// Whether a profile names this interface or its address.
    fn is_bound_to(&self, file: &ConnectionFile, name: &str) -> bool {
        let Profile { interface, mac, .. } = Profile::read(file);
        let address = || self.nics.iter().find(|nic| is_named(nic, name)).and_then(|nic| nic.mac);
        interface.is_some_and(|it| it.as_str() == name) || mac.is_some() && mac == address()
    }

    /// Whether what a file holds now is no more in the config.
    fn goes(&self, name: &str) -> bool {
        self.gone.iter().any(|gone| gone == name) || self.wanted.iter().any(|file| file.name == name)
    }

    /// The profiles the node would have if no policy were there.
    fn without_policies(&self, ownership: &Ownership) -> Vec<ConnectionFile> {
        let mut files: BTreeMap<String, ConnectionFile> = BTreeMap::new();
        for held in self.observed.profiles.iter().filter(|held| held.place == Some(Place::Persistent)) {
            if !self.goes(&held.file.name) && !self.is_of_policy(held) {
                files.insert(held.file.name.clone(), held.file.clone());
            }
        }
        let originals = ownership.interfaces.values().flat_map(|taken| &taken.originals);
        files.extend(originals.filter_map(Original::read).map(|file| (file.name.clone(), file)));
        files.extend(self.wanted.iter().map(|file| (file.name.clone(), file.clone())));
        files.into_values().collect()
    }

    /// Whether a profile was made or changed for a policy.
    fn is_of_policy(&self, held: &Held) -> bool {
        let named = Profile::read(&held.file).interface;
        named.is_some_and(|name| {
            let taken = self.owned.interfaces.get(name.as_str());
            taken.is_some_and(|taken| taken.own(name.as_str()).is(uuid_of(&held.file), &held.file))
        })
    }

    /// Writes and removes the files that are not `beneath` a policy.
    fn write_files(
        &self,
        beneath: &BTreeSet<String>,
        ownership: &Ownership,
        draft: &mut Draft,
    ) -> Result<(), ChangeError> {
        let Change { writes, lines, .. } = &mut draft.change;
        let is_of = |ownership: &Ownership, name: &str| {
            let mut originals = ownership.interfaces.values().flat_map(|taken| &taken.originals);
            originals.any(|original| original.place == Place::Persistent && original.name == name)
        };
        for file in self.wanted.iter().filter(|file| !beneath.contains(&file.name)) {
            let is = self.observed.file(Place::Persistent, &file.name);
            if is.is_some_and(|is| means_the_same(&is.file, file)) {
                continue;
            }
            if let Some(why) = Profile::refusal(file) {
                return Err(ChangeError::Profile { profile: file.name.clone(), why: why.to_string() });
            }
            let same_uuid = |held: &&Held| held.place == Some(Place::Runtime) && uuid_of(&held.file) == uuid_of(file);
            if let Some(held) = self.observed.profiles.iter().find(same_uuid) {
                lines.push(format!(
                    "profile {} is hidden until the next boot: {} in /run has its UUID",
                    file.name, held.file.name
                ));
            }
            writes.retain(|write| (write.place, &write.name) != (Place::Persistent, &file.name));
            let content = Some(file.keyfile.render());
            writes.push(Write { place: Place::Persistent, name: file.name.clone(), content });
        }
        for name in self.gone {
            let Some(held) = self.observed.file(Place::Persistent, name) else { continue };
            let written = writes.iter().any(|write| (write.place, &write.name) == (Place::Persistent, name))
                || self.wanted.iter().any(|file| file.name == *name);
            let of_policy = self.is_of_policy(held) && !is_of(self.owned, name);
            if !written && !of_policy && !is_of(ownership, name) {
                writes.push(Write { place: Place::Persistent, name: name.clone(), content: None });
            }
        }
        Ok(())
    }

    /// Gives each device its profile. Returns what the profiles in force say together, as a document.
    fn switch_devices(&self, draft: &mut Draft) -> Value {
        let before = Set::new(self, &[]);
        let after = Set::new(self, &draft.change.writes);
        let of_policies: BTreeSet<String> =
            self.owned.interfaces.keys().chain(draft.change.ownership.interfaces.keys()).cloned().collect();
        let mut network = draft.change.wanted.clone();
        let described = after.describe();
        for entry in list(&described, "interfaces") {
            if entry["name"].as_str().is_some_and(|name| interface(&network, name).is_none()) {
                match network["interfaces"].as_array_mut() {
                    Some(all) => all.push(entry.clone()),
                    None => network = serde_json::json!({"interfaces": [entry]}),
                }
            }
        }
        let mut chosen: BTreeMap<String, Option<&ConnectionFile>> = BTreeMap::new();
        for held in &self.observed.profiles {
            if let Some(device) = held.active_on.as_ref().filter(|_| held.place.is_some() && !after.has(&held.file)) {
                chosen.insert(device.clone(), None);
            }
        }
        for device in before.choices.keys().filter(|device| before.in_force(device).is_some_and(|it| !after.has(it))) {
            chosen.insert(device.clone(), None);
        }
        // A device of a kind that is not foreseen keeps what it has.
        for held in &self.observed.profiles {
            if let Some(device) = held.active_on.as_ref().filter(|device| !after.choices.contains_key(*device))
                && let Some(file) = after.file(uuid_of(&held.file))
            {
                chosen.insert(device.clone(), Some(file));
            }
        }
        for (device, choice) in &after.choices {
            let Some(file) = after.chosen(device) else { continue };
            // Of several NICs that it fits, the one that has it keeps it.
            let holder = self.observed.profiles.iter().find(|held| uuid_of(&held.file) == uuid_of(file));
            let holder = holder.and_then(|held| held.active_on.clone()).filter(|_| !choice.certain);
            chosen.insert(holder.unwrap_or_else(|| device.clone()), Some(file));
        }
        chosen.retain(|device, _| !of_policies.contains(device));
        for (device, file) in chosen {
            match file {
                None => drop(draft.steps.insert(device.clone(), Step::Remove { interface: device })),
                Some(file) => {
                    let Some(step) = self.step(&device, file, &before, &after) else { continue };
                    if matches!(step, Step::Activate { .. })
                        && must_be_made_anew(&self.observed.current, &described, &device)
                    {
                        draft.removed_first.push(Step::Remove { interface: device.clone() });
                    }
                    draft.steps.insert(device, step);
                }
            }
        }
        leave_ports_to_controllers(&described, &after, &mut draft.steps);
        network
    }

    /// What a device is told so that it has the profile that was chosen; nothing when it has it already.
    fn step(&self, device: &str, file: &ConnectionFile, before: &Set<'_>, after: &Set<'_>) -> Option<Step> {
        let old = before.file(uuid_of(file));
        let changed = old.is_none_or(|old| !means_the_same(old, file));
        let running = before.in_force(device);
        let goes = running.is_some_and(|running| !after.has(running));
        let newly_chosen = before.chosen(device).map(uuid_of) != Some(uuid_of(file));
        let uuid = uuid_of(file).to_string();
        let interface = device.to_owned();
        match running.filter(|running| uuid_of(running) == uuid_of(file)) {
            Some(_) if !changed => None,
            Some(running) => {
                let differences = diff(std::slice::from_ref(running), std::slice::from_ref(file));
                match differences.iter().all(can_reapply) {
                    true => Some(Step::Reapply { uuid, interface }),
                    false => Some(Step::Activate { uuid, interface }),
                }
            }
            None if !(changed || goes || newly_chosen) => None,
            None if self.has_no_link(device) => None,
            None => Some(Step::Activate { uuid, interface }),
        }
    }

    fn has_no_link(&self, device: &str) -> bool {
        let waits = interface(&self.observed.current, device).is_some_and(|entry| entry["carrier"] == false);
        waits && self.nics.iter().any(|nic| is_named(nic, device))
    }
}

/// Profiles NetworkManager knows at one time, and what it would do with them after a reboot.
struct Set<'a> {
    observed: &'a Observed,
    files: Vec<ConnectionFile>,
    choices: BTreeMap<String, Choice>,
}

impl<'a> Set<'a> {
    /// Those that lie on the node, with these changes.
    fn new(node: &Node<'a>, writes: &[Write]) -> Set<'a> {
        let lie =
            node.observed.profiles.iter().filter_map(|held| Some(((held.place?, &held.file.name), held.file.clone())));
        let mut all: BTreeMap<(Place, &String), ConnectionFile> = lie.collect();
        for write in writes {
            let place = (write.place, &write.name);
            match write.content.as_ref().and_then(|text| Keyfile::parse(text).ok()) {
                Some(keyfile) => drop(all.insert(place, ConnectionFile::new(write.name.clone(), keyfile))),
                None => drop(all.remove(&place)),
            }
        }
        let (runtime, persistent): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|((place, _), _)| *place == Place::Runtime);
        let mut files: Vec<ConnectionFile> = runtime.into_iter().map(|(_, file)| file).collect();
        let strong: BTreeSet<ConnectionUuid> = files.iter().map(uuid_of).collect();
        files.extend(persistent.into_iter().map(|(_, file)| file).filter(|file| !strong.contains(&uuid_of(file))));
        // What is active now was active last.
        let active = node.observed.profiles.iter().filter(|held| held.active_on.is_some());
        let last: LastActive = active.map(|held| (uuid_of(&held.file), 1)).collect();
        let choices = by_device(choose_after(&files, &node.nics, &last));
        Set { observed: node.observed, files, choices }
    }

    fn file(&self, uuid: ConnectionUuid) -> Option<&ConnectionFile> {
        self.files.iter().find(|file| uuid_of(file) == uuid)
    }

    fn has(&self, file: &ConnectionFile) -> bool {
        self.file(uuid_of(file)).is_some()
    }

    /// The profile that is chosen for a device.
    fn chosen(&self, device: &str) -> Option<&ConnectionFile> {
        let profile = self.choices.get(device)?.profile.as_ref()?;
        self.file(profile.uuid)
    }

    /// The profile that is active on a device. One that is active on many is known of one of them; the others have it too.
    fn in_force(&self, device: &str) -> Option<&ConnectionFile> {
        if let Some(held) = self.observed.active_on(device) {
            return self.file(uuid_of(&held.file));
        }
        let profile = self.choices.get(device)?.profile.as_ref()?;
        let mut holders = self.observed.profiles.iter().filter(|held| held.active_on.is_some());
        let many = profile.multi_connect == MultiConnect::Multiple;
        let up = interface(&self.observed.current, device).is_some_and(|entry| entry["state"] == "up");
        let held = holders.any(|held| uuid_of(&held.file) == profile.uuid);
        self.file(profile.uuid).filter(|_| many && up && held)
    }

    /// What the chosen profiles say, as a document.
    fn describe(&self) -> Value {
        let named = |(device, choice): (&String, &Choice)| {
            let mut file = self.file(choice.profile.as_ref()?.uuid)?.clone();
            if Profile::read(&file).interface.is_none() {
                file.keyfile.set("connection", "interface-name", device);
            }
            Some(file)
        };
        let files: Vec<ConnectionFile> = self.choices.iter().filter_map(named).collect();
        describe_profiles(&files)
    }
}

/// NetworkManager brings up the ports of a controller that is activated, when its profile says that it takes them.
fn leave_ports_to_controllers(described: &Value, after: &Set<'_>, steps: &mut BTreeMap<String, Step>) {
    for entry in list(described, "interfaces") {
        let name = entry["name"].as_str().unwrap_or_default();
        let pulls = after.chosen(name).is_some_and(|file| Profile::read(file).pulls_ports);
        if pulls && matches!(steps.get(name), Some(Step::Activate { .. })) {
            for port in ports(entry).unwrap_or_default() {
                steps.remove(port);
            }
        }
    }
}

/// The NICs of a node that NetworkManager manages.
fn nics(current: &Value) -> Vec<Nic> {
    let nic = |entry: &Value| {
        let known = ["permanent-mac-address", "mac-address"].into_iter().find_map(|key| entry[key].as_str());
        let kind = entry["type"].as_str()?;
        let managed = matches!(kind, "ethernet" | "veth") && entry["state"] != "ignore";
        let name = entry["name"].as_str().filter(|_| managed)?.parse().ok()?;
        Some(Nic { name: Some(name), mac: known.and_then(|mac| mac.parse().ok()) })
    };
    list(current, "interfaces").iter().filter_map(nic).collect()
}

fn is_named(nic: &Nic, name: &str) -> bool {
    nic.name.as_ref().is_some_and(|it| it.as_str() == name)
}

fn by_device(choices: Vec<Choice>) -> BTreeMap<String, Choice> {
    choices.into_iter().filter_map(|choice| Some((choice.nic.name.as_ref()?.to_string(), choice))).collect()
}

/// The file that makes two of them different; the name for people of a profile that is shared.
fn first_difference(before: &Taken, after: &Taken) -> String {
    let went = before.originals.iter().find(|original| !after.originals.contains(original));
    let came = || after.originals.iter().find(|original| !before.originals.contains(original));
    let shared = || before.profile().map(|file| Profile::read(&file).id);
    went.or_else(came).map(|original| original.name.clone()).or_else(shared).unwrap_or_default()
}

fn original_of(file: &ConnectionFile) -> Original {
    Original { place: Place::Persistent, name: file.name.clone(), content: file.keyfile.render() }
}
