//! Merge by meaning: two sets of profiles become one that NetworkManager understands as both.
//!
//! The same connection is found by [UUID, interface, MAC or id](super::pairing) and joined [key by key](fields); the overlay wins where
//! both speak. References by UUID or interface name follow their profile. When profiles of both sides apply to one NIC, priorities make
//! the overlay's win, or the one that names its NIC where the other is for any. Every decision is told. The result is sorted by
//! file name, every file has mode 0600, and no reference by UUID leads nowhere.
//!
//! Files NetworkManager would skip (others may read them) take no part; a file that is not a profile by itself, say only routes for
//! `bond0`, does take part when the other side completes it.
//! Not here: telling that `eth0` of one side is the MAC address of the other, for which one must know the machine.

use std::collections::BTreeMap;

use super::profile::{Profile, uuid_of};
use super::{pairing, pairing::Pair};
use crate::keyfile::ConnectionFile;

mod decision;
mod fields;
mod preference;
mod references;
#[cfg(test)]
mod tests;

pub use decision::{Decision, Preference, Side};

/// One set made of two, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// By name, each with mode 0600.
    pub files: Vec<ConnectionFile>,
    /// What was decided, in the order it was.
    pub decisions: Vec<Decision>,
}

/// A file of the result on its way.
struct Draft {
    file: ConnectionFile,
    origin: Origin,
}

/// Which side a draft is from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Base,
    Overlay,
    Both,
}

impl Draft {
    /// Whether the overlay had a part in it.
    fn has_overlay(&self) -> bool {
        self.origin != Origin::Base
    }
}

/// Merges; where both sides speak the overlay wins.
pub fn merge(base: &[ConnectionFile], overlay: &[ConnectionFile]) -> Merged {
    let mut decisions = Vec::new();
    let base = taking_part(base, Side::Base, &mut decisions);
    let overlay = taking_part(overlay, Side::Overlay, &mut decisions);
    let read = |files: &[ConnectionFile]| files.iter().map(Profile::read).collect::<Vec<_>>();
    let sets = fields::Sets { base: &read(&base), overlay: &read(&overlay) };
    let pairs = pairing::pair(sets.base, sets.overlay);

    let mut drafts = join(&base, &overlay, &sets, &pairs, &mut decisions);
    let mut renames = references::Renames::of(sets.base, &drafts, &pairs);
    add_rest_of_overlay(&mut drafts, &overlay, &pairs, &mut decisions);
    replace_other_kinds(&mut drafts, &mut renames, &mut decisions);
    references::follow(&mut drafts, &renames, &mut decisions);
    references::follow_kinds(&mut drafts, &mut decisions);
    for draft in drafts.iter_mut().filter(|draft| draft.origin == Origin::Both) {
        remove_contradictions(&mut draft.file, &mut decisions);
    }
    preference::settle(&mut drafts, &mut decisions);
    references::leave_out_dangling(&mut drafts, &mut decisions);

    let mut files: Vec<_> = drafts.into_iter().map(|draft| ConnectionFile { mode: 0o600, ..draft.file }).collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    report_unloadable(&files, &mut decisions);
    Merged { files, decisions }
}

/// The files NetworkManager would read, by name.
fn taking_part(files: &[ConnectionFile], side: Side, decisions: &mut Vec<Decision>) -> Vec<ConnectionFile> {
    let mut sorted = files.to_vec();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    sorted.retain(|file| match file.ignored() {
        Some(reason) => {
            decisions.push(Decision::TakesNoPart { side, file: file.name.clone(), reason: reason.into() });
            false
        }
        None => true,
    });
    sorted
}

/// All of the base, joined with what the overlay says about the same connections. One draft per file of the base, in order.
fn join(
    base: &[ConnectionFile],
    overlay: &[ConnectionFile],
    sets: &fields::Sets,
    pairs: &[Pair],
    decisions: &mut Vec<Decision>,
) -> Vec<Draft> {
    let mut drafts = Vec::new();
    for (place, file) in base.iter().enumerate() {
        let Some(pair) = pairs.iter().find(|pair| pair.first == place) else {
            drafts.push(Draft { file: file.clone(), origin: Origin::Base });
            continue;
        };
        let theirs = &overlay[pair.second];
        let (ours_kind, theirs_kind) = (&sets.base[place].kind, &sets.overlay[pair.second].kind);
        let keyfile = if let (Some(ours), Some(kind)) = (ours_kind, theirs_kind)
            && ours != kind
        {
            let reason = format!("same {}, but the base has a {ours} and the overlay a {kind}", pair.by);
            decisions.push(Decision::Replaced { base: file.name.clone(), overlay: theirs.name.clone(), reason });
            theirs.keyfile.clone()
        } else {
            decisions.push(Decision::Joined {
                base: file.name.clone(),
                overlay: theirs.name.clone(),
                by: pair.by.clone(),
            });
            fields::merge_fields(&file.keyfile, &theirs.keyfile, &file.name, sets, decisions)
        };
        drafts.push(Draft { file: ConnectionFile::new(file.name.clone(), keyfile), origin: Origin::Both });
    }
    drafts
}

