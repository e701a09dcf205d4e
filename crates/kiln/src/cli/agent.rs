//! `kiln agent`: the network, files and units of the machine this runs on.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use kiln_agent::{Agent, AgentError};

use super::{Outcome, output, output::Failure};

mod apply;
mod proof;
mod recover;
mod run;
mod update;

/// The verbs of `kiln agent`.
#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    /// Change this machine's network to what nmstate YAML says, prove it, or put it back
    ///
    /// Only what the file mentions is changed, and nothing is sent when nothing differs. The change is kept when every probe
    /// that passed before, and every target that is named, passes and goes on passing; otherwise, also when this program is
    /// killed, the old network comes back. Exit code 1 when it was refused or put back.
    Apply(apply::ApplyArgs),
    /// Change this machine's files, units, profiles and kernel arguments to what an Ignition config says, or put them back
    ///
    /// The config is the one a new machine would boot with; what only an installation changes, such as disks, is refused. Written
    /// is what differs; removed is what an earlier config brought. Then services are reloaded or restarted as the rules say, and
    /// the machine is booted when they ask for it and --reboot is given. When anything fails, also when this program is killed,
    /// everything goes back. After a boot the same command says whether it took. Nobody's pods are moved away: the hub does that.
    Update(update::UpdateArgs),
    /// Keep this node as the hub declares it, its network, files and units: ask, try, prove, keep or put back, and tell
    ///
    /// Runs until it is stopped. When the hub cannot be reached nothing is undone and nothing new is begun.
    Run(run::RunArgs),
    /// Put the old network, files and units back after a change that was not confirmed, because the agent or the machine died
    ///
    /// Does nothing when there was none. Runs before NetworkManager at boot, or beside it.
    Recover(recover::RecoverArgs),
}

/// What every verb takes.
#[derive(Debug, Args)]
pub struct StateDir {
    /// Folder of the journal and of what the agent remembers
    #[arg(long, value_name = "DIR", default_value = kiln_agent::STATE_DIR)]
    state_dir: PathBuf,
}

/// Runs one verb.
pub fn run(command: &AgentCommand) -> Result<Outcome, Failure> {
    match command {
        AgentCommand::Apply(args) => apply::run(args),
        AgentCommand::Update(args) => update::run(args),
        AgentCommand::Run(args) => run::run(args),
        AgentCommand::Recover(args) => recover::run(args),
    }
}

/// Gives another program that is changing the network some time to end. One that takes longer is told of by the try.
async fn wait_for_others(agent: &Agent) -> Result<(), AgentError> {
    const LONGEST: Duration = Duration::from_secs(30);
    if let Some(why) = agent.waits_for().await? {
        output::complain(&format!("waiting up to {} s: {why}\n", LONGEST.as_secs()));
        agent.wait_for_others(LONGEST).await?;
    }
    Ok(())
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}
