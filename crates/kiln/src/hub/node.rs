//! What machines ask the hub for before they are nodes, `/ignition` and `/config/POOL`, what they tell it, `/beacon`, and what
//! the agents on running nodes ask and tell: `/agent/v1/network`, `/agent/v1/machine`.
//!
//! ```text
//! Secrets of the API -> watch -> table -> fetch: recognise, judge, compose, use up -> bytes
//!                                           |
//!                                           +-> status.provision and timeline of the Host
//! ```
//!
//! [`NodeEndpoint`] keeps everything it needs in memory and every decision in the API: any number of replicas serve the
//! same, and a restart costs a list. [`node_router`] is all of it as a router, for a listener of its own; [`beside`]
//! puts it in front of the embedded API. Requests without a token that is known write nothing, anywhere.
//!
//! | module | what it does |
//! |---|---|
//! | [`table`] | what is known, from Secrets |
//! | [`prepared`] | a payload as bytes, with a gap for a host's files |
//! | [`fetch`] | one fetch |
//! | [`paths`] | paths, headers and status codes |
//! | [`beacon`] | what a machine says about its boot |
//! | [`agent`] | what a running node's network shall be, and what became of it |
//! | [`machine`] | the same for its files and units |
//! | [`witness`] | what is written to Hosts and tokens |
//! | [`listener`] | TLS |

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use kiln_apiserver::health::CheckResult;
use kiln_apiserver::rate_limit::{Rate, RateLimiter, source_key};
use kiln_core::boot_token::{RETRY_SECONDS, TokenHash};
use kiln_core::ignition::SpecVersion;
use kiln_core::timeline::Moment;
use kube::Client;
use tokio::sync::{Semaphore, mpsc, watch};

use super::pools::Endpoint;
use super::timeline::now;
use agent::Agents;
use beacon::Beacons;
use fetch::Denied;
use figures::{Figures, Outcome};
use prepared::Unusable;
use table::{Overlay, Payload, Table};
use witness::Testimony;

pub mod agent;
pub mod beacon;
mod body;
pub mod fetch;
pub mod figures;
pub mod listener;
pub mod machine;
pub mod paths;
pub mod prepared;
pub mod table;
mod watching;
pub mod witness;

pub use paths::{beside, node_router};

/// How much machines may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeLimits {
    /// Requests of a source that shows no good token.
    pub strangers: Rate,
    /// Requests with one host's token.
    pub host_token: Rate,
    /// Requests of a source with tokens of pools: many machines may stand behind one address.
    pub pool_tokens: Rate,
    /// Reports of one host about its boot.
    pub reports: Rate,
    /// Requests of one host's agent.
    pub agents: Rate,
    /// Bytes of composed configs that are kept for a retry.
    pub composed_bytes: usize,
    /// Configs that are composed the slow way at a time.
    pub composing: usize,
}

impl Default for NodeLimits {
    fn default() -> Self {
        NodeLimits {
            strangers: Rate { per_second: 20, burst: 100 },
            host_token: Rate { per_second: 5, burst: 50 },
            pool_tokens: Rate { per_second: 10_000, burst: 20_000 },
            reports: Rate { per_second: 1, burst: 20 },
            // An agent that proves a change asks ten times a second, and for each port that the hub must reach twice.
            agents: Rate { per_second: 30, burst: 100 },
            composed_bytes: 32 << 20,
            composing: 2,
        }
    }
}

/// At most so many alarms about one token are written; the same alarm is written once anyway.
const ALARMS: Rate = Rate { per_second: 1, burst: 3 };
/// How long the last writes may take at the end.
const LAST_WRITES: Duration = Duration::from_secs(3);
/// When nothing came for so long at the end, nothing more comes.
const QUIET: Duration = Duration::from_millis(300);

/// The node endpoints of one replica.
pub struct NodeEndpoint {
    client: Client,
    table: RwLock<Table>,
    figures: Figures,
    loaded: AtomicBool,
    strangers: RateLimiter,
    host_tokens: RateLimiter,
    pool_tokens: RateLimiter,
    alarms: RateLimiter,
    beacons: Beacons,
    agents: Agents,
    composing: Semaphore,
    composed: Mutex<Composed>,
    tell: mpsc::Sender<Testimony>,
    told: Mutex<Option<mpsc::Receiver<Testimony>>>,
}

