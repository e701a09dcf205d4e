//! The dialect controllers: upstream kinds become Kiln's objects, and every status says what is known.
//!
//! ```text
//! watches (one per kind) -> cache -> summarize -> plan_objects, plan_status -> execute
//!                             ^                                                  |
//!                             +-------------------- the API ---------------------+
//! ```
//!
//! Rules look at many objects at once, so there is one controller for all kinds instead of one per object: changes are
//! gathered for a moment, then the whole world is judged once. A change of a status alone does not wake the rules.
//! Looking (judging, and comparing with what there is) never takes more than a fifth of the time, however many objects there
//! are and however fast they change, and happens on a thread where nobody waits for it. What follows is written
//! few at a time: people who write come first.
//!
//! The same code runs over the embedded API without a socket ([`in_process`]) and over any other. Everything is decided
//! by pure functions from what the watches saw; a change that fails is planned again from the next look.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use kiln_apiserver::identity::{ADMINISTRATORS, Identity};
use kiln_apiserver::{Server, router};
use kiln_core::provision::Inputs;
use kube::Client;
use tokio::sync::{Notify, watch};
use tower::ServiceExt;

use super::approval::{self, Approver};
use super::following::Following;
use super::lease::{Contender, Terms};
use super::machines;
use super::mirror::{StatusPatch, host_errors, plan_status};
use super::network;
use super::pools::report::PoolReports;
use super::pools::{self, Desk, Settings};
use super::timeline::now;
use cache::{Cache, Change};
use execute::{execute_objects, execute_with_findings};
use figures::Figures;
use looking::look;
use plan_objects::{ObjectChange, plan_objects};
use summary::{Summary, summarize};

pub mod cache;
pub mod difference;
pub(super) mod execute;
pub mod figures;
pub mod kinds;
pub(super) mod looking;
pub mod observe;
pub mod plan_objects;
pub mod summary;
mod watching;

/// How patient the controllers are.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Changes are gathered until none came for so long.
    pub quiet: Duration,
    /// But not longer than this, nor than the looks at a large world would be apart anyway.
    pub longest: Duration,
    /// How long to wait before trying again what failed; doubled each time up to thirty seconds.
    pub retry: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { quiet: Duration::from_millis(50), longest: Duration::from_secs(1), retry: Duration::from_millis(500) }
    }
}

/// The longest wait before something that failed is tried again.
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// Looking takes at most one part in so many of the time.
const SHARE: u32 = 5;
/// What judging takes per object, roughly.
const EACH: Duration = Duration::from_micros(100);

/// What the watches and the controller share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    state: Mutex<State>,
    changed: Notify,
    /// What the controller of pools leaves here, and finds.
    pub(crate) desk: Desk,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// What the watches have seen.
    pub(crate) cache: Cache,
    /// Kinds whose first list is not complete.
    unread: usize,
    /// What changed since the last look.
    pending: Option<Change>,
    /// When the first change since then came, and the last one.
    since: Option<(Instant, Instant)>,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A watch that panicked has not left half an object: every change is one call.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a watch change the cache.
    fn update(&self, change: impl FnOnce(&mut Cache) -> Change) {
        let mut state = self.lock();
        let changed = change(&mut state.cache);
        if changed != Change::Nothing {
            state.pending = state.pending.max(Some(changed));
            let present = Instant::now();
            state.since = Some((state.since.map_or(present, |(first, _)| first), present));
            self.changed.notify_one();
        }
    }

    /// What changed, when it is time to look; or how long to wait for that, if anything changed at all.
    fn due(&self, pace: Pace) -> Result<Change, Option<Duration>> {
        let mut state = self.lock();
        let pending = state.pending.filter(|_| state.unread == 0).ok_or(None)?;
        if let Some((first, last)) = state.since {
            let quiet = pace.quiet.saturating_sub(last.elapsed());
            // A look in the middle of a flood would only put off the one that sees all of it.
            let objects = u32::try_from(state.cache.world.len()).unwrap_or(u32::MAX);
            let longest = pace.longest.max(EACH.saturating_mul(objects).saturating_mul(SHARE - 1));
            let rest = quiet.min(longest.saturating_sub(first.elapsed()));
            if !rest.is_zero() {
                return Err(Some(rest));
            }
        }
        (state.pending, state.since) = (None, None);
        Ok(pending)
    }

    /// Asks for another look although no watch saw a change.
    pub(crate) fn look_again(&self, change: Change) {
        let mut state = self.lock();
        state.pending = state.pending.max(Some(change));
        self.changed.notify_one();
    }

    /// Takes what is to be said about pools.
    pub(crate) fn tell_reports(&self, reports: PoolReports) {
        let mut state = self.lock();
        if state.cache.pools != reports {
            state.cache.pools = reports;
            state.pending = state.pending.max(Some(Change::Status));
            self.changed.notify_one();
        }
    }

    fn first_list_is_read(&self) {
        let mut state = self.lock();
        state.unread = state.unread.saturating_sub(1);
        if state.unread == 0 {
            state.pending = Some(Change::World);
        }
        self.changed.notify_one();
    }
}

