//! What the rollout tells Prometheus.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use kiln_core::rollout::{Rollout, Standing};

/// Gauges of the last look of a replica that leads.
#[derive(Debug, Default)]
pub struct Figures {
    leading: AtomicBool,
    slots: AtomicUsize,
    lost: AtomicUsize,
    waiting: AtomicUsize,
    failed: AtomicUsize,
    drifted: AtomicUsize,
}

/// Leading, until it is dropped.
#[derive(Debug)]
pub struct Reign<'a>(&'a Figures);

impl Drop for Reign<'_> {
    fn drop(&mut self) {
        self.0.leading.store(false, Ordering::Relaxed);
    }
}

impl Figures {
    /// This replica decides from now on.
    pub fn begin(&self) -> Reign<'_> {
        self.leading.store(true, Ordering::Relaxed);
        Reign(self)
    }

    /// What was decided.
    pub fn rollout(&self, rollout: &Rollout, drifted: usize) {
        let count = |wanted: fn(&Standing) -> bool| rollout.nodes.values().filter(|standing| wanted(standing)).count();
        self.slots.store(count(|standing| matches!(standing, Standing::Going)), Ordering::Relaxed);
        self.lost.store(count(|standing| matches!(standing, Standing::Lost)), Ordering::Relaxed);
        self.waiting.store(count(|standing| matches!(standing, Standing::Waiting(_))), Ordering::Relaxed);
        self.failed.store(count(|standing| matches!(standing, Standing::Failed(_))), Ordering::Relaxed);
        self.drifted.store(drifted, Ordering::Relaxed);
    }

    /// In the text format of Prometheus; nothing while another replica leads.
    pub fn render(&self) -> String {
        let mut text = String::new();
        if !self.leading.load(Ordering::Relaxed) {
            return text;
        }
        for (name, help, value) in [
            ("kiln_network_slots", "Nodes that may change their network now.", &self.slots),
            ("kiln_network_lost_nodes", "Nodes that were not heard of since they began a change.", &self.lost),
            ("kiln_network_waiting_nodes", "Nodes that wait for their turn.", &self.waiting),
            ("kiln_network_failed_nodes", "Nodes on which the wished network did not work.", &self.failed),
            ("kiln_network_drifted_nodes", "Nodes whose network is not what was applied.", &self.drifted),
        ] {
            let value = value.load(Ordering::Relaxed);
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
        }
        text
    }
}
