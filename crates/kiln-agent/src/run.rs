//! `kiln agent run`: what a node does all day. It asks the hub, looks, tries when it may, and tells.
//!
//! ```text
//! hub -- assignment --> look: observe, plan, decide -- try --> attempt -- report --> hub
//!                         ^                                                 ^
//! NetworkManager, kernel -+-- something changed -------- state -------------+
//! ```
//!
//! The same way for files and units, see [`crate::machine::day`].
//!
//! One task looks and acts; the others only carry: assignments from the hub, reports and states to it. When the hub cannot be
//! reached nothing is undone and nothing new is begun. While a change is tried the hub is still asked and told: when it wants
//! something else by then, the try is put back, counts for nothing, and the new wish is planned.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream::BoxStream;
use kiln_core::assignment::{Assignment, Disruption, NodeState, Permit, Phase, Report};
use kiln_core::change::{Change, plan_change};
use kiln_core::machine::MachineReport;
use tokio::sync::{mpsc, watch};

use crate::decide::{Action, decide, report};
use crate::hub::{Hub, HubError, News};
use crate::journal::boot_id;
use crate::machine::day::{self, Day, Rest};
use crate::machine::{Root, drift};
use crate::memory::{Applied, Memory, Store};
use crate::nm::{CallError, told};
use crate::{Agent, AgentError, HubProbe, Outcome, describe_uncounted};

/// How long one question to the hub may stay open.
pub(crate) const LONG_POLL: Duration = Duration::from_secs(30);
/// Events of NetworkManager come in bursts.
const QUIET: Duration = Duration::from_millis(200);
/// A burst is not waited for longer than this.
const LONGEST_BURST: Duration = Duration::from_secs(2);
/// The least time between two states that are published while a change is tried.
const BETWEEN_STATES: Duration = Duration::from_secs(3);
/// How long the hub may take to be seen again after a change was put back, before the change is held innocent.
const SEEN_AGAIN: Duration = Duration::from_secs(8);
/// How often a change that could not be judged is tried again.
pub(crate) const TRIES_WITHOUT_VERDICT: u32 = 3;

/// When a change that had to wait for somebody else is looked at again, at the latest.
pub(crate) const SOON: Duration = Duration::from_secs(2);

/// What the agent is told.
#[derive(Debug)]
pub struct Settings {
    /// Whom to ask.
    pub hub: Hub,
    /// Journal and memory.
    pub state_dir: PathBuf,
    /// Of the program, for people.
    pub version: String,
}

/// Runs until `stop` says so.
pub async fn run(settings: Settings, mut stop: watch::Receiver<bool>) -> Result<(), AgentError> {
    let Settings { hub, state_dir, version } = settings;
    let agent = tokio::select! {
        agent = connect(&state_dir) => agent?,
        _ = stop.wait_for(|stop| *stop) => return Ok(()),
    };
    let (assignments, mut assigned) = watch::channel(None);
    let (reports, to_report) = watch::channel(None);
    let (states, to_publish) = watch::channel(None);
    let (asked, mut machine_assigned) = mpsc::channel(1);
    let (machine_reports, machine_to_report) = watch::channel(None);
    let publisher = Publisher { states, version };
    let mut node =
        Node::begin(agent, hub.clone(), &state_dir, reports, machine_reports, publisher, assigned.clone()).await?;
    node.publish().await;
    let carry = async {
        tokio::join!(
            ask(&hub, assignments),
            day::ask(&hub, asked),
            tell(machine_to_report, async |it: &MachineReport| hub.report_machine(it).await),
            tell(to_report, async |it: &Report| hub.report(it).await),
            tell(to_publish, async |it: &NodeState| hub.publish(it).await)
        );
    };
    let mut clock = tokio::time::interval(drift::LOOK);
    let work = async {
        loop {
            tokio::select! {
                Ok(()) = assigned.changed() => {
                    let news = assigned.borrow_and_update().clone();
                    node.take(news).await?;
                }
                Some(news) = machine_assigned.recv() => {
                    node.day.take(news);
                    node.look_at_machine().await?;
                }
                () = until(node.again) => node.look().await?,
                () = node.day.touched() => node.look_at_machine().await?,
                _ = clock.tick() => node.look_at_machine().await?,
                change = node.changes.next() => {
                    // Deaf, it would take every drift for none. Started anew, it hears again.
                    if change.is_none() {
                        return Err(told("its signals", CallError::Ended));
                    }
                    until_quiet(&mut node.changes).await;
                    node.look().await?;
                    node.publish().await;
                }
            }
        }
    };
    tokio::select! {
        () = carry => Ok(()),
        ended = work => ended,
        _ = stop.wait_for(|stop| *stop) => Ok(()),
    }
}

