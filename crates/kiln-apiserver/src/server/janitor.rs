//! What a controller-manager does in a real cluster: empties namespaces and definitions that are being deleted, and
//! removes objects whose owners are gone.
//!
//! One pass looks at everything it needs from one snapshot; whatever it changes wakes it again, until nothing is left to
//! do. It keeps no state, so a crash costs nothing but the pass.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;

use super::delete::{CLEANUP, DeleteOptions, FOREGROUND, ORPHAN, Propagation, TOGETHER};
use super::{Server, stopped};
use crate::change::may_go;
use crate::error::ApiError;
use crate::identity::{ADMINISTRATORS, Identity};
use crate::registry::{DEFINITIONS, Registry};
use crate::resource::Resource;
use crate::store::{Draft, Key, Snapshot, Stored, Write, WriteError};

/// Bursts of deletions share a pass.
const PAUSE: Duration = Duration::from_millis(20);
/// After a pass that met an error.
const RETRY: Duration = Duration::from_secs(1);

/// A change to one object, computed from the newest state of it.
type Edit = dyn Fn(&mut Value) + Send + Sync;

impl Server {
    /// Works until the server stops.
    pub async fn run_janitor(self: Arc<Self>) {
        let mut stopping = self.stopping();
        let mut definitions = self.store.log(DEFINITIONS).subscribe();
        loop {
            let pause = match self.clean().await {
                Ok(()) => PAUSE,
                Err(error) => {
                    tracing::warn!(error = %error.message, "garbage collection will be tried again");
                    self.store.cleaning().notify_one();
                    RETRY
                }
            };
            tokio::select! {
                () = self.store.cleaning().notified() => {}
                // Somebody wrote a definition and did not stay for the answer.
                Ok(()) = definitions.changed() => self.refresh_registry(),
                () = stopped(&mut stopping) => return,
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// One pass.
    pub(super) async fn clean(&self) -> Result<(), ApiError> {
        let (snapshot, registry) = (self.store.snapshot(), self.registry());
        for stored in snapshot.list("namespaces", None, None).filter(|stored| stored.index.deleting) {
            self.empty_namespace(&snapshot, &registry, stored).await?;
        }
        for stored in snapshot.list(DEFINITIONS, None, None).filter(|stored| stored.index.deleting) {
            self.empty_definition(&snapshot, &registry, stored).await?;
        }
        self.collect_dependents(&snapshot, &registry).await?;
        self.release_owners(&snapshot, &registry).await
    }

    async fn empty_namespace(&self, snapshot: &Snapshot, registry: &Registry, stored: &Stored) -> Result<(), ApiError> {
        let namespace = &*stored.place.name;
        let mut left = 0;
        let mut seen = HashSet::new();
        for resource in registry.all().filter(|resource| resource.namespaced) {
            if seen.insert(Arc::clone(&resource.collection)) {
                left += self.delete_all(snapshot, resource, Some(namespace)).await?;
            }
        }
        if left == 0
            && let Some(resource) = registry.find("", "v1", "namespaces")
        {
            // Nothing new came in since the mark: the store itself refuses that.
            self.edit(resource, "", namespace, &|object| object["spec"] = serde_json::json!({})).await?;
        }
        Ok(())
    }

    async fn empty_definition(
        &self,
        snapshot: &Snapshot,
        registry: &Registry,
        stored: &Stored,
    ) -> Result<(), ApiError> {
        let left = match registry.of_collection(&stored.place.name) {
            Some(resource) => self.delete_all(snapshot, resource, None).await?,
            None => 0,
        };
        match registry.of_collection(DEFINITIONS) {
            Some(resource) if left == 0 => {
                self.edit(resource, "", &stored.place.name, &|object| remove_finalizer(object, CLEANUP)).await
            }
            _ => Ok(()),
        }
    }

    /// Deletes everything of a resource; says how much finalizers hold.
    async fn delete_all(
        &self,
        snapshot: &Snapshot,
        resource: &Resource,
        namespace: Option<&str>,
    ) -> Result<usize, ApiError> {
        let (mut held, options) = (0, DeleteOptions::default());
        let all: Vec<_> = snapshot.list(&resource.collection, namespace, None).collect();
        for group in all.chunks(TOGETHER) {
            let deletions = group.iter().map(async |stored| {
                let place = &stored.place;
                // One that finalizers hold is marked once; it is not told again with every pass.
                let told = !stored.index.deleting;
                let deleted = self.delete(resource, &place.namespace, &place.name, &options).await;
                if told && deleted.is_ok() {
                    self.audit_own(&janitor_identity(), "delete", resource, place);
                }
                deleted
            });
            for deleted in join_all(deletions).await {
                match deleted {
                    Ok(super::Deleted::Gone(_)) => {}
                    Ok(super::Deleted::Held(_)) => held += 1,
                    Err(error) if error.code == 404 => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(held)
    }

    /// Deletes objects none of whose owners stays. One that has another owner only loses the references to those that
    /// are gone or wait for it.
    async fn collect_dependents(&self, snapshot: &Snapshot, registry: &Registry) -> Result<(), ApiError> {
        let dependents: Vec<_> = snapshot.all().filter(|(_, stored)| !stored.index.owners.is_empty()).collect();
        if dependents.is_empty() {
            return Ok(());
        }
        let alive: HashSet<&str> = snapshot.all().map(|(_, stored)| &*stored.index.uid).collect();
        let owning: HashSet<&str> =
            dependents.iter().flat_map(|(_, s)| s.index.owners.iter()).map(String::as_str).collect();
        let waiting = waiting_owners(snapshot, FOREGROUND);
        for (collection, stored) in dependents {
            let Some(resource) = registry.of_collection(collection) else { continue };
            let owners = &stored.index.owners;
            let stays = |owner: &String| alive.contains(owner.as_str()) && !waiting.contains(owner.as_str());
            let staying: HashSet<String> = owners.iter().filter(|owner| stays(owner)).cloned().collect();
            let place = &stored.place;
            if staying.is_empty() {
                if stored.index.deleting {
                    continue;
                }
                // What an owner waits for waits for its own dependents in turn.
                let waited_for = owners.iter().any(|owner| waiting.contains(owner.as_str()));
                let propagation = match waited_for && owning.contains(&*stored.index.uid) {
                    true => Propagation::Foreground,
                    false => Propagation::Background,
                };
                let uid = Some(stored.index.uid.to_string());
                let options = DeleteOptions { uid, propagation, ..DeleteOptions::default() };
                match self.delete(resource, &place.namespace, &place.name, &options).await {
                    Err(error) if error.code == 404 || error.code == 409 => {}
                    Err(error) => return Err(error),
                    Ok(_) => self.audit_own(&janitor_identity(), "delete", resource, place),
                }
            } else if staying.len() < owners.len() {
                let keep = move |object: &mut Value| keep_owners(object, &|uid| staying.contains(uid));
                self.edit(resource, &place.namespace, &place.name, &keep).await?;
            }
        }
        Ok(())
    }

    /// Lets owners go that waited for their dependents to go or to be orphaned.
    async fn release_owners(&self, snapshot: &Snapshot, registry: &Registry) -> Result<(), ApiError> {
        for (collection, stored) in snapshot.all().filter(|(_, stored)| stored.index.deleting) {
            let Some(resource) = registry.of_collection(collection) else { continue };
            let value = stored.value();
            let has = |finalizer: &str| {
                value["metadata"]["finalizers"].as_array().is_some_and(|list| list.iter().any(|f| f == finalizer))
            };
            let uid = stored.index.uid.to_string();
            let owned = |other: &Stored| other.index.owners.iter().any(|owner| *owner == *uid);
            let place = &stored.place;
            if has(ORPHAN) {
                for (collection, dependent) in snapshot.all().filter(|(_, other)| owned(other)) {
                    let Some(resource) = registry.of_collection(collection) else { continue };
                    let owner = uid.clone();
                    let keep = move |object: &mut Value| keep_owners(object, &|uid| uid != owner);
                    self.edit(resource, &dependent.place.namespace, &dependent.place.name, &keep).await?;
                }
                let release = |object: &mut Value| remove_finalizer(object, ORPHAN);
                self.edit(resource, &place.namespace, &place.name, &release).await?;
            }
            // Only a dependent that says so holds its owner back.
            let blocks = |other: &Stored| owned(other) && blocks_deletion(&other.value(), &uid);
            if has(FOREGROUND) && !snapshot.all().any(|(_, other)| blocks(other)) {
                let release = |object: &mut Value| remove_finalizer(object, FOREGROUND);
                self.edit(resource, &place.namespace, &place.name, &release).await?;
            }
        }
        Ok(())
    }

    /// Changes an object, or removes it when nothing holds it any longer.
    async fn edit(&self, resource: &Resource, namespace: &str, name: &str, edit: &Edit) -> Result<(), ApiError> {
        let key: Key = self.key(resource, namespace, name);
        loop {
            let Some(stored) = self.store.snapshot().get(&key).cloned() else { return Ok(()) };
            let before = stored.value();
            let mut object = before.clone();
            edit(&mut object);
            if object == before {
                return Ok(());
            }
            let (key, draft, expected) = (key.clone(), Draft::new(&object), stored.revision);
            let write = if may_go(&object) {
                Write::Delete { key, expected, draft, empty: None }
            } else {
                Write::Update { key, expected, draft }
            };
            match self.store.write(write).await {
                Ok(written) => {
                    self.after_write(&resource.collection);
                    self.audit_own(&janitor_identity(), "update", resource, &written.place);
                    return Ok(());
                }
                Err(WriteError::Conflict { .. }) => {}
                Err(WriteError::Missing) => return Ok(()),
                Err(error) => return Err(super::write_error(error, resource, name)),
            }
        }
    }
}

/// Who removes what a deleted owner, namespace or definition left.
fn janitor_identity() -> Identity {
    Identity::member("system:kiln:garbage-collection", ADMINISTRATORS)
}

fn waiting_owners(snapshot: &Snapshot, finalizer: &str) -> HashSet<String> {
    let deleting = snapshot.all().filter(|(_, stored)| stored.index.deleting);
    deleting
        .filter(|(_, stored)| {
            stored.value()["metadata"]["finalizers"].as_array().is_some_and(|list| list.iter().any(|f| f == finalizer))
        })
        .map(|(_, stored)| stored.index.uid.to_string())
        .collect()
}

fn remove_finalizer(object: &mut Value, finalizer: &str) {
    retain(object, "finalizers", &|known| known != finalizer);
}

fn keep_owners(object: &mut Value, keep: &dyn Fn(&str) -> bool) {
    retain(object, "ownerReferences", &|owner| owner["uid"].as_str().is_some_and(keep));
}

fn blocks_deletion(object: &Value, owner: &str) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.filter(|reference| reference["uid"] == owner).any(|reference| reference["blockOwnerDeletion"] == true)
}

/// Keeps some items of a list in the metadata; an empty list is left out.
fn retain(object: &mut Value, field: &str, keep: &dyn Fn(&Value) -> bool) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    if let Some(Value::Array(list)) = metadata.get_mut(field) {
        list.retain(keep);
        if list.is_empty() {
            metadata.shift_remove(field);
        }
    }
}
