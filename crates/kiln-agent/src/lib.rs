//! Changes the network of a running node: observe, try under a checkpoint, prove, commit or put back. And its files and units:
//! see [`machine`].
//!
//! [`Agent`] is the whole interface to the network. What must change is decided elsewhere ([`kiln_core::change`]); here it is carried out.
//! Promised: before the first write there is a journal on the disk, and whoever finds it puts the old network back, be it
//! this process after a failed probe, the next one after a crash, or a unit before NetworkManager after a power cut.
//! What others do to the network meanwhile is left alone.
//!
//! [`run`] is what a node does all day: it asks the hub ([`hub`]), decides ([`decide`]) and remembers ([`memory`]).
//!
//! Not here: OVS's own database.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use futures::future::BoxFuture;
use kiln_core::assignment::Proof;
use kiln_core::change::{Change, Observed};
use serde_json::Value;

pub mod attempt;
pub mod decide;
pub mod failpoint;
pub mod files;
pub mod glance;
pub mod hub;
pub mod journal;
pub mod kernel;
pub mod machine;
pub mod memory;
mod netlink;
pub mod nm;
pub mod observe;
pub mod preflight;
pub mod probe;
pub mod recover;
mod removal;
mod restore;
pub mod run;
pub mod signals;

pub use files::Folders;
pub use recover::Recovered;

/// Where the journal lies unless told otherwise.
pub const STATE_DIR: &str = "/var/lib/kiln/agent";

/// A new connection to the hub that asks whether it sees this node, or reaches a port of it; the caller's.
pub type HubProbe = Arc<dyn Fn(Option<u16>) -> BoxFuture<'static, bool> + Send + Sync>;

/// How a try ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Kept.
    Applied {
        /// From the first write to the commit.
        took: Duration,
        /// The longest span in which a probe that had passed before did not.
        outage: Duration,
        /// Probes that did not count, because they had failed before the change, for people.
        uncounted: Vec<String>,
    },
    /// Put back.
    RolledBack {
        /// One line with the cause.
        why: String,
        /// From the first write to the end of the way back.
        took: Duration,
        /// The longest span in which a probe that had passed before did not.
        outage: Duration,
        /// Probes that did not count, because they had failed before the change, for people.
        uncounted: Vec<String>,
    },
    /// Put back because it was not wanted any more. Nothing was learned about the change.
    Abandoned {
        /// One line: why not.
        why: String,
        /// From the first write to the end of the way back.
        took: Duration,
        /// The longest span in which a probe that had passed before did not.
        outage: Duration,
    },
    /// Nothing was touched: it cannot work on this node.
    Refused {
        /// One line with the cause and what to do.
        why: String,
    },
    /// Nothing was touched: somebody else is at work. Nothing was learned about the change; it is planned again soon.
    Waits {
        /// One line: for whom.
        why: String,
    },
}

/// A line about probes that did not count. Whoever reads that a change was proved must see what did not prove it.
pub fn describe_uncounted(uncounted: &[String]) -> Option<String> {
    (!uncounted.is_empty())
        .then(|| format!("{} did not answer before the change and did not count", uncounted.join(" and ")))
}

