//! `kiln net preview`: what policies would change on each node, before anybody is asked to do it.
//!
//! Nodes and their states come from files (`kubectl get nodes,nns -o yaml`, `nmstatectl show`) or from the hub. Decided is all of
//! it in `kiln_core::policy`; nothing is written anywhere. Exit 1 when a policy is refused on a node or cannot be done there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::Args;
use kiln_core::assignment::Disruption;
use kiln_core::diagnostic::Severity;
use kiln_core::document::emit::to_yaml;
use kiln_core::policy::{
    Allocations, Captured, NetworkPolicy, Node, Outcome as Ahead, Preview, Risk, allocate, lint, preview,
};
use serde_json::{Value, json};

use super::super::check::ReportFormat;
use super::super::load::load;
use super::super::output::{self, Failure};
use super::super::status::connection::Connection;
use super::super::{Outcome, PrintFormat, report};
use super::render::read_text;

mod hub;

/// What `kiln net preview` takes.
#[derive(Debug, Args)]
pub struct PreviewArgs {
    /// Policies to preview; Nodes, NodeNetworkStates, Hosts and Pools in the same files are used too
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Policies that are in force already
    #[arg(long = "with", value_name = "FILE")]
    with: Vec<PathBuf>,
    /// State of a node: nmstate YAML as `nmstatectl show` prints it, or a NodeNetworkState
    #[arg(long, value_name = "NODE=FILE")]
    state: Vec<String>,
    /// Folder with a state for each node, called NODE.yaml or NODE.json
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    connection: Connection,
    /// How it is printed
    #[arg(short, long, value_enum, default_value = "human")]
    output: PrintFormat,
}

/// Everything a preview looks at.
#[derive(Debug, Default)]
struct Fleet {
    nodes: BTreeMap<String, Known>,
    /// Policies in force, as objects, by name.
    held: BTreeMap<String, Value>,
    /// Policies to look ahead with, as objects, by name.
    asked: BTreeMap<String, Value>,
    allocations: Allocations,
    /// Networks of Pools, by `namespace/name`.
    pools: BTreeMap<String, Value>,
}

/// What is known of a node.
#[derive(Debug, Default)]
struct Known {
    labels: BTreeMap<String, String>,
    base: Option<Value>,
    /// `namespace/name`.
    pool: Option<String>,
    state: Option<Value>,
    captured: Captured,
}

/// Reads, looks ahead, prints.
pub fn run(args: &PreviewArgs) -> Result<Outcome, Failure> {
    let mut fleet = Fleet::default();
    if !read_files(&args.files, &mut fleet)? {
        return Ok(Outcome::Refused);
    }
    fleet.asked = std::mem::take(&mut fleet.held);
    if fleet.asked.is_empty() {
        return Err(Failure::refused(anyhow!("the files hold no NodeNetworkConfigurationPolicy")));
    }
    if !args.with.is_empty() && !read_files(&args.with, &mut fleet)? {
        return Ok(Outcome::Refused);
    }
    read_states(args, &mut fleet)?;
    if fleet.nodes.values().all(|node| node.state.is_none()) {
        args.connection.block_on(async |client| hub::fetch(&client, &mut fleet).await)?;
    }
    let policies = policies(&fleet)?;
    let seen = look_ahead(&mut fleet, &policies);
    let refused = seen.iter().any(|seen| {
        let refused = seen.preview.composed.refused.iter().any(|(_, error)| !error.is_waiting());
        refused || matches!(seen.preview.outcome, Ahead::Impossible(_))
    });
    let notes = notes(&fleet, &policies, &seen);
    match args.output {
        PrintFormat::Human => output::print(&render(&seen, &notes))?,
        PrintFormat::Json => output::print(&format!("{:#}\n", to_json(&seen, &notes)))?,
        PrintFormat::Yaml => output::print(&to_yaml(&to_json(&seen, &notes)))?,
    }
    Ok(if refused { Outcome::Refused } else { Outcome::Done })
}

/// Takes what files say; false when they cannot be read, which was told.
fn read_files(paths: &[PathBuf], fleet: &mut Fleet) -> Result<bool, Failure> {
    let loaded = load(paths)?;
    let wrong = report::count(&loaded.diagnostics, Severity::Error) > 0;
    if wrong {
        report::print(&loaded.sources, &loaded.diagnostics, ReportFormat::Human)?;
        return Ok(false);
    }
    loaded.documents.iter().for_each(|document| fleet.take(document.to_json()));
    Ok(true)
}

