//! Findings as rustc prints its own: the place with its text, the cause, the edit.

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Padding, Renderer, Snippet};
use kiln_core::diagnostic::{Diagnostic, Severity};
use kiln_core::source::{LineColumn, Location, SourceMap};

/// Nobody reads more; programs get all of them.
const MOST_SHOWN: usize = 500;
/// Longer lines are shown around the place only.
const LONGEST_LINE: usize = 300;
/// Characters shown before and after a place in a long line.
const AROUND: usize = 60;

/// The findings, one after the other.
pub fn render_human(sources: &SourceMap, findings: &[Diagnostic], color: bool) -> String {
    let renderer = if color { Renderer::styled() } else { Renderer::plain() };
    let mut text = String::new();
    for finding in findings.iter().take(MOST_SHOWN) {
        text.push_str(&renderer.render(&[group(sources, finding)]));
        text.push_str("\n\n");
    }
    if findings.len() > MOST_SHOWN {
        let more = findings.len() - MOST_SHOWN;
        text.push_str(&format!("… and {more} more; `--format json` lists all of them\n\n"));
    }
    text
}

fn group<'a>(sources: &'a SourceMap, finding: &'a Diagnostic) -> Group<'a> {
    let level = match finding.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Note => Level::NOTE,
    };
    let mut group = Group::with_title(level.primary_title(visible(&finding.message)).id(finding.code.to_string()));
    if let Some(at) = finding.at {
        group = show(group, sources, at, AnnotationKind::Primary, owner(finding));
    }
    for related in &finding.related {
        group = show(group, sources, related.at, AnnotationKind::Context, visible(&related.message));
    }
    if let Some(cause) = &finding.cause {
        group = group.element(Level::NOTE.message(visible(cause)));
    }
    if let Some(help) = &finding.help {
        group = group.element(Level::HELP.message(visible(help)));
    }
    group
}

/// `BareMetalHost ztp/worker-0: spec.bmc.address`.
fn owner(finding: &Diagnostic) -> String {
    let object = finding.object.as_ref().map(|object| {
        let separator = if object.namespace.is_empty() { "" } else { "/" };
        format!("{} {}{separator}{}", object.kind, object.namespace, object.name)
    });
    let parts: Vec<String> = object.into_iter().chain(finding.field.clone()).collect();
    visible(&parts.join(": "))
}

/// Adds the line a place begins on, with the place marked. A value of many lines is marked on its first line only.
///
/// A text embedded in a file is shown as it stands in that file, if it stands there letter for letter.
fn show<'a>(group: Group<'a>, sources: &'a SourceMap, at: Location, kind: AnnotationKind, label: String) -> Group<'a> {
    let at = sources.outer_exact(at).unwrap_or(at);
    let file = sources.file(at.file);
    let LineColumn { line: number, column } = sources.line_column(at);
    let (line, marked) = first_line(&file.text, at.span.start as usize..at.span.end as usize);
    if line.len() > LONGEST_LINE {
        // The renderer would lay out the whole line, and count columns from the start of any part of it.
        let origin = Origin::path(file.name.as_str()).line(number as usize).char_column(column as usize);
        let excerpt = format!("{label}\n{}", visible(&file.text[around(&file.text, &line, &marked)]));
        return group.element(origin).element(Padding).element(Level::INFO.with_name("place").message(excerpt));
    }
    let annotation = kind.span(marked.start - line.start..marked.end - line.start);
    let snippet = Snippet::source(&file.text[line]).path(file.name.as_str()).line_start(number as usize);
    group.element(snippet.annotation(if label.is_empty() { annotation } else { annotation.label(label) }))
}

/// A part of a long line with the place in it.
fn around(text: &str, line: &Range<usize>, marked: &Range<usize>) -> Range<usize> {
    let start = floor_boundary(text, marked.start.saturating_sub(AROUND)).max(line.start);
    let end = marked.end.min(marked.start + LONGEST_LINE / 2);
    start..floor_boundary(text, end + AROUND).min(line.end)
}

fn first_line(text: &str, marked: Range<usize>) -> (Range<usize>, Range<usize>) {
    let start = floor_boundary(text, marked.start);
    let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let line_end = text[start..].find('\n').map_or(text.len(), |length| start + length);
    let end = floor_boundary(text, marked.end).clamp(start, line_end);
    (line_start..line_end, start..end)
}

fn floor_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Control characters of a manifest must not reach the terminal; line ends may.
fn visible(text: &str) -> String {
    let show = |character: char| match character {
        '\n' => character,
        '\u{0}'..='\u{1f}' => char::from_u32(0x2400 + character as u32).unwrap_or(' '),
        '\u{7f}'..='\u{9f}' => '\u{2421}',
        _ => character,
    };
    text.chars().map(show).collect()
}
