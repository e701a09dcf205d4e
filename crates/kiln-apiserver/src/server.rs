//! The server without its transport: state, and the verbs over it.
//!
//! The verbs are in `server/`, one file each; they decide with the pure functions of [`crate::change`] and then write.
//! What must happen later (garbage, namespaces, definitions) is left to the [janitor](Server::run_janitor).

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::sync::{Semaphore, watch};

use crate::admission::Admission;
use crate::audit::AuditEntry;
use crate::change::{Part, WriteContext};
use crate::error::{ApiError, Cause, Named};
use crate::guard::{Guard, GuardLimits, Settings, YamlReader};
use crate::health::{CheckResult, Probe, Weight};
use crate::identity::{ADMINISTRATORS, Identity, IssuedToken, TokenRecord, Tokens, hash, make_token};
use crate::metrics::{Metrics, Readings};
use crate::registry::{DEFINITIONS, Registry};
use crate::resource::Resource;
use crate::store::{Event, Expired, Key, OpenError, Place, Store, StoreLimits, Stored, WriteError};
use crate::timestamp::render_timestamp;

mod create;
mod delete;
mod janitor;
mod list;
mod restore;
mod scale;
mod update;
mod watch_stream;

pub use create::CreateRequest;
pub use delete::{DeleteOptions, Deleted, Propagation};
pub use list::{List, ListRequest};
pub use update::{PatchBody, UpdateRequest};
pub use watch_stream::{InitialEvents, WatchRequest};

/// How much the server takes on.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// Watches at a time.
    pub watches: usize,
    /// How often a quiet watch hears how far it has come.
    pub bookmarks: Duration,
    /// Objects in one page of a list, when the client asks for a limit that is larger.
    pub page: usize,
    /// What the store keeps for watches.
    pub store: StoreLimits,
    /// Rates, and what each identity may hold.
    pub guard: GuardLimits,
    /// What the listener takes on.
    pub connections: crate::tls::ConnectionLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            body_bytes: 3 << 20,
            watches: 4096,
            bookmarks: Duration::from_secs(60),
            page: 10_000,
            store: StoreLimits::default(),
            guard: GuardLimits::default(),
            connections: crate::tls::ConnectionLimits::default(),
        }
    }
}

/// The server.
#[derive(Debug)]
pub struct Server {
    pub(crate) store: Store,
    registry: ArcSwap<Registry>,
    refreshing: Mutex<()>,
    pub(crate) guard: Guard,
    pub(crate) limits: Limits,
    admission: OnceLock<Arc<dyn Admission>>,
    pub(crate) yaml: Option<YamlReader>,
    /// One body of YAML at a time: what aliases make of it may be large.
    pub(crate) yaml_turn: Semaphore,
    /// Held by whoever changes tokens, on the disk and then in the table.
    tokens_turn: tokio::sync::Mutex<()>,
    /// How often a backup was restored.
    restores: watch::Sender<u64>,
    stopping: watch::Sender<bool>,
}

/// An object as it is after a write.
#[derive(Debug, Clone)]
pub enum Written {
    /// On the disk.
    Stored(Arc<Stored>),
    /// As it would have been.
    DryRun(Value),
}

/// A write's result.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The object.
    pub object: Written,
    /// What the client should know.
    pub warnings: Vec<String>,
    /// Whether it did not exist before.
    pub created: bool,
}

/// Where namespaces are stored.
const NAMESPACES: &str = "namespaces";
/// Namespaces that are there from the beginning.
const FIRST_NAMESPACES: [&str; 2] = ["default", "kube-system"];

impl Server {
    /// Opens the store in `folder` and makes the first namespaces.
    pub async fn open(folder: &Path, tokens: Tokens, limits: Limits) -> Result<Arc<Server>, OpenError> {
        Server::open_with(folder, Settings { tokens, limits, ..Settings::default() }).await
    }

    /// The same with everything that can be chosen.
    pub async fn open_with(folder: &Path, settings: Settings) -> Result<Arc<Server>, OpenError> {
        let Settings { tokens, limits, policy, secrecy, audit, yaml } = settings;
        let (store, mut known) = Store::open_sealed(folder, limits.store, secrecy.as_ref())?;
        known.extend(tokens);
        let registry = Registry::of(&store.snapshot());
        let server = Arc::new(Server {
            store,
            registry: ArcSwap::from_pointee(registry),
            refreshing: Mutex::new(()),
            guard: Guard::new(known, policy, audit, &limits),
            limits,
            admission: OnceLock::new(),
            yaml,
            yaml_turn: Semaphore::new(1),
            tokens_turn: tokio::sync::Mutex::new(()),
            restores: watch::Sender::new(0),
            stopping: watch::Sender::new(false),
        });
        for name in FIRST_NAMESPACES {
            server.ensure_namespace(name).await;
        }
        Ok(server)
    }

