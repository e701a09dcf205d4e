//! The watch that keeps the table: every Secret with the label `kiln.dev/ignition`, in all namespaces.
//!
//! Objects are read without a schema, so that a Secret nobody can make sense of is one strange Secret and not the end of
//! the watch. While the API does not answer, what is known is served on: tokens of hosts need it, those of pools do not.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::watcher::Event;
use serde_json::Value;

use super::NodeEndpoint;
use super::beacon::key::{self, BeaconKey};
use super::table::{Item, Place, read_secret};
use crate::hub::boot_secrets::IGNITION_LABEL;
use crate::hub::controllers::kinds;
use crate::hub::following::{Query, Sent, place};

/// What is read; the label has other values, too.
const WANTED: &str = "payload,overlay,boot-token,pool-token,beacon-key";
/// The wait after the first error; doubled each time.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Watches for ever.
pub async fn observe_secrets(endpoint: Arc<NodeEndpoint>) {
    // Payloads are large: a page of fewer holds less at a time.
    let query = Query::all(kinds::SECRET).labelled(&format!("{IGNITION_LABEL} in ({WANTED})")).pages_of(100);
    let mut events = pin!(query.events(endpoint.client.clone()));
    let mut listed: HashSet<Place> = HashSet::new();
    let mut wait = FIRST_WAIT;
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                wait = FIRST_WAIT;
                take(&endpoint, event, &mut listed).await;
            }
            Err(error) => {
                endpoint.figures.watch_interrupted();
                tracing::debug!(%error, "the watch of the node endpoints was interrupted");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(LONGEST_WAIT);
            }
        }
    }
}

async fn take(endpoint: &Arc<NodeEndpoint>, event: Event<Sent>, listed: &mut HashSet<Place>) {
    match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => {
            let object = object.of_kind(&kinds::SECRET);
            listed.insert(place(&object));
            put(endpoint, object).await;
        }
        Event::InitDone => {
            if !listed.contains(&key_place(endpoint)) {
                miss_key(endpoint);
            }
            endpoint.table_mut().retain(&std::mem::take(listed));
            endpoint.first_list_is_read().await;
        }
        Event::Apply(object) => put(endpoint, object.of_kind(&kinds::SECRET)).await,
        Event::Delete(object) => {
            let object = object.of_kind(&kinds::SECRET);
            let place = place(&object);
            if place == key_place(endpoint) {
                miss_key(endpoint);
            }
            endpoint.table_mut().remove(&place);
        }
    }
}

/// Where the key of beacon tokens is.
fn key_place(endpoint: &NodeEndpoint) -> Place {
    (endpoint.client.default_namespace().to_owned(), key::SECRET.to_owned())
}

fn miss_key(endpoint: &NodeEndpoint) {
    endpoint.beacons.set_key(None);
    endpoint.beacons.key_is_missed.notify_one();
}

/// Reads a Secret. Payloads are large, and reading one must not hold up requests.
async fn put(endpoint: &Arc<NodeEndpoint>, object: Value) {
    let place = place(&object);
    if object["metadata"]["labels"][IGNITION_LABEL] == key::BEACON_KEY {
        // Only the one in its place counts: others could be anybody's.
        if place == key_place(endpoint) {
            endpoint.beacons.set_key(BeaconKey::read(&object, &place.0));
        }
        return;
    }
    let known = endpoint.table().payload(&place.0, &place.1);
    let large = object["metadata"]["labels"][IGNITION_LABEL] == "payload";
    let item = match large {
        true => tokio::task::spawn_blocking(move || read_secret(&object, known.as_ref())).await.unwrap_or(None),
        false => read_secret(&object, None),
    };
    match &item {
        Some(Item::Payload(payload)) => {
            if let Err(why) = &payload.source {
                tracing::warn!(namespace = place.0, secret = place.1, %why, "a payload cannot be served");
            }
        }
        Some(_) => {}
        None => {
            tracing::warn!(namespace = place.0, secret = place.1, "a Secret for hosts makes no sense and is left out")
        }
    }
    let mut table = endpoint.table_mut();
    match item {
        Some(item) => table.put(place, item),
        None => table.remove(&place),
    }
}
