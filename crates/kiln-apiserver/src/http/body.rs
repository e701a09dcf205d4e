//! Bodies: bounded in size and time, JSON, YAML or the protobuf that Go clients send for built-in kinds.
//!
//! All bodies together are bounded, too. What counts is what has arrived, not what was announced: a slow client holds
//! no more than it has sent.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::HeaderName;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use bytes::{Bytes, BytesMut};
use serde::de::IgnoredAny;
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

use crate::error::ApiError;
use crate::guard::Peer;
use crate::metrics::Turned;
use crate::protobuf;
use crate::server::Server;

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
/// Server-side apply, whose body is YAML by name.
pub(super) const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// What is read of a body that is refused, so that the client gets to reading the refusal.
const DRAINED: usize = 16 << 20;
/// For how long.
const DRAIN_TIME: Duration = Duration::from_secs(2);

/// A body and what it says it is.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) media: String,
    pub(super) bytes: Bytes,
    /// Given back when the body is no longer needed.
    _budget: Option<OwnedSemaphorePermit>,
}

/// Reads the body within bounds.
pub(super) async fn read(server: &Server, request: Request) -> Result<Received, ApiError> {
    let limit = server.limits.body_bytes;
    let media = text(&request, CONTENT_TYPE).split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let announced = text(&request, CONTENT_LENGTH).parse().unwrap_or(0);
    let who = request.extensions().get::<Peer>().map(|peer| peer.0.to_string()).unwrap_or_default();
    let mut body = request.into_body();
    let result = if announced > limit {
        Err(Refused::TooLarge)
    } else {
        let reading = collect(server, &mut body, limit);
        tokio::time::timeout(server.limits.guard.body_time, reading).await.unwrap_or(Err(Refused::Slow))
    };
    let why = match result {
        Ok((bytes, budget)) if (media == YAML && server.yaml.is_some()) || media == APPLY_PATCH => {
            let bytes = json_of_yaml(server, bytes).await?;
            let media = if media == YAML { JSON.into() } else { media };
            return Ok(Received { media, bytes, _budget: budget });
        }
        Ok((bytes, budget)) => return Ok(Received { media, bytes, _budget: budget }),
        Err(why) => why,
    };
    let error = match why {
        Refused::TooLarge => {
            server.guard.turn_away(Turned::Body, &who, "the body is too large");
            let _ = tokio::time::timeout(DRAIN_TIME, drain(&mut body)).await;
            ApiError::too_large(limit)
        }
        Refused::Slow => {
            server.guard.turn_away(Turned::Slow, &who, "the body took too long to arrive");
            ApiError::new(408, "Timeout", "the body of the request did not arrive in time")
        }
        Refused::Budget => {
            server.guard.turn_away(Turned::Body, &who, "too many large bodies at a time");
            ApiError::too_many_requests("too many requests with large bodies: try again later")
        }
        Refused::Broken => ApiError::bad_request("the body of the request ended before its end"),
    };
    Err(error)
}

/// YAML as the JSON it stands for. What is JSON already, as from nearly all clients, stays as it is.
async fn json_of_yaml(server: &Server, bytes: Bytes) -> Result<Bytes, ApiError> {
    let begins = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    let is_json = begins.is_none_or(|byte| *byte == b'{') && serde_json::from_slice::<IgnoredAny>(&bytes).is_ok();
    if bytes.is_empty() || is_json {
        return Ok(bytes);
    }
    let refused = |why: &str| ApiError::bad_request(format!("error decoding YAML: {why}"));
    let text = std::str::from_utf8(&bytes).map_err(|_| refused("it is not UTF-8"))?;
    let read = server.yaml.ok_or_else(|| refused("only its JSON subset is read"))?;
    let _turn = server.yaml_turn.acquire().await;
    let json = read(text).map_err(|why| refused(&why))?.to_string();
    match json.len() > server.limits.body_bytes {
        true => Err(ApiError::too_large(server.limits.body_bytes)),
        false => Ok(json.into()),
    }
}

