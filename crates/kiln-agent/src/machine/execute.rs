//! Carrying out a change of files and units: one readable path.
//!
//! refused? -> journal -> units that go -> files -> they read back as asked -> systemd reads its units -> units -> the network is
//! tried and proved -> kernel arguments, OS image -> services -> kept, or a reboot; whatever goes wrong in between -> back.
//!
//! Nothing is tried twice: what systemd or rpm-ostree refuse once they refuse again.

use std::time::{Duration, Instant};

use kiln_core::assignment::Proof;
use kiln_core::change::Change;
use kiln_core::machine::Action;
use kiln_core::machine::wish::{MachineChange, UnitStep};

use super::journal::{self, Journal, Stage};
use super::observe;
use super::place::{Owners, Place, make_folders, read_place, write_place};
use super::restore::{borrowed, kernel_arguments, restore, sync_parents};
use super::{Ended, Root, Site, program};
use crate::attempt::Failed;
use crate::failpoint::reach;
use crate::files::Folders;
use crate::{Agent, AgentError, HubProbe, Outcome};

/// How long systemd may take for a word on a unit.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long a service may take to start or to read its files again.
const STARTING: Duration = Duration::from_secs(300);
/// A service that cannot live with its new files dies within moments.
const LIVING: Duration = Duration::from_secs(1);
/// How long a new deployment may take; an image is fetched for it.
const DEPLOYING: Duration = Duration::from_secs(1800);

/// The network part of a change, planned.
pub struct Network<'a> {
    /// Who tries it.
    pub agent: &'a Agent,
    /// What is tried.
    pub change: &'a Change,
    /// How it is proved.
    pub proof: &'a Proof,
    /// Whether the hub sees the node.
    pub hub: Option<HubProbe>,
}

impl std::fmt::Debug for Network<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network").field("changes", &self.change.lines).finish_non_exhaustive()
    }
}

/// Why a change is put back, and what that says about it.
struct Broken {
    why: String,
    fault: Fault,
}

/// What was in the way.
enum Fault {
    /// A file, a unit or a service.
    Machine,
    /// What was asked of the network.
    Network,
    /// Somebody else, for a while.
    Nobody,
}

impl<E: Into<Failed>> From<E> for Broken {
    fn from(error: E) -> Self {
        Broken { why: error.into().0, fault: Fault::Machine }
    }
}

/// Makes a change, or leaves the machine as it was.
///
/// An error means that the agent failed; when it failed after the first write and on the way back too, the journal stays and
/// [`super::resume::resume`] goes on.
pub async fn execute(
    site: &Site<'_>,
    change: &MachineChange,
    revision: &str,
    network: Option<Network<'_>>,
) -> Result<Ended, AgentError> {
    let _lock = crate::journal::lock(site.state_dir)?;
    if let Some(journal) = journal::read(site.state_dir)? {
        let why = match journal.stage {
            Stage::Rebooting => format!("{} waits for a reboot; reboot the machine first", journal.revision),
            Stage::Changing | Stage::Kept => {
                format!("{} has not ended; `kiln agent recover` ends it", journal.revision)
            }
        };
        return Ok(Ended::Refused { why });
    }
    let places = match places(site.root, change) {
        Ok(places) => places,
        Err(why) => return Ok(Ended::Refused { why }),
    };
    if let Some(network) = &network
        && let Some(why) = network.agent.waits_for().await?
    {
        return Ok(Ended::Waits { why });
    }
    let mut journal = match Journal::before(site, change, revision).await {
        Ok(journal) => journal,
        // Nothing was touched: what cannot be kept a copy of is not overwritten.
        Err(error @ AgentError::File { .. }) => return Ok(Ended::Refused { why: Failed::from(error).0 }),
        Err(error) => return Err(error),
    };
    let began = Instant::now();
    journal.write(site.state_dir)?;
    reach("machine-journal");
    let broken = match carry_out(site, change, &places, &mut journal, network.as_ref()).await {
        Ok(Stage::Rebooting) => return Ok(Ended::Reboot),
        Ok(_) => return Ok(Ended::Applied { took: began.elapsed() }),
        Err(broken) => broken,
    };
    let Broken { why, fault } = broken;
    reach("machine-failed");
    let agent = network.as_ref().map(|network| network.agent);
    put_back(site, &journal, agent, &why).await?;
    Ok(match fault {
        Fault::Nobody => Ended::Waits { why },
        Fault::Machine => Ended::RolledBack { why, took: began.elapsed(), network: false },
        Fault::Network => Ended::RolledBack { why, took: began.elapsed(), network: true },
    })
}

