//! Which profile NetworkManager activates on which interface, and why.
//!
//! NetworkManager sorts profiles by autoconnect, then `autoconnect-priority` (higher first), then by when they were last active
//! (recent first, never is last), then by UUID, and gives each free NIC the first that fits. At first boot nothing was ever active
//! ([`choose`]), so the UUID decides a tie; [`choose_after`] knows what was. A controller with `autoconnect-slaves=1` takes its ports away from whatever they were doing.
//!
//! Not here: link state. A NIC without carrier gets nothing, and when one profile fits several NICs but may be active only once,
//! the first link to come up gets it; such a [`Choice`] is marked as not [`certain`](Choice::certain).
//! Surprising: `timestamp=` in the file does not count, only NetworkManager's own records do.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::profile::{MultiConnect, Profile, Reference};
use crate::keyfile::ConnectionFile;
use crate::net::{ConnectionUuid, InterfaceName, MacAddress};

mod pattern;
#[cfg(test)]
mod tests;

/// What is known about one network card.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nic {
    /// Its name, when known.
    pub name: Option<InterfaceName>,
    /// Its permanent address, when known.
    pub mac: Option<MacAddress>,
}

/// What happens to one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The NIC, or the interface a profile brings into being.
    pub nic: Nic,
    /// The profile that is activated; none leaves the interface alone.
    pub profile: Option<Profile>,
    /// Why this one.
    pub reason: Reason,
    /// Files of the other profiles that would fit, best first.
    pub others: Vec<String>,
    /// Whether the files alone decide. If not, timing does.
    pub certain: bool,
}

/// Why a profile was chosen, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// No profile fits.
    NothingFits,
    /// Profiles fit, but none may start by itself.
    NoneStartsByItself,
    /// The profile that fits is a port of something no profile makes.
    NoController {
        /// Its file.
        port: String,
        /// What it is a port of.
        controller: Reference,
    },
    /// It is the only one that fits and starts by itself.
    OnlyOne,
    /// Its priority is higher than that of the next one.
    Priority {
        /// Of the chosen one.
        chosen: i32,
        /// Of the next one.
        next: i32,
        /// File of the next one.
        over: String,
    },
    /// It was active more recently than the next one.
    MoreRecent {
        /// File of the next one.
        over: String,
    },
    /// Everything else is equal; its UUID sorts first.
    Uuid {
        /// File of the next one.
        over: String,
    },
    /// Its controller takes its ports.
    PulledByController {
        /// File of the controller's profile.
        controller: String,
    },
    /// A port brings its controller up.
    NeededByPort {
        /// File of the port.
        port: String,
    },
}

impl Nic {
    /// A NIC of which only the name is known.
    pub fn named(name: InterfaceName) -> Self {
        Nic { name: Some(name), mac: None }
    }
}

impl fmt::Display for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.name, &self.mac) {
            (Some(name), _) => name.fmt(f),
            (None, Some(mac)) => write!(f, "the NIC with address {mac}"),
            (None, None) => f.write_str("a NIC"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NothingFits => f.write_str("no profile fits"),
            Reason::NoneStartsByItself => f.write_str("the profiles that fit have autoconnect=false"),
            Reason::NoController { port, controller } => {
                write!(f, "{port} is a port of {controller}, and no profile makes that")
            }
            Reason::OnlyOne => f.write_str("it is the only profile that fits"),
            Reason::Priority { chosen, next, over } => {
                write!(f, "its autoconnect-priority {chosen} is above the {next} of {over}")
            }
            Reason::MoreRecent { over } => write!(f, "it was active more recently than {over}"),
            Reason::Uuid { over } => {
                write!(f, "its UUID sorts before that of {over}, and nothing else distinguishes them")
            }
            Reason::PulledByController { controller } => {
                write!(f, "its controller {controller} has autoconnect-slaves=1 and takes its ports")
            }
            Reason::NeededByPort { port } => write!(f, "its port {port} brings it up"),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.profile {
            Some(profile) => write!(f, "{}: {}, because {}", self.nic, profile.file, self.reason)?,
            None => write!(f, "{}: nothing, because {}", self.nic, self.reason)?,
        }
        if self.certain {
            Ok(())
        } else {
            f.write_str("; it fits other NICs too, and the first link to come up gets it")
        }
    }
}

