//! After a crash, a power cut or a reboot: what a journal of files and units that is there means.
//!
//! | stage | boot | |
//! |---|---|---|
//! | changing | any | everything goes back |
//! | rebooting | the same | the reboot is still to come |
//! | rebooting | another | verified, then kept; or everything goes back, and no other reboot is asked for |
//! | kept | any | remembered |
//!
//! It may itself be killed at any point and run again.

use std::path::Path;

use kiln_core::machine::plan::plan_machine;
use kiln_core::machine::{MachinePhase, MachineReport, Rules};

use super::execute::put_back;
use super::journal::{self, Journal, Stage};
use super::{Site, observe};
use crate::failpoint::reach;
use crate::memory::{MachineMemory, MachinePending, Memory, Store};
use crate::{Agent, AgentError};

/// How far the machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Early in the boot: what a reboot has brought is not judged yet.
    BeforeNetwork,
    /// Everything runs.
    Running,
}

/// What became of a change that somebody else began.
#[derive(Debug, Clone, PartialEq)]
pub enum Resumed {
    /// There was none, or it had not begun.
    Nothing,
    /// It is in force, and remembered.
    Kept(MachineReport),
    /// It was put back.
    PutBack(MachineReport),
    /// The machine has to boot.
    AwaitsReboot(MachineReport),
    /// The machine has booted; it is verified when everything runs.
    AwaitsVerifying(MachineReport),
}

/// Goes on from a journal, if there is one. `network` is changed when a config with profiles was kept.
pub async fn resume(
    site: &Site<'_>,
    store: &Store,
    network: &mut Memory,
    memory: &mut MachineMemory,
    agent: Option<&Agent>,
    when: When,
) -> Result<Resumed, AgentError> {
    if journal::read(site.state_dir)?.is_none() {
        return forget(store, memory);
    }
    let lock = crate::journal::lock(site.state_dir)?;
    // Whoever held the lock until now may have ended it.
    let Some(journal) = journal::read(site.state_dir)? else { return forget(store, memory) };
    let same_boot = site.root.boot_id()? == journal.boot;
    match journal.stage {
        Stage::Kept => {}
        Stage::Changing => {
            let why = match same_boot {
                true => "the agent ended before the change was done",
                false => "the machine stopped before the change was done",
            };
            return undo(site, store, memory, &journal, agent, why, same_boot).await;
        }
        Stage::Rebooting if same_boot => {
            return Ok(Resumed::AwaitsReboot(told(memory, &journal, MachinePhase::Rebooting)));
        }
        Stage::Rebooting if when == When::BeforeNetwork => {
            return Ok(Resumed::AwaitsVerifying(told(memory, &journal, MachinePhase::Rebooting)));
        }
        Stage::Rebooting => {
            if let Some(why) = verify(site, memory, &journal).await? {
                return undo(site, store, memory, &journal, agent, &why, false).await;
            }
            let mut kept = journal.clone();
            kept.stage = Stage::Kept;
            kept.write(site.state_dir)?;
            reach("machine-verified");
        }
    }
    drop(lock);
    let said = told(memory, &journal, MachinePhase::Applied);
    confirm(site.state_dir, store, network, memory)?;
    Ok(Resumed::Kept(said))
}

/// What was remembered of a change that had not begun, or has been put back.
fn forget(store: &Store, memory: &mut MachineMemory) -> Result<Resumed, AgentError> {
    if memory.pending.take().is_some() {
        save(store, memory)?;
    }
    Ok(Resumed::Nothing)
}

/// Remembers what was kept; then the journal goes.
pub fn confirm(
    state_dir: &Path,
    store: &Store,
    network: &mut Memory,
    memory: &mut MachineMemory,
) -> Result<(), AgentError> {
    if let Some(MachinePending { revision, machine, ownership, needs: _, changes: _ }) = memory.pending.take() {
        if let Some(ownership) = ownership {
            network.ownership = ownership;
            store.save(network).map_err(|source| failed(store, source))?;
            reach("machine-remembered-network");
        }
        *memory = MachineMemory { applied: Some((revision, machine)), failed: None, pending: None };
        save(store, memory)?;
        reach("machine-remembered");
    }
    journal::remove(state_dir)
}

/// Writes the memory of files and units.
pub fn save(store: &Store, memory: &MachineMemory) -> Result<(), AgentError> {
    store.save_machine(memory).map_err(|source| failed(store, source))
}

fn failed(store: &Store, source: std::io::Error) -> AgentError {
    AgentError::File { doing: "write the memory in", path: store.folder().to_owned(), source }
}

/// Puts everything back. What took the machine down is not tried again; an agent that ended says nothing about the change.
async fn undo(
    site: &Site<'_>,
    store: &Store,
    memory: &mut MachineMemory,
    journal: &Journal,
    agent: Option<&Agent>,
    why: &str,
    again: bool,
) -> Result<Resumed, AgentError> {
    let said = told(memory, journal, MachinePhase::RolledBack(why.to_owned()));
    put_back(site, journal, agent, why).await?;
    reach("machine-put-back");
    memory.pending = None;
    if !again {
        memory.failed = Some(said.clone());
    }
    save(store, memory)?;
    Ok(Resumed::PutBack(said))
}

/// Why what runs after the reboot is not what was asked for.
async fn verify(site: &Site<'_>, memory: &MachineMemory, journal: &Journal) -> Result<Option<String>, AgentError> {
    let Some(pending) = memory.pending.as_ref().filter(|pending| pending.revision == journal.revision) else {
        return Ok(Some("the machine has booted, and what was asked of it is not remembered".into()));
    };
    let MachinePending { machine, .. } = pending;
    let found = observe::observe(site.root, &[machine]).await?;
    let lines = match plan_machine(Some(machine), machine, &found, &Rules::default()) {
        Ok(change) if change.is_empty() => return Ok(None),
        Ok(change) => change.lines,
        Err(error) => vec![error.to_string()],
    };
    let first = lines.into_iter().next().unwrap_or_default();
    Ok(Some(format!("the machine has booted, and this is still to be done: {first}")))
}

fn told(memory: &MachineMemory, journal: &Journal, phase: MachinePhase) -> MachineReport {
    let pending = memory.pending.as_ref().filter(|pending| pending.revision == journal.revision);
    MachineReport {
        revision: journal.revision.clone(),
        phase,
        needs: pending.map(|pending| pending.needs).unwrap_or_default(),
        changes: pending.map(|pending| pending.changes.clone()).unwrap_or_default(),
        took: None,
    }
}
