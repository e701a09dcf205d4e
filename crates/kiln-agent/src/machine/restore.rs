//! The way back of a change of files and units, the same after a failure, a crash and a power cut.
//!
//! What was done last goes back first: the boot loader, the network, then units and files, then services. Every part may run again
//! from the beginning, and one that fails does not keep the others from going back.

use std::fs;
use std::path::Path;
use std::time::Duration;

use kiln_core::machine::Action;

use super::execute::{relabel, run_action};
use super::journal::Journal;
use super::place::{Place, make_folders, write_place};
use super::{Root, Site, observe, program};
use crate::AgentError;
use crate::failpoint::reach;
use crate::files::{Folders, beside, sync_folder};
use crate::nm::NetworkManager;
use crate::recover::restore_network;

/// How long systemd may take for a word on a unit.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long rpm-ostree may take.
const DEPLOYING: Duration = Duration::from_secs(600);

/// Puts everything back that the journal knows.
pub(super) async fn restore(
    site: &Site<'_>,
    journal: &Journal,
    folders: &Folders,
    nm: Option<&NetworkManager>,
) -> Result<(), AgentError> {
    let same_boot = site.root.boot_id()? == journal.boot;
    let mut failed = restore_boot(site.root, journal).await.err();
    reach("machine-restored-boot");
    if let Some(network) = &journal.network {
        let restored = restore_network(network, folders, nm).await;
        failed = failed.or(restored.err());
        reach("machine-restored-network");
    }
    failed = failed.or(leave(site.root, journal).await.err());
    failed = failed.or(restore_files(site.root, journal).err());
    reach("machine-restored-files");
    let changed: Vec<&str> = journal.files.iter().map(|(path, _)| path.as_str()).collect();
    relabel(site.root, &changed).await;
    let systemd = program::find(site.root, "systemctl").is_some();
    if systemd && (journal.daemon_reload || !journal.units.is_empty()) {
        told(run_action(site.root, &Action::DaemonReload).await);
    }
    failed = failed.or(restore_units(site.root, journal).await.err());
    reach("machine-restored-units");
    // In another boot services have begun with the old files, or will.
    for action in journal.acted.iter().filter(|_| same_boot) {
        told(run_action(site.root, action).await);
    }
    match failed {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// What cannot be helped any more is said.
fn told(ended: Result<(), AgentError>) {
    if let Err(error) = ended {
        tracing::warn!(%error, "on the way back");
    }
}

/// The boot loader forgets what it was asked for.
async fn restore_boot(root: &Root, journal: &Journal) -> Result<(), AgentError> {
    if let Some(asked) = journal.asked_arguments() {
        let arguments = kernel_arguments(&asked.append, &asked.remove);
        program::succeed(root, "rpm-ostree", &borrowed(&arguments), DEPLOYING).await?;
    }
    if let Some(image) = &journal.os_image {
        // It boots already, or it is only prepared.
        let verb: &[&str] = match observe::observe_os_image(root).await.as_ref() == Some(image) {
            true => &["rollback"],
            false => &["cleanup", "--pending"],
        };
        program::succeed(root, "rpm-ostree", verb, DEPLOYING).await?;
    }
    Ok(())
}

/// The arguments of `rpm-ostree` for a change of the kernel's; repeating it changes nothing.
pub(super) fn kernel_arguments(remove: &[String], append: &[String]) -> Vec<String> {
    let removed = remove.iter().map(|argument| format!("--delete-if-present={argument}"));
    let appended = append.iter().map(|argument| format!("--append-if-missing={argument}"));
    ["kargs".to_owned()].into_iter().chain(removed).chain(appended).collect()
}

pub(super) fn borrowed(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

/// What must be undone while the new files are there: a mask is a link where a file comes back, and systemd does not disable
/// what it does not know.
async fn leave(root: &Root, journal: &Journal) -> Result<(), AgentError> {
    let names = journal.units.iter().map(|(name, _)| name.clone()).collect();
    for (name, state) in observe::observe_units(root, &names).await? {
        let before = journal.units.iter().find(|(unit, _)| *unit == name).map(|(_, state)| state.as_str());
        let verb = match state.as_str() {
            _ if before == Some(&state) => continue,
            "masked" => "unmask",
            "enabled" => "disable",
            _ => continue,
        };
        program::succeed(root, "systemctl", &[verb, "--", &name], PATIENCE).await?;
    }
    Ok(())
}

fn restore_files(root: &Root, journal: &Journal) -> Result<(), AgentError> {
    let mut failed = None;
    // A path may be in the journal twice or lie below another one: the last that was done goes back first.
    for (path, place) in journal.files.iter().rev() {
        let at = root.at(path);
        if let Ok(half) = beside(&at) {
            let _ = fs::remove_file(half);
        }
        let made = if *place == Place::Nothing { Ok(()) } else { make_folders(root, path) };
        failed = failed.or(made.and_then(|()| write_place(&at, place)).err());
    }
    for folder in journal.folders.iter().rev() {
        // One that holds something else is somebody's by now.
        let _ = fs::remove_dir(root.at(folder));
    }
    failed = failed.or(sync_parents(root, journal.files.iter().map(|(path, _)| path)).err());
    match failed {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Makes what was renamed or removed survive a power cut.
pub(super) fn sync_parents<'a>(root: &Root, paths: impl Iterator<Item = &'a String>) -> Result<(), AgentError> {
    let mut folders: Vec<&Path> = paths.filter_map(|path| Path::new(path).parent()).collect();
    folders.sort_unstable();
    folders.dedup();
    folders.iter().filter_map(|folder| folder.to_str()).try_for_each(|folder| sync_folder(&root.at(folder)))
}

/// Each unit starts at boot as it did.
async fn restore_units(root: &Root, journal: &Journal) -> Result<(), AgentError> {
    let names = journal.units.iter().map(|(name, _)| name.clone()).collect();
    let now = observe::observe_units(root, &names).await?;
    for (name, before) in &journal.units {
        let state = now.get(name).map(String::as_str).unwrap_or_default();
        let Some(verb) = way_back(before, state) else { continue };
        program::succeed(root, "systemctl", &[verb, "--", name], PATIENCE).await?;
    }
    Ok(())
}

/// What brings a unit from one answer of `is-enabled` to another. Answers that follow from files alone need nothing.
fn way_back(before: &str, now: &str) -> Option<&'static str> {
    match (before, now) {
        (before, now) if before == now => None,
        ("masked", _) => Some("mask"),
        ("enabled", _) => Some("enable"),
        (_, "enabled") => Some("disable"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_go_back_to_what_they_were() {
        for (before, now, expected) in [
            ("enabled", "enabled", None),
            ("enabled", "disabled", Some("enable")),
            ("disabled", "enabled", Some("disable")),
            ("masked", "enabled", Some("mask")),
            ("static", "enabled", Some("disable")),
            ("not-found", "enabled", Some("disable")),
            ("not-found", "disabled", None),
            ("static", "disabled", None),
        ] {
            assert_eq!(way_back(before, now), expected, "{before} <- {now}");
        }
    }

    #[test]
    fn kernel_arguments_are_asked_for_so_that_asking_twice_is_asking_once() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            kernel_arguments(&texts(&["quiet"]), &texts(&["a=b c", "d"])),
            ["kargs", "--delete-if-present=quiet", "--append-if-missing=a=b c", "--append-if-missing=d"]
        );
    }
}
