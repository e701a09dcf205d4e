//! Changes of networks in numbers, as this replica heard of them.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use kiln_core::assignment::{Disruption, Phase, Report};

/// Counters.
#[derive(Debug, Default)]
pub struct Tries {
    applied: AtomicU64,
    rolled_back: AtomicU64,
    refused: AtomicU64,
    drifted: AtomicU64,
    outages: AtomicU64,
    outage_millis: AtomicU64,
}

impl Tries {
    /// Counts a report that is new.
    pub fn count(&self, report: &Report) {
        let add = |counter: &AtomicU64, number: u64| {
            counter.fetch_add(number, Ordering::Relaxed);
        };
        match &report.phase {
            Phase::Applied if report.disruption != Disruption::None || !report.changes.is_empty() => {
                add(&self.applied, 1)
            }
            Phase::RolledBack(_) => add(&self.rolled_back, 1),
            Phase::Refused(_) => add(&self.refused, 1),
            Phase::Drifted(_) => add(&self.drifted, 1),
            Phase::Applied | Phase::Planned | Phase::Trying => {}
        }
        if let (Phase::Applied | Phase::RolledBack(_), Some(outage)) = (&report.phase, report.outage) {
            add(&self.outages, 1);
            add(&self.outage_millis, outage);
        }
    }

    /// In the text format of Prometheus.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let name = "kiln_network_changes_total";
        let _ = writeln!(text, "# HELP {name} Changes of nodes' networks by how they ended.\n# TYPE {name} counter");
        for (outcome, counter) in [
            ("applied", &self.applied),
            ("rolled-back", &self.rolled_back),
            ("refused", &self.refused),
            ("drifted", &self.drifted),
        ] {
            let _ = writeln!(text, "{name}{{outcome=\"{outcome}\"}} {}", get(counter));
        }
        let name = "kiln_network_outage_milliseconds";
        let _ =
            writeln!(text, "# HELP {name} How long something did not answer during a change.\n# TYPE {name} summary");
        let _ = writeln!(text, "{name}_sum {}\n{name}_count {}", get(&self.outage_millis), get(&self.outages));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_and_outages_are_counted() {
        let tries = Tries::default();
        let report = |phase: Phase, outage: Option<u64>| Report {
            revision: "r".into(),
            phase,
            disruption: Disruption::Reapply,
            changes: vec![],
            took: None,
            outage,
        };
        tries.count(&report(Phase::Planned, Some(7)));
        tries.count(&report(Phase::Applied, Some(30)));
        tries.count(&report(Phase::RolledBack("x".into()), Some(12)));
        tries.count(&Report { disruption: Disruption::None, ..report(Phase::Applied, None) });
        let text = tries.render();
        for line in [
            "kiln_network_changes_total{outcome=\"applied\"} 1\n",
            "kiln_network_changes_total{outcome=\"rolled-back\"} 1\n",
            "kiln_network_outage_milliseconds_sum 42\nkiln_network_outage_milliseconds_count 2\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
