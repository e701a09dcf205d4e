//! Fields the API server demands.

use kiln_core::diagnostic::{Code, Diagnostic};
use kiln_core::document::Node;

use crate::kinds::Kind;

/// Reports each required field that is missing although its parent is there.
pub(crate) fn report_missing(root: &Node, kind: &Kind, findings: &mut Vec<Diagnostic>) {
    for path in kind.required {
        let (parent, field) = path.rsplit_once('.').unwrap_or(("", path));
        for node in resolve(root, parent) {
            if node.get(field).is_none_or(Node::is_null) && !node.entries().is_empty() {
                let place = place(parent);
                findings.push(
                    Diagnostic::new(
                        Code(12),
                        node.at,
                        format!("`{field}` is missing in {place} of this {}", kind.name),
                    )
                    .cause("the schema of the kind demands the field; the API server refuses the object")
                    .help(format!("add {field}: to {place}")),
                );
            }
        }
    }
}

/// `spec.nodes[]` in the words of a message.
fn place(path: &str) -> String {
    match path.strip_suffix("[]") {
        Some(list) => format!("an entry of {}", list.replace("[]", "")),
        None => path.replace("[]", ""),
    }
}

/// All values at a dotted path; `[]` goes into every item of a list.
fn resolve<'a>(root: &'a Node, path: &str) -> Vec<&'a Node> {
    path.split('.').fold(vec![root], |nodes, step| match step.strip_suffix("[]") {
        Some(list) => nodes.into_iter().filter_map(|node| node.get(list)).flat_map(Node::items).collect(),
        None => nodes.into_iter().filter_map(|node| node.get(step)).collect(),
    })
}
