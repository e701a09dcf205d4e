//! A try, from the first look to the commit or back: one readable path.
//!
//! refused? -> baseline of the probes -> journal -> checkpoint -> its name in the journal -> files -> NetworkManager reads
//! them -> stages -> the running system is as asked -> probes pass -> and go on passing -> commit; whatever goes wrong in
//! between -> back. The journal is first, so that no checkpoint of ours is ever left without somebody who knows it.
//!
//! Nothing is tried twice: NetworkManager's own retries have happened when it reports a failure, and the same request
//! would fail the same way. While the agent lives the checkpoint is kept alive; when it dies, NetworkManager goes back.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kiln_core::assignment::Proof;
use kiln_core::change::{Change, Step, Write, differences};
use serde_json::Value;
use zbus::zvariant::{ObjectPath, OwnedObjectPath};

use crate::failpoint::reach;
use crate::files::{Folders, Image, sync_folder, write_image};
use crate::journal::{self, Journal, uuid_of};
use crate::nm::{
    ACTIVATED, ACTIVATING, CallError, DEVICE_ACTIVATED, Device, IP_CONFIG, NetworkManager, Snapshot, told,
};
use crate::probe::{Probes, Watch};
use crate::recover::recover_locked;
use crate::removal::{absent, remove_together};
use crate::restore::{restore, write_running_hostname};
use crate::signals::States;
use crate::{AgentError, HubProbe, Outcome, observe, preflight};

/// How long the kernel has to show what NetworkManager was asked for, and more for each step.
const SHOWING: Duration = Duration::from_secs(10);
const SHOWING_STEP: Duration = Duration::from_millis(200);
/// The same with DHCP: NetworkManager itself gives a server 45 s.
const SHOWING_DHCP: Duration = Duration::from_secs(50);
/// How long a stage has before the next one begins.
const STAGE: Duration = Duration::from_secs(30);

/// How long nothing of a profile may be in force before it has failed.
const LOST: Duration = Duration::from_millis(400);

/// How often NetworkManager is asked at least while the kernel does not show everything. It tells of all interfaces at once,
/// and makes none of them meanwhile.
const LOOK: Duration = Duration::from_millis(200);
/// A change comes as a burst of events; one look after it is enough.
const BURST: Duration = Duration::from_millis(20);
/// Probes that answer sooner leave the network as it was seen before them.
const FRESH: Duration = Duration::from_millis(50);

/// Where a try happens.
#[derive(Debug, Clone, Copy)]
pub struct Site<'a> {
    /// The way to NetworkManager.
    pub nm: &'a NetworkManager,
    /// Its files.
    pub folders: &'a Folders,
    /// Of the journal.
    pub state_dir: &'a Path,
}

/// Why a try is put back: a line for people.
#[derive(Debug)]
pub(crate) struct Failed(pub(crate) String);

impl From<AgentError> for Failed {
    fn from(error: AgentError) -> Self {
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            text.push_str(&format!(": {error}"));
            cause = error.source();
        }
        Failed(text)
    }
}

/// Why a try goes back.
enum GoingBack {
    /// It did not work.
    Failed(Failed),
    /// Nobody wants it any more.
    Abandoned(String),
}

/// Tries a change. When `abandoned` says why, it is put back from wherever it is: what a crash may interrupt, this may too.
pub async fn attempt(
    site: &Site<'_>,
    change: &Change,
    proof: &Proof,
    revision: &str,
    hub: Option<HubProbe>,
    abandoned: impl Future<Output = String>,
) -> Result<Outcome, AgentError> {
    if change.is_empty() {
        return Ok(Outcome::Applied { took: Duration::ZERO, outage: Duration::ZERO, uncounted: Vec::new() });
    }
    let _lock = journal::lock(site.state_dir)?;
    attempt_locked(site, change, proof, revision, hub, abandoned).await
}