/// A client that calls the embedded API in this process, as the controllers' own identity.
pub fn in_process(router: Router, user: &str) -> Client {
    let identity = Identity::member(user, ADMINISTRATORS);
    let service = tower::service_fn(move |mut request: axum::http::Request<kube::client::Body>| {
        request.extensions_mut().insert(identity.clone());
        router.clone().oneshot(request)
    });
    Client::new(service, "default")
}

/// Runs the controllers over the embedded API until it stops, and the watches of others with theirs.
pub async fn run_embedded(server: Arc<Server>, settings: Settings, following: Following) {
    let client = in_process(router(Arc::clone(&server)), "system:kiln:controllers");
    let figures = Arc::new(Figures::default());
    let (network, machines) = (Arc::clone(&figures.network), Arc::clone(&figures.machines));
    server.add_figures(move || network.render() + &machines.render());
    run_telling(client, Pace::default(), settings, server.stopping(), figures, following).await;
}

/// The Lease by which replicas elect their leader, in the namespace the client works in.
pub const LEASE: &str = "kiln-controllers";

/// Runs the controllers over a real API server for as long as this replica leads.
pub async fn run_elected(
    client: Client,
    identity: &str,
    settings: Settings,
    stop: watch::Receiver<bool>,
    figures: Arc<Figures>,
) {
    let namespace = client.default_namespace().to_owned();
    let contender = Contender::new(client.clone(), &namespace, LEASE, identity, Terms::default());
    let lead = || async {
        let _reign = Reign::begin(&figures);
        let approver = Approver { endpoint: settings.endpoint.clone(), ..Approver::new(client.clone()) };
        let (following, told) = (approver.following(), Arc::clone(&figures));
        let certificates = approval::run(approver, stop.clone());
        let controllers = run_telling(client.clone(), Pace::default(), settings.clone(), stop.clone(), told, following);
        futures::future::join(controllers, certificates).await;
    };
    contender.run(stop.clone(), lead).await;
}

/// Leading, until it is dropped: leadership ends by dropping what leads.
struct Reign<'a>(&'a Figures);

impl Reign<'_> {
    fn begin(figures: &Figures) -> Reign<'_> {
        figures.set_leading(true);
        Reign(figures)
    }
}

impl Drop for Reign<'_> {
    fn drop(&mut self) {
        self.0.set_leading(false);
    }
}

/// Runs the controllers until they are told to stop, on a hub that nodes do not reach.
pub async fn run(client: Client, pace: Pace, stop: watch::Receiver<bool>) {
    run_with(client, pace, Settings::default(), stop).await;
}

/// Runs the controllers until they are told to stop.
pub async fn run_with(client: Client, pace: Pace, settings: Settings, stop: watch::Receiver<bool>) {
    run_telling(client, pace, settings, stop, Arc::default(), Following::default()).await;
}

