//! Pools: payloads, overlays, tokens and user-data as Secrets, made and kept right by the leader.
//!
//! ```text
//! controllers: world -> Provision --+-> plan_secrets (pure) -> execute
//! watch on our own Secrets ---------+        |
//! clock, random tokens -------------+        +-> reports -> status of pools
//! bases: Secrets, ConfigMaps, machine-config-servers -> the next Provision
//! ```
//!
//! What must be held ready is decided with the world ([`kiln_core::provision`]); here it is compared with what is stored. The
//! endpoints that serve it watch the same Secrets and know nothing of this module.
//!
//! **Invariant:** a token is made in one place, the write that stores it. Everything else (user-data, the endpoints) takes it
//! from there, and each write names the revision it was made for, so that two replicas at once never undo each other.
//! **Invariant:** what is right already is not written.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;
use kiln_core::diagnostic::ObjectId;
use kiln_core::ignition::pointer::PointerProxy;
use kiln_core::provision::{FetchedBase, Provision, Stored, names};
use kiln_core::timeline::Moment;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use tokio::sync::Notify;

use super::approval::connect::{BySecret, Connect};
use super::boot_secrets::decode_text;
use super::controllers::cache::Change;
use super::controllers::execute::execute_objects;
use super::controllers::plan_objects::ObjectChange;
use super::controllers::{Shared, kinds};
use super::health::repair::keep_off_no_more;
use super::machines::wish::Wishes;
use held::Held;
use plan::{Planned, Situation, plan_secrets};
use release::Release;
pub use render::label;

mod bases;
pub mod drain;
pub mod held;
pub mod plan;
pub mod release;
mod render;
pub mod report;
pub mod service;

/// The label that every Secret for nodes has, and what it says.
pub const LABEL: &str = "kiln.dev/ignition";
/// The label with the name of the pool.
pub const POOL_LABEL: &str = "kiln.dev/pool";
/// The label with the name of the host.
pub const HOST_LABEL: &str = "kiln.dev/host";
/// The annotation of a token Secret with the name of its payload.
pub const PAYLOAD_ANNOTATION: &str = "kiln.dev/payload";

/// How many machines are let on at a time.
const SWITCHED_AT_ONCE: usize = 16;
/// Changes are gathered for so long.
const QUIET: Duration = Duration::from_millis(50);
/// The longest wait before something that failed is tried again.
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// What is hashed for a token, by namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hashed {
    /// A Secret with registries' credentials.
    PullSecret((String, String)),
    /// A ConfigMap with authorities.
    TrustBundle((String, String)),
}

/// Where nodes reach this hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// `https://10.0.0.1:8443`, without a path.
    pub url: String,
    /// PEM of the authorities that sign its certificate.
    pub authorities: Option<Vec<u8>>,
}

impl Endpoint {
    /// The endpoint at this URL, with the authorities in a PEM file; without one, machines trust what they trust anyway.
    pub fn read(url: String, authorities: Option<&Path>) -> io::Result<Endpoint> {
        Ok(Endpoint { url, authorities: authorities.map(std::fs::read).transpose()? })
    }
}

/// What the controller of pools is told, and what it must not find out itself.
#[derive(Clone)]
pub struct Settings {
    /// Where nodes reach this hub; without, no user-data can be made.
    pub endpoint: Option<Endpoint>,
    /// The way to the clusters of hosts that go out of service; by the kubeconfigs in the hub's Secrets without.
    pub clusters: Option<Arc<dyn Connect>>,
    /// What time it is.
    pub clock: Arc<dyn Fn() -> Moment + Send + Sync>,
    /// A new token: a random UUID.
    pub token: Arc<dyn Fn() -> String + Send + Sync>,
    /// The longest time without looking.
    pub patrol: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            endpoint: None,
            clusters: None,
            clock: Arc::new(super::timeline::now),
            token: Arc::new(|| uuid::Uuid::new_v4().to_string()),
            patrol: Duration::from_secs(60),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// What the controllers and this one leave for each other.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    state: Mutex<DeskState>,
    /// The controllers looked at the world.
    looked: Notify,
    /// The same, for whoever fetches.
    looked_for_bases: Notify,
    /// One of our Secrets changed.
    pub(super) stored_changed: Notify,
    /// What running nodes shall have may be something else.
    pub(super) provided: Notify,
}

