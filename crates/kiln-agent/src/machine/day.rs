//! The part of `kiln agent run` about files and units: asks the hub, looks, does it when it may, tells; and says when somebody
//! else changes what was applied.
//!
//! [`ask`] only carries. [`Day::look`] and what follows from it run in the one task that also changes the network, so that the two
//! never overlap.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kiln_core::assignment::{Assignment, Permit};
use kiln_core::machine::config::read_machine;
use kiln_core::machine::plan::drifted;
use kiln_core::machine::wish::Machine;
use kiln_core::machine::{MachineAssignment, MachinePhase, MachineReport, Needs};
use tokio::sync::{mpsc, watch};

use super::decide::{Decision, decide, report};
use super::drift::Watch;
use super::execute::{Network, execute, reboot};
use super::plan::{NoPlan, Plan, plan_files, plan_network};
use super::resume::{Resumed, When, confirm, resume, save};
use super::{Ended, Root, Site};
use crate::hub::{Hub, HubError, News};
use crate::memory::{MachineMemory, Memory, Store};
use crate::run::{LONG_POLL, Pause, SOON, TRIES_WITHOUT_VERDICT, hub_is_seen_again, hub_probe, until};
use crate::{Agent, AgentError};

/// How long the hub is waited for before a reboot: it knows anyway when the node comes back.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// What the hub asks, and what that means.
#[derive(Debug, Clone)]
pub struct Asked {
    /// As the hub gave it.
    assignment: Arc<MachineAssignment>,
    /// What its config wants, or why it cannot be read.
    wanted: Result<Arc<Machine>, String>,
    /// When.
    received: Instant,
}

/// Asks for assignments for ever, and fetches the config of each revision once.
pub async fn ask(hub: &Hub, said: mpsc::Sender<Option<Asked>>) {
    let mut known: Option<String> = None;
    let mut read: Option<(String, Result<Arc<Machine>, String>)> = None;
    let mut pause = Pause::default();
    loop {
        let news = match hub.machine_assignment(known.as_deref(), LONG_POLL).await {
            Ok(News::Unchanged) => {
                pause = Pause::default();
                continue;
            }
            Ok(News::Nothing) => {
                known = None;
                None
            }
            Ok(News::Assignment(assignment, tag)) => {
                let received = Instant::now();
                match fetch(hub, &assignment, &mut read).await {
                    Ok(Some(wanted)) => {
                        pause = Pause::default();
                        known = Some(tag);
                        Some(Asked { assignment: Arc::from(assignment), wanted, received })
                    }
                    // Another revision is wanted by now: it is asked for at once, but not without end.
                    Ok(None) => {
                        known = None;
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        continue;
                    }
                    Err(error) => {
                        pause.after(&error).await;
                        continue;
                    }
                }
            }
            Err(error) => {
                pause.after(&error).await;
                continue;
            }
        };
        let nothing = news.is_none();
        if said.send(news).await.is_err() {
            return;
        }
        if nothing {
            tokio::time::sleep(Pause::LONGEST).await;
        }
    }
}

type Read = (String, Result<Arc<Machine>, String>);

/// What a revision wants: fetched, or known already. None when the hub has another one by now.
async fn fetch(
    hub: &Hub,
    assignment: &MachineAssignment,
    read: &mut Option<Read>,
) -> Result<Option<Result<Arc<Machine>, String>>, HubError> {
    let revision = &assignment.revision;
    if let Some((_, wanted)) = read.as_ref().filter(|(known, _)| known == revision) {
        return Ok(Some(wanted.clone()));
    }
    let Some(config) = hub.machine_config(revision).await? else { return Ok(None) };
    let wanted = read_machine(&config, &assignment.system).map(Arc::new).map_err(|error| error.to_string());
    *read = Some((revision.clone(), wanted.clone()));
    Ok(Some(wanted))
}

/// The rest of the node, as far as files and units need it.
pub struct Rest<'a> {
    /// Who changes the network.
    pub agent: &'a Agent,
    /// Whom to ask.
    pub hub: &'a Hub,
    /// Of both memories.
    pub store: &'a Store,
    /// What is remembered about the network.
    pub memory: &'a mut Memory,
    /// What the hub asks of the network.
    pub assignment: Option<&'a Assignment>,
}

impl std::fmt::Debug for Rest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rest").finish_non_exhaustive()
    }
}

/// Files and units of a node, with what it was told last.
#[derive(Debug)]
pub struct Day {
    root: Root,
    state_dir: PathBuf,
    memory: MachineMemory,
    asked: Option<Asked>,
    reports: watch::Sender<Option<MachineReport>>,
    watch: Option<Watch>,
    /// The machine goes down: nothing is begun any more.
    rebooting: bool,
    /// Tries of the revision that ended without a verdict.
    without_verdict: u32,
    /// When a change that had to wait for somebody is looked at again.
    again: Option<Instant>,
}