impl std::fmt::Debug for NodeEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Nothing of what it holds: payloads are full of secrets.
        f.debug_struct("NodeEndpoint").field("counts", &self.table().counts()).finish_non_exhaustive()
    }
}

/// Configs that were composed the slow way, oldest first.
struct Composed {
    most: usize,
    held: usize,
    bodies: VecDeque<(ComposedKey, Bytes)>,
}

/// Of which payload and which overlay, in which version.
type ComposedKey = (String, String, SpecVersion);

impl NodeEndpoint {
    /// Endpoints over an API; they know nothing until [`NodeEndpoint::run`] runs.
    pub fn new(client: Client, limits: NodeLimits) -> Arc<NodeEndpoint> {
        let (tell, told) = mpsc::channel(witness::QUEUE);
        Arc::new(NodeEndpoint {
            client,
            table: RwLock::default(),
            figures: Figures::default(),
            loaded: AtomicBool::new(false),
            strangers: RateLimiter::new(limits.strangers),
            host_tokens: RateLimiter::new(limits.host_token),
            pool_tokens: RateLimiter::new(limits.pool_tokens),
            alarms: RateLimiter::new(ALARMS),
            beacons: Beacons::new(limits.reports, limits.strangers),
            agents: Agents::new(limits.agents, limits.strangers),
            composing: Semaphore::new(limits.composing.max(1)),
            composed: Mutex::new(Composed { most: limits.composed_bytes, held: 0, bodies: VecDeque::new() }),
            tell,
            told: Mutex::new(Some(told)),
        })
    }

    /// Where machines reach the hub: hosts that fetch from now on are told where to report.
    pub fn reached_at(&self, address: Endpoint) {
        self.beacons.reached_at(address);
    }

