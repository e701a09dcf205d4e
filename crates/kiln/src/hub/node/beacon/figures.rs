//! What is counted about reports.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::http::StatusCode;
use kiln_apiserver::rate_limit::Seldom;

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

const OUTCOMES: [Outcome; 7] = [
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

    fn index(self) -> usize {
        OUTCOMES.iter().position(|known| *known == self).unwrap_or_default()
    }
}

/// The counters.
#[derive(Debug, Default)]
pub struct Figures {
    outcomes: [AtomicU64; OUTCOMES.len()],
    complaints: [Seldom; OUTCOMES.len()],
}

impl Figures {
    /// Counts a report. Some with the number kept back, if it may be logged now.
    pub fn count(&self, outcome: Outcome) -> Option<u64> {
        self.outcomes[outcome.index()].fetch_add(1, Ordering::Relaxed);
        self.complaints[outcome.index()].now(Instant::now())
    }

    /// How often something happened.
    pub fn of(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome.index()].load(Ordering::Relaxed)
    }

    /// In the text format of Prometheus.
    pub fn render(&self) -> String {
        let mut text = String::from(
            "# HELP kiln_beacon_reports_total Reports of machines about their boot by outcome.\n# TYPE kiln_beacon_reports_total counter\n",
        );
        for outcome in OUTCOMES {
            let _ = writeln!(text, "kiln_beacon_reports_total{{outcome=\"{}\"}} {}", outcome.name(), self.of(outcome));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_is_counted_under_its_own_name() {
        let figures = Figures::default();
        assert!(OUTCOMES.iter().all(|outcome| figures.count(*outcome).is_some()));
        let text = figures.render();
        for outcome in OUTCOMES {
            let line = format!("kiln_beacon_reports_total{{outcome=\"{}\"}} 1\n", outcome.name());
            assert_eq!(text.matches(&line).count(), 1, "{line} in {text}");
        }
    }
}
