//! What the watches see goes into the cache.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;

use super::Shared;
use super::figures::Figures;
use super::kinds::{WATCHED, Watched};
use crate::hub::following::{Follower, Following, Place, Query, place};

/// One kind of the cache.
struct OfKind {
    kind: &'static Watched,
    shared: Arc<Shared>,
    figures: Arc<Figures>,
}

/// Follows every kind that is watched.
pub fn follow(following: &mut Following, shared: &Arc<Shared>, figures: &Arc<Figures>) {
    shared.lock().unread = WATCHED.len();
    for kind in WATCHED {
        let of_kind = OfKind { kind, shared: Arc::clone(shared), figures: Arc::clone(figures) };
        following.add(Query::all(*kind), Arc::new(of_kind));
    }
}

impl Follower for OfKind {
    fn put(&self, object: &Value) {
        self.shared.update(|cache| cache.put(self.kind, object));
    }

    fn remove(&self, object: &Value) {
        let (namespace, name) = place(object);
        self.shared.update(|cache| cache.remove(self.kind, &namespace, &name));
    }

    fn retain(&self, listed: &HashSet<Place>) {
        self.shared.update(|cache| cache.retain(self.kind, listed));
    }

    fn read_once(&self) {
        self.shared.first_list_is_read();
    }

    fn interrupted(&self) {
        self.figures.interrupted();
    }

    fn refused(&self, refused: bool) {
        self.figures.set_refused(self.kind, refused);
    }
}