/// The same for who holds the lock.
pub async fn attempt_locked(
    site: &Site<'_>,
    change: &Change,
    proof: &Proof,
    revision: &str,
    hub: Option<HubProbe>,
    abandoned: impl Future<Output = String>,
) -> Result<Outcome, AgentError> {
    if let Some(journal) = journal::read(site.state_dir)? {
        recover_locked(journal, site.folders, site.state_dir, Some(site.nm)).await?;
    }
    let mut snapshot = site.nm.snapshot().await?;
    let seen = Instant::now();
    if let Some(why) = preflight::refusal(change, &snapshot, &preflight::Kernel::read()) {
        return Ok(Outcome::Refused { why });
    }
    let probes = Probes::baseline(proof, hub).await;
    // A slow hub takes its time; what is to be put back is what is there now.
    if seen.elapsed() > FRESH {
        snapshot = site.nm.snapshot().await?;
    }
    if let Some(why) = preflight::waits_for(&snapshot) {
        return Ok(Outcome::Waits { why });
    }
    let timeout = Duration::from_millis(proof.checkpoint.max(1000));
    let mut journal = Journal::before(change, revision, site.folders, &snapshot)?;
    journal.asked = Some(journal::Asked::now(timeout)?);
    journal.write(site.state_dir)?;
    reach("asked");
    let checkpoint = match site.nm.checkpoint(timeout).await {
        Ok(checkpoint) => checkpoint,
        Err(error) => return without_checkpoint(site, &journal, error).await,
    };
    reach("checkpoint");
    journal.asked = None;
    journal.checkpoint = checkpoint.to_string();
    if let Err(error) = journal.write(site.state_dir) {
        // Nothing was touched; the checkpoint would only stand in the way of others.
        let _ = site.nm.commit(&checkpoint).await;
        let _ = journal::remove(site.state_dir);
        return Err(error);
    }
    reach("journal");
    let began = Instant::now();
    let watch = probes.watch();
    let alive = keep_alive(site.nm.clone(), checkpoint.clone(), timeout);
    let tried = tokio::select! {
        biased;
        tried = carry_out(site, change, &snapshot, proof, &watch) => tried.map_err(GoingBack::Failed),
        why = abandoned => Err(GoingBack::Abandoned(why)),
    };
    drop(alive);
    let going_back = match tried {
        Ok(()) => match commit(site, &checkpoint).await {
            Ok(()) => {
                let (took, outage, uncounted) = (began.elapsed(), watch.outage(), probes.dropped);
                return Ok(Outcome::Applied { took, outage, uncounted });
            }
            Err(failed) => GoingBack::Failed(failed),
        },
        Err(going_back) => going_back,
    };
    let (GoingBack::Failed(Failed(why)) | GoingBack::Abandoned(why)) = &going_back;
    tracing::info!(why, "going back");
    reach("failed");
    let restored = restore(&journal, site.folders, Some(site.nm)).await.and_then(|()| journal::remove(site.state_dir));
    restored.map_err(|error| AgentError::NotRestored { why: why.clone(), source: Box::new(error) })?;
    let (took, outage) = (began.elapsed(), watch.outage());
    Ok(match going_back {
        GoingBack::Failed(Failed(why)) => Outcome::RolledBack { why, took, outage, uncounted: probes.dropped },
        GoingBack::Abandoned(why) => Outcome::Abandoned { why, took, outage },
    })
}

/// Nothing was touched. Whoever was quicker with a checkpoint is waited for.
async fn without_checkpoint(site: &Site<'_>, journal: &Journal, error: CallError) -> Result<Outcome, AgentError> {
    let snapshot = site.nm.snapshot().await?;
    // An answer that came too late leaves a checkpoint of ours: the journal stays for it.
    let ours = journal.asked.and_then(|asked| asked.find(&snapshot.checkpoints)).is_some();
    if matches!(error, CallError::Said { .. }) || !ours {
        journal::remove(site.state_dir)?;
        if let Some(why) = preflight::waits_for(&snapshot) {
            return Ok(Outcome::Waits { why });
        }
    }
    Err(told("making a checkpoint", error))
}

async fn commit(site: &Site<'_>, checkpoint: &ObjectPath<'_>) -> Result<(), Failed> {
    site.nm.commit(checkpoint).await.map_err(|error| told("keeping the change", error))?;
    reach("committed");
    journal::remove(site.state_dir)?;
    Ok(())
}

/// Ends with the try, also when whoever waits for it stops waiting: then NetworkManager goes back.
struct KeptAlive(tokio::task::JoinHandle<()>);

