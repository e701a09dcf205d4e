//! `kiln plan`: each host's network at every phase, and the steps.

use std::path::{Path, PathBuf};

use clap::Args;
use kiln_core::diagnostic::Severity;
use kiln_core::document::emit::to_yaml;
use kiln_core::plan::{HostPlan, Planner};
use serde_json::json;

use super::check::ReportFormat;
use super::output::{self, Failure};
use super::{Outcome, PrintFormat, load, report};

mod print;

/// What `kiln plan` takes.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// File or folder of manifests
    path: PathBuf,
    /// Only this host
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// How the plan is printed
    #[arg(short, long, value_enum, default_value = "human")]
    output: PrintFormat,
}

/// Plans and prints. Errors in the manifests do not hide the plan, but the command ends as refused.
pub fn run(args: &PlanArgs) -> Result<Outcome, Failure> {
    let load::Loaded { mut sources, documents, diagnostics: mut findings } =
        load::load(std::slice::from_ref(&args.path))?;
    let (world, more) = kiln_api::build_world(documents, &mut sources);
    let planner = Planner::new(&world);
    if planner.plans(args.host.as_deref()).next().is_none() {
        let unread = findings.iter().any(|finding| finding.severity == Severity::Error);
        findings.extend(more);
        findings.retain(|finding| finding.severity == Severity::Error);
        report::print(&sources, &findings, ReportFormat::Human)?;
        if unread && world.hosts.is_empty() {
            return Err(Failure::refused(unreadable(&args.path)));
        }
        let known: Vec<&str> = world.hosts.iter().map(|host| host.meta.id.name.as_str()).collect();
        return Err(Failure::refused(no_such_host(&args.path, args.host.as_deref(), &known)));
    }
    // A thread has a heap of its own: what one plan takes and gives back stays together, however large the world is.
    let print = || print_plans(planner.plans(args.host.as_deref()), args.output);
    let printed = std::thread::scope(|scope| scope.spawn(print).join());
    printed.map_err(|_| anyhow::anyhow!("the planning thread ended early"))??;
    findings.extend(more);
    findings.extend(planner.findings());
    let errors = report::count(&findings, Severity::Error);
    if errors > 0 {
        output::complain(&format!("{errors} errors in these manifests: `kiln check {}`\n", args.path.display()));
        return Ok(Outcome::Refused);
    }
    Ok(Outcome::Done)
}

/// Host by host, so that a fleet of any size needs the memory of one plan.
fn print_plans(plans: impl Iterator<Item = HostPlan>, format: PrintFormat) -> Result<(), Failure> {
    match format {
        PrintFormat::Human => {
            for plan in plans {
                output::print(&print::render_human(&plan))?;
            }
        }
        PrintFormat::Json => {
            output::print("{\"hosts\": [")?;
            for (index, plan) in plans.enumerate() {
                let separator = if index == 0 { "\n" } else { ",\n" };
                output::print(&format!("{separator}{}", print::to_json(&plan)))?;
            }
            output::print("\n]}\n")?;
        }
        PrintFormat::Yaml => {
            let hosts: Vec<_> = plans.map(|plan| print::to_json(&plan)).collect();
            output::print(&to_yaml(&json!({"hosts": hosts})))?;
        }
    }
    Ok(())
}

fn unreadable(path: &Path) -> anyhow::Error {
    anyhow::anyhow!("`{}` could not be read completely, and what could be read declares no hosts", path.display())
}

fn no_such_host(path: &Path, wanted: Option<&str>, known: &[&str]) -> anyhow::Error {
    const SHOWN: usize = 10;
    let Some(wanted) = wanted.filter(|_| !known.is_empty()) else {
        return anyhow::anyhow!("`{}` declares no hosts; Kiln plans BareMetalHosts and its own Hosts", path.display());
    };
    let more = if known.len() > SHOWN { format!(" and {} more", known.len() - SHOWN) } else { String::new() };
    let shown = known[..known.len().min(SHOWN)].join(", ");
    anyhow::anyhow!("`{}` declares no host `{wanted}`; it declares {shown}{more}", path.display())
}
