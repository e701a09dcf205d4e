//! What happened at the endpoints, written to the objects it is about: `status.provision` and the timeline of a Host, the
//! annotation of a pool's token.
//!
//! A machine does not wait for it: its token was used durably before. What a crash swallows is written after the next
//! start, from the tokens that were used a short while before. The queue has a bound, and a fetch waits for room in it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt;
use kiln_core::boot_token::{BootRecord, Use};
use kiln_core::timeline::{Entry, Moment, Stage};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::NodeEndpoint;
use super::table::{HostToken, PoolToken, REACHED_ANNOTATION};
use crate::hub::beacon::{Reported, plan_report};
use crate::hub::controllers::kinds;
use crate::hub::timeline::{record_with, render_time, update};

/// How many wait to be written.
pub const QUEUE: usize = 4096;
/// How many are written at a time.
const CONCURRENCY: usize = 16;
/// How often something is tried.
const TRIES: u32 = 6;
/// The wait after the first failure; doubled each time.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// Who saw it.
const WITNESS: &str = "ignition endpoint";

/// Something that happened.
#[derive(Debug)]
pub enum Testimony {
    /// A host got its config.
    Fetched(Arc<HostToken>, Use),
    /// Somebody else showed its token.
    Alarm {
        /// Whose token.
        token: Arc<HostToken>,
        /// The first fetch.
        first: Use,
        /// The second source.
        source: IpAddr,
        /// When.
        at: Moment,
    },
    /// A machine shows a token of this host that is not good any more, and will do so for ever.
    Dead {
        /// Whose token.
        token: Arc<HostToken>,
        /// Where the machine is.
        source: IpAddr,
        /// When.
        at: Moment,
    },
    /// A machine of a pool got its config.
    Reached(Arc<PoolToken>),
    /// A machine said how far its boot has come.
    Reported(Box<Reported>),
}

/// Writes down what comes in until the queue is closed.
pub async fn write_testimonies(endpoint: Arc<NodeEndpoint>, queue: mpsc::Receiver<Testimony>) {
    let all = futures::stream::unfold(queue, async |mut queue| Some((queue.recv().await?, queue)));
    all.for_each_concurrent(CONCURRENCY, async |testimony| write(&endpoint, &testimony).await).await;
}

async fn write(endpoint: &NodeEndpoint, testimony: &Testimony) {
    let mut wait = FIRST_WAIT;
    for attempt in 1..=TRIES {
        let error = match try_write(endpoint, testimony).await {
            Ok(()) => return,
            Err(error) => error,
        };
        // A host that was not declared, or is gone, has nowhere to write to.
        let gone = matches!(&error, kube::Error::Api(status) if status.code == 404);
        if gone || attempt == TRIES {
            endpoint.figures.witness_failed();
            tracing::warn!(%error, about = about(testimony), "what a machine did could not be written down");
            return;
        }
        tokio::time::sleep(wait).await;
        wait *= 2;
    }
}

fn about(testimony: &Testimony) -> String {
    match testimony {
        Testimony::Fetched(token, _) | Testimony::Alarm { token, .. } | Testimony::Dead { token, .. } => {
            format!("Host {}/{}", token.namespace, token.host)
        }
        Testimony::Reached(token) => format!("Secret {}/{}", token.namespace, token.secret),
        Testimony::Reported(reported) => format!("Host {}/{}", reported.namespace, reported.host),
    }
}

async fn try_write(endpoint: &NodeEndpoint, testimony: &Testimony) -> Result<(), kube::Error> {
    let client = &endpoint.client;
    match testimony {
        Testimony::Fetched(token, first) => {
            let (generation, Use { at, source }) = (token.record.generation, *first);
            let cause = format!("{source} fetched the config of generation {generation}");
            let entry = Entry::reached(Stage::IgnitionFetched, at, WITNESS, cause);
            let payload = token.payload.as_deref();
            let served = payload.and_then(|payload| endpoint.table().payload(&token.namespace, payload));
            let user = served.and_then(|served| endpoint.beacons.user(token, &served));
            let more = |status: &Value| fetched(&status["provision"], generation, *first, payload, user.as_deref());
            record_with(client, &token.namespace, &token.host, &entry, more).await.map(drop)
        }
        Testimony::Alarm { token, first, source, at } => {
            let cause = alarm(token.record.generation, *first, *source);
            let entry = Entry::failed(Stage::IgnitionFetched, *at, WITNESS, cause.clone());
            let more = |status: &Value| {
                (status["provision"]["alarm"] != cause.as_str()).then(|| json!({"provision": {"alarm": cause}}))
            };
            record_with(client, &token.namespace, &token.host, &entry, more).await.map(drop)
        }
        Testimony::Dead { token, source, at } => {
            let cause = dead(&token.record, &token.host, *source);
            let entry = Entry::failed(Stage::IgnitionFetched, *at, WITNESS, cause);
            record_with(client, &token.namespace, &token.host, &entry, |_| None).await.map(drop)
        }
        Testimony::Reached(token) => {
            let api: Api<DynamicObject> =
                Api::namespaced_with(client.clone(), &token.namespace, &kinds::SECRET.resource());
            let patch = json!({"metadata": {"annotations": {REACHED_ANNOTATION: "True"}}});
            let parameters = PatchParams { field_manager: Some("kiln-node".into()), ..PatchParams::default() };
            let written = api.patch(&token.secret, &parameters, &Patch::Merge(patch)).await.map(drop);
            // The next fetch tries again.
            written.inspect_err(|_| token.reached.store(false, Ordering::Relaxed))
        }
        Testimony::Reported(reported) => {
            let plan = |host: &Value| plan_report(host, reported);
            update(client, &reported.namespace, &reported.host, plan).await.map(drop)
        }
    }
}

