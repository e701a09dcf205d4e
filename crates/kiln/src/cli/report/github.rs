//! Findings as GitHub workflow commands, shown beside the changed lines of a pull request.

use kiln_core::diagnostic::{Diagnostic, Severity};
use kiln_core::source::SourceMap;

use super::real_place;

/// All findings, one command each.
pub fn render_github(sources: &SourceMap, findings: &[Diagnostic]) -> String {
    findings.iter().map(|finding| render_command(sources, finding)).collect()
}

fn render_command(sources: &SourceMap, finding: &Diagnostic) -> String {
    let command = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "notice",
    };
    let place = finding.at.map(|at| real_place(sources, at)).map_or(String::new(), |place| {
        format!("file={},line={},col={},", escape_property(place.file), place.line, place.column)
    });
    let help = finding.help.as_ref().map(|help| format!("help: {help}"));
    let text: Vec<&str> =
        [Some(finding.message.as_str()), finding.cause.as_deref(), help.as_deref()].into_iter().flatten().collect();
    format!("::{command} {place}title={}::{}\n", finding.code, escape_data(&text.join("\n")))
}

fn escape_data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn escape_property(text: &str) -> String {
    escape_data(text).replace(':', "%3A").replace(',', "%2C")
}
