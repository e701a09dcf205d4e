//! What an Ignition config wants of a machine that already runs.
//!
//! [`read_machine`] reads the very config a new machine's Ignition would get. Left out is what only joining needs (bootstrap
//! kubeconfigs, first-boot files) and what has another owner (the hostname, see `/agent/v1/network`). What Ignition fetches at
//! boot is not here to be compared: such files are named in [`Machine::left`] and not touched.
//!
//! **Invariant:** paths and names in a [`Machine`] that was read here are safe to write to and to put into a command line.
//!
//! What surprises: Ignition takes the permission bits alone before spec 3.6; an empty unit or drop-in is not written; a masked
//! unit is a link, so its contents do not matter.

use std::collections::BTreeMap;

use super::unit::{drop_in_path, is_drop_in_name, is_unit_name, unit_path};
use super::wish::{FileWish, Machine, UnitWish};
use super::{MachineError, System};
use crate::beacon::CREDENTIALS_PATH;
use crate::boot::folder::{Content, Folder, NetworkFile};
use crate::boot::kargs::{MAX_BYTES as LONGEST_LINE, split_like_the_kernel};
use crate::bootstrap_token;
use crate::document::Node;
use crate::ignition::convert::convert;
use crate::ignition::validate::validate;
use crate::ignition::{Config, ConfigFile, Contents, Owner, SpecVersion};
use crate::machine_config::RENDERED_VERSION;
use crate::payload::digest::Inputs;
use crate::payload::{HOSTNAME, PROFILES, first_error, parse};

/// The user whose SSH keys may change on a running node.
pub const CORE: &str = "core";
/// Where Ignition writes them.
pub const SSH_KEYS: &str = "/home/core/.ssh/authorized_keys.d/ignition";
/// What Ignition takes when a file has no mode.
const DEFAULT_MODE: u32 = 0o644;
/// The longest path Linux takes.
const LONGEST_PATH: usize = 4095;
/// The longest name in a path.
const LONGEST_NAME: usize = 255;

/// Files that the first boot uses up, or that change on their own: the machine-config-operator's notes to its first boot,
/// the tokens of beacon and agent.
const FIRST_BOOT: [&str; 5] = [
    HOSTNAME,
    CREDENTIALS_PATH,
    "/etc/kiln/agent.token",
    "/etc/ignition-machine-config-encapsulated.json",
    "/etc/machine-config-daemon/node-annotations.json",
];

/// What only an installation changes, and where it stands.
const FIXED: [(&str, [&str; 2]); 7] = [
    ("disks", ["storage", "disks"]),
    ("raid", ["storage", "raid"]),
    ("filesystems", ["storage", "filesystems"]),
    ("luks", ["storage", "luks"]),
    ("directories", ["storage", "directories"]),
    ("links", ["storage", "links"]),
    ("groups", ["passwd", "groups"]),
];

/// Reads what a config, perhaps packed, wants of a running machine.
pub fn read_machine(config: &[u8], system: &System) -> Result<Machine, MachineError> {
    let config = parse(config).map_err(MachineError::NotRead)?;
    if let Some(why) = first_error(&validate(&config)) {
        return Err(MachineError::Refused(why));
    }
    let config = in_spec_three(config)?;
    let mut reading =
        Reading { machine: Machine { system: system.clone(), ..Machine::default() }, mistakes: Vec::new() };
    reading.references(&config);
    reading.system();
    for file in config.files() {
        reading.file(file, config.version);
    }
    reading.ssh_keys(&config);
    for unit in config.root.path(&["systemd", "units"]).map_or(&[][..], Node::items) {
        reading.unit(unit);
    }
    reading.kernel_arguments(&config);
    let Reading { mut machine, mistakes } = reading;
    if !mistakes.is_empty() {
        return Err(MachineError::Unfit(mistakes));
    }
    machine.fixed = fixed(&config);
    Ok(machine)
}

/// The arguments of a kernel command line, as [`Found::kernel_arguments`](super::wish::Found) wants them.
pub fn split_kernel_arguments(line: &str) -> Vec<String> {
    split_like_the_kernel(line).into_iter().map(str::to_owned).collect()
}

/// Whether a path is absolute and in its simplest form.
pub(super) fn is_plain_path(path: &str) -> bool {
    let plain = |name: &str| !matches!(name, "" | "." | "..") && name.len() <= LONGEST_NAME;
    path.len() <= LONGEST_PATH
        && !path.contains(char::is_control)
        && path.strip_prefix('/').is_some_and(|below| below.split('/').all(plain))
}

