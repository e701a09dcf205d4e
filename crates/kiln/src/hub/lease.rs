//! Leader election on a Lease: of several replicas one leads, and never two at once.
//!
//! Clocks of different machines are never compared. A contender takes a Lease over when it has seen it unchanged for as
//! long as its holder promised to renew it, by its own clock. The leader stops before that: when its last successful
//! renewal was *sent* longer ago than [`Terms::renew_within`], which is shorter than the promise. The time in the Lease is
//! for people. Each write names the revision it replaces, so of two contenders one is refused.
//!
//! What leads is a future that is dropped when leadership ends: its requests end with it. A request that is already on
//! its way may still arrive; controllers' writes name the revision they were made for, so it changes nothing it should not.

use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::{Client, Error};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::macros::format_description;
use tokio::sync::watch;

/// How long things take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// What the leader promises: without a renewal for so long, others may take over. Whole seconds.
    pub duration: Duration,
    /// The leader stops when it has not managed to renew for so long.
    pub renew_within: Duration,
    /// How often it is renewed, and looked at by the others.
    pub retry: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        Terms {
            duration: Duration::from_secs(15),
            renew_within: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// One contender.
#[derive(Debug, Clone)]
pub struct Contender {
    api: Api<DynamicObject>,
    name: String,
    identity: String,
    terms: Terms,
    /// What this machine takes for the time; only written, never compared.
    wall_clock: fn() -> OffsetDateTime,
}

/// A Lease as it was seen.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    object: Value,
    /// When this state was first seen.
    at: Instant,
}

/// What a contender does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// There is no Lease.
    Create,
    /// It is free, or its holder has gone.
    Take,
    /// Somebody leads.
    Wait,
}

