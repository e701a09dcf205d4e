//! `kiln agent update`: one config, now, on this machine, without a hub.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use kiln_agent::Agent;
use kiln_agent::machine::execute::{Network, execute, reboot};
use kiln_agent::machine::plan::{NoPlan, Plan, plan_files, plan_network, speaks_of_profiles};
use kiln_agent::machine::resume::{Resumed, When, confirm, resume, save};
use kiln_agent::machine::{Ended, Root, Site};
use kiln_agent::memory::Store;
use kiln_agent::recover::recover;
use kiln_core::document::yaml;
use kiln_core::machine::config::read_machine;
use kiln_core::machine::rules::parse_rules;
use kiln_core::machine::wish::Machine;
use kiln_core::machine::{Action, MachinePhase, MachineReport, Needs, Rules, System};
use kiln_core::payload::digest::sha256_hex;
use kiln_core::source::SourceMap;
use serde_json::{Value, json};

use super::super::check::ReportFormat;
use super::super::net::render::read_text;
use super::super::{PrintFormat, output, output::Failure, report};
use super::proof::ProofArgs;
use super::{Outcome, StateDir};

/// The largest config that is read, as over the network.
const LARGEST_CONFIG: u64 = 16 << 20;

/// What `kiln agent update` takes.
#[derive(Debug, Args)]
pub struct UpdateArgs {
    /// Ignition config
    #[arg(value_name = "CONFIG.ign")]
    config: PathBuf,
    /// Print what would change and what it takes, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// What changes take: a nodeDisruptionPolicy, or a MachineConfiguration with one in it
    #[arg(long, value_name = "FILE.yaml")]
    rules: Option<PathBuf>,
    /// Boot the machine when the change needs it
    #[arg(long)]
    reboot: bool,
    #[command(flatten)]
    proof: ProofArgs,
    #[command(flatten)]
    state: StateDir,
    /// A folder that stands for the machine
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    root: PathBuf,
    /// How it is printed
    #[arg(short, long, value_enum, default_value = "human")]
    output: PrintFormat,
}

/// Reads, plans, does it, tells.
pub fn run(args: &UpdateArgs) -> Result<Outcome, Failure> {
    let rules = match &args.rules {
        Some(path) => match read_rules(path)? {
            Some(rules) => rules,
            None => return Ok(Outcome::Refused),
        },
        None => Rules::default(),
    };
    let config = read_config(&args.config)?;
    // The name of what was asked for: after a boot it is recognised by it.
    let revision = format!("sha256:{}", &sha256_hex(&String::from_utf8_lossy(&config))[..16]);
    let wanted = read_machine(&config, &System::default()).map_err(|error| Failure::refused(anyhow!(error)))?;
    super::runtime()?.block_on(update(args, &revision, &wanted, &rules))
}

