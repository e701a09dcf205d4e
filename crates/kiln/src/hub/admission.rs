//! The rules of `kiln check` on everything that is applied.
//!
//! An object is refused only for what upstream's own API or webhooks would refuse in it alone ([`is_refused`]); every
//! other finding comes back as a warning, so that an existing folder is accepted unchanged and in any order. Warnings are
//! about the object in the world as it would be: what is stored, and this object.
//!
//! **Bounded:** a world of up to [`WHOLE`] objects is judged whole, for one client at a time. In a larger one, and for whoever
//! else writes meanwhile, the object is judged with its [neighbours](super::world::neighbours), and conclusions that
//! need the whole world are left to the controllers, who judge all of it after every change.
//!
//! **Bounded, too:** so many objects are judged at once and in a second ([`Allowance`]). Whoever writes more (ten thousand
//! hosts) is told no more than what is refused; the findings come as conditions, where a kind has any.
//!
//! Which objects have to do with each other is remembered here; what they say is read from the store when it is asked for.
//! Of Secrets that is no contents: [`document`] has none.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use kiln_apiserver::Server;
use kiln_apiserver::admission::{Admission, Review, Verdict, aside};
use kiln_apiserver::error::Cause;
use kiln_apiserver::registry::Registry;
use kiln_apiserver::store::{EventKind, Key};
use kiln_core::diagnostic::{Code, Diagnostic, Severity};
use serde_json::Value;

use allowance::Allowance;

use super::world::neighbours::{FROM_THE_WHOLE, Neighbours};
use super::world::{JudgedWorld, ObjectKey, Selection, document};

mod allowance;

/// A world of no more objects is judged whole: some 20 ms of one core.
pub const WHOLE: usize = 192;
/// So few objects are judged in about a millisecond.
const QUICK: usize = 4;
/// Changes taken over from the store at a time, while whoever writes may have to wait.
const BATCH: usize = 64;
/// How often they are taken over while nobody writes whom the rules judge. The store remembers some thousands of changes, and
/// ten thousand statuses are written in some seconds; who comes after more than that must read everything again.
const KEEP_UP: Duration = Duration::from_millis(250);

/// What whoever writes too fast is told.
const NOT_JUDGED: &str = "not judged here: more is written at once than the rules keep up with; what they find will be in its conditions if its kind has any, and a dry run asks again";

/// Runs the rules on what is applied.
#[derive(Debug, Default)]
pub struct Rules {
    allowance: Mutex<Allowance>,
    /// Held by whoever judges a whole world.
    whole: Mutex<()>,
    known: Mutex<Known>,
    /// Whether what was stored at the start is known.
    read: AtomicBool,
}

/// What is stored, kept up to date.
#[derive(Debug, Default)]
struct Known {
    neighbours: Neighbours,
    /// Which collections are read, and up to which revision.
    cursors: HashMap<Arc<str>, u64>,
    registry: Option<Arc<Registry>>,
}

impl Rules {
    /// Reads what is stored and keeps up with it until the server stops, so that nobody who writes waits for that.
    pub async fn follow(self: Arc<Rules>, server: Arc<Server>) {
        let mut stopping = server.stopping();
        loop {
            let (rules, server) = (Arc::clone(&self), Arc::clone(&server));
            let read = tokio::task::spawn_blocking(move || rules.read_stored(&server)).await;
            if let Err(error) = read {
                return tracing::error!(%error, "what is stored could not be read");
            }
            tokio::select! {
                () = tokio::time::sleep(KEEP_UP) => {}
                _ = stopping.wait_for(|stop| *stop) => return,
            }
        }
    }

