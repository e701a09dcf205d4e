//! `/tokens`: bearer tokens for people and programs, made, listed and taken back by administrators.
//!
//! They are no Kubernetes objects: what is kept of a token is its hash, and its text leaves the server once, in the
//! answer that made it.

use axum::extract::Request;
use axum::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use super::answer::Answer;
use super::body;
use crate::error::ApiError;
use crate::identity::{AUTHENTICATED, Identity, TokenRecord};
use crate::server::Server;
use crate::store::WriteError;

/// How long a name of a user or a group may be.
const LONGEST_NAME: usize = 253;
/// How many groups a token may give.
const MOST_GROUPS: usize = 16;
/// The longest a token with an end may last.
const LONGEST_LIFETIME: i64 = 10 * 365 * 24 * 3600;

/// What a new token shall be.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Wish {
    user: String,
    groups: Vec<String>,
    #[serde(default)]
    lifetime_seconds: Option<i64>,
}

/// Answers a request for all tokens, or for the one of this id. Whether it is allowed has been decided.
pub(super) async fn answer(server: &Server, id: Option<&str>, request: Request) -> Result<Answer, ApiError> {
    match (request.method(), id) {
        (&Method::GET, None) => {
            let items: Vec<Value> = server.tokens().iter().map(render).collect();
            Ok(Answer::json(200, &json!({"items": items})))
        }
        (&Method::POST, None) => {
            let received = body::read(server, request).await?;
            let wish: Wish = serde_json::from_slice(&received.bytes)
                .map_err(|error| ApiError::bad_request(format!("this is no wish for a token: {error}")))?;
            let (identity, lifetime) = wish.check()?;
            let issued = server.issue_token(identity, lifetime).await.map_err(unwritten)?;
            let mut answer = render(&issued.record);
            answer["token"] = issued.text.into();
            Ok(Answer::json(201, &answer))
        }
        (&Method::DELETE, Some(id)) => match server.revoke_token(id).await.map_err(unwritten)? {
            true => Ok(Answer::json(200, &json!({"id": id}))),
            false => Err(ApiError::new(404, "NotFound", format!("there is no token `{id}`"))),
        },
        _ => Err(ApiError::method_not_allowed()),
    }
}

impl Wish {
    fn check(self) -> Result<(Identity, Option<Duration>), ApiError> {
        let named = |name: &String| {
            !name.is_empty() && name.len() <= LONGEST_NAME && !name.chars().any(|c| c.is_control() || c.is_whitespace())
        };
        let wrong = |why: String| Err(ApiError::bad_request(why));
        if !named(&self.user) {
            return wrong(format!("user: a name of 1 to {LONGEST_NAME} bytes without spaces is wanted"));
        }
        if self.groups.is_empty() || self.groups.len() > MOST_GROUPS || !self.groups.iter().all(named) {
            return wrong(format!(
                "groups: 1 to {MOST_GROUPS} names of at most {LONGEST_NAME} bytes without spaces are wanted"
            ));
        }
        if self.lifetime_seconds.is_some_and(|seconds| !(1..=LONGEST_LIFETIME).contains(&seconds)) {
            return wrong(format!(
                "lifetimeSeconds: 1 to {LONGEST_LIFETIME} are possible; without it a token never ends"
            ));
        }
        let mut groups = self.groups;
        groups.push(AUTHENTICATED.into());
        groups.dedup();
        Ok((Identity { user: self.user, groups }, self.lifetime_seconds.map(Duration::seconds)))
    }
}

fn render(record: &TokenRecord) -> Value {
    let time = |time: OffsetDateTime| time.format(&Rfc3339).unwrap_or_default();
    let groups: Vec<&String> = record.identity.groups.iter().filter(|group| *group != AUTHENTICATED).collect();
    json!({"id": record.id, "user": record.identity.user, "groups": groups, "issued": time(record.issued),
        "expires": record.expires.map(time)})
}

fn unwritten(error: WriteError) -> ApiError {
    ApiError::internal(format!("the token could not be written: {error}"))
}
