//! Everything between a request and the verbs: who asks, whether they may, how much of it, and what is told of it.
//!
//! [`Guard`] is what a running server keeps for that; the pipeline itself is in `http.rs`. The parts are modules of
//! their own: [`crate::identity`], [`crate::policy`], [`crate::rate_limit`], [`crate::audit`], [`crate::metrics`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use time::OffsetDateTime;
use tokio::sync::Semaphore;

use crate::audit::{AuditEntry, AuditLog};
use crate::error::ApiError;
use crate::health::Checks;
use crate::identity::{ADMINISTRATORS, Identity, TokenTable, Tokens};
use crate::metrics::{Metrics, MoreFigures, Turned};
use crate::policy::Policy;
use crate::rate_limit::{Full, Held, Quota, Rate, RateLimiter, source_key};
use crate::request::{ObjectPath, Query};
use crate::secrecy::Secrecy;

/// Where a request comes from; the listener puts it into the request's extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// How much strangers and identities may ask for. Administrators have no rate: the controllers are among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardLimits {
    /// Requests of each identity that is no administrator.
    pub identity_rate: Rate,
    /// Requests of each source without an identity.
    pub stranger_rate: Rate,
    /// Watches of each identity.
    pub identity_watches: usize,
    /// Watches of each administrator: fewer than there are, so that one runaway program leaves some.
    pub administrator_watches: usize,
    /// Bytes of all bodies that are being read or acted upon.
    pub bodies_bytes: usize,
    /// For how long a body may arrive.
    pub body_time: Duration,
}

impl Default for GuardLimits {
    fn default() -> Self {
        GuardLimits {
            identity_rate: Rate { per_second: 50, burst: 200 },
            stranger_rate: Rate { per_second: 20, burst: 100 },
            identity_watches: 64,
            administrator_watches: 3072,
            bodies_bytes: 128 << 20,
            body_time: Duration::from_secs(60),
        }
    }
}

/// What whoever embeds the server chooses.
#[derive(Debug, Default)]
pub struct Settings {
    /// Tokens known without having been issued, for tests and embedders.
    pub tokens: Tokens,
    /// How much the server takes on.
    pub limits: crate::Limits,
    /// Who may do what.
    pub policy: Policy,
    /// What is sealed on the disk.
    pub secrecy: Option<Secrecy>,
    /// Where writes are told.
    pub audit: Option<AuditLog>,
    /// How YAML in bodies is read; without, only the part of it that is JSON. It must be bounded in time and memory.
    pub yaml: Option<YamlReader>,
}

/// Reads the one document of a text, or says why it cannot.
pub type YamlReader = fn(&str) -> Result<serde_json::Value, String>;

/// What the pipeline keeps.
#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) policy: Policy,
    pub(crate) tokens: TokenTable,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) checks: Checks,
    pub(crate) figures: MoreFigures,
    pub(crate) watches: Arc<Quota>,
    pub(crate) connections: Arc<Quota>,
    /// One permit per KiB.
    pub(crate) bodies: Arc<Semaphore>,
    pub(crate) audit: Option<AuditLog>,
    limits: GuardLimits,
    identities: RateLimiter,
    strangers: RateLimiter,
}

impl Guard {
    pub(crate) fn new(tokens: Tokens, policy: Policy, audit: Option<AuditLog>, limits: &crate::Limits) -> Guard {
        Guard {
            policy,
            tokens: TokenTable::new(tokens),
            metrics: Arc::default(),
            checks: Checks::default(),
            figures: MoreFigures::default(),
            watches: Quota::new(limits.watches),
            connections: Quota::new(limits.connections.total),
            bodies: Arc::new(Semaphore::new(limits.guard.bodies_bytes >> 10)),
            audit,
            limits: limits.guard,
            identities: RateLimiter::new(limits.guard.identity_rate),
            strangers: RateLimiter::new(limits.guard.stranger_rate),
        }
    }

    /// Whose token this is.
    pub(crate) fn recognise(&self, token: &str) -> Option<Identity> {
        self.tokens.find(token, OffsetDateTime::now_utc())
    }

    /// Whether an identity may ask once more now.
    pub(crate) fn pace(&self, identity: &Identity) -> Result<(), ApiError> {
        if identity.is_in(ADMINISTRATORS) {
            return Ok(());
        }
        let taken = self.identities.take(&identity.user, Instant::now());
        taken.map_err(|wait| self.too_fast(&identity.user, wait))
    }