/// The rest of a burst.
async fn until_quiet(changes: &mut Changes) {
    let deadline = tokio::time::Instant::now() + LONGEST_BURST;
    while let Ok(Some(())) = tokio::time::timeout(QUIET, changes.next()).await {
        if tokio::time::Instant::now() > deadline {
            break;
        }
    }
}

/// NetworkManager may come up after the agent.
async fn connect(state_dir: &std::path::Path) -> Result<Agent, AgentError> {
    const TRIES: u32 = 60;
    for _ in 0..TRIES {
        match Agent::connect(state_dir).await {
            Ok(agent) if agent.network_manager_version().await.is_ok() => return Ok(agent),
            _ => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    }
    Agent::connect(state_dir).await
}

/// Asks for assignments for ever.
async fn ask(hub: &Hub, assignments: watch::Sender<Wish>) {
    let mut known: Option<String> = None;
    let mut pause = Pause::default();
    loop {
        let news = hub.assignment(known.as_deref(), LONG_POLL).await;
        match news {
            Ok(News::Assignment(assignment, tag)) => {
                pause = Pause::default();
                known = Some(tag);
                assignments.send_replace(Some((Arc::from(assignment), Instant::now())));
            }
            Ok(News::Unchanged) => pause = Pause::default(),
            Ok(News::Nothing) => {
                known = None;
                assignments.send_replace(None);
                tokio::time::sleep(Pause::LONGEST).await;
            }
            Err(error) => pause.after(&error).await,
        }
    }
}

/// Tells the newest value until the hub has it.
async fn tell<T: Clone + PartialEq>(
    mut values: watch::Receiver<Option<T>>,
    send: impl AsyncFn(&T) -> Result<(), HubError>,
) {
    let mut told: Option<T> = None;
    let mut pause = Pause::default();
    loop {
        let value = values.borrow_and_update().clone();
        if let Some(value) = value.filter(|value| told.as_ref() != Some(value)) {
            match send(&value).await {
                Ok(()) => {
                    told = Some(value);
                    pause = Pause::default();
                }
                // What the hub does not want is not told again; what it had no time for is.
                Err(error @ HubError::Refused { status, .. })
                    if status.is_client_error() && !matches!(status.as_u16(), 408 | 429) =>
                {
                    tracing::warn!(%error, "the hub does not take what it is told");
                    told = Some(value);
                }
                Err(error) => {
                    tokio::select! { () = pause.after(&error) => {}, _ = values.changed() => {} }
                    continue;
                }
            }
        }
        if values.changed().await.is_err() {
            return;
        }
    }
}

/// Waits longer each time, and says why the first time.
#[derive(Default)]
pub(crate) struct Pause(u32);

impl Pause {
    pub(crate) const LONGEST: Duration = Duration::from_secs(5);

    pub(crate) async fn after(&mut self, error: &HubError) {
        if self.0 == 0 {
            tracing::warn!(%error, "asking the hub again and again");
        }
        let pause = Duration::from_millis(200 << self.0.min(5)).min(Self::LONGEST);
        self.0 += 1;
        tokio::time::sleep(pause).await;
    }
}

/// What the hub asks, and since when that is known.
type Wish = Option<(Arc<Assignment>, Instant)>;

/// Something about the network changed, perhaps.
type Changes = BoxStream<'static, ()>;

/// Where the network as it is goes.
struct Publisher {
    states: watch::Sender<Option<NodeState>>,
    version: String,
}

/// The node, with what it was told last.
struct Node {
    agent: Agent,
    hub: Hub,
    store: Store,
    memory: Memory,
    boot: String,
    /// What is being worked on.
    assignment: Wish,
    /// What the hub wants by now.
    newest: watch::Receiver<Wish>,
    changes: Changes,
    publisher: Publisher,
    reports: watch::Sender<Option<Report>>,
    /// Tries of the revision that ended without a verdict.
    without_verdict: u32,
    /// When a change that had to wait for somebody is looked at again.
    again: Option<Instant>,
    /// Files and units.
    day: Day,
}

impl Node {
    async fn begin(
        agent: Agent,
        hub: Hub,
        state_dir: &std::path::Path,
        reports: watch::Sender<Option<Report>>,
        machine_reports: watch::Sender<Option<MachineReport>>,
        publisher: Publisher,
        newest: watch::Receiver<Wish>,
    ) -> Result<Node, AgentError> {
        let put_back = agent.recover().await?;
        if put_back.is_some() {
            tracing::warn!("an earlier agent died in a try; the network it had before is back");
        }
        let failed = |doing| {
            let path = state_dir.to_owned();
            move |source| AgentError::File { doing, path, source }
        };
        let store = Store::open(state_dir).map_err(failed("make"))?;
        let mut memory = store.load().map_err(failed("read the memory in"))?.settle(put_back.is_some());
        store.save(&memory).map_err(failed("write the memory in"))?;
        let boot = boot_id()?;
        let rest = Rest { agent: &agent, hub: &hub, store: &store, memory: &mut memory, assignment: None };
        let day = Day::begin(Root::machine(), state_dir, rest, machine_reports).await?;
        let changes = agent.changes().await?.boxed();
        Ok(Node {
            agent,
            hub,
            store,
            memory,
            boot,
            assignment: None,
            newest,
            changes,
            publisher,
            reports,
            without_verdict: 0,
            again: None,
            day,
        })
    }

    async fn take(&mut self, news: Wish) -> Result<(), AgentError> {
        let revision = |it: &Wish| it.as_ref().map(|(it, _)| it.revision.clone());
        if revision(&self.assignment) != revision(&news) {
            self.without_verdict = 0;
        }
        self.assignment = news;
        self.look().await?;
        // Profiles beneath a policy wait for what the policy asks.
        self.look_at_machine().await
    }

    async fn look_at_machine(&mut self) -> Result<(), AgentError> {
        let Node { agent, hub, store, memory, assignment, day, .. } = self;
        let assignment = assignment.as_ref().map(|(assignment, _)| &**assignment);
        day.look(Rest { agent, hub, store, memory, assignment }).await
    }

    /// Compares what is with what shall be, and does what follows.
    async fn look(&mut self) -> Result<(), AgentError> {
        self.again = None;
        let Some((assignment, received)) = self.assignment.clone().filter(|_| !self.day.is_rebooting()) else {
            return Ok(());
        };
        let observed = self.agent.observe().await?;
        let planned = plan_change(&observed, &self.memory.ownership, &assignment.network, &assignment.persistent);
        match (decide(&assignment, &planned, &self.memory, &self.boot), planned) {
            (Action::Say(report), _) => self.say(report),
            (Action::Remember(memory, report), _) => {
                self.remember(*memory)?;
                self.say(report);
            }
            (Action::Try, Ok(change)) => {
                let lasts = match assignment.permit {
                    Permit::Go(milliseconds) => Duration::from_millis(milliseconds),
                    Permit::Wait(_) => Duration::ZERO,
                };
                // Whoever comes late might be one too many.
                if received.elapsed() < lasts {
                    self.attempt(&assignment, &change).await?;
                }
            }
            (Action::Try, Err(_)) => {}
        }
        Ok(())
    }

    async fn attempt(&mut self, assignment: &Assignment, change: &Change) -> Result<(), AgentError> {
        let revision = &assignment.revision;
        if let Some(why) = self.agent.waits_for().await? {
            return self.wait(revision, change, &why);
        }
        if newer(&self.newest.borrow(), revision).is_some() {
            return Ok(());
        }
        self.say(report(revision, Phase::Trying, change.disruption, &change.lines));
        self.remember(Memory { pending: Some(change.ownership.clone()), ..self.memory.clone() })?;
        tracing::info!(revision, changes = ?change.lines, "trying");
        let probe = Some(hub_probe(&self.hub));
        let superseded = superseded(self.newest.clone(), revision);
        let outcome = tokio::select! {
            outcome = self.agent.attempt_unless(change, &assignment.proof, revision, probe, superseded) => outcome?,
            never = publish_meanwhile(&self.agent, &mut self.changes, &self.publisher, &self.memory) => match never {},
        };
        tracing::info!(revision, ?outcome, "ended");
        let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).ok();
        let disruption = change.disruption;
        match outcome {
            Outcome::Applied { took, outage, uncounted } => {
                let applied = Applied { revision: revision.clone(), boot: self.boot.clone(), adopted: Vec::new() };
                let ownership = change.ownership.clone();
                self.remember(Memory { applied: Some(applied), ownership, ..Memory::default() })?;
                let said = report(revision, Phase::Applied, disruption, &with_uncounted(change, &uncounted));
                self.say(Report { took: milliseconds(took), outage: milliseconds(outage), ..said });
            }
            Outcome::RolledBack { why, took, outage, uncounted } => {
                if !hub_is_seen_again(&self.hub).await && self.without_verdict < TRIES_WITHOUT_VERDICT {
                    // The hub is away with the old network too: nothing was learned about the new one.
                    self.without_verdict += 1;
                    self.remember(Memory { pending: None, ..self.memory.clone() })?;
                    self.say(report(revision, Phase::Planned, disruption, &change.lines));
                    return Ok(());
                }
                let said = report(revision, Phase::RolledBack(why), disruption, &with_uncounted(change, &uncounted));
                self.fail(Report { took: milliseconds(took), outage: milliseconds(outage), ..said })?;
            }
            Outcome::Refused { why } => {
                self.fail(report(revision, Phase::Refused(why), Disruption::None, &change.lines))?
            }
            Outcome::Waits { why } => self.wait(revision, change, &why)?,
            // The hub ends the slot when it hears of what it wants instead.
            Outcome::Abandoned { .. } => self.remember(Memory { pending: None, ..self.memory.clone() })?,
        }
        self.publish().await;
        Ok(())
    }

    /// Somebody else is at work: nothing was touched, nothing was learned. What they leave is planned for anew.
    fn wait(&mut self, revision: &str, change: &Change, why: &str) -> Result<(), AgentError> {
        tracing::info!(revision, why, "waiting");
        self.again = Some(Instant::now() + SOON);
        if self.memory.pending.is_some() {
            self.remember(Memory { pending: None, ..self.memory.clone() })?;
        }
        self.say(report(revision, Phase::Planned, change.disruption, &change.lines));
        Ok(())
    }

    fn fail(&mut self, said: Report) -> Result<(), AgentError> {
        self.remember(Memory { pending: None, failed: Some(said.clone()), ..self.memory.clone() })?;
        self.say(said);
        Ok(())
    }

    fn remember(&mut self, memory: Memory) -> Result<(), AgentError> {
        self.store.save(&memory).map_err(|source| AgentError::File {
            doing: "write the memory in",
            path: self.store.folder().to_owned(),
            source,
        })?;
        self.memory = memory;
        Ok(())
    }

    fn say(&self, report: Report) {
        self.reports.send_replace(Some(report));
    }

    async fn publish(&self) {
        publish(&self.agent, &self.publisher, &self.memory).await;
    }
}