fn add_rest_of_overlay(
    drafts: &mut Vec<Draft>,
    overlay: &[ConnectionFile],
    pairs: &[Pair],
    decisions: &mut Vec<Decision>,
) {
    let rest = overlay.iter().enumerate().filter(|(place, _)| pairs.iter().all(|pair| pair.second != *place));
    for (_, file) in rest {
        let taken = |name: &str| drafts.iter().any(|draft| draft.file.name == name);
        let mut file = file.clone();
        if taken(&file.name) {
            let stem = file.name.strip_suffix(".nmconnection").unwrap_or(&file.name);
            let mut names = (1..).map(|number| match number {
                1 => format!("{stem}-overlay.nmconnection"),
                _ => format!("{stem}-overlay-{number}.nmconnection"),
            });
            let to = names.find(|name| !taken(name)).unwrap_or_default();
            // Without an id of its own the connection would be called after the new file.
            let id = Profile::read(&file).id;
            file.keyfile.set("connection", "id", &id);
            decisions.push(Decision::Renamed { from: file.name.clone(), to: to.clone() });
            file.name = to;
        }
        drafts.push(Draft { file, origin: Origin::Overlay });
    }
}

/// An interface is one kind of device: a bond of the overlay ends a bridge of that name in the base.
fn replace_other_kinds(drafts: &mut Vec<Draft>, renames: &mut references::Renames, decisions: &mut Vec<Decision>) {
    let mut virtual_interfaces = BTreeMap::new();
    for profile in drafts.iter().filter(|draft| draft.has_overlay()).map(|draft| Profile::read(&draft.file)) {
        if let (true, Some(interface)) = (profile.is_virtual(), profile.interface.clone()) {
            virtual_interfaces.insert(interface, profile);
        }
    }
    drafts.retain(|draft| {
        let ours = Profile::read(&draft.file);
        let theirs = ours.interface.as_ref().and_then(|interface| virtual_interfaces.get(interface));
        let (Some(theirs), false, true) = (theirs, draft.has_overlay(), ours.is_virtual()) else { return true };
        if ours.kind == theirs.kind {
            return true;
        }
        let kinds = [&ours, theirs].map(|profile| profile.kind.as_deref().unwrap_or("device"));
        let interface = ours.interface.as_ref().map_or("", |name| name.as_str());
        let reason = format!("{interface} cannot be both a {} and a {}", kinds[0], kinds[1]);
        renames.add_uuid(ours.uuid, theirs.uuid);
        decisions.push(Decision::Replaced { base: ours.file, overlay: theirs.file.clone(), reason });
        false
    });
}

/// Joining may bring together what NetworkManager refuses or ignores side by side.
fn remove_contradictions(file: &mut ConnectionFile, decisions: &mut Vec<Decision>) {
    let profile = Profile::read(file);
    for (group, settings) in [("ipv4", &profile.ipv4), ("ipv6", &profile.ipv6)] {
        let mut drop = |what: &str, reason: String| {
            decisions.push(Decision::Dropped { file: file.name.clone(), what: format!("[{group}] {what}"), reason });
        };
        let says_nothing = matches!(settings.method.as_deref(), None | Some("disabled" | "ignore"));
        if let (Some(controller), true, false) = (&profile.controller, settings.present, says_nothing) {
            drop("with all it says", format!("a port of {controller} has no addresses of its own"));
            file.keyfile.remove_group(group);
            continue;
        }
        let Some(method @ ("disabled" | "ignore" | "link-local")) = settings.method.as_deref() else { continue };
        let names = ["dns", "dns-search", "gateway"].into_iter().map(str::to_owned);
        for key in super::profile::numbered(&file.keyfile, group, "address").into_iter().chain(names) {
            if file.keyfile.raw(group, &key).is_some_and(|raw| !raw.is_empty()) {
                drop(&key, format!("method={method} does not allow it"));
                file.keyfile.remove(group, &key);
            }
        }
    }
}

fn report_unloadable(files: &[ConnectionFile], decisions: &mut Vec<Decision>) {
    let mut seen = BTreeMap::new();
    for file in files {
        if let Some(reason) = Profile::refusal(file) {
            decisions.push(Decision::WillNotLoad { file: file.name.clone(), reason });
        }
        if let Some(earlier) = seen.insert(uuid_of(file), &file.name) {
            decisions.push(Decision::SharedUuid { files: [earlier.clone(), file.name.clone()] });
        }
    }
}
