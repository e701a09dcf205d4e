//! After a crash or a power cut: a journal that is there means that a try was not confirmed, and the old network comes back.
//!
//! In another boot before NetworkManager starts, files are all there is to restore, and no bus is needed. It may itself be
//! killed at any point and run again.

use std::path::Path;

use kiln_core::change::Place;
use serde_json::Value;

use crate::AgentError;
use crate::failpoint::reach;
use crate::files::Folders;
use crate::journal::{self, Journal};
use crate::nm::NetworkManager;
use crate::restore::restore;

/// What was put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// Of the document whose try was not confirmed.
    pub revision: String,
    /// One line.
    pub why: String,
}

/// Puts the old network back if there is a journal. Without NetworkManager, files and hostname only.
pub async fn recover(
    folders: &Folders,
    state_dir: &Path,
    nm: Option<&NetworkManager>,
) -> Result<Option<Recovered>, AgentError> {
    if journal::read(state_dir)?.is_none() {
        return Ok(None);
    }
    let _lock = journal::lock(state_dir)?;
    // Whoever held the lock until now may have confirmed or restored.
    match journal::read(state_dir)? {
        Some(journal) => recover_locked(journal, folders, state_dir, nm).await.map(Some),
        None => Ok(None),
    }
}

/// The same for who holds the lock.
pub async fn recover_locked(
    mut journal: Journal,
    folders: &Folders,
    state_dir: &Path,
    nm: Option<&NetworkManager>,
) -> Result<Recovered, AgentError> {
    let same_boot = forget_other_boot(&mut journal)?;
    let why = match same_boot {
        true => "the agent ended before the try was confirmed",
        false => "the machine stopped before the try was confirmed",
    };
    restore(&journal, folders, nm)
        .await
        .map_err(|error| AgentError::NotRestored { why: why.to_owned(), source: Box::new(error) })?;
    reach("recovered");
    journal::remove(state_dir)?;
    Ok(Recovered { revision: journal.revision, why: why.to_owned() })
}

/// Puts back a network that was proved and kept, because what came with it is put back. `network` is the journal of that try.
pub async fn restore_network(
    network: &Value,
    folders: &Folders,
    nm: Option<&NetworkManager>,
) -> Result<(), AgentError> {
    let failed = |source| AgentError::Journal { path: "network".into(), source };
    let bytes = serde_json::to_vec(network).map_err(|error| failed(error.into()))?;
    let mut journal = Journal::parse(&bytes).map_err(failed)?;
    // It ended with the try.
    journal.checkpoint.clear();
    journal.asked = None;
    forget_other_boot(&mut journal)?;
    restore(&journal, folders, nm).await
}

/// Says whether the journal is of this boot. The runtime folder begins empty, and neither the checkpoint nor what was in force
/// is of another one.
fn forget_other_boot(journal: &mut Journal) -> Result<bool, AgentError> {
    let same_boot = journal::boot_id()? == journal.boot;
    if !same_boot {
        journal.checkpoint.clear();
        journal.asked = None;
        journal.files.iter_mut().filter(|before| before.place == Place::Runtime).for_each(|before| before.image = None);
    }
    Ok(same_boot)
}