/// Publishes the network as it is. A state that cannot be read is not published, and said.
async fn publish(agent: &Agent, publisher: &Publisher, memory: &Memory) {
    let state = async {
        Ok::<_, AgentError>(NodeState {
            current: agent.observe_full().await?,
            network_manager_version: agent.network_manager_version().await?,
            agent_version: publisher.version.clone(),
            applied: memory.applied.as_ref().map(|applied| applied.revision.clone()),
        })
    };
    match state.await {
        Ok(state) => drop(publisher.states.send_replace(Some(state))),
        Err(error) => tracing::warn!(%error, "the network cannot be read"),
    }
}

/// The same while a change is tried, now and then: the look takes processor time that the probes want.
async fn publish_meanwhile(
    agent: &Agent,
    changes: &mut Changes,
    publisher: &Publisher,
    memory: &Memory,
) -> std::convert::Infallible {
    while changes.next().await.is_some() {
        tokio::time::sleep(BETWEEN_STATES).await;
        until_quiet(changes).await;
        publish(agent, publisher, memory).await;
    }
    std::future::pending().await
}

/// The revision the hub wants instead of this one.
fn newer<'w>(wish: &'w Wish, revision: &str) -> Option<&'w str> {
    wish.as_ref().map(|(assignment, _)| assignment.revision.as_str()).filter(|newest| *newest != revision)
}

