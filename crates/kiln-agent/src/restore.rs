//! The way back, the same after a failed probe, after a crash and after a power cut.
//!
//! Files come first, then NetworkManager reads them, then it goes back to its checkpoint: in this order its profiles are
//! the old ones already and it has no reason to write them in its own words. What it wrote all the same is put right at
//! the end. Every part may run again from the beginning.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kiln_core::change::Place;
use zbus::zvariant::ObjectPath;

use crate::AgentError;
use crate::failpoint::reach;
use crate::files::{Folders, Image, read_image, sync_folder, write_image};
use crate::journal::{Journal, uuid_of};
use crate::nm::{ACTIVATED, DEVICE_ACTIVATED, IP_CONFIG, NetworkManager, Snapshot, told};
use crate::signals::States;

/// How long the old profiles have to come up again before the way back is called done. They go on coming up afterwards.
const COMING_UP: Duration = Duration::from_secs(5);

/// Puts everything back that the journal knows. Without NetworkManager only files and hostname.
pub async fn restore(journal: &Journal, folders: &Folders, nm: Option<&NetworkManager>) -> Result<(), AgentError> {
    restore_files(journal, folders)?;
    restore_hostname(journal, folders)?;
    reach("restored-files");
    let Some(nm) = nm else { return Ok(()) };
    let states = States::follow(nm).await?;
    nm.load(&paths(journal, folders)).await?;
    reach("restored-loaded");
    remove_remade(journal, nm, &states).await?;
    let snapshot = nm.snapshot().await?;
    let named = snapshot.checkpoints.iter().find(|it| it.path.as_str() == journal.checkpoint);
    let checkpoint = named.or_else(|| journal.asked?.find(&snapshot.checkpoints));
    if let Some(checkpoint) = checkpoint {
        nm.roll_back(&checkpoint.path).await.map_err(|error| told("going back to the checkpoint", error))?;
    }
    reach("restored-checkpoint");
    bring_back(journal, nm, &states, checkpoint.is_some()).await?;
    reach("restored-active");
    // NetworkManager may have written profiles of the checkpoint in its own words, and under names of its own.
    let rewritten = restore_files(journal, folders)?;
    let strays = remove_strays(journal, folders)?;
    if rewritten || !strays.is_empty() {
        nm.load(&[strays, paths(journal, folders)].concat()).await?;
    }
    Ok(())
}

fn paths(journal: &Journal, folders: &Folders) -> Vec<PathBuf> {
    journal.files.iter().map(|before| folders.path(before.place, &before.name)).collect()
}

fn restore_files(journal: &Journal, folders: &Folders) -> Result<bool, AgentError> {
    let mut changed = false;
    for before in &journal.files {
        // After a boot the runtime folder is empty, and what was in it before is nobody's wish any more.
        changed |= write_image(&folders.path(before.place, &before.name), before.image.as_ref())?;
    }
    for place in [Place::Persistent, Place::Runtime] {
        sync_folder(folders.folder(place))?;
    }
    Ok(changed)
}

fn restore_hostname(journal: &Journal, folders: &Folders) -> Result<(), AgentError> {
    let Some(before) = &journal.hostname else { return Ok(()) };
    write_image(&folders.hostname, before.file.as_ref())?;
    if let Some(folder) = folders.hostname.parent() {
        sync_folder(folder)?;
    }
    write_running_hostname(folders, &before.running)
}

/// Sets the kernel's hostname.
pub fn write_running_hostname(folders: &Folders, name: &str) -> Result<(), AgentError> {
    let path = &folders.running_hostname;
    if read_image(path)?.is_some_and(|image| image.bytes.trim_ascii() == name.as_bytes()) {
        return Ok(());
    }
    fs::write(path, name).map_err(|source| AgentError::File { doing: "write", path: path.clone(), source })
}

