//! `kiln ignition validate`: what Ignition would refuse, or do otherwise than written.

use kiln_core::diagnostic::{Diagnostic, Severity};
use kiln_core::document::json::parse_json;
use kiln_core::ignition::Config;
use kiln_core::ignition::validate::validate;
use kiln_core::source::SourceMap;

use super::super::check::ReportFormat;
use super::super::{Outcome, output, output::Failure, report};
use super::read::read_config;

/// Reads, judges, prints.
pub fn run(args: &super::ValidateArgs) -> Result<Outcome, Failure> {
    let mut sources = SourceMap::default();
    let mut findings = Vec::new();
    for path in &args.files {
        let mut found = Vec::new();
        let config = read_config(path, &mut sources, &mut found)?;
        found.extend(config.as_ref().map(validate).unwrap_or_default());
        found.sort_by_key(|finding| finding.at);
        name_fields(&mut found, config.as_ref(), &sources);
        findings.extend(found);
    }
    report::print(&sources, &findings, args.format)?;
    if args.format == ReportFormat::Human {
        let found = report::summary(&findings).unwrap_or_else(|| "nothing to complain about".to_owned());
        let configs =
            if args.files.len() == 1 { "1 config".to_owned() } else { format!("{} configs", args.files.len()) };
        output::complain(&format!("{configs}: {found}\n"));
    }
    let refused = report::count(&findings, Severity::Error) > 0;
    Ok(if refused { Outcome::Refused } else { Outcome::Done })
}

/// Programs want `storage.files[0].mode` beside line and column.
fn name_fields(findings: &mut [Diagnostic], config: Option<&Config>, sources: &SourceMap) {
    let Some(at) = findings.iter().find_map(|finding| finding.at) else { return };
    // What cannot be a config may still be JSON.
    let root = config.map(|config| config.root.clone()).or_else(|| parse_json(at.file, sources.file(at.file)).0);
    let Some(root) = root else { return };
    for finding in findings {
        finding.field = finding.at.and_then(|at| root.path_of(at)).filter(|path| !path.is_empty());
    }
}
