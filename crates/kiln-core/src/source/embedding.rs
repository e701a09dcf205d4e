//! How a text found inside another file stands there, so that a report can point into the file on disk.
//!
//! A YAML literal block (`|`) keeps every line and only adds indentation; a quoted or plain scalar without escapes
//! stands letter for letter. Both are recognised by comparing the texts, never by trusting the scalar's style:
//! what cannot be proven equal is [`Embedding::Opaque`] and points at the whole outer value.

use super::{SourceFile, Span};

/// Where the bytes of an embedded text are in the outer file.
#[derive(Debug, Clone)]
pub(super) enum Embedding {
    /// Not found letter for letter.
    Opaque,
    /// The text begins at this byte and goes on unchanged.
    Verbatim(u32),
    /// Each line stands behind an indentation, starting with this zero-based line.
    Indented { first_line: u32, indent: u32 },
}

impl Embedding {
    pub(super) fn find(outer: &SourceFile, value: Span, text: &str) -> Self {
        let slice = outer.text.get(value.start as usize..value.end as usize).unwrap_or_default();
        match slice.find(text) {
            _ if text.is_empty() => Embedding::Opaque,
            Some(at) => Embedding::Verbatim(value.start + at as u32),
            None => Self::find_block(outer, value, text).unwrap_or(Embedding::Opaque),
        }
    }

    /// The block begins on the line of its `|` or, when the span covers only the content, on the first line itself.
    fn find_block(outer: &SourceFile, value: Span, text: &str) -> Option<Self> {
        let header_line = outer.line_column(value.start).line - 1;
        (header_line..=header_line + 1).find_map(|first_line| {
            let mut lines = text.lines().zip(first_line..);
            let indent = lines.clone().find(|(line, _)| !line.trim().is_empty()).and_then(|(line, number)| {
                outer.line(number)?.strip_suffix(line).filter(|indent| indent.bytes().all(|byte| byte == b' '))
            })?;
            let equal = lines.all(|(line, number)| {
                outer.line(number).is_some_and(|whole| {
                    whole.strip_prefix(indent) == Some(line) || (line.is_empty() && whole.trim().is_empty())
                })
            });
            equal.then_some(Embedding::Indented { first_line, indent: indent.len() as u32 })
        })
    }

    pub(super) fn outer_span(&self, outer: &SourceFile, inner: &SourceFile, span: Span) -> Option<Span> {
        let place = |offset: u32| match *self {
            Embedding::Opaque => None,
            Embedding::Verbatim(start) => Some(start + offset),
            Embedding::Indented { first_line, indent } => {
                let line = inner.line_number(offset);
                let column = offset - inner.line_starts.get(line)?;
                let start = outer.line_starts.get(first_line as usize + line)?;
                Some((start + indent + column).min(outer.text.len() as u32))
            }
        };
        let start = place(span.start)?;
        Some(Span::new(start, place(span.end)?.max(start)))
    }
}

impl SourceFile {
    /// A zero-based line without its end.
    fn line(&self, number: u32) -> Option<&str> {
        let start = *self.line_starts.get(number as usize)? as usize;
        self.text.get(start..)?.lines().next().or(Some(""))
    }

    /// The zero-based line of an offset.
    fn line_number(&self, offset: u32) -> usize {
        self.line_starts.partition_point(|start| *start <= offset).max(1) - 1
    }
}

#[cfg(test)]
mod tests {
    use crate::source::{Location, SourceMap, Span};

    /// The outer text, the value's bytes in it, the embedded text, a word of it; expected line and column.
    type Case = (&'static str, &'static str, &'static str, &'static str, (u32, u32));
    const CASES: &[Case] = &[
        (
            "data:\n  a: |\n    kind: X\n\n    name: y\n",
            "|\n    kind: X\n\n    name: y\n",
            "kind: X\n\nname: y\n",
            "y",
            (5, 11),
        ),
        ("data:\n  a: |\n    kind: X\n    name: y\n", "kind: X\n    name: y\n", "kind: X\nname: y\n", "y", (4, 11)),
        ("a: |\n    b:\n      c: z\n", "|\n    b:\n      c: z\n", "b:\n  c: z\n", "z", (3, 10)),
        ("a: '{\"k\": 1}'\n", "'{\"k\": 1}'", "{\"k\": 1}", "1", (1, 11)),
        ("a: \"{\\\"k\\\": 1}\"\n", "\"{\\\"k\\\": 1}\"", "{\"k\": 1}", "1", (1, 4)),
    ];

    #[test]
    fn a_place_in_an_embedded_text_is_found_in_the_outer_file() {
        for (outer_text, value, text, word, expected) in CASES {
            let mut sources = SourceMap::default();
            let outer = sources.add("outer.yaml", *outer_text);
            let start = outer_text.find(value).unwrap() as u32;
            let within = Location { file: outer, span: Span::new(start, start + value.len() as u32) };
            let file = sources.embed("inner", *text, within);
            let start = text.rfind(word).unwrap() as u32;
            let at = sources.outer(Location { file, span: Span::new(start, start + 1) });
            let place = sources.line_column(at);
            assert_eq!((place.line, place.column), *expected, "{outer_text:?}");
        }
    }

    #[test]
    fn a_redacted_value_is_gone_from_the_outer_text_too() {
        let mut sources = SourceMap::default();
        let outer = sources.add("outer.yaml", "a: |\n  password: gehéim\n  b: c\n");
        let within = Location { file: outer, span: Span::new(3, 33) };
        let file = sources.embed("inner", "password: gehéim\nb: c\n", within);
        sources.redact(Location { file, span: Span::new(10, 17) });
        assert_eq!(sources.file(file).text, "password: *******\nb: c\n");
        assert_eq!(sources.file(outer).text, "a: |\n  password: *******\n  b: c\n");
    }
}