/// Boots the machine. A failure puts everything back.
pub async fn reboot(site: &Site<'_>, agent: Option<&Agent>) -> Result<Ended, AgentError> {
    reach("machine-rebooting");
    let asked = program::succeed(site.root, "systemctl", &["reboot"], PATIENCE).await;
    let Err(error) = asked else { return Ok(Ended::Reboot) };
    let why = Failed::from(error).0;
    let _lock = crate::journal::lock(site.state_dir)?;
    if let Some(journal) = journal::read(site.state_dir)? {
        put_back(site, &journal, agent, &why).await?;
    }
    Ok(Ended::RolledBack { why, took: Duration::ZERO, network: false })
}

/// The way back, for who holds the lock.
pub(super) async fn put_back(
    site: &Site<'_>,
    journal: &Journal,
    agent: Option<&Agent>,
    why: &str,
) -> Result<(), AgentError> {
    tracing::info!(why, "going back");
    let folders = agent.map_or_else(Folders::default, |agent| agent.folders.clone());
    let restored = restore(site, journal, &folders, agent.map(|agent| &agent.nm)).await;
    let restored = restored.and_then(|()| journal::remove(site.state_dir));
    restored.map_err(|error| AgentError::NotUndone { why: why.to_owned(), source: Box::new(error) })
}

/// What each path becomes. An error is why it cannot work on this machine.
fn places(root: &Root, change: &MachineChange) -> Result<Vec<(String, Place)>, String> {
    let owners = Owners::read(root);
    let tells_systemd = change.daemon_reload || !change.units.is_empty() || !change.units_before.is_empty();
    let acts = change.actions.iter().any(|action| !matches!(action, Action::None | Action::Drain));
    if (tells_systemd || acts) && program::find(root, "systemctl").is_none() {
        return Err("units change, and this machine has no systemctl in /usr/bin; run it where systemd runs".into());
    }
    if (change.kernel_arguments.is_some() || change.os_image.is_some()) && program::find(root, "rpm-ostree").is_none() {
        return Err("kernel arguments or the OS image change, and this machine has no rpm-ostree; \
                    change them by its own means and try again"
            .into());
    }
    let place = |(path, wish): &(String, Option<_>)| match wish {
        Some(wish) => owners.place(wish).map(|place| (path.clone(), place)).map_err(|why| format!("{path} {why}")),
        None => Ok((path.clone(), Place::Nothing)),
    };
    change.writes.iter().map(place).collect()
}

/// The stage the journal is left in.
async fn carry_out(
    site: &Site<'_>,
    change: &MachineChange,
    places: &[(String, Place)],
    journal: &mut Journal,
    network: Option<&Network<'_>>,
) -> Result<Stage, Broken> {
    for step in &change.units_before {
        tell(site.root, step).await?;
    }
    reach("machine-units-before");
    write(site.root, places).await?;
    if change.daemon_reload {
        run_action(site.root, &Action::DaemonReload).await?;
        reach("machine-daemon-reload");
    }
    for (number, step) in change.units.iter().enumerate() {
        tell(site.root, step).await?;
        reach(&format!("machine-unit-{number}"));
    }
    if let Some(network) = network {
        try_network(site, journal, network).await?;
        reach("machine-network");
    }
    deploy(site, change, journal).await?;
    let mut stage = Stage::Kept;
    for (number, action) in change.actions.iter().enumerate() {
        match action {
            Action::Reboot => stage = Stage::Rebooting,
            Action::None | Action::Drain => {}
            Action::DaemonReload | Action::Reload(_) | Action::Restart(_) => {
                journal.acted.push(action.clone());
                journal.write(site.state_dir)?;
                run_action(site.root, action).await?;
            }
        }
        reach(&format!("machine-action-{number}"));
    }
    journal.stage = stage;
    journal.write(site.state_dir)?;
    reach("machine-done");
    Ok(stage)
}

async fn write(root: &Root, places: &[(String, Place)]) -> Result<(), Broken> {
    for (number, (path, place)) in places.iter().enumerate() {
        if *place != Place::Nothing {
            make_folders(root, path)?;
        }
        write_place(&root.at(path), place)?;
        reach(&format!("machine-file-{number}"));
    }
    sync_parents(root, places.iter().map(|(path, _)| path))?;
    relabel(root, &places.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>()).await;
    for (path, place) in places {
        // Something that was removed may be a folder by now: for a file below it.
        let found = read_place(&root.at(path))?;
        let made_room = *place == Place::Nothing && matches!(found, Place::Folder { .. });
        if found != *place && !made_room {
            let why = format!("{path} was written and is {found:?}, not {place:?}");
            return Err(Broken { why, fault: Fault::Machine });
        }
    }
    reach("machine-files");
    Ok(())
}

