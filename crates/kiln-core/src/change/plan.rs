//! The decision: which files a node's network takes, which of its interfaces must be told, and what that does to it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use super::compare::{Family, Mismatch, Of, differences, interface, list, must_be_made_anew};
use super::complete::{Completed, complete};
use super::draft::{Draft, can_reapply, means_the_same};
use super::own::{Own, uuid_of_copy};
use super::profiles::render_profiles;
use super::{Change, ChangeError, Held, Observed, Original, Ownership, Place, Step, Taken, Write};
use crate::keyfile::ConnectionFile;
use crate::net::ConnectionUuid;
use crate::network::diff::diff;
use crate::network::profile::{Profile, uuid_of};
use crate::nmstate::nearest_interface;

/// Plans the change of a node to `network`, of which `persistent` is what a reboot leaves.
///
/// `owned` is what earlier changes took over. Interfaces in it that the documents no longer touch get back what they had.
pub fn plan_change(
    observed: &Observed,
    owned: &Ownership,
    network: &Value,
    persistent: &Value,
) -> Result<Change, ChangeError> {
    let draft = draft_change(observed, owned, network, persistent)?;
    let wanted = draft.change.wanted.clone();
    Ok(draft.finish(observed, &wanted))
}

/// The same before it is put in order.
pub(super) fn draft_change(
    observed: &Observed,
    owned: &Ownership,
    network: &Value,
    persistent: &Value,
) -> Result<Draft, ChangeError> {
    let node = Node::new(observed, owned);
    let profile_of = |name: &str| node.profile_before(name);
    let full = complete(&observed.current, network, &profile_of);
    node.refuse_unknown(&full)?;
    let lasting = complete(&observed.current, persistent, &profile_of);
    let effective = render_profiles(&full, &profile_of)?;
    let kept = if network == persistent { effective.clone() } else { render_profiles(&lasting, &profile_of)? };

    let change = Change { wanted: full.wanted.clone(), ..Change::default() };
    let mismatches = differences(&observed.current, &full.wanted);
    let mut draft = Draft { change, mismatches, ..Draft::default() };
    for name in &full.touched {
        let mut taken = owned.interfaces.get(name).cloned().unwrap_or_else(|| node.take(name));
        if interface(&full.wanted, name).is_some_and(|entry| entry["state"] == "absent") {
            node.take_rest(name, &mut taken);
        }
        let targets = node.targets(name, effective.get(name), kept.get(name), &taken, &full.wanted);
        let ours = [effective.get(name), kept.get(name)].into_iter().flatten();
        taken.made.extend(ours.map(|file| uuid_of(file).to_string()));
        let written = draft.change.writes.len();
        let concerns = |mismatch: &Mismatch| match &mismatch.of {
            Of::Interface(other) => other == name,
            Of::Rules(family) => effective.get(name).is_some_and(|file| brings_rules(file, *family)),
            Of::Host => false,
        };
        let wrong = draft.mismatches.iter().any(concerns);
        draft.settle(&node, name, targets, wrong, &full.wanted);
        // An interface that was only looked at, because a route or a name server might have gone there, stays its owner's.
        let mentioned = interface(&full.wanted, name).is_some() || owned.interfaces.contains_key(name);
        let changed = draft.change.writes.len() > written;
        if mentioned || changed {
            draft.change.ownership.interfaces.insert(name.clone(), taken);
        }
    }
    for (name, taken) in owned.interfaces.iter().filter(|(name, _)| !full.touched.contains(*name)) {
        draft.give_back(&node, name, taken);
    }
    draft.plan_hostname(observed, owned, &full.wanted);
    draft.leave_ports_to_controllers(&full.wanted);
    Ok(draft)
}

/// A node as it is, with what is already Kiln's.
struct Node<'a> {
    observed: &'a Observed,
    owned: &'a Ownership,
    /// Its profiles, read once: a hundred interfaces each ask about all of them.
    profiles: Vec<Known<'a>>,
}

