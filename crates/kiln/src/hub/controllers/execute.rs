//! Carrying out what was planned: one request per change, [`CONCURRENCY`] at a time. Nothing is decided here.

use std::collections::HashSet;

use futures::StreamExt;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, Error};
use serde_json::Value;

use super::cache::MANAGER;
use super::kinds::Watched;
use super::plan_objects::{Action, ObjectChange};
use crate::hub::mirror::{StatusPatch, holds_findings};

/// How many requests are under way at most. Whoever else writes to the API shares its commits with these: thirty-two of
/// them halved what thirty-two clients got done.
pub const CONCURRENCY: usize = 4;

/// How a batch of requests ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Executed {
    /// Taken by the API.
    pub done: usize,
    /// Somebody was faster, or the object is gone: the watches will tell.
    pub outdated: usize,
    /// Everything else.
    pub failed: usize,
}

impl Executed {
    fn add(mut self, other: Executed) -> Executed {
        self.done += other.done;
        self.outdated += other.outdated;
        self.failed += other.failed;
        self
    }
}

/// Makes, changes and removes objects.
pub async fn execute_objects(client: &Client, changes: Vec<ObjectChange>) -> Executed {
    let requests = changes.into_iter().map(|change| async move {
        let ObjectChange { kind, namespace, name, action } = change;
        let api = api(client, kind, &namespace);
        let result = match action {
            Action::Create(object) => create(&api, object).await,
            Action::Patch(patch) => api.patch(&name, &parameters(), &Patch::Merge(patch)).await.map(drop),
            Action::Delete { uid, revision } => {
                let same = Preconditions { uid: Some(uid), resource_version: Some(revision) };
                let options = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
                api.delete(&name, &options).await.map(drop)
            }
        };
        outcome(result, kind, &namespace, &name)
    });
    futures::stream::iter(requests)
        .buffer_unordered(CONCURRENCY)
        .fold(Executed::default(), async |all, one| all.add(one))
        .await
}

/// Writes statuses.
pub async fn execute_statuses(client: &Client, patches: Vec<StatusPatch>) -> Executed {
    execute_with_findings(client, patches).await.0
}

/// Writes statuses, and says which kinds have no room for the condition with findings.
pub async fn execute_with_findings(client: &Client, patches: Vec<StatusPatch>) -> (Executed, HashSet<&'static str>) {
    let requests = patches.into_iter().map(|patch| async move {
        let StatusPatch { kind, namespace, name, patch } = patch;
        let told = holds_findings(&patch);
        let result = api(client, kind, &namespace).patch_status(&name, &parameters(), &Patch::Merge(patch)).await;
        let no_room = told && !is_kept(&result);
        (outcome(result.map(drop), kind, &namespace, &name), no_room.then_some(kind.kind))
    });
    futures::stream::iter(requests)
        .buffer_unordered(CONCURRENCY)
        .fold((Executed::default(), HashSet::new()), async |(all, mut without), (one, no_room)| {
            without.extend(no_room);
            (all.add(one), without)
        })
        .await
}

/// Upstream's definitions may know no conditions: an API server drops them then, or refuses a status that lacks what is
/// demanded beside them. Any other failure says nothing about that.
fn is_kept(result: &Result<DynamicObject, Error>) -> bool {
    match result {
        Ok(object) => holds_findings(&object.data),
        Err(Error::Api(status)) => status.code != 422,
        Err(_) => true,
    }
}

async fn create(api: &Api<DynamicObject>, object: Value) -> Result<(), Error> {
    let object: DynamicObject = serde_json::from_value(object).map_err(Error::SerdeError)?;
    let options = PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() };
    api.create(&options, &object).await.map(drop)
}

fn api(client: &Client, kind: &Watched, namespace: &str) -> Api<DynamicObject> {
    match namespace {
        "" => Api::all_with(client.clone(), &kind.resource()),
        namespace => Api::namespaced_with(client.clone(), namespace, &kind.resource()),
    }
}

fn parameters() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() }
}

fn outcome(result: Result<(), Error>, kind: &Watched, namespace: &str, name: &str) -> Executed {
    match result {
        Ok(()) => Executed { done: 1, ..Executed::default() },
        Err(Error::Api(status)) if [404, 409, 410].contains(&status.code) => {
            tracing::debug!(kind = kind.kind, namespace, name, why = %status.message, "outdated");
            Executed { outdated: 1, ..Executed::default() }
        }
        Err(error) => {
            tracing::warn!(kind = kind.kind, namespace, name, %error, "the API did not take a change; it is tried again");
            Executed { failed: 1, ..Executed::default() }
        }
    }
}
