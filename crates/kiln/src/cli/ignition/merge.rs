//! `kiln ignition merge`: the merged config to standard output, findings and provenance to standard error.

use kiln_core::diagnostic::Severity;
use kiln_core::ignition::merge::{merge_all, references};
use kiln_core::ignition::provenance::describe;
use kiln_core::ignition::validate::validate;
use kiln_core::source::SourceMap;

use super::super::check::ReportFormat;
use super::super::{Outcome, output, output::Failure, report};
use super::read::{read_config, render_config};

/// Reads, merges, checks the result, prints.
pub fn run(args: &super::MergeArgs) -> Result<Outcome, Failure> {
    let mut sources = SourceMap::default();
    let mut findings = Vec::new();
    let mut configs = Vec::new();
    for path in &args.files {
        configs.extend(read_config(path, &mut sources, &mut findings)?);
    }
    let complete = configs.len() == args.files.len();
    let merged = merge_all(&configs).filter(|_| complete);
    if let Some(merged) = &merged {
        findings.extend(merged.diagnostics.iter().cloned());
        // Each file may be right and the result still wrong.
        findings.extend(validate(&merged.config));
        findings.extend(references(&merged.config));
    }
    report::print(&sources, &findings, ReportFormat::Human)?;
    match merged {
        Some(merged) if report::count(&findings, Severity::Error) == 0 => {
            output::print(&render_config(&merged.config))?;
            if args.provenance {
                output::complain(&describe(&merged.config, &sources));
            }
            Ok(Outcome::Done)
        }
        _ => Ok(Outcome::Refused),
    }
}