/// The NICs these profiles speak of by name or address.
pub fn known_nics(files: &[ConnectionFile]) -> Vec<Nic> {
    let profiles = loadable(files);
    let mentioned = profiles.iter().filter(|profile| !profile.is_virtual());
    let nics = mentioned.map(|profile| Nic { name: profile.interface.clone(), mac: profile.mac });
    let parents = profiles.iter().filter(|profile| profile.is_virtual()).filter_map(|profile| match &profile.parent {
        Some(Reference::Name(name))
            if !profiles.iter().any(|other| other.is_meant_by(&Reference::Name(name.clone()))) =>
        {
            name.parse().ok().map(Nic::named)
        }
        _ => None,
    });
    let found: BTreeSet<Nic> = nics.chain(parents).filter(|nic| nic.name.is_some() || nic.mac.is_some()).collect();
    // `eth0` alone says nothing beside `eth0` with its address.
    let known_better =
        |nic: &Nic| nic.mac.is_none() && found.iter().any(|other| other.name == nic.name && other.mac.is_some());
    found.iter().filter(|nic| !known_better(nic)).cloned().collect()
}

/// What NetworkManager does at first boot with these NICs, and with every interface the profiles bring into being, by name.
pub fn choose(files: &[ConnectionFile], nics: &[Nic]) -> Vec<Choice> {
    choose_after(files, nics, &LastActive::new())
}

/// When profiles were last active, in seconds since 1970 (`/var/lib/NetworkManager/timestamps`).
pub type LastActive = BTreeMap<ConnectionUuid, u64>;

/// Like [`choose`], on a machine where some profiles were active before.
pub fn choose_after(files: &[ConnectionFile], nics: &[Nic], last_active: &LastActive) -> Vec<Choice> {
    let mut profiles = loadable(files);
    profiles.sort_by_key(|profile| {
        let last = last_active.get(&profile.uuid).copied();
        (Reverse(profile.autoconnect), Reverse(profile.priority), Reverse(last), profile.uuid)
    });
    let sorted = Sorted { profiles: &profiles, last_active };
    let mut taken = BTreeSet::new();
    let mut choices = Vec::new();
    for interface in profiles
        .iter()
        .filter(|profile| profile.is_virtual())
        .filter_map(|profile| profile.interface.clone())
        .collect::<BTreeSet<_>>()
    {
        choices.push(choose_virtual(&sorted, interface));
    }
    for nic in nics {
        choices.push(choose_for_nic(&sorted, nic, nics, &mut taken));
    }
    pull_ports(&profiles, &mut choices);
    choices.sort_by(|a, b| a.nic.cmp(&b.nic));
    choices
}

/// The profiles in the order NetworkManager tries them.
struct Sorted<'a> {
    profiles: &'a [Profile],
    last_active: &'a LastActive,
}

/// The profiles NetworkManager loads. Of several with one UUID it keeps one; by name the last, which is a guess (it prefers the
/// newest file).
fn loadable(files: &[ConnectionFile]) -> Vec<Profile> {
    let mut sorted: Vec<_> = files.iter().filter(|file| Profile::refusal(file).is_none()).map(Profile::read).collect();
    sorted.sort_by(|a, b| (a.uuid, Reverse(&a.file)).cmp(&(b.uuid, Reverse(&b.file))));
    sorted.dedup_by_key(|profile| profile.uuid);
    sorted
}

fn choose_virtual(sorted: &Sorted, interface: InterfaceName) -> Choice {
    let nic = Nic::named(interface);
    let fitting: Vec<_> =
        sorted.profiles.iter().filter(|profile| profile.is_virtual() && profile.interface == nic.name).collect();
    let mut choice = first_that_starts(nic, &fitting, sorted);
    if choice.profile.is_none() {
        // A port that starts by itself starts its controller too, whatever the controller says.
        let wanted = fitting.iter().find_map(|controller| {
            let port = sorted.profiles.iter().find(|port| {
                port.autoconnect && port.controller.as_ref().is_some_and(|reference| controller.is_meant_by(reference))
            })?;
            Some((*controller, port))
        });
        if let Some((controller, port)) = wanted {
            choice.profile = Some(controller.clone());
            choice.reason = Reason::NeededByPort { port: port.file.clone() };
        }
    }
    choice
}

