//! What the node endpoints count. Labels are words of Kiln's and names of pools that have tokens, never what a client sent.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use kiln_apiserver::rate_limit::Seldom;
use kiln_core::boot_token::Refusal;

use super::table::Counts;

/// Pools that are counted apart.
const MOST_POOLS: usize = 1000;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A host got its config.
    ServedHost,
    /// A machine got its pool's config.
    ServedPool,
    /// No token, or nothing that could be one.
    Unauthorized,
    /// A token that is not good.
    Refused(Refusal),
    /// A token that was used from somewhere else before.
    Alarm,
    /// The token of another pool.
    OtherPool,
    /// A spec version nobody can give.
    NotAcceptable,
    /// Neither GET nor HEAD where only they are answered.
    Method,
    /// The config cannot be served.
    Invalid,
    /// Too many requests.
    Rate,
    /// The API did not take the use of a token.
    Store,
    /// No such path.
    NotFound,
}

const OUTCOMES: [Outcome; 16] = [
    Outcome::ServedHost,
    Outcome::ServedPool,
    Outcome::Unauthorized,
    Outcome::Refused(Refusal::Unknown),
    Outcome::Refused(Refusal::Expired),
    Outcome::Refused(Refusal::Revoked),
    Outcome::Refused(Refusal::Used),
    Outcome::Refused(Refusal::Pending),
    Outcome::Alarm,
    Outcome::OtherPool,
    Outcome::NotAcceptable,
    Outcome::Method,
    Outcome::Invalid,
    Outcome::Rate,
    Outcome::Store,
    Outcome::NotFound,
];

impl Outcome {
    /// The word for it, in figures, logs and `X-Kiln-Reason`.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::ServedHost => "served-host",
            Outcome::ServedPool => "served-pool",
            Outcome::Unauthorized => "unauthorized",
            Outcome::Refused(refusal) => refusal.name(),
            Outcome::Alarm => "second-source",
            Outcome::OtherPool => "other-pool",
            Outcome::NotAcceptable => "not-acceptable",
            Outcome::Method => "method",
            Outcome::Invalid => "invalid-payload",
            Outcome::Rate => "rate",
            Outcome::Store => "store",
            Outcome::NotFound => "not-found",
        }
    }
}