/// The same, telling `figures` what there is to tell, and following what others want as well.
async fn run_telling(
    client: Client,
    pace: Pace,
    settings: Settings,
    stop: watch::Receiver<bool>,
    figures: Arc<Figures>,
    mut following: Following,
) {
    let shared = Arc::new(Shared::default());
    watching::follow(&mut following, &shared, &figures);
    pools::held::follow(&mut following, &shared);
    let seen = Arc::new(network::seen::Shared::default());
    network::seen::follow(&mut following, &seen, client.default_namespace());
    let mut stopping = stop;
    let clock = Arc::clone(&settings.clock);
    let networks = network::run(client.clone(), Arc::clone(&seen), clock, Arc::clone(&figures.network));
    let told = Arc::clone(&figures.machines);
    let running = machines::run(client.clone(), Arc::clone(&shared), seen, settings.clone(), told);
    tokio::select! {
        () = control(&client, pace, &shared) => {}
        () = networks => {}
        () = running => {}
        () = pools::run(client.clone(), Arc::clone(&shared), settings) => {}
        () = following.run(client.clone()) => {}
        _ = stopping.wait_for(|stop| *stop) => {}
    }
}

async fn control(client: &Client, pace: Pace, shared: &Arc<Shared>) {
    let mut summary = Arc::new(Summary::default());
    let mut failures = 0_u32;
    loop {
        let change = match shared.due(pace) {
            Ok(change) => change,
            Err(Some(rest)) => {
                tokio::time::sleep(rest).await;
                continue;
            }
            // A change that came in between has left its mark: the next wait ends at once.
            Err(None) => {
                shared.changed.notified().await;
                continue;
            }
        };
        let began = Instant::now();
        if change == Change::World {
            match observe_world(shared).await {
                Some(new) => summary = Arc::new(new),
                None => continue,
            }
        }
        let judged = began.elapsed();
        shared.desk.tell_looked();
        let Some((objects, statuses)) = plan(shared, &summary).await else { continue };
        let looked = began.elapsed();
        let planned = (objects.len(), statuses.len());
        let made = execute_objects(client, objects).await;
        let (written, without) = execute_with_findings(client, statuses).await;
        for kind in without.into_iter().filter(|kind| shared.lock().cache.without_findings.insert(kind)) {
            tracing::info!(
                kind,
                "the definition of this kind has no room for conditions: findings are not written to it"
            );
        }
        if planned != (0, 0) {
            tracing::debug!(?judged, took = ?began.elapsed(), ?made, ?written, "looked at the world");
        }
        if made.failed + made.outdated + written.failed + written.outdated > 0 {
            failures += 1;
            let wait = (pace.retry * 2_u32.saturating_pow(failures.min(16) - 1)).min(LONGEST_RETRY);
            tokio::time::sleep(wait).await;
            let mut state = shared.lock();
            state.pending = state.pending.max(Some(Change::Status));
        } else {
            failures = 0;
        }
        // However fast things change, most of the time is left to others.
        tokio::time::sleep(looked * (SHARE - 1)).await;
    }
}

/// Judges the world where nobody waits for it: watches and requests go on.
async fn observe_world(shared: &Arc<Shared>) -> Option<Summary> {
    let (world, foreign, unjudged) = {
        let mut state = shared.lock();
        let unjudged = std::mem::take(&mut state.cache.unjudged);
        (state.cache.world.clone(), pools::foreign_pools(&state.cache), unjudged)
    };
    let pools::LookInputs { bases, stored, previous } = shared.desk.look_inputs();
    let judged = look(move || {
        let inputs = Inputs { bases: &bases, stored: &stored, previous: &previous, foreign: &foreign };
        let made = {
            let (judged, mut provision) = world.judge_with(inputs);
            let summary = summarize(&judged);
            provision.errors = host_errors(&summary);
            (summary, provision)
        };
        // What stays was made among ten times as much that goes, a little of it on each of many pages of memory. A copy
        // that is made now lies on a few: 7 MB less with ten thousand hosts.
        made.clone()
    });
    let Some((summary, provision)) = judged.await else {
        tracing::error!("the rules did not end; the next change tries again");
        shared.lock().cache.unjudged.extend(unjudged);
        return None;
    };
    shared.desk.put_provision(provision);
    Some(summary)
}

/// Compares what should be with what there is, there as well and with a picture of the cache.
async fn plan(shared: &Arc<Shared>, summary: &Arc<Summary>) -> Option<(Vec<ObjectChange>, Vec<StatusPatch>)> {
    let (cache, summary) = (shared.lock().cache.clone(), Arc::clone(summary));
    let planned = look(move || (plan_objects(&summary, &cache), plan_status(&summary, &cache, now())));
    let planned = planned.await;
    if planned.is_none() {
        tracing::error!("nothing was planned; the next change tries again");
    }
    planned
}
