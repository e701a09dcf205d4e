//! `POST /beacon`: what machines say about their own boot, and the tokens they say it with.
//!
//! | answer | why |
//! |---|---|
//! | 204 | taken; it is written to the Host in a moment |
//! | 400 | no report; the text says why |
//! | 401 | no token, or none that is good for this |
//! | 405 | not POST |
//! | 413 | more than a report may have |
//! | 429, 503 | too much at once; `Retry-After` says when to come again |
//!
//! Two kinds of token are good. The boot token of the host's present generation, used or not: a beacon does not use it
//! up. And the beacon token of that generation, which is in the config the host fetched. Only the latter may name the key
//! of a kubelet: a boot token lies in user-data, where more than the machine itself may read it.
//!
//! **Invariant:** the body of a request without a good token is not read, and nothing is written for it.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::header::{ALLOW, AUTHORIZATION, CONTENT_LENGTH};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Response, StatusCode};
use futures::StreamExt;
use kiln_apiserver::rate_limit::{Rate, RateLimiter, source_key};
use kiln_core::beacon::{BEACON_PATH, CREDENTIALS_PATH, Credentials, LONGEST_REPORT, Point, Report, WrongReport};
use kiln_core::beacon_token::{self, Bearer, Claim};
use kiln_core::bootstrap_token::render_kubeconfig;
use kiln_core::timeline::first_boot::Writer;
use serde_json::Value;
use tokio::sync::{Notify, Semaphore};

use super::NodeEndpoint;
use super::fetch::parse_bearer;
use super::figures::Tally;
use super::paths::{one, retry, text};
use super::table::{HostToken, Overlay, Payload, Token};
use super::witness::Testimony;
use crate::hub::beacon::Reported;
use crate::hub::boot_secrets::hash_token;
use crate::hub::pools::Endpoint;
use crate::hub::timeline::now;
use key::BeaconKey;
use outcome::{OUTCOMES, Outcome};

pub mod key;
pub mod outcome;

/// How long a report may take to arrive.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many are read at a time.
const READING: usize = 256;
/// When to come again, in seconds.
const SOON: u64 = 5;

/// What the node endpoints know of beacons.
pub struct Beacons {
    /// Where machines reach the hub.
    address: OnceLock<Endpoint>,
    key: RwLock<Option<Arc<BeaconKey>>>,
    /// The Secret with the key is not there.
    pub(super) key_is_missed: Notify,
    hosts: RateLimiter,
    strangers: RateLimiter,
    reading: Semaphore,
    pub(super) outcomes: Tally<{ OUTCOMES.len() }>,
}

impl Beacons {
    pub(super) fn new(hosts: Rate, strangers: Rate) -> Beacons {
        Beacons {
            address: OnceLock::new(),
            key: RwLock::default(),
            key_is_missed: Notify::new(),
            hosts: RateLimiter::new(hosts),
            strangers: RateLimiter::new(strangers),
            reading: Semaphore::new(READING),
            outcomes: Tally::new(OUTCOMES.map(Outcome::name)),
        }
    }

    /// Where machines reach the hub. The first word counts.
    pub(super) fn reached_at(&self, address: Endpoint) {
        drop(self.address.set(address));
    }

