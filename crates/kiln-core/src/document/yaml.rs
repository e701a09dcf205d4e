//! YAML text to [`Node`]s, within bounds.
//!
//! [`parse_yaml`] never panics and never takes more than a fixed multiple of its input: files over
//! [`MAX_FILE_BYTES`] are refused unread, nesting stops at [`MAX_DEPTH`], a file holds at most [`MAX_NODES`] values,
//! and what aliases repeat is limited by [`MAX_EXPANSION`], so a "billion laughs" file ends with one error.
//! A document that cannot be read is reported and left out; the documents behind the next `---` are read all the same.
//! A template is reported once and nothing of it is read: its other syntax errors say nothing.
//!
//! Not here: what a document means (`kiln-api`), and finding files (`kiln::cli::load`).
//! Kubernetes cuts a stream at lines that begin with `---` before any YAML is parsed, and so do we: that is what makes
//! it safe to go on after a broken document.

use crate::diagnostic::{Code, Diagnostic};
use crate::source::{FileId, Location, SourceFile, Span};

use super::{Node, Value};

mod build;
mod cursor;
mod fast;
mod scalar;
mod syntax;

/// The largest file that is read: 64 MiB.
pub const MAX_FILE_BYTES: usize = 64 << 20;
/// How deep mappings and lists may be nested. Kubernetes objects stay below 30.
pub const MAX_DEPTH: usize = 128;
/// How many values one file may hold.
pub const MAX_NODES: usize = 4_000_000;
/// What anchors and aliases of one file may add, in bytes of memory.
pub const MAX_EXPANSION: usize = 64 << 20;

const TEMPLATE: Code = Code(0022);

/// Every document of a stream that is not empty, and what is wrong with the text.
pub fn parse_yaml(file: FileId, source: &SourceFile) -> (Vec<Node>, Vec<Diagnostic>) {
    let text = source.text.as_str();
    if text.len() > MAX_FILE_BYTES {
        return (Vec::new(), vec![too_large(file, text.len() as u64)]);
    }
    let mut budget = build::Budget::default();
    let (mut documents, mut diagnostics) = (Vec::new(), Vec::new());
    for span in split_documents(text) {
        let piece = build::Piece { file, base: span.start, text: &text[span.start as usize..span.end as usize] };
        match fast::read_plain_document(&piece) {
            Some((document, values)) if budget.take(values) => documents.push(document),
            _ => {
                let more = build::build(&piece, &mut budget, &mut diagnostics);
                documents.extend(more.into_iter().filter(|document| document.value != Value::Null));
            }
        }
        if budget.spent() {
            break;
        }
    }
    match diagnostics.iter().position(|diagnostic| diagnostic.code == TEMPLATE) {
        Some(index) => (Vec::new(), vec![diagnostics.swap_remove(index)]),
        None => (documents, diagnostics),
    }
}

/// The refusal of a file over [`MAX_FILE_BYTES`], also for readers that look at the size before they read.
pub fn too_large(file: FileId, bytes: u64) -> Diagnostic {
    let at = Location { file, span: Span::default() };
    Diagnostic::new(Code(0002), at, format!("the file has {bytes} bytes and was not read"))
        .cause(format!("Kiln reads files of at most {MAX_FILE_BYTES} bytes (64 MiB)"))
        .help("split the file; manifests may be spread over any number of files in the folder")
}

/// The finding about a template (`{{ … }}`), at the expression that gives it away.
pub fn template(at: Location) -> Diagnostic {
    Diagnostic::new(TEMPLATE, at, "this is a template, not a manifest")
        .cause("`{{ … }}` is filled in by Helm, Argo CD or Ansible; before that there is nothing to check")
        .help("render it first, for example `helm template . | kiln check -`")
}

/// Cuts a stream in front of every line that begins with `---`, without looking into the documents.
///
/// Directives (`%YAML 1.2`) stay with the document they introduce.
fn split_documents(text: &str) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut start = 0;
    for (line_end, _) in text.match_indices("\n---") {
        let marker_end = line_end + 4;
        let is_marker = text.as_bytes().get(marker_end).is_none_or(u8::is_ascii_whitespace);
        if is_marker && !only_directives(&text[start..line_end + 1]) {
            spans.push(Span::new(start as u32, line_end as u32 + 1));
            start = line_end + 1;
        }
    }
    spans.push(Span::new(start as u32, text.len() as u32));
    spans
}

fn only_directives(text: &str) -> bool {
    let first = text.lines().find(|line| !line.trim().is_empty() && !line.starts_with('#'));
    first.is_some_and(|line| line.starts_with('%'))
        && text.lines().all(|line| line.trim().is_empty() || line.starts_with(['#', '%']))
}

#[cfg(test)]
mod tests;