/// Files that hold profiles of this try under names the journal does not know: NetworkManager chose them.
fn remove_strays(journal: &Journal, folders: &Folders) -> Result<Vec<PathBuf>, AgentError> {
    let mut removed = Vec::new();
    for place in [Place::Persistent, Place::Runtime] {
        for entry in fs::read_dir(folders.folder(place)).into_iter().flatten().flatten() {
            let path = entry.path();
            let known = |name: &str| journal.files.iter().any(|before| before.place == place && before.name == name);
            let Some((_, name)) = folders.locate(&path) else { continue };
            // A shadow of a file the journal has in the other folder was there before.
            let shadows = journal.files.iter().any(|before| before.name == name);
            let Ok(Some(Image { bytes, .. })) = read_image(&path) else { continue };
            let ours = uuid_of(&bytes).is_some_and(|uuid| journal.profiles.contains(&uuid));
            if ours && !known(&name) && !shadows {
                write_image(&path, None)?;
                removed.push(path);
            }
        }
        sync_folder(folders.folder(place))?;
    }
    Ok(removed)
}

/// A device cannot become the one it was made instead of.
async fn remove_remade(journal: &Journal, nm: &NetworkManager, states: &States) -> Result<(), AgentError> {
    let deadline = Instant::now() + COMING_UP;
    loop {
        let news = states.news();
        let snapshot = nm.snapshot().await?;
        let there = journal.remade.iter().filter_map(|name| snapshot.device(name)).filter(|device| device.real);
        let mut left = 0;
        for device in there {
            left += 1;
            // One that is going already refuses; the wait below sees it go.
            let _ = nm.disconnect(&device.path).await;
        }
        let time = deadline.saturating_duration_since(Instant::now());
        if left == 0 || time.is_zero() {
            return Ok(());
        }
        let _ = tokio::time::timeout(time.min(Duration::from_millis(250)), news).await;
    }
}

/// What was in force is in force again, and what the try made is gone.
async fn bring_back(
    journal: &Journal,
    nm: &NetworkManager,
    states: &States,
    checkpoint: bool,
) -> Result<(), AgentError> {
    let snapshot = nm.snapshot().await?;
    for (uuid, interface) in &journal.active {
        let touched = journal.profiles.contains(uuid);
        let in_force = snapshot.active_on(interface).is_some_and(|active| active.uuid == *uuid);
        if in_force && (checkpoint || !touched) {
            continue;
        }
        // A profile that is in force may still be so with the settings of the try. One that is only coming up is brought up anew:
        // a device that is reapplied meanwhile stays on its way for good.
        let device = snapshot.device(interface);
        if in_force
            && let Some(device) = device.filter(|device| device.state == DEVICE_ACTIVATED)
            && nm.reapply(&device.path).await.is_ok()
        {
            continue;
        }
        let Ok(profile) = nm.profile(uuid).await else {
            // A profile that described something others made; NetworkManager makes it again by itself.
            continue;
        };
        let device = device.filter(|device| device.real).map(|device| ObjectPath::from(&device.path));
        if let Err(error) = nm.activate(&profile, device.as_ref()).await {
            tracing::warn!(uuid, interface, %error, "an old profile did not come up again");
        }
    }
    let deadline = Instant::now() + COMING_UP;
    loop {
        let news = states.news();
        let snapshot = nm.snapshot().await?;
        for interface in &journal.made {
            if let Some(device) = snapshot.device(interface).filter(|device| device.real) {
                // It goes with its profile; this is for one whose profile NetworkManager no longer knows.
                let _ = nm.disconnect(&device.path).await;
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if is_back(journal, &snapshot) || left.is_zero() {
            return Ok(());
        }
        let _ = tokio::time::timeout(left.min(Duration::from_millis(250)), news).await;
    }
}

fn is_back(journal: &Journal, snapshot: &Snapshot) -> bool {
    let up = |uuid: &str, interface: &str| {
        let active = snapshot.active_on(interface);
        let ready = snapshot.device(interface).is_some_and(|device| device.state >= IP_CONFIG && device.state < 110);
        active.is_some_and(|active| active.uuid == uuid && (active.state == ACTIVATED || ready))
    };
    let touched = journal.active.iter().filter(|(uuid, _)| journal.profiles.contains(uuid));
    let gone = |interface: &String| !snapshot.device(interface).is_some_and(|device| device.real);
    touched.into_iter().all(|(uuid, interface)| up(uuid, interface)) && journal.made.iter().all(gone)
}