    /// What somebody gets who was not recognised: 401, or 429 when they keep trying.
    pub(crate) fn stranger(&self, peer: Option<Peer>) -> ApiError {
        let key = peer.map_or_else(String::new, |peer| source_key(peer.0.ip()));
        match self.strangers.take(&key, Instant::now()) {
            Ok(()) => ApiError::unauthorized(),
            Err(wait) => self.too_fast(&key, wait),
        }
    }

    /// One more watch for somebody.
    pub(crate) fn take_watch(&self, identity: &Identity) -> Result<Held, ApiError> {
        let most = match identity.is_in(ADMINISTRATORS) {
            true => self.limits.administrator_watches,
            false => self.limits.identity_watches,
        };
        self.watches.take(&identity.user, most).map_err(|full| {
            self.turn_away(Turned::Watches, &identity.user, "too many watches");
            ApiError::too_many_requests(match full {
                Full::Total => "too many watches: try again later".to_owned(),
                Full::Key => format!("too many watches of {:?}: it may have {most} at a time", identity.user),
            })
        })
    }

    /// Counts and, once in a while, tells that somebody was turned away.
    pub(crate) fn turn_away(&self, why: Turned, who: &str, what: &str) {
        self.metrics.turn_away(why, who, what);
    }

    fn too_fast(&self, who: &str, wait: Duration) -> ApiError {
        self.turn_away(Turned::Rate, who, "too many requests");
        let mut error = ApiError::too_many_requests("too many requests: slow down");
        error.details.retry_after_seconds = u32::try_from(wait.as_secs()).unwrap_or(u32::MAX).saturating_add(1);
        error
    }
}

/// What is known of one request while it is answered. When it is dropped unfinished, the client has left: a write is
/// told all the same, because it may have been made.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    guard: &'a Guard,
    begun: Instant,
    pub(crate) id: String,
    pub(crate) identity: Option<Identity>,
    pub(crate) verb: &'static str,
    pub(crate) path: Option<ObjectPath>,
    /// For what is no object.
    pub(crate) other: String,
    /// Whether it is a resource that is served, so that it may be a label.
    pub(crate) served: bool,
    pub(crate) writes: bool,
    pub(crate) name: Option<String>,
    dry_run: bool,
    peer: Option<Peer>,
    finished: bool,
}

/// What is told when the client left before the answer.
const CLIENT_LEFT: u16 = 499;

impl<'a> Record<'a> {
    pub(crate) fn begin(guard: &'a Guard, peer: Option<Peer>, other: &str, query: &Query) -> Record<'a> {
        Record {
            guard,
            begun: Instant::now(),
            id: uuid::Uuid::new_v4().to_string(),
            identity: None,
            verb: "get",
            path: None,
            other: other.to_owned(),
            served: false,
            writes: false,
            name: None,
            dry_run: query.get("dryRun").is_some(),
            peer,
            finished: false,
        }
    }

    /// Counts the request and tells of it if it wrote or was denied.
    pub(crate) fn finish(mut self, code: u16) {
        self.tell(code);
    }

    fn tell(&mut self, code: u16) {
        self.finished = true;
        let label = match &self.path {
            Some(path) if self.served && path.group.is_empty() => path.plural.clone(),
            Some(path) if self.served => format!("{}.{}", path.plural, path.group),
            _ => "other".to_owned(),
        };
        self.guard.metrics.request(self.verb, &label, code, self.begun.elapsed());
        let Some(audit) = self.guard.audit.as_ref().filter(|_| self.writes || code == 401 || code == 403) else {
            return;
        };
        let path = self.path.as_ref();
        let text = |field: Option<&'_ String>| field.cloned().unwrap_or_default();
        let source = self.peer.map(|peer| peer.0.to_string()).unwrap_or_default();
        audit.write(&AuditEntry {
            time: OffsetDateTime::now_utc(),
            id: &self.id,
            user: self.identity.as_ref().map_or("", |identity| &identity.user),
            groups: self.identity.as_ref().map_or(&[], |identity| &identity.groups),
            verb: self.verb,
            group: path.map_or("", |path| &path.group),
            resource: path.map_or(&self.other, |path| &path.plural),
            subresource: &text(path.and_then(|path| path.subresource.as_ref())),
            namespace: &text(path.and_then(|path| path.namespace.as_ref())),
            name: &text(self.name.as_ref().or_else(|| path?.name.as_ref())),
            code,
            source: &source,
            dry_run: self.dry_run,
        });
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.tell(CLIENT_LEFT);
        }
    }
}
