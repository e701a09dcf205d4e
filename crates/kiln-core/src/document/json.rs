//! JSON text to a [`Node`], read the way Go's `encoding/json` reads it.
//!
//! Everything around us that reads JSON (Ignition, the machine-config-operator, the Kubernetes API) is written in Go, and
//! Go is neither as strict nor as lax as other readers. So here, too: a key written twice is accepted (a later object is
//! laid over an earlier one, anything else replaces it) and reported; a lone surrogate becomes U+FFFD; text after the
//! document, comments, trailing commas and a byte-order mark are refused. `420.0` stays a [`Value::Float`], because Go does
//! not accept it where a whole number is wanted.
//!
//! **Bounded:** [`MAX_BYTES`] of text, [`MAX_DEPTH`] levels, [`MAX_VALUES`] values.
//! Not here: which keys are known and in which case they are written, see `ignition::schema`.

use std::collections::HashMap;

use crate::diagnostic::{Code, Diagnostic};
use crate::document::{Entry, Node, Value};
use crate::source::{FileId, Location, SourceFile, Sourced, Span};

/// The longest text that is read.
pub const MAX_BYTES: usize = 64 << 20;
/// The deepest nesting of lists and objects that is read.
pub const MAX_DEPTH: usize = 128;
/// The largest number of values that is read.
pub const MAX_VALUES: usize = 1_000_000;
const MAX_DUPLICATES: usize = 100;

const SYNTAX: Code = Code(400);
const DUPLICATE_KEY: Code = Code(401);
const TOO_LARGE: Code = Code(402);

/// Reads one JSON document. Without a document there is exactly one error; with one there may be warnings.
pub fn parse_json(file: FileId, source: &SourceFile) -> (Option<Node>, Vec<Diagnostic>) {
    let mut reader = Reader { file, text: &source.text, at: 0, values: 0, findings: Vec::new() };
    match reader.document() {
        Ok(root) => (Some(root), reader.findings),
        Err(error) => (None, vec![*error]),
    }
}

type Read<T> = Result<T, Box<Diagnostic>>;

struct Reader<'a> {
    file: FileId,
    text: &'a str,
    at: usize,
    values: usize,
    findings: Vec<Diagnostic>,
}