/// Why the agent itself failed. `Display` never repeats `source`.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// NetworkManager or the bus did not answer as they should.
    #[error("NetworkManager: {doing}")]
    NetworkManager {
        /// What was asked of it.
        doing: String,
        /// What it said.
        source: nm::CallError,
    },
    /// The running state could not be read.
    #[error("cannot read the network of the kernel: {0}")]
    Kernel(String),
    /// A file could not be read or written.
    #[error("cannot {doing} `{}`", path.display())]
    File {
        /// `read`, `write`, …
        doing: &'static str,
        /// Which one.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The journal on the disk is not one.
    #[error("the journal `{}` cannot be read; look at it and at the profiles, then remove it", path.display())]
    Journal {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: journal::JournalError,
    },
    /// Another process of Kiln has the network in its hands.
    #[error("another kiln agent is changing the network (it holds `{}`)", .0.display())]
    Busy(PathBuf),
    /// The journal of files and units on the disk is not one.
    #[error("the journal `{}` cannot be read: {why}; look at it and at the files it names, then remove it", path.display())]
    MachineJournal {
        /// Which one.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A program did not do what it was asked for.
    #[error("{program}: {why}")]
    Program {
        /// Its name.
        program: &'static str,
        /// One line.
        why: String,
    },
    /// The way back did not work; the journal stays, `kiln agent recover` goes on from it.
    #[error("the files and units could not be put back after: {why}")]
    NotUndone {
        /// Why they had to be put back.
        why: String,
        /// What stood in the way.
        source: Box<AgentError>,
    },
    /// The way back did not work; the journal stays, `kiln agent recover` goes on from it.
    #[error("the old network could not be put back after: {why}")]
    NotRestored {
        /// Why it had to be put back.
        why: String,
        /// What stood in the way.
        source: Box<AgentError>,
    },
}

/// Everything that touches the network of this machine.
#[derive(Debug)]
pub struct Agent {
    nm: nm::NetworkManager,
    folders: Folders,
    state_dir: PathBuf,
}

impl Agent {
    /// Connects to NetworkManager. The journal is kept in `state_dir`, which is made with mode 0700.
    pub async fn connect(state_dir: &Path) -> Result<Agent, AgentError> {
        let nm = nm::NetworkManager::connect().await?;
        Ok(Agent { nm, folders: Folders::default(), state_dir: state_dir.to_owned() })
    }

    /// The same, or nothing where NetworkManager does not run.
    pub async fn connect_if_running(state_dir: &Path) -> Option<Agent> {
        let nm = nm::NetworkManager::connect_if_running().await?;
        Some(Agent { nm, folders: Folders::default(), state_dir: state_dir.to_owned() })
    }

    /// What counts for planning a change, within milliseconds.
    pub async fn observe(&self) -> Result<Observed, AgentError> {
        observe::observe(&self.nm, &self.folders).await
    }

    /// nmstate's whole document of the running system, without secrets, for NodeNetworkState.
    pub async fn observe_full(&self) -> Result<Value, AgentError> {
        observe::observe_full().await
    }

    /// As NetworkManager says it, `1.42.4`.
    pub async fn network_manager_version(&self) -> Result<String, AgentError> {
        self.nm.version().await
    }

    /// Tries a change, proves it and keeps it, or puts everything back. An empty change touches nothing.
    ///
    /// An error means that the agent failed; when it failed after the first write and on the way back too, the journal
    /// stays and the next [`Agent::recover`] goes on.
    pub async fn attempt(
        &self,
        change: &Change,
        proof: &Proof,
        revision: &str,
        hub: Option<HubProbe>,
    ) -> Result<Outcome, AgentError> {
        self.attempt_unless(change, proof, revision, hub, std::future::pending()).await
    }

    /// The same, and put back as soon as `abandoned` says why.
    pub async fn attempt_unless(
        &self,
        change: &Change,
        proof: &Proof,
        revision: &str,
        hub: Option<HubProbe>,
        abandoned: impl Future<Output = String>,
    ) -> Result<Outcome, AgentError> {
        let site = attempt::Site { nm: &self.nm, folders: &self.folders, state_dir: &self.state_dir };
        attempt::attempt(&site, change, proof, revision, hub, abandoned).await
    }

    /// The same for who holds the lock.
    pub(crate) async fn attempt_locked(
        &self,
        change: &Change,
        proof: &Proof,
        revision: &str,
        hub: Option<HubProbe>,
    ) -> Result<Outcome, AgentError> {
        let site = attempt::Site { nm: &self.nm, folders: &self.folders, state_dir: &self.state_dir };
        attempt::attempt_locked(&site, change, proof, revision, hub, std::future::pending()).await
    }

    /// What a change of the network would overwrite.
    pub(crate) async fn journal(&self, change: &Change, revision: &str) -> Result<journal::Journal, AgentError> {
        let snapshot = self.nm.snapshot().await?;
        journal::Journal::before(change, revision, &self.folders, &snapshot)
    }

    /// For whom a try would have to wait now, in one line. Who plans afterwards plans for what they leave.
    pub async fn waits_for(&self) -> Result<Option<String>, AgentError> {
        // What an earlier process of ours left is put back first, and nobody's to wait for.
        if journal::read(&self.state_dir)?.is_some() {
            return Ok(None);
        }
        Ok(preflight::waits_for(&self.nm.snapshot().await?))
    }

    /// Waits until nobody else is at work, but not longer than this. Says who still is.
    pub async fn wait_for_others(&self, longest: Duration) -> Result<Option<String>, AgentError> {
        let deadline = tokio::time::Instant::now() + longest;
        loop {
            let Some(why) = self.waits_for().await? else { return Ok(None) };
            if tokio::time::Instant::now() >= deadline {
                return Ok(Some(why));
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    /// Puts the old network back if an earlier process died in a try. Nothing happens without a journal.
    pub async fn recover(&self) -> Result<Option<Recovered>, AgentError> {
        recover::recover(&self.folders, &self.state_dir, Some(&self.nm)).await
    }

    /// Something about the network changed, perhaps: one item for each burst of events of NetworkManager or the kernel.
    /// Whoever reads it waits until it is quiet and observes.
    pub async fn changes(&self) -> Result<impl Stream<Item = ()> + Send + Unpin + use<>, AgentError> {
        signals::changes(&self.nm).await
    }
}
