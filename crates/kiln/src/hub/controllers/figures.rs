//! What the controllers tell Prometheus: whether they lead, and what they may not see.
//!
//! A kind the API server refuses to show looks to the rules like a kind without objects. That is told here, and loudly in
//! the log, as nothing else would tell it.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::kinds::Watched;
use crate::hub::{machines, network};

/// What is counted. Names are those of watched kinds, so there are never many.
#[derive(Debug, Default)]
pub struct Figures {
    leading: AtomicBool,
    interruptions: AtomicU64,
    /// `baremetalhosts.metal3.io`.
    refused: Mutex<BTreeSet<String>>,
    /// Of the rollout of networks.
    pub network: Arc<network::figures::Figures>,
    /// Of the rollout of machine configs.
    pub machines: Arc<machines::figures::Figures>,
}

impl Figures {
    /// This replica acts, or no longer does.
    pub fn set_leading(&self, leading: bool) {
        self.leading.store(leading, Ordering::Relaxed);
    }

    /// A watch ended before its time.
    pub(super) fn interrupted(&self) {
        self.interruptions.fetch_add(1, Ordering::Relaxed);
    }

    /// The API server refuses to show a kind, or shows it.
    pub(super) fn set_refused(&self, watched: &Watched, refused: bool) {
        let name = watched.resource_name();
        let mut known = self.lock();
        let _ = if refused { known.insert(name) } else { known.remove(&name) };
    }

    /// Kinds the API server refuses to show.
    pub fn refused(&self) -> Vec<String> {
        self.lock().iter().cloned().collect()
    }

    /// In the text format of Prometheus.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let leading = u8::from(self.leading.load(Ordering::Relaxed));
        let interruptions = self.interruptions.load(Ordering::Relaxed);
        // Writing to a string cannot fail.
        let mut told = |line: String| {
            let _ = writeln!(text, "{line}");
        };
        told("# HELP kiln_leading Whether this replica's controllers act.".into());
        told("# TYPE kiln_leading gauge".into());
        told(format!("kiln_leading {leading}"));
        told("# HELP kiln_watch_interruptions_total Watches that ended before their time.".into());
        told("# TYPE kiln_watch_interruptions_total counter".into());
        told(format!("kiln_watch_interruptions_total {interruptions}"));
        told(
            "# HELP kiln_watch_refused Kinds the API server refuses to show (403); their objects count as absent."
                .into(),
        );
        told("# TYPE kiln_watch_refused gauge".into());
        for name in self.refused() {
            told(format!("kiln_watch_refused{{resource=\"{name}\"}} 1"));
        }
        text + &self.network.render() + &self.machines.render()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::kinds;
    use super::*;

    #[test]
    fn what_is_refused_is_told_until_it_is_shown() {
        let figures = Figures::default();
        let (hosts, secrets) = (kinds::find("BareMetalHost").unwrap(), kinds::find("Secret").unwrap());
        figures.set_refused(hosts, true);
        figures.set_refused(hosts, true);
        figures.set_refused(secrets, true);
        assert_eq!(figures.refused(), ["baremetalhosts.metal3.io", "secrets"]);
        assert!(figures.render().contains("\nkiln_watch_refused{resource=\"secrets\"} 1\n"));
        figures.set_refused(secrets, false);
        assert_eq!(figures.refused(), ["baremetalhosts.metal3.io"]);
    }
}
