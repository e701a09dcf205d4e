//! Places, bounds and refusals of the YAML reader.

use super::*;
use crate::source::SourceMap;

fn parse(text: &str) -> (Vec<Node>, Vec<Diagnostic>, SourceMap) {
    let mut sources = SourceMap::default();
    let file = sources.add("t.yaml", text);
    let (documents, diagnostics) = parse_yaml(file, sources.file(file));
    (documents, diagnostics, sources)
}

#[test]
fn smoke() {
    let (d, e, _) = parse("a: 1\n---\nb: [\n---\nc: {x: &a 1, z: *a}\n");
    assert_eq!(d.len(), 2, "{d:?} {e:?}");
    assert_eq!(d[1].to_json().to_string(), r#"{"c":{"x":1,"z":1}}"#);
}