    fn read_stored(&self, server: &Server) {
        self.lock().learn_kinds(server);
        let collections: Vec<Arc<str>> = self.lock().cursors.keys().cloned().collect();
        for collection in &collections {
            // The lock is given back after each batch.
            while self.lock().read_batch(server, collection) {}
        }
        self.read.store(true, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admission for Rules {
    fn review(&self, review: &Review<'_>) -> Verdict {
        // What Kiln itself writes is not for Kiln to complain about.
        if review.user.starts_with("system:") {
            return Verdict::default();
        }
        let Some(text) = document(review.object) else { return Verdict::default() };
        let own = ObjectKey::of(review.object);
        let allowed = self.allowance.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now());
        if allowed { self.look(review, own, &text) } else { briefly(own, &text) }
    }
}

impl Rules {
    /// What there is to say about the object in the world as it would be.
    fn look(&self, review: &Review<'_>, own: ObjectKey, text: &str) -> Verdict {
        if !self.read.load(Ordering::Acquire) {
            aside(|| self.read_stored(review.server));
        }
        let alone = self.whole.try_lock();
        let is_alone = !matches!(alone, Err(TryLockError::WouldBlock));
        let (keys, whole) = self.lock().select(review, &own, text, is_alone);
        let selection = read_selection(review.server, keys).with(own.clone(), text);
        let judged = if selection.len() > QUICK { aside(|| selection.judge()) } else { selection.judge() };
        let believed = |finding: &&Diagnostic| whole || !FROM_THE_WHOLE.contains(&finding.code);
        let (refusing, rest): (Vec<&Diagnostic>, Vec<&Diagnostic>) =
            about(&judged, &own).filter(believed).partition(|finding| is_refused(&own, finding, &judged));
        match refusing.is_empty() {
            true => Verdict { causes: Vec::new(), warnings: rest.into_iter().map(warning).collect() },
            false => refused(refusing.into_iter()),
        }
    }
}

/// Only what is refused, which the object says by itself. Of Kiln's own kinds that is what cannot be read of them.
fn briefly(own: ObjectKey, text: &str) -> Verdict {
    let is_native = own.group == kiln_api::NATIVE_GROUP;
    let alone = Selection::default().with(own.clone(), text);
    let judged = if is_native { alone.read() } else { alone.judge() };
    let refusing: Vec<&Diagnostic> =
        about(&judged, &own).filter(|finding| is_refused(&own, finding, &judged)).collect();
    match refusing.is_empty() {
        true => Verdict { causes: Vec::new(), warnings: vec![NOT_JUDGED.into()] },
        false => refused(refusing.into_iter()),
    }
}

fn refused<'a>(findings: impl Iterator<Item = &'a Diagnostic>) -> Verdict {
    Verdict { causes: findings.map(cause).collect(), warnings: Vec::new() }
}

impl Known {
    /// The objects to judge one with, and whether these are all.
    fn select(&mut self, review: &Review<'_>, own: &ObjectKey, text: &str, alone: bool) -> (Vec<ObjectKey>, bool) {
        self.catch_up(review.server);
        if alone && self.neighbours.len() <= WHOLE {
            return (self.neighbours.all(), true);
        }
        (self.neighbours.of(own, text).into_iter().cloned().collect(), false)
    }

    fn catch_up(&mut self, server: &Server) {
        self.learn_kinds(server);
        for collection in self.cursors.keys().cloned().collect::<Vec<_>>() {
            while self.read_batch(server, &collection) {}
        }
    }

    /// Reads the collections of kinds that are new.
    fn learn_kinds(&mut self, server: &Server) {
        let registry = server.registry();
        if self.registry.as_ref().is_none_or(|known| !Arc::ptr_eq(known, &registry)) {
            for resource in registry.all().filter(|resource| kiln_api::is_read(&resource.group, &resource.kind)) {
                if !self.cursors.contains_key(&resource.collection) {
                    self.read_all(server, &resource.collection);
                }
            }
            self.registry = Some(registry);
        }
    }

    /// Too much happened since the last time. Only beginning anew forgets what was deleted meanwhile.
    fn begin_anew(&mut self, server: &Server) {
        let collections: Vec<Arc<str>> = self.cursors.keys().cloned().collect();
        self.neighbours = Neighbours::default();
        for collection in &collections {
            self.read_all(server, collection);
        }
    }

    fn read_all(&mut self, server: &Server, collection: &Arc<str>) {
        let snapshot = server.snapshot();
        for stored in snapshot.list(collection, None, None) {
            self.take(&stored.value(), true);
        }
        self.cursors.insert(Arc::clone(collection), snapshot.revision);
    }

