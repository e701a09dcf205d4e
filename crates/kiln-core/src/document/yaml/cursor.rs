//! Places of the scanner (character counts) turned into byte offsets, and spans that end where the value ends.
//!
//! The scanner counts characters, Kiln counts bytes. A cursor walks from the last place asked for to the next one, so a
//! whole document costs one pass even when it is a single line of megabytes.
//! The scanner's own spans surprise: a quoted scalar ends behind the comment that follows it, and an anchor or tag
//! belongs to the value. Both are put right here.

use saphyr_parser::{Marker, ScalarStyle, Span as Marks};

/// Walks over one document.
pub(super) struct Cursor<'t> {
    text: &'t str,
    ascii: bool,
    chars: usize,
    bytes: usize,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Cursor { text, ascii: text.is_ascii(), chars: 0, bytes: 0 }
    }

    /// The byte a marker points at.
    pub(super) fn byte(&mut self, marker: Marker) -> usize {
        let target = marker.index();
        if self.ascii {
            return target.min(self.text.len());
        }
        if target >= self.chars {
            let rest = &self.text[self.bytes..];
            let step = target - self.chars;
            match rest.char_indices().nth(step) {
                Some((offset, _)) => (self.chars, self.bytes) = (target, self.bytes + offset),
                None => return self.text.len(),
            }
        } else {
            let back = self.chars - target;
            let before = &self.text[..self.bytes];
            let offset = before.char_indices().nth_back(back - 1).map_or(0, |(offset, _)| offset);
            (self.chars, self.bytes) = (target, offset);
        }
        self.bytes
    }

    /// First byte and end of a scalar, without its anchor and tag.
    pub(super) fn scalar(&mut self, marks: Marks, style: ScalarStyle, decorated: bool, empty: bool) -> (usize, usize) {
        let start = self.start(marks, decorated);
        let end = self.byte(marks.end).max(start);
        match style {
            ScalarStyle::Plain if empty => (start, start),
            ScalarStyle::Plain => (start, end),
            ScalarStyle::SingleQuoted => (start, self.closing_quote(start, b'\'').unwrap_or(end)),
            ScalarStyle::DoubleQuoted => (start, self.closing_quote(start, b'"').unwrap_or(end)),
            ScalarStyle::Literal | ScalarStyle::Folded => (start, start + self.text[start..end].trim_end().len()),
        }
    }

    /// First byte of a value, behind its anchor and tag.
    pub(super) fn start(&mut self, marks: Marks, decorated: bool) -> usize {
        let mut start = self.byte(marks.start);
        if decorated {
            while self.text[start..].starts_with(['&', '!']) {
                start += self.text[start..].find(char::is_whitespace).unwrap_or(self.text.len() - start);
                start = self.skip_blank(start);
            }
        }
        start
    }

    /// First byte of a list, its bracket or dash. When a list is not indented, the scanner begins it with its first item.
    pub(super) fn list_start(&self, start: usize, first_item: usize) -> usize {
        if self.text[start..].starts_with(['[', '-']) && first_item != start {
            return start;
        }
        // The dash may stand lines above its item, with comments between them.
        let mut end = start;
        loop {
            let line_start = self.text[..end].rfind('\n').map_or(0, |line_end| line_end + 1);
            let line = &self.text[line_start..end];
            let comment = if line.starts_with('#') { Some(0) } else { line.find(" #") };
            let content = line[..comment.unwrap_or(line.len())].trim_end();
            if content.ends_with('-') {
                return line_start + content.len() - 1;
            }
            if !content.is_empty() || line_start == 0 {
                return start;
            }
            end = line_start - 1;
        }
    }

    /// The end of a list or mapping: its bracket, or the end of its last child.
    pub(super) fn end(&mut self, marks: Marks, last_child: usize) -> usize {
        let end = self.byte(marks.start);
        if self.text[end..].starts_with(['}', ']']) { end + 1 } else { last_child }
    }

    fn skip_blank(&self, mut at: usize) -> usize {
        loop {
            let rest = &self.text[at..];
            at += rest.len() - rest.trim_start().len();
            if !self.text[at..].starts_with('#') {
                return at;
            }
            at += self.text[at..].find('\n').unwrap_or(self.text.len() - at);
        }
    }

    fn closing_quote(&self, start: usize, quote: u8) -> Option<usize> {
        let bytes = self.text.as_bytes();
        let mut at = start + 1;
        loop {
            match *bytes.get(at)? {
                b'\\' if quote == b'"' => at += 2,
                byte if byte == quote && quote == b'\'' && bytes.get(at + 1) == Some(&quote) => at += 2,
                byte if byte == quote => return Some(at + 1),
                _ => at += 1,
            }
        }
    }
}