/// A counter for each of some words, with a brake for logging it.
#[derive(Debug)]
pub struct Tally<const N: usize>([(&'static str, AtomicU64, Seldom); N]);

impl<const N: usize> Tally<N> {
    /// All at zero.
    pub fn new(words: [&'static str; N]) -> Tally<N> {
        Tally(words.map(|word| (word, AtomicU64::default(), Seldom::default())))
    }

    /// Counts. Some with the number kept back, if it may be logged now.
    pub fn count(&self, word: &str) -> Option<u64> {
        let (_, count, complaints) = self.0.iter().find(|(known, ..)| *known == word)?;
        count.fetch_add(1, Ordering::Relaxed);
        complaints.now(Instant::now())
    }

    /// How often something happened.
    pub fn of(&self, word: &str) -> u64 {
        self.0.iter().find(|(known, ..)| *known == word).map_or(0, |(_, count, _)| count.load(Ordering::Relaxed))
    }

    /// A counter in the text format of Prometheus, labelled by outcome.
    pub fn render(&self, name: &str, help: &str) -> String {
        let mut text = String::new();
        heading(&mut text, name, "counter", help);
        for (word, count, _) in &self.0 {
            let _ = writeln!(text, "{name}{{outcome=\"{word}\"}} {}", count.load(Ordering::Relaxed));
        }
        text
    }
}

/// The counters.
#[derive(Debug)]
pub struct Figures {
    outcomes: Tally<{ OUTCOMES.len() }>,
    pools: Mutex<BTreeMap<String, u64>>,
    bytes: AtomicU64,
    witness_failures: AtomicU64,
    interruptions: AtomicU64,
}

impl Default for Figures {
    fn default() -> Figures {
        Figures {
            outcomes: Tally::new(OUTCOMES.map(Outcome::name)),
            pools: Mutex::default(),
            bytes: AtomicU64::default(),
            witness_failures: AtomicU64::default(),
            interruptions: AtomicU64::default(),
        }
    }
}

impl Figures {
    /// Counts a request. Some with the number kept back, if it may be logged now.
    pub fn count(&self, outcome: Outcome) -> Option<u64> {
        self.outcomes.count(outcome.name())
    }

    /// Counts a config that a pool's machine got.
    pub fn pool_served(&self, node_pool: &str) {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = pools.get_mut(node_pool) {
            *count += 1;
            return;
        }
        let label = if pools.len() >= MOST_POOLS { "other" } else { node_pool };
        *pools.entry(label.to_owned()).or_default() += 1;
    }

    /// Counts bytes of bodies.
    pub fn sent(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts something that happened to a host and could not be written down.
    pub fn witness_failed(&self) {
        self.witness_failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an interruption of the watch.
    pub fn watch_interrupted(&self) {
        self.interruptions.fetch_add(1, Ordering::Relaxed);
    }

    /// How often something happened.
    pub fn of(&self, outcome: Outcome) -> u64 {
        self.outcomes.of(outcome.name())
    }

    /// In the text format of Prometheus.
    pub fn render(&self, counts: Counts, loaded: bool) -> String {
        let mut text = self.outcomes.render("kiln_ignition_requests_total", "Requests of machines by outcome.");
        heading(&mut text, "ign_server_get_request", "counter", "Configs that machines of a pool got with its token.");
        for (pool, count) in &*self.pools.lock().unwrap_or_else(PoisonError::into_inner) {
            let pool = pool.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = writeln!(text, "ign_server_get_request{{nodePool=\"{pool}\"}} {count}");
        }
        for (name, help, counter) in [
            ("kiln_ignition_bytes_total", "Bytes of configs that were sent.", &self.bytes),
            (
                "kiln_ignition_witness_failures_total",
                "Fetches that could not be written to their Host.",
                &self.witness_failures,
            ),
            ("kiln_ignition_watch_interruptions_total", "Interruptions of the watch of Secrets.", &self.interruptions),
        ] {
            heading(&mut text, name, "counter", help);
            let _ = writeln!(text, "{name} {}", counter.load(Ordering::Relaxed));
        }
        let Counts { payloads, unusable, overlays, host_tokens, pool_tokens } = counts;
        heading(&mut text, "kiln_ignition_objects", "gauge", "What the node endpoints hold in memory.");
        for (kind, count) in [
            ("payload", payloads),
            ("unusable-payload", unusable),
            ("overlay", overlays),
            ("host-token", host_tokens),
            ("pool-token", pool_tokens),
        ] {
            let _ = writeln!(text, "kiln_ignition_objects{{kind=\"{kind}\"}} {count}");
        }
        heading(&mut text, "kiln_ignition_loaded", "gauge", "Whether all payloads were loaded.");
        let _ = writeln!(text, "kiln_ignition_loaded {}", u8::from(loaded));
        text
    }
}

fn heading(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_a_counter_and_a_name_of_its_own() {
        let figures = Figures::default();
        for outcome in OUTCOMES {
            assert_eq!(figures.of(outcome), 0, "{outcome:?}");
            assert_eq!(figures.count(outcome), Some(0));
            assert_eq!(figures.count(outcome), None, "the second message of {outcome:?} waits");
            assert_eq!(figures.of(outcome), 2);
        }
        let text = figures.render(Counts { payloads: 3, ..Counts::default() }, true);
        for outcome in OUTCOMES {
            let line = format!("kiln_ignition_requests_total{{outcome=\"{}\"}} 2\n", outcome.name());
            assert_eq!(text.matches(&line).count(), 1, "{line} in {text}");
        }
        assert!(
            text.contains("kiln_ignition_objects{kind=\"payload\"} 3\n") && text.ends_with("kiln_ignition_loaded 1\n")
        );
    }

    #[test]
    fn pools_are_counted_apart_up_to_a_number() {
        let figures = Figures::default();
        for number in 0..2 * MOST_POOLS {
            figures.pool_served(&format!("a/{number}"));
        }
        figures.pool_served("a/\"1\"");
        let text = figures.render(Counts::default(), false);
        assert_eq!(text.matches("ign_server_get_request{").count(), MOST_POOLS + 1);
        assert!(text.contains(&format!("nodePool=\"other\"}} {}\n", MOST_POOLS + 1)));
    }
}