fn text(request: &Request, name: HeaderName) -> &str {
    request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

enum Refused {
    TooLarge,
    Slow,
    Budget,
    Broken,
}

async fn collect(
    server: &Server,
    body: &mut Body,
    limit: usize,
) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Refused> {
    let (mut bytes, mut budget): (BytesMut, Option<OwnedSemaphorePermit>) = Default::default();
    while let Some(frame) = next_frame(body).await {
        let frame = frame.map_err(|_| Refused::Broken)?;
        if bytes.len() + frame.len() > limit {
            return Err(Refused::TooLarge);
        }
        let kilobytes = u32::try_from(frame.len().div_ceil(1024)).unwrap_or(u32::MAX);
        let bodies = std::sync::Arc::clone(&server.guard.bodies);
        let more = bodies.try_acquire_many_owned(kilobytes).map_err(|_| Refused::Budget)?;
        match &mut budget {
            None => budget = Some(more),
            Some(budget) => budget.merge(more),
        }
        bytes.extend_from_slice(&frame);
    }
    Ok((bytes.freeze(), budget))
}

async fn drain(body: &mut Body) {
    let mut left = DRAINED;
    while let Some(Ok(frame)) = next_frame(body).await {
        match left.checked_sub(frame.len()) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

/// The next bytes; trailers are skipped.
async fn next_frame(body: &mut Body) -> Option<Result<Bytes, axum::Error>> {
    loop {
        match poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await? {
            Err(error) => return Some(Err(error)),
            Ok(frame) => {
                if let Ok(bytes) = frame.into_data() {
                    return Some(Ok(bytes));
                }
            }
        }
    }
}

/// The object in a body.
pub(super) fn object(received: &Received) -> Result<Value, ApiError> {
    match received.media.as_str() {
        "" | JSON => json(&received.bytes).and_then(|object| check_shape(&object).map(|()| object)),
        protobuf::MEDIA_TYPE => protobuf::decode(&received.bytes)
            .map_err(|why| ApiError::bad_request(format!("the protobuf in the body cannot be read: {why}"))),
        _ => Err(ApiError::unsupported_media_type(&[JSON, protobuf::MEDIA_TYPE])),
    }
}

/// Refuses a head of the wrong shape, which no schema looks at.
fn check_shape(object: &Value) -> Result<(), ApiError> {
    let wrong = |field: &str, value: &Value, wanted: &str| {
        let found = match value {
            Value::Object(_) => "object",
            Value::Array(_) => "array",
            Value::String(_) => "string",
            Value::Number(_) => "number",
            Value::Bool(_) => "bool",
            Value::Null => "null",
        };
        Err(ApiError::bad_request(format!("json: cannot unmarshal {found} into field {field} of type {wanted}")))
    };
    for field in ["apiVersion", "kind"] {
        match object.get(field) {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(other) => return wrong(field, other, "string"),
        }
    }
    for field in ["name", "generateName", "namespace", "uid", "resourceVersion"] {
        match object.get("metadata").and_then(|metadata| metadata.get(field)) {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(other) => return wrong(&format!("metadata.{field}"), other, "string"),
        }
    }
    for field in ["labels", "annotations"] {
        match object.get("metadata").and_then(|metadata| metadata.get(field)) {
            None | Some(Value::Null) => {}
            Some(Value::Object(map)) => {
                if let Some((key, other)) = map.iter().find(|(_, value)| !value.is_string() && !value.is_null()) {
                    return wrong(&format!("metadata.{field}[{key}]"), other, "string");
                }
            }
            Some(other) => return wrong(&format!("metadata.{field}"), other, "map[string]string"),
        }
    }
    Ok(())
}

/// JSON, nested at most as deep as the parser allows (128).
pub(super) fn json(bytes: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(bytes)
        .map_err(|error| ApiError::bad_request(format!("couldn't get version/kind; json parse error: {error}")))
}
