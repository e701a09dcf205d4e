//! Findings printed for people and for programs.
//!
//! Each format is one file and one function from findings to text. Programs get the outermost real file and its
//! line; people also see the text embedded in it.

use std::io::IsTerminal;

use kiln_core::diagnostic::{Diagnostic, Severity};
use kiln_core::source::{Location, SourceMap};

use super::check::ReportFormat;
use super::output;

mod github;
mod human;
mod json;
mod sarif;

/// Prints findings: programs' formats to standard output, text for people to standard error.
pub fn print(sources: &SourceMap, findings: &[Diagnostic], format: ReportFormat) -> std::io::Result<()> {
    match format {
        ReportFormat::Human => {
            let color = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            output::complain(&human::render_human(sources, findings, color));
            Ok(())
        }
        ReportFormat::Json => output::print(&json::render_json(sources, findings)),
        ReportFormat::Sarif => output::print(&sarif::render_sarif(sources, findings)),
        ReportFormat::Github => output::print(&github::render_github(sources, findings)),
    }
}

/// How many findings there are of a severity.
pub fn count(findings: &[Diagnostic], severity: Severity) -> usize {
    findings.iter().filter(|finding| finding.severity == severity).count()
}

/// `3 errors, 1 warning`, or nothing when there are neither.
pub fn summary(findings: &[Diagnostic]) -> Option<String> {
    let parts: Vec<String> = [(Severity::Error, "error"), (Severity::Warning, "warning"), (Severity::Note, "note")]
        .into_iter()
        .map(|(severity, name)| (count(findings, severity), name))
        .filter(|(number, _)| *number > 0)
        .map(|(number, name)| format!("{number} {name}{}", if number == 1 { "" } else { "s" }))
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

/// A place in a file that exists on disk: embedded texts are traced back to the value they are written in.
struct RealPlace<'a> {
    file: &'a str,
    line: u32,
    column: u32,
}

fn real_place(sources: &SourceMap, at: Location) -> RealPlace<'_> {
    let at = sources.outer(at);
    let position = sources.line_column(at);
    RealPlace { file: &sources.file(at.file).name, line: position.line, column: position.column }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_core::diagnostic::{Code, ObjectId};
    use kiln_core::source::Span;

    fn example() -> (SourceMap, Vec<Diagnostic>) {
        let mut sources = SourceMap::default();
        let file = sources.add("site/host.yaml", "kind: BareMetalHost\nspec:\n  bootMACAddress: ä-bad\n");
        let other = sources.add("site/other.yaml", "mac: 52:54:00:00:00:01\n");
        let mut finding = Diagnostic::new(
            Code(1),
            Location { file, span: Span::new(44, 50) },
            "`ä-bad` is not a MAC address\u{1b}[31m",
        )
        .cause("six pairs are needed")
        .help("write\n  bootMACAddress: 52:54:00:00:00:01")
        .related(Location { file: other, span: Span::new(5, 22) }, "as here");
        finding.object =
            Some(ObjectId { kind: "BareMetalHost".into(), namespace: "ztp".into(), name: "worker-0".into() });
        finding.field = Some("spec.bootMACAddress".into());
        (sources, vec![finding])
    }

    #[test]
    fn people_see_both_places_the_cause_and_the_edit() {
        let (sources, findings) = example();
        let expected = "\
error[KLN0001]: `ä-bad` is not a MAC address␛[31m
 --> site/host.yaml:3:19
  |
3 |   bootMACAddress: ä-bad
  |                   ^^^^^ BareMetalHost ztp/worker-0: spec.bootMACAddress
  |
 ::: site/other.yaml:1:6
  |
1 | mac: 52:54:00:00:00:01
  |      ----------------- as here
  |
  = note: six pairs are needed
  = help: write
            bootMACAddress: 52:54:00:00:00:01

";
        assert_eq!(human::render_human(&sources, &findings, false), expected);
    }

    #[test]
    fn programs_get_one_json_object_per_line() {
        let (sources, findings) = example();
        let expected = concat!(
            r#"{"code":"KLN0001","severity":"error","message":"`ä-bad` is not a MAC address\u001b[31m","#,
            r#""file":"site/host.yaml","line":3,"column":19,"kind":"BareMetalHost","namespace":"ztp","#,
            r#""name":"worker-0","field":"spec.bootMACAddress","cause":"six pairs are needed","#,
            r#""help":"write\n  bootMACAddress: 52:54:00:00:00:01","#,
            r#""related":[{"file":"site/other.yaml","line":1,"column":6,"message":"as here"}]}"#,
            "\n"
        );
        assert_eq!(json::render_json(&sources, &findings), expected);
    }

    #[test]
    fn github_annotations_escape_line_ends() {
        let (sources, findings) = example();
        let expected = "::error file=site/host.yaml,line=3,col=19,title=KLN0001::`ä-bad` is not a MAC \
                        address\u{1b}[31m%0Asix pairs are needed%0Ahelp: write%0A  bootMACAddress: 52:54:00:00:00:01\n";
        assert_eq!(github::render_github(&sources, &findings), expected);
    }

    #[test]
    fn sarif_names_rule_and_region() {
        let (sources, findings) = example();
        let log: serde_json::Value = serde_json::from_str(&sarif::render_sarif(&sources, &findings)).unwrap();
        assert_eq!(log["version"], "2.1.0");
        let result = &log["runs"][0]["results"][0];
        assert_eq!(result["ruleId"], "KLN0001");
        assert_eq!(result["locations"][0]["physicalLocation"]["region"]["startLine"], 3);
        assert_eq!(result["relatedLocations"][0]["physicalLocation"]["artifactLocation"]["uri"], "site/other.yaml");
    }
}
