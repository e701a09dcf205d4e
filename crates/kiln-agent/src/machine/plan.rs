//! What is to be done on this machine: files and units by [`plan_machine`], profiles by [`plan_profile_files`], as one plan.

use kiln_core::change::{Change, ChangeError, Ownership, plan_profile_files};
use kiln_core::machine::plan::plan_machine;
use kiln_core::machine::rules::needs_of;
use kiln_core::machine::wish::{Found, Machine, MachineChange, ProfileWish};
use kiln_core::machine::{Needs, Rules};
use serde_json::Value;

use super::{Root, observe};
use crate::memory::{MachineMemory, MachinePending};
use crate::{Agent, AgentError};

/// The most lines that are for people.
const MOST_LINES: usize = 64;

/// A change of a machine, with its network.
#[derive(Clone, Default)]
pub struct Plan {
    /// Files, units, kernel, image.
    pub change: MachineChange,
    /// Profiles, where they differ.
    pub network: Option<Change>,
    /// What is Kiln's about the network afterwards; none leaves it as it is.
    pub ownership: Option<Ownership>,
}

/// Contents are not shown.
impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan").field("needs", &self.needs()).field("lines", &self.lines()).finish_non_exhaustive()
    }
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoPlan {
    /// It can never be done on this node: one line.
    Refused(String),
    /// It cannot be planned yet: one line.
    Waits(String),
}

impl Plan {
    /// Whether nothing has to be done.
    pub fn is_empty(&self) -> bool {
        let files = MachineChange { profiles: None, ..self.change.clone() };
        files.is_empty() && self.network.is_none()
    }

    /// The strongest thing it takes.
    pub fn needs(&self) -> Needs {
        let network = if self.network.is_some() { Needs::Service } else { Needs::Nothing };
        needs_of(&self.change.actions).max(network)
    }

    /// What changes, a line for people each, without contents.
    pub fn lines(&self) -> Vec<String> {
        let network = self.network.iter().flat_map(|change| &change.lines);
        let lines: Vec<String> = self.change.lines.iter().chain(network).cloned().collect();
        match lines.len().checked_sub(MOST_LINES) {
            Some(more @ 1..) => {
                let kept = MOST_LINES - 1;
                let rest = format!("and {} more", more + 1);
                lines.into_iter().take(kept).chain([rest]).collect()
            }
            _ => lines,
        }
    }

    /// What is remembered before it is carried out.
    pub fn pending(&self, revision: &str, wanted: &Machine) -> MachinePending {
        MachinePending {
            revision: revision.to_owned(),
            machine: wanted.clone(),
            ownership: self.ownership.clone(),
            needs: self.needs(),
            changes: self.lines(),
        }
    }
}

/// Looks at the machine and plans its files and units. With it comes what was found.
pub async fn plan_files(
    root: &Root,
    memory: &MachineMemory,
    wanted: &Machine,
    rules: &Rules,
) -> Result<(Found, Result<MachineChange, NoPlan>), AgentError> {
    let before = memory.applied.as_ref().map(|(_, machine)| machine);
    let machines: Vec<&Machine> = before.into_iter().chain([wanted]).collect();
    let found = observe::observe(root, &machines).await?;
    let change = plan_machine(before, wanted, &found, rules).map_err(|error| NoPlan::Refused(error.to_string()));
    Ok((found, change))
}

/// Adds the network's part, when profiles may differ.
///
/// `documents` are those of the network assignment in force; without them an interface that policies own is waited for.
pub async fn plan_network(
    agent: &Agent,
    change: MachineChange,
    owned: &Ownership,
    documents: Option<(&Value, &Value)>,
) -> Result<Result<Plan, NoPlan>, AgentError> {
    let Some(wish) = &change.profiles else { return Ok(Ok(Plan { change, ..Plan::default() })) };
    let observed = agent.observe().await?;
    Ok(match plan_profile_files(&observed, owned, documents, wish) {
        Ok(network) => {
            let ownership = Some(network.ownership.clone());
            Ok(Plan { change, network: Some(network).filter(|network| !network.is_empty()), ownership })
        }
        Err(error @ ChangeError::PolicyUnknown { .. }) => Err(NoPlan::Waits(error.to_string())),
        Err(error) => Err(NoPlan::Refused(error.to_string())),
    })
}

/// Whether a config says anything about profiles.
pub fn speaks_of_profiles(change: &MachineChange) -> bool {
    let empty = |wish: &ProfileWish| wish.files.is_empty() && wish.gone.is_empty();
    change.profiles.as_ref().is_some_and(|wish| !empty(wish))
}