impl Contender {
    /// A contender for the Lease `name`.
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str, terms: Terms) -> Contender {
        let resource = ApiResource {
            group: "coordination.k8s.io".into(),
            version: "v1".into(),
            api_version: "coordination.k8s.io/v1".into(),
            kind: "Lease".into(),
            plural: "leases".into(),
        };
        let api = Api::namespaced_with(client, namespace, &resource);
        let wall_clock = OffsetDateTime::now_utc;
        Contender { api, name: name.into(), identity: identity.into(), terms, wall_clock }
    }

    /// With another idea of the time.
    pub fn with_wall_clock(self, wall_clock: fn() -> OffsetDateTime) -> Contender {
        Contender { wall_clock, ..self }
    }

    /// Leads whenever it can, until it is told to stop or what leads ends by itself.
    pub async fn run<Leading: Future<Output = ()>>(&self, stop: watch::Receiver<bool>, lead: impl Fn() -> Leading) {
        let mut stopping = stop;
        let mut held = None;
        tokio::select! {
            () = self.contend(&mut held, lead) => {}
            _ = stopping.wait_for(|stop| *stop) => {}
        }
        if let Some(lease) = held {
            self.release(lease).await;
        }
    }

    async fn contend<Leading: Future<Output = ()>>(&self, held: &mut Option<Value>, lead: impl Fn() -> Leading) {
        let mut seen: Option<Seen> = None;
        loop {
            match self.try_take(&mut seen).await {
                Some((sent, lease)) => {
                    tracing::info!(lease = self.name, identity = self.identity, "leading");
                    *held = Some(lease);
                    let ended = {
                        let mut leading = pin!(lead());
                        tokio::select! {
                            () = &mut leading => true,
                            () = self.keep(held, sent) => false,
                        }
                    };
                    if ended {
                        return;
                    }
                    *held = None;
                    seen = None;
                    tracing::warn!(
                        lease = self.name,
                        identity = self.identity,
                        "leadership is lost; the controllers stopped"
                    );
                }
                None => tokio::time::sleep(self.terms.retry).await,
            }
        }
    }

    /// Looks at the Lease and takes it if that is allowed. Gives when the request was sent, and the Lease.
    async fn try_take(&self, seen: &mut Option<Seen>) -> Option<(Instant, Value)> {
        let object = match tokio::time::timeout(self.terms.renew_within, self.api.get_opt(&self.name)).await {
            Ok(Ok(object)) => object.map(|object| serde_json::to_value(object).unwrap_or_default()),
            Ok(Err(error)) => {
                tracing::debug!(%error, "cannot read the lease");
                return None;
            }
            Err(_) => return None,
        };
        // The time of a state that did not change is the time it was first seen.
        *seen = object.map(|object| match seen.take() {
            Some(known) if known.object == object => known,
            _ => Seen { object, at: Instant::now() },
        });
        let lease = match self.plan(seen.as_ref(), Instant::now()) {
            Step::Wait => return None,
            Step::Create => self.lease(None),
            Step::Take => self.lease(seen.as_ref().map(|seen| &seen.object)),
        };
        let sent = Instant::now();
        let taken = tokio::time::timeout(self.terms.renew_within, self.write(lease)).await.ok()?;
        taken
            .inspect_err(|error| tracing::debug!(%error, "somebody else took the lease"))
            .ok()
            .map(|lease| (sent, lease))
    }

    fn plan(&self, seen: Option<&Seen>, now: Instant) -> Step {
        let Some(seen) = seen else { return Step::Create };
        let spec = &seen.object["spec"];
        let holder = spec["holderIdentity"].as_str().unwrap_or_default();
        let promised = spec["leaseDurationSeconds"].as_u64().map_or(self.terms.duration, Duration::from_secs);
        let gone = now.saturating_duration_since(seen.at) > promised;
        if holder.is_empty() || holder == self.identity || gone { Step::Take } else { Step::Wait }
    }

    /// Renews until that fails for too long or somebody else leads.
    async fn keep(&self, held: &mut Option<Value>, mut renewed: Instant) {
        loop {
            let rest = self.terms.renew_within.saturating_sub(renewed.elapsed());
            if rest.is_zero() {
                return;
            }
            tokio::time::sleep(self.terms.retry.min(rest)).await;
            let sent = Instant::now();
            let rest = self.terms.renew_within.saturating_sub(renewed.elapsed());
            let written = tokio::time::timeout(rest, self.write(self.lease(held.as_ref()))).await;
            match written {
                Ok(Ok(lease)) => {
                    renewed = sent;
                    *held = Some(lease);
                }
                // It may be our own earlier write whose answer was lost, or somebody else's: look.
                Ok(Err(Error::Api(status))) if status.code == 409 => {
                    let rest = self.terms.renew_within.saturating_sub(renewed.elapsed());
                    match tokio::time::timeout(rest, self.api.get(&self.name)).await {
                        Ok(Ok(object)) if object.data["spec"]["holderIdentity"] == self.identity.as_str() => {
                            *held = serde_json::to_value(object).ok();
                        }
                        Ok(Ok(_)) => return,
                        Ok(Err(_)) | Err(_) => {}
                    }
                }
                Ok(Err(error)) => tracing::debug!(%error, "the lease was not renewed"),
                Err(_) => {}
            }
        }
    }

    /// The Lease as this contender writes it over another state, or anew.
    fn lease(&self, over: Option<&Value>) -> Value {
        let old = over.map_or(&Value::Null, |object| &object["spec"]);
        let time = render_micro_time((self.wall_clock)());
        let mine = old["holderIdentity"] == self.identity.as_str();
        let transitions = old["leaseTransitions"].as_i64().unwrap_or(0) + i64::from(over.is_some() && !mine);
        let acquired = if mine { old["acquireTime"].clone() } else { json!(time) };
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self.name,
                "resourceVersion": over.map(|object| object["metadata"]["resourceVersion"].clone()),
            },
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": self.terms.duration.as_secs().max(1),
                "acquireTime": acquired,
                "renewTime": time,
                "leaseTransitions": transitions,
            },
        })
    }

    async fn write(&self, lease: Value) -> Result<Value, Error> {
        let anew = lease["metadata"]["resourceVersion"].is_null();
        let object: DynamicObject = serde_json::from_value(lease).map_err(Error::SerdeError)?;
        let options = PostParams { field_manager: Some("kiln-lease".into()), ..PostParams::default() };
        let written = match anew {
            true => self.api.create(&options, &object).await?,
            false => self.api.replace(&self.name, &options, &object).await?,
        };
        serde_json::to_value(written).map_err(Error::SerdeError)
    }

    /// Lets go at once, so that nobody has to wait for a leader that ended well.
    async fn release(&self, held: Value) {
        let mut lease = self.lease(Some(&held));
        lease["spec"]["holderIdentity"] = json!("");
        let released = tokio::time::timeout(Duration::from_secs(2), self.write(lease)).await;
        if !matches!(released, Ok(Ok(_))) {
            tracing::debug!(lease = self.name, "the lease was not released; others wait until it ends");
        }
    }
}

