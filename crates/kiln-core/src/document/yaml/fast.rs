//! The YAML that people write, ten times faster: one pass over the bytes, no events, no character counting.
//!
//! [`read_plain_document`] knows block mappings and lists, flow collections on one line, plain and quoted scalars on one
//! line, literal blocks and comments. At anything else (anchors, tags, tabs, folded text, every kind of mistake) it
//! gives up with `None`, and the document is read by the scanner of [`super::build`].
//! **Invariant:** whatever it does give is what the scanner would have given, places included, and without any finding.
//! A property test compares the two.

use crate::source::{Location, Sourced, Span};

use super::super::{Entry, Node, Value};
use super::build::{Piece, has_duplicates};
use super::scalar::{self, ScalarTag};

/// Deeper nesting is left to the scanner, which bounds it.
const MAX_DEPTH: usize = 64;

/// The document and how many values it holds; none if it takes the full scanner to read it.
pub(super) fn read_plain_document(piece: &Piece) -> Option<(Node, usize)> {
    let bytes = piece.text.as_bytes();
    if !is_plain_text(bytes) {
        return None;
    }
    let mut reader = Reader { piece, bytes, at: 0, values: 0, depth: 0 };
    if bytes.starts_with(b"---") {
        reader.at = 3;
        reader.rest_is_blank()?;
    }
    let column = reader.next_line()??;
    let node = reader.block(column)?;
    matches!(reader.next_line(), Some(None)).then_some((node, reader.values))
}

/// No tabs, control characters, byte order marks or line breaks other than `\n`.
fn is_plain_text(bytes: &[u8]) -> bool {
    let control = |byte: &u8| (*byte < b' ' && *byte != b'\n') || *byte == 0x7f;
    // Lead bytes of U+0080-U+00BF, of the line separators and of U+FEFF.
    let special = |byte: &u8| matches!(byte, 0xc2 | 0xe2 | 0xef);
    !bytes.iter().any(|byte| control(byte) || special(byte))
}

struct Reader<'t, 'p> {
    piece: &'p Piece<'t>,
    bytes: &'t [u8],
    at: usize,
    values: usize,
    depth: usize,
}

/// What stands before the colon of `key: value`.
enum Key {
    Found(Sourced<Box<str>>),
    /// The text is no key but a value.
    Absent,
}