async fn update(args: &UpdateArgs, revision: &str, wanted: &Machine, rules: &Rules) -> Result<Outcome, Failure> {
    let (root, state_dir) = (Root::new(&args.root), args.state.state_dir.as_path());
    let site = Site { root: &root, state_dir };
    let store = Store::open(state_dir)?;
    let agent = if args.root == Path::new("/") { Agent::connect_if_running(state_dir).await } else { None };
    let agent = agent.as_ref();
    let put_back = match agent {
        _ if args.dry_run => None,
        Some(agent) => agent.recover().await?,
        None => recover(&kiln_agent::Folders::default(), state_dir, None).await?,
    };
    let mut network = store.load()?.settle(put_back.is_some());
    let mut memory = store.load_machine()?;
    if !args.dry_run {
        match resume(&site, &store, &mut network, &mut memory, agent, When::Running).await? {
            Resumed::Nothing | Resumed::AwaitsVerifying(_) => {}
            Resumed::AwaitsReboot(report) if args.reboot => return boot(args, &site, agent, report).await,
            Resumed::AwaitsReboot(report) => {
                let why = format!("{} waits for a reboot; boot the machine, or give --reboot", report.revision);
                return tell(args, &Told::new("refused").because(why));
            }
            Resumed::Kept(report) if report.revision == revision => {
                return tell(args, &Told::of("applied", &report));
            }
            Resumed::PutBack(report) if report.revision == revision => {
                return tell(args, &Told::of("rolledBack", &report));
            }
            Resumed::Kept(report) => output::complain(&format!("{} is in force\n", report.revision)),
            Resumed::PutBack(report) => {
                output::complain(&format!("first put back what was before {}\n", report.revision));
            }
        }
    }
    let plan = match plan_files(&root, &memory, wanted, rules).await?.1 {
        Ok(change) if !speaks_of_profiles(&change) => Ok(Plan { change, ..Plan::default() }),
        Ok(change) => match agent {
            Some(agent) => {
                if !args.dry_run {
                    super::wait_for_others(agent).await?;
                }
                plan_network(agent, change, &network.ownership, None).await?
            }
            None => Err(NoPlan::Refused("the config has profiles, and NetworkManager does not run here".into())),
        },
        Err(none) => Err(none),
    };
    let plan = match plan {
        Ok(plan) => plan,
        Err(NoPlan::Refused(why) | NoPlan::Waits(why)) => return tell(args, &Told::new("refused").because(why)),
    };
    if args.dry_run {
        let name = if plan.is_empty() { "unchanged" } else { "planned" };
        return tell(args, &Told::planned(name, &plan));
    }
    if plan.needs() == Needs::Reboot && !args.reboot {
        let why = "the change needs a reboot; give --reboot to allow it".to_owned();
        return tell(args, &Told::planned("refused", &plan).because(why));
    }
    memory.pending = Some(plan.pending(revision, wanted));
    save(&store, &memory)?;
    if plan.is_empty() {
        confirm(state_dir, &store, &mut network, &mut memory)?;
        return tell(args, &Told::planned("unchanged", &plan));
    }
    if args.output == PrintFormat::Human {
        output::print(&plan.lines().iter().map(|line| format!("  {line}\n")).collect::<String>())?;
    }
    let proof = args.proof.proof();
    let part = match (agent, &plan.network) {
        (Some(agent), Some(change)) => Some(Network { agent, change, proof: &proof, hub: None }),
        _ => None,
    };
    let (name, why, took) = match execute(&site, &plan.change, revision, part).await? {
        Ended::Applied { took } => {
            confirm(state_dir, &store, &mut network, &mut memory)?;
            ("applied", None, Some(took))
        }
        Ended::Reboot => {
            let said = MachineReport {
                revision: revision.to_owned(),
                phase: MachinePhase::Rebooting,
                needs: plan.needs(),
                changes: plan.lines(),
                took: None,
            };
            return boot(args, &site, agent, said).await;
        }
        Ended::RolledBack { why, took, network: _ } => ("rolledBack", Some(why), Some(took)),
        Ended::Refused { why } | Ended::Waits { why } => ("refused", Some(why), None),
    };
    if why.is_some() {
        memory.pending = None;
        save(&store, &memory)?;
    }
    tell(args, &Told { why, took, ..Told::planned(name, &plan) })
}

async fn boot(
    args: &UpdateArgs,
    site: &Site<'_>,
    agent: Option<&Agent>,
    said: MachineReport,
) -> Result<Outcome, Failure> {
    match reboot(site, agent).await? {
        Ended::RolledBack { why, .. } => tell(args, &Told::of("rolledBack", &said).because(why)),
        _ => tell(args, &Told::of("rebooting", &said)),
    }
}

fn read_config(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LARGEST_CONFIG + 1).read_to_end(&mut bytes))
        .with_context(|| format!("cannot read `{}`", path.display()))
        .map_err(Failure::refused)?;
    if bytes.len() as u64 > LARGEST_CONFIG {
        return Err(Failure::refused(anyhow!("`{}` has more than {LARGEST_CONFIG} bytes", path.display())));
    }
    Ok(bytes)
}

