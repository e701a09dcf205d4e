//! `update` and `patch`.

use serde_json::Value;

use super::{Outcome, Server, Written, write_error};
use crate::apply::{ApplyError, Conflict, plan_apply};
use crate::change::{Part, WriteContext, is_unchanged, may_go, plan_unmanaged, plan_update};
use crate::error::{ApiError, Cause};
use crate::patch::{PatchError, apply_json_patch, apply_merge_patch, apply_strategic_patch};
use crate::resource::Resource;
use crate::server::CreateRequest;
use crate::store::{Draft, Stored, Write, WriteError};

/// A request to change an object.
#[derive(Debug)]
pub struct UpdateRequest<'a> {
    /// Which kind.
    pub resource: &'a Resource,
    /// From the path; empty for cluster-wide resources.
    pub namespace: &'a str,
    /// From the path.
    pub name: &'a str,
    /// Which part.
    pub part: Part,
    /// Whether to store nothing.
    pub dry_run: bool,
    /// Who writes.
    pub context: WriteContext,
}

/// How a patch says what to change.
#[derive(Debug, Clone)]
pub enum PatchBody {
    /// RFC 6902.
    Json(Vec<u8>),
    /// RFC 7386.
    Merge(Value),
    /// For kinds compiled into kubectl.
    Strategic(Value),
    /// Server-side apply.
    Apply {
        /// What the manager wants.
        wanted: Value,
        /// Whether to take fields from other managers.
        force: bool,
    },
}

/// How often a patch is computed anew when the object changes meanwhile.
const TRIES: usize = 5;

impl Server {
    /// Replaces an object. One that does not exist is not created, whatever its kind: 404.
    pub async fn replace(&self, request: UpdateRequest<'_>, body: Value) -> Result<Outcome, ApiError> {
        let given_revision = body["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if given_revision.is_empty() && request.resource.requires_revision {
            let cause = Cause::invalid("metadata.resourceVersion", &0.into(), "must be specified for an update");
            return Err(ApiError::invalid(request.resource.named(request.name), vec![cause]));
        }
        let once = !given_revision.is_empty();
        self.change(&request, once, |_| Ok(body.clone())).await
    }

    /// Patches an object. Server-side apply creates what does not exist.
    pub async fn patch(&self, request: UpdateRequest<'_>, patch: PatchBody) -> Result<Outcome, ApiError> {
        match patch {
            PatchBody::Apply { wanted, force } => self.apply(request, wanted, force).await,
            PatchBody::Json(patch) => {
                self.change(&request, false, |before| fit(apply_json_patch(before, &patch))).await
            }
            PatchBody::Merge(patch) => {
                let once = has_revision(&patch);
                self.change(&request, once, |before| fit(apply_merge_patch(before, &patch))).await
            }
            PatchBody::Strategic(patch) => {
                let once = has_revision(&patch);
                self.change(&request, once, |before| fit(apply_strategic_patch(before, &patch))).await
            }
        }
    }

    /// Reads, changes and stores, again when somebody else was faster unless it may be tried only `once`.
    pub(super) async fn change(
        &self,
        request: &UpdateRequest<'_>,
        once: bool,
        change: impl Fn(&Value) -> Result<Value, ApiError>,
    ) -> Result<Outcome, ApiError> {
        let UpdateRequest { resource, namespace, name, part, .. } = request;
        for attempt in 1.. {
            let stored = self.find(resource, namespace, name)?;
            let before = self.value(resource, &stored);
            let given = change(&before)?;
            let mut planned = plan_update(resource, &before, given, *part, &request.context)?;
            self.admit(resource, Some(&before), *part, &mut planned, (&request.context, request.dry_run))?;
            match self.commit(request, &stored, &before, planned.object).await {
                Err(WriteError::Conflict { .. }) if !once && attempt < TRIES => {}
                Err(error) => return Err(write_error(error, resource, name)),
                Ok(object) => return Ok(Outcome { object, warnings: planned.warnings, created: false }),
            }
        }
        Err(ApiError::stale(resource.named(name)))
    }