impl Drop for KeptAlive {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A long wait for DHCP must not end in NetworkManager going back under our feet.
fn keep_alive(nm: NetworkManager, checkpoint: OwnedObjectPath, timeout: Duration) -> KeptAlive {
    KeptAlive(tokio::spawn(async move {
        loop {
            tokio::time::sleep(timeout / 3).await;
            if let Err(error) = nm.extend(&checkpoint, timeout).await {
                tracing::warn!(%error, "the checkpoint could not be kept alive");
            }
        }
    }))
}

async fn carry_out(
    site: &Site<'_>,
    change: &Change,
    snapshot: &Snapshot,
    proof: &Proof,
    watch: &Watch,
) -> Result<(), Failed> {
    let states = States::follow(site.nm).await?;
    let (now, later) = split_writes(site, change, snapshot);
    write_files(site, &now).await?;
    if let Some(name) = &change.hostname {
        write_hostname(site, name)?;
    }
    let mut asked = Vec::new();
    for number in 0..change.stages.len() {
        // Files alone have been touched since the first look.
        let fresh = if number == 0 { None } else { Some(site.nm.snapshot().await?) };
        run_stage(site, change, number, fresh.as_ref().unwrap_or(snapshot), &states, &mut asked).await?;
        reach(&format!("stage-{number}"));
    }
    // A profile that another one has taken the place of: without it the device would have gone down in between.
    write_files(site, &later).await?;
    reach("stages");
    wait_until_shown(site, change, &states, &mut asked).await?;
    reach("verified");
    watch.prove(Duration::from_millis(proof.within), Duration::from_millis(proof.soak)).await.map_err(Failed)?;
    reach("proved");
    Ok(())
}

/// Which files are written before the stages, and which are removed after them.
fn split_writes<'c>(site: &Site<'_>, change: &'c Change, snapshot: &Snapshot) -> (Vec<&'c Write>, Vec<&'c Write>) {
    let in_force: HashSet<&str> = snapshot.active.iter().map(|active| active.uuid.as_str()).collect();
    let mut used: HashSet<String> = change
        .stages
        .iter()
        .flatten()
        .filter_map(|step| match step {
            Step::Activate { uuid, .. } | Step::Reapply { uuid, .. } => Some(uuid.clone()),
            Step::Remove { .. } => None,
        })
        .collect();
    used.extend(change.writes.iter().filter_map(|write| uuid_of(write.content.as_ref()?.as_bytes())));
    change.writes.iter().partition(|write| {
        let image = crate::files::read_image(&site.folders.path(write.place, &write.name)).ok().flatten();
        let uuid = image.and_then(|image| uuid_of(&image.bytes)).unwrap_or_default();
        write.content.is_some() || used.contains(&uuid) || !in_force.contains(uuid.as_str())
    })
}

async fn write_files(site: &Site<'_>, writes: &[&Write]) -> Result<(), Failed> {
    if writes.is_empty() {
        return Ok(());
    }
    for (number, write) in writes.iter().enumerate() {
        let content = write.content.as_ref();
        let image = content.map(|content| Image { bytes: content.clone().into_bytes(), mode: 0o600 });
        write_image(&site.folders.path(write.place, &write.name), image.as_ref())?;
        reach(&format!("file-{number}"));
    }
    let folders: HashSet<&Path> = writes.iter().map(|write| site.folders.folder(write.place)).collect();
    for folder in folders {
        sync_folder(folder)?;
    }
    reach("files");
    let paths: Vec<PathBuf> = writes.iter().map(|write| site.folders.path(write.place, &write.name)).collect();
    let refused = site.nm.load(&paths).await?;
    reach("loaded");
    match refused.first() {
        Some(path) => Err(Failed(format!("NetworkManager does not take the profile {path}; its log says why"))),
        None => Ok(()),
    }
}

fn write_hostname(site: &Site<'_>, name: &str) -> Result<(), Failed> {
    let image = Image { bytes: format!("{name}\n").into_bytes(), mode: 0o644 };
    write_image(&site.folders.hostname, Some(&image))?;
    if let Some(folder) = site.folders.hostname.parent() {
        sync_folder(folder)?;
    }
    write_running_hostname(site.folders, name)?;
    reach("hostname");
    Ok(())
}

/// A profile that was asked to come up.
#[derive(Debug)]
struct Asked {
    uuid: String,
    interface: String,
    /// Since when nothing of it is in force.
    lost: Option<Instant>,
}

