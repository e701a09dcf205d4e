//! The scanner's complaints retold: what is wrong in the reader's words, why, and the edit that repairs it.

use crate::diagnostic::{Code, Diagnostic};
use crate::source::{Location, Span};

use super::MAX_DEPTH;
use super::build::{Piece, Stop};

/// A syntax error at a place, from the scanner's own words for it.
pub(super) fn explain(piece: &Piece, at: Location, info: &str) -> Stop {
    if let Some(template) = template(piece, at) {
        return Box::new(template);
    }
    if info.contains("recursion limit") {
        return Box::new(too_deep(at));
    }
    let (message, help) = retell(piece, at, info);
    Box::new(
        Diagnostic::new(Code(0001), at, message)
            .cause(format!("YAML syntax: {info}; this document was left out, the others of the file were read"))
            .help(help),
    )
}

/// The finding about nesting beyond [`MAX_DEPTH`].
pub(super) fn too_deep(at: Location) -> Diagnostic {
    Diagnostic::new(Code(0003), at, format!("values are nested more than {MAX_DEPTH} levels deep"))
        .cause("Kiln bounds the depth of a document; Kubernetes objects stay below 30 levels")
        .help("check the brackets and the indentation around this place")
}

/// If the text up to `at` is a Helm, Go or Jinja template rather than YAML: the one finding that says so.
pub(super) fn template(piece: &Piece, at: Location) -> Option<Diagnostic> {
    let error = (at.span.start - piece.base) as usize;
    let error_line_end = piece.text[error..].find('\n').map_or(piece.text.len(), |end| error + end);
    let mut offset = 0;
    for line in piece.text[..error_line_end].split_inclusive('\n') {
        let trimmed = line.trim_start().trim_start_matches("- ");
        let begins = trimmed.starts_with("{{") || trimmed.starts_with("{%");
        let inside = line.find(": {{").map(|colon| colon + 2);
        if let Some(column) = inside.or(begins.then(|| line.len() - trimmed.len())) {
            let start = piece.base + (offset + column) as u32;
            let length = line[column..].trim_end().len() as u32;
            let place = Location { file: at.file, span: Span::new(start, start + length) };
            return Some(super::template(place));
        }
        offset += line.len();
    }
    None
}

/// What is wrong, and the edit.
fn retell(piece: &Piece, at: Location, info: &str) -> (String, String) {
    let start = (at.span.start - piece.base) as usize;
    let found = piece.text[start..].chars().next();
    let line_start = piece.text[..start].rfind('\n').map_or(0, |line_end| line_end + 1);
    let indentation: &str = {
        let line = &piece.text[line_start..];
        &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
    };
    if indentation.contains('\t') || info.contains("tab") {
        return ("a tab is used for indentation".into(), "indent with spaces; YAML does not allow tabs there".into());
    }
    if info.contains("quoted scalar, found unexpected") || info.contains("indentation in quoted scalar") {
        let quote = found.unwrap_or('"');
        return (format!("the text that begins with {quote} is never closed"), format!("add the closing {quote}"));
    }
    if info.contains("escape") || info.contains("hexadecimal") {
        return (
            "a backslash in this quoted text begins no escape that YAML knows".into(),
            r"write \\ for a backslash, or use single quotes".into(),
        );
    }
    if info.contains("unknown anchor") {
        let name: String =
            piece.text[start..].chars().skip(1).take_while(|c| !c.is_whitespace() && *c != ',').collect();
        return (
            format!("`*{name}` repeats an anchor that this document does not have"),
            format!(
                "define it above with `&{name}`, or put the value in quotes if it is meant as text; anchors do not reach over `---`"
            ),
        );
    }
    if info.contains("mapping values are not allowed") {
        return (
            "a second `: ` stands in this value, or the line is indented wrongly".into(),
            "put the value in quotes if the colon belongs to it; otherwise align the key with its neighbours".into(),
        );
    }
    if info.contains("simple key expect") {
        return (
            "a line is neither `key: value` nor a list item".into(),
            "add the missing `:` with a space behind it".into(),
        );
    }
    if info.contains("did not find expected key")
        || info.contains("expected '-' indicator")
        || info.contains("indent")
        || info.contains("block sequence entries")
        || info.contains("mapping keys are not allowed")
    {
        return (
            "the indentation does not fit the lines above".into(),
            "align the line with the other keys or items of its level".into(),
        );
    }
    if info.contains("flow")
        || info.contains("expected node content")
        || info.contains("bracket")
        || info.contains("illegal placement of ':'")
    {
        return (
            "a `[` or `{` is not closed, or a `,` is missing".into(),
            "close the bracket, separate the items with `,`, and put texts that contain brackets in quotes".into(),
        );
    }
    match found {
        Some(first @ ('@' | '`' | '%')) if info.contains("unexpected character") => {
            (format!("a value cannot begin with {first}"), "put the value in quotes".into())
        }
        Some(control) if info.contains("unprintable") => (
            format!("the text contains the control character U+{:04X}", u32::from(control)),
            "remove it; was the file saved as UTF-8 text?".into(),
        ),
        _ => (format!("this is not valid YAML: {info}"), "correct the text at this place".into()),
    }
}
