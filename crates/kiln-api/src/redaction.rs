//! Secrets are taken out of documents and made unreadable in the texts they stand in, so that no report, plan or log can
//! repeat them.
//!
//! Three ways a secret gets in: as a Secret, as a Secret inside an object Kiln only carries, and as a document that could
//! not be parsed, whose broken line a report would quote.

use std::collections::BTreeSet;

use kiln_core::document::{Node, Value};
use kiln_core::source::{FileId, Location, SourceMap, Span};

/// Where `kubectl apply` keeps a copy of the whole object, values included.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Empties the values of a Secret.
pub(crate) fn blank_secret(root: &mut Node, sources: &mut SourceMap) {
    for (key, value) in mapping(root) {
        match key {
            "data" | "stringData" if !value.entries().is_empty() => {
                mapping(value).for_each(|(_, secret)| blank_value(secret, sources));
            }
            "data" | "stringData" => blank_value(value, sources),
            "metadata" => mapping(value)
                .filter(|(key, _)| *key == "annotations")
                .flat_map(|(_, annotations)| mapping(annotations))
                .filter(|(key, _)| *key == LAST_APPLIED)
                .for_each(|(_, copy)| blank_value(copy, sources)),
            _ => {}
        }
    }
}

/// Empties every Secret anywhere inside a document.
pub(crate) fn blank_nested_secrets(node: &mut Node, sources: &mut SourceMap) {
    if node.get("kind").and_then(Node::as_str) == Some("Secret") {
        blank_secret(node, sources);
    }
    match &mut node.value {
        Value::Mapping(entries) => {
            entries.iter_mut().for_each(|entry| blank_nested_secrets(&mut entry.value, sources));
        }
        Value::Sequence(items) => items.iter_mut().for_each(|item| blank_nested_secrets(item, sources)),
        _ => {}
    }
}

/// Hides what stands in those parts of the files that look like a Secret and gave no document.
pub(crate) fn hide_unread_secrets(files: &[FileId], documents: &[Node], sources: &mut SourceMap) {
    let read: BTreeSet<(FileId, u32)> =
        documents.iter().map(|document| (document.at.file, document.at.span.start)).collect();
    files.iter().for_each(|file| hide_unread_secrets_of(*file, &read, sources));
}

fn hide_unread_secrets_of(file: FileId, read: &BTreeSet<(FileId, u32)>, sources: &mut SourceMap) {
    let text = &sources.file(file).text;
    if !text.contains("Secret") {
        return;
    }
    let starts: Vec<usize> = std::iter::once(0).chain(text.match_indices("\n---").map(|(at, _)| at + 1)).collect();
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let hidden: Vec<Span> = starts
        .iter()
        .copied()
        .zip(ends)
        .filter(|(start, end)| {
            let unread = read.range((file, *start as u32)..(file, *end as u32)).next().is_none();
            unread && text[*start..*end].lines().any(says_secret)
        })
        .flat_map(|(start, end)| indented_lines(text, start, end))
        .collect();
    hidden.into_iter().for_each(|span| sources.redact(Location { file, span }));
}

/// `kind: Secret`, in YAML or JSON.
fn says_secret(line: &str) -> bool {
    let plain: String = line.chars().filter(|letter| !letter.is_whitespace() && *letter != '"').collect();
    plain.contains("kind:Secret")
}

/// In YAML the values of a Secret are indented; a text that begins with a bracket is hidden as a whole.
fn indented_lines(text: &str, start: usize, end: usize) -> Vec<Span> {
    let piece = &text[start..end];
    if piece.trim_start_matches("---").trim_start().starts_with('{') {
        return vec![Span::new(start as u32, end as u32)];
    }
    let mut at = start;
    let lines = piece.split_inclusive('\n').map(|line| {
        let span = Span::new(at as u32, (at + line.len()) as u32);
        at += line.len();
        (line, span)
    });
    lines.filter(|(line, _)| line.starts_with([' ', '\t'])).map(|(_, span)| span).collect()
}

fn blank_value(node: &mut Node, sources: &mut SourceMap) {
    sources.redact(node.at);
    node.value = Value::Null;
}

fn mapping(node: &mut Node) -> impl Iterator<Item = (&str, &mut Node)> {
    let entries = if let Value::Mapping(entries) = &mut node.value { entries.as_mut_slice() } else { &mut [] };
    entries.iter_mut().map(|entry| (&*entry.key.value, &mut entry.value))
}
