//! Bodies: bounded in size and time, JSON or the protobuf that Go clients send for built-in kinds.

use std::time::Duration;

use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use bytes::Bytes;
use serde_json::Value;

use crate::error::ApiError;
use crate::protobuf;
use crate::server::Server;

/// A client slower than this is not waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A body and what it says it is.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) media: String,
    pub(super) bytes: Bytes,
}

/// Reads the body within bounds.
pub(super) async fn read(server: &Server, request: Request) -> Result<Received, ApiError> {
    let limit = server.limits.body_bytes;
    let text = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let reading = axum::body::to_bytes(request.into_body(), limit);
    match tokio::time::timeout(PATIENCE, reading).await {
        Err(_) => Err(ApiError::new(408, "Timeout", "the body of the request did not arrive in time")),
        Ok(Err(_)) => Err(ApiError::too_large(limit)),
        Ok(Ok(bytes)) => Ok(Received { media, bytes }),
    }
}

/// The object in a body.
pub(super) fn object(received: &Received) -> Result<Value, ApiError> {
    match received.media.as_str() {
        "" | "application/json" => json(&received.bytes),
        protobuf::MEDIA_TYPE => protobuf::decode(&received.bytes)
            .map_err(|why| ApiError::bad_request(format!("the protobuf in the body cannot be read: {why}"))),
        other => Err(ApiError::unsupported_media_type(other, &["application/json", protobuf::MEDIA_TYPE])),
    }
}

/// JSON, nested at most as deep as the parser allows (128).
pub(super) fn json(bytes: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(bytes)
        .map_err(|error| ApiError::bad_request(format!("couldn't get version/kind; json parse error: {error}")))
}
