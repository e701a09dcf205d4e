//! Findings as JSON lines: one object per finding, the same keys in every line.

use kiln_core::diagnostic::Diagnostic;
use kiln_core::source::SourceMap;
use serde::Serialize;

use super::{real_place, severity_name};

/// One line of the report. Scripts rely on these names.
#[derive(Serialize)]
struct Line<'a> {
    code: String,
    severity: &'static str,
    message: &'a str,
    file: Option<&'a str>,
    line: Option<u32>,
    column: Option<u32>,
    kind: Option<&'a str>,
    namespace: Option<&'a str>,
    name: Option<&'a str>,
    field: Option<&'a str>,
    cause: Option<&'a str>,
    help: Option<&'a str>,
    related: Vec<Place<'a>>,
}

#[derive(Serialize)]
struct Place<'a> {
    file: &'a str,
    line: u32,
    column: u32,
    message: &'a str,
}

/// All findings, one line each.
pub fn render_json(sources: &SourceMap, findings: &[Diagnostic]) -> String {
    findings.iter().map(|finding| render_line(sources, finding) + "\n").collect()
}

fn render_line(sources: &SourceMap, finding: &Diagnostic) -> String {
    let place = finding.at.map(|at| real_place(sources, at));
    let object = finding.object.as_ref();
    let line = Line {
        code: finding.code.to_string(),
        severity: severity_name(finding.severity),
        message: &finding.message,
        file: place.as_ref().map(|place| place.file),
        line: place.as_ref().map(|place| place.line),
        column: place.as_ref().map(|place| place.column),
        kind: object.map(|object| object.kind.as_str()),
        namespace: object.map(|object| object.namespace.as_str()),
        name: object.map(|object| object.name.as_str()),
        field: finding.field.as_deref(),
        cause: finding.cause.as_deref(),
        help: finding.help.as_deref(),
        related: finding
            .related
            .iter()
            .map(|related| {
                let place = real_place(sources, related.at);
                Place { file: place.file, line: place.line, column: place.column, message: &related.message }
            })
            .collect(),
    };
    // A struct of strings and numbers always serializes; the empty line is never seen.
    serde_json::to_string(&line).unwrap_or_default()
}
