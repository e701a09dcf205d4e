//! What is stored for nodes, as the watch on it sees it: names, digests and revisions. Of all contents only the pools' tokens
//! are kept, for the user-data.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln_core::payload::digest::sha256_hex;
use kiln_core::pool_token::{Expiry, PoolTokenRecord};
use kiln_core::provision::Stored;
use kiln_core::timeline::Moment;
use serde_json::Value;

use super::render::CONFIGURATION_HASH;
use super::{HOST_LABEL, LABEL, PAYLOAD_ANNOTATION, POOL_LABEL};
use crate::hub::boot_secrets::BOOT_TOKEN;
use crate::hub::controllers::Shared;
use crate::hub::controllers::kinds;
use crate::hub::following::{Follower, Following, Place, Query, place};
use crate::hub::machines::records::MACHINE;
use crate::hub::network::records::ASSIGNMENT;
use crate::hub::timeline::parse_time;

/// HyperShift's annotations of a token Secret.
pub mod annotation {
    /// Marks the Secrets the ignition server looks at.
    pub const CONFIG: &str = "hypershift.openshift.io/ignition-config";
    /// `Replace` or `InPlace`.
    pub const UPGRADE_TYPE: &str = "hypershift.openshift.io/node-pool-upgrade-type";
    /// `namespace/name` of the pool.
    pub const NODE_POOL: &str = "hypershift.openshift.io/nodePool";
    /// When the token was made.
    pub const GENERATED: &str = "hypershift.openshift.io/last-token-generation-time";
    /// Whether a machine has fetched with it.
    pub const REACHED: &str = "hypershift.openshift.io/ignition-reached";
    /// When the Secret goes.
    pub const EXPIRES: &str = "hypershift.openshift.io/ignition-token-expiration-timestamp";
}

/// One Secret for nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldSecret {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub revision: String,
    /// `metadata.creationTimestamp`.
    pub created: Option<Moment>,
    /// The label with the pool's name.
    pub pool: String,
    /// The label with the host's name.
    pub host: String,
    /// What it is.
    pub what: What,
}

/// What a Secret for nodes is.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// A pool's config.
    Payload,
    /// What a host adds.
    Overlay {
        /// The digest of what is in it.
        id: String,
        /// The payload it is laid over.
        payload: String,
    },
    /// A pool's token.
    PoolToken(PoolToken),
    /// A pool's pointer config.
    UserData {
        /// SHA-256 of the pointer.
        digest: String,
    },
    /// Something of a newer Kiln.
    Other,
}

/// A pool's token.
#[derive(Clone, PartialEq)]
pub struct PoolToken {
    /// The token itself.
    pub token: String,
    /// When it was made and until when it lives.
    pub record: PoolTokenRecord,
    /// The payload it is for.
    pub payload: String,
    /// Whether a machine has fetched with it.
    pub reached: bool,
    /// The hash of its cluster's configuration.
    pub configuration_hash: String,
}

impl fmt::Debug for PoolToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolToken")
            .field("record", &self.record)
            .field("payload", &self.payload)
            .finish_non_exhaustive()
    }
}

/// Everything that is stored for nodes, by namespace and name.
#[derive(Debug, Default)]
pub struct Held {
    secrets: BTreeMap<(String, String), HeldSecret>,
    listed: bool,
}

impl Held {
    /// Whether everything was read once.
    pub fn is_listed(&self) -> bool {
        self.listed
    }

    /// Everything.
    pub fn iter(&self) -> impl Iterator<Item = (&(String, String), &HeldSecret)> {
        self.secrets.iter()
    }

    /// One of them.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&HeldSecret> {
        self.secrets.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// Takes the newest state of a Secret. Says whether that is news.
    pub fn put(&mut self, object: &Value) -> bool {
        let place = place(object);
        let secret = HeldSecret::of(object);
        let news = self.secrets.get(&place) != Some(&secret);
        self.secrets.insert(place, secret);
        news
    }

    /// Forgets a Secret.
    pub fn remove(&mut self, namespace: &str, name: &str) -> bool {
        self.secrets.remove(&(namespace.to_owned(), name.to_owned())).is_some()
    }

    /// A list was read: what is not in it is gone.
    pub fn retain(&mut self, names: &HashSet<(String, String)>) -> bool {
        let (before, listed) = (self.secrets.len(), self.listed);
        self.secrets.retain(|place, _| names.contains(place));
        self.listed = true;
        self.secrets.len() != before || !listed
    }

