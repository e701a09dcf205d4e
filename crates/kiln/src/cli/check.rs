//! `kiln check`: every problem in folders of manifests.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use kiln_core::diagnostic::{Diagnostic, Severity, attribute};
use kiln_core::source::SourceMap;
use kiln_core::world::World;

use super::output::{self, Failure};
use super::{Outcome, load, report};

/// What `kiln check` takes.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Files and folders of manifests; `-` reads standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// How findings are printed
    #[arg(long, value_enum, default_value = "human")]
    format: ReportFormat,
    /// Treat findings of this level as errors
    #[arg(long, value_enum, value_name = "LEVEL")]
    deny: Option<Deny>,
}

/// How findings are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// Like rustc.
    Human,
    /// One JSON object per line.
    Json,
    /// SARIF 2.1.0.
    Sarif,
    /// GitHub workflow commands.
    Github,
}

/// What `--deny` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Deny {
    /// Warnings end with exit code 1.
    Warnings,
}

/// Manifests that were read and judged.
pub struct Checked {
    /// The texts.
    pub sources: SourceMap,
    /// What they declare.
    pub world: World,
    /// What is wrong, in the order of the files.
    pub findings: Vec<Diagnostic>,
}

/// Reads and judges.
pub fn read_and_check(paths: &[PathBuf]) -> Result<Checked, Failure> {
    let load::Loaded { mut sources, documents, diagnostics: mut findings } = load::load(paths)?;
    let (world, unread) = kiln_api::build_world(documents, &mut sources);
    findings.extend(unread);
    findings.extend(kiln_core::check::check(&world));
    attribute(&mut findings, &world.objects, &sources);
    findings.sort_by_key(|finding| (finding.at, finding.code));
    Ok(Checked { sources, world, findings })
}

/// Checks and prints.
pub fn run(args: &CheckArgs) -> Result<Outcome, Failure> {
    let Checked { sources, world, findings } = read_and_check(&args.paths)?;
    report::print(&sources, &findings, args.format)?;
    if args.format == ReportFormat::Human {
        let found = report::summary(&findings).unwrap_or_else(|| "nothing to complain about".to_owned());
        let (objects, hosts) = (world.objects.len(), world.hosts.len());
        let plural = |number| if number == 1 { "" } else { "s" };
        output::complain(&format!("{objects} object{}, {hosts} host{}: {found}\n", plural(objects), plural(hosts)));
    }
    let refused = match args.deny {
        Some(Deny::Warnings) => Severity::Warning,
        None => Severity::Error,
    };
    let worst = findings.iter().map(|finding| finding.severity).max();
    Ok(if worst >= Some(refused) { Outcome::Refused } else { Outcome::Done })
}