/// What `status.provision` must become. A new generation begins with clean hands; an older one changes nothing.
fn fetched(
    provision: &Value,
    generation: u64,
    Use { at, source }: Use,
    payload: Option<&str>,
    user: Option<&str>,
) -> Option<Value> {
    let written = provision["generation"].as_u64().unwrap_or(0);
    let at = render_time(at);
    let mut said = json!({"generation": generation, "fetchedAt": at, "source": source.to_string()});
    if let Some(payload) = payload {
        said["payload"] = payload.into();
    }
    let same = said.as_object().into_iter().flatten().all(|(key, value)| provision[key] == *value);
    if written > generation || same {
        return None;
    }
    if written != generation {
        (said["alarm"], said["spki"]) = (Value::Null, Value::Null);
    }
    if user.is_some() || written != generation {
        said["bootstrapUser"] = user.into();
    }
    Some(json!({"provision": said}))
}

/// The alarm in words.
fn alarm(generation: u64, first: Use, source: IpAddr) -> String {
    let Use { at, source: known } = first;
    format!(
        "{source} showed the boot token of generation {generation}, which {known} had used at {}: two machines have it",
        render_time(at)
    )
}

/// A dead token in words.
fn dead(record: &BootRecord, host: &str, source: IpAddr) -> String {
    let what = match (record.revoked, record.used) {
        (Some(at), _) => format!("was revoked at {}", render_time(at)),
        (None, Some(first)) => format!("it had used at {}", render_time(first.at)),
        (None, None) => format!("expired at {}", render_time(record.expires)),
    };
    let generation = record.generation;
    format!(
        "{source} shows the boot token of generation {generation}, which {what}: `kiln token rotate {host}` issues another"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first() -> Use {
        Use { at: Moment(1_700_000_000), source: "192.0.2.1".parse().unwrap() }
    }

    #[test]
    fn a_new_generation_forgets_the_alarm_and_the_keys_of_the_old_one() {
        let said = json!({"generation": 2, "fetchedAt": "2023-11-14T22:13:20Z", "source": "192.0.2.1", "payload": "p"});
        let mut anew = said.clone();
        (anew["alarm"], anew["spki"], anew["bootstrapUser"]) = (Value::Null, Value::Null, Value::Null);
        for (provision, expected) in [
            (Value::Null, Some(&anew)),
            (json!({"generation": 1, "fetchedAt": "x", "alarm": "a", "spki": ["b"]}), Some(&anew)),
            (json!({"generation": 2, "spki": ["b"]}), Some(&said)),
            (said.clone(), None),
            (json!({"generation": 3}), None),
        ] {
            let expected = expected.map(|said| json!({"provision": said}));
            assert_eq!(fetched(&provision, 2, first(), Some("p"), None), expected, "{provision}");
        }
        let user = Some("system:bootstrap:abcdef");
        let of_a_host = fetched(&json!({"generation": 1}), 2, first(), Some("p"), user).unwrap();
        assert_eq!(of_a_host["provision"]["bootstrapUser"].as_str(), user);
        // Once its certificate is there the user is gone, and it does not come back with the same story.
        assert_eq!(fetched(&said, 2, first(), Some("p"), user), None);
    }

    #[test]
    fn a_dead_token_is_told_with_the_reason_and_the_next_step() {
        let issued = BootRecord::issue(crate::hub::boot_secrets::hash_token("a"), None, Moment(1_700_000_000), 60);
        let used = BootRecord { used: Some(first()), ..issued };
        for (record, expected) in [
            (issued, "expired at 2023-11-14T22:14:20Z"),
            (used, "it had used at 2023-11-14T22:13:20Z"),
            (used.revoke(Moment(1_700_000_000)), "was revoked at 2023-11-14T22:13:20Z"),
        ] {
            assert_eq!(
                dead(&record, "w0", first().source),
                format!(
                    "192.0.2.1 shows the boot token of generation 1, which {expected}: `kiln token rotate w0` issues another"
                )
            );
        }
    }

    #[test]
    fn an_alarm_names_both_sources() {
        assert_eq!(
            alarm(2, first(), "192.0.2.9".parse().unwrap()),
            "192.0.2.9 showed the boot token of generation 2, which 192.0.2.1 had used at 2023-11-14T22:13:20Z: two machines have it"
        );
    }
}