/// None: the file was refused, and why was printed.
fn read_rules(path: &Path) -> Result<Option<Rules>, Failure> {
    let mut sources = SourceMap::default();
    let file = sources.add(path.display().to_string(), read_text(path)?);
    let (documents, findings) = yaml::parse_yaml(file, sources.file(file));
    report::print(&sources, &findings, ReportFormat::Human)?;
    let [document] = documents.as_slice() else { return Ok(None) };
    let value = document.to_json();
    let value = value.pointer("/spec/nodeDisruptionPolicy").unwrap_or(&value);
    let value = value.get("nodeDisruptionPolicy").unwrap_or(value);
    match parse_rules(value) {
        Ok(rules) => Ok(Some(rules)),
        Err(mistakes) => Err(Failure::refused(anyhow!("`{}`: {}", path.display(), mistakes.join("; ")))),
    }
}

/// How it ended.
struct Told {
    name: &'static str,
    why: Option<String>,
    took: Option<Duration>,
    needs: Needs,
    changes: Vec<String>,
    actions: Vec<Action>,
}

impl Told {
    fn new(name: &'static str) -> Told {
        Told { name, why: None, took: None, needs: Needs::Nothing, changes: Vec::new(), actions: Vec::new() }
    }

    fn planned(name: &'static str, plan: &Plan) -> Told {
        let actions = plan.change.actions.clone();
        Told { needs: plan.needs(), changes: plan.lines(), actions, ..Told::new(name) }
    }

    fn of(name: &'static str, report: &MachineReport) -> Told {
        let why = match &report.phase {
            MachinePhase::RolledBack(why) | MachinePhase::Refused(why) => Some(why.clone()),
            _ => None,
        };
        Told { why, needs: report.needs, changes: report.changes.clone(), ..Told::new(name) }
    }

    fn because(self, why: String) -> Told {
        Told { why: Some(why), ..self }
    }
}

fn tell(args: &UpdateArgs, told: &Told) -> Result<Outcome, Failure> {
    let Told { name, why, took, needs, changes, actions } = told;
    if args.output == PrintFormat::Human {
        let lines: String = changes.iter().map(|line| format!("  {line}\n")).collect();
        let cause = why.as_ref().map(|why| format!("  caused by: {why}\n")).unwrap_or_default();
        let after = took.map(|took| format!(" after {} ms", took.as_millis())).unwrap_or_default();
        match *name {
            "unchanged" => output::print("nothing to change\n")?,
            "planned" => {
                let actions: String = actions.iter().map(|action| format!("  then {}\n", words(action))).collect();
                output::print(&format!("{lines}{actions}nothing was changed (--dry-run)\n"))?;
            }
            "applied" => output::print(&format!("applied{after}\n"))?,
            "rebooting" => output::print("everything is written; the machine boots\n")?,
            "rolledBack" => output::complain(&format!("error: put back{after}\n{cause}")),
            _ => output::complain(&format!("error: nothing was changed\n{cause}")),
        }
    } else {
        let value: Value = json!({
            "outcome": name,
            "changes": changes,
            "needs": needs,
            "actions": actions,
            "reason": why,
            "tookMilliseconds": took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
        });
        output::print(&match args.output {
            PrintFormat::Yaml => kiln_core::document::emit::to_yaml(&value),
            _ => format!("{value:#}\n"),
        })?;
    }
    Ok(if matches!(*name, "refused" | "rolledBack") { Outcome::Refused } else { Outcome::Done })
}

fn words(action: &Action) -> String {
    match action {
        Action::None => "nothing".to_owned(),
        Action::DaemonReload => "systemd reads its units again".to_owned(),
        Action::Reload(name) => format!("{name} is reloaded"),
        Action::Restart(name) => format!("{name} is restarted"),
        Action::Drain => "pods go elsewhere (only the hub does that)".to_owned(),
        Action::Reboot => "the machine boots".to_owned(),
    }
}