    /// Whom to ask about what is written from now on. The first one stays; says whether it is this one.
    pub fn judge_with(&self, admission: Arc<dyn Admission>) -> bool {
        self.admission.set(admission).is_ok()
    }

    pub(crate) fn admission(&self) -> Option<&Arc<dyn Admission>> {
        self.admission.get()
    }

    /// Up to `limit` changes of a collection after a revision, oldest first; an error when they are no longer known.
    pub fn changes(&self, collection: &str, after: u64, limit: usize) -> Result<Vec<Arc<Event>>, Expired> {
        self.store.log(collection).read_after(after, limit)
    }

    /// What is served now.
    pub fn registry(&self) -> Arc<Registry> {
        self.registry.load_full()
    }

    /// Everything as of the last commit.
    pub fn snapshot(&self) -> Arc<crate::store::Snapshot> {
        self.store.snapshot()
    }

    /// Makes a token for somebody and keeps its hash; returns when that is on the disk.
    pub async fn issue_token(
        &self,
        identity: Identity,
        lifetime: Option<time::Duration>,
    ) -> Result<IssuedToken, WriteError> {
        // Whole seconds, as they are stored.
        let now = OffsetDateTime::now_utc().replace_nanosecond(0).unwrap_or_else(|_| OffsetDateTime::now_utc());
        let token = make_token(identity, now, lifetime.map(|lifetime| now + lifetime))
            .ok_or_else(|| WriteError::Failed("the system gives no random numbers".into()))?;
        let _turn = self.tokens_turn.lock().await;
        self.store.put_token(hash(&token.text), token.record.clone()).await?;
        self.guard.tokens.insert(hash(&token.text), &token.record);
        Ok(token)
    }

    /// Makes a token useless; false when there is none of that id.
    pub async fn revoke_token(&self, id: &str) -> Result<bool, WriteError> {
        let _turn = self.tokens_turn.lock().await;
        let Some(hash) = self.guard.tokens.hash_of(id) else { return Ok(false) };
        // Refused from now on, and after the disk has it also after a restart.
        self.guard.tokens.remove(&hash);
        self.store.remove_token(hash).await?;
        Ok(true)
    }

    /// What is known of the tokens that were issued.
    pub fn tokens(&self) -> Vec<TokenRecord> {
        self.guard.tokens.records()
    }

    /// Adds a check to readiness.
    pub fn add_check(&self, name: &str, weight: Weight, check: impl Fn() -> CheckResult + Send + Sync + 'static) {
        self.guard.checks.add(name, weight, check);
    }

    /// Adds figures to `/metrics`, in the text format of Prometheus; it must be quick and bounded.
    pub fn add_figures(&self, render: impl Fn() -> String + Send + Sync + 'static) {
        self.guard.figures.add(render);
    }

    /// What was counted.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.guard.metrics
    }

    /// Everything Prometheus is told.
    pub fn render_metrics(&self) -> String {
        let snapshot = self.store.snapshot();
        let own = self.guard.metrics.render(&Readings {
            watches: self.guard.watches.held(),
            connections: self.guard.connections.held(),
            revision: snapshot.revision,
            objects: snapshot.counts().map(|(collection, count)| (collection.to_string(), count)).collect(),
            store: self.store.figures(),
            audit_failures: self.guard.audit.as_ref().map_or(0, crate::audit::AuditLog::failures),
        });
        own + &self.guard.figures.render()
    }

    pub(crate) fn check(&self, probe: Probe, asked: &str) -> Vec<(String, CheckResult)> {
        let mut results = vec![("ping".to_owned(), Ok(()))];
        let store = if self.store.is_healthy() { Ok(()) } else { Err("the last transaction failed".into()) };
        if probe == Probe::Ready {
            results.push(("store".to_owned(), store));
            let stopping = *self.stopping.borrow();
            results.push(("not-stopping".to_owned(), if stopping { Err("stopping".into()) } else { Ok(()) }));
            results.extend(self.guard.checks.results(asked));
        }
        results
    }

    /// Ends all watches and the janitor. Requests are still answered.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Closes the store; later writes fail.
    pub async fn close(&self) {
        self.stop();
        self.store.close().await;
    }

    /// Becomes true when the server stops.
    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    /// Changes whenever a backup was restored: what was made at the start may be gone, or an older one.
    pub fn restores(&self) -> watch::Receiver<u64> {
        self.restores.subscribe()
    }

    pub(crate) fn key(&self, resource: &Resource, namespace: &str, name: &str) -> Key {
        Key::new(&resource.collection, if resource.namespaced { namespace } else { "" }, name)
    }

    pub(crate) fn find(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Arc<Stored>, ApiError> {
        let snapshot = self.store.snapshot();
        let found = snapshot.get(&self.key(resource, namespace, name)).cloned();
        found.ok_or_else(|| ApiError::not_found(resource.named(name)))
    }

    /// A definition is served when its write is answered.
    fn after_write(&self, collection: &str) {
        if collection == DEFINITIONS {
            self.refresh_registry();
        }
    }

    fn refresh_registry(&self) {
        let _one = self.refreshing.lock().unwrap_or_else(PoisonError::into_inner);
        let (registry, snapshot) = (self.registry(), self.store.snapshot());
        if !registry.is_of(&snapshot) {
            self.registry.store(Arc::new(registry.updated(&snapshot)));
        }
    }

    async fn ensure_namespace(&self, name: &str) {
        let registry = self.registry();
        let Some(resource) = registry.find("", "v1", "namespaces") else { return };
        if self.find(resource, "", name).is_ok() {
            return;
        }
        let request = CreateRequest {
            resource,
            namespace: "",
            body: json!({"metadata": {"name": name}}),
            dry_run: false,
            context: system_context(),
        };
        match self.create(request).await {
            Ok(_) => {
                let place = Place { namespace: "".into(), name: name.into() };
                self.audit_own(&system_identity(), "create", resource, &place);
            }
            Err(error) => tracing::error!(name, error = %error.message, "cannot create a namespace"),
        }
    }

    /// Tells of a write nobody asked for by itself, in the words of one that somebody did.
    fn audit_own(&self, identity: &Identity, verb: &'static str, resource: &Resource, place: &Place) {
        let Some(audit) = &self.guard.audit else { return };
        audit.write(&AuditEntry {
            time: OffsetDateTime::now_utc(),
            id: &uuid::Uuid::new_v4().to_string(),
            user: &identity.user,
            groups: &identity.groups,
            verb,
            group: &resource.group,
            resource: &resource.plural,
            subresource: "",
            namespace: &place.namespace,
            name: &place.name,
            code: if verb == "create" { 201 } else { 200 },
            source: "",
            dry_run: false,
        });
    }
}

