//! Which object and field a finding belongs to, worked out from its place.
//!
//! Rules only know places. An object covers the bytes of its document; the innermost key or value at a place gives
//! the field. A place inside an embedded text belongs to the object written there, or else to the object whose
//! value the text is.

use super::Diagnostic;
use crate::source::{Location, SourceMap, Span};
use crate::world::Object;

/// Fills `object` and `field` of every finding that has a place.
pub fn attribute(findings: &mut [Diagnostic], objects: &[Object], sources: &SourceMap) {
    let mut by_place: Vec<&Object> = objects.iter().collect();
    // Rendered objects share the place of the document they were made from; the stable sort keeps that one first.
    by_place.sort_by_key(|object| (object.root.at.file, object.root.at.span.start));
    for finding in findings.iter_mut().filter(|finding| finding.object.is_none()) {
        let Some((object, at)) = finding.at.and_then(|at| owner(&by_place, sources, at)) else { continue };
        finding.object = Some(object.id.clone());
        finding.field = object.root.path_of(at).filter(|path| !path.is_empty());
    }
}

/// The object that covers a place, and the place as that object's document knows it.
fn owner<'a>(by_place: &[&'a Object], sources: &SourceMap, mut at: Location) -> Option<(&'a Object, Location)> {
    loop {
        let after = by_place
            .partition_point(|object| (object.root.at.file, object.root.at.span.start) <= (at.file, at.span.start));
        let nearest = by_place[..after].last().map(|object| object.root.at).filter(|root| root.file == at.file);
        if let Some(root) = nearest.filter(|root| root.span.contains(Span::new(at.span.start, at.span.start))) {
            let first = by_place.partition_point(|object| {
                (object.root.at.file, object.root.at.span.start) < (root.file, root.span.start)
            });
            return Some((by_place[first], at));
        }
        at = sources.file(at.file).within?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::{Code, ObjectId};
    use crate::document::{Entry, Node, Value};
    use crate::source::Sourced;

    #[test]
    fn a_place_inside_an_embedded_text_belongs_to_the_outer_field() {
        let mut sources = SourceMap::default();
        let outer = sources.add("site.yaml", "data: text\n");
        let at = |start, end| Location { file: outer, span: Span::new(start, end) };
        let value = Node { at: at(6, 10), value: Value::String("text".into()) };
        let inner = sources.embed("site.yaml (data)", "text", value.at);
        let root = Node {
            at: at(0, 10),
            value: Value::Mapping(vec![Entry { key: Sourced::new("data".into(), at(0, 4)), value }]),
        };
        let id = ObjectId { kind: "ConfigMap".into(), namespace: "ztp".into(), name: "extra".into() };
        let objects = [Object { id: id.clone(), api_version: "v1".into(), root, within: None }];
        let place = Location { file: inner, span: Span::new(1, 3) };
        let mut findings = [Diagnostic::new(Code(1), place, "found")];
        attribute(&mut findings, &objects, &sources);
        assert_eq!((findings[0].object.as_ref(), findings[0].field.as_deref()), (Some(&id), Some("data")));
    }
}