impl Day {
    /// Goes on from what an earlier process left.
    pub async fn begin(
        root: Root,
        state_dir: &Path,
        rest: Rest<'_>,
        reports: watch::Sender<Option<MachineReport>>,
    ) -> Result<Day, AgentError> {
        let memory = rest.store.load_machine().map_err(|source| AgentError::File {
            doing: "read the memory in",
            path: state_dir.to_owned(),
            source,
        })?;
        let mut day = Day {
            root,
            state_dir: state_dir.to_owned(),
            memory,
            asked: None,
            reports,
            watch: None,
            rebooting: false,
            without_verdict: 0,
            again: None,
        };
        let site = Site { root: &day.root, state_dir };
        let Rest { agent, hub, store, memory, assignment: _ } = rest;
        match resume(&site, store, memory, &mut day.memory, Some(agent), When::Running).await? {
            Resumed::Nothing => {}
            Resumed::Kept(report) => {
                tracing::info!(revision = report.revision, "the change of files and units is in force");
                day.say(report);
            }
            Resumed::PutBack(report) => {
                tracing::warn!(revision = report.revision, phase = ?report.phase, "files and units are as they were");
                day.say(report);
            }
            Resumed::AwaitsReboot(report) | Resumed::AwaitsVerifying(report) => {
                day.boot(agent, hub, store, report).await?;
            }
        }
        Ok(day)
    }

    /// Whether the machine goes down.
    pub fn is_rebooting(&self) -> bool {
        self.rebooting
    }

    /// Takes what the hub asks now.
    pub fn take(&mut self, news: Option<Asked>) {
        let revision = |asked: &Option<Asked>| asked.as_ref().map(|asked| asked.assignment.revision.clone());
        if revision(&self.asked) != revision(&news) {
            self.without_verdict = 0;
        }
        self.asked = news;
    }

    /// Comes back when somebody touched what was applied, or when what had to wait may go on.
    pub async fn touched(&self) {
        let touched = async {
            match &self.watch {
                Some(watch) => watch.changed().await,
                // The clock is enough.
                None => std::future::pending().await,
            }
        };
        tokio::select! { () = touched => {}, () = until(self.again) => {} }
    }

    /// Compares what is with what shall be, and does what follows.
    pub async fn look(&mut self, rest: Rest<'_>) -> Result<(), AgentError> {
        self.again = None;
        let Some(Asked { assignment, wanted, received }) = self.asked.clone().filter(|_| !self.rebooting) else {
            return Ok(());
        };
        // Before the look: what is touched during it is told again.
        self.watch = self.memory.applied.as_ref().and_then(|(_, machine)| Watch::open(&self.root, machine).ok());
        let wanted = match wanted {
            Ok(wanted) => wanted,
            Err(why) => {
                let refused = report(&assignment.revision, MachinePhase::Refused(why), Needs::Nothing, &[]);
                return self.fail(rest.store, refused);
            }
        };
        let (drift, planned) = match self.plan(&rest, &assignment, &wanted).await {
            Ok(planned) => planned,
            // A question to systemd that was not answered is no verdict on anything.
            Err(error) => {
                tracing::warn!(%error, "the machine cannot be compared now");
                return Ok(());
            }
        };
        let told = self.reports.borrow().clone();
        match (decide(&assignment, &planned, &drift, &self.memory, told.as_ref()), planned) {
            (Decision::Say(report), _) => self.say(report),
            (Decision::Refuse(report), _) => self.fail(rest.store, report)?,
            (Decision::Keep(report), planned) => {
                let plan = planned.unwrap_or_default();
                self.memory.pending = Some(plan.pending(&assignment.revision, &wanted));
                confirm(&self.state_dir, rest.store, rest.memory, &mut self.memory)?;
                self.watch = Watch::open(&self.root, &wanted).ok();
                self.say(report);
            }
            (Decision::Do, Ok(plan)) => {
                let lasts = match assignment.permit {
                    Permit::Go(milliseconds) => Duration::from_millis(milliseconds),
                    Permit::Wait(_) => Duration::ZERO,
                };
                // Whoever comes late might be one too many.
                if received.elapsed() < lasts {
                    self.carry_out(rest, &assignment, &wanted, &plan).await?;
                }
            }
            (Decision::Do, Err(_)) => {}
        }
        Ok(())
    }

