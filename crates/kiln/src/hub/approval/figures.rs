//! What the approver counts, for Prometheus. Labels are words of the program, never names of hosts or users.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use kiln_core::certificate_request::{Check, Verdict};

/// Verdicts by check, and clusters that do not answer.
#[derive(Debug, Default)]
pub struct Figures {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    verdicts: BTreeMap<(&'static str, Check), u64>,
    clusters: BTreeMap<bool, i64>,
    failures: u64,
}

impl Figures {
    fn with(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Counts a verdict.
    pub fn verdict(&self, verdict: &Verdict) {
        self.with(|state| *state.verdicts.entry((verdict.name(), verdict.check())).or_default() += 1);
    }

    /// A cluster answers, or no longer; before, it was the other way or unknown.
    pub fn cluster(&self, before: Option<bool>, answers: Option<bool>) {
        self.with(|state| {
            before.into_iter().for_each(|before| *state.clusters.entry(before).or_default() -= 1);
            answers.into_iter().for_each(|answers| *state.clusters.entry(answers).or_default() += 1);
        });
    }

    /// A cluster or the hub did not take a write.
    pub fn failure(&self) {
        self.with(|state| state.failures += 1);
    }

    /// In Prometheus' text format.
    pub fn render(&self) -> String {
        let mut text = String::from(
            "# HELP kiln_certificate_verdicts_total Certificate requests of nodes by verdict and the check that decided.\n\
             # TYPE kiln_certificate_verdicts_total counter\n",
        );
        self.with(|state| {
            for ((verdict, check), count) in &state.verdicts {
                let verdict = verdict.to_lowercase();
                let _ = writeln!(
                    text,
                    "kiln_certificate_verdicts_total{{verdict=\"{verdict}\",check=\"{check}\"}} {count}"
                );
            }
            let number = |answers| state.clusters.get(&answers).copied().unwrap_or_default();
            let _ = write!(
                text,
                "# HELP kiln_clusters Clusters that hosts join, by whether their API answers.\n\
                 # TYPE kiln_clusters gauge\n\
                 kiln_clusters{{answers=\"true\"}} {}\nkiln_clusters{{answers=\"false\"}} {}\n\
                 # HELP kiln_certificate_failures_total Writes about certificates that were not taken.\n\
                 # TYPE kiln_certificate_failures_total counter\n\
                 kiln_certificate_failures_total {}\n",
                number(true),
                number(false),
                state.failures
            );
        });
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_counted_by_check() {
        let figures = Figures::default();
        let denied = Verdict::Deny { check: Check::Key, message: "x".into() };
        figures.verdict(&denied);
        figures.verdict(&denied);
        figures.cluster(None, Some(false));
        figures.cluster(Some(false), Some(true));
        let text = figures.render();
        assert!(text.contains("kiln_certificate_verdicts_total{verdict=\"denied\",check=\"key\"} 2\n"), "{text}");
        assert!(text.contains("kiln_clusters{answers=\"true\"} 1\nkiln_clusters{answers=\"false\"} 0\n"), "{text}");
    }
}
