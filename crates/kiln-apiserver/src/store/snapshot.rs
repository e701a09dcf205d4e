//! An immutable picture of all objects at one revision.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use rpds::RedBlackTreeMapSync;
use serde_json::Value;

use super::{Index, WriteError};
use crate::packed::Packed;

/// Where an object is. Cluster-wide objects have an empty namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The collection, for example `configmaps` or `widgets.example.org`.
    pub collection: Arc<str>,
    /// Place within the collection.
    pub place: Place,
}

impl Key {
    /// The key of an object.
    pub fn new(collection: &Arc<str>, namespace: &str, name: &str) -> Key {
        Key { collection: Arc::clone(collection), place: Place { namespace: namespace.into(), name: name.into() } }
    }
}

/// Namespace and name: the order in which lists are answered.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Empty for cluster-wide objects.
    pub namespace: Arc<str>,
    /// The object's name.
    pub name: Arc<str>,
}

/// One object as it was committed.
#[derive(Debug)]
pub struct Stored {
    /// Namespace and name.
    pub place: Place,
    /// Its `metadata.resourceVersion`.
    pub revision: u64,
    /// The whole object, revision included.
    pub json: Packed,
    /// What selectors and the garbage collector ask about it.
    pub index: Index,
}

impl Stored {
    /// The object as a value. The bytes were checked when they came in and when they were loaded.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.json.text()).unwrap_or(Value::Null)
    }

    /// Its bytes.
    pub fn bytes(&self) -> Bytes {
        Bytes::from(self.json.text().into_owned())
    }
}

type Items = RedBlackTreeMapSync<Place, Arc<Stored>>;

/// All collections as of one revision.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The revision of the newest change in it.
    pub revision: u64,
    collections: BTreeMap<Arc<str>, Items>,
}

impl Snapshot {
    /// Nothing, as of this revision.
    pub(super) fn empty(revision: u64) -> Snapshot {
        Snapshot { revision, collections: BTreeMap::new() }
    }

    /// One object.
    pub fn get(&self, key: &Key) -> Option<&Arc<Stored>> {
        self.collections.get(&key.collection)?.get(&key.place)
    }

    /// Whether all of these exist and none is under deletion; otherwise the first that is in the way.
    pub fn require(&self, keys: &[Key]) -> Result<(), WriteError> {
        for key in keys {
            match self.get(key) {
                None => return Err(WriteError::RequirementMissing(key.clone())),
                Some(stored) if stored.index.deleting => return Err(WriteError::RequirementLeaving(key.clone())),
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// The objects of a collection in order, in one namespace or in all, beginning after `after`.
    pub fn list<'a>(
        &'a self,
        collection: &str,
        namespace: Option<&'a str>,
        after: Option<&Place>,
    ) -> impl Iterator<Item = &'a Arc<Stored>> + use<'a> {
        let start = match (after, namespace) {
            (Some(after), _) => after.clone(),
            (None, Some(namespace)) => Place { namespace: namespace.into(), name: "".into() },
            (None, None) => Place { namespace: "".into(), name: "".into() },
        };
        let skipped = after.cloned();
        self.collections
            .get(collection)
            .into_iter()
            .flat_map(move |items| items.range(start.clone()..))
            .filter(move |(place, _)| Some(*place) != skipped.as_ref())
            .take_while(move |(place, _)| namespace.is_none_or(|wanted| &*place.namespace == wanted))
            .map(|(_, stored)| stored)
    }

    /// How many objects a collection has.
    pub fn count(&self, collection: &str) -> usize {
        self.collections.get(collection).map_or(0, Items::size)
    }

    /// How many objects each collection has.
    pub fn counts(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        self.collections.iter().map(|(name, items)| (name, items.size()))
    }

    /// Every object with its collection.
    pub fn all(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Stored>)> {
        self.collections.iter().flat_map(|(name, items)| items.values().map(move |stored| (name, stored)))
    }

    pub(super) fn put(&mut self, collection: &Arc<str>, stored: Arc<Stored>) {
        let items = self.collections.entry(Arc::clone(collection)).or_insert_with(Items::new_sync);
        items.insert_mut(stored.place.clone(), stored);
    }

    pub(super) fn remove(&mut self, key: &Key) {
        if let Some(items) = self.collections.get_mut(&key.collection) {
            items.remove_mut(&key.place);
        }
    }
}