impl Fleet {
    /// Takes an object, whatever it is.
    fn take(&mut self, object: Value) {
        let Some(name) = object["metadata"]["name"].as_str().map(str::to_owned) else { return };
        let texts = |map: &Value| -> BTreeMap<String, String> {
            let entries = map.as_object().into_iter().flatten();
            entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
        };
        match object["kind"].as_str() {
            Some("NodeNetworkConfigurationPolicy") => {
                self.take_allocations(&name, &object["status"]["kiln"]["allocations"]);
                self.held.insert(name, object);
            }
            Some("Node") => self.node(&name).labels.extend(texts(&object["metadata"]["labels"])),
            Some("NodeNetworkState") => self.node(&name).state = state_of(object),
            Some("Pool") if is_kilns(&object) && object["spec"]["network"].is_object() => {
                self.pools.insert(format!("{}/{name}", namespace(&object)), object["spec"]["network"].clone());
            }
            Some("Host") if is_kilns(&object) => {
                let spec = &object["spec"];
                let known = self.node(spec["hostname"].as_str().unwrap_or(&name));
                // As the hub does it: what the Node itself says is stronger than what its Host declares.
                let mut declared = texts(&object["metadata"]["labels"]);
                declared.extend(texts(&spec["nodeLabels"]));
                declared.extend(role_labels(spec["role"].as_str()));
                declared.into_iter().for_each(|(key, value)| _ = known.labels.entry(key).or_insert(value));
                known.base = Some(spec["network"].clone()).filter(Value::is_object);
                let pool = spec["pool"].as_str().or_else(|| object["status"]["pool"].as_str());
                known.pool = pool.map(|pool| format!("{}/{pool}", namespace(&object)));
            }
            Some("NodeNetworkConfigurationEnactment") => self.take_captures(&object),
            _ => {}
        }
    }

    fn node(&mut self, name: &str) -> &mut Known {
        self.nodes.entry(name.to_owned()).or_insert_with(|| Known {
            labels: BTreeMap::from([("kubernetes.io/hostname".to_owned(), name.to_owned())]),
            ..Known::default()
        })
    }

    fn take_allocations(&mut self, policy: &str, pools: &Value) {
        for (pool, nodes) in pools.as_object().into_iter().flatten() {
            let nodes = nodes.as_object().into_iter().flatten();
            let given = nodes.filter_map(|(node, address)| Some((node.clone(), address.as_str()?.parse().ok()?)));
            self.allocations.entry(policy.to_owned()).or_default().insert(pool.clone(), given.collect());
        }
    }

    /// What captures found when they were first asked stays as it is.
    fn take_captures(&mut self, enactment: &Value) {
        let labels = &enactment["metadata"]["labels"];
        let names = (labels["nmstate.io/node"].as_str(), labels["nmstate.io/policy"].as_str());
        let (Some(node), Some(policy), Some(captures)) =
            (names.0, names.1, enactment["status"]["capturedStates"].as_object())
        else {
            return;
        };
        let states = captures.iter().map(|(name, captured)| (name.clone(), captured["state"].clone()));
        let states: Value = states.collect::<serde_json::Map<_, _>>().into();
        self.node(node).captured.insert(policy.to_owned(), states);
    }
}

fn is_kilns(object: &Value) -> bool {
    object["apiVersion"].as_str().is_some_and(|version| version.starts_with("kiln.dev/"))
}

/// A file need not say what kubectl fills in.
fn namespace(object: &Value) -> &str {
    object["metadata"]["namespace"].as_str().unwrap_or("default")
}

fn role_labels(role: Option<&str>) -> Vec<(String, String)> {
    let names: &[&str] = match role {
        Some("master") => &["master", "control-plane"],
        Some("worker") => &["worker"],
        Some("arbiter") => &["arbiter"],
        _ => &[],
    };
    names.iter().map(|name| (format!("node-role.kubernetes.io/{name}"), String::new())).collect()
}

/// A state, out of a NodeNetworkState or as nmstate itself prints it.
fn state_of(mut document: Value) -> Option<Value> {
    let state = match document["kind"].as_str() {
        Some("NodeNetworkState") => document["status"]["currentState"].take(),
        _ => document,
    };
    Some(state).filter(|state| state["interfaces"].is_array())
}

