//! What the node endpoints know: payloads, overlays and tokens, as the Secrets of the API have them.
//!
//! A token is found by its SHA-256, so that how long a look takes says nothing about a token. The table is a copy of the
//! API's: it may be a moment old, and whoever acts on it writes with the revision it has seen.
//!
//! Not here: the watch that fills it, see [`super::watching`].

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use axum::body::Bytes;
use kiln_core::beacon_token::Bearer;
use kiln_core::boot_token::{BootRecord, TokenHash};
use kiln_core::ignition::SpecVersion;
use kiln_core::ignition::data_url::encode_base64;
use kiln_core::timeline::Moment;
use kiln_core::timeline::first_boot::Writer;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::prepared::{Rendered, Source, Unusable};
use crate::hub::boot_secrets::{
    BOOT_TOKEN, HOST_LABEL, IGNITION_LABEL, decode_bytes, decode_text, hash_token, parse_record,
};
use crate::hub::timeline::parse_time;

/// The annotation of a pool's token that names its payload.
pub const PAYLOAD_ANNOTATION: &str = "kiln.dev/payload";
/// The label that says which pool something belongs to.
pub const POOL_LABEL: &str = "kiln.dev/pool";
/// HyperShift's annotation: from when on a pool's token is dead.
pub const EXPIRATION_ANNOTATION: &str = "hypershift.openshift.io/ignition-token-expiration-timestamp";
/// HyperShift's annotation: somebody has fetched.
pub const REACHED_ANNOTATION: &str = "hypershift.openshift.io/ignition-reached";
/// HyperShift's annotation: `namespace/name` of the pool.
const NODE_POOL_ANNOTATION: &str = "hypershift.openshift.io/nodePool";

/// Namespace and name.
pub type Place = (String, String);

/// A pool's config.
#[derive(Debug)]
pub struct Payload {
    /// SHA-256 of everything it was made from.
    pub id: String,
    /// The label of the pool it belongs to.
    pub pool: String,
    /// As the API has it.
    pub revision: String,
    /// Which objects put network files into it.
    pub writers: Vec<Writer>,
    /// Bootstrap kubeconfigs that hosts get with a token of their own, by path.
    pub kubeconfigs: BTreeMap<String, Value>,
    /// What can be served, or why nothing can.
    pub source: Result<Source, Unusable>,
    /// By spec version, in the order of [`SpecVersion::all`].
    rendered: Vec<OnceCell<Result<Arc<Rendered>, Unusable>>>,
}

impl Payload {
    /// The config in a version, prepared by the first who asks; the others wait for it.
    pub async fn rendered(self: &Arc<Payload>, version: SpecVersion) -> Result<Arc<Rendered>, Unusable> {
        let index = SpecVersion::all().position(|known| known == version).unwrap_or_default();
        let Some(cell) = self.rendered.get(index) else { return Err(Unusable::Unpack) };
        let prepare = || async {
            let payload = Arc::clone(self);
            let render = move || payload.source.as_ref().map_err(Clone::clone)?.render(version);
            let rendered = tokio::task::spawn_blocking(render).await;
            rendered.unwrap_or(Err(Unusable::Unpack)).map(Arc::new)
        };
        cell.get_or_init(prepare).await.clone()
    }
}

/// What a host has of its own. It has secrets in it.
#[derive(Clone)]
pub struct Overlay {
    /// The payload it belongs to, in the same namespace.
    pub payload: String,
    /// SHA-256 of all of it.
    pub id: String,
    /// Items of a JSON list, without brackets.
    pub files: Bytes,
    /// Where they are written.
    pub paths: Vec<Box<str>>,
    /// Whether they mean the same in every version of spec 3.
    pub plain: bool,
    /// A config that is laid over everything.
    pub config: Option<Bytes>,
}

impl Overlay {
    /// The same with a file that only root reads.
    pub fn with_file(&self, path: &str, contents: &str) -> Overlay {
        let file = json!({"path": path, "mode": 0o600, "overwrite": true,
            "contents": {"source": encode_base64(contents.as_bytes())}});
        let comma = if self.files.is_empty() { "" } else { "," };
        let files = [&self.files[..], comma.as_bytes(), file.to_string().as_bytes()].concat();
        let mut paths = self.paths.clone();
        paths.push(path.into());
        // What is composed is kept by its id; without one it is not kept.
        let id = match self.id.as_str() {
            "" => String::new(),
            id => format!("{id} {}", hash_token(contents)),
        };
        Overlay { id, files: Bytes::from(files), paths, ..self.clone() }
    }
}

