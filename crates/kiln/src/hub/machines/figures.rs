//! What the care for files and units tells Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use super::plan::Standing;

/// Every word there is, so that a figure does not vanish when it is zero.
const WORDS: [&str; 8] = ["settled", "going", "unheard", "waiting", "emptying", "working", "failed", "drifted"];

/// Hosts by where they stand, at the last look of a replica that leads.
#[derive(Debug, Default)]
pub struct Figures(Mutex<Option<BTreeMap<&'static str, usize>>>);

/// Leading, until it is dropped.
#[derive(Debug)]
pub struct Reign<'a>(&'a Figures);

impl Drop for Reign<'_> {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

impl Figures {
    fn set(&self, counts: Option<BTreeMap<&'static str, usize>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }

    /// This replica decides from now on.
    pub fn begin(&self) -> Reign<'_> {
        Reign(self)
    }

    /// What was decided.
    pub fn tell<'a>(&self, standings: impl Iterator<Item = &'a Standing>) {
        let mut counts: BTreeMap<&'static str, usize> = WORDS.into_iter().map(|word| (word, 0)).collect();
        standings.for_each(|standing| *counts.entry(standing.name()).or_default() += 1);
        self.set(Some(counts));
    }

    /// In the text format of Prometheus; nothing while another replica leads.
    pub fn render(&self) -> String {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(counts) = counts else { return String::new() };
        let name = "kiln_machine_hosts";
        let mut text =
            format!("# HELP {name} Running nodes by how far they are with their config.\n# TYPE {name} gauge\n");
        for (word, count) in counts {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name}{{phase=\"{word}\"}} {count}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_counted_while_this_replica_leads() {
        let figures = Figures::default();
        {
            let _reign = figures.begin();
            figures.tell([Standing::Settled, Standing::Settled, Standing::Failed("x".into())].iter());
            let text = figures.render();
            for line in
                ["kiln_machine_hosts{phase=\"settled\"} 2\n", "{phase=\"failed\"} 1\n", "{phase=\"working\"} 0\n"]
            {
                assert!(text.contains(line), "{line} in {text}");
            }
        }
        assert_eq!(figures.render(), "");
    }
}
