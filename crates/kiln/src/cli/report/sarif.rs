//! Findings as one SARIF 2.1.0 log, for code-scanning services.

use std::collections::BTreeSet;

use kiln_core::diagnostic::{Code, Diagnostic, Severity, registry};
use kiln_core::source::{Location, SourceMap};
use serde_json::{Value, json};

use super::real_place;

/// The whole log.
pub fn render_sarif(sources: &SourceMap, findings: &[Diagnostic]) -> String {
    let codes: BTreeSet<Code> = findings.iter().map(|finding| finding.code).collect();
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "kiln",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": codes.into_iter().map(rule).collect::<Vec<Value>>(),
            }},
            "results": findings.iter().map(|finding| result(sources, finding)).collect::<Vec<Value>>(),
        }],
    });
    format!("{log:#}\n")
}

fn rule(code: Code) -> Value {
    let known = registry::explanation(code);
    json!({
        "id": code.to_string(),
        "shortDescription": {"text": known.map_or("", |known| known.title)},
        "help": {"text": known.map_or("", |known| known.story), "markdown": known.map_or("", |known| known.story)},
    })
}

fn result(sources: &SourceMap, finding: &Diagnostic) -> Value {
    let level = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    };
    let help = finding.help.as_ref().map(|help| format!("help: {help}"));
    let text: Vec<&str> =
        [Some(finding.message.as_str()), finding.cause.as_deref(), help.as_deref()].into_iter().flatten().collect();
    let related = finding.related.iter().map(|related| {
        let mut place = location(sources, related.at);
        place["message"] = json!({"text": related.message});
        place
    });
    json!({
        "ruleId": finding.code.to_string(),
        "level": level,
        "message": {"text": text.join("\n")},
        "locations": finding.at.map(|at| location(sources, at)).into_iter().collect::<Vec<Value>>(),
        "relatedLocations": related.collect::<Vec<Value>>(),
    })
}

fn location(sources: &SourceMap, at: Location) -> Value {
    let place = real_place(sources, at);
    json!({"physicalLocation": {
        "artifactLocation": {"uri": place.file},
        "region": {"startLine": place.line, "startColumn": place.column},
    }})
}
