//! `propagate`: the network of the initramfs reaches the real root, completely or not at all.
//!
//! `kiln_core::boot::handover` decides; the difference between the real root as it is and as it shall be goes through a
//! [`journal`], so that a machine that loses power at any moment ends its next boot in the same state. Stock scripts
//! copy file by file: half a copy then counts as a configured real root and stays half for ever.
//!
//! Also here: the links go down first and NetworkManager's state goes away last, as the stock script does it.
//! Surprising: a file that is replaced keeps its own mode and owner; a link is replaced by a file, never followed out of
//! the real root.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use kiln_core::beacon::Handover;
use kiln_core::boot::folder::NetworkFile;
use kiln_core::boot::handover::{Decision, Initramfs, Policy, decide};
use kiln_core::boot::initrd::HOSTNAME_FILE;
use kiln_core::boot::teardown::RealRoot;

use crate::disk::{Attributes, Disk};
use crate::error::{FirstbootError, at};
use crate::folder::{ETC_CONNECTIONS, RUN_CONNECTIONS, read_bounded, read_folder, read_real_root};
use crate::links;
use crate::root::Root;
use journal::{Change, Recovery, recover};

mod default_profiles;
mod journal;
mod relabel;

/// What `ifname=` becomes, in the initramfs and in the real root.
const INTERFACE_NAMES: &str = "/etc/udev/rules.d/80-ifname.rules";
/// What was decided, for the witness in the real root: `/run` outlives the initramfs.
pub const DECIDED: &str = "/run/kiln/handover.json";

/// What happened.
#[derive(Debug)]
pub struct Propagated {
    /// The decision.
    pub handover: Handover,
    /// What else was done, in order.
    pub said: Vec<String>,
}

/// Hands the network over.
pub fn propagate(root: &Root, policy: Policy, disk: &mut dyn Disk) -> Result<Propagated, FirstbootError> {
    root.require_initramfs()?;
    let mut said = Vec::new();
    let recovery = recover(root, disk)?;
    if root.is_machine() && !Root::is_iscsi(&root.kargs()) {
        said.extend(links::take_down(root));
    }
    let (real_root, decision) = observe_and_decide(root, policy)?;
    let changes = plan(root, &real_root, &decision)?;
    journal::execute(root, &changes, &decision.handover, disk)?;
    let mut handover = decision.handover;
    match recovery {
        Recovery::Nothing => {}
        Recovery::Discarded => said.push("an unfinished handover of an earlier boot was thrown away".to_owned()),
        Recovery::Completed(earlier) => {
            said.push("an interrupted handover of an earlier boot was completed".to_owned());
            if handover.outcome == "blocked" {
                // What stands in the way is what was just handed over.
                handover = earlier;
            }
        }
    }
    leave(root, &handover);
    Ok(Propagated { handover, said })
}

/// What would be decided now, noted for the real root in case that somebody else's script acts on it. Changes nothing else.
pub fn foresee(root: &Root, policy: Policy) -> Result<Handover, FirstbootError> {
    let handover = observe_and_decide(root, policy)?.1.handover;
    let _ = note(&root.at(DECIDED), &handover);
    Ok(handover)
}

fn observe_and_decide(root: &Root, policy: Policy) -> Result<(RealRoot, Decision), FirstbootError> {
    let kargs = root.kargs();
    let files = read_folder(&root.at(RUN_CONNECTIONS))?;
    let hostname = read_bounded(&root.at(HOSTNAME_FILE), 4096).ok();
    let hostname = hostname.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
    let only_default = default_profiles::are_default(root, &files, &kargs);
    let hostname = hostname.filter(|name| !name.is_empty());
    let initramfs = Initramfs { kargs, files, only_default, hostname };
    let real_root = read_real_root(&root.real("/"))?;
    let decision = decide(policy, &initramfs, &real_root);
    Ok((real_root, decision))
}

/// What must change in the real root.
fn plan(root: &Root, before: &RealRoot, decision: &Decision) -> Result<Vec<Change>, FirstbootError> {
    let Decision { handover: _, system_connections: after, hostname, keeps_interface_names } = decision;
    let mut changes = Vec::new();
    for file in after {
        let known = before.system_connections.iter().find(|known| known.name == file.name);
        let Some(bytes) = file.bytes() else { continue };
        if known.is_none_or(|known| known.mode != file.mode || known.bytes().as_ref() != Some(&bytes)) {
            let path = format!("{ETC_CONNECTIONS}/{}", file.name);
            changes.push(Change::Install { attributes: attributes(root, &path, file.mode), path, bytes });
        }
    }
    let gone = |file: &&NetworkFile| !after.iter().any(|kept| kept.name == file.name);
    for file in before.system_connections.iter().filter(gone) {
        changes.push(Change::Remove { path: format!("{ETC_CONNECTIONS}/{}", file.name) });
    }
    if let (Some(name), None) = (hostname, &before.hostname) {
        let bytes = format!("{name}\n").into_bytes();
        let attributes = Attributes { mode: 0o644, owner: None };
        changes.push(Change::Install { path: "/etc/hostname".to_owned(), bytes, attributes });
    }
    let names = root.at(INTERFACE_NAMES);
    if *keeps_interface_names && names.is_file() {
        let bytes = read_bounded(&names, 1 << 20).map_err(at("read", &names))?;
        if fs::read(root.real(INTERFACE_NAMES)).ok().as_ref() != Some(&bytes) {
            let mode = fs::metadata(&names).map_or(0o644, |metadata| metadata.mode() & 0o7777);
            let attributes = attributes(root, INTERFACE_NAMES, mode);
            changes.push(Change::Install { path: INTERFACE_NAMES.to_owned(), bytes, attributes });
        }
    }
    Ok(changes)
}

/// The owner of the file that is replaced, and the mode that was decided. What a link leads to is not replaced.
fn attributes(root: &Root, path: &str, mode: u32) -> Attributes {
    match fs::symlink_metadata(root.real(path)) {
        Ok(metadata) if metadata.is_symlink() => Attributes { mode: 0o600, owner: None },
        Ok(metadata) => Attributes { mode, owner: Some((metadata.uid(), metadata.gid())) },
        Err(_) => Attributes { mode, owner: None },
    }
}

/// Notes the decision and takes NetworkManager's state away, which would otherwise shine through into the real root.
fn leave(root: &Root, handover: &Handover) {
    // Neither may stop a boot: the network is in the real root already.
    let _ = note(&root.at(DECIDED), handover);
    let _ = fs::remove_dir_all(root.at("/run/NetworkManager"));
}

fn note(path: &Path, handover: &Handover) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    fs::write(path, serde_json::to_vec(handover)?)
}