fn read_states(args: &PreviewArgs, fleet: &mut Fleet) -> Result<(), Failure> {
    let mut files: Vec<(String, PathBuf)> = Vec::new();
    for pair in &args.state {
        let (node, file) = pair
            .split_once('=')
            .filter(|(node, file)| !node.is_empty() && !file.is_empty())
            .ok_or_else(|| Failure::refused(anyhow!("`--state {pair}` is not NODE=FILE")))?;
        files.push((node.to_owned(), file.into()));
    }
    if let Some(folder) = &args.state_dir {
        let entries = fs::read_dir(folder).with_context(|| format!("cannot read `{}`", folder.display()));
        for entry in entries.map_err(Failure::Refused)? {
            let path = entry?.path();
            let known = path.extension().is_some_and(|suffix| suffix == "yaml" || suffix == "yml" || suffix == "json");
            let node = path.file_stem().and_then(|name| name.to_str()).filter(|_| known).map(str::to_owned);
            files.extend(node.map(|node| (node, path)));
        }
        files.sort();
    }
    for (node, path) in files {
        fleet.node(&node).state = Some(read_state(&path)?);
    }
    Ok(())
}

fn read_state(path: &Path) -> Result<Value, Failure> {
    let mut sources = kiln_core::source::SourceMap::default();
    let file = sources.add(path.display().to_string(), read_text(path)?);
    let (documents, findings) = kiln_core::document::yaml::parse_yaml(file, sources.file(file));
    if report::count(&findings, Severity::Error) > 0 {
        report::print(&sources, &findings, ReportFormat::Human)?;
        return Err(Failure::refused(anyhow!("`{}` cannot be read", path.display())));
    }
    let state = documents.first().and_then(|document| state_of(document.to_json()));
    state.ok_or_else(|| {
        Failure::refused(anyhow!(
            "`{}` is neither a NodeNetworkState nor the output of `nmstatectl show`",
            path.display()
        ))
    })
}

/// All policies that would then exist. One that is new is newer than all others; one that is edited keeps its age.
fn policies(fleet: &Fleet) -> Result<Vec<NetworkPolicy>, Failure> {
    let mut read = Vec::new();
    let refuse = |name: &str, error: kiln_core::policy::PolicyError| {
        Failure::refused(anyhow!(error).context(format!("policy `{name}` is refused on every node")))
    };
    for (name, object) in &fleet.asked {
        let mut policy = NetworkPolicy::read(object).map_err(|error| refuse(name, error))?;
        let before = fleet.held.get(name).map(|before| &before["metadata"]);
        let created = before.and_then(|before| before["creationTimestamp"].as_str());
        if policy.created.is_empty() {
            policy.created = created.unwrap_or("9999").to_owned();
        }
        policy.generation = before.and_then(|before| before["generation"].as_i64()).unwrap_or_default() + 1;
        read.push(policy);
    }
    // What is in force and cannot be read is refused already and counts for nobody.
    let others = fleet.held.iter().filter(|(name, _)| !fleet.asked.contains_key(*name));
    read.extend(others.filter_map(|(_, object)| NetworkPolicy::read(object).ok()));
    Ok(read)
}

struct Seen {
    node: String,
    /// Whether one of the policies asked about chooses it.
    chosen: bool,
    preview: Preview,
}

fn look_ahead(fleet: &mut Fleet, policies: &[NetworkPolicy]) -> Vec<Seen> {
    let nodes = fleet.nodes.iter().map(|(name, known)| (name.as_str(), &known.labels));
    let (allocations, _) = allocate(policies, nodes, &fleet.allocations);
    fleet.allocations = allocations;
    let mut seen = Vec::new();
    for (name, known) in &fleet.nodes {
        let asked = policies.iter().filter(|policy| fleet.asked.contains_key(&policy.name));
        let node = Node {
            name,
            labels: &known.labels,
            base: known.base.as_ref(),
            pool: known.pool.as_ref().and_then(|pool| fleet.pools.get(pool)),
            current: known.state.as_ref(),
            captured: &known.captured,
            allocations: &fleet.allocations,
        };
        let chosen = asked.into_iter().any(|policy| kiln_core::policy::select(policy, &node));
        seen.push(Seen { node: name.clone(), chosen, preview: preview(&node, policies) });
    }
    seen
}

/// What is to be said about the fleet as a whole.
fn notes(fleet: &Fleet, policies: &[NetworkPolicy], seen: &[Seen]) -> Vec<String> {
    let mut notes: Vec<String> = lint(seen.iter().map(|seen| (seen.node.as_str(), &seen.preview.composed.network)))
        .iter()
        .map(ToString::to_string)
        .collect();
    for policy in policies.iter().filter(|policy| fleet.asked.contains_key(&policy.name)) {
        let chosen = fleet.nodes.iter().filter(|(name, known)| policy.selector.matches(name, &known.labels)).count();
        if chosen == 0 {
            notes.push(format!("policy `{}` chooses none of the {} known nodes", policy.name, fleet.nodes.len()));
        }
        let whole = chosen > 2 && chosen == fleet.nodes.len();
        let bold = policy.options.rollout.canary.is_none() && policy.max_unavailable.is_none();
        if whole && bold {
            notes.push(format!(
                "policy `{}` chooses all {chosen} nodes, with neither `maxUnavailable` nor `spec.kiln.rollout.canary`",
                policy.name
            ));
        }
    }
    notes
}