fn choose_for_nic(sorted: &Sorted, nic: &Nic, nics: &[Nic], taken: &mut BTreeSet<String>) -> Choice {
    let free = |profile: &&Profile| profile.multi_connect == MultiConnect::Multiple || !taken.contains(&profile.file);
    let fitting: Vec<_> = sorted.profiles.iter().filter(|profile| fits(profile, nic)).filter(free).collect();
    let mut choice = first_that_starts(nic.clone(), &fitting, sorted);
    if let Some(profile) = &choice.profile {
        let rivals = nics.iter().filter(|other| fits(profile, other)).count();
        choice.certain = profile.multi_connect == MultiConnect::Multiple || rivals < 2;
        taken.insert(profile.file.clone());
    }
    choice
}

/// The first of the sorted profiles that may start, with what made it first.
fn first_that_starts(nic: Nic, fitting: &[&Profile], sorted: &Sorted) -> Choice {
    let startable: Vec<_> =
        fitting.iter().filter(|profile| profile.autoconnect && controller_exists(profile, sorted.profiles)).collect();
    let lost = || {
        fitting.iter().filter(|profile| profile.autoconnect).find_map(|profile| {
            let controller = profile.controller.clone()?;
            Some(Reason::NoController { port: profile.file.clone(), controller })
        })
    };
    let reason = match startable.as_slice() {
        [] if fitting.is_empty() => Reason::NothingFits,
        [] => lost().unwrap_or(Reason::NoneStartsByItself),
        [_] => Reason::OnlyOne,
        [chosen, next, ..] if chosen.priority != next.priority => {
            Reason::Priority { chosen: chosen.priority, next: next.priority, over: next.file.clone() }
        }
        [chosen, next, ..] => {
            let [last, next_last] = [chosen, next].map(|profile| sorted.last_active.get(&profile.uuid));
            let over = next.file.clone();
            if last == next_last { Reason::Uuid { over } } else { Reason::MoreRecent { over } }
        }
    };
    let profile = startable.first().map(|profile| (**profile).clone());
    let others = fitting
        .iter()
        .map(|profile| &profile.file)
        .filter(|file| profile.as_ref().is_none_or(|chosen| chosen.file != **file));
    Choice { others: others.cloned().collect(), nic, reason, certain: true, profile }
}

/// A port of something that does not exist fails at once, and NetworkManager takes the next profile.
fn controller_exists(profile: &Profile, all: &[Profile]) -> bool {
    profile.controller.as_ref().is_none_or(|reference| all.iter().any(|other| other.is_meant_by(reference)))
}

/// Whether a profile may be used on a NIC.
pub(super) fn fits(profile: &Profile, nic: &Nic) -> bool {
    let Profile { interface, mac, mac_deny_list, name_patterns, .. } = profile;
    profile.kind.as_deref() == Some("ethernet")
        && interface.as_ref().is_none_or(|name| nic.name.as_ref() == Some(name))
        && mac.is_none_or(|mac| nic.mac == Some(mac))
        && nic.mac.is_none_or(|mac| !mac_deny_list.contains(&mac))
        && (name_patterns.is_empty()
            || nic.name.as_ref().is_some_and(|name| pattern::matches(name_patterns, name.as_str())))
}

/// Controllers that were chosen and pull their ports change the choice for the NICs those ports fit.
fn pull_ports(sorted: &[Profile], choices: &mut [Choice]) {
    let pulling: Vec<Profile> =
        choices.iter().filter_map(|choice| choice.profile.clone()).filter(|profile| profile.pulls_ports).collect();
    for controller in pulling {
        let is_port =
            |port: &&Profile| port.controller.as_ref().is_some_and(|reference| controller.is_meant_by(reference));
        for port in sorted.iter().filter(is_port) {
            for choice in choices.iter_mut().filter(|choice| fits(port, &choice.nic)) {
                let current = choice.profile.as_ref();
                if current.is_none_or(|current| current.controller != port.controller && current.file != port.file) {
                    choice.others.retain(|file| *file != port.file);
                    choice.others.extend(current.map(|current| current.file.clone()));
                    choice.profile = Some(port.clone());
                    choice.reason = Reason::PulledByController { controller: controller.file.clone() };
                    choice.certain = true;
                }
            }
        }
    }
}
