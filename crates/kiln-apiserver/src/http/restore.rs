//! `/restore`: makes the store equal to a backup whose database lies in the store's own folder. For administrators.
//!
//! No path is in a request: whoever asks must have been able to write into the folder, under the one name that is looked at.

use std::sync::Arc;

use axum::http::Method;
use serde_json::json;

use super::answer::Answer;
use crate::error::ApiError;
use crate::request::Query;
use crate::server::Server;
use crate::store::backup::RestoredTokens;
use crate::store::restore::RestoreError;
use crate::store::{OpenError, WriteError};

/// Answers when everything is on the disk and served. Whether it is allowed has been decided.
pub(super) async fn answer(server: &Arc<Server>, method: &Method, query: &Query) -> Result<Answer, ApiError> {
    if method != Method::POST {
        return Err(ApiError::method_not_allowed());
    }
    if query.has("dryRun") {
        return Err(ApiError::bad_request("dryRun: a restore has none"));
    }
    let wanted = || ApiError::bad_request("sha256: what the database in the folder hashes to is wanted");
    let sha256 = query.get("sha256").ok_or_else(wanted)?.to_owned();
    let tokens = if query.flag("forgetTokens") { RestoredTokens::Forget } else { RestoredTokens::Keep };
    let server = Arc::clone(server);
    // Of its own: a client that leaves must not leave it half done.
    let done = tokio::spawn(async move { server.restore(sha256, tokens).await }).await;
    let restored = done.map_err(|error| ApiError::internal(error.to_string()))?.map_err(|error| refusal(&error))?;
    Ok(Answer::json(
        200,
        &json!({"from": restored.from, "created": restored.created, "changed": restored.changed,
            "deleted": restored.deleted, "revision": restored.revision}),
    ))
}

fn refusal(error: &RestoreError) -> ApiError {
    let mut message = format!("nothing was restored: {error}");
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        message.push_str(&format!(": {next}"));
        cause = next.source();
    }
    match error {
        RestoreError::NoFile | RestoreError::AnotherFile | RestoreError::AnotherKey => {
            ApiError::new(409, "Conflict", message)
        }
        RestoreError::Write(WriteError::Closed) => ApiError::new(503, "ServiceUnavailable", message),
        RestoreError::Write(_) | RestoreError::Open(OpenError::File { .. }) => ApiError::internal(message),
        RestoreError::Open(_) | RestoreError::Read(_) | RestoreError::Damaged { .. } | RestoreError::Revision(_) => {
            ApiError::new(422, "Invalid", message)
        }
    }
}
