//! Where in the document the crate's complaint belongs.

use serde_json::Value;

use super::convert;
use crate::diagnostic::Diagnostic;
use crate::document::Node;

/// Findings for a document the crate refused with `message`.
pub fn explain(document: &Node, _json: &Value, message: String) -> Vec<Diagnostic> {
    vec![convert::refuse(document, &message)]
}