fn in_spec_three(config: Config) -> Result<Config, MachineError> {
    if !config.version.is_v2() {
        return Ok(config);
    }
    let converted = convert(&config, RENDERED_VERSION);
    match first_error(&converted.lost) {
        Some(why) => Err(MachineError::Refused(why)),
        None => Ok(converted.config),
    }
}

struct Reading {
    machine: Machine,
    mistakes: Vec<String>,
}

impl Reading {
    /// What a config fetches elsewhere is not known here, and taking it for absent would remove files.
    fn references(&mut self, config: &Config) {
        let references = config.root.path(&["ignition", "config"]);
        let named = |resource: &Node| resource.get("source").and_then(Node::as_str).is_some_and(|url| !url.is_empty());
        let merges = references.and_then(|node| node.get("merge")).map_or(&[][..], Node::items).iter().any(named);
        let replaces = references.and_then(|node| node.get("replace")).is_some_and(named);
        for (field, used) in [("merge", merges), ("replace", replaces)] {
            if used {
                self.mistakes.push(format!(
                    "ignition.config.{field} names a config that is fetched elsewhere; give the whole config, as `kiln ignition merge` makes it"
                ));
            }
        }
    }

    fn system(&mut self) {
        let image = self.machine.system.os_image_url.as_deref();
        if image.is_some_and(|image| image.is_empty() || image.starts_with('-') || image.contains(char::is_whitespace))
        {
            self.mistakes.push("osImageURL is no image reference; write it as `registry/name@sha256:…`".to_owned());
        }
    }

    fn file(&mut self, file: ConfigFile, version: SpecVersion) {
        let path = file.path.value;
        if FIRST_BOOT.contains(&path.as_str()) || bootstrap_token::PATHS.contains(&path.as_str()) {
            return;
        }
        if !is_plain_path(&path) {
            self.mistakes.push(format!("`{}` is no absolute path in its simplest form", path.escape_debug()));
            return;
        }
        if !file.append.is_empty() {
            self.mistakes.push(format!(
                "`{path}` is appended to, and nobody knows what it had before; write its whole contents instead"
            ));
            return;
        }
        let bytes = match file.contents {
            Contents::Inline(bytes) => bytes,
            Contents::Absent | Contents::Remote(_) => {
                self.machine.left.insert(path);
                return;
            }
            Contents::Unreadable(why) => {
                self.mistakes.push(format!("the contents of `{path}` cannot be read: {why}"));
                return;
            }
        };
        let bits = if version < SpecVersion::V3_6 { 0o777 } else { 0o7777 };
        let mode = file.mode.and_then(|mode| u32::try_from(mode.value).ok()).unwrap_or(DEFAULT_MODE) & bits;
        let name = path.strip_prefix(PROFILES).filter(|name| !name.contains('/'));
        match name.and_then(|name| Some((name, profile(name, mode, &bytes)?))) {
            Some((name, text)) => {
                self.machine.profiles.insert(name.to_owned(), text);
            }
            None => {
                let (user, group) = (file.user.map(owner), file.group.map(owner));
                self.machine.files.insert(path, FileWish { bytes, mode, user, group });
            }
        }
    }

    /// The keys of `core`, in the file Ignition writes them to.
    fn ssh_keys(&mut self, config: &Config) {
        let Some(user) = users(config).iter().find(|user| is_core(user)) else { return };
        let keys = user.get("sshAuthorizedKeys").map_or(&[][..], Node::items);
        let keys: Vec<&str> = keys.iter().filter_map(Node::as_str).collect();
        if keys.is_empty() {
            return;
        }
        let mut text = keys.join("\n");
        if !text.ends_with('\n') {
            text.push('\n');
        }
        let owner = Some(CORE.to_owned());
        let file = FileWish { bytes: text.into_bytes(), mode: 0o600, user: owner.clone(), group: owner };
        if self.machine.files.insert(SSH_KEYS.to_owned(), file).is_some() {
            self.mistakes.push(format!(
                "`{SSH_KEYS}` is a file of the config and holds the SSH keys of `core`; keep one of the two"
            ));
        }
    }

