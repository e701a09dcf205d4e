//! Reading and writing the `scale` subresource.

use serde_json::Value;

use super::update::{fit, has_revision};
use super::{Outcome, PatchBody, Server, UpdateRequest};
use crate::error::ApiError;
use crate::patch::{apply_json_patch, apply_merge_patch};
use crate::scale::{ScalePaths, applied_scale, existing_scale, scale_of, with_scale};

impl Server {
    /// Replaces the scale of an object; gives the object.
    pub async fn replace_scale(&self, request: UpdateRequest<'_>, body: Value) -> Result<Outcome, ApiError> {
        let paths = paths(&request)?;
        if let Some(other) = body["metadata"]["name"].as_str().filter(|name| !name.is_empty() && *name != request.name)
        {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({other}) does not match the name on the URL ({})",
                request.name
            )));
        }
        self.change(&request, has_revision(&body), |before| with_scale(paths, before, &body)).await
    }

    /// Patches the scale of an object; gives the object.
    pub async fn patch_scale(&self, request: UpdateRequest<'_>, patch: PatchBody) -> Result<Outcome, ApiError> {
        let paths = paths(&request)?;
        let changed = |before: &Value, scale: Result<Value, ApiError>| with_scale(paths, before, &scale?);
        match patch {
            PatchBody::Apply { wanted, force } => {
                let wanted = applied_scale(paths, &request.resource.api_version(), &request.resource.kind, &wanted);
                self.patch(request, PatchBody::Apply { wanted, force }).await
            }
            PatchBody::Json(patch) => {
                let scale = |before: &Value| fit(apply_json_patch(&scale_of(paths, before), &patch));
                self.change(&request, false, |before| changed(before, scale(before))).await
            }
            PatchBody::Merge(patch) | PatchBody::Strategic(patch) => {
                let scale = |before: &Value| fit(apply_merge_patch(&scale_of(paths, before), &patch));
                self.change(&request, has_revision(&patch), |before| changed(before, scale(before))).await
            }
        }
    }

    /// The scale of an object.
    pub fn scale(&self, resource: &crate::resource::Resource, object: &Value) -> Result<Value, ApiError> {
        existing_scale(resource.scale.as_ref().ok_or_else(ApiError::no_such_path)?, object)
    }
}

fn paths<'a>(request: &UpdateRequest<'a>) -> Result<&'a ScalePaths, ApiError> {
    request.resource.scale.as_ref().ok_or_else(ApiError::no_such_path)
}
