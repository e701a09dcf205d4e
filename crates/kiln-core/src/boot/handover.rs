//! Handing the initramfs network over to the real root, by one of three policies.
//!
//! `stock` is what coreos-teardown-initramfs does, `force` the same with `coreos.force_persist_ip`, and `merge` keeps
//! the profiles of both sides by meaning: a file in the real root never stands in the way of the network. All three
//! obey `coreos.no_persist_ip` and leave the default profiles behind, which NetworkManager makes anew.
//!
//! [`decide`] gives the real root's folder as it will be. Not here: getting there without a moment at which a power cut
//! leaves half of it, see `kiln_firstboot::propagate`.

use std::fmt;
use std::str::FromStr;

use super::folder::{Folder, NetworkFile};
use super::kargs::Kargs;
use super::simulate::compose;
use super::teardown::{Propagation, RealRoot, Teardown, tear_down_knowing};
use crate::beacon::Handover;
use crate::keyfile::ConnectionFile;

/// What NetworkManager makes for the loopback interface; nobody hands it over.
const LOOPBACK: &str = "lo.nmconnection";

/// How the network is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Copied unless the real root has any file.
    Stock,
    /// Copied over whatever the real root has.
    Force,
    /// Merged with what the real root has.
    Merge,
}

/// What the initramfs ends with.
#[derive(Debug, Clone)]
pub struct Initramfs {
    /// The kernel command line, with what dracut adds to it.
    pub kargs: Kargs,
    /// `/run/NetworkManager/system-connections`.
    pub files: Vec<NetworkFile>,
    /// Whether they are what nobody asked for.
    pub only_default: bool,
    /// The hostname the kernel arguments gave.
    pub hostname: Option<String>,
}

/// What is decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// For people and for the hub.
    pub handover: Handover,
    /// `/etc/NetworkManager/system-connections` afterwards.
    pub system_connections: Vec<NetworkFile>,
    /// `/etc/hostname` afterwards.
    pub hostname: Option<String>,
    /// Whether the udev rules of `ifname=` go along.
    pub keeps_interface_names: bool,
}

/// Decides what the real root gets.
pub fn decide(policy: Policy, initramfs: &Initramfs, real_root: &RealRoot) -> Decision {
    let Initramfs { kargs, files, only_default, hostname } = initramfs;
    let kargs = match policy {
        Policy::Stock => kargs.clone(),
        Policy::Force | Policy::Merge => kargs.and("coreos.force_persist_ip"),
    };
    let torn_down = tear_down_knowing(*only_default, &kargs, files, hostname.as_deref(), real_root);
    let Teardown { propagation, only_default: _, system_connections, hostname, reasons } = torn_down;
    let blocked_by = match &propagation {
        Propagation::Blocked { by } => by.clone(),
        _ => Vec::new(),
    };
    let handover = Handover { policy: policy.to_string(), outcome: propagation.name().to_owned(), blocked_by, reasons };
    let keeps_interface_names = propagation != Propagation::Forbidden;
    let decision = Decision { handover, system_connections, hostname, keeps_interface_names };
    match (policy, propagation) {
        (Policy::Merge, Propagation::Copied { .. }) => merge(files, real_root, decision),
        _ => decision,
    }
}

/// The same decision with the profiles of both sides merged instead of copied.
fn merge(files: &[NetworkFile], real_root: &RealRoot, mut decision: Decision) -> Decision {
    let reasons = &mut decision.handover.reasons;
    // They tell of copying. What was said before, about the hostname, holds.
    let told = reasons.iter().position(|reason| reason.starts_with("copied")).unwrap_or(reasons.len());
    reasons.truncate(told);
    let mut declared = Vec::new();
    for file in files.iter().filter(|file| file.name != LOOPBACK) {
        match file.load(Folder::Run) {
            Ok(profile) => declared.push(profile),
            Err(reason) => {
                reasons.push(format!("`{}` of the initramfs is not carried over: {reason}", file.name));
            }
        }
    }
    let (ours, untouched): (Vec<_>, Vec<_>) = real_root.system_connections.iter().cloned().partition(takes_part);
    for profile in &mut declared {
        rename_beside(profile, &untouched, reasons);
    }
    let merged = compose(&declared, &ours);
    reasons.push("merged by meaning: where both sides speak, the initramfs is right".to_owned());
    reasons.extend(merged.decisions.iter().map(ToString::to_string));
    let result = merged.files.iter().map(|file| unchanged(file, &ours).unwrap_or_else(|| NetworkFile::from(file)));
    decision.system_connections = untouched.into_iter().chain(result).collect();
    decision.system_connections.sort_by(|one, other| one.name.cmp(&other.name));
    decision.handover.outcome = "merged".to_owned();
    decision
}

/// Whether a file of the real root says anything to NetworkManager. The others stay as they are.
fn takes_part(file: &NetworkFile) -> bool {
    file.parse().is_ok_and(|profile| profile.ignored().is_none())
}

/// A file NetworkManager does not read may have the name of one that it must read: both are kept.
fn rename_beside(profile: &mut ConnectionFile, untouched: &[NetworkFile], reasons: &mut Vec<String>) {
    let taken = |name: &str| untouched.iter().any(|file| file.name == name);
    if taken(&profile.name) {
        let stem = profile.name.strip_suffix(".nmconnection").unwrap_or(&profile.name);
        let mut names = (1..).map(|number| match number {
            1 => format!("{stem}-initramfs.nmconnection"),
            _ => format!("{stem}-initramfs-{number}.nmconnection"),
        });
        let name = names.find(|name| !taken(name)).unwrap_or_default();
        reasons.push(format!(
            "`{}` is called `{name}` in the real root, which has an unusable file of that name",
            profile.name
        ));
        profile.name = name;
    }
}

/// The file as it lies there, when merging left its meaning alone: then its bytes stay too.
fn unchanged(file: &ConnectionFile, ours: &[NetworkFile]) -> Option<NetworkFile> {
    let before = ours.iter().find(|before| before.name == file.name)?;
    (before.mode == file.mode && before.parse().is_ok_and(|parsed| parsed.keyfile == file.keyfile))
        .then(|| before.clone())
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Policy::Stock => "stock",
            Policy::Force => "force",
            Policy::Merge => "merge",
        })
    }
}

/// A word that names no policy.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no policy; write stock, force or merge")]
pub struct WrongPolicy(String);

impl FromStr for Policy {
    type Err = WrongPolicy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "stock" => Ok(Policy::Stock),
            "force" => Ok(Policy::Force),
            "merge" => Ok(Policy::Merge),
            _ => Err(WrongPolicy(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests;
