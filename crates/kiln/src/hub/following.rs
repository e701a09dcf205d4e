//! Following the objects of a kind for ever: one loop and one watch for all who want the same.
//!
//! Whoever follows something is a [`Follower`] and says so in a [`Following`]. Each list and each change is then read once,
//! however many followers there are: with ten thousand hosts that is what most of the controllers' time goes into.
//!
//! Objects are read without a schema, so that an object nobody can make sense of is one strange object and not the end of
//! the watch. A kind the server does not have yet counts as read and is asked for again now and then. So does one it
//! refuses to show, which is told loudly: it looks like a kind without objects.

use std::borrow::Cow;
use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ApiResource};
use kube::core::DynamicResourceScope;
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource};
use serde::de::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use tokio::task::JoinSet;

use super::controllers::kinds::Watched;

/// How long until a kind that is not there is asked for again.
const ABSENT: Duration = Duration::from_secs(5);
/// How often it is told again that a kind is not shown.
const REMINDER: Duration = Duration::from_secs(600);
/// The wait after the first error; doubled each time.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Namespace and name. The namespace of a cluster-wide object is empty.
pub type Place = (String, String);

/// Where an object is.
pub fn place(object: &Value) -> Place {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

/// Whoever follows the objects of a kind. Calls come one after the other, in the order of the server's changes.
pub trait Follower: Send + Sync {
    /// Takes the newest state of an object, which may be known already.
    fn put(&self, object: &Value);

    /// Forgets an object.
    fn remove(&self, object: &Value);

    /// Forgets everything that is not among these: a list was read to its end.
    fn retain(&self, listed: &HashSet<Place>);

    /// Everything was read for the first time, or the server has nothing to read.
    fn read_once(&self) {}

    /// A watch ended before its time.
    fn interrupted(&self) {}

    /// The server refuses to show the kind, or shows it again.
    fn refused(&self, _refused: bool) {}
}

/// Which objects are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    kind: Watched,
    /// All of them when it is empty.
    namespace: String,
    /// All of them when it is empty.
    labels: String,
    /// How many a page of a list has at most; large objects want few.
    page: Option<u32>,
}

impl Query {
    /// All objects of a kind.
    pub fn all(kind: Watched) -> Query {
        Query { kind, namespace: String::new(), labels: String::new(), page: None }
    }

    /// Those in a namespace.
    pub fn within(self, namespace: &str) -> Query {
        Query { namespace: namespace.into(), ..self }
    }

    /// Those with these labels.
    pub fn labelled(self, selector: &str) -> Query {
        Query { labels: selector.into(), ..self }
    }

    /// Those, with so many on a page of a list.
    pub fn pages_of(self, page: u32) -> Query {
        Query { page: Some(page), ..self }
    }

    /// What the server tells about them. Ends only when it is dropped.
    pub fn events(&self, client: Client) -> impl Stream<Item = Result<Event<Sent>, watcher::Error>> + Send + use<> {
        let resource = self.kind.resource();
        let api: Api<Sent> = match self.namespace.as_str() {
            "" => Api::all_with(client, &resource),
            namespace => Api::namespaced_with(client, namespace, &resource),
        };
        let mut config = watcher::Config::default();
        if !self.labels.is_empty() {
            config = config.labels(&self.labels);
        }
        if let Some(page) = self.page {
            config = config.page_size(page);
        }
        watcher::watcher(api, config)
    }
}

/// An object as the server sent it. Reading it into this costs a third of what reading it into a type of Kubernetes does.
#[derive(Debug, Clone)]
pub struct Sent {
    /// Only what a watch needs to resume.
    metadata: ObjectMeta,
    value: Value,
}

impl<'de> Deserialize<'de> for Sent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Sent, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let revision = value["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        Ok(Sent { metadata: ObjectMeta { resource_version: revision, ..ObjectMeta::default() }, value })
    }
}

impl Resource for Sent {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        resource.api_version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Sent {
    /// The object as JSON. Items of a list need not say what they are; here all do.
    pub fn of_kind(self, kind: &Watched) -> Value {
        let Value::Object(said) = self.value else { return self.value };
        if said.contains_key("apiVersion") && said.contains_key("kind") {
            return Value::Object(said);
        }
        let mut object = Map::new();
        object.insert("apiVersion".into(), kind.api_version().into());
        object.insert("kind".into(), kind.kind.into());
        object.extend(said);
        Value::Object(object)
    }
}

/// Who follows what.
#[derive(Default)]
pub struct Following(Vec<(Query, Vec<Arc<dyn Follower>>)>);

impl Following {
    /// One more follower.
    pub fn add(&mut self, query: Query, follower: Arc<dyn Follower>) {
        match self.0.iter_mut().find(|(known, _)| *known == query) {
            Some((_, followers)) => followers.push(follower),
            None => self.0.push((query, vec![follower])),
        }
    }

