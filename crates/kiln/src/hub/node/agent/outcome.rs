//! How requests of agents end: what is counted and what is answered.

use axum::http::StatusCode;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// An assignment was sent, a config, or the hub's own view.
    Served,
    /// Nothing changed while it waited.
    Unchanged,
    /// There is no assignment yet.
    NotAssigned,
    /// Something else is assigned by now.
    Superseded,
    /// The config cannot be made, or is too large.
    Invalid,
    /// A report or a state was written.
    Taken,
    /// The hub does not see what it should see of the node.
    NotSeen,
    /// No token, or none that is good.
    Unauthorized,
    /// Not what it should be, or not all of it.
    NotRead,
    /// Its body did not arrive in time.
    Slow,
    /// Too many bytes.
    TooLong,
    /// Another method.
    Method,
    /// Too many requests.
    Rate,
    /// Nothing can be written, or nothing is known yet.
    Busy,
}

/// All there are.
pub const OUTCOMES: [Outcome; 14] = [
    Outcome::Served,
    Outcome::Unchanged,
    Outcome::NotAssigned,
    Outcome::Superseded,
    Outcome::Invalid,
    Outcome::Taken,
    Outcome::NotSeen,
    Outcome::Unauthorized,
    Outcome::NotRead,
    Outcome::Slow,
    Outcome::TooLong,
    Outcome::Method,
    Outcome::Rate,
    Outcome::Busy,
];

impl Outcome {
    /// The word for it, in figures, logs and `X-Kiln-Reason`.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Served => "served",
            Outcome::Unchanged => "unchanged",
            Outcome::NotAssigned => "not-assigned",
            Outcome::Superseded => "superseded",
            Outcome::Invalid => "invalid",
            Outcome::Taken => "taken",
            Outcome::NotSeen => "not-seen",
            Outcome::Unauthorized => "unauthorized",
            Outcome::NotRead => "not-read",
            Outcome::Slow => "slow",
            Outcome::TooLong => "too-long",
            Outcome::Method => "method",
            Outcome::Rate => "rate",
            Outcome::Busy => "busy",
        }
    }

    /// What is answered.
    pub const fn status(self) -> StatusCode {
        match self {
            Outcome::Served => StatusCode::OK,
            Outcome::Unchanged => StatusCode::NOT_MODIFIED,
            Outcome::NotAssigned => StatusCode::NOT_FOUND,
            Outcome::Superseded => StatusCode::CONFLICT,
            Outcome::Invalid => StatusCode::INTERNAL_SERVER_ERROR,
            Outcome::Taken => StatusCode::NO_CONTENT,
            Outcome::Unauthorized => StatusCode::UNAUTHORIZED,
            Outcome::NotRead => StatusCode::BAD_REQUEST,
            Outcome::Slow => StatusCode::REQUEST_TIMEOUT,
            Outcome::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            Outcome::Method => StatusCode::METHOD_NOT_ALLOWED,
            Outcome::Rate => StatusCode::TOO_MANY_REQUESTS,
            Outcome::NotSeen | Outcome::Busy => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}
