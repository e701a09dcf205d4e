//! What is sent back.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WARNING};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use serde_json::Value;
use tokio::sync::mpsc;

use super::list_body::ListBody;
use crate::error::ApiError;

/// Status, headers and body.
#[derive(Debug)]
pub(super) struct Answer {
    code: u16,
    kind: String,
    body: Body,
    warnings: Vec<String>,
    retry_after: u32,
    /// The name the server found for a new object.
    name: Option<String>,
}

impl Answer {
    pub(super) fn json(code: u16, value: &Value) -> Answer {
        Answer { code, ..Answer::json_as(value, "application/json") }
    }

    pub(super) fn json_as(value: &Value, kind: &str) -> Answer {
        Answer { kind: kind.into(), ..Answer::bytes(200, Bytes::from(value.to_string())) }
    }

    pub(super) fn bytes_as(bytes: Bytes, kind: &str) -> Answer {
        Answer { kind: kind.into(), ..Answer::bytes(200, bytes) }
    }

    pub(super) fn bytes(code: u16, json: Bytes) -> Answer {
        let body = Body::from(json);
        Answer { code, kind: "application/json".into(), body, warnings: Vec::new(), retry_after: 0, name: None }
    }

    pub(super) fn text(code: u16, text: String) -> Answer {
        Answer { kind: "text/plain; charset=utf-8".into(), ..Answer::bytes(code, Bytes::from(text)) }
    }

    pub(super) fn code(&self) -> u16 {
        self.code
    }

    pub(super) fn take_name(&mut self) -> Option<String> {
        self.name.take()
    }

    pub(super) fn named(self, name: String) -> Answer {
        Answer { name: Some(name), ..self }
    }

    pub(super) fn stream(frames: mpsc::Receiver<Bytes>) -> Answer {
        Answer { body: Body::new(Frames(frames)), ..Answer::bytes(200, Bytes::new()) }
    }

    pub(super) fn list(list: ListBody) -> Answer {
        Answer { body: Body::new(list), ..Answer::bytes(200, Bytes::new()) }
    }

    pub(super) fn refusal(error: &ApiError) -> Answer {
        let answer = Answer::json(error.code, &error.status());
        Answer { retry_after: error.details.retry_after_seconds, ..answer }
    }

    /// With a warning before all others.
    pub(super) fn warned(mut self, warning: Option<&str>) -> Answer {
        self.warnings.splice(0..0, warning.map(str::to_owned));
        self
    }

    pub(super) fn with_warnings(self, warnings: Vec<String>) -> Answer {
        Answer { warnings, ..self }
    }

    pub(super) fn into_response(self) -> Response {
        let mut response = Response::new(self.body);
        *response.status_mut() = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        if let Ok(kind) = HeaderValue::from_str(&self.kind) {
            headers.insert(CONTENT_TYPE, kind);
        }
        if self.retry_after > 0 {
            headers.insert(RETRY_AFTER, HeaderValue::from(self.retry_after));
        }
        for warning in self.warnings {
            let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"").replace(char::is_control, " ");
            // Text that cannot be a header is not worth failing a request that was done. Clients read it as UTF-8.
            if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
                headers.append(WARNING, value);
            }
        }
        response
    }
}

/// Frames from a channel as a body: a client that leaves closes the channel.
struct Frames(mpsc::Receiver<Bytes>);

impl HttpBody for Frames {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(http_body::Frame::data(bytes))))
    }
}