impl Reader<'_> {
    fn document(&mut self) -> Read<Node> {
        if self.text.len() > MAX_BYTES {
            let size = self.text.len();
            return Err(self
                .too_large(format!("the text has {size} bytes; at most {MAX_BYTES} are read"))
                .help("move large file contents out of the document and refer to them by URL")
                .into());
        }
        if self.text.starts_with('\u{feff}') {
            return Err(Diagnostic::new(SYNTAX, self.span(0, 3), "the text begins with a byte-order mark")
                .cause("Go's JSON reader, which every consumer of this document uses, refuses a byte-order mark")
                .help("save the file as UTF-8 without a byte-order mark")
                .into());
        }
        self.skip_space();
        if self.at == self.text.len() {
            return Err(Diagnostic::new(SYNTAX, self.span(0, self.at), "the text is empty")
                .cause("a JSON document consists of exactly one value")
                .help("write at least `{}`")
                .into());
        }
        let root = self.value(0)?;
        self.skip_space();
        if self.at < self.text.len() {
            return Err(self
                .unexpected("the end of the text")
                .cause("Go's JSON reader refuses anything behind the document, also a second document")
                .help("delete everything behind the closing bracket of the first document")
                .into());
        }
        Ok(root)
    }

    fn value(&mut self, depth: usize) -> Read<Node> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(self
                .too_large(format!("the document has more than {MAX_VALUES} values"))
                .help("split the document")
                .into());
        }
        if depth > MAX_DEPTH {
            return Err(self
                .too_large(format!("lists and objects are nested more than {MAX_DEPTH} levels deep"))
                .help("nest less; no known kind of document needs more than a dozen levels")
                .into());
        }
        let start = self.at;
        let value = match self.peek() {
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.list(depth)?,
            Some(b'"') => Value::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.word("true", Value::Bool(true))?,
            Some(b'f') => self.word("false", Value::Bool(false))?,
            Some(b'n') => self.word("null", Value::Null)?,
            _ => return Err(self.unexpected("a value").help(self.value_help()).into()),
        };
        Ok(Node { at: self.span(start, self.at), value })
    }

    /// What people usually meant when no value begins here.
    fn value_help(&self) -> &'static str {
        match self.peek() {
            Some(b']' | b'}' | b',') => "remove the comma in front of it; JSON has no trailing commas",
            Some(b'\'') => "write strings in double quotes",
            Some(b'#' | b'/') => "remove the comment; JSON has none",
            None => "the text ends too early: close every bracket and brace",
            _ => "write a string in double quotes, a number, true, false, null, a list or an object",
        }
    }

    fn object(&mut self, depth: usize) -> Read<Value> {
        self.at += 1;
        let mut entries: Vec<Entry> = Vec::new();
        // Searching the list for every key would be quadratic in the width of the object.
        let mut index = HashMap::<Box<str>, usize>::new();
        self.skip_space();
        if self.eat(b'}') {
            return Ok(Value::Mapping(entries));
        }
        loop {
            self.skip_space();
            let start = self.at;
            if self.peek() != Some(b'"') {
                let help = match self.peek() {
                    Some(b'}') => "remove the comma in front of it; JSON has no trailing commas",
                    Some(b'#' | b'/') => "remove the comment; JSON has none",
                    None => "close the object with `}`",
                    _ => "write keys in double quotes",
                };
                return Err(self.unexpected("a key in double quotes").help(help).into());
            }
            let key = Sourced::new(self.string()?, self.span(start, self.at));
            self.skip_space();
            if !self.eat(b':') {
                return Err(self.unexpected("`:` behind the key").help("write `\"key\": value`").into());
            }
            self.skip_space();
            let value = self.value(depth + 1)?;
            match index.get(&key.value) {
                Some(earlier) => self.overlay(&mut entries[*earlier], Entry { key, value })?,
                None => {
                    index.insert(key.value.clone(), entries.len());
                    entries.push(Entry { key, value });
                }
            }
            self.skip_space();
            if self.eat(b'}') {
                return Ok(Value::Mapping(entries));
            }
            if !self.eat(b',') {
                let open = self.peek().is_none();
                let help = if open { "close the object with `}`" } else { "separate entries with a comma" };
                return Err(self.unexpected("`,` or `}`").help(help).into());
            }
        }
    }

    /// A key came a second time: report it and do what Go does.
    fn overlay(&mut self, earlier: &mut Entry, later: Entry) -> Read<()> {
        // Laying one object over another takes time with their size, so it must not happen without end.
        if self.findings.len() == MAX_DUPLICATES {
            return Err(self
                .too_large(format!("more than {MAX_DUPLICATES} keys are written twice"))
                .help("keep one entry of each key")
                .into());
        }
        self.findings.push(
            Diagnostic::new(DUPLICATE_KEY, later.key.at, format!("key `{}` is written twice in one object", later.key.value))
                .cause("Go's JSON reader takes the last value, laying objects over each other; other readers refuse the document")
                .help("keep one of the two entries")
                .related(earlier.key.at, "first written here"),
        );
        lay_over(earlier, later);
        Ok(())
    }

    fn list(&mut self, depth: usize) -> Read<Value> {
        self.at += 1;
        let mut items = Vec::new();
        self.skip_space();
        if self.eat(b']') {
            return Ok(Value::Sequence(items));
        }
        loop {
            self.skip_space();
            items.push(self.value(depth + 1)?);
            self.skip_space();
            if self.eat(b']') {
                return Ok(Value::Sequence(items));
            }
            if !self.eat(b',') {
                let open = self.peek().is_none();
                let help = if open { "close the list with `]`" } else { "separate items with a comma" };
                return Err(self.unexpected("`,` or `]`").help(help).into());
            }
        }
    }

    fn string(&mut self) -> Read<Box<str>> {
        let opened = self.at;
        self.at += 1;
        let mut text = String::new();
        loop {
            let plain = self.at;
            while self.peek().is_some_and(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\') {
                self.at += 1;
            }
            text.push_str(&self.text[plain..self.at]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text.into());
                }
                Some(b'\\') => text.push(self.escape()?),
                Some(control) => {
                    let message = format!("a string contains the control character U+{control:04X}");
                    return Err(Diagnostic::new(SYNTAX, self.span(self.at, self.at + 1), message)
                        .cause("JSON strings cannot contain raw line breaks, tabs or other control characters")
                        .help(match control {
                            b'\n' => "write `\\n` for a line break, or close the string with `\"`".to_owned(),
                            b'\t' => "write `\\t` for a tab".to_owned(),
                            _ => format!("write `\\u{control:04x}`"),
                        })
                        .into());
                }
                None => {
                    return Err(Diagnostic::new(SYNTAX, self.span(opened, opened + 1), "a string is never closed")
                        .help("close it with `\"`")
                        .into());
                }
            }
        }
    }

    fn escape(&mut self) -> Read<char> {
        let start = self.at;
        self.at += 1;
        let simple = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(start),
            _ => {
                let shown: String = self.text[start..].chars().take(2).collect();
                let message = format!("`{shown}` is not an escape JSON knows");
                return Err(Diagnostic::new(SYNTAX, self.span(start, start + shown.len()), message)
                    .cause("the escapes are \\\" \\\\ \\/ \\b \\f \\n \\r \\t and \\uXXXX")
                    .help("write `\\\\` for a backslash")
                    .into());
            }
        };
        self.at += 1;
        Ok(simple)
    }

    /// `\uXXXX`, and the second half of a surrogate pair. A half without its partner is U+FFFD, as in Go.
    fn unicode_escape(&mut self, start: usize) -> Read<char> {
        let Some(first) = self.hex4(start) else {
            return Err(Diagnostic::new(
                SYNTAX,
                self.span(start, start + 2),
                "`\\u` is not followed by four hex digits",
            )
            .help("write for example `\\u00e9`")
            .into());
        };
        self.at = start + 6;
        if (0xd800..0xdc00).contains(&first)
            && let Some(second @ 0xdc00..0xe000) = self.hex4(self.at)
        {
            self.at += 6;
            let joined = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            return Ok(char::from_u32(joined).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn hex4(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at..at + 6)?.strip_prefix("\\u")?;
        digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
    }

    fn number(&mut self) -> Read<Value> {
        let start = self.at;
        self.eat(b'-');
        let leading_zero = self.peek() == Some(b'0');
        let whole = self.digits();
        if whole == 0 {
            return Err(self.unexpected("a digit behind `-`").help("write the number in decimal digits").into());
        }
        if leading_zero && whole > 1 {
            let message = format!("`{}` begins with a zero", &self.text[start..self.at]);
            return Err(Diagnostic::new(SYNTAX, self.span(start, self.at), message)
                .cause("JSON numbers are decimal and have no leading zeros; an octal mode such as 0644 is written 420")
                .help(octal_help(&self.text[start..self.at]))
                .into());
        }
        let mut integer = true;
        if self.eat(b'.') {
            integer = false;
            if self.digits() == 0 {
                return Err(self.unexpected("a digit behind the decimal point").help("write a digit there").into());
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            integer = false;
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if self.digits() == 0 {
                return Err(self.unexpected("a digit in the exponent").help("write a digit there").into());
            }
        }
        let written = &self.text[start..self.at];
        Ok(match written.parse::<i128>() {
            Ok(number) if integer => Value::Integer(number),
            // Proven above to be a decimal number, so this is never NaN; a huge one becomes infinite.
            _ => Value::Float(written.parse().unwrap_or(f64::INFINITY)),
        })
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - start
    }

    fn word(&mut self, word: &str, value: Value) -> Read<Value> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.unexpected("a value").help(self.value_help()).into());
        }
        self.at += word.len();
        Ok(value)
    }

    fn unexpected(&self, wanted: &str) -> Diagnostic {
        match self.text[self.at..].chars().next() {
            Some(found) => {
                let shown: String = match found {
                    '\n' => "a line break".into(),
                    other => format!("`{other}`"),
                };
                let message = format!("expected {wanted}, found {shown}");
                Diagnostic::new(SYNTAX, self.span(self.at, self.at + found.len_utf8()), message)
            }
            None => {
                let message = format!("expected {wanted}, but the text ends");
                Diagnostic::new(SYNTAX, self.span(self.at, self.at), message)
            }
        }
    }

    fn too_large(&self, message: String) -> Diagnostic {
        let end = (self.at + 1).min(self.text.len());
        Diagnostic::new(TOO_LARGE, self.span(self.at.min(end), end), message)
            .cause("Kiln bounds what it reads, so that no input can exhaust the machine it runs on")
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn span(&self, start: usize, end: usize) -> Location {
        // Offsets fit: the text is at most MAX_BYTES long.
        Location { file: self.file, span: Span::new(start as u32, end as u32) }
    }
}

