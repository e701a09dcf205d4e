//! One fetch, from the token to the bytes: recognise, judge, compose, use the token up, send.
//!
//! What can be decided without writing is decided from memory; only a good token of a host writes, and it writes before
//! anything leaves: with the revision it was judged by, so that of two replicas one is told to look again. Whoever shows
//! a token nobody knows makes it write nothing at all.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln_core::boot_token::{BootRecord, BootToken, Judgement, Readiness, Refusal, Use, judge};
use kiln_core::ignition::SpecVersion;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::NodeEndpoint;
use super::figures::Outcome;
use super::prepared::{Unusable, pack};
use super::table::{HostToken, Item, Overlay, Payload, PoolToken, Token};
use super::witness::Testimony;
use crate::hub::boot_secrets::{hash_token, parse_record, render_record};
use crate::hub::controllers::kinds;
use crate::hub::pools::label;
use crate::hub::timeline::now;

/// How often the use of a token is written again when somebody else was faster.
const TRIES: u32 = 8;
/// How long the API may take to write the use of a token: a machine gives up after ten seconds.
const PATIENCE: Duration = Duration::from_secs(8);

/// What is asked for.
#[derive(Clone)]
pub struct Asked<'a> {
    /// The header `Authorization`. Secret.
    pub authorization: Option<&'a str>,
    /// Where the request comes from.
    pub source: IpAddr,
    /// Which spec version.
    pub version: Wanted,
    /// Whether gzip may be sent.
    pub gzip: bool,
    /// Whether the body is wanted: a look at the head uses nothing up.
    pub body: bool,
    /// The pool the path names.
    pub pool: Option<&'a str>,
}

impl std::fmt::Debug for Asked<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Asked { authorization, source, version, gzip, body, pool } = self;
        let authorization = authorization.map(|_| "…");
        f.debug_struct("Asked")
            .field("authorization", &authorization)
            .field("source", source)
            .field("version", version)
            .field("gzip", gzip)
            .field("body", body)
            .field("pool", pool)
            .finish()
    }
}

/// Which spec version is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// What there is, unless it is newer.
    AtMost(SpecVersion),
    /// Just this one.
    Exactly(SpecVersion),
}

impl Wanted {
    fn of(self, written: SpecVersion) -> SpecVersion {
        match self {
            Wanted::Exactly(version) => version,
            Wanted::AtMost(newest) if written.is_v2() => newest,
            Wanted::AtMost(newest) => written.min(newest),
        }
    }
}

/// A config on its way. It has secrets in it.
pub struct Served {
    /// The body.
    pub parts: Vec<Bytes>,
    /// Whether it is in gzip.
    pub gzip: bool,
    /// How many fields were lost because the version does not have them.
    pub lost: usize,
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Served").field("gzip", &self.gzip).field("lost", &self.lost).finish_non_exhaustive()
    }
}

/// Why nothing is sent, and when to come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denied {
    /// Why.
    pub outcome: Outcome,
    /// In seconds.
    pub retry_after: Option<u64>,
}

impl From<Outcome> for Denied {
    fn from(outcome: Outcome) -> Denied {
        let retry_after = match outcome {
            Outcome::Refused(Refusal::Pending) | Outcome::Store | Outcome::Rate => Some(5),
            Outcome::Refused(Refusal::Unknown) => Some(15),
            Outcome::Refused(_) | Outcome::Alarm | Outcome::Invalid => Some(60),
            _ => None,
        };
        Denied { outcome, retry_after }
    }
}

/// Answers one fetch. Counts and tells what must be counted and told.
pub async fn fetch(endpoint: &Arc<NodeEndpoint>, asked: &Asked<'_>) -> Result<Served, Denied> {
    let result = try_fetch(endpoint, asked).await;
    if let Err(denied) = &result
        && let Some(more) = endpoint.figures.count(denied.outcome)
    {
        let (source, why) = (asked.source, denied.outcome.name());
        tracing::warn!(%source, why, more, "a machine did not get its config");
    }
    result
}

