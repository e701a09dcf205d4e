//! The verbs on objects: from a request to a call of [`Server`] and back.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::header::USER_AGENT;
use bytes::Bytes;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::sync::mpsc;

use super::answer::Answer;
use super::body::{self, APPLY_PATCH};
use super::list_body::ListBody;
use crate::change::{FieldValidation, Part, WriteContext};
use crate::discovery::verbs_of;
use crate::duplicates::duplicate_fields;
use crate::error::ApiError;
use crate::identity::Identity;
use crate::policy::Condition;
use crate::request::{Form, ObjectPath, Query};
use crate::resource::Resource;
use crate::server::{
    CreateRequest, DeleteOptions, Deleted, InitialEvents, ListRequest, Outcome, PatchBody, Propagation, Server,
    UpdateRequest, WatchRequest, Written, part_of,
};
use crate::store::Stored;
use crate::table::{partial_metadata, render_table};
use crate::timestamp::render_timestamp;

/// A watch without a timeout ends after this long, so that clients spread over replicas and forgotten ones end.
const WATCH_TIME: Duration = Duration::from_secs(45 * 60);
/// No watch is longer.
const LONGEST_WATCH: u64 = 24 * 3600;
/// Frames that wait for a slow client; beyond that its cursor waits.
const FRAMES: usize = 4;

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

/// A request about objects, with everything that was found out about it.
pub(super) struct Call<'a> {
    pub(super) server: &'a Arc<Server>,
    pub(super) identity: Identity,
    /// What an object that is created must say.
    pub(super) conditions: Vec<Condition>,
    pub(super) resource: &'a Arc<Resource>,
    pub(super) path: &'a ObjectPath,
    pub(super) query: &'a Query,
    pub(super) form: Form,
}