    /// Follows the API and writes down what happened, until it is told to stop; then what is still to be written is.
    pub async fn run(self: Arc<NodeEndpoint>, mut stop: watch::Receiver<bool>) {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(told) = told else { return tracing::error!("the node endpoints run already") };
        let writing = tokio::spawn(witness::write_testimonies(Arc::clone(&self), told));
        tokio::select! {
            () = watching::observe_secrets(Arc::clone(&self)) => tracing::error!("the watch of the node endpoints ended"),
            () = beacon::key::keep(&self.client, &self.beacons) => {}
            () = agent::table::observe(Arc::clone(&self)) => tracing::error!("a watch for agents ended"),
            _ = stop.wait_for(|stop| *stop) => {}
        }
        self.agents.end();
        let deadline = Instant::now() + LAST_WRITES;
        let mut quiet = Instant::now();
        while Instant::now() < deadline && quiet.elapsed() < QUIET {
            if self.tell.capacity() < witness::QUEUE {
                quiet = Instant::now();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        writing.abort();
    }

    /// Whether everything that can be served is loaded. A payload that nobody can serve does not count: it would take
    /// every replica from all other pools.
    pub fn check(&self) -> CheckResult {
        match self.loaded.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err("the payloads are not loaded yet".into()),
        }
    }

    /// Figures for Prometheus.
    pub fn render_figures(&self) -> String {
        let counts = self.table().counts();
        let reports = &self.beacons.outcomes;
        self.figures.render(counts, self.check().is_ok())
            + &reports.render("kiln_beacon_reports_total", "Reports of machines about their boot by outcome.")
            + &self.agents.render()
    }

    /// Whether there is a key for the tokens that hosts report with.
    pub fn makes_beacon_tokens(&self) -> bool {
        self.beacons.key().is_some()
    }

    /// How often reports ended like this.
    pub fn reports(&self, outcome: beacon::outcome::Outcome) -> u64 {
        self.beacons.outcomes.of(outcome.name())
    }

    /// How often something happened.
    pub fn counted(&self, outcome: Outcome) -> u64 {
        self.figures.of(outcome)
    }

    fn table(&self) -> RwLockReadGuard<'_, Table> {
        // Every change is one call that leaves the table whole.
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn table_mut(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first list is complete. Uses that a crash may have kept from their Hosts are told again.
    async fn first_list_is_read(&self) {
        if self.loaded.swap(true, Ordering::AcqRel) {
            return;
        }
        tracing::info!(counts = ?self.table().counts(), "the node endpoints are ready");
        let recent = self.table().used_since(Moment(now().0.saturating_sub(RETRY_SECONDS)));
        for token in recent {
            if let Some(first) = token.record.used {
                self.tell(Testimony::Fetched(token, first)).await;
            }
        }
    }

    /// Waits for room in the queue.
    async fn tell(&self, testimony: Testimony) {
        if self.tell.send(testimony).await.is_err() {
            self.figures.witness_failed();
        }
    }

    /// For what a flood may bring.
    fn try_tell(&self, testimony: Testimony) {
        if self.tell.try_send(testimony).is_err() {
            self.figures.witness_failed();
        }
    }

    /// What somebody without a good token gets: the outcome, or to be told to slow down.
    fn stranger(&self, source: IpAddr, outcome: Outcome) -> Denied {
        match self.strangers.take(&source_key(source), Instant::now()) {
            Ok(()) => outcome.into(),
            Err(wait) => too_fast(wait),
        }
    }

    fn pace_host(&self, hash: &TokenHash) -> Result<(), Denied> {
        self.host_tokens.take(&hash.to_string(), Instant::now()).map_err(too_fast)
    }

    fn pace_pool(&self, source: IpAddr) -> Result<(), Denied> {
        self.pool_tokens.take(&source_key(source), Instant::now()).map_err(too_fast)
    }

    fn may_alarm(&self, hash: &TokenHash, now: Instant) -> bool {
        self.alarms.take(&hash.to_string(), now).is_ok()
    }

    /// A config that cannot be put together from prepared parts.
    async fn composed(
        &self,
        payload: &Arc<Payload>,
        overlay: &Arc<Overlay>,
        version: SpecVersion,
    ) -> Result<Bytes, Unusable> {
        let key = (payload.id.clone(), overlay.id.clone(), version);
        if let Some(body) = self.lock_composed().get(&key) {
            return Ok(body);
        }
        let _one_of_few = self.composing.acquire().await;
        if let Some(body) = self.lock_composed().get(&key) {
            return Ok(body);
        }
        let (payload, overlay) = (Arc::clone(payload), Arc::clone(overlay));
        let compose = move || fetch::compose_slowly(&payload, &overlay, version);
        let body = tokio::task::spawn_blocking(compose).await.unwrap_or(Err(Unusable::Unpack))?;
        self.lock_composed().put(key, body.clone());
        Ok(body)
    }

    fn lock_composed(&self) -> std::sync::MutexGuard<'_, Composed> {
        self.composed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Composed {
    /// Without ids nothing says that it is the same.
    fn get(&self, key: &ComposedKey) -> Option<Bytes> {
        let known = !key.0.is_empty() && !key.1.is_empty();
        self.bodies.iter().find(|(held, _)| known && held == key).map(|(_, body)| body.clone())
    }

    fn put(&mut self, key: ComposedKey, body: Bytes) {
        if key.0.is_empty() || key.1.is_empty() || body.len() > self.most || self.get(&key).is_some() {
            return;
        }
        self.held += body.len();
        self.bodies.push_back((key, body));
        while self.held > self.most {
            let Some((_, oldest)) = self.bodies.pop_front() else { return };
            self.held -= oldest.len();
        }
    }
}

fn too_fast(wait: Duration) -> Denied {
    Denied { outcome: Outcome::Rate, retry_after: Some(wait.as_secs() + 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn composed_configs_are_kept_within_their_bytes_oldest_first_out() {
        let mut composed = Composed { most: 10, held: 0, bodies: VecDeque::new() };
        let key = |payload: &str, overlay: &str| (payload.to_owned(), overlay.to_owned(), SpecVersion::V3_2);
        composed.put(key("a", "1"), Bytes::from_static(b"12345"));
        composed.put(key("a", "1"), Bytes::from_static(b"12345"));
        composed.put(key("a", "2"), Bytes::from_static(b"1234"));
        assert_eq!((composed.held, composed.bodies.len()), (9, 2));
        composed.put(key("a", "3"), Bytes::from_static(b"123456"));
        assert_eq!((composed.held, composed.bodies.len()), (10, 2));
        assert!(composed.get(&key("a", "1")).is_none() && composed.get(&key("a", "3")).is_some());
        composed.put(key("a", "4"), Bytes::from_static(b"12345678901"));
        composed.put(key("a", ""), Bytes::from_static(b"1"));
        assert_eq!((composed.held, composed.get(&key("a", ""))), (10, None));
    }
}
