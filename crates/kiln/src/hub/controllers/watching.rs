//! One watch of one kind, for ever: what it sees goes into the cache.
//!
//! Objects are read without a schema, so that an object nobody can make sense of is one strange object and not the end of
//! the watch. A kind the server does not have yet counts as read and is asked for again now and then. So does one it
//! refuses to show, which is told loudly: to the rules it looks like a kind without objects.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::runtime::watcher::{self, Event};
use serde_json::Value;

use super::Shared;
use super::figures::{Figures, resource_name};
use super::kinds::Watched;

/// How long until a kind that is not there is asked for again.
const ABSENT: Duration = Duration::from_secs(5);
/// How often it is told again that a kind is not shown.
const REMINDER: Duration = Duration::from_secs(600);
/// The wait after the first error; doubled each time.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Watches a kind. Never ends.
pub async fn observe_kind(client: Client, watched: &'static Watched, shared: Arc<Shared>, figures: Arc<Figures>) {
    let api: Api<DynamicObject> = Api::all_with(client, &watched.resource());
    let mut events = pin!(watcher::watcher(api, watcher::Config::default()));
    let mut listed: HashSet<(String, String)> = HashSet::new();
    let mut first = true;
    let mut wait = FIRST_WAIT;
    let mut told: Option<Instant> = None;
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                wait = FIRST_WAIT;
                if figures.set_refused(watched, false) {
                    told = None;
                    tracing::info!(kind = watched.kind, "the API server shows {} now", resource_name(watched));
                }
                take(event, watched, &shared, &mut listed, &mut first);
            }
            Err(error) => {
                let code = refusal(&error);
                let absent = matches!(code, Some(403 | 404));
                if absent && first {
                    first = false;
                    shared.first_list_is_read();
                }
                figures.set_refused(watched, code == Some(403));
                if code == Some(403) && told.is_none_or(|told| told.elapsed() > REMINDER) {
                    told = Some(Instant::now());
                    let name = resource_name(watched);
                    tracing::error!(
                        kind = watched.kind, %error,
                        "the API server refuses to show {name}: its objects count as absent until get, list and watch are granted"
                    );
                }
                if !absent {
                    figures.interrupted();
                    tracing::debug!(kind = watched.kind, %error, "a watch was interrupted");
                }
                tokio::time::sleep(if absent { ABSENT } else { wait }).await;
                wait = (wait * 2).min(LONGEST_WAIT);
            }
        }
    }
}

fn take(
    event: Event<DynamicObject>,
    watched: &'static Watched,
    shared: &Shared,
    listed: &mut HashSet<(String, String)>,
    first: &mut bool,
) {
    match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => {
            let object = value(object, watched);
            listed.insert(place(&object));
            shared.update(|cache| cache.put(watched, &object));
        }
        Event::InitDone => {
            let names = std::mem::take(listed);
            shared.update(|cache| cache.retain(watched, &names));
            if std::mem::take(first) {
                shared.first_list_is_read();
            }
        }
        Event::Apply(object) => {
            let object = value(object, watched);
            shared.update(|cache| cache.put(watched, &object));
        }
        Event::Delete(object) => {
            let (namespace, name) = place(&value(object, watched));
            shared.update(|cache| cache.remove(watched, &namespace, &name));
        }
    }
}

/// The object as JSON. Items of a list do not say what they are.
fn value(object: DynamicObject, watched: &Watched) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    value["apiVersion"] = watched.api_version().into();
    value["kind"] = watched.kind.into();
    value
}

fn place(object: &Value) -> (String, String) {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

/// The code with which the API server refused.
fn refusal(error: &watcher::Error) -> Option<u16> {
    use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
    match error {
        InitialListFailed(kube::Error::Api(status))
        | WatchStartFailed(kube::Error::Api(status))
        | WatchFailed(kube::Error::Api(status)) => Some(status.code),
        WatchError(status) => Some(status.code),
        _ => None,
    }
}