impl Call<'_> {
    pub(super) async fn answer(self, verb: &str, request: Request) -> Result<Answer, ApiError> {
        let part = part_of(self.resource, self.path.subresource.as_deref())?;
        if self.resource.namespaced && self.path.namespace.is_none() && (self.path.name.is_some() || verb == "create") {
            return Err(ApiError::bad_request("an empty namespace may not be set during this operation"));
        }
        let verbs = match self.path.subresource {
            Some(_) => &["get", "update", "patch"],
            None => verbs_of(self.resource),
        };
        if !verbs.contains(&verb) {
            return Err(ApiError::method_not_allowed());
        }
        let name = self.path.name.as_deref().unwrap_or_default();
        match verb {
            "get" => {
                let stored = self.server.find(self.resource, self.namespace(), name)?;
                if part == Part::Scale {
                    let object = self.server.value(self.resource, &stored);
                    return Ok(Answer::json(200, &self.server.scale(self.resource, &object)?));
                }
                Ok(self.object(200, &Written::Stored(stored)))
            }
            "list" => self.list(),
            "watch" => self.watch(),
            "create" => {
                let context = self.context(&request)?;
                let received = body::read(self.server, request).await?;
                let body = body::object(&received)?;
                if let Some(unmet) = self.conditions.iter().find(|condition| !condition.holds(&body)) {
                    return Err(super::denied(&self.identity, "create", self.path, Some(unmet)));
                }
                let duplicates = self.duplicates(&received)?;
                let create = CreateRequest {
                    resource: self.resource,
                    namespace: self.namespace(),
                    body,
                    dry_run: self.query.dry_run()?,
                    context,
                };
                let mut outcome = self.server.create(create).await?;
                outcome.warnings.splice(0..0, duplicates);
                Ok(self.outcome(outcome))
            }
            "update" | "patch" => {
                let context = self.context(&request)?;
                let update = UpdateRequest {
                    resource: self.resource,
                    namespace: self.namespace(),
                    name,
                    part,
                    dry_run: self.query.dry_run()?,
                    context,
                };
                let received = body::read(self.server, request).await?;
                let duplicates = self.duplicates(&received)?;
                let mut outcome = match (verb, part) {
                    ("update", Part::Scale) => self.server.replace_scale(update, body::object(&received)?).await?,
                    ("update", _) => self.server.replace(update, body::object(&received)?).await?,
                    (_, Part::Scale) => self.server.patch_scale(update, self.patch_body(received)?).await?,
                    _ => self.server.patch(update, self.patch_body(received)?).await?,
                };
                outcome.warnings.splice(0..0, duplicates);
                if part == Part::Scale {
                    let scale = self.server.scale(self.resource, &self.written(&outcome.object))?;
                    return Ok(Answer::json(200, &scale).with_warnings(outcome.warnings));
                }
                Ok(self.outcome(outcome))
            }
            "delete" => {
                let options = self.delete_options(request).await?;
                let deleted = self.server.delete(self.resource, self.namespace(), name, &options).await?;
                Ok(self.deleted(name, deleted))
            }
            _ => {
                let options = self.delete_options(request).await?;
                let list = ListRequest::parse(self.resource, self.path.namespace.as_deref(), self.query)?;
                let items = self.server.delete_collection(list, &options).await?;
                let revision = self.server.snapshot().revision.to_string();
                Ok(self.list_answer(items, &json!({"resourceVersion": revision})))
            }
        }
    }

    fn namespace(&self) -> &str {
        self.path.namespace.as_deref().unwrap_or_default()
    }

    fn context(&self, request: &Request) -> Result<WriteContext, ApiError> {
        let agent = request.headers().get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let manager = self.query.get("fieldManager").unwrap_or_else(|| agent.split('/').next().unwrap_or_default());
        if manager.len() > 128 {
            return Err(ApiError::bad_request("fieldManager may not be longer than 128 bytes"));
        }
        Ok(WriteContext {
            now: render_timestamp(OffsetDateTime::now_utc()),
            validation: self.query.field_validation()?,
            manager: if manager.is_empty() { "unknown".into() } else { manager.into() },
            user: self.identity.user.clone(),
            groups: self.identity.groups.clone(),
            applied: false,
        })
    }

    /// Keys that stand twice in the body, as warnings or, if the client is strict, as a refusal.
    fn duplicates(&self, received: &body::Received) -> Result<Vec<String>, ApiError> {
        let validation = self.query.field_validation()?;
        let is_object = ["", "application/json", MERGE_PATCH, APPLY_PATCH].contains(&received.media.as_str());
        if !is_object || validation == FieldValidation::Ignore {
            return Ok(Vec::new());
        }
        let found = duplicate_fields(&received.bytes).into_iter().map(|field| format!("duplicate field \"{field}\""));
        let told: Vec<String> = found.collect();
        if validation == FieldValidation::Strict && !told.is_empty() {
            let (kind, version) = (&self.resource.kind, &self.resource.version);
            return Err(ApiError::bad_request(format!(
                "{kind} in version \"{version}\" cannot be handled as a {kind}: strict decoding error: {}",
                told.join(", ")
            )));
        }
        Ok(told)
    }

    fn patch_body(&self, received: body::Received) -> Result<PatchBody, ApiError> {
        match received.media.as_str() {
            JSON_PATCH => Ok(PatchBody::Json(received.bytes.to_vec())),
            MERGE_PATCH => Ok(PatchBody::Merge(body::json(&received.bytes)?)),
            STRATEGIC_PATCH if self.resource.builtin => Ok(PatchBody::Strategic(body::json(&received.bytes)?)),
            APPLY_PATCH => {
                if self.query.get("fieldManager").is_none() {
                    return Err(ApiError::bad_request("fieldManager is required for apply patch"));
                }
                let wanted = body::json(&received.bytes)
                    .map_err(|error| ApiError::bad_request(format!("error decoding YAML: {}", error.message)))?;
                Ok(PatchBody::Apply { wanted, force: self.query.flag("force") })
            }
            _ => Err(ApiError::unsupported_media_type(&[JSON_PATCH, MERGE_PATCH, APPLY_PATCH])),
        }
    }

    async fn delete_options(&self, request: Request) -> Result<DeleteOptions, ApiError> {
        let received = body::read(self.server, request).await?;
        let mut options = match received.bytes.is_empty() {
            true => DeleteOptions::default(),
            false => DeleteOptions::parse(&body::object(&received)?)?,
        };
        options.dry_run |= self.query.dry_run()?;
        if let Some(policy) = self.query.get("propagationPolicy") {
            options.propagation = Propagation::parse(policy)?;
        }
        Ok(options)
    }

    fn list(&self) -> Result<Answer, ApiError> {
        let request = ListRequest::parse(self.resource, self.path.namespace.as_deref(), self.query)?;
        let list = self.server.list(&request)?;
        Ok(self.list_answer(list.items, &list.metadata))
    }

    fn list_answer(&self, items: Vec<Arc<Stored>>, metadata: &Value) -> Answer {
        let values = || items.iter().map(|stored| self.server.value(self.resource, stored)).collect::<Vec<_>>();
        match self.form {
            Form::Table => {
                let now = OffsetDateTime::now_utc();
                let include = self.query.include_object();
                Answer::json(200, &render_table(self.resource, &values(), metadata, include, now))
            }
            Form::Metadata => {
                let items: Vec<Value> = values().iter().map(partial_metadata).collect();
                Answer::json(
                    200,
                    &json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                    "metadata": metadata, "items": items}),
                )
            }
            Form::Plain | Form::Discovery(_) => self.joined(items, metadata),
        }
    }

    /// A list is its objects' bytes one after the other, unless they are stored in another version.
    fn joined(&self, items: Vec<Arc<Stored>>, metadata: &Value) -> Answer {
        let mut head = format!(
            "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{metadata},\"items\":[",
            Value::from(self.resource.list_kind.as_str()),
            Value::from(self.resource.api_version())
        );
        let prefix = self.prefix();
        if items.iter().all(|stored| stored.json.starts_with(prefix.as_bytes())) {
            return Answer::list(ListBody::new(head, items));
        }
        let converted: Vec<Value> = items.iter().map(|stored| self.server.value(self.resource, stored)).collect();
        head.pop();
        Answer::bytes(200, Bytes::from(format!("{head}{}}}", Value::from(converted))))
    }

    /// How the bytes of an object in the version that was asked for begin.
    fn prefix(&self) -> String {
        format!("{{\"apiVersion\":{},", Value::from(self.resource.api_version()))
    }

    /// An object's bytes in the version that was asked for.
    fn in_version(&self, stored: &Stored) -> Bytes {
        if stored.json.starts_with(self.prefix().as_bytes()) {
            return stored.bytes();
        }
        Bytes::from(self.server.value(self.resource, stored).to_string())
    }

    fn watch(&self) -> Result<Answer, ApiError> {
        let query = self.query;
        // Refuses wrong selectors before the stream begins.
        ListRequest::parse(self.resource, self.path.namespace.as_deref(), query)?;
        let mut watched = query.clone();
        if let Some(name) = &self.path.name {
            watched = watched.with("fieldSelector", &format!("metadata.name={name}"));
        }
        let revision = query.number("resourceVersion")?.filter(|revision| *revision > 0);
        let initial = match (query.get("sendInitialEvents"), revision) {
            // A revision from another life of the data, for example from before a backup was restored: what the client
            // knows is not what happened here, and what exists is not as new as it asks for.
            (_, Some(revision)) if revision > self.server.snapshot().revision => InitialEvents::Unknown(revision),
            (Some("true"), _) if query.flag("allowWatchBookmarks") => InitialEvents::ExistingWithEnd,
            (Some("true"), _) => InitialEvents::Existing,
            (Some(_), None) => InitialEvents::From(self.server.snapshot().revision),
            (None, None) => InitialEvents::Existing,
            (_, Some(revision)) => InitialEvents::From(revision),
        };
        let timeout = query.number("timeoutSeconds")?.filter(|seconds| *seconds > 0);
        let timeout = timeout.map_or(WATCH_TIME, |seconds| Duration::from_secs(seconds.min(LONGEST_WATCH)));
        let permit = self.server.guard.take_watch(&self.identity)?;
        let request = WatchRequest {
            resource: Arc::clone(self.resource),
            namespace: self.path.namespace.clone(),
            query: watched,
            initial,
            bookmarks: query.flag("allowWatchBookmarks"),
            timeout,
            form: self.form,
            include: query.include_object(),
        };
        let (sender, frames) = mpsc::channel(FRAMES);
        tokio::spawn(Arc::clone(self.server).watch(request, sender, permit));
        Ok(Answer::stream(frames))
    }

    fn outcome(&self, outcome: Outcome) -> Answer {
        let code = if outcome.created { 201 } else { 200 };
        let name = match &outcome.object {
            Written::Stored(stored) => stored.place.name.to_string(),
            Written::DryRun(value) => value["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        };
        self.object(code, &outcome.object).with_warnings(outcome.warnings).named(name)
    }

    fn object(&self, code: u16, object: &Written) -> Answer {
        if let (Written::Stored(stored), Form::Plain | Form::Discovery(_)) = (object, self.form) {
            return Answer::bytes(code, self.in_version(stored));
        }
        let value = self.written(object);
        match self.form {
            Form::Table => {
                let metadata = json!({"resourceVersion": value["metadata"]["resourceVersion"]});
                let now = OffsetDateTime::now_utc();
                let include = self.query.include_object();
                Answer::json(code, &render_table(self.resource, &[value], &metadata, include, now))
            }
            Form::Metadata => Answer::json(code, &partial_metadata(&value)),
            Form::Plain | Form::Discovery(_) => Answer::json(code, &value),
        }
    }

    fn written(&self, object: &Written) -> Value {
        match object {
            Written::Stored(stored) => self.server.value(self.resource, stored),
            Written::DryRun(value) => value.clone(),
        }
    }

    fn deleted(&self, name: &str, deleted: Deleted) -> Answer {
        match deleted {
            Deleted::Held(object) => Answer::json(200, &object),
            Deleted::Gone(object) => {
                let mut details = json!({"name": name, "kind": self.resource.plural, "uid": object["metadata"]["uid"]});
                if !self.resource.group.is_empty() {
                    details["group"] = self.resource.group.as_str().into();
                }
                let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                    "details": details});
                Answer::json(200, &status)
            }
        }
    }
}
