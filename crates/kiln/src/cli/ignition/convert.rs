//! `kiln ignition convert`: the converted config to standard output, what was lost to standard error.

use kiln_core::diagnostic::Severity;
use kiln_core::ignition::SpecVersion;
use kiln_core::ignition::convert::convert;
use kiln_core::ignition::validate::validate;
use kiln_core::source::SourceMap;

use super::super::check::ReportFormat;
use super::super::{Outcome, output, output::Failure, report};
use super::read::{read_config, render_config};

/// Reads, converts, checks the result, prints.
pub fn run(args: &super::ConvertArgs) -> Result<Outcome, Failure> {
    let to: SpecVersion = args.to.parse().map_err(Failure::refused)?;
    let mut sources = SourceMap::default();
    let mut findings = Vec::new();
    let converted = read_config(&args.file, &mut sources, &mut findings)?.map(|config| convert(&config, to));
    if let Some(converted) = &converted {
        findings.extend(converted.lost.iter().cloned());
        findings.extend(validate(&converted.config));
    }
    report::print(&sources, &findings, ReportFormat::Human)?;
    match converted {
        Some(converted) if report::count(&findings, Severity::Error) == 0 => {
            output::print(&render_config(&converted.config))?;
            Ok(Outcome::Done)
        }
        _ => Ok(Outcome::Refused),
    }
}
