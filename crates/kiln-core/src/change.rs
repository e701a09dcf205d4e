//! What must change on a running node so that its network is the one that was asked for.
//!
//! [`Observed`] is everything that counts about the node: nmstate's view of the running system and the profiles
//! NetworkManager has. [`Change`] leaves no choice to whoever carries it out: bytes of files, then steps in stages.
//!
//! Not here: doing it, see `kiln_agent`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::assignment::Disruption;
use crate::keyfile::{ConnectionFile, Keyfile};

mod compare;
mod complete;
mod draft;
mod own;
mod plan;
mod profile_files;
mod profiles;
#[cfg(test)]
mod tests;

pub use compare::{Family, Mismatch, Of, differences};
pub use plan::plan_change;
pub use profile_files::plan_profile_files;

/// Why no change can be planned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// No profiles come out of the document.
    #[error("{0}")]
    Document(String),
    /// A NIC that is not there.
    #[error("the node has no interface `{name}`{}", nearest.as_ref().map(|nearest| format!("; did you mean `{nearest}`?")).unwrap_or_default())]
    UnknownInterface {
        /// As the document has it.
        name: String,
        /// The node's interface with the most similar name.
        nearest: Option<String>,
    },
    /// A profile changes beneath a policy, and nobody has said yet what the policy is.
    #[error(
        "profile `{profile}` lies beneath what policies ask of `{interface}`, and these are not known yet; \
         it can change when the hub has told what the network shall be"
    )]
    PolicyUnknown {
        /// File of the profile.
        profile: String,
        /// The interface that is a policy's.
        interface: String,
    },
    /// NetworkManager would not read a profile.
    #[error("NetworkManager does not read profile `{profile}`: {why}")]
    Profile {
        /// Its file.
        profile: String,
        /// What is wrong with it.
        why: String,
    },
}

/// A node's network before a change.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    /// nmstate's document of the running system; and `carrier: false` at interfaces that wait for a link.
    pub current: Value,
    /// Every profile NetworkManager has.
    pub profiles: Vec<Held>,
}

impl Observed {
    /// What lies under this name, now.
    fn file(&self, place: Place, name: &str) -> Option<&Held> {
        self.profiles.iter().find(|held| held.place == Some(place) && held.file.name == name)
    }

    /// The profile that is active on an interface.
    fn active_on(&self, interface: &str) -> Option<&Held> {
        self.profiles.iter().find(|held| held.active_on.as_deref() == Some(interface))
    }
}

/// A profile NetworkManager has.
#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    /// Where its file lies; None for one that has no file, or one below `/usr/lib`.
    pub place: Option<Place>,
    /// Its name and contents.
    pub file: ConnectionFile,
    /// The device it is active on.
    pub active_on: Option<String>,
}

/// Where a profile lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Place {
    /// `/etc/NetworkManager/system-connections`: survives a reboot.
    Persistent,
    /// `/run/NetworkManager/system-connections`: gone after a reboot, and stronger than a persistent one with its UUID.
    Runtime,
}

/// What is to be done. An empty one means that nothing is sent to anybody.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Change {
    /// Files, in the order they are written.
    pub writes: Vec<Write>,
    /// When NetworkManager has read the files: stage after stage, the steps of a stage side by side.
    pub stages: Vec<Vec<Step>>,
    /// `/etc/hostname` and the running hostname, when they change.
    pub hostname: Option<String>,
    /// The strongest effect.
    pub disruption: Disruption,
    /// What changes, a line for people each.
    pub lines: Vec<String>,
    /// What must be true of `current` afterwards ([`differences`] finds nothing): the document that was asked for, with the
    /// names the node knows.
    pub wanted: Value,
    /// What is Kiln's when the change is kept. The agent stores it then, and brings it to the next plan.
    pub ownership: Ownership,
}

/// What Kiln has taken over on a node, and what was there before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ownership {
    /// By interface.
    pub interfaces: BTreeMap<String, Taken>,
    /// The hostname before Kiln set one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
}

/// An interface before it was Kiln's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Taken {
    /// The files of its profile; of all its profiles when it is to be absent. May hold secrets: what stores them must be
    /// readable by root only.
    pub originals: Vec<Original>,
    /// A profile that it shared with others, which was left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<String>,
    /// UUID of the profile that was active on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<String>,
    /// UUIDs of the profiles Kiln wrote for it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub made: BTreeSet<String>,
}

/// A file before it was Kiln's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Original {
    /// Which folder.
    pub place: Place,
    /// Its name.
    pub name: String,
    /// What it held.
    pub content: String,
}

impl Taken {
    /// The profile the interface had: of several in one folder the first.
    fn profile(&self) -> Option<ConnectionFile> {
        let strongest = self.originals.iter().rev().max_by_key(|original| original.place);
        let (name, text) = match (strongest, &self.shared) {
            (Some(original), _) => (original.name.as_str(), &original.content),
            (None, Some(shared)) => ("shared.nmconnection", shared),
            (None, None) => return None,
        };
        Some(ConnectionFile::new(name, Keyfile::parse(text).ok()?))
    }

    /// The profile a reboot left it.
    fn lasting_profile(&self) -> Option<ConnectionFile> {
        self.originals.iter().find(|original| original.place == Place::Persistent)?.read()
    }
}

/// One file of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Which folder.
    pub place: Place,
    /// `bond0.nmconnection`.
    pub name: String,
    /// What it will hold, mode 0600; None removes it.
    pub content: Option<String>,
}

/// One request to NetworkManager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Brings the profile up on the interface, which may not exist yet.
    Activate {
        /// Of the profile.
        uuid: String,
        /// Its interface.
        interface: String,
    },
    /// Gives an active device its changed profile without taking its link down. What NetworkManager refuses to reapply is activated.
    Reapply {
        /// Of the profile.
        uuid: String,
        /// Its interface.
        interface: String,
    },
    /// Disconnects the interface; one that NetworkManager made disappears.
    Remove {
        /// Which one.
        interface: String,
    },
}

impl Change {
    /// Whether nothing has to be done.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.stages.iter().all(Vec::is_empty) && self.hostname.is_none()
    }

    /// The interfaces whose profiles are brought into force, or that go.
    pub fn interfaces(&self) -> impl Iterator<Item = &str> {
        self.stages.iter().flatten().map(|step| match step {
            Step::Activate { interface, .. } | Step::Reapply { interface, .. } | Step::Remove { interface } => {
                interface.as_str()
            }
        })
    }
}
