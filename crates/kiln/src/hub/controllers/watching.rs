//! One watch of one kind, for ever: what it sees goes into the cache.
//!
//! Objects are read without a schema, so that an object nobody can make sense of is one strange object and not the end of
//! the watch. A kind the server does not have yet counts as read and is asked for again now and then.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::runtime::watcher::{self, Event};
use serde_json::Value;

use super::Shared;
use super::kinds::Watched;

/// How long until a kind that is not there is asked for again.
const ABSENT: Duration = Duration::from_secs(5);
/// The wait after the first error; doubled each time.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Watches a kind. Never ends.
pub async fn observe_kind(client: Client, watched: &'static Watched, shared: Arc<Shared>) {
    let api: Api<DynamicObject> = Api::all_with(client, &watched.resource());
    let mut events = pin!(watcher::watcher(api, watcher::Config::default()));
    let mut listed: HashSet<(String, String)> = HashSet::new();
    let mut first = true;
    let mut wait = FIRST_WAIT;
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                wait = FIRST_WAIT;
                take(event, watched, &shared, &mut listed, &mut first);
            }
            Err(error) => {
                let absent = is_absent(&error);
                if absent && first {
                    first = false;
                    shared.first_list_is_read();
                }
                if !absent {
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

fn is_absent(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
    let (InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error)) = error else { return false };
    matches!(error, kube::Error::Api(status) if status.code == 404 || status.code == 403)
}