impl std::fmt::Debug for Overlay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Overlay { payload, id, paths, .. } = self;
        f.debug_struct("Overlay")
            .field("payload", payload)
            .field("id", id)
            .field("paths", paths)
            .finish_non_exhaustive()
    }
}

/// A host's token.
#[derive(Debug, Clone)]
pub struct HostToken {
    /// Of the Secret and the Host.
    pub namespace: String,
    /// Name of the Host.
    pub host: String,
    /// Name of the Secret.
    pub secret: String,
    /// As the API has it.
    pub revision: String,
    /// What is known of it.
    pub record: BootRecord,
    /// The payload that was fetched with it.
    pub payload: Option<String>,
}

impl HostToken {
    /// Whom tokens that are made for its host speak for.
    pub fn bearer(&self) -> Bearer {
        Bearer { namespace: self.namespace.clone(), host: self.host.clone(), generation: self.record.generation }
    }
}

/// A pool's token, shared by its machines.
#[derive(Debug)]
pub struct PoolToken {
    /// Of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// `namespace/name` of the pool, as figures have it.
    pub node_pool: String,
    /// The Secret with its payload, in the same namespace.
    pub payload: String,
    /// From when on it is dead.
    pub expires: Option<Moment>,
    /// Whether the Secret says that somebody has fetched.
    pub reached: AtomicBool,
}

/// Whose token it is.
#[derive(Debug, Clone)]
pub enum Token {
    /// One host's.
    Host(Arc<HostToken>),
    /// A pool's.
    Pool(Arc<PoolToken>),
}

/// What one Secret is.
#[derive(Debug)]
pub enum Item {
    /// A pool's config.
    Payload(Arc<Payload>),
    /// What a host has of its own.
    Overlay(String, Arc<Overlay>),
    /// A token of a host.
    Host(Arc<HostToken>),
    /// The tokens of a pool: the present one and the one before.
    Pool(Vec<TokenHash>, Arc<PoolToken>),
}

/// Everything.
#[derive(Debug, Default)]
pub struct Table {
    places: HashMap<Place, Filed>,
    payloads: HashMap<Place, Arc<Payload>>,
    overlays: HashMap<Place, Arc<Overlay>>,
    tokens: HashMap<TokenHash, Token>,
    /// The tokens of hosts by namespace and host.
    hosts: HashMap<Place, TokenHash>,
}

/// Where something of a Secret is filed.
#[derive(Debug)]
enum Filed {
    Payload,
    Overlay(String),
    Tokens(Vec<TokenHash>),
}

/// How much there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Payloads that can be served.
    pub payloads: usize,
    /// Payloads that cannot.
    pub unusable: usize,
    /// Hosts with something of their own.
    pub overlays: usize,
    /// Tokens of hosts.
    pub host_tokens: usize,
    /// Tokens of pools.
    pub pool_tokens: usize,
}

impl Table {
    /// Takes what a Secret holds now.
    pub fn put(&mut self, place: Place, item: Item) {
        self.remove(&place);
        let namespace = place.0.clone();
        let filed = match item {
            Item::Payload(payload) => {
                self.payloads.insert(place.clone(), payload);
                Filed::Payload
            }
            Item::Overlay(host, overlay) => {
                self.overlays.insert((namespace, host.clone()), overlay);
                Filed::Overlay(host)
            }
            Item::Host(token) => {
                let hash = token.record.hash;
                self.hosts.insert((namespace, token.host.clone()), hash);
                self.tokens.insert(hash, Token::Host(token));
                Filed::Tokens(vec![hash])
            }
            Item::Pool(hashes, token) => {
                for hash in &hashes {
                    self.tokens.insert(*hash, Token::Pool(Arc::clone(&token)));
                }
                Filed::Tokens(hashes)
            }
        };
        self.places.insert(place, filed);
    }

    /// Forgets a Secret.
    pub fn remove(&mut self, place: &Place) {
        match self.places.remove(place) {
            None => {}
            Some(Filed::Payload) => drop(self.payloads.remove(place)),
            Some(Filed::Overlay(host)) => drop(self.overlays.remove(&(place.0.clone(), host))),
            Some(Filed::Tokens(hashes)) => {
                for hash in hashes {
                    if let Some(Token::Host(token)) = self.tokens.remove(&hash) {
                        let host = (token.namespace.clone(), token.host.clone());
                        // Another Secret may have taken its place.
                        if self.hosts.get(&host) == Some(&hash) {
                            self.hosts.remove(&host);
                        }
                    }
                }
            }
        }
    }