async fn try_fetch(endpoint: &Arc<NodeEndpoint>, asked: &Asked<'_>) -> Result<Served, Denied> {
    let Some(text) = asked.authorization.and_then(parse_bearer) else {
        return Err(endpoint.stranger(asked.source, Outcome::Unauthorized));
    };
    let token = endpoint.table().token(&hash_token(&text));
    match token {
        None => Err(endpoint.stranger(asked.source, Outcome::Refused(Refusal::Unknown))),
        Some(Token::Pool(token)) => fetch_pool(endpoint, asked, token).await,
        Some(Token::Host(token)) => fetch_host(endpoint, asked, token).await,
    }
}

/// The token of `Bearer BASE64`, or of `Bearer kiln-…` as it is.
pub(super) fn parse_bearer(header: &str) -> Option<String> {
    let value = header.strip_prefix("Bearer ")?;
    if let Ok(token) = value.parse::<BootToken>() {
        return Some(token.text().to_owned());
    }
    // What is no text is no token, but it is base64: it is unknown, not unauthorized.
    Some(String::from_utf8_lossy(&STANDARD.decode(value).ok()?).into_owned())
}

async fn fetch_pool(endpoint: &Arc<NodeEndpoint>, asked: &Asked<'_>, token: Arc<PoolToken>) -> Result<Served, Denied> {
    endpoint.pace_pool(asked.source)?;
    if token.expires.is_some_and(|expires| expires <= now()) {
        return Err(Outcome::Refused(Refusal::Expired).into());
    }
    let payload = endpoint.table().payload(&token.namespace, &token.payload);
    let payload = payload.ok_or(Denied::from(Outcome::Refused(Refusal::Pending)))?;
    check_pool(asked, &payload)?;
    let served = compose(endpoint, &payload, None, asked).await?;
    if !asked.body {
        return Ok(served);
    }
    endpoint.figures.count(Outcome::ServedPool);
    endpoint.figures.pool_served(&token.node_pool);
    if !token.reached.swap(true, Ordering::Relaxed) {
        endpoint.tell(Testimony::Reached(token)).await;
    }
    Ok(served)
}

async fn fetch_host(endpoint: &Arc<NodeEndpoint>, asked: &Asked<'_>, token: Arc<HostToken>) -> Result<Served, Denied> {
    endpoint.pace_host(&token.record.hash)?;
    let (overlay, payload) = {
        let table = endpoint.table();
        let overlay = table.overlay(&token.namespace, &token.host);
        let payload = overlay.as_ref().and_then(|overlay| table.payload(&token.namespace, &overlay.payload));
        (overlay, payload)
    };
    let readiness = if payload.is_some() { Readiness::Ready } else { Readiness::Pending };
    let write = match judge(Some(&token.record), asked.source, readiness, now()) {
        Judgement::Serve { write } => write,
        other => return Err(denied(endpoint, &token, asked.source, &other)),
    };
    let (Some(overlay), Some(payload)) = (overlay, payload) else {
        return Err(Outcome::Refused(Refusal::Pending).into());
    };
    check_pool(asked, &payload)?;
    let overlay = endpoint.beacons.equip(overlay, &token);
    let overlay = endpoint.beacons.introduce(overlay, &token, &payload);
    let overlay = overlay.ok_or(Denied::from(Outcome::Refused(Refusal::Pending)))?;
    let served = compose(endpoint, &payload, Some(&overlay), asked).await?;
    if !asked.body {
        return Ok(served);
    }
    // Whoever asks again may get another config than the first time: that is written, too.
    let write = write.or_else(|| (token.payload.as_ref() != Some(&overlay.payload)).then_some(token.record));
    if let Some(record) = write {
        let using = use_up(endpoint, &token, record, &overlay.payload, asked.source);
        let (token, first) = match tokio::time::timeout(PATIENCE, using).await {
            Ok(used) => used?,
            Err(_) => return Err(Outcome::Store.into()),
        };
        tracing::info!(namespace = token.namespace, host = token.host, source = %asked.source, generation = token.record.generation, "a host fetched its config");
        endpoint.tell(Testimony::Fetched(token, first)).await;
    }
    endpoint.figures.count(Outcome::ServedHost);
    Ok(served)
}