    /// Takes some changes over; whether there may be more.
    fn read_batch(&mut self, server: &Server, collection: &Arc<str>) -> bool {
        let cursor = self.cursors.get(collection).copied().unwrap_or_default();
        let Ok(events) = server.changes(collection, cursor, BATCH) else {
            self.begin_anew(server);
            return false;
        };
        for event in &events {
            self.take(&event.object.value(), event.kind != EventKind::Deleted);
        }
        let Some(last) = events.last() else { return false };
        self.cursors.insert(Arc::clone(collection), last.object.revision);
        events.len() == BATCH
    }

    fn take(&mut self, object: &Value, exists: bool) {
        let text = if exists { document(object) } else { None };
        self.neighbours.update(&ObjectKey::of(object), text.as_deref());
    }
}

/// Objects as they are stored now; one that is gone meanwhile is not among them.
fn read_selection(server: &Server, keys: Vec<ObjectKey>) -> Selection {
    let (snapshot, registry) = (server.snapshot(), server.registry());
    let read = |key: &ObjectKey| {
        let resource = registry.all().find(|resource| resource.group == key.group && resource.kind == key.kind)?;
        let stored = snapshot.get(&Key::new(&resource.collection, &key.namespace, &key.name))?;
        document(&stored.value())
    };
    keys.into_iter().filter_map(|key| read(&key).map(|text| (key, text))).collect()
}

/// The findings whose place is in the object's own document, also inside texts it carries.
fn about<'a>(judged: &'a JudgedWorld, own: &ObjectKey) -> impl Iterator<Item = &'a Diagnostic> {
    let name = own.document_name();
    let file = judged.sources.files().find(|(_, file)| file.name == name).map(|(id, _)| id);
    judged
        .findings
        .iter()
        .filter(move |finding| finding.at.map(|at| judged.sources.outer(at).file) == file && file.is_some())
}

/// Whether upstream refuses the object for this. All of these are about what the object itself says: no neighbour brings
/// them about.
///
/// Wrong types and missing fields are refused by every schema, bad names and selectors of a policy by its admission
/// policy, and BMC address, boot MAC address and device name of a BareMetalHost by its webhook. Kiln's own kinds are
/// refused whatever cannot be read of them, and so is what they add to a policy. A text that is carried (a manifest in a ConfigMap, Ignition JSON) is
/// nobody's business in the API.
fn is_refused(own: &ObjectKey, finding: &Diagnostic, judged: &JudgedWorld) -> bool {
    let carried = finding.at.is_some_and(|at| judged.sources.file(at.file).within.is_some());
    if carried || finding.severity != Severity::Error || own.group.is_empty() {
        return false;
    }
    let field = finding.field.as_deref().unwrap_or_default();
    match (own.kind.as_str(), finding.code) {
        (_, Code(0011) | Code(0012)) => true,
        (_, Code(0060..=0065)) if own.group == kiln_api::NATIVE_GROUP => true,
        ("BareMetalHost", Code(0321 | 0326)) => true,
        ("BareMetalHost", Code(0327)) => field.ends_with("deviceName"),
        ("NodeNetworkConfigurationPolicy", Code(0602 | 0603 | 0609)) => true,
        _ => false,
    }
}

fn cause(finding: &Diagnostic) -> Cause {
    let mut message = format!("{}: {}", finding.code, finding.message);
    for (word, more) in [("because", &finding.cause), ("fix", &finding.help)] {
        if let Some(more) = more {
            message.push_str(&format!("; {word}: {more}"));
        }
    }
    Cause { reason: "FieldValueInvalid", message, field: finding.field.clone().unwrap_or_default() }
}

/// One line: code, message, place, fix.
fn warning(finding: &Diagnostic) -> String {
    let mut line = format!("{}: {}", finding.code, finding.message);
    if let Some(field) = &finding.field {
        line.push_str(&format!(" ({field})"));
    }
    if let Some(help) = &finding.help {
        line.push_str(&format!("; {help}"));
    }
    line.replace(char::is_control, " ")
}
