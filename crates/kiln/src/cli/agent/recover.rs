//! `kiln agent recover`: the old network, files and units back after a crash or a power cut.

use std::path::Path;

use clap::Args;
use kiln_agent::machine::resume::{Resumed, When, resume};
use kiln_agent::machine::{Root, Site};
use kiln_agent::memory::Store;
use kiln_agent::recover::recover;
use kiln_agent::{Agent, Folders};
use kiln_core::machine::{MachinePhase, MachineReport};

use super::super::output::{self, Failure};
use super::{Outcome, StateDir};

/// What `kiln agent recover` takes.
#[derive(Debug, Args)]
pub struct RecoverArgs {
    #[command(flatten)]
    state: StateDir,
}

/// Recovers. Without a running NetworkManager files are everything there is to restore.
pub fn run(args: &RecoverArgs) -> Result<Outcome, Failure> {
    let state_dir = &args.state.state_dir;
    super::runtime()?.block_on(async {
        let agent = Agent::connect_if_running(state_dir).await;
        let recovered = match &agent {
            Some(agent) => agent.recover().await?,
            None => recover(&Folders::default(), state_dir, None).await?,
        };
        let mut said = Vec::new();
        if let Some(recovered) = &recovered {
            said.push(format!("put back what was before {}: {}\n", recovered.revision, recovered.why));
        }
        said.extend(recover_machine(state_dir, recovered.is_some(), agent.as_ref()).await?);
        if said.is_empty() {
            said.push("nothing to recover\n".to_owned());
        }
        Ok::<_, Failure>(output::print(&said.concat())?)
    })?;
    Ok(Outcome::Done)
}

/// Files and units. What a boot has brought is judged later, when everything runs.
async fn recover_machine(state_dir: &Path, put_back: bool, agent: Option<&Agent>) -> Result<Option<String>, Failure> {
    if !state_dir.exists() {
        return Ok(None);
    }
    let store = Store::open(state_dir)?;
    let mut network = store.load()?.settle(put_back);
    let mut memory = store.load_machine()?;
    let root = Root::machine();
    let site = Site { root: &root, state_dir };
    let resumed = resume(&site, &store, &mut network, &mut memory, agent, When::BeforeNetwork).await?;
    Ok(match resumed {
        Resumed::Nothing => None,
        Resumed::Kept(report) => Some(format!("{} is in force\n", report.revision)),
        Resumed::PutBack(MachineReport { revision, phase: MachinePhase::RolledBack(why), .. }) => {
            Some(format!("put back the files and units before {revision}: {why}\n"))
        }
        Resumed::PutBack(report) => Some(format!("put back the files and units before {}\n", report.revision)),
        Resumed::AwaitsReboot(report) => Some(format!("{} waits for a reboot\n", report.revision)),
        Resumed::AwaitsVerifying(report) => Some(format!(
            "{} is verified by `kiln agent run`, or by `kiln agent update` with the same file\n",
            report.revision
        )),
    })
}