/// Six digits, neither more nor fewer: a real API server refuses anything else.
fn render_micro_time(time: OffsetDateTime) -> String {
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");
    time.to_offset(time::UtcOffset::UTC).format(&format).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contender() -> Contender {
        let service = tower::service_fn(|_: axum::http::Request<kube::client::Body>| async {
            Ok::<_, std::convert::Infallible>(axum::http::Response::new(axum::body::Body::empty()))
        });
        Contender::new(Client::new(service, "default"), "default", "kiln", "me", Terms::default())
    }

    #[tokio::test]
    async fn a_lease_is_taken_only_when_it_is_free_or_was_not_renewed_while_we_looked() {
        let start = Instant::now();
        let held = |holder: &str, seconds: Value| Seen {
            object: json!({"spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": "1970-01-01T00:00:00.000000Z"}}),
            at: start,
        };
        let table = [
            (None, 0, Step::Create),
            (Some(held("", json!(15))), 0, Step::Take),
            (Some(held("me", json!(15))), 0, Step::Take),
            // a renewal that is fifty years old by the clock proves nothing
            (Some(held("other", json!(15))), 0, Step::Wait),
            (Some(held("other", json!(15))), 15, Step::Wait),
            (Some(held("other", json!(15))), 16, Step::Take),
            (Some(held("other", json!(60))), 16, Step::Wait),
            (Some(held("other", Value::Null)), 16, Step::Take),
        ];
        for (seen, later, expected) in table {
            let step = contender().plan(seen.as_ref(), start + Duration::from_secs(later));
            assert_eq!(step, expected, "{seen:?} after {later} s");
        }
    }

    #[tokio::test]
    async fn transitions_count_changes_of_the_holder_only() {
        let contender = contender();
        let old = json!({"metadata": {"resourceVersion": "7"}, "spec": {"holderIdentity": "other", "leaseTransitions": 3, "acquireTime": "x"}});
        let taken = contender.lease(Some(&old));
        assert_eq!(taken["spec"]["leaseTransitions"], 4);
        assert_eq!(taken["metadata"]["resourceVersion"], "7");
        assert_eq!(contender.lease(Some(&taken))["spec"]["leaseTransitions"], 4);
        assert_eq!(contender.lease(Some(&taken))["spec"]["acquireTime"], taken["spec"]["acquireTime"]);
        assert_eq!(contender.lease(None)["spec"]["leaseTransitions"], 0);
    }

    #[test]
    fn a_micro_time_has_six_digits_even_when_they_are_zero() {
        assert_eq!(render_micro_time(OffsetDateTime::UNIX_EPOCH), "1970-01-01T00:00:00.000000Z");
        let time = OffsetDateTime::UNIX_EPOCH + time::Duration::nanoseconds(1_234_567);
        assert_eq!(render_micro_time(time), "1970-01-01T00:00:00.001234Z");
    }
}