/// Returns when the server stops.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error means that the server is gone altogether.
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// Who makes the first namespaces.
fn system_identity() -> Identity {
    Identity::member("system:apiserver", ADMINISTRATORS)
}

/// The context in which the server itself writes.
pub(crate) fn system_context() -> WriteContext {
    let identity = system_identity();
    WriteContext {
        now: render_timestamp(OffsetDateTime::now_utc()),
        validation: crate::change::FieldValidation::Ignore,
        manager: "kiln".into(),
        user: identity.user,
        groups: identity.groups,
        applied: false,
    }
}

/// What a failed write means to the client.
pub(crate) fn write_error(error: WriteError, resource: &Resource, name: &str) -> ApiError {
    let is_namespace = |key: &Key| *key.collection == *NAMESPACES;
    match error {
        WriteError::Exists => ApiError::already_exists(resource.named(name)),
        WriteError::Missing => ApiError::not_found(resource.named(name)),
        WriteError::Conflict { .. } => ApiError::stale(resource.named(name)),
        WriteError::RequirementMissing(key) if is_namespace(&key) => {
            ApiError::not_found(Named { group: "", resource: NAMESPACES, name: &key.place.name })
        }
        WriteError::RequirementLeaving(key) if is_namespace(&key) => {
            namespace_terminating(resource, &key.place.name, name)
        }
        // The kind is served no longer.
        WriteError::RequirementMissing(_) => ApiError::no_such_path(),
        WriteError::RequirementLeaving(_) => {
            let message = "create not allowed while custom resource definition is terminating";
            ApiError::new(405, "MethodNotAllowed", message).about(resource.named(""))
        }
        WriteError::NotEmpty => ApiError::stale(resource.named(name)),
        WriteError::Failed(why) => ApiError::internal(why),
        WriteError::Closed => ApiError::new(503, "ServiceUnavailable", "the server is shutting down"),
    }
}

fn namespace_terminating(resource: &Resource, namespace: &str, name: &str) -> ApiError {
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut error = ApiError::forbidden(format!(
        "{} is forbidden: {why}",
        ApiError::not_found(resource.named(name)).message.trim_end_matches(" not found")
    ))
    .about(resource.named(name));
    error.details.causes = vec![Cause {
        reason: "NamespaceTerminating",
        message: format!("namespace {namespace} is being terminated"),
        field: "metadata.namespace".into(),
    }];
    error
}

/// Which part of the object a path writes; other subresources are not served.
pub fn part_of(resource: &Resource, subresource: Option<&str>) -> Result<Part, ApiError> {
    match subresource {
        None => Ok(Part::Main),
        Some("status") if resource.status => Ok(Part::Status),
        Some("scale") if resource.scale.is_some() => Ok(Part::Scale),
        Some("approval") if resource.is("certificates.k8s.io", "certificatesigningrequests") => Ok(Part::Approval),
        Some(_) => Err(ApiError::no_such_path()),
    }
}