/// Comes back when the hub wants another revision than this one, with a line about it.
async fn superseded(mut newest: watch::Receiver<Wish>, revision: &str) -> String {
    match newest.wait_for(|wish| newer(wish, revision).is_some()).await {
        Ok(wish) => format!("the hub asks for {} instead", newer(&wish, revision).unwrap_or_default()),
        // Nobody asks any more: the run ends.
        Err(_) => std::future::pending().await,
    }
}

/// What changes, and what did not prove it.
fn with_uncounted(change: &Change, uncounted: &[String]) -> Vec<String> {
    // First: of a long change only the beginning is told.
    describe_uncounted(uncounted).into_iter().chain(change.lines.iter().cloned()).collect()
}

/// Comes back at this time; never without one.
pub(crate) async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

/// Whether the hub sees the node, or reaches a port of it, on a new connection.
pub(crate) fn hub_probe(hub: &Hub) -> HubProbe {
    let hub = hub.clone();
    Arc::new(move |port| {
        let hub = hub.clone();
        Box::pin(async move {
            match port {
                None => hub.sees_node().await.is_ok(),
                Some(port) => hub.reaches_node(port).await.is_ok(),
            }
        })
    })
}

/// Whether the hub is there with the old network.
pub(crate) async fn hub_is_seen_again(hub: &Hub) -> bool {
    let seen = async {
        while hub.sees_node().await.is_err() {
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    };
    tokio::time::timeout(SEEN_AGAIN, seen).await.is_ok()
}
