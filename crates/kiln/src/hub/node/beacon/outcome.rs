//! How reports end: what is counted and what is answered.

use axum::http::StatusCode;

/// How a report ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It will be written.
    Taken,
    /// No token, or none that is good for it.
    Unauthorized,
    /// Not a report, or not all of it.
    NoReport,
    /// Too many bytes.
    TooLong,
    /// Not POST.
    Method,
    /// Too many requests.
    Rate,
    /// Nothing more can be written, or nothing is known yet.
    Busy,
}

/// All there are.
pub const OUTCOMES: [Outcome; 7] = [
    Outcome::Taken,
    Outcome::Unauthorized,
    Outcome::NoReport,
    Outcome::TooLong,
    Outcome::Method,
    Outcome::Rate,
    Outcome::Busy,
];

impl Outcome {
    /// The word for it, in figures, logs and `X-Kiln-Reason`.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Taken => "taken",
            Outcome::Unauthorized => "unauthorized",
            Outcome::NoReport => "no-report",
            Outcome::TooLong => "too-long",
            Outcome::Method => "method",
            Outcome::Rate => "rate",
            Outcome::Busy => "busy",
        }
    }

    /// What is answered.
    pub const fn status(self) -> StatusCode {
        match self {
            Outcome::Taken => StatusCode::NO_CONTENT,
            Outcome::Unauthorized => StatusCode::UNAUTHORIZED,
            Outcome::NoReport => StatusCode::BAD_REQUEST,
            Outcome::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            Outcome::Method => StatusCode::METHOD_NOT_ALLOWED,
            Outcome::Rate => StatusCode::TOO_MANY_REQUESTS,
            Outcome::Busy => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}
