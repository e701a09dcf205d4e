//! `list`: pages over a snapshot.
//!
//! All pages of one list report the revision of the first: a client that lists and then watches from there misses
//! nothing that happened while it was turning pages.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::Server;
use crate::error::{ApiError, Cause};
use crate::request::Query;
use crate::resource::Resource;
use crate::selector::{FieldSelector, LabelSelector};
use crate::store::{Place, Stored};

/// A request for a list.
#[derive(Debug, Clone)]
pub struct ListRequest<'a> {
    /// Which kind.
    pub resource: &'a Resource,
    /// None for all namespaces.
    pub namespace: Option<&'a str>,
    /// By labels.
    pub labels: LabelSelector,
    /// By fields.
    pub fields: FieldSelector,
    /// Objects in the page.
    pub limit: Option<usize>,
    /// Where the page before ended.
    pub start: Option<Continuation>,
    /// The revision the client wants at least, or exactly.
    pub revision: Option<u64>,
    /// Whether exactly.
    pub exact: bool,
}

/// Where a page ended, and the revision of the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Continuation {
    revision: u64,
    after: Place,
}

/// A page.
#[derive(Debug)]
pub struct List {
    /// The objects.
    pub items: Vec<Arc<Stored>>,
    /// `metadata` of the list.
    pub metadata: Value,
}

impl<'a> ListRequest<'a> {
    /// Reads the parameters of a list.
    pub fn parse(resource: &'a Resource, namespace: Option<&'a str>, query: &Query) -> Result<Self, ApiError> {
        let selector = |error: crate::selector::SelectorError| ApiError::bad_request(error.to_string());
        let fields = FieldSelector::parse(query.get("fieldSelector").unwrap_or_default()).map_err(selector)?;
        for requirement in fields.requirements() {
            if !resource.is_selectable(&requirement.path) {
                return Err(ApiError::bad_request(format!("field label not supported: {}", requirement.path)));
            }
        }
        let exact = check_revision_match(query)?;
        Ok(ListRequest {
            resource,
            namespace: if resource.namespaced { namespace } else { None },
            labels: LabelSelector::parse(query.get("labelSelector").unwrap_or_default()).map_err(selector)?,
            fields,
            limit: query
                .number("limit")?
                .filter(|limit| *limit > 0)
                .map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
            start: query.get("continue").map(Continuation::parse).transpose()?,
            revision: query.number("resourceVersion")?.filter(|revision| *revision > 0),
            exact,
        })
    }

    /// Whether the selectors take this object.
    pub fn matches(&self, stored: &Stored) -> bool {
        if self.namespace.is_some_and(|namespace| *stored.place.namespace != *namespace) {
            return false;
        }
        if !self.labels.matches(&stored.index.labels) {
            return false;
        }
        if self.fields.requirements().iter().all(|part| part.path.starts_with("metadata.")) {
            return self.fields.matches(|path| match path {
                "metadata.name" => stored.place.name.to_string(),
                _ => stored.place.namespace.to_string(),
            });
        }
        let object = self.resource.shown(stored.value());
        self.fields.matches(|path| self.resource.field_text(&object, path))
    }
}

impl Server {
    /// One page.
    pub fn list(&self, request: &ListRequest<'_>) -> Result<List, ApiError> {
        let snapshot = self.store.snapshot();
        let revision = self.list_revision(request, snapshot.revision)?;
        let limit = request.limit.map(|limit| limit.min(self.limits.page));
        let after = request.start.as_ref().map(|start| &start.after);
        let mut rest = snapshot
            .list(&request.resource.collection, request.namespace, after)
            .filter(|stored| request.matches(stored));
        let items: Vec<Arc<Stored>> = rest.by_ref().take(limit.unwrap_or(usize::MAX)).cloned().collect();
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if let (Some(_), Some(last)) = (limit, items.last())
            && rest.next().is_some()
        {
            metadata["continue"] = Continuation { revision, after: last.place.clone() }.render().into();
            if request.labels.is_empty() && request.fields.requirements().is_empty() {
                metadata["remainingItemCount"] = (rest.count() + 1).into();
            }
        }
        Ok(List { items, metadata })
    }

