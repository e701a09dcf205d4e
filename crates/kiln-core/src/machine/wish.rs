//! A machine as its config wants it, as it is, and what lies between: the values that are planned with.
//!
//! [`Machine`] is what a config says, in the shape a running node can compare; [`Found`] is what the node has. [`MachineChange`]
//! leaves no choice to whoever carries it out.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::unit::{drop_in_path, unit_path};
use super::{Action, Needs, System};
use crate::keyfile::ConnectionFile;

/// What a config wants of a machine. Contents are not shown.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Machine {
    /// By absolute path. Profiles are apart, and so is what only the first boot needs.
    pub files: BTreeMap<String, FileWish>,
    /// By name.
    pub units: BTreeMap<String, UnitWish>,
    /// NetworkManager's profiles in `/etc`: file name to contents, mode 0600.
    pub profiles: BTreeMap<String, String>,
    /// Arguments the kernel shall have.
    pub kernel_arguments: Vec<String>,
    /// Arguments it shall not have.
    pub kernel_arguments_absent: Vec<String>,
    /// What Ignition has no word for.
    pub system: System,
    /// What only an installation can change, by section (`disks`, `users`, …), as a digest.
    pub fixed: BTreeMap<String, String>,
    /// Paths of files whose contents the config does not hold: fetched at the first boot, or not said. They are neither
    /// written nor removed.
    pub left: BTreeSet<String>,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine")
            .field("files", &self.files)
            .field("units", &self.unit_names())
            .field("profiles", &self.profiles.keys())
            .finish_non_exhaustive()
    }
}

impl Machine {
    /// Every path to look at: files, units and drop-ins.
    pub fn paths(&self) -> BTreeSet<String> {
        let units = self.units.iter().flat_map(|(name, unit)| {
            // Where a unit is masked there shall be a link, so it is looked whether a file is in its way.
            let own = (unit.masked || unit.contents.is_some()).then(|| unit_path(name));
            own.into_iter().chain(unit.drop_ins.keys().map(|drop_in| drop_in_path(name, drop_in)))
        });
        self.files.keys().cloned().chain(units).collect()
    }

    /// The units to ask systemd about.
    pub fn unit_names(&self) -> BTreeSet<String> {
        self.units.keys().cloned().collect()
    }
}

/// A file with its contents. They may be secret: whoever stores it keeps it from others.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileWish {
    /// Its bytes.
    #[serde(with = "base64_text")]
    pub bytes: Vec<u8>,
    /// Its permission bits.
    pub mode: u32,
    /// Its owner: a number or a name, root without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// Contents are not shown.
impl std::fmt::Debug for FileWish {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let FileWish { bytes, mode, user, group } = self;
        f.debug_struct("FileWish")
            .field("bytes", &bytes.len())
            .field("mode", &format_args!("{mode:o}"))
            .field("user", user)
            .field("group", group)
            .finish()
    }
}

/// A unit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct UnitWish {
    /// Whether it is started at boot; none leaves that to the presets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Whether it cannot be started at all.
    pub masked: bool,
    /// `/etc/systemd/system/NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<String>,
    /// `/etc/systemd/system/NAME.d/*.conf` by name.
    pub drop_ins: BTreeMap<String, String>,
}

/// What a node has, of what a config speaks of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Every path that was asked for ([`Machine::paths`]); none where there is no file, or a link to `/dev/null`. User and group are numbers.
    pub files: BTreeMap<String, Option<FileWish>>,
    /// What `systemctl is-enabled` says of each unit that was asked for, `not-found` when there is none.
    pub units: BTreeMap<String, String>,
    /// The running kernel's arguments.
    pub kernel_arguments: Vec<String>,
    /// The OS image that runs, where the machine can tell: as MachineConfigs write it, without ostree's prefix.
    pub os_image: Option<String>,
}

/// What is to be done. An empty one means that nothing is touched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineChange {
    /// Files and what units are made of, in the order they are written; none removes.
    pub writes: Vec<(String, Option<FileWish>)>,
    /// What systemd is told before anything is written: a unit whose file goes leaves its targets while it is still known.
    pub units_before: Vec<UnitStep>,
    /// What systemd is told about units, after it has read them again.
    pub units: Vec<UnitStep>,
    /// Whether systemd must read its units again before that.
    pub daemon_reload: bool,
    /// The profiles the node shall have, when they differ: all of them, and the names of those that go.
    pub profiles: Option<ProfileWish>,
    /// Kernel arguments, when they differ.
    pub kernel_arguments: Option<KernelArguments>,
    /// The OS image to boot next, when it differs.
    pub os_image: Option<String>,
    /// What puts it into force, in order, after everything is written. At most one reboot, at the end.
    pub actions: Vec<Action>,
    /// The strongest thing it takes.
    pub needs: Needs,
    /// What changes, a line for people each, without contents.
    pub lines: Vec<String>,
}

/// What systemd is told about a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnitStep {
    /// Starts at boot.
    Enable(String),
    /// Does not.
    Disable(String),
    /// Cannot be started.
    Mask(String),
    /// Can be.
    Unmask(String),
    /// As the presets have it: a unit the config does not speak of any more. There may be no such unit any more: that is fine.
    Preset(String),
}

/// Profiles of a config.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProfileWish {
    /// All of them.
    pub files: Vec<ConnectionFile>,
    /// File names of those the config had and has no more.
    pub gone: Vec<String>,
}

/// What changes about the kernel's arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelArguments {
    /// Those that go.
    pub remove: Vec<String>,
    /// Those that come.
    pub append: Vec<String>,
}

impl MachineChange {
    /// Whether nothing has to be done.
    pub fn is_empty(&self) -> bool {
        let MachineChange {
            writes,
            units_before,
            units,
            daemon_reload,
            profiles,
            kernel_arguments,
            os_image,
            actions: _,
            needs: _,
            lines: _,
        } = self;
        writes.is_empty()
            && units_before.is_empty()
            && units.is_empty()
            && !daemon_reload
            && profiles.is_none()
            && kernel_arguments.is_none()
            && os_image.is_none()
    }
}

mod base64_text {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map_err(serde::de::Error::custom)
    }
}
