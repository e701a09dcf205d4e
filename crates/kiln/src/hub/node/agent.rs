//! `/agent/v1/network`: what the agent on a running node asks, and what it tells.
//!
//! | request | answer |
//! |---|---|
//! | `GET /agent/v1/network?wait=SECONDS` with `If-None-Match` | 200 an [`Assignment`] and its `ETag`; 304 the same as before; 404 none yet. Waits for a change at most [`LONGEST_WAIT`] |
//! | `POST /agent/v1/network/report` | 204 when the [`Report`](kiln_core::assignment::Report) is written on the Host |
//! | `POST /agent/v1/network/state` | 204 when the NodeNetworkState says so |
//! | `GET /agent/v1/network/seen` | 200 `{"source": …, "reached": []}`: the hub hears the node |
//! | `GET /agent/v1/network/seen?port=22` | 200 with the port in `reached` when the hub reaches it where the node asks from; 503 with the reason when not; 409 when the assignment names no such port |
//!
//! `/agent/v1/machine` is [`machine`](super::machine)'s, with the same tokens and limits.
//!
//! 400, 401, 405, 408, 413, 429 and 503 as elsewhere here, with `X-Kiln-Reason` and `Retry-After`.
//!
//! A token is good for its own Host only, in its present generation. Any replica answers; who may change is decided by the
//! leader ([`crate::hub::network`]) and read from its records.
//!
//! **Invariant:** the body of a request without a good token is not read, and nothing is written for it.
//! **Invariant:** a node hears that it may go after its slot was written down as taken.
//! **Invariant:** the hub dials ports that a policy names, at the address that asks, and nothing else.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Response, StatusCode};
use futures::StreamExt;
use kiln_apiserver::rate_limit::{Rate, RateLimiter, source_key};
use kiln_core::agent_token::{
    Bearer, Claim, GENERATION_ANNOTATION, LONGEST_REPORT, LONGEST_STATE, PREFIX, Wrong, parse_report, parse_state,
};
use kiln_core::assignment::{Assignment, Permit, Phase, PolicyReference, Probe};
use kiln_core::payload::digest::sha256_hex;
use kiln_core::rollout::Holder;
use kiln_core::timeline::Moment;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};

use super::NodeEndpoint;
use super::fetch::Served;
use super::figures::Tally;
use super::machine;
use super::paths::{one, retry, text};
use crate::hub::controllers::kinds;
use crate::hub::network::plan::{WINDOW, longest_try};
use crate::hub::network::records::{SlotRecord, TAKEN_ANNOTATION, read_told, render_micro};
use crate::hub::network::report::{plan_arrival, plan_report, plan_still_there};
use crate::hub::timeline::{now, update};
use outcome::{OUTCOMES, Outcome};
use table::{Desk, DeskState, Table};
use tries::Tries;

pub mod outcome;
mod state;
pub mod table;
mod tries;

/// The longest wait of a long poll, in seconds.
pub const LONGEST_WAIT: u64 = 55;
/// How long a request waits until its body can be read. Whoever is told to come again loses nothing.
const QUEUE: Duration = Duration::from_secs(5);
/// How long a body may take to arrive.
const PATIENCE: Duration = Duration::from_secs(20);
/// How many large bodies are read at a time.
const READING: usize = 32;
/// When to come again, in seconds.
const SOON: u64 = 5;
/// A node that holds a slot and does not begin loses it after so many seconds.
const LONGEST_HOLD: i64 = 900;
/// A report that is on its way is waited for so many seconds after the end of a slot.
const GRACE: i64 = 15;
/// How long a port of a node may take to answer the hub.
const CONNECT: Duration = Duration::from_secs(3);

/// What a path stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// The assignment.
    Network,
    /// How far the node is.
    Report,
    /// Its network as it is.
    State,
    /// The hub's own view.
    Seen,
    /// Files and units.
    Machine(machine::Path),
}