/// Go decodes a repeated object onto the one it already has; every other value replaces the earlier one.
pub(crate) fn lay_over(earlier: &mut Entry, later: Entry) {
    earlier.key = later.key;
    lay_node_over(&mut earlier.value, later.value);
}

fn lay_node_over(under: &mut Node, over: Node) {
    match (&mut under.value, over.value) {
        (Value::Mapping(entries), Value::Mapping(later)) => {
            let index: HashMap<_, _> = entries.iter().enumerate().map(|(at, e)| (e.key.value.clone(), at)).collect();
            for entry in later {
                match index.get(&entry.key.value) {
                    Some(known) => lay_over(&mut entries[*known], entry),
                    None => entries.push(entry),
                }
            }
            under.at = over.at;
        }
        (_, value) => *under = Node { at: over.at, value },
    }
}

fn octal_help(written: &str) -> String {
    match i64::from_str_radix(written, 8) {
        Ok(number) => format!("write {number}, which is octal {written}"),
        Err(_) => "remove the leading zero".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SourceMap;
    use proptest::prelude::*;

    fn read(text: &str) -> (Option<Node>, Vec<Diagnostic>) {
        let mut sources = SourceMap::default();
        let file = sources.add("x.json", text);
        parse_json(file, sources.file(file))
    }

    fn refusal(text: &str) -> String {
        let (root, findings) = read(text);
        assert_eq!(root, None, "{text}");
        let found = &findings[0];
        let at = found.at.unwrap().span;
        format!("{}..{} {}: {}", at.start, at.end, found.code, found.message)
    }

    #[test]
    fn what_is_never_closed_is_to_be_closed() {
        for (text, expected) in [
            ("{", "close the object with `}`"),
            ("{\"a\":1", "close the object with `}`"),
            ("[1", "close the list with `]`"),
            ("{\"a\":1 \"b\"", "separate entries with a comma"),
        ] {
            let mut sources = SourceMap::default();
            let file = sources.add("x.json", text);
            let (_, findings) = parse_json(file, sources.file(file));
            assert_eq!(findings[0].help.as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn values_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("null", "null"),
            (" [1, -2, 2.5, 1e3, -0]\n", "[1,-2,2.5,1000.0,0]"),
            (r#""a\"\\\/\b\f\n\r\t\u00e9""#, "\"a\\\"\\\\/\\b\\f\\n\\r\\té\""),
            (r#""\ud83d\ude00""#, "\"😀\""),
            (r#""\ud83dx\ude00\ud83d\u0041""#, "\"\u{fffd}x\u{fffd}\u{fffd}A\""),
            (r#"{"a":{"b":[]},"c":true}"#, r#"{"a":{"b":[]},"c":true}"#),
            ("18446744073709551615", "18446744073709551615"),
        ] {
            let (root, findings) = read(text);
            assert_eq!(root.unwrap().to_json().to_string(), expected);
            assert_eq!(findings, []);
        }
    }

    #[test]
    fn spans_cover_exactly_the_value_and_the_key() {
        let text = r#"{ "mode" : 420 , "é": [true] }"#;
        let (root, _) = read(text);
        let root = root.unwrap();
        let slice = |at: Location| &text[at.span.start as usize..at.span.end as usize];
        assert_eq!(slice(root.at), text);
        assert_eq!(slice(root.entries()[0].key.at), "\"mode\"");
        assert_eq!(slice(root.get("mode").unwrap().at), "420");
        assert_eq!(slice(root.entries()[1].key.at), "\"é\"");
        assert_eq!(slice(root.get("é").unwrap().items()[0].at), "true");
    }

    #[test]
    fn a_number_with_a_fraction_is_not_a_whole_number() {
        assert_eq!(read("420.0").0.unwrap().value, Value::Float(420.0));
        assert_eq!(read("42e1").0.unwrap().value, Value::Float(420.0));
        assert_eq!(read("420").0.unwrap().value, Value::Integer(420));
    }

    #[test]
    fn broken_text_is_refused_with_its_place() {
        for (text, expected) in [
            ("", "0..0 KLN0400: the text is empty"),
            (" \n", "0..2 KLN0400: the text is empty"),
            ("\u{feff}{}", "0..3 KLN0400: the text begins with a byte-order mark"),
            ("{} x", "3..4 KLN0400: expected the end of the text, found `x`"),
            ("{}{}", "2..3 KLN0400: expected the end of the text, found `{`"),
            ("[1,]", "3..4 KLN0400: expected a value, found `]`"),
            ("{\"a\":1,}", "7..8 KLN0400: expected a key in double quotes, found `}`"),
            ("{", "1..1 KLN0400: expected a key in double quotes, but the text ends"),
            ("{a:1}", "1..2 KLN0400: expected a key in double quotes, found `a`"),
            ("{\"a\" 1}", "5..6 KLN0400: expected `:` behind the key, found `1`"),
            ("[1 2]", "3..4 KLN0400: expected `,` or `]`, found `2`"),
            ("[1", "2..2 KLN0400: expected `,` or `]`, but the text ends"),
            ("\"a", "0..1 KLN0400: a string is never closed"),
            ("\"a\nb\"", "2..3 KLN0400: a string contains the control character U+000A"),
            (r#""\x""#, "1..3 KLN0400: `\\x` is not an escape JSON knows"),
            (r#""\u12g4""#, "1..3 KLN0400: `\\u` is not followed by four hex digits"),
            ("0644", "0..4 KLN0400: `0644` begins with a zero"),
            ("1.", "2..2 KLN0400: expected a digit behind the decimal point, but the text ends"),
            ("-", "1..1 KLN0400: expected a digit behind `-`, but the text ends"),
            ("1e", "2..2 KLN0400: expected a digit in the exponent, but the text ends"),
            ("tru", "0..1 KLN0400: expected a value, found `t`"),
            ("// x", "0..1 KLN0400: expected a value, found `/`"),
        ] {
            assert_eq!(refusal(text), expected, "{text:?}");
        }
        assert_eq!(read("0644").1[0].help.as_deref(), Some("write 420, which is octal 0644"));
    }

    #[test]
    fn of_a_repeated_key_the_last_value_counts_and_objects_are_laid_over() {
        let (root, findings) = read(r#"{"a":1,"o":{"x":1,"y":2},"a":[2],"o":{"y":3}}"#);
        assert_eq!(root.unwrap().to_json().to_string(), r#"{"a":[2],"o":{"x":1,"y":3}}"#);
        let messages: Vec<_> = findings.iter().map(|f| (f.code, f.message.as_str())).collect();
        assert_eq!(
            messages,
            [
                (Code(401), "key `a` is written twice in one object"),
                (Code(401), "key `o` is written twice in one object")
            ]
        );
    }

    #[test]
    fn depth_and_number_of_values_are_bounded() {
        let deep = "[".repeat(200_000);
        assert_eq!(refusal(&deep), "129..130 KLN0402: lists and objects are nested more than 128 levels deep");
        let many = format!("[{}1]", "1,".repeat(MAX_VALUES));
        assert_eq!(refusal(&many), "1999999..2000000 KLN0402: the document has more than 1000000 values");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "[\\[\\]{}:,\"\\\\ua-f0-9.eE+\\-tn \u{e9}]{0,40}") {
            let (root, findings) = read(&text);
            prop_assert_eq!(root.is_none(), findings.iter().any(|f| f.code != DUPLICATE_KEY));
        }

        #[test]
        fn what_serde_json_accepts_is_read_alike(text in "[\\[\\]{}:,\"0-9. a]{0,24}") {
            if let Ok(value) = serde_json::from_str::<serde_json::Value>(&text) && read(&text).1.is_empty() {
                prop_assert_eq!(read(&text).0.unwrap().to_json(), value);
            }
        }
    }
}