/// Writes the use of a token. When somebody else was faster, what they wrote is judged anew.
async fn use_up(
    endpoint: &Arc<NodeEndpoint>,
    token: &Arc<HostToken>,
    record: BootRecord,
    payload: &str,
    source: IpAddr,
) -> Result<(Arc<HostToken>, Use), Denied> {
    let store = Denied::from(Outcome::Store);
    let api: Api<DynamicObject> =
        Api::namespaced_with(endpoint.client.clone(), &token.namespace, &kinds::SECRET.resource());
    let parameters = PatchParams { field_manager: Some("kiln-node".into()), ..PatchParams::default() };
    let failed = |error: kube::Error| {
        tracing::warn!(%error, namespace = token.namespace, host = token.host, "the use of a token was not written");
        store
    };
    let (mut revision, mut record) = (token.revision.clone(), record);
    for _ in 0..TRIES {
        let data = render_record(&record);
        let patch = json!({"metadata": {"resourceVersion": revision},
            "data": {"used": data["used"], "source": data["source"], "payload": STANDARD.encode(payload)}});
        let error = match api.patch(&token.secret, &parameters, &Patch::Merge(patch)).await {
            Ok(object) => {
                let used = HostToken {
                    revision: object.metadata.resource_version.unwrap_or_default(),
                    record,
                    payload: Some(payload.to_owned()),
                    ..HostToken::clone(token)
                };
                return remember(endpoint, used).ok_or(store);
            }
            Err(error) => error,
        };
        match &error {
            kube::Error::Api(status) if status.code == 404 => return Err(Outcome::Refused(Refusal::Revoked).into()),
            kube::Error::Api(status) if status.code == 409 => {}
            _ => return Err(failed(error)),
        }
        let Some(object) = api.get_opt(&token.secret).await.map_err(failed)? else {
            return Err(Outcome::Refused(Refusal::Revoked).into());
        };
        // Another token in its place: this one was replaced.
        let Some(fresh) = parse_record(&object.data["data"]).filter(|fresh| fresh.hash == token.record.hash) else {
            return Err(Outcome::Refused(Refusal::Revoked).into());
        };
        revision = object.metadata.resource_version.unwrap_or_default();
        let fresh = HostToken { revision: revision.clone(), record: fresh, ..HostToken::clone(token) };
        match judge(Some(&fresh.record), source, Readiness::Ready, now()) {
            Judgement::Serve { write: Some(again) } => record = again,
            Judgement::Serve { write: None } => return remember(endpoint, fresh).ok_or(store),
            other => {
                let refused = denied(endpoint, &Arc::new(fresh.clone()), source, &other);
                remember(endpoint, fresh);
                return Err(refused);
            }
        }
    }
    Err(store)
}

/// Takes what was written into the table without waiting for the watch.
fn remember(endpoint: &NodeEndpoint, token: HostToken) -> Option<(Arc<HostToken>, Use)> {
    let first = token.record.used;
    let token = Arc::new(token);
    endpoint.table_mut().put((token.namespace.clone(), token.secret.clone()), Item::Host(Arc::clone(&token)));
    Some((token, first?))
}

/// What a judgement other than serving means; an alarm is told to the Host, and so is a token that will never be good again.
fn denied(endpoint: &NodeEndpoint, token: &Arc<HostToken>, source: IpAddr, judgement: &Judgement) -> Denied {
    match judgement {
        Judgement::Refuse(refusal) => {
            let dead = matches!(refusal, Refusal::Expired | Refusal::Revoked | Refusal::Used);
            if dead && endpoint.may_alarm(&token.record.hash, Instant::now()) {
                endpoint.try_tell(Testimony::Dead { token: Arc::clone(token), source, at: now() });
            }
            Outcome::Refused(*refusal).into()
        }
        Judgement::Serve { .. } => Outcome::Store.into(),
        Judgement::Alarm { first } => {
            if endpoint.may_alarm(&token.record.hash, Instant::now()) {
                let (namespace, host, known) = (&token.namespace, &token.host, first.source);
                tracing::error!(namespace, host, %source, %known, "a boot token was shown by a second machine");
                endpoint.try_tell(Testimony::Alarm { token: Arc::clone(token), first: *first, source, at: now() });
            }
            Outcome::Alarm.into()
        }
    }
}