    async fn apply(&self, request: UpdateRequest<'_>, wanted: Value, force: bool) -> Result<Outcome, ApiError> {
        let UpdateRequest { resource, namespace, name, part, .. } = &request;
        if !wanted.is_object() {
            return Err(ApiError::bad_request("the body of an apply must be an object"));
        }
        for attempt in 1.. {
            let Ok(stored) = self.find(resource, namespace, name) else {
                if *part != Part::Main {
                    return Err(ApiError::not_found(resource.named(name)));
                }
                match self.create_by_apply(&request, &wanted).await {
                    Err(error) if error.reason == "AlreadyExists" && attempt < TRIES => continue,
                    done => return done,
                }
            };
            let before = self.value(resource, &stored);
            let applied = plan_apply(resource, &before, &wanted, *part, force, &request.context)
                .map_err(|error| apply_error(error, resource, name))?;
            let mut planned = plan_unmanaged(resource, &before, applied, *part, &request.context)?;
            self.admit(resource, Some(&before), *part, &mut planned, (&request.context, request.dry_run))?;
            match self.commit(&request, &stored, &before, planned.object).await {
                Err(WriteError::Conflict { .. }) if !has_revision(&wanted) && attempt < TRIES => {}
                Err(error) => return Err(write_error(error, resource, name)),
                Ok(object) => return Ok(Outcome { object, warnings: planned.warnings, created: false }),
            }
        }
        Err(ApiError::stale(resource.named(name)))
    }

    async fn create_by_apply(&self, request: &UpdateRequest<'_>, wanted: &Value) -> Result<Outcome, ApiError> {
        let UpdateRequest { resource, namespace, name, dry_run, context, .. } = request;
        let mut body = wanted.clone();
        if !body["metadata"].is_object() {
            body["metadata"] = serde_json::json!({});
        }
        body["metadata"]["name"] = (*name).into();
        let managed = crate::managed_fields::applied_entry(resource, wanted, Part::Main, context);
        body["metadata"]["managedFields"] = Value::Array(vec![managed]);
        let create = CreateRequest {
            resource,
            namespace,
            body,
            dry_run: *dry_run,
            context: WriteContext { applied: true, ..context.clone() },
        };
        self.create(create).await
    }

    /// Stores a changed object, or removes it when nothing holds it any longer. A change of nothing is not stored.
    async fn commit(
        &self,
        request: &UpdateRequest<'_>,
        stored: &std::sync::Arc<Stored>,
        before: &Value,
        object: Value,
    ) -> Result<Written, WriteError> {
        if is_unchanged(before, &object) {
            return Ok(Written::Stored(std::sync::Arc::clone(stored)));
        }
        if request.dry_run {
            return Ok(Written::DryRun(object));
        }
        let key = self.key(request.resource, request.namespace, request.name);
        let draft = Draft::new(&request.resource.stored(&object));
        let expected = stored.revision;
        let write = if may_go(&object) {
            Write::Delete { key, expected, draft, empty: None }
        } else {
            Write::Update { key, expected, draft }
        };
        let stored = self.store.write(write).await?;
        self.after_write(&request.resource.collection);
        Ok(Written::Stored(stored))
    }

    /// A stored object in the version of this resource.
    pub(crate) fn value(&self, resource: &Resource, stored: &Stored) -> Value {
        resource.shown(stored.value())
    }
}

pub(super) fn has_revision(body: &Value) -> bool {
    body["metadata"]["resourceVersion"].as_str().is_some_and(|revision| !revision.is_empty())
}

pub(super) fn fit(result: Result<Value, PatchError>) -> Result<Value, ApiError> {
    result.map_err(|error| match error {
        PatchError::Malformed(why) => ApiError::bad_request(format!("error decoding patch: {why}")),
        PatchError::Unfit(why) => ApiError::new(422, "Invalid", why),
    })
}

fn apply_error(error: ApplyError, resource: &Resource, name: &str) -> ApiError {
    match error {
        ApplyError::Malformed(why) => ApiError::bad_request(why),
        ApplyError::Conflicts(conflicts) => {
            let message = conflict_message(&conflicts);
            let mut error = ApiError::new(409, "Conflict", message).about(resource.named(name));
            *error.details = crate::error::Details {
                causes: conflicts
                    .into_iter()
                    .map(|conflict| Cause {
                        reason: "FieldManagerConflict",
                        message: format!("conflict with {}", conflict.manager_text()),
                        field: conflict.field,
                    })
                    .collect(),
                ..Default::default()
            };
            error
        }
    }
}

/// By manager, each with its fields below.
fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", only.manager_text(), only.field);
    }
    let mut managers: Vec<String> = conflicts.iter().map(Conflict::manager_text).collect();
    managers.sort();
    managers.dedup();
    let mut lines = Vec::new();
    for manager in managers {
        lines.push(format!("conflicts with {manager}:"));
        let own = conflicts.iter().filter(|conflict| conflict.manager_text() == manager);
        lines.extend(own.map(|conflict| format!("- {}", conflict.field)));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}