    /// What differs from what is in force, and what is to be done.
    async fn plan(
        &self,
        rest: &Rest<'_>,
        assignment: &MachineAssignment,
        wanted: &Machine,
    ) -> Result<(Vec<String>, Result<Plan, NoPlan>), AgentError> {
        let (found, change) = plan_files(&self.root, &self.memory, wanted, &assignment.rules).await?;
        if let Some((_, machine)) = self.memory.applied.as_ref().filter(|(it, _)| *it == assignment.revision) {
            return Ok((drifted(machine, &found), Ok(Plan::default())));
        }
        let planned = match change {
            Ok(change) => {
                let in_force = rest.memory.applied.as_ref().map(|applied| &applied.revision);
                let document = rest.assignment.filter(|assignment| in_force == Some(&assignment.revision));
                let documents = document.map(|document| (&document.network, &document.persistent));
                plan_network(rest.agent, change, &rest.memory.ownership, documents).await?
            }
            Err(none) => Err(none),
        };
        Ok((Vec::new(), planned))
    }

    async fn carry_out(
        &mut self,
        rest: Rest<'_>,
        assignment: &MachineAssignment,
        wanted: &Machine,
        plan: &Plan,
    ) -> Result<(), AgentError> {
        let Rest { agent, hub, store, memory, assignment: _ } = rest;
        let revision = &assignment.revision;
        let told = |phase| report(revision, phase, plan.needs(), &plan.lines());
        self.say(told(MachinePhase::Working));
        tracing::info!(revision, changes = ?plan.lines(), "changing files and units");
        self.memory.pending = Some(plan.pending(revision, wanted));
        save(store, &self.memory)?;
        let network = plan.network.as_ref().map(|change| Network {
            agent,
            change,
            proof: &assignment.proof,
            hub: Some(hub_probe(hub)),
        });
        let site = Site { root: &self.root, state_dir: &self.state_dir };
        let ended = execute(&site, &plan.change, revision, network).await?;
        tracing::info!(revision, ?ended, "ended");
        match ended {
            Ended::Applied { took } => {
                confirm(&self.state_dir, store, memory, &mut self.memory)?;
                self.watch = Watch::open(&self.root, wanted).ok();
                self.say(MachineReport { took: milliseconds(took), ..told(MachinePhase::Applied) });
            }
            Ended::Reboot => self.boot(agent, hub, store, told(MachinePhase::Rebooting)).await?,
            Ended::RolledBack { why, took, network } => {
                if network && self.without_verdict < TRIES_WITHOUT_VERDICT && !hub_is_seen_again(hub).await {
                    // The hub is away with the old network too: nothing was learned about the new one.
                    self.without_verdict += 1;
                    self.memory.pending = None;
                    save(store, &self.memory)?;
                    self.say(told(MachinePhase::Planned));
                    return Ok(());
                }
                let said = told(MachinePhase::RolledBack(why));
                self.fail(store, MachineReport { took: milliseconds(took), ..said })?;
            }
            Ended::Refused { why } => self.fail(store, told(MachinePhase::Refused(why)))?,
            Ended::Waits { why } => {
                tracing::info!(revision, why, "waiting");
                self.again = Some(Instant::now() + SOON);
                self.memory.pending = None;
                save(store, &self.memory)?;
                self.say(told(MachinePhase::Planned));
            }
        }
        Ok(())
    }

    /// Tells the hub and boots the machine. How it ends is known after the boot.
    async fn boot(&mut self, agent: &Agent, hub: &Hub, store: &Store, said: MachineReport) -> Result<(), AgentError> {
        self.say(said.clone());
        if !matches!(tokio::time::timeout(LAST_WORDS, hub.report_machine(&said)).await, Ok(Ok(()))) {
            tracing::warn!("the hub does not know that this machine boots");
        }
        let site = Site { root: &self.root, state_dir: &self.state_dir };
        match reboot(&site, Some(agent)).await? {
            Ended::RolledBack { why, .. } => {
                self.fail(store, MachineReport { phase: MachinePhase::RolledBack(why), ..said })
            }
            _ => {
                self.rebooting = true;
                Ok(())
            }
        }
    }

    fn fail(&mut self, store: &Store, said: MachineReport) -> Result<(), AgentError> {
        let failed = Some(said.clone());
        if self.memory.failed != failed || self.memory.pending.is_some() {
            self.memory.failed = failed;
            self.memory.pending = None;
            save(store, &self.memory)?;
        }
        self.say(said);
        Ok(())
    }

    fn say(&self, report: MachineReport) {
        self.reports.send_replace(Some(report));
    }
}

fn milliseconds(duration: Duration) -> Option<u64> {
    u64::try_from(duration.as_millis()).ok()
}