impl<'t> Reader<'t, '_> {
    /// Goes to the first character of the next line that is neither blank nor a comment.
    /// Gives its column, none at the end of the text; gives up at `...` and directives.
    fn next_line(&mut self) -> Option<Option<usize>> {
        loop {
            let start = self.at;
            while self.peek() == Some(b' ') {
                self.at += 1;
            }
            let column = self.at - self.bytes[..start].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            match self.peek() {
                None => return Some(None),
                Some(b'\n') => self.at += 1,
                Some(b'#') => self.skip_line(),
                Some(b'%' | b'.' | b'-') if column == 0 && !self.is_dash() => return None,
                Some(_) => return Some(Some(column)),
            }
        }
    }

    /// A block mapping or list whose first line begins here, at `column`.
    fn block(&mut self, column: usize) -> Option<Node> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let node = if self.is_dash() {
            self.list(column)
        } else {
            match self.key()? {
                Key::Found(key) => self.mapping(column, key),
                Key::Absent => None,
            }
        };
        self.depth -= 1;
        node
    }

    /// A block mapping whose first key was just read.
    fn mapping(&mut self, column: usize, first: Sourced<Box<str>>) -> Option<Node> {
        let start = first.at.span.start;
        let mut entries = Vec::new();
        let mut key = first;
        loop {
            let value = self.value_of(&key, column)?;
            entries.push(Entry { key, value });
            match self.next_line()? {
                Some(next) if next == column && !self.is_dash() => match self.key()? {
                    Key::Found(found) => key = found,
                    Key::Absent => return None,
                },
                Some(next) if next >= column => return None,
                _ => break,
            }
        }
        let end = entries.last().map_or(start, |entry| entry.value.at.span.end);
        if has_duplicates(&entries) {
            return None;
        }
        Some(self.node(start, end, Value::Mapping(entries)))
    }

    /// What stands behind a colon, on its line or below. Ends in front of the next line.
    fn value_of(&mut self, key: &Sourced<Box<str>>, column: usize) -> Option<Node> {
        self.skip_spaces();
        if !self.ends_here() {
            return self.inline(column);
        }
        self.skip_line();
        let back = self.at;
        match self.next_line()? {
            Some(next) if next > column => self.block(next),
            Some(next) if next == column && self.is_dash() => self.block(next),
            _ => {
                self.at = back;
                // The scanner puts a value that is not there on the colon.
                Some(self.node(key.at.span.end, key.at.span.end, Value::Null))
            }
        }
    }

    /// A block list whose first dash is here.
    fn list(&mut self, column: usize) -> Option<Node> {
        let start = self.offset();
        let mut items: Vec<Node> = Vec::new();
        loop {
            self.at += 1;
            let spaces = self.skip_spaces();
            let item_column = column + 1 + spaces;
            let item = if self.ends_here() {
                self.skip_line();
                let below = self.next_line()?.filter(|next| *next > column)?;
                self.block(below)?
            } else if self.is_dash() || self.begins_mapping()? {
                self.block(item_column)?
            } else {
                self.inline(column)?
            };
            items.push(item);
            match self.next_line()? {
                Some(next) if next == column && self.is_dash() => {}
                Some(next) if next > column => return None,
                _ => break,
            }
        }
        let end = items.last().map_or(start, |item| item.at.span.end);
        Some(self.node(start, end, Value::Sequence(items)))
    }

    /// A value on this line. The next line must not be indented deeper than `column`, or it might belong to the value.
    fn inline(&mut self, column: usize) -> Option<Node> {
        let node = match self.peek()? {
            b'|' => return self.literal(column),
            b'[' | b'{' => self.flow(0)?,
            b'"' | b'\'' => self.quoted()?,
            _ => self.plain()?,
        };
        self.rest_is_blank()?;
        let back = self.at;
        if self.next_line()?.is_some_and(|next| next > column) {
            return None;
        }
        self.at = back;
        Some(node)
    }

    /// Whether `key: ` follows. Gives up on lines that could be both.
    fn begins_mapping(&mut self) -> Option<bool> {
        let back = (self.at, self.values);
        let found = matches!(self.key()?, Key::Found(_));
        (self.at, self.values) = back;
        Some(found)
    }

    /// A key with its colon.
    fn key(&mut self) -> Option<Key> {
        let start = self.at;
        if matches!(self.peek(), Some(b'"' | b'\'')) {
            let node = self.quoted()?;
            if self.peek() != Some(b':') {
                self.at = start;
                return Some(Key::Absent);
            }
            self.at += 1;
            if !matches!(self.peek(), None | Some(b' ' | b'\n')) {
                return None;
            }
            let Value::String(text) = node.value else { return None };
            return Some(Key::Found(Sourced::new(text, node.at)));
        }
        if !begins_plain(self.bytes, self.at) {
            return if matches!(self.peek(), Some(b'[' | b'{' | b'|')) { self.key_less_line() } else { None };
        }
        while let Some(byte) = self.peek() {
            match byte {
                b':' if matches!(self.bytes.get(self.at + 1), None | Some(b' ' | b'\n')) => {
                    let text = self.slice(start, self.at);
                    if text.ends_with(' ') {
                        return None;
                    }
                    let key = scalar::key_text(scalar::resolve(text, true, ScalarTag::Absent).ok()?)?;
                    let at = self.location(self.offset_of(start), self.offset());
                    self.at += 1;
                    self.values += 1;
                    return Some(Key::Found(Sourced::new(key, at)));
                }
                b'\n' => break,
                b'#' if self.bytes[self.at - 1] == b' ' => break,
                _ => self.at += 1,
            }
        }
        self.at = start;
        Some(Key::Absent)
    }

    /// For a line that begins with a bracket: no key, if it is sure not to be one.
    fn key_less_line(&mut self) -> Option<Key> {
        let line = &self.bytes[self.at..];
        let line = &line[..line.iter().position(|byte| *byte == b'\n').unwrap_or(line.len())];
        let closes_as_key = line.windows(2).any(|pair| matches!(pair, [b'}' | b']', b':' | b' ']));
        (!closes_as_key).then_some(Key::Absent)
    }

    /// An unquoted value up to the end of the line or a comment.
    fn plain(&mut self) -> Option<Node> {
        if !begins_plain(self.bytes, self.at) {
            return None;
        }
        let start = self.at;
        while let Some(byte) = self.peek() {
            match byte {
                b'\n' => break,
                b'#' if self.bytes[self.at - 1] == b' ' => break,
                b':' if matches!(self.bytes.get(self.at + 1), None | Some(b' ' | b'\n')) => return None,
                _ => self.at += 1,
            }
        }
        let text = self.slice(start, self.at).trim_end_matches(' ');
        self.at = start + text.len();
        let value = scalar::resolve(text, true, ScalarTag::Absent).ok()?;
        Some(self.node(self.offset_of(start), self.offset(), value))
    }

    /// A quoted text that ends on this line.
    fn quoted(&mut self) -> Option<Node> {
        let quote = self.peek()?;
        let start = self.at;
        self.at += 1;
        let mut text: Option<String> = None;
        let mut copied = self.at;
        loop {
            match self.peek()? {
                b'\n' => return None,
                b'\\' if quote == b'"' => {
                    let escaped = match self.bytes.get(self.at + 1)? {
                        b'n' => '\n',
                        b't' => '\t',
                        b'r' => '\r',
                        quoted @ (b'"' | b'\\' | b'/') => char::from(*quoted),
                        _ => return None,
                    };
                    let text = text.get_or_insert_default();
                    text.push_str(self.slice(copied, self.at));
                    text.push(escaped);
                    self.at += 2;
                    copied = self.at;
                }
                byte if byte == quote && quote == b'\'' && self.bytes.get(self.at + 1) == Some(&quote) => {
                    text.get_or_insert_default().push_str(self.slice(copied, self.at + 1));
                    self.at += 2;
                    copied = self.at;
                }
                byte if byte == quote => break,
                _ => self.at += 1,
            }
        }
        let rest = self.slice(copied, self.at);
        let value = match text {
            Some(text) => (text + rest).into(),
            None => rest.into(),
        };
        self.at += 1;
        Some(self.node(self.offset_of(start), self.offset(), Value::String(value)))
    }

    /// A `[…]` or `{…}` that ends on this line.
    fn flow(&mut self, depth: usize) -> Option<Node> {
        let start = self.offset();
        let is_list = self.peek()? == b'[';
        let close = if is_list { b']' } else { b'}' };
        let (mut items, mut entries) = (Vec::new(), Vec::new());
        self.at += 1;
        self.skip_spaces();
        if depth + self.depth > MAX_DEPTH {
            return None;
        }
        while self.peek()? != close {
            if is_list {
                items.push(self.flow_value(depth)?);
            } else {
                entries.push(self.flow_entry(depth)?);
            }
            self.skip_spaces();
            match self.peek()? {
                b',' => {
                    self.at += 1;
                    self.skip_spaces();
                    // `[a,]` and `[a,,b]` are rare enough for the scanner.
                    if matches!(self.peek()?, b',' | b']' | b'}') {
                        return None;
                    }
                }
                byte if byte == close => {}
                _ => return None,
            }
        }
        self.at += 1;
        if has_duplicates(&entries) {
            return None;
        }
        let value = if is_list { Value::Sequence(items) } else { Value::Mapping(entries) };
        Some(self.node(start, self.offset(), value))
    }

    fn flow_entry(&mut self, depth: usize) -> Option<Entry> {
        let quoted = matches!(self.peek()?, b'"' | b'\'');
        let node = if quoted { self.quoted()? } else { self.flow_plain()? };
        let key = scalar::key_text(node.value)?;
        if self.peek()? != b':' {
            return None;
        }
        self.at += 1;
        if self.skip_spaces() == 0 && !quoted {
            return None;
        }
        let value = self.flow_value(depth)?;
        Some(Entry { key: Sourced::new(key, node.at), value })
    }

    fn flow_value(&mut self, depth: usize) -> Option<Node> {
        match self.peek()? {
            b'[' | b'{' => self.flow(depth + 1),
            b'"' | b'\'' => self.quoted(),
            _ => self.flow_plain(),
        }
    }

    /// An unquoted scalar between commas and brackets, of harmless characters only.
    fn flow_plain(&mut self) -> Option<Node> {
        if !begins_plain(self.bytes, self.at) {
            return None;
        }
        let start = self.at;
        while let Some(byte) = self.peek() {
            let next = self.bytes.get(self.at + 1);
            match byte {
                b',' | b']' | b'}' => break,
                b':' if matches!(next, Some(b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/')) => self.at += 1,
                b':' => break,
                b'a'..=b'z'
                | b'A'..=b'Z'
                | b'0'..=b'9'
                | b' '
                | b'.'
                | b'/'
                | b'_'
                | b'-'
                | b'+'
                | b'='
                | b'('
                | b')'
                | b'~' => {
                    self.at += 1;
                }
                _ => return None,
            }
        }
        let text = self.slice(start, self.at).trim_end_matches(' ');
        if text.len() != self.at - start && self.peek()? == b':' {
            return None;
        }
        let end = start + text.len();
        let value = scalar::resolve(text, true, ScalarTag::Absent).ok()?;
        Some(self.node(self.offset_of(start), self.offset_of(end), value))
    }

    /// A `|` or `|-` block below a line that is indented by `column`.
    fn literal(&mut self, column: usize) -> Option<Node> {
        self.at += 1;
        let strip = self.peek()? == b'-';
        if strip {
            self.at += 1;
        }
        if self.peek()? != b'\n' || self.bytes.last() != Some(&b'\n') {
            return None;
        }
        self.at += 1;
        let body = self.at;
        let indentation = self.bytes[body..].iter().position(|byte| *byte != b' ')?;
        if indentation <= column || self.bytes[body + indentation] == b'\n' {
            return None;
        }
        let mut text = String::new();
        while let Some(length) = self.bytes[self.at..].iter().position(|byte| *byte == b'\n') {
            let line = self.slice(self.at, self.at + length);
            let content = line.trim_start_matches(' ');
            let indented = length - content.len();
            match content {
                "" if indented > indentation => return None,
                "" => {}
                _ if indented >= indentation => text.push_str(&line[indentation..]),
                _ if indented > column => return None,
                _ => break,
            }
            text.push('\n');
            self.at += length + 1;
        }
        text.truncate(text.trim_end_matches('\n').len());
        let last = self.slice(body, self.at).trim_end().len();
        // Spaces at the very end of the text would make the place shorter than the value.
        if text.ends_with(' ') {
            return None;
        }
        if !strip {
            text.push('\n');
        }
        let (start, end) = (self.offset_of(body + indentation), self.offset_of(body + last));
        Some(self.node(start, end, Value::String(text.into())))
    }

    /// Skips spaces and a comment up to the end of the line; gives up if there is anything else.
    fn rest_is_blank(&mut self) -> Option<()> {
        let spaces = self.skip_spaces();
        match self.peek() {
            None | Some(b'\n') => {}
            Some(b'#') if spaces > 0 => {}
            Some(_) => return None,
        }
        self.skip_line();
        Some(())
    }

    /// Whether there is nothing more on this line but a comment.
    fn ends_here(&self) -> bool {
        match self.peek() {
            None | Some(b'\n') => true,
            Some(b'#') => self.at > 0 && self.bytes[self.at - 1] == b' ',
            Some(_) => false,
        }
    }

    fn is_dash(&self) -> bool {
        self.peek() == Some(b'-') && matches!(self.bytes.get(self.at + 1), None | Some(b' ' | b'\n'))
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_spaces(&mut self) -> usize {
        let start = self.at;
        while self.peek() == Some(b' ') {
            self.at += 1;
        }
        self.at - start
    }

    fn skip_line(&mut self) {
        self.at = self.bytes[self.at..]
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(self.bytes.len(), |end| self.at + end + 1);
    }

    fn slice(&self, start: usize, end: usize) -> &'t str {
        &self.piece.text[start..end]
    }

    fn offset(&self) -> u32 {
        self.offset_of(self.at)
    }

    fn offset_of(&self, at: usize) -> u32 {
        self.piece.base + at as u32
    }

    fn location(&self, start: u32, end: u32) -> Location {
        Location { file: self.piece.file, span: Span::new(start, end) }
    }

    fn node(&mut self, start: u32, end: u32, value: Value) -> Node {
        self.values += 1;
        Node { at: self.location(start, end), value }
    }
}

/// Whether an unquoted scalar may begin here without being anything else.
fn begins_plain(bytes: &[u8], at: usize) -> bool {
    match bytes.get(at) {
        Some(
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'/' | b'_' | b'+' | b'(' | b'$' | b'~' | 0xc3..=0xff,
        ) => true,
        Some(b'-') => matches!(bytes.get(at + 1), Some(b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.')),
        _ => false,
    }
}
