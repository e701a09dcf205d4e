//! `delete` and `deletecollection`.

use std::sync::Arc;

use futures::future::join_all;
use serde_json::{Value, json};

use super::{FIRST_NAMESPACES, ListRequest, Server, system_context, write_error};
use crate::change::may_go;
use crate::error::ApiError;
use crate::registry::DEFINITIONS;
use crate::resource::Resource;
use crate::store::{Draft, Stored, Write, WriteError};

/// What becomes of objects that name the deleted one as their owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Propagation {
    /// They go after it.
    #[default]
    Background,
    /// They go before it.
    Foreground,
    /// They stay and lose the reference.
    Orphan,
}

/// How to delete.
#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    /// What becomes of dependents.
    pub propagation: Propagation,
    /// The object must have this uid.
    pub uid: Option<String>,
    /// The object must have this revision.
    pub revision: Option<String>,
    /// Whether to delete nothing.
    pub dry_run: bool,
}

/// How a deletion ended.
#[derive(Debug, Clone)]
pub enum Deleted {
    /// It is gone; its last state.
    Gone(Value),
    /// Finalizers hold it.
    Held(Value),
}

/// Deletions of a collection that wait for the disk together, and so share its transactions.
pub(super) const TOGETHER: usize = 256;

/// Taken away when no dependents are left.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// Taken away when the dependents have lost their reference.
pub(super) const ORPHAN: &str = "orphan";
/// Taken away when no objects of the definition are left.
pub(super) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

impl DeleteOptions {
    /// Reads a DeleteOptions body; an empty one asks for nothing special.
    pub fn parse(body: &Value) -> Result<DeleteOptions, ApiError> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let dry_run = body["dryRun"].as_array().is_some_and(|list| list.iter().any(|mode| mode == "All"));
        let propagation = match body["propagationPolicy"].as_str() {
            Some(policy) => Propagation::parse(policy)?,
            None if body["orphanDependents"] == true => Propagation::Orphan,
            None => Propagation::Background,
        };
        let preconditions = &body["preconditions"];
        let (uid, revision) = (text(&preconditions["uid"]), text(&preconditions["resourceVersion"]));
        Ok(DeleteOptions { propagation, uid, revision, dry_run })
    }
}

impl Propagation {
    /// Reads the name of a policy.
    pub fn parse(text: &str) -> Result<Propagation, ApiError> {
        match text {
            "Background" => Ok(Propagation::Background),
            "Foreground" => Ok(Propagation::Foreground),
            "Orphan" => Ok(Propagation::Orphan),
            other => Err(ApiError::bad_request(format!(
                "propagationPolicy: unsupported value {other:?}: use Background, Foreground or Orphan"
            ))),
        }
    }
}

impl Server {
    /// Deletes an object, or marks it when something holds it.
    pub async fn delete(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        if resource.is("", "namespaces") && FIRST_NAMESPACES.contains(&name) {
            let error =
                ApiError::forbidden(format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted"));
            return Err(error.about(resource.named(name)));
        }
        // Each turn is caused by somebody else's progress.
        loop {
            let stored = self.find(resource, namespace, name)?;
            let before = self.value(resource, &stored);
            check_preconditions(resource, &before, name, options)?;
            let object = self.marked(resource, &stored, &before, options);
            let goes = may_go(&object);
            if options.dry_run || (!goes && object == before) {
                return Ok(if goes { Deleted::Gone(object) } else { Deleted::Held(object) });
            }
            // One that goes at once never was under deletion: watchers see its last state.
            let last = if goes && !stored.index.deleting { &before } else { &object };
            let (key, draft) = (self.key(resource, namespace, name), Draft::new(&resource.stored(last)));
            let write = if goes {
                // An object that came since the look at the definition would be an orphan.
                let empty = (*resource.collection == *DEFINITIONS).then(|| Arc::clone(&stored.place.name));
                Write::Delete { key, expected: stored.revision, draft, empty }
            } else {
                Write::Update { key, expected: stored.revision, draft }
            };
            match self.store.write(write).await {
                Err(WriteError::Conflict { .. } | WriteError::NotEmpty) => {}
                Err(error) => return Err(write_error(error, resource, name)),
                Ok(written) => {
                    self.after_write(&resource.collection);
                    let object = self.value(resource, &written);
                    return Ok(if goes { Deleted::Gone(object) } else { Deleted::Held(object) });
                }
            }
        }
    }

    /// Deletes everything a list request finds; gives what it found.
    pub async fn delete_collection(
        &self,
        request: ListRequest<'_>,
        options: &DeleteOptions,
    ) -> Result<Vec<Arc<Stored>>, ApiError> {
        let resource = request.resource;
        let list = self.list(&request)?;
        for group in list.items.chunks(TOGETHER) {
            let deletions =
                group.iter().map(|stored| self.delete(resource, &stored.place.namespace, &stored.place.name, options));
            for deleted in join_all(deletions).await {
                match deleted {
                    Err(error) if error.code == 404 => {}
                    Err(error) => return Err(error),
                    Ok(_) => {}
                }
            }
        }
        Ok(list.items)
    }

    /// The object as deletion leaves it: marked, and held by what must happen first.
    fn marked(&self, resource: &Resource, stored: &Stored, before: &Value, options: &DeleteOptions) -> Value {
        let mut object = before.clone();
        let mut finalizers = before["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let has_objects = *resource.collection == *DEFINITIONS && self.store.snapshot().count(&stored.place.name) > 0;
        let wanted = [
            (options.propagation == Propagation::Foreground).then_some(FOREGROUND),
            (options.propagation == Propagation::Orphan).then_some(ORPHAN),
            has_objects.then_some(CLEANUP),
        ];
        for finalizer in wanted.into_iter().flatten() {
            if !stored.index.deleting && !finalizers.iter().any(|known| known == finalizer) {
                finalizers.push(finalizer.into());
            }
        }
        if !finalizers.is_empty() {
            object["metadata"]["finalizers"] = finalizers.into();
        }
        if !stored.index.deleting {
            object["metadata"]["deletionTimestamp"] = system_context().now.into();
            object["metadata"]["deletionGracePeriodSeconds"] = 0.into();
            if let Some(generation) = object["metadata"]["generation"].as_i64() {
                object["metadata"]["generation"] = (generation + 1).into();
            }
            if resource.is("", "namespaces") {
                object["status"] = json!({"phase": "Terminating"});
            }
        }
        object
    }
}

fn check_preconditions(
    resource: &Resource,
    object: &Value,
    name: &str,
    options: &DeleteOptions,
) -> Result<(), ApiError> {
    let check = |what: &str, wanted: &Option<String>, found: &Value| match wanted {
        Some(wanted) if found.as_str() != Some(wanted) => {
            let found = found.as_str().unwrap_or_default();
            let why =
                format!("the {what} in the precondition ({wanted}) does not match the {what} in record ({found})");
            let perhaps = if what == "UID" { "deleted and then recreated" } else { "modified" };
            let why = format!("{why}. The object might have been {perhaps}");
            Err(ApiError::conflict(resource.named_kind(name), &why))
        }
        _ => Ok(()),
    };
    check("UID", &options.uid, &object["metadata"]["uid"])?;
    check("ResourceVersion", &options.revision, &object["metadata"]["resourceVersion"])
}