    /// Follows all of it. Ends only when something is wrong with this program.
    pub async fn run(self, client: Client) {
        let mut watches = JoinSet::new();
        for (query, followers) in self.0 {
            watches.spawn(follow(client.clone(), query, followers));
        }
        let ended = watches.join_next().await;
        tracing::error!(?ended, "a watch ended");
    }
}

async fn follow(client: Client, query: Query, followers: Vec<Arc<dyn Follower>>) {
    let kind = query.kind;
    let mut events = pin!(query.events(client));
    let mut state = Reading { kind, followers, listed: HashSet::new(), unread: true };
    let (mut wait, mut told): (Duration, Option<Instant>) = (FIRST_WAIT, None);
    let mut refused = false;
    while let Some(event) = events.next().await {
        let error = match event {
            Ok(event) => {
                wait = FIRST_WAIT;
                if std::mem::take(&mut refused) {
                    told = None;
                    state.tell(|follower| follower.refused(false));
                    tracing::info!(kind = kind.kind, "the API server shows {} now", kind.resource_name());
                }
                state.take(event);
                continue;
            }
            Err(error) => error,
        };
        let code = refusal(&error);
        if matches!(code, Some(403 | 404)) {
            state.is_read();
        } else {
            state.tell(|follower| follower.interrupted());
            tracing::debug!(kind = kind.kind, %error, "a watch was interrupted");
        }
        if (code == Some(403)) != refused {
            refused = !refused;
            state.tell(|follower| follower.refused(refused));
        }
        if refused && told.is_none_or(|told| told.elapsed() > REMINDER) {
            told = Some(Instant::now());
            tracing::error!(
                kind = kind.kind, %error,
                "the API server refuses to show {}: its objects count as absent until get, list and watch are granted",
                kind.resource_name()
            );
        }
        tokio::time::sleep(if matches!(code, Some(403 | 404)) { ABSENT } else { wait }).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// How far one watch is.
struct Reading {
    kind: Watched,
    followers: Vec<Arc<dyn Follower>>,
    /// What the list has so far.
    listed: HashSet<Place>,
    unread: bool,
}

impl Reading {
    fn tell(&self, news: impl Fn(&dyn Follower)) {
        self.followers.iter().for_each(|follower| news(&**follower));
    }

    fn is_read(&mut self) {
        if std::mem::take(&mut self.unread) {
            self.tell(|follower| follower.read_once());
        }
    }

    fn take(&mut self, event: Event<Sent>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(object) => {
                let object = object.of_kind(&self.kind);
                self.listed.insert(place(&object));
                self.tell(|follower| follower.put(&object));
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                self.tell(|follower| follower.retain(&listed));
                self.is_read();
            }
            Event::Apply(object) => {
                let object = object.of_kind(&self.kind);
                self.tell(|follower| follower.put(&object));
            }
            Event::Delete(object) => {
                let object = object.of_kind(&self.kind);
                self.tell(|follower| follower.remove(&object));
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::{Request, Response};
    use serde_json::json;

    use super::super::controllers::kinds::{HOST, POOL};
    use super::*;

    /// Writes down what it is told.
    #[derive(Default)]
    struct Diary(Mutex<Vec<String>>);

    impl Diary {
        fn note(&self, what: &str) {
            self.0.lock().unwrap().push(what.into());
        }
    }

    impl Follower for Diary {
        fn put(&self, object: &Value) {
            let keys: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
            self.note(&format!("put {} {}", place(object).1, keys.join(",")));
        }

        fn remove(&self, object: &Value) {
            self.note(&format!("remove {}", place(object).1));
        }

        fn retain(&self, listed: &HashSet<Place>) {
            self.note(&format!("retain {}", listed.len()));
        }

        fn read_once(&self) {
            self.note("read");
        }

        fn refused(&self, refused: bool) {
            self.note(if refused { "refused" } else { "shown" });
        }
    }

    fn host(name: &str, revision: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "n", "resourceVersion": revision}, "spec": {}})
    }

    /// Hosts: a list of one without its kind, then a change and a deletion. Pools are not shown.
    fn answer(request: &Request<kube::client::Body>) -> Response<kube::client::Body> {
        let uri = request.uri().to_string();
        let (code, body) = if uri.contains("/pools") {
            (
                403,
                json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "Forbidden", "code": 403})
                    .to_string(),
            )
        } else if uri.contains("watch=") {
            let event = |kind: &str, name: &str, revision: &str| {
                let mut object = host(name, revision);
                object["apiVersion"] = HOST.api_version().into();
                object["kind"] = HOST.kind.into();
                json!({"type": kind, "object": object}).to_string() + "\n"
            };
            (200, event("ADDED", "b", "2") + &event("DELETED", "a", "3"))
        } else {
            (200, json!({"metadata": {"resourceVersion": "1"}, "items": [host("a", "1")]}).to_string())
        };
        Response::builder().status(code).body(body.into_bytes().into()).unwrap()
    }

    #[tokio::test]
    async fn what_two_follow_is_read_once_and_what_is_not_shown_counts_as_read() {
        let asked = Arc::new(AtomicUsize::new(0));
        let lists = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let uri = request.uri().to_string();
            if uri.contains("/hosts") && !uri.contains("watch=") {
                lists.fetch_add(1, Ordering::SeqCst);
            }
            std::future::ready(Ok::<_, std::convert::Infallible>(answer(&request)))
        });
        let client = Client::new(service, "default");
        let (first, second, pools) =
            (Arc::new(Diary::default()), Arc::new(Diary::default()), Arc::new(Diary::default()));
        let mut following = Following::default();
        following.add(Query::all(HOST), Arc::clone(&first) as Arc<dyn Follower>);
        following.add(Query::all(HOST), Arc::clone(&second) as Arc<dyn Follower>);
        following.add(Query::all(POOL), Arc::clone(&pools) as Arc<dyn Follower>);
        let running = tokio::spawn(following.run(client));
        let expected = [
            "put a apiVersion,kind,metadata,spec",
            "retain 1",
            "read",
            "put b metadata,spec,apiVersion,kind",
            "remove a",
        ];
        let seen = |diary: &Diary| diary.0.lock().unwrap().clone();
        let all = async {
            while seen(&second).len() < expected.len() || seen(&pools).len() < 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(30), all).await;
        assert!(waited.is_ok(), "{:?} {:?}", seen(&second), seen(&pools));
        running.abort();
        assert_eq!(seen(&first)[..expected.len()], expected);
        assert_eq!(seen(&second)[..expected.len()], expected);
        assert_eq!(seen(&pools), ["read", "refused"]);
        assert_eq!(asked.load(Ordering::SeqCst), 1, "one list for both");
    }
}