/// A profile with what it is looked up by.
struct Known<'a> {
    held: &'a Held,
    uuid: ConnectionUuid,
    priority: i32,
    /// The interface it names.
    interface: Option<Cow<'a, str>>,
}

impl Known<'_> {
    fn is_of(&self, own: &Own<'_>) -> bool {
        own.is(self.uuid, &self.held.file)
    }
}

/// What files of an interface shall hold, and the profile that is then in force.
struct Targets {
    files: BTreeMap<(Place, String), Option<ConnectionFile>>,
    effective: Option<ConnectionFile>,
    /// Nothing shall be up.
    gone: bool,
}

impl<'a> Node<'a> {
    fn new(observed: &'a Observed, owned: &'a Ownership) -> Node<'a> {
        let known = |held: &'a Held| {
            let Profile { uuid, priority, .. } = Profile::read(&held.file);
            Known { held, uuid, priority, interface: held.file.keyfile.get("connection", "interface-name") }
        };
        Node { observed, owned, profiles: observed.profiles.iter().map(known).collect() }
    }

    /// The profiles that name an interface.
    fn named(&self, name: &str) -> impl Iterator<Item = &Known<'a>> {
        self.profiles.iter().filter(move |known| known.interface.as_deref() == Some(name))
    }

    /// The profile that is in force for an interface.
    fn held(&self, name: &str) -> Option<&'a Held> {
        self.observed.active_on(name).or_else(|| {
            let free = self.named(name).filter(|known| known.held.active_on.is_none());
            let best = free.max_by_key(|known| (known.priority, known.held.place == Some(Place::Runtime)));
            best.map(|known| known.held)
        })
    }

    /// The profile an interface has without Kiln, with its name in it.
    fn profile_before(&self, name: &str) -> Option<ConnectionFile> {
        let file = match self.owned.interfaces.get(name) {
            Some(taken) => taken.profile()?,
            None => self.held(name)?.file.clone(),
        };
        Some(with_name(file, name))
    }

    /// What is taken over with an interface: the profile that is in force, with the file it hides.
    fn take(&self, name: &str) -> Taken {
        let held = self.held(name);
        let uuid = |held: &Held| uuid_of(&held.file);
        let own = held.filter(|held| !is_shared(held, name)).map(uuid);
        let originals = self.profiles.iter().filter(|known| Some(known.uuid) == own);
        Taken {
            originals: originals.filter_map(|known| original_of(known.held)).collect(),
            shared: held.filter(|held| is_shared(held, name)).map(|held| held.file.keyfile.render()),
            active: held.filter(|held| held.active_on.as_deref() == Some(name)).map(|held| uuid(held).to_string()),
            made: own.iter().map(ConnectionUuid::to_string).collect(),
        }
    }

    /// What is to be absent would come back with any other profile of its name. They are kept for the day it may.
    fn take_rest(&self, name: &str, taken: &mut Taken) {
        let own = taken.own(name);
        let others = self.named(name).filter(|known| !known.is_of(&own));
        taken.originals.extend(others.filter_map(|known| original_of(known.held)));
    }

    fn targets(
        &self,
        name: &str,
        effective: Option<&ConnectionFile>,
        kept: Option<&ConnectionFile>,
        taken: &Taken,
        wanted: &Value,
    ) -> Targets {
        let mut own = taken.own(name);
        [effective, kept].into_iter().flatten().for_each(|file| own.add(file));
        // Whatever was taken over or is ours now lies somewhere; only what is targeted below stays.
        let mut files = BTreeMap::new();
        for Known { held, .. } in self.profiles.iter().filter(|known| known.is_of(&own)) {
            if let Some(place) = held.place {
                files.insert((place, held.file.name.clone()), None);
            }
        }
        let entry = interface(wanted, name);
        let state = entry.and_then(|entry| entry["state"].as_str()).unwrap_or("up");
        let gone = matches!(state, "absent" | "down") || effective.is_none() && state != "ignore";
        let file_name = |file: &ConnectionFile| {
            let name = taken.originals.first().map_or(&file.name, |original| &original.name);
            self.free_name(name, file, &own)
        };
        let lasting = kept.cloned().or_else(|| taken.lasting_profile());
        let same = |one: &ConnectionFile, other: &ConnectionFile| means_the_same(one, other);
        match (effective, lasting) {
            (Some(effective), Some(lasting)) if same(effective, &lasting) => {
                files.insert((Place::Persistent, file_name(effective)), Some(effective.clone()));
            }
            (effective, lasting) => {
                if let Some(lasting) = lasting.filter(|_| state != "absent") {
                    files.insert((Place::Persistent, file_name(&lasting)), Some(lasting));
                }
                if let Some(effective) = effective {
                    files.insert((Place::Runtime, file_name(effective)), Some(effective.clone()));
                }
            }
        }
        Targets { files, effective: effective.cloned().filter(|_| !gone), gone }
    }

    /// A name no file of somebody else's profile has: this one if it can be.
    fn free_name(&self, name: &str, file: &ConnectionFile, own: &Own<'_>) -> String {
        let is_free = |name: &String| {
            let mut others = self.profiles.iter().filter(|known| !known.is_of(own));
            others.all(|known| known.held.file.name != *name)
        };
        let names = [name.to_owned(), format!("kiln-{name}")];
        let free = names.into_iter().find(is_free);
        free.unwrap_or_else(|| format!("kiln-{}.nmconnection", uuid_of(file)))
    }

    /// A NIC cannot be made by a profile.
    fn refuse_unknown(&self, full: &Completed) -> Result<(), ChangeError> {
        let known = || list(&self.observed.current, "interfaces").iter().filter_map(|entry| entry["name"].as_str());
        let declared = |name: &str| interface(&full.wanted, name);
        for name in &full.touched {
            let kind = declared(name).and_then(|entry| entry["type"].as_str()).unwrap_or("ethernet");
            let state = declared(name).and_then(|entry| entry["state"].as_str()).unwrap_or("up");
            let made = kind != "ethernet" && kind != "infiniband" || state == "absent" || state == "ignore";
            if !made && known().all(|known| known != name) {
                let nearest = nearest_interface(name, known()).map(str::to_owned);
                return Err(ChangeError::UnknownInterface { name: name.clone(), nearest });
            }
        }
        Ok(())
    }
}