#[derive(Debug, Default)]
struct DeskState {
    /// None until the first look.
    provision: Option<Arc<Provision>>,
    bases: Arc<BTreeMap<ObjectId, FetchedBase>>,
    /// Hashes of pull secrets and additional authorities.
    hashes: BTreeMap<Hashed, String>,
    /// Why hosts that go are still there, by namespace and name.
    problems: BTreeMap<(String, String), String>,
    held: Held,
}

/// What a look at the world needs from here.
#[derive(Debug, Clone, Default)]
pub(crate) struct LookInputs {
    pub(crate) bases: Arc<BTreeMap<ObjectId, FetchedBase>>,
    pub(crate) stored: Stored,
    pub(crate) previous: Arc<Provision>,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, DeskState> {
        // Every change is one call.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the next look at the world starts from.
    pub(crate) fn look_inputs(&self) -> LookInputs {
        let state = self.lock();
        LookInputs {
            bases: Arc::clone(&state.bases),
            stored: state.held.stored(),
            previous: state.provision.clone().unwrap_or_default(),
        }
    }

    /// Takes what a look at the world gave.
    pub(crate) fn put_provision(&self, provision: Provision) {
        self.lock().provision = Some(Arc::new(provision));
        self.provided.notify_one();
    }

    /// Something was looked at: the world, or only what was observed.
    pub(crate) fn tell_looked(&self) {
        self.looked.notify_one();
        self.looked_for_bases.notify_one();
    }

    /// Lets the watch change what is known to be stored.
    pub(super) fn update_held(&self, change: impl FnOnce(&mut Held) -> bool) {
        if change(&mut self.lock().held) {
            self.stored_changed.notify_one();
            self.provided.notify_one();
        }
    }

    /// What running nodes shall have. None before everything was read once.
    pub(super) fn wishes(&self, now: Moment) -> Option<Wishes> {
        let state = self.lock();
        let provision = state.provision.as_ref().filter(|_| state.held.is_listed())?;
        Some(Wishes::of(provision, &state.held, now))
    }
}

/// Keeps the Secrets for nodes right, while somebody tells the desk what is [`held`]. Never ends.
pub(crate) async fn run(client: Client, shared: Arc<Shared>, settings: Settings) {
    tokio::join!(bases::keep(client.clone(), Arc::clone(&shared), settings.clone()), work(client, &shared, &settings),);
}

async fn work(client: Client, shared: &Shared, settings: &Settings) {
    let desk = &shared.desk;
    let mut failures = 0_u32;
    let mut wait = settings.patrol;
    loop {
        tokio::select! {
            () = desk.looked.notified() => {}
            () = desk.stored_changed.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
        tokio::time::sleep(QUIET).await;
        let began = Instant::now();
        let Some(planned) = plan(shared, settings) else { continue };
        let Planned { mut changes, releases, switch_on, reports, next, look_again } = planned;
        let took = began.elapsed();
        shared.tell_reports(reports);
        if look_again {
            shared.look_again(Change::World);
        }
        let not_on = let_on(&client, switch_on, &mut changes).await;
        let planned = changes.len();
        let mut done = execute_objects(&client, changes).await;
        if planned > 0 {
            tracing::debug!(?done, "wrote Secrets for nodes");
        }
        done.failed += not_on + let_go(&client, shared, settings, releases).await;
        wait = next.map_or(settings.patrol, |next| {
            let rest = next.0.saturating_sub((settings.clock)().0).max(0);
            Duration::from_secs(rest.unsigned_abs()).min(settings.patrol)
        });
        if done.failed + done.outdated > 0 {
            failures += 1;
            wait = (Duration::from_millis(200) * 2_u32.saturating_pow(failures.min(16))).min(LONGEST_RETRY);
        } else {
            failures = 0;
        }
        wait = wait.max(QUIET);
        // However fast things change, most of the time is left to others.
        tokio::time::sleep(took * 4).await;
    }
}

/// Lets machines on again whose hosts come into service. Says how many of them did not; their overlays wait.
async fn let_on(client: &Client, hosts: Vec<(String, String)>, changes: &mut Vec<ObjectChange>) -> usize {
    let asking = hosts.into_iter().map(async |(namespace, host)| {
        let done = keep_off_no_more(client, &namespace, &host).await;
        done.err().map(|error| (namespace, host, error))
    });
    let failed: Vec<_> = futures::stream::iter(asking).buffer_unordered(SWITCHED_AT_ONCE).collect().await;
    let mut count = 0;
    for (namespace, host, error) in failed.into_iter().flatten() {
        tracing::warn!(%error, namespace, host, "its BareMetalHost is not let on again; it is tried again");
        let overlay = names::overlay(&host);
        changes.retain(|change| change.name != overlay || change.namespace != namespace);
        count += 1;
    }
    count
}

/// Takes hosts out of service, one after the other: few go at a time. Says how many did not go, and leaves why.
async fn let_go(client: &Client, shared: &Shared, settings: &Settings, releases: Vec<Release>) -> usize {
    let clusters = settings.clusters.clone().unwrap_or_else(|| Arc::new(BySecret { hub: client.clone() }));
    let mut problems = BTreeMap::new();
    for release in releases {
        let place = (release.namespace.clone(), release.host.clone());
        match release::execute(client, &*clusters, &release, (settings.clock)()).await {
            Ok(()) => tracing::info!(namespace = place.0, host = place.1, "a host went out of service"),
            Err(why) => {
                tracing::warn!(
                    namespace = place.0,
                    host = place.1,
                    why,
                    "a host did not go out of service; it is tried again"
                );
                problems.insert(place, why);
            }
        }
    }
    let left = problems.len();
    let mut desk = shared.desk.lock();
    if desk.problems != problems {
        desk.problems = problems;
        shared.desk.stored_changed.notify_one();
    }
    left
}

/// Decides with everything that is known now. None before everything was read once.
fn plan(shared: &Shared, settings: &Settings) -> Option<Planned> {
    let cache = shared.lock().cache.clone();
    let desk = shared.desk.lock();
    let provision = Arc::clone(desk.provision.as_ref()?);
    if !desk.held.is_listed() {
        return None;
    }
    let situation = Situation {
        provision: &provision,
        held: &desk.held,
        cache: &cache,
        hashes: &desk.hashes,
        endpoint: settings.endpoint.as_ref(),
        problems: &desk.problems,
        now: (settings.clock)(),
    };
    Some(plan_secrets(&situation, &*settings.token))
}

/// The proxy that machines of a pool fetch through, as the pool's own pointer has it.
pub async fn fetch_proxy(client: &Client, namespace: &str, pool: &str) -> Result<Option<PointerProxy>, kube::Error> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kinds::SECRET.resource());
    let options = ListParams::default().labels(&format!("{LABEL}=user-data,{POOL_LABEL}={}", label(pool)));
    let pointers = api.list(&options).await?.items;
    let proxies = pointers.iter().filter_map(|secret| {
        let pointer = decode_text(&secret.data["data"], "value")?;
        let pointer: serde_json::Value = serde_json::from_str(&pointer).ok()?;
        PointerProxy::parse(&pointer["ignition"]["proxy"])
    });
    Ok(proxies.into_iter().next())
}

/// Pools that another controller drives: on a cluster where the upstream operators run, they are theirs.
pub(crate) fn foreign_pools(cache: &super::controllers::cache::Cache) -> HashSet<ObjectId> {
    let mut foreign = HashSet::new();
    for kind in ["NodePool", "MachineConfigPool"] {
        for ((namespace, name), _) in cache.of_kind(kind).filter(|(_, item)| item.foreign_status) {
            foreign.insert(ObjectId { kind: kind.into(), namespace: namespace.clone(), name: name.clone() });
        }
    }
    foreign
}
