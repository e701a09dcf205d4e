//! `kiln agent apply`: one document, now, with proof.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use kiln_agent::glance::glance;
use kiln_agent::journal;
use kiln_agent::memory::{Memory, Store};
use kiln_agent::{Agent, Outcome as Tried, describe_uncounted};
use kiln_core::change::{Change, ChangeError, Observed, Ownership, plan_change};
use kiln_core::diagnostic::Severity;
use kiln_core::document::yaml;
use kiln_core::nmstate::{Wrapping, find_network};
use kiln_core::policy::add_trunks;
use kiln_core::source::SourceMap;
use serde_json::{Value, json};

use super::super::check::ReportFormat;
use super::super::net::render::read_text;
use super::super::{PrintFormat, output, output::Failure, report};
use super::proof::ProofArgs;
use super::{Outcome, StateDir};

/// What `kiln agent apply` takes.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// nmstate YAML, or an NMStateConfig or NodeNetworkConfigurationPolicy with one in it
    file: PathBuf,
    /// Print what would change and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Keep it until the next reboot only
    #[arg(long)]
    runtime: bool,
    #[command(flatten)]
    proof: ProofArgs,
    #[command(flatten)]
    state: StateDir,
    /// How it is printed
    #[arg(short, long, value_enum, default_value = "human")]
    output: PrintFormat,
}

/// Reads, plans, tries, tells.
pub fn run(args: &ApplyArgs) -> Result<Outcome, Failure> {
    let Some(network) = read_network(args)? else { return Ok(Outcome::Refused) };
    super::runtime()?.block_on(apply(args, &network))
}

async fn apply(args: &ApplyArgs, network: &Value) -> Result<Outcome, Failure> {
    if is_there(args, network)? {
        return tell(args, &Change::default(), Told::Unchanged);
    }
    let agent = Agent::connect(&args.state.state_dir).await?;
    let store = Store::open(&args.state.state_dir)?;
    let put_back = if args.dry_run { None } else { agent.recover().await? };
    if let Some(recovered) = &put_back {
        output::complain(&format!("first put back what was before {}: {}\n", recovered.revision, recovered.why));
    }
    let memory = store.load()?.settle(put_back.is_some());
    if !args.dry_run {
        super::wait_for_others(&agent).await?;
    }
    let change = match plan(args, network, &agent.observe().await?, &memory) {
        Ok(change) => change,
        Err(error) => return tell(args, &Change::default(), Told::Refused(error.to_string())),
    };
    if change.is_empty() {
        return tell(args, &change, Told::Unchanged);
    }
    if args.dry_run {
        return tell(args, &change, Told::Planned);
    }
    if args.output == PrintFormat::Human {
        output::print(&change.lines.iter().map(|line| format!("  {line}\n")).collect::<String>())?;
    }
    let mut taken = memory.ownership.clone();
    taken.join(change.ownership.clone());
    store.save(&Memory { pending: Some(taken.clone()), ..memory.clone() })?;
    let tried = agent.attempt(&change, &args.proof.proof(), &args.file.display().to_string(), None).await?;
    let ownership = if matches!(tried, Tried::Applied { .. }) { taken } else { memory.ownership.clone() };
    store.save(&Memory { pending: None, ownership, ..memory })?;
    tell(args, &change, Told::Tried(tried))
}

/// Whether the first sight shows that nothing has to change. Not where a try was cut off: that is put back first.
fn is_there(args: &ApplyArgs, network: &Value) -> Result<bool, Failure> {
    let state_dir = &args.state.state_dir;
    if !state_dir.exists() || journal::read(state_dir)?.is_some() {
        return Ok(false);
    }
    let Some(observed) = glance() else { return Ok(false) };
    let memory = Store::open(state_dir)?.load()?.settle(false);
    Ok(plan(args, network, &observed, &memory).is_ok_and(|change| change.is_empty()))
}

fn plan(args: &ApplyArgs, network: &Value, observed: &Observed, memory: &Memory) -> Result<Change, ChangeError> {
    let persistent = if args.runtime { json!({}) } else { network.clone() };
    plan_change(observed, &mentioned(&memory.ownership, network), network, &persistent)
}

/// Keys whose value names an interface that the document only builds on.
const BUILT_ON: [&str; 3] = ["base-iface", "copy-mac-from", "controller"];

/// What this command speaks about: a file says nothing about what an earlier file brought, and leaves it. Nor does one that
/// puts a VLAN on a bond say anything about the bond.
fn mentioned(owned: &Ownership, network: &Value) -> Ownership {
    fn gather<'v>(value: &'v Value, names: &mut HashSet<&'v str>) {
        match value {
            Value::String(text) => drop(names.insert(text)),
            Value::Array(values) => values.iter().for_each(|value| gather(value, names)),
            Value::Object(values) => {
                let said = values.iter().filter(|(key, _)| !BUILT_ON.contains(&key.as_str()));
                said.for_each(|(_, value)| gather(value, names));
            }
            _ => {}
        }
    }
    let mut names = HashSet::new();
    gather(network, &mut names);
    let interfaces = owned.interfaces.iter().filter(|(name, _)| names.contains(name.as_str()));
    let hostname = owned.hostname.clone().filter(|_| network.get("hostname").is_some());
    Ownership { interfaces: interfaces.map(|(name, taken)| (name.clone(), taken.clone())).collect(), hostname }
}