    fn unit(&mut self, unit: &Node) {
        let text = |node: &Node, key: &str| node.get(key).and_then(Node::as_str).unwrap_or_default().to_owned();
        let contents = |node: &Node| Some(text(node, "contents")).filter(|contents| !contents.is_empty());
        let name = text(unit, "name");
        if !is_unit_name(&name) {
            self.mistakes.push(format!("`{}` is no name of a unit", name.escape_debug()));
            return;
        }
        let masked = unit.get("mask").and_then(Node::as_bool).unwrap_or_default();
        let mut wish = UnitWish {
            enabled: unit.get("enabled").and_then(Node::as_bool),
            masked,
            contents: contents(unit).filter(|_| !masked),
            drop_ins: BTreeMap::new(),
        };
        for drop_in in unit.get("dropins").map_or(&[][..], Node::items) {
            let of = text(drop_in, "name");
            match contents(drop_in) {
                _ if !is_drop_in_name(&of) => {
                    self.mistakes.push(format!("`{}` is no name of a drop-in of {name}", of.escape_debug()));
                }
                None => {}
                Some(contents) => _ = wish.drop_ins.insert(of, contents),
            }
        }
        let own = (masked || wish.contents.is_some()).then(|| unit_path(&name));
        for path in own.into_iter().chain(wish.drop_ins.keys().map(|of| drop_in_path(&name, of))) {
            if self.machine.files.contains_key(&path) {
                self.mistakes
                    .push(format!("`{path}` is a file of the config and part of its unit {name}; keep one of the two"));
            }
        }
        self.machine.units.insert(name, wish);
    }

    fn kernel_arguments(&mut self, config: &Config) {
        let lists = ["shouldExist", "shouldNotExist"];
        let lists = lists.map(|list| config.root.path(&["kernelArguments", list]).map_or(&[][..], Node::items));
        let bytes: usize = lists.iter().copied().flatten().filter_map(Node::as_str).map(str::len).sum();
        if bytes > LONGEST_LINE {
            self.mistakes.push(format!("the kernel arguments have {bytes} bytes; at most {LONGEST_LINE} are taken"));
            return;
        }
        let read = |list: &[Node]| {
            let mut arguments: Vec<String> = Vec::new();
            for node in list {
                // MachineConfigs may have several in one text.
                for argument in split_kernel_arguments(node.as_str().unwrap_or_default()) {
                    if !arguments.contains(&argument) {
                        arguments.push(argument);
                    }
                }
            }
            arguments
        };
        let (wanted, absent) = (read(lists[0]), read(lists[1]));
        for argument in wanted.iter().chain(&absent).filter(|argument| argument.contains(char::is_control)) {
            self.mistakes.push(format!("`{}` is no kernel argument", argument.escape_debug()));
        }
        for argument in wanted.iter().filter(|argument| absent.contains(argument)) {
            self.mistakes.push(format!("the kernel argument `{argument}` should exist and should not exist"));
        }
        (self.machine.kernel_arguments, self.machine.kernel_arguments_absent) = (wanted, absent);
    }
}

/// The text of a profile that NetworkManager would load.
fn profile(name: &str, mode: u32, bytes: &[u8]) -> Option<String> {
    let file = NetworkFile { name: name.to_owned(), mode, content: Content::Bytes(bytes.to_vec()) };
    file.load(Folder::Etc).ok()?;
    String::from_utf8(bytes.to_vec()).ok()
}

fn owner(owner: Owner) -> String {
    match owner {
        Owner::Id(id) => id.to_string(),
        Owner::Name(name) => name,
    }
}

fn users(config: &Config) -> &[Node] {
    config.root.path(&["passwd", "users"]).map_or(&[], Node::items)
}

fn is_core(user: &Node) -> bool {
    user.get("name").and_then(Node::as_str) == Some(CORE)
}

/// What only an installation changes, each section as a digest.
fn fixed(config: &Config) -> BTreeMap<String, String> {
    let sections = FIXED.into_iter().map(|(name, path)| {
        let entries = config.root.path(&path).map_or(&[][..], Node::items);
        (name, entries.iter().map(Node::to_json).collect::<Vec<_>>())
    });
    let users = users(config).iter().filter_map(|user| {
        let mut json = user.to_json();
        if is_core(user) {
            let fields = json.as_object_mut()?;
            fields.remove("sshAuthorizedKeys");
            // Keys alone do not make a user.
            (fields.len() > 1).then_some(())?;
        }
        Some(json)
    });
    let sections = sections.chain([("users", users.collect())]);
    let digests = sections.filter(|(_, entries)| !entries.is_empty()).map(|(name, entries)| {
        let mut entries = serde_json::Value::Array(entries);
        entries.sort_all_objects();
        (name.to_owned(), Inputs::of("kiln fixed section 1").with(name).with(entries.to_string()).digest().to_string())
    });
    digests.collect()
}

#[cfg(test)]
mod tests;