/// New files get the labels the policy has for their paths, as Ignition gives them. Where SELinux is off there are none.
pub(super) async fn relabel(root: &Root, paths: &[&str]) {
    /// Not more than a command line holds.
    const TOGETHER: usize = 100;
    if !root.at("/sys/fs/selinux/enforce").exists() || program::find(root, "restorecon").is_none() {
        return;
    }
    for some in paths.chunks(TOGETHER) {
        let arguments = [&["-F", "-i"], some].concat();
        if let Err(error) = program::succeed(root, "restorecon", &arguments, PATIENCE).await {
            tracing::warn!(%error, "labels of SELinux may be wrong");
        }
    }
}

async fn tell(root: &Root, step: &UnitStep) -> Result<(), AgentError> {
    let (verb, name) = match step {
        UnitStep::Enable(name) => ("enable", name),
        UnitStep::Disable(name) => ("disable", name),
        UnitStep::Mask(name) => ("mask", name),
        UnitStep::Unmask(name) => ("unmask", name),
        UnitStep::Preset(name) => ("preset", name),
    };
    let told = program::succeed(root, "systemctl", &[verb, "--", name], PATIENCE).await;
    if let (Err(_), UnitStep::Preset(name)) = (&told, step) {
        // A unit that went with its file has no presets.
        let state = observe::observe_units(root, &[name.clone()].into()).await?;
        if state.get(name).is_some_and(|state| state == "not-found") {
            return Ok(());
        }
    }
    told.map(drop)
}

/// The engine has a journal and a checkpoint of its own; what it keeps can still go back with the rest.
async fn try_network(site: &Site<'_>, journal: &mut Journal, network: &Network<'_>) -> Result<(), Broken> {
    let Network { agent, change, proof, hub } = network;
    let before = agent.journal(change, &journal.revision).await?;
    let before = before.render().map_err(|error| Failed(error.to_string()))?;
    journal.network = serde_json::from_slice(&before).ok();
    journal.write(site.state_dir)?;
    reach("machine-network-journal");
    let (why, fault) = match agent.attempt_locked(change, proof, &journal.revision, hub.clone()).await? {
        Outcome::Applied { .. } => return Ok(()),
        Outcome::RolledBack { why, .. } => (why, Fault::Network),
        Outcome::Refused { why } => (why, Fault::Machine),
        Outcome::Waits { why } | Outcome::Abandoned { why, .. } => (why, Fault::Nobody),
    };
    Err(Broken { why: format!("the network: {why}"), fault })
}

/// The next boot's kernel arguments and OS image.
async fn deploy(site: &Site<'_>, change: &MachineChange, journal: &mut Journal) -> Result<(), Broken> {
    if let Some(wanted) = &change.kernel_arguments {
        journal.kernel_arguments = Some((wanted.remove.clone(), wanted.append.clone()));
        journal.write(site.state_dir)?;
        let arguments = kernel_arguments(&wanted.remove, &wanted.append);
        program::succeed(site.root, "rpm-ostree", &borrowed(&arguments), DEPLOYING).await?;
        reach("machine-kernel-arguments");
    }
    if let Some(image) = &change.os_image {
        journal.os_image = Some(image.clone());
        journal.write(site.state_dir)?;
        let reference = format!("ostree-unverified-registry:{image}");
        program::succeed(site.root, "rpm-ostree", &["rebase", "--experimental", &reference], DEPLOYING).await?;
        reach("machine-os-image");
    }
    Ok(())
}

/// Puts something into force. A service that does not live afterwards is an error.
pub(super) async fn run_action(root: &Root, action: &Action) -> Result<(), AgentError> {
    match action {
        Action::DaemonReload => program::succeed(root, "systemctl", &["daemon-reload"], PATIENCE).await.map(drop),
        Action::Reload(name) => program::succeed(root, "systemctl", &["reload", "--", name], STARTING).await.map(drop),
        Action::Restart(name) => restart(root, name).await,
        Action::None | Action::Drain | Action::Reboot => Ok(()),
    }
}

async fn restart(root: &Root, name: &str) -> Result<(), AgentError> {
    let before = activity(root, name).await?;
    program::succeed(root, "systemctl", &["restart", "--", name], STARTING).await?;
    for pause in [Duration::ZERO, LIVING] {
        tokio::time::sleep(pause).await;
        let now = activity(root, name).await?;
        // One that runs once and ends is inactive before and after.
        let lives = match now.as_str() {
            "active" | "reloading" => true,
            "inactive" => before != "active",
            _ => false,
        };
        if !lives {
            let why = format!("`{name}` is {now} after it was started anew; `journalctl -u {name}` says why");
            return Err(AgentError::Program { program: "systemctl", why });
        }
    }
    Ok(())
}

async fn activity(root: &Root, name: &str) -> Result<String, AgentError> {
    let ran = program::run(root, "systemctl", &["is-active", "--", name], PATIENCE).await?;
    Ok(ran.output.trim().to_owned())
}