    /// Forgets everything but these.
    pub fn retain(&mut self, places: &HashSet<Place>) {
        let gone: Vec<Place> = self.places.keys().filter(|place| !places.contains(*place)).cloned().collect();
        gone.iter().for_each(|place| self.remove(place));
    }

    /// Whose token this is.
    pub fn token(&self, hash: &TokenHash) -> Option<Token> {
        self.tokens.get(hash).cloned()
    }

    /// The token of a host.
    pub fn host_token(&self, namespace: &str, host: &str) -> Option<Arc<HostToken>> {
        match self.tokens.get(self.hosts.get(&(namespace.to_owned(), host.to_owned()))?)? {
            Token::Host(token) => Some(Arc::clone(token)),
            Token::Pool(_) => None,
        }
    }

    /// A payload by its Secret.
    pub fn payload(&self, namespace: &str, name: &str) -> Option<Arc<Payload>> {
        self.payloads.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// What a host has of its own.
    pub fn overlay(&self, namespace: &str, host: &str) -> Option<Arc<Overlay>> {
        self.overlays.get(&(namespace.to_owned(), host.to_owned())).cloned()
    }

    /// Tokens that were used not longer ago than this.
    pub fn used_since(&self, moment: Moment) -> Vec<Arc<HostToken>> {
        let hosts =
            self.tokens.values().filter_map(|token| if let Token::Host(token) = token { Some(token) } else { None });
        hosts.filter(|token| token.record.used.is_some_and(|first| moment <= first.at)).cloned().collect()
    }

    /// How much there is.
    pub fn counts(&self) -> Counts {
        let usable = self.payloads.values().filter(|payload| payload.source.is_ok()).count();
        let hosts = self.tokens.values().filter(|token| matches!(token, Token::Host(_))).count();
        Counts {
            payloads: usable,
            unusable: self.payloads.len() - usable,
            overlays: self.overlays.len(),
            host_tokens: hosts,
            pool_tokens: self.tokens.len() - hosts,
        }
    }
}

/// Reads a Secret; None for what the endpoints do not need or cannot make sense of. `known` is the payload as it was.
pub fn read_secret(object: &Value, known: Option<&Arc<Payload>>) -> Option<Item> {
    let (metadata, data) = (&object["metadata"], &object["data"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
    let revision = text(&metadata["resourceVersion"]);
    let label = |label: &str| text(&metadata["labels"][label]);
    match metadata["labels"][IGNITION_LABEL].as_str()? {
        "payload" => {
            if let Some(known) = known.filter(|known| known.revision == revision) {
                return Some(Item::Payload(Arc::clone(known)));
            }
            let source = decode_bytes(data, "config").ok_or(Unusable::Unpack);
            Some(Item::Payload(Arc::new(Payload {
                id: decode_text(data, "id").unwrap_or_default(),
                pool: label(POOL_LABEL),
                revision,
                writers: read_writers(data),
                kubeconfigs: read_object(data, "kubeconfigs"),
                source: source.and_then(|packed| Source::parse(packed.into())),
                rendered: SpecVersion::all().map(|_| OnceCell::new()).collect(),
            })))
        }
        "overlay" => {
            let overlay = read_overlay(data)?;
            Some(Item::Overlay(host_of(metadata, "overlay-"), Arc::new(overlay)))
        }
        BOOT_TOKEN => {
            let host = host_of(metadata, "boot-token-");
            let record = parse_record(data)?;
            let payload = decode_text(data, "payload").filter(|_| record.used.is_some());
            Some(Item::Host(Arc::new(HostToken { namespace, host, secret: name, revision, record, payload })))
        }
        "pool-token" => read_pool_token(metadata, data),
        _ => None,
    }
}

/// A JSON object under a key; an empty one for what is none.
fn read_object<T: DeserializeOwned>(data: &Value, key: &str) -> BTreeMap<String, T> {
    serde_json::from_str(&decode_text(data, key).unwrap_or_default()).unwrap_or_default()
}

/// Paths and what puts a file there.
fn read_writers(data: &Value) -> Vec<Writer> {
    read_object(data, "writers").into_iter().map(|(path, object)| Writer { path, object }).collect()
}

/// The owner; without one the label, which is cut when the name is too long for it, or the end of the Secret's name.
fn host_of(metadata: &Value, prefix: &str) -> String {
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    let owner = owners.filter(|owner| owner["kind"] == "Host").find_map(|owner| owner["name"].as_str());
    let name = metadata["name"].as_str().unwrap_or_default();
    let label = metadata["labels"][HOST_LABEL].as_str().filter(|label| !label.is_empty());
    owner.or(label).or_else(|| name.strip_prefix(prefix)).unwrap_or_default().to_owned()
}

fn read_overlay(data: &Value) -> Option<Overlay> {
    let text = decode_text(data, "files").unwrap_or_else(|| "[]".into());
    let items: Vec<Value> = serde_json::from_str(&text).ok()?;
    let inner = text.trim().strip_prefix('[')?.strip_suffix(']')?.trim();
    Some(Overlay {
        payload: decode_text(data, "payload")?,
        id: decode_text(data, "id").unwrap_or_default(),
        files: Bytes::copy_from_slice(inner.as_bytes()),
        paths: items.iter().filter_map(|file| file["path"].as_str().map(Box::from)).collect(),
        plain: items.iter().all(is_plain),
        config: decode_bytes(data, "config").filter(|config| !config.is_empty()).map(Bytes::from),
    })
}

/// Whether a file means the same in every version of spec 3: only fields 3.0 has, no bits before the permissions.
fn is_plain(file: &Value) -> bool {
    let only = |value: &Value, keys: &[&str]| {
        value.as_object().is_some_and(|all| all.keys().all(|key| keys.contains(&key.as_str())))
    };
    let contents = &file["contents"];
    only(file, &["path", "mode", "overwrite", "contents", "user", "group"])
        && (contents.is_null() || only(contents, &["source", "compression", "verification"]))
        && file["mode"].as_u64().is_none_or(|mode| mode <= 0o777)
}

fn read_pool_token(metadata: &Value, data: &Value) -> Option<Item> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let annotation = |name: &str| metadata["annotations"][name].as_str();
    let hashes: Vec<TokenHash> = ["token", "old_token"]
        .iter()
        .filter_map(|key| decode_text(data, key).filter(|token| !token.is_empty()))
        .map(|token| hash_token(&token))
        .collect();
    // A time nobody can read has passed.
    let expires = annotation(EXPIRATION_ANNOTATION).map(|time| parse_time(time).unwrap_or(Moment(i64::MIN)));
    let pool = metadata["labels"][POOL_LABEL].as_str().unwrap_or_default();
    let node_pool = annotation(NODE_POOL_ANNOTATION)
        .map_or_else(|| format!("{}/{pool}", text(&metadata["namespace"])), str::to_owned);
    let token = PoolToken {
        namespace: text(&metadata["namespace"]),
        secret: text(&metadata["name"]),
        node_pool,
        payload: annotation(PAYLOAD_ANNOTATION).unwrap_or_default().to_owned(),
        expires,
        reached: AtomicBool::new(annotation(REACHED_ANNOTATION) == Some("True")),
    };
    (!hashes.is_empty()).then(|| Item::Pool(hashes, Arc::new(token)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::boot_secrets::render_record;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    fn secret(name: &str, what: &str, more: Value, data: &[(&str, &str)]) -> Value {
        let data: Value = data
            .iter()
            .map(|(key, text)| ((*key).to_owned(), STANDARD.encode(text).into()))
            .collect::<serde_json::Map<_, _>>()
            .into();
        let mut object = json!({"metadata": {"name": name, "namespace": "site", "resourceVersion": "7", "labels": {"kiln.dev/ignition": what}}, "data": data});
        for (key, value) in more.as_object().into_iter().flatten() {
            object["metadata"][key] = value.clone();
        }
        object
    }

    fn put(table: &mut Table, object: &Value) -> bool {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let known = table.payload("site", &name);
        let item = read_secret(object, known.as_ref());
        let read = item.is_some();
        item.into_iter().for_each(|item| table.put(("site".into(), name.clone()), item));
        read
    }

    #[test]
    fn a_pool_has_two_tokens_and_forgets_both() {
        let mut table = Table::default();
        let more =
            json!({"annotations": {"kiln.dev/payload": "payload-w", "hypershift.openshift.io/nodePool": "clusters/w"}});
        assert!(put(
            &mut table,
            &secret("token-w-1", "pool-token", more.clone(), &[("token", "new"), ("old_token", "old")])
        ));
        for token in ["new", "old"] {
            let Some(Token::Pool(token)) = table.token(&hash_token(token)) else { panic!("{token} is unknown") };
            assert_eq!(
                (token.payload.as_str(), token.node_pool.as_str(), token.expires),
                ("payload-w", "clusters/w", None)
            );
        }
        assert!(put(&mut table, &secret("token-w-1", "pool-token", more, &[("token", "newer"), ("old_token", "new")])));
        assert!(table.token(&hash_token("old")).is_none() && table.token(&hash_token("newer")).is_some());
        table.retain(&HashSet::new());
        assert_eq!(table.counts(), Counts::default());
    }

    #[test]
    fn an_expiry_nobody_can_read_has_passed() {
        for (time, expected) in [("2026-01-02T03:04:05Z", Moment(1_767_323_045)), ("tomorrow", Moment(i64::MIN))] {
            let object =
                secret("t", "pool-token", json!({"annotations": {EXPIRATION_ANNOTATION: time}}), &[("token", "a")]);
            let Some(Item::Pool(_, token)) = read_secret(&object, None) else { panic!("{time}") };
            assert_eq!(token.expires, Some(expected));
        }
    }

    #[test]
    fn the_host_of_a_token_is_its_owner_or_in_its_label_or_its_name() {
        let record = BootRecord::issue(hash_token("kiln-a"), None, Moment(0), 60);
        for (more, expected) in [
            (json!({"labels": {"kiln.dev/ignition": "boot-token", "kiln.dev/host": "a"}}), "a"),
            (json!({"ownerReferences": [{"kind": "Pool", "name": "p"}, {"kind": "Host", "name": "b"}]}), "b"),
            (
                json!({"labels": {"kiln.dev/ignition": "boot-token", "kiln.dev/host": "cut-1234"},
                    "ownerReferences": [{"kind": "Host", "name": "whole"}]}),
                "whole",
            ),
            (json!({}), "c"),
        ] {
            let mut object = secret("boot-token-c", "boot-token", more, &[]);
            object["data"] = render_record(&record);
            let Some(Item::Host(token)) = read_secret(&object, None) else { panic!("{object}") };
            assert_eq!(
                (token.host.as_str(), token.secret.as_str(), token.revision.as_str()),
                (expected, "boot-token-c", "7")
            );
        }
    }

    #[test]
    fn files_that_older_versions_read_differently_are_not_plain() {
        for (files, plain) in [
            (json!([]), true),
            (json!([{"path": "/a", "mode": 420, "overwrite": true, "contents": {"source": "data:,"}}]), true),
            (json!([{"path": "/a", "contents": {"source": "https://x", "httpHeaders": []}}]), false),
            (json!([{"path": "/a", "append": []}]), false),
            (json!([{"path": "/a", "mode": 0o4755}]), false),
            (json!(["strange"]), false),
        ] {
            let object =
                secret("overlay-a", "overlay", Value::Null, &[("payload", "p"), ("files", &files.to_string())]);
            let Some(Item::Overlay(host, overlay)) = read_secret(&object, None) else { panic!("{files}") };
            assert_eq!((host.as_str(), overlay.plain), ("a", plain), "{files}");
        }
        for broken in ["{}", "[", "null"] {
            let object = secret("overlay-a", "overlay", Value::Null, &[("payload", "p"), ("files", broken)]);
            assert!(read_secret(&object, None).is_none(), "{broken}");
        }
    }

    #[test]
    fn a_payload_that_did_not_change_is_not_read_again() {
        let mut table = Table::default();
        let good = secret(
            "payload-w",
            "payload",
            Value::Null,
            &[("id", "1"), ("config", r#"{"ignition":{"version":"3.2.0"}}"#)],
        );
        assert!(put(&mut table, &good));
        let first = table.payload("site", "payload-w").unwrap();
        assert!(put(&mut table, &good) && Arc::ptr_eq(&first, &table.payload("site", "payload-w").unwrap()));
        assert!(put(&mut table, &secret("payload-x", "payload", Value::Null, &[("config", "{}")])));
        assert_eq!(table.counts(), Counts { payloads: 1, unusable: 1, ..Counts::default() });
        assert!(!put(&mut table, &secret("other", "something", Value::Null, &[])));
    }
}