fn check_pool(asked: &Asked<'_>, payload: &Payload) -> Result<(), Denied> {
    match asked.pool {
        Some(pool) if label(pool) != payload.pool => Err(Outcome::OtherPool.into()),
        _ => Ok(()),
    }
}

pub(super) async fn compose(
    endpoint: &Arc<NodeEndpoint>,
    payload: &Arc<Payload>,
    overlay: Option<&Arc<Overlay>>,
    asked: &Asked<'_>,
) -> Result<Served, Denied> {
    let unusable = |why: Unusable| {
        tracing::debug!(%why, "a config cannot be served");
        Denied::from(Outcome::Invalid)
    };
    let source = payload.source.as_ref().map_err(|why| unusable(why.clone()))?;
    let version = asked.version.of(source.version);
    let rendered = payload.rendered(version).await.map_err(unusable)?;
    let spliced = overlay.is_none_or(|overlay| {
        overlay.files.is_empty() && overlay.config.is_none()
            || overlay.config.is_none()
                && overlay.plain
                && !version.is_v2()
                && rendered.takes_files()
                && !source.has_any(&overlay.paths)
    });
    let gzip = asked.gzip;
    if spliced {
        let files = overlay.map(|overlay| &overlay.files);
        let parts = if gzip { rendered.packed_body(files) } else { rendered.body(files) };
        let parts = parts.ok_or(Denied::from(Outcome::Invalid))?;
        return Ok(Served { parts, gzip, lost: rendered.lost });
    }
    let Some(overlay) = overlay else { return Err(Outcome::Invalid.into()) };
    let body = endpoint.composed(payload, overlay, version).await.map_err(unusable)?;
    let parts = if gzip { pack(&body) } else { vec![body] };
    Ok(Served { parts, gzip, lost: rendered.lost })
}

/// Composes on a thread of its own; the caller bounds how many at a time.
pub(super) fn compose_slowly(payload: &Payload, overlay: &Overlay, version: SpecVersion) -> Result<Bytes, Unusable> {
    let source = payload.source.as_ref().map_err(Clone::clone)?;
    let list = [b"[", overlay.files.as_ref(), b"]"].concat();
    let files: Vec<Value> = serde_json::from_slice(&list).map_err(|_| Unusable::Unpack)?;
    source.compose(&files, overlay.config.as_deref(), version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_is_base64_or_a_boot_token_as_it_is() {
        let token = BootToken::of_random([3; 32]);
        let encoded = STANDARD.encode(token.text());
        for (header, expected) in [
            (format!("Bearer {encoded}"), Some(token.text())),
            (format!("Bearer {}", token.text()), Some(token.text())),
            (format!("bearer {encoded}"), None),
            (format!("Basic {encoded}"), None),
            (format!("Bearer  {encoded}"), None),
            (format!("Bearer {}", &encoded[1..]), None),
            ("Bearer %%%".into(), None),
            ("Bearer /w==".into(), Some("\u{fffd}")),
            ("Bearer ".into(), Some("")),
            ("Bearer".into(), None),
        ] {
            assert_eq!(parse_bearer(&header).as_deref(), expected, "{header}");
        }
    }

    #[test]
    fn no_token_is_printed_by_accident() {
        let version = Wanted::Exactly(SpecVersion::V3_2);
        let source = IpAddr::from([192, 0, 2, 1]);
        let asked = Asked { authorization: Some("Bearer abc"), source, version, gzip: false, body: true, pool: None };
        let printed = format!("{asked:?}");
        assert!(printed.contains("192.0.2.1") && !printed.contains("abc"), "{printed}");
    }

    #[test]
    fn a_newer_ignition_gets_what_there_is_and_an_older_one_what_it_reads() {
        let (old, new) = (SpecVersion::V3_2, SpecVersion::V3_4);
        assert_eq!(Wanted::AtMost(new).of(old), old);
        assert_eq!(Wanted::AtMost(old).of(new), old);
        assert_eq!(Wanted::AtMost(old).of(SpecVersion::V2_2), old);
        assert_eq!(Wanted::Exactly(new).of(old), new);
    }
}
