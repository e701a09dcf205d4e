//! Where a value came from: file, byte span, and the text to show around it.
//!
//! Spans are byte offsets into the text that was parsed; lines and columns are worked out only when
//! something is printed. A text found inside another file (a manifest in a ConfigMap, Ignition JSON in an
//! annotation) is registered as a file of its own with a [`SourceFile::within`] pointing at the outer value.

use std::fmt;
use std::ops::Deref;

mod embedding;

use embedding::Embedding;

/// One text in a [`SourceMap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(u32);

/// A half-open range of bytes in one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u32,
    /// Offset behind the last byte.
    pub end: u32,
}

/// A span in a named file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The file.
    pub file: FileId,
    /// The bytes in it.
    pub span: Span,
}

/// A value and the place it was written at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sourced<T> {
    /// The value itself.
    pub value: T,
    /// Where the value (not its key) stands.
    pub at: Location,
}

impl FileId {
    /// The number behind the id; only the document reader, which passes places through serde, needs it.
    pub(crate) const fn index(self) -> u32 {
        self.0
    }

    /// The id behind a number that came from [`FileId::index`].
    pub(crate) const fn from_index(index: u32) -> Self {
        FileId(index)
    }
}

impl<T> Sourced<T> {
    /// Pairs a value with its place.
    pub const fn new(value: T, at: Location) -> Self {
        Sourced { value, at }
    }

    /// Keeps the place and changes the value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Sourced<U> {
        Sourced { value: change(self.value), at: self.at }
    }

    /// Borrows the value with its place.
    pub const fn as_ref(&self) -> Sourced<&T> {
        Sourced { value: &self.value, at: self.at }
    }
}

impl<T> Deref for Sourced<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: fmt::Display> fmt::Display for Sourced<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// One text and what it is called in messages.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// The path as the user gave it, or `outer.yaml (data.x)` for an embedded text.
    pub name: String,
    /// The whole text.
    pub text: String,
    /// For an embedded text: the value of the outer file it was taken from.
    pub within: Option<Location>,
    embedding: Embedding,
    line_starts: Vec<u32>,
}

/// All texts of one run.
#[derive(Debug, Clone, Default)]
pub struct SourceMap {
    files: Vec<SourceFile>,
}

/// One-based line and column; the column counts characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LineColumn {
    /// One-based line.
    pub line: u32,
    /// One-based column in characters.
    pub column: u32,
}

impl SourceMap {
    /// Registers a text. Texts over 4 GiB cannot be addressed and must be refused by the reader before.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> FileId {
        self.push(name.into(), text.into(), None)
    }

    /// Registers a text that was found inside another one.
    pub fn embed(&mut self, name: impl Into<String>, text: impl Into<String>, within: Location) -> FileId {
        self.push(name.into(), text.into(), Some(within))
    }

    fn push(&mut self, name: String, text: String, within: Option<Location>) -> FileId {
        let line_starts = std::iter::once(0)
            .chain(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at as u32 + 1))
            .collect();
        let embedding = within.map_or(Embedding::Opaque, |at| Embedding::find(self.file(at.file), at.span, &text));
        self.files.push(SourceFile { name, text, within, embedding, line_starts });
        FileId(self.files.len() as u32 - 1)
    }

    /// The text behind an id of this map.
    pub fn file(&self, id: FileId) -> &SourceFile {
        &self.files[id.0 as usize]
    }

    /// Every text, in the order of registration.
    pub fn files(&self) -> impl Iterator<Item = (FileId, &SourceFile)> {
        self.files.iter().enumerate().map(|(index, file)| (FileId(index as u32), file))
    }

    /// The same place in the file that exists on disk.
    ///
    /// A text that stands letter for letter in the outer file (a literal block, a quoted string without escapes) is
    /// followed to the byte; of any other only the outer value is known.
    pub fn outer(&self, mut at: Location) -> Location {
        while let Some(within) = self.file(at.file).within {
            at = self.outer_exact(at).unwrap_or(within);
        }
        at
    }

    /// The place one file further out; none when the text does not stand there letter for letter.
    pub fn outer_exact(&self, at: Location) -> Option<Location> {
        let inner = self.file(at.file);
        let within = inner.within?;
        let span = inner.embedding.outer_span(self.file(within.file), inner, at.span)?;
        Some(Location { file: within.file, span })
    }

    /// Makes a value unreadable here and in every text it is embedded in, so that no report can quote a secret.
    ///
    /// Spans stay valid: letters become `*`, white space and line ends stay.
    pub fn redact(&mut self, mut at: Location) {
        loop {
            self.files[at.file.0 as usize].redact(at.span);
            let Some(within) = self.file(at.file).within else { return };
            at = self.outer_exact(at).unwrap_or(within);
        }
    }

    /// Line and column of the first byte of a location.
    pub fn line_column(&self, at: Location) -> LineColumn {
        self.file(at.file).line_column(at.span.start)
    }
}

impl SourceFile {
    /// Line and column of a byte offset; past the end it is the end.
    pub fn line_column(&self, offset: u32) -> LineColumn {
        let line = self.line_starts.partition_point(|start| *start <= offset).max(1) - 1;
        let start = self.line_starts[line] as usize;
        let end = (offset as usize).min(self.text.len());
        let column = self.text.get(start..end).map_or(end.saturating_sub(start), |line| line.chars().count());
        LineColumn { line: line as u32 + 1, column: column as u32 + 1 }
    }

    fn redact(&mut self, span: Span) {
        let range = span.start as usize..(span.end as usize).min(self.text.len());
        let Some(value) = self.text.get(range.clone()) else { return };
        let hidden: String = value
            .chars()
            // as many bytes as before, so that every other span keeps pointing at the same letters
            .flat_map(|letter| {
                let (letter, count) = if letter.is_whitespace() { (letter, 1) } else { ('*', letter.len_utf8()) };
                std::iter::repeat_n(letter, count)
            })
            .collect();
        self.text.replace_range(range, &hidden);
    }

    /// Byte offset of a zero-based line and a zero-based column counted in characters, as scanners report them.
    pub fn offset(&self, line: usize, column: usize) -> u32 {
        let start = self.line_starts.get(line).copied().unwrap_or(self.text.len() as u32) as usize;
        let rest = &self.text[start..];
        let within = rest.char_indices().nth(column).map_or(rest.len(), |(at, _)| at);
        (start + within) as u32
    }
}

impl Span {
    /// The bytes from `start` up to `end`.
    pub const fn new(start: u32, end: u32) -> Self {
        Span { start, end }
    }

    /// Whether `other` lies inside.
    pub const fn contains(self, other: Span) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}
