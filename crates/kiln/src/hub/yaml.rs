//! YAML bodies of requests, read by the reader `kiln check` has: YAML 1.1, as Kubernetes understands it, within its bounds.

use kiln_core::diagnostic::Severity;
use kiln_core::document::yaml::parse_yaml;
use kiln_core::source::SourceMap;
use serde_json::Value;

/// The one document of a text; why not, with the line.
pub fn parse_body(text: &str) -> Result<Value, String> {
    let mut sources = SourceMap::default();
    let file = sources.add("body", text);
    let (documents, findings) = parse_yaml(file, sources.file(file));
    if let Some(finding) = findings.iter().find(|finding| finding.severity == Severity::Error) {
        let line = finding.at.map_or(1, |at| sources.line_column(at).line);
        return Err(format!("line {line}: {}", finding.message));
    }
    match documents.as_slice() {
        [document] => Ok(document.to_json()),
        [] => Err("there is no document in it".into()),
        more => Err(format!("there are {} documents in it: send each by itself", more.len())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_body_is_one_document_of_yaml_1_1() {
        let text = "# a comment\nkind: Widget\nspec: {size: 0x10, on: yes}\ntags: &t [a, b]\nmore: *t\n";
        let expected =
            json!({"kind": "Widget", "spec": {"size": 16, "true": true}, "tags": ["a", "b"], "more": ["a", "b"]});
        assert_eq!(parse_body(text), Ok(expected));
        assert_eq!(
            parse_body("---\na: 1\n---\nb: 2\n").unwrap_err(),
            "there are 2 documents in it: send each by itself"
        );
        assert_eq!(parse_body("# nothing\n").unwrap_err(), "there is no document in it");
        assert!(parse_body("a: 1\nb: [\n").unwrap_err().starts_with("line "));
    }
}