/// Sends the steps of a stage side by side and waits until the next one can build on it; after the last one nothing does.
async fn run_stage(
    site: &Site<'_>,
    change: &Change,
    number: usize,
    snapshot: &Snapshot,
    states: &States,
    asked: &mut Vec<Asked>,
) -> Result<(), Failed> {
    let (stage, later) = (&change.stages[number], &change.stages[number + 1..]);
    if stage.is_empty() {
        return Ok(());
    }
    // A device that is made anew must be gone before: NetworkManager cancels what is asked of one that is going.
    let made_anew = |name: &str| {
        later.iter().flatten().any(|step| matches!(step, Step::Activate { interface, .. } if interface == name))
    };
    let going: Vec<&str> = stage
        .iter()
        .filter_map(|step| match step {
            Step::Remove { interface } if made_anew(interface) => Some(interface.as_str()),
            _ => None,
        })
        .collect();
    let gone = remove_together(&absent(stage, &change.wanted)).await.unwrap_or_else(|error| {
        tracing::info!(%error, "links were not removed together; NetworkManager removes each");
        Vec::new()
    });
    let left = |step: &&Step| !matches!(step, Step::Remove { interface } if gone.contains(interface));
    let sent = stage.iter().filter(left).map(|step| run_step(site, step, snapshot));
    for activation in futures::future::join_all(sent).await {
        asked.extend(activation?);
    }
    if later.is_empty() {
        return Ok(());
    }
    let deadline = Instant::now() + STAGE;
    loop {
        let news = states.news();
        let snapshot = site.nm.snapshot().await?;
        let there = |name: &&&str| snapshot.device(name).is_some_and(|device| device.real);
        let mut pending = going.iter().filter(there).count();
        for asked in asked.iter_mut() {
            pending += usize::from(!is_usable(asked, &snapshot, states)?);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if pending == 0 || left.is_zero() {
            return Ok(());
        }
        let _ = tokio::time::timeout(left.min(Duration::from_millis(200)), news).await;
    }
}

async fn run_step(site: &Site<'_>, step: &Step, snapshot: &Snapshot) -> Result<Option<Asked>, Failed> {
    let nm = site.nm;
    match step {
        Step::Activate { uuid, interface } => activate(site, uuid, interface, snapshot).await.map(Some),
        Step::Reapply { uuid, interface } => {
            let in_force = snapshot.active_on(interface).is_some_and(|active| active.uuid == *uuid);
            // A device on its way that is reapplied stays there for good.
            let settled = |device: &&Device| in_force && device.real && device.state == DEVICE_ACTIVATED;
            let device = snapshot.device(interface).filter(settled);
            let Some(device) = device else { return activate(site, uuid, interface, snapshot).await.map(Some) };
            match nm.reapply(&device.path).await {
                Ok(()) => Ok(Some(Asked { uuid: uuid.clone(), interface: interface.clone(), lost: None })),
                // Some properties cannot be changed on a device that is up; NetworkManager knows which better than we.
                Err(error) => {
                    tracing::info!(interface, %error, "reapply was not possible; activating");
                    activate(site, uuid, interface, snapshot).await.map(Some)
                }
            }
        }
        Step::Remove { interface } => {
            let Some(device) = snapshot.device(interface).filter(|device| device.real) else { return Ok(None) };
            match nm.disconnect(&device.path).await {
                Ok(()) => Ok(None),
                Err(error) if error.is("NotActive") || error.is("UnknownMethod") || error.is("UnknownObject") => {
                    Ok(None)
                }
                Err(error) => Err(told(format!("taking {interface} down"), error).into()),
            }
        }
    }
}

async fn activate(site: &Site<'_>, uuid: &str, interface: &str, snapshot: &Snapshot) -> Result<Asked, Failed> {
    let failed = |error| Failed(format!("{interface} cannot be brought up: {error}"));
    let profile = site.nm.profile(uuid).await.map_err(failed)?;
    let device = snapshot.device(interface).filter(|device| device.real).map(|device| ObjectPath::from(&device.path));
    site.nm.activate(&profile, device.as_ref()).await.map_err(failed)?;
    Ok(Asked { uuid: uuid.to_owned(), interface: interface.to_owned(), lost: None })
}

/// Whether ports and children can build on it. An error when it has failed for good.
fn is_usable(asked: &mut Asked, snapshot: &Snapshot, states: &States) -> Result<bool, Failed> {
    let device = snapshot.device(&asked.interface);
    let active = snapshot
        .active
        .iter()
        .filter(|active| active.uuid == asked.uuid && matches!(active.state, ACTIVATING | ACTIVATED))
        .max_by_key(|active| active.state);
    if active.is_some() {
        asked.lost = None;
    }
    match active {
        // A port goes and comes with its controller, and one activation takes the place of another.
        None if asked.lost.get_or_insert_with(Instant::now).elapsed() < LOST => Ok(false),
        Some(active) if active.state == ACTIVATED => Ok(true),
        Some(_) => Ok(device.is_some_and(|device| device.state >= IP_CONFIG && device.state < 110)),
        None => {
            let known = states.known();
            let failure = device.and_then(|device| known.failures.get(device.path.as_str()).copied());
            let reason = failure.or_else(|| device.map(|device| device.reason));
            let why = reason.map_or_else(|| "the kernel did not make it".to_owned(), device_reason);
            Err(Failed(format!("{} did not come up: {why}", asked.interface)))
        }
    }
}

/// Waits until the running system is what was asked for, and what was asked to come up has. A profile that fails ends the
/// wait at once.
async fn wait_until_shown(
    site: &Site<'_>,
    change: &Change,
    states: &States,
    asked: &mut [Asked],
) -> Result<(), Failed> {
    let steps = u32::try_from(asked.len()).unwrap_or(u32::MAX);
    let usual = SHOWING.saturating_add(SHOWING_STEP.saturating_mul(steps));
    let began = Instant::now();
    let deadline = began + if waits_for_dhcp(&change.wanted) { usual.max(SHOWING_DHCP) } else { usual };
    let mut looked = began;
    loop {
        let news = states.news();
        if looked.elapsed() < LOOK && !kernel_shows(&change.wanted)? {
            let _ = tokio::time::timeout(LOOK, news).await;
            tokio::time::sleep(BURST).await;
            continue;
        }
        looked = Instant::now();
        let (current, snapshot) = observe::running(site.nm).await?;
        let missing = differences(&current, &change.wanted).into_iter();
        let missing: Vec<String> = missing.map(|mismatch| mismatch.line).collect();
        let mut pending = 0;
        for asked in asked.iter_mut() {
            pending += usize::from(!is_usable(asked, &snapshot, states)?);
        }
        if missing.is_empty() && (pending == 0 || began.elapsed() >= STAGE) {
            return Ok(());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() && !missing.is_empty() {
            let more = missing.len().saturating_sub(3);
            let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
            let shown: Vec<_> = missing.into_iter().take(3).collect();
            return Err(Failed(format!("the network did not become what was asked for: {}{rest}", shown.join("; "))));
        }
        let _ = tokio::time::timeout(Duration::from_millis(500), news).await;
        tokio::time::sleep(BURST).await;
    }
}

/// Whether the kernel has all of it, whatever NetworkManager will say of the states of its devices.
fn kernel_shows(wanted: &Value) -> Result<bool, AgentError> {
    let mut current = observe::read_running_kernel()?;
    for interface in current["interfaces"].as_array_mut().into_iter().flatten() {
        interface["state"] = "up".into();
    }
    Ok(differences(&current, wanted).is_empty())
}

/// Whether the document waits for a DHCP server, which is slower than the kernel.
fn waits_for_dhcp(wanted: &Value) -> bool {
    let asks = |interface: &Value| interface["ipv4"]["enabled"] == true && interface["ipv4"]["dhcp"] == true;
    wanted["interfaces"].as_array().is_some_and(|interfaces| interfaces.iter().any(asks))
}

/// NMDeviceStateReason in words, those that a profile of a server can meet.
fn device_reason(reason: u32) -> String {
    let known: HashMap<u32, &str> = HashMap::from([
        (2, "the device is now managed"),
        (4, "the device could not be readied for configuration"),
        (5, "IP configuration could not be reserved"),
        (6, "the IP configuration is no longer valid"),
        (7, "secrets were required, but not provided"),
        (15, "DHCP could not be started"),
        (16, "no DHCP server answered"),
        (17, "DHCP failed"),
        (35, "the kernel or its driver lacks something the profile needs"),
        (36, "the device is gone"),
        (38, "the profile is gone"),
        (39, "somebody disconnected it"),
        (40, "there is no carrier"),
        (42, "the profile is not active on the device any more"),
        (50, "what it depends on failed"),
        (53, "its controller failed"),
        (54, "its base interface has a problem"),
        (63, "Open vSwitch could not make the bridge or port"),
        (65, "the IP method is not supported"),
    ]);
    known.get(&reason).map_or_else(|| format!("NetworkManager's reason {reason}"), |text| (*text).to_owned())
}