    /// What need not be rendered again.
    pub fn stored(&self) -> Stored {
        let overlays = self.secrets.iter().filter_map(|((namespace, _), secret)| match &secret.what {
            What::Overlay { id, .. } => Some(((namespace.clone(), secret.host.clone()), id.clone())),
            _ => None,
        });
        Stored { overlays: overlays.collect(), secrets: self.secrets.keys().cloned().collect() }
    }
}

impl HeldSecret {
    /// Reduces a Secret.
    pub fn of(object: &Value) -> HeldSecret {
        let metadata = &object["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let data = |key: &str| decode(&object["data"][key]);
        let what = match metadata["labels"][LABEL].as_str() {
            Some("payload") => What::Payload,
            Some("overlay") => What::Overlay { id: data("id"), payload: data("payload") },
            Some("pool-token") => What::PoolToken(pool_token(object)),
            Some("user-data") => What::UserData { digest: sha256_hex(&data("value")) },
            _ => What::Other,
        };
        HeldSecret {
            uid: text(&metadata["uid"]),
            revision: text(&metadata["resourceVersion"]),
            created: metadata["creationTimestamp"].as_str().and_then(parse_time),
            pool: text(&metadata["labels"][POOL_LABEL]),
            host: text(&metadata["labels"][HOST_LABEL]),
            what,
        }
    }
}

fn pool_token(object: &Value) -> PoolToken {
    let annotations = &object["metadata"]["annotations"];
    let expires = match annotations[annotation::EXPIRES].as_str() {
        None => Expiry::Open,
        Some(text) => parse_time(text).map_or(Expiry::Unreadable, Expiry::At),
    };
    PoolToken {
        token: decode(&object["data"]["token"]),
        record: PoolTokenRecord {
            generated: annotations[annotation::GENERATED].as_str().and_then(parse_time),
            expires,
        },
        payload: annotations[PAYLOAD_ANNOTATION].as_str().unwrap_or_default().to_owned(),
        reached: annotations[annotation::REACHED] == "True",
        configuration_hash: decode(&object["data"][CONFIGURATION_HASH]),
    }
}

fn decode(value: &Value) -> String {
    let bytes = value.as_str().and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

/// Follows every Secret that is made for nodes.
pub(crate) fn follow(following: &mut Following, shared: &Arc<Shared>) {
    // Tokens of hosts and what running nodes are told are somebody else's, and the most restless Secrets there are.
    let selector = format!("{LABEL},{LABEL}!={BOOT_TOKEN},{LABEL}!={ASSIGNMENT},{LABEL}!={MACHINE}");
    following.add(Query::all(kinds::SECRET).labelled(&selector), Arc::new(OnDesk(Arc::clone(shared))));
}

/// What the desk holds of them.
struct OnDesk(Arc<Shared>);

impl Follower for OnDesk {
    fn put(&self, object: &Value) {
        self.0.desk.update_held(|held| held.put(object));
    }

    fn remove(&self, object: &Value) {
        let (namespace, name) = place(object);
        self.0.desk.update_held(|held| held.remove(&namespace, &name));
    }

    fn retain(&self, listed: &HashSet<Place>) {
        self.0.desk.update_held(|held| held.retain(listed));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_contents_only_the_pools_tokens_are_kept_and_never_shown() {
        let object = json!({"metadata": {"name": "token-p-1", "namespace": "n", "uid": "u", "resourceVersion": "7",
            "labels": {LABEL: "pool-token", POOL_LABEL: "p"},
            "annotations": {annotation::GENERATED: "2026-01-01T00:00:00Z", annotation::EXPIRES: "soon", PAYLOAD_ANNOTATION: "payload-p-1"}},
            "data": {"token": STANDARD.encode("hunter2"), "payload": STANDARD.encode("large")}});
        let secret = HeldSecret::of(&object);
        let What::PoolToken(token) = &secret.what else { panic!("{secret:?}") };
        assert_eq!((token.token.as_str(), token.record.expires), ("hunter2", Expiry::Unreadable));
        assert_eq!(token.record.generated, Some(Moment(1_767_225_600)));
        assert!(!format!("{secret:?}").contains("hunter2"));
        let mut held = Held::default();
        assert!(held.put(&object) && !held.put(&object));
        assert!(held.retain(&HashSet::new()) && held.is_listed());
        assert!(held.get("n", "token-p-1").is_none());
    }
}
