//! `watch`: what happens, from a revision on.
//!
//! A watch is a cursor into its collection's log. When the log no longer reaches back to the cursor, the client gets a
//! 410 inside the stream: sent as an HTTP status it would make some clients ask the same again for ever.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::{ListRequest, Server, stopped};
use crate::error::ApiError;
use crate::request::Form;
use crate::resource::Resource;
use crate::store::{Event, EventKind, Stored};
use crate::table::{IncludeObject, partial_metadata, render_table};

/// Whether the stream begins with what exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitialEvents {
    /// No: from a revision on.
    From(u64),
    /// None: the client is at a revision that does not exist here.
    Unknown(u64),
    /// Yes.
    Existing,
    /// Yes, and a bookmark tells where they end.
    ExistingWithEnd,
}

/// A request to watch.
#[derive(Debug, Clone)]
pub struct WatchRequest {
    /// Which kind.
    pub resource: Arc<Resource>,
    /// None for all namespaces.
    pub namespace: Option<String>,
    /// The same parameters as those of a list.
    pub query: crate::request::Query,
    /// Where it begins.
    pub initial: InitialEvents,
    /// Whether to say from time to time how far it has come.
    pub bookmarks: bool,
    /// When it ends.
    pub timeout: Duration,
    /// In which form.
    pub form: Form,
    /// How much of each object goes into a table.
    pub include: IncludeObject,
}

/// Events taken from the log at a time.
const BATCH: usize = 200;
/// Bytes sent at a time: what a slow client may have waiting is a few of these.
const FRAME: usize = 64 << 10;

impl Server {
    /// Sends events until the client leaves, the time is over or the server stops.
    pub async fn watch(
        self: Arc<Self>,
        request: WatchRequest,
        events: mpsc::Sender<Bytes>,
        _permit: crate::rate_limit::Held,
    ) {
        let Ok(selection) = ListRequest::parse(&request.resource, request.namespace.as_deref(), &request.query) else {
            return; // Refused before the stream began.
        };
        let deadline = Instant::now() + request.timeout;
        let mut stopping = self.stopping();
        let log = self.store.log(&request.resource.collection);
        let mut news = log.subscribe();
        let mut cursor = match request.initial {
            InitialEvents::From(revision) => revision,
            InitialEvents::Unknown(revision) => {
                let error = ApiError::expired(format!("too large resource version: {revision}: list again"));
                let _ = events.send(frame("ERROR", &error.status().to_string())).await;
                return;
            }
            _ => match self.send_existing(&request, &selection, &events).await {
                Some(revision) => revision,
                None => return,
            },
        };
        let mut bookmark_at = Instant::now() + self.limits.bookmarks;
        loop {
            // Before the log is read: everything up to here is in the log.
            let settled = self.store.snapshot().revision;
            news.borrow_and_update();
            let Ok(batch) = log.read_after(cursor, BATCH) else {
                let error = ApiError::expired(format!("too old resource version: {cursor}"));
                let _ = events.send(frame("ERROR", &error.status().to_string())).await;
                return;
            };
            let mut frames = Vec::new();
            let mut told = 0;
            for event in &batch {
                cursor = event.object.revision;
                render_event(&request, &selection, event, &mut frames);
                told += 1;
                if frames.len() >= FRAME {
                    break;
                }
            }
            if !frames.is_empty() && events.send(Bytes::from(frames)).await.is_err() {
                return;
            }
            if told < batch.len() || batch.len() == BATCH {
                continue;
            }
            cursor = cursor.max(settled);
            tokio::select! {
                changed = news.changed() => if changed.is_err() { return },
                () = sleep_until(bookmark_at) => {
                    bookmark_at = Instant::now() + self.limits.bookmarks;
                    if request.bookmarks && events.send(bookmark(&request, cursor, false)).await.is_err() {
                        return;
                    }
                }
                () = sleep_until(deadline) => {
                    if request.bookmarks {
                        let _ = events.send(bookmark(&request, cursor, false)).await;
                    }
                    return;
                }
                () = events.closed() => return,
                () = stopped(&mut stopping) => return,
            }
        }
    }

    /// Sends what exists; gives its revision, or nothing when the client has left.
    async fn send_existing(
        &self,
        request: &WatchRequest,
        selection: &ListRequest<'_>,
        events: &mpsc::Sender<Bytes>,
    ) -> Option<u64> {
        let snapshot = self.store.snapshot();
        let mut frames = Vec::new();
        for stored in snapshot.list(&request.resource.collection, selection.namespace, None) {
            if selection.matches(stored) {
                frames.extend_from_slice(&frame("ADDED", &render_object(request, stored)));
            }
            if frames.len() > FRAME {
                events.send(Bytes::from(std::mem::take(&mut frames))).await.ok()?;
            }
        }
        if request.initial == InitialEvents::ExistingWithEnd {
            frames.extend_from_slice(&bookmark(request, snapshot.revision, true));
        }
        events.send(Bytes::from(frames)).await.ok()?;
        Some(snapshot.revision)
    }
}

fn render_event(request: &WatchRequest, selection: &ListRequest<'_>, event: &Event, frames: &mut Vec<u8>) {
    let before = event.previous.as_ref().is_some_and(|previous| selection.matches(previous));
    let after = event.kind != EventKind::Deleted && selection.matches(&event.object);
    let (kind, text) = match (before, after) {
        (false, false) => return,
        (false, true) => ("ADDED", render_object(request, &event.object)),
        (true, true) => ("MODIFIED", render_object(request, &event.object)),
        (true, false) if event.kind == EventKind::Deleted => ("DELETED", render_object(request, &event.object)),
        (true, false) => {
            // It left the selection: its last selected state, with the revision at which it left.
            let mut value = event.previous.as_ref().map(|previous| previous.value()).unwrap_or_default();
            value["metadata"]["resourceVersion"] = event.object.revision.to_string().into();
            ("DELETED", render_value(request, value))
        }
    };
    frames.extend_from_slice(&frame(kind, &text));
}

fn render_object(request: &WatchRequest, stored: &Stored) -> String {
    if request.form == Form::Plain
        && stored
            .json
            .starts_with(format!("{{\"apiVersion\":{},", Value::from(request.resource.api_version())).as_bytes())
        && let Ok(text) = String::from_utf8(stored.json.text().into_owned())
    {
        return text;
    }
    render_value(request, stored.value())
}

fn render_value(request: &WatchRequest, stored: Value) -> String {
    let value = request.resource.shown(stored);
    match request.form {
        Form::Table => {
            let metadata = json!({"resourceVersion": value["metadata"]["resourceVersion"]});
            let now = OffsetDateTime::now_utc();
            render_table(&request.resource, &[value], &metadata, request.include, now).to_string()
        }
        Form::Metadata => partial_metadata(&value).to_string(),
        Form::Plain | Form::Discovery(_) => value.to_string(),
    }
}

fn bookmark(request: &WatchRequest, revision: u64, end: bool) -> Bytes {
    let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
    if end {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    let object =
        json!({"kind": request.resource.kind, "apiVersion": request.resource.api_version(), "metadata": metadata});
    let object = match request.form {
        Form::Metadata => partial_metadata(&object),
        Form::Table => json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
            "columnDefinitions": [], "rows": [{"cells": [], "object": partial_metadata(&object)}]}),
        Form::Plain | Form::Discovery(_) => object,
    };
    frame("BOOKMARK", &object.to_string())
}

fn frame(kind: &str, object: &str) -> Bytes {
    Bytes::from(format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n"))
}