/// None: the file was refused, and why was printed.
fn read_network(args: &ApplyArgs) -> Result<Option<Value>, Failure> {
    let text = read_text(&args.file)?;
    let mut sources = SourceMap::default();
    let file = sources.add(args.file.display().to_string(), text);
    let (documents, findings) = yaml::parse_yaml(file, sources.file(file));
    report::print(&sources, &findings, ReportFormat::Human)?;
    if report::count(&findings, Severity::Error) > 0 {
        return Ok(None);
    }
    let networks: Vec<_> = documents.iter().filter_map(find_network).collect();
    match networks.as_slice() {
        [network] => {
            let mut document = network.document.to_json();
            if network.wrapping == Wrapping::Policy {
                add_trunks(&mut document);
            }
            Ok(Some(document))
        }
        _ => Err(Failure::refused(anyhow!(
            "`{}` has {} network documents; give a file with one",
            args.file.display(),
            networks.len()
        ))),
    }
}

/// How it ended.
enum Told {
    Unchanged,
    Planned,
    Refused(String),
    Tried(Tried),
}

fn tell(args: &ApplyArgs, change: &Change, told: Told) -> Result<Outcome, Failure> {
    let mut uncounted = Vec::new();
    let (name, why, times) = match told {
        Told::Unchanged => ("unchanged", None, None),
        Told::Planned => ("planned", None, None),
        Told::Refused(why) | Told::Tried(Tried::Refused { why } | Tried::Waits { why }) => ("refused", Some(why), None),
        Told::Tried(Tried::Applied { took, outage, uncounted: these }) => {
            uncounted = these;
            ("applied", None, Some((took, outage)))
        }
        Told::Tried(Tried::RolledBack { why, took, outage, uncounted: these }) => {
            uncounted = these;
            ("rolledBack", Some(why), Some((took, outage)))
        }
        Told::Tried(Tried::Abandoned { why, took, outage }) => ("rolledBack", Some(why), Some((took, outage))),
    };
    if let Some(line) = describe_uncounted(&uncounted).filter(|_| args.output == PrintFormat::Human) {
        output::complain(&format!("warning: {line}\n"));
    }
    match args.output {
        PrintFormat::Human => {
            let changes: String = change.lines.iter().map(|line| format!("  {line}\n")).collect();
            let times = times.map(|(took, outage)| {
                format!(" after {} ms, longest outage {} ms", took.as_millis(), outage.as_millis())
            });
            let times = times.unwrap_or_default();
            match (name, why) {
                ("unchanged", _) => output::print("nothing to change\n")?,
                ("planned", _) => output::print(&format!("{changes}nothing was changed (--dry-run)\n"))?,
                ("applied", _) => output::print(&format!("applied{times}\n"))?,
                ("rolledBack", Some(why)) => output::complain(&format!("error: put back{times}\n  caused by: {why}\n")),
                (_, why) => {
                    output::complain(&format!(
                        "error: nothing was changed\n  caused by: {}\n",
                        why.unwrap_or_default()
                    ));
                }
            }
        }
        PrintFormat::Json | PrintFormat::Yaml => {
            let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            let value = json!({
                "outcome": name,
                "changes": change.lines,
                "disruption": change.disruption,
                "reason": why,
                "tookMilliseconds": times.map(|(took, _)| milliseconds(took)),
                "uncountedProbes": uncounted,
                "outageMilliseconds": times.map(|(_, outage)| milliseconds(outage)),
            });
            output::print(&match args.output {
                PrintFormat::Yaml => kiln_core::document::emit::to_yaml(&value),
                _ => format!("{value:#}\n"),
            })?;
        }
    }
    Ok(if matches!(name, "refused" | "rolledBack") { Outcome::Refused } else { Outcome::Done })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_file_brought_is_left_alone() {
        let owned: Ownership =
            serde_json::from_value(json!({"interfaces": {"br0": {"originals": []}, "br1": {"originals": []}}}))
                .unwrap();
        let network = json!({"interfaces": [{"name": "br1"}, {"name": "br2"}, {"name": "br0.7", "vlan": {"base-iface": "br0", "id": 7}}]});
        assert_eq!(mentioned(&owned, &network).interfaces.keys().collect::<Vec<_>>(), ["br1"]);
        let new: Ownership = serde_json::from_value(
            json!({"interfaces": {"br1": {"originals": [], "active": "u"}, "br2": {"originals": []}}}),
        )
        .unwrap();
        let mut all = owned;
        all.join(new);
        assert_eq!(all.interfaces.keys().collect::<Vec<_>>(), ["br0", "br1", "br2"]);
        assert_eq!(all.interfaces["br1"].active, None, "what was there first counts");
    }
}