/// A profile that other interfaces may use as well is left alone, and a copy with a name in it is made.
fn is_shared(held: &Held, name: &str) -> bool {
    let keyfile = &held.file.keyfile;
    let named = keyfile.get("connection", "interface-name").is_some_and(|it| it == name);
    !named && Profile::read(&held.file).mac.is_none()
}

fn original_of(held: &Held) -> Option<Original> {
    Some(Original { place: held.place?, name: held.file.name.clone(), content: held.file.keyfile.render() })
}

fn with_name(mut file: ConnectionFile, name: &str) -> ConnectionFile {
    if file.keyfile.get("connection", "interface-name").is_some_and(|it| it == name) {
        return file;
    }
    if Profile::read(&file).mac.is_none() {
        file.keyfile.set("connection", "uuid", &uuid_of_copy(name).to_string());
        file.keyfile.set("connection", "id", name);
        file.keyfile.remove("connection", "multi-connect");
        file.name = format!("kiln-{name}.nmconnection");
    }
    file.keyfile.set("connection", "interface-name", name);
    file
}

impl Draft {
    fn settle(&mut self, node: &Node<'_>, name: &str, targets: Targets, wrong: bool, wanted: &Value) {
        let mut rewritten = false;
        for ((place, file_name), target) in &targets.files {
            let is = node.observed.file(*place, file_name);
            match target {
                Some(target) if is.is_some_and(|is| means_the_same(&is.file, target)) => {}
                None if is.is_none() => {}
                _ => {
                    rewritten = true;
                    let content = target.as_ref().map(|target| target.keyfile.render());
                    self.change.writes.push(Write { place: *place, name: file_name.clone(), content });
                }
            }
        }
        let running = node.observed.active_on(name);
        if targets.gone {
            if wrong || running.is_some() {
                self.steps.insert(name.into(), Step::Remove { interface: name.into() });
            }
            return;
        }
        let Some(effective) = targets.effective else { return };
        let uuid = uuid_of(&effective).to_string();
        let same_profile = running.filter(|held| uuid_of(&held.file).to_string() == uuid);
        let changed = same_profile.map(|held| diff(std::slice::from_ref(&held.file), std::slice::from_ref(&effective)));
        let interface = name.to_owned();
        if must_be_made_anew(&node.observed.current, wanted, name) {
            self.removed_first.push(Step::Remove { interface: interface.clone() });
            self.steps.insert(name.into(), Step::Activate { uuid, interface });
            return;
        }
        let step = match changed {
            Some(changed) if changed.is_empty() && !wrong => None,
            Some(changed) if !wrong || !changed.is_empty() => match changed.iter().all(can_reapply) {
                true => Some(Step::Reapply { uuid, interface }),
                false => Some(Step::Activate { uuid, interface }),
            },
            Some(_) => Some(Step::Activate { uuid, interface }),
            None if wrong || rewritten || running.is_some() || is_wanted_up(wanted, name) => {
                Some(Step::Activate { uuid, interface })
            }
            None => None,
        };
        if let Some(step) = step {
            self.steps.insert(name.into(), step);
        }
    }