    pub(super) fn key(&self) -> Option<Arc<BeaconKey>> {
        self.key.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_key(&self, key: Option<BeaconKey>) {
        *self.key.write().unwrap_or_else(PoisonError::into_inner) = key.map(Arc::new);
    }

    /// A host's files with the one that tells its witness where to report. Without a key or an address, as they were.
    pub(super) fn equip(&self, overlay: Arc<Overlay>, token: &HostToken) -> Arc<Overlay> {
        let (Some(key), Some(address)) = (self.key(), self.address.get()) else { return overlay };
        let bearer = token.bearer();
        let credentials = Credentials {
            url: format!("{}{BEACON_PATH}", address.url.trim_end_matches('/')),
            authorities: String::from_utf8_lossy(address.authorities.as_deref().unwrap_or_default()).into_owned(),
            token: bearer.render(&key.sign(&bearer.message())),
        };
        let Ok(contents) = serde_json::to_string(&credentials) else { return overlay };
        Arc::new(overlay.with_file(CREDENTIALS_PATH, &contents))
    }

    /// A host's files with its bootstrap kubeconfigs, if its pool gives each host a user of its own. None without a key: what
    /// the pool shares must not take their place.
    pub(super) fn introduce(
        &self,
        overlay: Arc<Overlay>,
        token: &HostToken,
        payload: &Payload,
    ) -> Option<Arc<Overlay>> {
        if payload.kubeconfigs.is_empty() {
            return Some(overlay);
        }
        let user = self.key()?.bootstrap_token(&token.bearer(), &token.record.hash);
        let add = |overlay: Overlay, (path, without): (&String, &Value)| {
            overlay.with_file(path, &render_kubeconfig(without, &user))
        };
        Some(Arc::new(payload.kubeconfigs.iter().fold(Overlay::clone(&overlay), add)))
    }

    /// The user a host got with this payload.
    pub(super) fn user(&self, token: &HostToken, payload: &Payload) -> Option<String> {
        let key = self.key().filter(|_| !payload.kubeconfigs.is_empty())?;
        Some(key.bootstrap_token(&token.bearer(), &token.record.hash).user())
    }
}

/// Answers one request.
pub(super) async fn answer(endpoint: &Arc<NodeEndpoint>, head: &Parts, body: Body, source: IpAddr) -> Response<Body> {
    let result = take(endpoint, head, body, source).await;
    let (outcome, said, wait) = match result {
        Ok(()) => (Outcome::Taken, String::new(), None),
        Err(Refused { outcome, said, wait }) => (outcome, said, wait),
    };
    if let Some(more) = endpoint.beacons.outcomes.count(outcome.name())
        && outcome != Outcome::Taken
    {
        tracing::warn!(%source, why = outcome.name(), more, "a report was not taken");
    }
    let mut response = text(outcome.status(), said);
    if outcome == Outcome::Method {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    }
    if outcome.status() == StatusCode::NO_CONTENT {
        response.headers_mut().remove(axum::http::header::CONTENT_TYPE);
    }
    retry(&mut response, outcome.name(), wait);
    response
}

/// Why a report is not taken, in words for whoever sent it, and when to come again.
struct Refused {
    outcome: Outcome,
    said: String,
    wait: Option<u64>,
}

fn refused(outcome: Outcome, said: impl Into<String>) -> Refused {
    let wait = matches!(outcome, Outcome::Busy).then_some(SOON);
    Refused { outcome, said: format!("{}\n", said.into()), wait }
}

fn too_fast(wait: Duration) -> Refused {
    Refused { outcome: Outcome::Rate, said: "Too many requests\n".into(), wait: Some(wait.as_secs() + 1) }
}

/// Who reports.
struct Reporter {
    token: Arc<HostToken>,
    /// Whether it showed the token of the config it fetched.
    equipped: bool,
}

async fn take(endpoint: &Arc<NodeEndpoint>, head: &Parts, body: Body, source: IpAddr) -> Result<(), Refused> {
    let beacons = &endpoint.beacons;
    if head.method != Method::POST {
        return Err(refused(Outcome::Method, "Method Not Allowed"));
    }
    let reporter = match recognise(endpoint, one(&head.headers, &AUTHORIZATION)) {
        Ok(reporter) => reporter,
        Err(refused) if refused.outcome == Outcome::Unauthorized => {
            beacons.strangers.take(&source_key(source), Instant::now()).map_err(too_fast)?;
            return Err(refused);
        }
        Err(refused) => return Err(refused),
    };
    let HostToken { namespace, host, record, .. } = &*reporter.token;
    beacons.hosts.take(&format!("{namespace}/{host}"), Instant::now()).map_err(too_fast)?;
    let too_long = || refused(Outcome::TooLong, WrongReport::TooLong.to_string());
    let length = one(&head.headers, &CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    if length.is_some_and(|length| length > LONGEST_REPORT as u64) {
        return Err(too_long());
    }
    let reading = async {
        let _one_of_few = beacons.reading.acquire().await;
        read(body).await.map(|bytes| bytes.map(|bytes| Report::parse(&bytes)))
    };
    let report = match tokio::time::timeout(PATIENCE, reading).await {
        Err(_) | Ok(Err(_)) => return Err(refused(Outcome::NoReport, "the report broke off")),
        Ok(Ok(None)) => return Err(too_long()),
        Ok(Ok(Some(Err(wrong)))) => return Err(refused(Outcome::NoReport, wrong.to_string())),
        Ok(Ok(Some(Ok(report)))) => report,
    };
    if report.point == Point::KubeletKey && !reporter.equipped {
        let said = format!("the key of a kubelet is taken with the token in {CREDENTIALS_PATH} only");
        return Err(refused(Outcome::Unauthorized, said));
    }
    let writers = writers(endpoint, &reporter.token, &report);
    let (namespace, host, generation) = (namespace.clone(), host.clone(), record.generation);
    let reported = Reported { namespace, host, generation, at: now(), report, writers };
    endpoint.tell.try_send(Testimony::Reported(Box::new(reported))).map_err(|_| {
        endpoint.figures.witness_failed();
        refused(Outcome::Busy, "too many reports wait to be written")
    })
}

/// Whose token it is.
fn recognise(endpoint: &NodeEndpoint, authorization: Option<&str>) -> Result<Reporter, Refused> {
    let stranger = || refused(Outcome::Unauthorized, "Unauthorized");
    let bearer = authorization.and_then(|value| value.strip_prefix("Bearer ")).ok_or_else(stranger)?;
    if !bearer.starts_with(beacon_token::PREFIX) {
        let text = authorization.and_then(parse_bearer).ok_or_else(stranger)?;
        let token = endpoint.table().token(&hash_token(&text));
        return match token {
            Some(Token::Host(token)) if token.record.revoked.is_none() => Ok(Reporter { token, equipped: false }),
            None if endpoint.check().is_err() => Err(refused(Outcome::Busy, "Try again")),
            _ => Err(stranger()),
        };
    }
    let claim = Claim::parse(bearer).ok_or_else(stranger)?;
    let Some(key) = endpoint.beacons.key() else { return Err(refused(Outcome::Busy, "Try again")) };
    if !key.verify(&claim) {
        return Err(stranger());
    }
    let Bearer { namespace, host, generation } = &claim.bearer;
    let token = endpoint.table().host_token(namespace, host);
    match token {
        // Another replica served the config of a generation that this one has not heard of.
        Some(token) if token.record.generation < *generation => Err(refused(Outcome::Busy, "Try again")),
        Some(token) if token.record.generation == *generation && token.record.revoked.is_none() => {
            Ok(Reporter { token, equipped: true })
        }
        None if endpoint.check().is_err() => Err(refused(Outcome::Busy, "Try again")),
        _ => Err(stranger()),
    }
}

/// None when it is too long.
async fn read(body: Body) -> Result<Option<Vec<u8>>, axum::Error> {
    let mut parts = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(part) = parts.next().await {
        let part = part?;
        if bytes.len() + part.len() > LONGEST_REPORT {
            return Ok(None);
        }
        bytes.extend_from_slice(&part);
    }
    Ok(Some(bytes))
}

/// Which objects put the files where they are that a report names.
fn writers(endpoint: &NodeEndpoint, token: &HostToken, report: &Report) -> Vec<Writer> {
    let Some(handover) = &report.propagation else { return Vec::new() };
    let table = endpoint.table();
    let Some(overlay) = table.overlay(&token.namespace, &token.host) else { return Vec::new() };
    let Some(payload) = table.payload(&token.namespace, &overlay.payload) else { return Vec::new() };
    let named = |path: &String| match overlay.paths.iter().any(|own| **own == **path) {
        true => Some(Writer { path: path.clone(), object: format!("Host {}", token.host) }),
        false => payload.writers.iter().find(|writer| writer.path == *path).cloned(),
    };
    handover.blocked_by.iter().filter_map(named).collect()
}