impl Path {
    pub(super) fn parse(path: &str) -> Option<Path> {
        if let Some(rest) = path.strip_prefix("/agent/v1/machine") {
            return machine::Path::parse(rest).map(Path::Machine);
        }
        Some(match path.strip_prefix("/agent/v1/network")? {
            "" => Path::Network,
            "/report" => Path::Report,
            "/state" => Path::State,
            "/seen" => Path::Seen,
            _ => return None,
        })
    }

    const fn method(self) -> Method {
        match self {
            Path::Network | Path::Seen => Method::GET,
            Path::Report | Path::State => Method::POST,
            Path::Machine(path) => path.method(),
        }
    }
}

/// What the node endpoints know of agents.
pub struct Agents {
    table: Mutex<Table>,
    /// Watches whose first list is not complete.
    unread: AtomicUsize,
    hosts: RateLimiter,
    strangers: RateLimiter,
    reading: Semaphore,
    outcomes: Tally<{ OUTCOMES.len() }>,
    tries: Tries,
    ending: watch::Sender<bool>,
}

impl Answer {
    /// A config, in parts.
    pub(super) fn config(config: Served) -> Answer {
        Answer { config: Some(config), ..answered(Outcome::Served, "") }
    }
}

impl Agents {
    pub(super) fn new(hosts: Rate, strangers: Rate) -> Agents {
        Agents {
            table: Mutex::default(),
            unread: AtomicUsize::new(table::WATCHES),
            hosts: RateLimiter::new(hosts),
            strangers: RateLimiter::new(strangers),
            reading: Semaphore::new(READING),
            outcomes: Tally::new(OUTCOMES.map(Outcome::name)),
            tries: Tries::default(),
            ending: watch::channel(false).0,
        }
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        // Every change is one call that leaves the table whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody waits for a change any more.
    pub(super) fn end(&self) {
        self.ending.send_replace(true);
    }

    pub(super) fn render(&self) -> String {
        self.outcomes.render("kiln_agent_requests_total", "Requests of agents by outcome.") + &self.tries.render()
    }
}

/// What is answered.
pub(super) struct Answer {
    outcome: Outcome,
    said: String,
    /// Sent instead of what is said.
    config: Option<Served>,
    etag: Option<String>,
    wait: Option<u64>,
}

pub(super) fn answered(outcome: Outcome, said: impl Into<String>) -> Answer {
    let wait = matches!(outcome, Outcome::Busy | Outcome::Slow).then_some(SOON);
    Answer { outcome, said: said.into(), config: None, etag: None, wait }
}

pub(super) fn refused(outcome: Outcome, said: impl Into<String>) -> Answer {
    answered(outcome, format!("{}\n", said.into()))
}

fn too_fast(wait: Duration) -> Answer {
    Answer { wait: Some(wait.as_secs() + 1), ..refused(Outcome::Rate, "Too many requests") }
}

pub(super) fn unwritten(error: &kube::Error) -> Answer {
    tracing::debug!(%error, "something an agent said was not written");
    match error {
        kube::Error::Api(status) if status.code == 413 => refused(Outcome::TooLong, "the API does not take so much"),
        kube::Error::Api(status) if status.code == 404 => refused(Outcome::Unauthorized, "Unauthorized"),
        _ => refused(Outcome::Busy, "Try again"),
    }
}

/// Answers one request.
pub(super) async fn answer(
    endpoint: &Arc<NodeEndpoint>,
    path: Path,
    head: &Parts,
    body: Body,
    source: IpAddr,
) -> Response<Body> {
    let Answer { outcome, said, config, etag, wait } = match serve(endpoint, path, head, body, source).await {
        Ok(answer) | Err(answer) => answer,
    };
    let ordinary = matches!(outcome, Outcome::Served | Outcome::Unchanged | Outcome::Taken | Outcome::NotAssigned);
    if let Some(more) = endpoint.agents.outcomes.count(outcome.name())
        && !ordinary
    {
        tracing::warn!(%source, why = outcome.name(), more, "a request of an agent was refused");
    }
    let empty = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&outcome.status());
    let mut response = match config {
        Some(Served { parts, gzip, lost: _ }) => machine::sent(parts, gzip),
        None => text(outcome.status(), if empty { String::new() } else { said }),
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if empty {
        headers.remove(CONTENT_TYPE);
    }
    if outcome == Outcome::Served {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    if let Some(etag) = etag.and_then(|etag| HeaderValue::from_str(&etag).ok()) {
        headers.insert(ETAG, etag);
    }
    if outcome == Outcome::Method {
        let allowed = if path.method() == Method::GET { "GET" } else { "POST" };
        headers.insert(ALLOW, HeaderValue::from_static(allowed));
    }
    retry(&mut response, outcome.name(), wait);
    response
}

/// The Host an agent speaks for.
pub(super) struct Speaker {
    pub(super) namespace: String,
    pub(super) host: String,
    pub(super) object: Value,
}

impl Speaker {
    pub(super) fn id(&self) -> String {
        format!("{}/{}", self.namespace, self.host)
    }
}

async fn serve(
    endpoint: &Arc<NodeEndpoint>,
    path: Path,
    head: &Parts,
    body: Body,
    source: IpAddr,
) -> Result<Answer, Answer> {
    let agents = &endpoint.agents;
    if head.method != path.method() {
        return Err(refused(Outcome::Method, "Method Not Allowed"));
    }
    let speaker = match recognise(endpoint, one(&head.headers, &AUTHORIZATION)).await {
        Err(refused) if refused.outcome == Outcome::Unauthorized => {
            agents.strangers.take(&source_key(source), Instant::now()).map_err(too_fast)?;
            return Err(refused);
        }
        recognised => recognised?,
    };
    agents.hosts.take(&speaker.id(), Instant::now()).map_err(too_fast)?;
    match path {
        Path::Network => assignment(endpoint, &speaker, head).await,
        Path::Report => {
            let bytes = read(endpoint, body, LONGEST_REPORT).await?;
            let report = parse_report(&bytes).map_err(wrong)?;
            let policies = policies_of(endpoint, &speaker, &report.revision);
            let at = now();
            let told = |host: &Value| plan_report(host, &report, policies.as_deref(), at);
            let before = &speaker.object["status"]["network"]["report"];
            let news = before["revision"] != report.revision.as_str()
                || before["phase"] != serde_json::to_value(&report.phase).unwrap_or_default();
            let written = update(&endpoint.client, &speaker.namespace, &speaker.host, told).await;
            written.map_err(|error| unwritten(&error))?;
            if news {
                agents.tries.count(&report);
            }
            Ok(answered(Outcome::Taken, ""))
        }
        Path::State => {
            let bytes = read(endpoint, body, LONGEST_STATE).await?;
            let state = parse_state(&bytes).map_err(wrong)?;
            let written = state::publish(&endpoint.client, &speaker.object, &state, now()).await;
            written.map_err(|error| unwritten(&error))?;
            Ok(answered(Outcome::Taken, ""))
        }
        Path::Seen => seen(endpoint, &speaker, head, source).await,
        Path::Machine(path) => machine::serve(endpoint, path, &speaker, head, body, source).await,
    }
}

pub(super) fn wrong(wrong: Wrong) -> Answer {
    let outcome = if matches!(wrong, Wrong::TooLong(_)) { Outcome::TooLong } else { Outcome::NotRead };
    refused(outcome, wrong.to_string())
}

/// Whose token it is. Whatever has no right code is known by nobody, and the API is not asked about it.
async fn recognise(endpoint: &NodeEndpoint, authorization: Option<&str>) -> Result<Speaker, Answer> {
    let stranger = || refused(Outcome::Unauthorized, "Unauthorized");
    let token = authorization.and_then(|value| value.strip_prefix("Bearer ")).ok_or_else(stranger)?;
    let claim = Some(token).filter(|token| token.starts_with(PREFIX)).and_then(Claim::parse).ok_or_else(stranger)?;
    let key = endpoint.beacons.key().ok_or_else(|| refused(Outcome::Busy, "Try again"))?;
    if !key.verify_agent(&claim) {
        return Err(stranger());
    }
    let Bearer { namespace, host, uid, generation } = claim.bearer;
    let api: Api<DynamicObject> = Api::namespaced_with(endpoint.client.clone(), &namespace, &kinds::HOST.resource());
    let object = api.get_opt(&host).await.map_err(|error| unwritten(&error))?.ok_or_else(stranger)?;
    let object = serde_json::to_value(object).unwrap_or_default();
    if object["metadata"]["uid"] != uid.as_str() || token_generation(&object) != Some(generation) {
        return Err(stranger());
    }
    Ok(Speaker { namespace, host, object })
}

/// The generation of a Host's token; none when nobody can read it, and no token is good then.
pub fn token_generation(host: &Value) -> Option<u64> {
    match &host["metadata"]["annotations"][GENERATION_ANNOTATION] {
        Value::Null => Some(1),
        written => written.as_str()?.parse().ok(),
    }
}

/// Reads a body within bounds.
pub(super) async fn read(endpoint: &NodeEndpoint, body: Body, most: usize) -> Result<Vec<u8>, Answer> {
    // The hub's own load is no fault of the request: a report that is refused for good would be lost.
    let place = tokio::time::timeout(QUEUE, endpoint.agents.reading.acquire()).await;
    let _one_of_few = place.map_err(|_| refused(Outcome::Busy, "Try again"))?;
    let reading = async {
        let mut parts = body.into_data_stream();
        let mut bytes = Vec::new();
        while let Some(part) = parts.next().await {
            let part = part.map_err(|_| refused(Outcome::NotRead, "it broke off"))?;
            if bytes.len() + part.len() > most {
                return Err(wrong(Wrong::TooLong(most)));
            }
            bytes.extend_from_slice(&part);
        }
        Ok(bytes)
    };
    let read = tokio::time::timeout(PATIENCE, reading).await;
    read.unwrap_or_else(|_| Err(refused(Outcome::Slow, "it took too long")))
}

/// The policies of a revision, as long as the hub knows it: it is the present one, or one that is being tried.
fn policies_of(endpoint: &NodeEndpoint, speaker: &Speaker, revision: &str) -> Option<Vec<PolicyReference>> {
    let DeskState { assignment, slot, machine: _ } = endpoint.agents.table().desk(&speaker.id()).get();
    let assigned = assignment.and_then(|record| serde_json::from_str::<Assignment>(&record.text).ok());
    if let Some(assigned) = assigned.filter(|assigned| assigned.revision == revision) {
        return Some(assigned.policies);
    }
    match slot.map(|record| record.slot.holder.clone()) {
        Some(Holder::Change { revision: tried, policies }) if tried == revision => Some(policies),
        _ => None,
    }
}

async fn assignment(endpoint: &Arc<NodeEndpoint>, speaker: &Speaker, head: &Parts) -> Result<Answer, Answer> {
    if speaker.object["status"]["network"]["agent"].is_null() {
        let arrival = |host: &Value| plan_arrival(host, now());
        let written = update(&endpoint.client, &speaker.namespace, &speaker.host, arrival).await;
        written.map_err(|error| unwritten(&error))?;
    }
    if waits_on(endpoint, speaker) {
        // Its last word was that it waits, and it is there: whatever it took its slot for did not begin.
        let touched = |host: &Value| plan_still_there(host, now());
        let written = update(&endpoint.client, &speaker.namespace, &speaker.host, touched).await;
        written.map_err(|error| unwritten(&error))?;
    }
    poll(endpoint, speaker, head, Subject::Network).await
}

/// What an agent waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// Its network.
    Network,
    /// Its files and units.
    Machine,
}

/// Answers when there is something else than the agent knows, or when its time is over.
pub(super) async fn poll(
    endpoint: &NodeEndpoint,
    speaker: &Speaker,
    head: &Parts,
    subject: Subject,
) -> Result<Answer, Answer> {
    let agents = &endpoint.agents;
    let known = one(&head.headers, &IF_NONE_MATCH);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(wait_seconds(head.uri.query()));
    let desk = agents.table().desk(&speaker.id());
    let mut ending = agents.ending.subscribe();
    loop {
        let changed = desk.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let offer = match subject {
            Subject::Network => offer(endpoint, &desk).await,
            Subject::Machine => machine::offer(&desk),
        };
        if let Some((etag, said)) = &offer
            && known != Some(etag.as_str())
        {
            return Ok(Answer { etag: Some(etag.clone()), ..answered(Outcome::Served, said.clone()) });
        }
        let over = tokio::select! {
            () = &mut changed => false,
            () = tokio::time::sleep_until(deadline) => true,
            _ = ending.wait_for(|ending| *ending) => true,
        };
        if !over {
            continue;
        }
        return match offer {
            Some((etag, _)) => Ok(Answer { etag: Some(etag), ..answered(Outcome::Unchanged, "") }),
            None if agents.unread.load(Ordering::Acquire) > 0 => Err(refused(Outcome::Busy, "Try again")),
            None => Err(refused(Outcome::NotAssigned, "the host has no assignment yet")),
        };
    }
}

/// Whether a node asks as ever whose slot is over, and of which nothing but a plan was heard since it took it.
fn waits_on(endpoint: &NodeEndpoint, speaker: &Speaker) -> bool {
    let Some(record) = endpoint.agents.table().desk(&speaker.id()).get().slot else { return false };
    let Holder::Change { revision, .. } = &record.slot.holder else { return false };
    let told = read_told(&speaker.object["status"]["network"]["report"]);
    let waits = told.is_some_and(|told| {
        told.revision == *revision && told.phase == Phase::Planned && told.at <= record.slot.expires
    });
    waits && record.slot.taken && now().0 > record.slot.expires.0.saturating_add(GRACE)
}

/// `wait=30` of a query.
fn wait_seconds(query: Option<&str>) -> u64 {
    let pairs = query.into_iter().flat_map(|query| query.split('&'));
    let wait = pairs.filter_map(|pair| pair.strip_prefix("wait=")).find_map(|wait| wait.parse::<u64>().ok());
    wait.unwrap_or(0).min(LONGEST_WAIT)
}

/// What the node gets now, and what names it.
async fn offer(endpoint: &NodeEndpoint, desk: &Desk) -> Option<(String, String)> {
    let DeskState { assignment, slot, machine: _ } = desk.get();
    let mut assignment: Assignment = serde_json::from_str(&assignment?.text).ok()?;
    let own = slot.filter(
        |record| matches!(&record.slot.holder, Holder::Change { revision, .. } if *revision == assignment.revision),
    );
    let mut since = String::new();
    if let Some(record) = own {
        let longest = longest_try(&assignment.proof);
        assignment.permit = match hold(endpoint, desk, &record, longest, now()).await {
            Some(record) => {
                since = render_micro(record.slot.renewed);
                let left = record.slot.expires.0.saturating_sub(now().0).saturating_sub(longest).clamp(1, WINDOW);
                Permit::Go(left.unsigned_abs() * 1000)
            }
            None => Permit::Wait("the slot is over; say how it ended".into()),
        };
    }
    let permit = match &assignment.permit {
        Permit::Wait(why) => format!("wait {why}"),
        Permit::Go(_) => format!("go {since}"),
    };
    let etag = &sha256_hex(&format!("{} {permit}", assignment.revision))[..32];
    Some((format!("\"{etag}\""), serde_json::to_string(&assignment).unwrap_or_default()))
}

/// Takes a slot, or renews it when too little of it is left. None when it is over, or cannot be written.
async fn hold(
    endpoint: &NodeEndpoint,
    desk: &Desk,
    record: &Arc<SlotRecord>,
    longest: i64,
    now: Moment,
) -> Option<Arc<SlotRecord>> {
    if record.slot.expires <= now {
        return None;
    }
    let left = record.slot.expires.0 - now.0 - longest;
    if record.slot.taken && left >= WINDOW / 2 {
        return Some(Arc::clone(record));
    }
    let held = now.0 - record.acquired.0;
    if record.slot.taken && held > LONGEST_HOLD {
        return (left > 0).then(|| Arc::clone(record));
    }
    let at = render_micro(now);
    let patch = json!({"metadata": {"resourceVersion": record.at.revision, "annotations": {TAKEN_ANNOTATION: at}},
        "spec": {"renewTime": at}});
    let namespace = &record.at.namespace;
    let api: Api<DynamicObject> = Api::namespaced_with(endpoint.client.clone(), namespace, &kinds::LEASE.resource());
    let parameters = PatchParams { field_manager: Some("kiln-node".into()), ..PatchParams::default() };
    match api.patch(&record.at.name, &parameters, &Patch::Merge(patch)).await {
        Ok(object) => {
            let object = serde_json::to_value(object).unwrap_or_default();
            let taken = Arc::new(SlotRecord::read(&object)?);
            // The watch will say the same.
            desk.put(|state| state.slot = Some(Arc::clone(&taken)));
            Some(taken)
        }
        Err(error) => {
            tracing::debug!(%error, slot = record.at.name, "a slot was not taken");
            (record.slot.taken && left > 0).then(|| Arc::clone(record))
        }
    }
}

/// The hub's own view of a node: that it hears it, or whether it reaches a port of it.
async fn seen(endpoint: &NodeEndpoint, speaker: &Speaker, head: &Parts, source: IpAddr) -> Result<Answer, Answer> {
    let Some(asked) = port_asked(head.uri.query()) else {
        return Ok(answered(Outcome::Served, json!({"source": source, "reached": []}).to_string()));
    };
    let assigned = endpoint.agents.table().desk(&speaker.id()).get().assignment;
    let assigned = assigned.and_then(|record| serde_json::from_str::<Assignment>(&record.text).ok());
    let probes = assigned.map(|assigned| assigned.proof.probes).unwrap_or_default();
    let named = asked.filter(|port| probes.contains(&Probe::FromHub(*port)));
    let port = named.ok_or_else(|| refused(Outcome::Superseded, "no policy of this host names the port"))?;
    let connect = tokio::net::TcpStream::connect(SocketAddr::new(source, port));
    match tokio::time::timeout(CONNECT, connect).await {
        Ok(Ok(_)) => Ok(answered(Outcome::Served, json!({"source": source, "reached": [port]}).to_string())),
        Ok(Err(error)) => {
            Err(refused(Outcome::NotSeen, format!("the hub does not reach {source} port {port}: {error}")))
        }
        Err(_) => Err(refused(Outcome::NotSeen, format!("{source} port {port} does not answer the hub"))),
    }
}

/// `port=22` of a query, if it asks for one; nothing in it when that is no port.
fn port_asked(query: Option<&str>) -> Option<Option<u16>> {
    let mut pairs = query?.split('&').filter_map(|pair| pair.strip_prefix("port="));
    pairs.next().map(|port| port.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_has_an_end() {
        for (query, expected) in [
            (None, 0),
            (Some("wait=30"), 30),
            (Some("x=1&wait=9"), 9),
            (Some("wait=9999"), LONGEST_WAIT),
            (Some("wait=-1"), 0),
            (Some("wait"), 0),
        ] {
            assert_eq!(wait_seconds(query), expected, "{query:?}");
        }
    }

    #[test]
    fn one_port_at_a_time_is_asked_for() {
        for (query, expected) in [
            (None, None),
            (Some("wait=3"), None),
            (Some("port=22"), Some(Some(22))),
            (Some("wait=3&port=6443&port=1"), Some(Some(6443))),
            (Some("port="), Some(None)),
            (Some("port=10.0.0.1:22"), Some(None)),
            (Some("port=65536"), Some(None)),
        ] {
            assert_eq!(port_asked(query), expected, "{query:?}");
        }
    }

    #[test]
    fn the_generation_of_a_token_is_one_until_somebody_counts_it_up() {
        for (annotations, expected) in [
            (Value::Null, Some(1)),
            (json!({GENERATION_ANNOTATION: "3"}), Some(3)),
            (json!({GENERATION_ANNOTATION: "x"}), None),
            (json!({GENERATION_ANNOTATION: 3}), None),
        ] {
            let host = json!({"metadata": {"annotations": annotations}});
            assert_eq!(token_generation(&host), expected, "{host}");
        }
    }
}