    /// An interface nobody speaks of any more gets back what it had.
    fn give_back(&mut self, node: &Node<'_>, name: &str, taken: &Taken) {
        let written = self.change.writes.len();
        let own = taken.own(name);
        let originals = taken.originals.iter().map(|original| {
            let name = original.read().map(|file| node.free_name(&original.name, &file, &own));
            (original.place, name.unwrap_or_else(|| original.name.clone()), &original.content)
        });
        let originals: Vec<(Place, String, &String)> = originals.collect();
        for Known { held, .. } in node.profiles.iter().filter(|known| known.is_of(&own)) {
            let Some(place) = held.place else { continue };
            if !originals.iter().any(|(folder, name, _)| (*folder, name) == (place, &held.file.name)) {
                self.change.writes.push(Write { place, name: held.file.name.clone(), content: None });
            }
        }
        for (place, name, content) in originals {
            let is = node.observed.file(place, &name).map(|held| held.file.keyfile.render());
            if is.as_ref() != Some(content) {
                self.change.writes.push(Write { place, name, content: Some(content.clone()) });
            }
        }
        let interface = name.to_owned();
        let running = node.observed.active_on(name);
        let active = running.map(|held| uuid_of(&held.file).to_string());
        let step = match &taken.active {
            // Given back before, by a try whose end was not remembered.
            same if self.change.writes.len() == written && *same == active => None,
            Some(uuid) => Some(Step::Activate { uuid: uuid.clone(), interface }),
            None => running.map(|_| Step::Remove { interface }),
        };
        if step.is_some() || self.change.writes.len() > written {
            self.change.lines.push(format!("{name}: back to what it was"));
        }
        self.steps.extend(step.map(|step| (name.to_owned(), step)));
    }

    fn plan_hostname(&mut self, observed: &Observed, owned: &Ownership, wanted: &Value) {
        let running = observed.current["hostname"]["running"].as_str();
        match wanted["hostname"]["config"].as_str() {
            Some(name) => {
                self.change.ownership.hostname = owned.hostname.clone().or(running.map(str::to_owned));
                self.change.hostname = Some(name.to_owned()).filter(|name| running != Some(name));
            }
            None => self.change.hostname = owned.hostname.clone().filter(|name| running != Some(name)),
        }
    }
}

/// Whether a profile brings rules of a family.
fn brings_rules(file: &ConnectionFile, family: Family) -> bool {
    let group = match family {
        Family::Four => "ipv4",
        Family::Six => "ipv6",
    };
    file.keyfile.keys(group).any(|key| key.starts_with("routing-rule"))
}

fn is_wanted_up(wanted: &Value, name: &str) -> bool {
    interface(wanted, name).is_some_and(|entry| entry["state"].as_str().is_none_or(|state| state == "up"))
}