/// How bad it could be.
fn level(ahead: &Ahead) -> &'static str {
    match ahead {
        Ahead::Unknown => "unknown",
        Ahead::Impossible(_) => "high",
        Ahead::Changes { risks, .. } => match risks.first() {
            Some(Risk::LosesAddress(_) | Risk::DefaultRoute(_)) => "high",
            Some(Risk::Unproved(_)) => "medium",
            None => "low",
        },
    }
}

fn word(disruption: Disruption) -> &'static str {
    match disruption {
        Disruption::None => "no disruption",
        Disruption::Reapply => "no link goes down",
        Disruption::LinkBounce => "a link goes down and up",
        Disruption::PrimaryPath => "the default route's link is touched",
        Disruption::Reboot => "a reboot",
    }
}

fn render(seen: &[Seen], notes: &[String]) -> String {
    let mut text = String::new();
    let (mut changed, mut chosen) = (0, 0);
    for Seen { node, chosen: is_chosen, preview } in seen {
        chosen += usize::from(*is_chosen);
        let composed = &preview.composed;
        match &preview.outcome {
            Ahead::Unknown if *is_chosen => {
                let _ = writeln!(text, "{node}: its state is not known");
            }
            Ahead::Unknown => continue,
            Ahead::Impossible(why) => {
                let _ = writeln!(text, "{node}: cannot be done: {why}");
            }
            Ahead::Changes { lines, .. } if lines.is_empty() && composed.refused.is_empty() && !is_chosen => continue,
            Ahead::Changes { lines, .. } if lines.is_empty() => {
                let _ = writeln!(text, "{node}: nothing changes");
            }
            Ahead::Changes { lines, disruption, risks } => {
                changed += 1;
                let _ = writeln!(text, "{node}: {}, risk {}", word(*disruption), level(&preview.outcome));
                lines.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
                risks.iter().for_each(|risk| text.push_str(&format!("  risk: {}\n", risk.told())));
            }
        }
        for (policy, error) in &composed.refused {
            let verb = if error.is_waiting() { "waits" } else { "is refused" };
            let _ = writeln!(text, "  policy `{policy}` {verb}: {error}");
        }
    }
    notes.iter().for_each(|note| text.push_str(&format!("note: {note}\n")));
    let _ = writeln!(text, "{chosen} of {} nodes chosen, {changed} would change", seen.len());
    text
}

/// For programs. Scripts rely on these names.
fn to_json(seen: &[Seen], notes: &[String]) -> Value {
    let nodes = seen.iter().map(|Seen { node, chosen, preview }| {
        let composed = &preview.composed;
        let (lines, disruption, risks, error) = match &preview.outcome {
            Ahead::Unknown => (&[][..], Value::Null, Vec::new(), Value::Null),
            Ahead::Impossible(why) => (&[][..], Value::Null, Vec::new(), why.as_str().into()),
            Ahead::Changes { lines, disruption, risks } => {
                (lines.as_slice(), json!(disruption), risks.iter().map(Risk::told).collect(), Value::Null)
            }
        };
        let refused = composed
            .refused
            .iter()
            .map(|(policy, error)| json!({"policy": policy, "reason": error.to_string(), "waits": error.is_waiting()}));
        let conflicts = composed.conflicts.iter().map(|conflict| {
            json!({"field": conflict.field, "kept": conflict.kept, "keptValue": conflict.kept_value,
                "refused": conflict.refused, "refusedValue": conflict.refused_value})
        });
        json!({"node": node, "chosen": chosen, "known": !matches!(preview.outcome, Ahead::Unknown), "changes": lines,
            "disruption": disruption, "risk": level(&preview.outcome), "risks": risks, "error": error,
            "policies": composed.policies, "refused": refused.collect::<Vec<_>>(),
            "conflicts": conflicts.collect::<Vec<_>>(), "network": composed.network, "owners": composed.owners,
            "revision": composed.revision})
    });
    let chosen: BTreeSet<&str> = seen.iter().filter(|seen| seen.chosen).map(|seen| seen.node.as_str()).collect();
    json!({"nodes": nodes.collect::<Vec<_>>(), "chosen": chosen, "notes": notes})
}