    /// The revision a list reports, or why it cannot be given.
    fn list_revision(&self, request: &ListRequest<'_>, current: u64) -> Result<u64, ApiError> {
        if let Some(start) = &request.start {
            // The later pages are newer than the first; the log must still be able to tell what changed.
            let log = self.store.log(&request.resource.collection);
            return match log.read_after(start.revision, 1) {
                Ok(_) if start.revision <= current => Ok(start.revision),
                _ => Err(ApiError::expired(
                    "The provided continue parameter is too old to display a consistent list result. You must start a \
                     new list without the continue parameter.",
                )),
            };
        }
        match request.revision {
            Some(wanted) if wanted > current => {
                let mut error =
                    ApiError::new(504, "Timeout", format!("Too large resource version: {wanted}, current: {current}"));
                error.details.causes = vec![Cause {
                    reason: "ResourceVersionTooLarge",
                    message: "Too large resource version".into(),
                    field: String::new(),
                }];
                error.details.retry_after_seconds = 1;
                Err(error)
            }
            Some(wanted) if request.exact => {
                let log = self.store.log(&request.resource.collection);
                match log.read_after(wanted, 1) {
                    Ok(events) if events.is_empty() => Ok(wanted),
                    _ => Err(ApiError::expired(format!("The resourceVersion {wanted} is too old."))),
                }
            }
            _ => Ok(current),
        }
    }
}

/// Whether the list must be of exactly the revision that is named; combinations that mean nothing are refused.
fn check_revision_match(query: &Query) -> Result<bool, ApiError> {
    let (revision, watches) = (query.get("resourceVersion"), query.flag("watch"));
    let forbidden = |field: &str, why: &str| {
        let named = crate::error::Named { group: "meta.k8s.io", resource: "ListOptions", name: "" };
        Err(ApiError::invalid(named, vec![Cause::forbidden(field, why)]))
    };
    if query.get("continue").is_some() && revision.is_some_and(|revision| revision != "0") {
        return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
    }
    let wanted = query.get("resourceVersionMatch");
    if query.get("sendInitialEvents").is_some() {
        if !watches {
            return forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
        }
        if wanted != Some("NotOlderThan") {
            return forbidden(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            );
        }
        return Ok(false);
    }
    match wanted {
        None => Ok(false),
        Some(_) if watches => forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
        Some(_) if revision.is_none() => {
            forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided")
        }
        Some(_) if query.get("continue").is_some() => {
            forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided")
        }
        Some("Exact") if revision == Some("0") => {
            forbidden("resourceVersionMatch", "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")
        }
        Some("Exact") => Ok(true),
        Some("NotOlderThan") => Ok(false),
        Some(other) => {
            let named = crate::error::Named { group: "meta.k8s.io", resource: "ListOptions", name: "" };
            let message = format!("Unsupported value: {other:?}: supported values: \"Exact\", \"NotOlderThan\"");
            let field = "resourceVersionMatch".to_owned();
            Err(ApiError::invalid(named, vec![Cause { reason: "FieldValueNotSupported", message, field }]))
        }
    }
}

impl Continuation {
    fn parse(text: &str) -> Result<Continuation, ApiError> {
        let wrong = || ApiError::bad_request("continue key is not valid");
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| wrong())?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|_| wrong())?;
        let text = |key: &str| value[key].as_str().ok_or_else(wrong);
        let after = Place { namespace: text("namespace")?.into(), name: text("name")?.into() };
        Ok(Continuation { revision: value["revision"].as_u64().ok_or_else(wrong)?, after })
    }

    fn render(&self) -> String {
        let value = json!({"revision": self.revision, "namespace": &*self.after.namespace, "name": &*self.after.name});
        URL_SAFE_NO_PAD.encode(value.to_string())
    }
}
