//! Events of the YAML scanner put together to [`Node`]s, with every bound of [`super`] kept.
//!
//! There is no recursion over the input: open lists and mappings wait on a stack of frames.
//! Merge keys (`<<`) follow go-yaml v2: what is merged overrides keys written before the `<<` and is overridden by keys
//! behind it. Other readers let the written key win, so the first case is reported.

use std::borrow::Cow;
use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span as Marks, Tag};

use crate::diagnostic::{Code, Diagnostic};
use crate::source::{FileId, Location, Sourced, Span};

use super::super::{Entry, Node, Value};
use super::cursor::Cursor;
use super::scalar::{self, ScalarTag};
use super::{MAX_DEPTH, MAX_EXPANSION, MAX_NODES, syntax};

/// One document's text and where it stands in its file.
pub(super) struct Piece<'t> {
    pub(super) file: FileId,
    pub(super) base: u32,
    pub(super) text: &'t str,
}

/// What one file may still use.
pub(super) struct Budget {
    nodes: usize,
    expansion: usize,
    spent: bool,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { nodes: MAX_NODES, expansion: MAX_EXPANSION, spent: false }
    }
}

impl Budget {
    /// Takes `values` at once, if there are so many left.
    pub(super) fn take(&mut self, values: usize) -> bool {
        let left = self.nodes.checked_sub(values);
        self.nodes = left.unwrap_or(self.nodes);
        left.is_some()
    }

    /// Whether a bound was hit, so that reading on makes no sense.
    pub(super) fn spent(&self) -> bool {
        self.spent
    }
}

/// The documents of one piece; one, unless `...` is used. Nothing is kept of a document with a syntax error.
pub(super) fn build(piece: &Piece, budget: &mut Budget, diagnostics: &mut Vec<Diagnostic>) -> Vec<Node> {
    let mut builder = Builder {
        piece,
        cursor: Cursor::new(piece.text),
        budget,
        diagnostics,
        frames: Vec::new(),
        anchors: HashMap::new(),
        documents: Vec::new(),
    };
    for event in Parser::new_from_str(piece.text) {
        let step = match event {
            Ok((event, marks)) => builder.take(event, marks),
            Err(error) => Err(syntax::explain(piece, builder.place(*error.marker()), error.info())),
        };
        if let Err(stop) = step {
            builder.diagnostics.push(*stop);
            break;
        }
    }
    builder.documents
}

/// Ends the document. Boxed because it is rare and large.
pub(super) type Stop = Box<Diagnostic>;

struct Builder<'t, 'b> {
    piece: &'b Piece<'t>,
    cursor: Cursor<'t>,
    budget: &'b mut Budget,
    diagnostics: &'b mut Vec<Diagnostic>,
    frames: Vec<Frame>,
    anchors: HashMap<usize, Anchored>,
    documents: Vec<Node>,
}

/// A finished value that aliases may repeat.
struct Anchored {
    node: Node,
    weight: usize,
    height: usize,
}

/// A list or mapping that is still open.
struct Frame {
    start: usize,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Mapping { entries: Vec<Entry>, merges: Vec<Merge>, key: Key },
}

/// What stands before the colon that was read last.
enum Key {
    Awaited,
    Text(Sourced<Box<str>>),
    Merge(Location),
    /// Already reported; its value is dropped.
    Refused,
}

/// A `<<` and how many keys stand before it.
struct Merge {
    position: usize,
    at: Location,
    value: Node,
}

impl Builder<'_, '_> {
    fn take(&mut self, event: Event, marks: Marks) -> Result<(), Stop> {
        match event {
            Event::Scalar(text, style, anchor, tag) => self.scalar(text, style, anchor, tag.as_deref(), marks),
            Event::SequenceStart(anchor, tag) => {
                let start = self.cursor.start(marks, anchor != 0 || tag.is_some());
                self.open(start, anchor, Content::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                let start = self.cursor.start(marks, anchor != 0 || tag.is_some());
                self.open(
                    start,
                    anchor,
                    Content::Mapping { entries: Vec::new(), merges: Vec::new(), key: Key::Awaited },
                )
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(marks),
            Event::Alias(anchor) => self.alias(anchor, marks),
            Event::DocumentStart(_) => {
                self.anchors.clear();
                Ok(())
            }
            Event::DocumentEnd | Event::StreamStart | Event::StreamEnd | Event::Nothing => Ok(()),
        }
    }

    fn scalar(
        &mut self,
        text: Cow<str>,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
        marks: Marks,
    ) -> Result<(), Stop> {
        let (start, end) = self.cursor.scalar(marks, style, anchor != 0 || tag.is_some(), text.is_empty());
        let at = self.location(start, end);
        self.count(at)?;
        let plain = style == ScalarStyle::Plain;
        if plain && text == "<<" && tag.is_none() && self.awaits_key() {
            self.set_key(Key::Merge(at));
            return Ok(());
        }
        let value = scalar::resolve(&text, plain, ScalarTag::of(tag)).unwrap_or_else(|problem| {
            self.diagnostics.push(
                Diagnostic::new(Code(0006), at, problem)
                    .cause(
                        "an explicit tag decides the type, and the Kubernetes reader refuses a value that does not fit",
                    )
                    .help("remove the tag or correct the value"),
            );
            Value::String(text.as_ref().into())
        });
        self.finish(Node { at, value }, anchor)
    }

    fn open(&mut self, start: usize, anchor: usize, content: Content) -> Result<(), Stop> {
        let at = self.location(start, start);
        self.count(at)?;
        if self.frames.len() >= MAX_DEPTH {
            return Err(self.too_deep(at));
        }
        self.frames.push(Frame { start, anchor, content });
        Ok(())
    }

    fn close(&mut self, marks: Marks) -> Result<(), Stop> {
        let Some(Frame { mut start, anchor, content }) = self.frames.pop() else { return Ok(()) };
        let base = self.piece.base as usize;
        let (value, last_child) = match content {
            Content::List(items) => {
                let last = items.last().map_or(start, |item| item.at.span.end as usize - base);
                if let Some(first) = items.first() {
                    start = self.cursor.list_start(start, first.at.span.start as usize - base);
                }
                (Value::Sequence(items), last)
            }
            Content::Mapping { entries, merges, .. } => {
                let last = entries.last().map_or(start, |entry| entry.value.at.span.end as usize - base);
                let merged = merges.last().map_or(last, |merge| merge.value.at.span.end as usize - base);
                (Value::Mapping(self.settle(entries, merges)), last.max(merged))
            }
        };
        let end = self.cursor.end(marks, last_child).max(start);
        self.finish(Node { at: self.location(start, end), value }, anchor)
    }

    fn alias(&mut self, anchor: usize, marks: Marks) -> Result<(), Stop> {
        let (start, end) = (self.cursor.byte(marks.start), self.cursor.byte(marks.end));
        let at = self.location(start, start + self.piece.text[start..end].trim_end().len());
        let Some(known) = self.anchors.get(&anchor) else {
            return Err(Box::new(
                Diagnostic::new(Code(0004), at, format!("{} stands inside the value it repeats", self.text(at)))
                    .help("remove the alias; a value cannot contain itself"),
            ));
        };
        if known.weight > self.budget.expansion {
            return Err(self.too_much(at));
        }
        if self.frames.len() + known.height > MAX_DEPTH {
            return Err(self.too_deep(at));
        }
        self.budget.expansion -= known.weight;
        let value = known.node.value.clone();
        self.finish(Node { at, value }, 0)
    }

    /// Puts a finished value where it belongs.
    fn finish(&mut self, node: Node, anchor: usize) -> Result<(), Stop> {
        if anchor != 0 {
            let (weight, height) = measure(&node);
            if weight > self.budget.expansion {
                return Err(self.too_much(node.at));
            }
            self.budget.expansion -= weight;
            self.anchors.insert(anchor, Anchored { node: node.clone(), weight, height });
        }
        if self.awaits_key() {
            let key = self.key_of(node);
            self.set_key(key);
            return Ok(());
        }
        match self.frames.last_mut().map(|frame| &mut frame.content) {
            None => self.documents.push(node),
            Some(Content::List(items)) => items.push(node),
            Some(Content::Mapping { entries, merges, key }) => match std::mem::replace(key, Key::Awaited) {
                Key::Text(key) => entries.push(Entry { key, value: node }),
                Key::Merge(at) => merges.push(Merge { position: entries.len(), at, value: node }),
                Key::Refused | Key::Awaited => {}
            },
        }
        Ok(())
    }

    fn awaits_key(&self) -> bool {
        matches!(self.frames.last(), Some(Frame { content: Content::Mapping { key: Key::Awaited, .. }, .. }))
    }

    fn set_key(&mut self, new: Key) {
        if let Some(Frame { content: Content::Mapping { key, .. }, .. }) = self.frames.last_mut() {
            *key = new;
        }
    }

    fn key_of(&mut self, node: Node) -> Key {
        let (at, kind) = (node.at, node.kind_name());
        if let Some(text) = scalar::key_text(node.value) {
            return Key::Text(Sourced::new(text, at));
        }
        self.diagnostics.push(syntax::template(self.piece, at).unwrap_or_else(|| {
            Diagnostic::new(Code(0007), at, format!("{kind} is used as a key"))
                .cause("Kubernetes objects are JSON, where keys are text")
                .help("write the key as text; put it in quotes if it begins with `{`, `[` or `?`")
        }));
        Key::Refused
    }

    /// Applies merge keys and keeps the last of several equal keys.
    fn settle(&mut self, entries: Vec<Entry>, merges: Vec<Merge>) -> Vec<Entry> {
        if merges.is_empty() { self.drop_duplicates(entries) } else { self.apply_merges(entries, merges) }
    }

    fn drop_duplicates(&mut self, entries: Vec<Entry>) -> Vec<Entry> {
        if !has_duplicates(&entries) {
            return entries;
        }
        let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
        let mut places: HashMap<Box<str>, usize> = HashMap::with_capacity(entries.len());
        for entry in entries {
            match places.get(&entry.key.value) {
                Some(&place) => {
                    self.diagnostics.push(duplicate(&kept[place], &entry));
                    kept[place] = entry;
                }
                None => {
                    places.insert(entry.key.value.clone(), kept.len());
                    kept.push(entry);
                }
            }
        }
        kept
    }

    fn apply_merges(&mut self, entries: Vec<Entry>, merges: Vec<Merge>) -> Vec<Entry> {
        let mut result = Merged::default();
        let mut merges = merges.into_iter().peekable();
        for (position, entry) in entries.into_iter().enumerate() {
            while let Some(merge) = merges.next_if(|merge| merge.position <= position) {
                self.merge(&mut result, merge);
            }
            if let Some((old, false)) = result.set(entry.clone(), false) {
                self.diagnostics.push(duplicate(&old, &entry));
            }
        }
        for merge in merges {
            self.merge(&mut result, merge);
        }
        result.entries
    }

    fn merge(&mut self, result: &mut Merged, merge: Merge) {
        let sources = match merge.value.value {
            Value::Mapping(entries) => vec![entries],
            // Earlier mappings of the list win, so they are put in last.
            Value::Sequence(items) if items.iter().all(|item| matches!(item.value, Value::Mapping(_))) => items
                .into_iter()
                .rev()
                .map(|item| if let Value::Mapping(entries) = item.value { entries } else { Vec::new() })
                .collect(),
            _ => {
                self.diagnostics.push(
                    Diagnostic::new(Code(0008), merge.value.at, "the value of the merge key `<<` is no mapping")
                        .cause("`<<` copies the keys of a mapping, or of a list of mappings, into this one")
                        .help("point it at a mapping, as in `<<: *defaults`, or put the key in quotes if it is meant as text"),
                );
                return;
            }
        };
        for entry in sources.into_iter().flatten() {
            let key = entry.key.clone();
            if let Some((old, false)) = result.set(entry, true) {
                self.diagnostics.push(
                    Diagnostic::new(Code(0005), old.key.at, format!("`{}` is replaced by the value merged below", key.value))
                        .cause("the Kubernetes YAML reader lets `<<` override keys written before it; kustomize does the opposite")
                        .help("move the `<<` line to the top of the mapping")
                        .related(merge.at, "this merge key brings another value"),
                );
            }
        }
    }

    fn count(&mut self, at: Location) -> Result<(), Stop> {
        if self.budget.nodes == 0 {
            self.budget.spent = true;
            return Err(Box::new(
                Diagnostic::new(Code(0003), at, format!("the file holds more than {MAX_NODES} values"))
                    .cause("Kiln bounds the memory one file can take")
                    .help("split the file"),
            ));
        }
        self.budget.nodes -= 1;
        Ok(())
    }

    fn too_deep(&self, at: Location) -> Stop {
        Box::new(syntax::too_deep(at))
    }

    fn too_much(&mut self, at: Location) -> Stop {
        self.budget.spent = true;
        Box::new(
            Diagnostic::new(Code(0004), at, format!("{} repeats too much: the rest of the file was not read", self.text(at)))
                .cause(format!("what anchors and aliases add to one file is limited to {} MiB, so that a small file cannot fill the memory", MAX_EXPANSION >> 20))
                .help("write the values out, or repeat less"),
        )
    }

    fn place(&mut self, marker: Marker) -> Location {
        let start = self.cursor.byte(marker);
        let length = self.piece.text[start..].chars().next().filter(|next| *next != '\n').map_or(0, char::len_utf8);
        self.location(start, start + length)
    }

    fn location(&self, start: usize, end: usize) -> Location {
        let base = self.piece.base;
        Location { file: self.piece.file, span: Span::new(base + start as u32, base + end as u32) }
    }

    /// The first word at a place, for messages about anchors and aliases.
    fn text(&self, at: Location) -> String {
        let start = (at.span.start - self.piece.base) as usize;
        let word: String = self.piece.text[start..]
            .chars()
            .take_while(|c| !c.is_whitespace() && !matches!(c, ',' | ']' | '}'))
            .take(40)
            .collect();
        format!("`{word}`")
    }
}

/// A mapping under merge keys: for each key, whether it was merged.
#[derive(Default)]
struct Merged {
    entries: Vec<Entry>,
    merged: Vec<bool>,
    places: HashMap<Box<str>, usize>,
}

impl Merged {
    /// Sets a key and gives back the entry it replaces and whether that one was merged.
    fn set(&mut self, entry: Entry, merged: bool) -> Option<(Entry, bool)> {
        if let Some(&place) = self.places.get(&entry.key.value) {
            let before = std::mem::replace(&mut self.merged[place], merged);
            return Some((std::mem::replace(&mut self.entries[place], entry), before));
        }
        self.places.insert(entry.key.value.clone(), self.entries.len());
        self.entries.push(entry);
        self.merged.push(merged);
        None
    }
}

/// Whether a key comes twice.
pub(super) fn has_duplicates(entries: &[Entry]) -> bool {
    const FEW: usize = 12;
    if entries.len() <= FEW {
        return entries
            .iter()
            .enumerate()
            .any(|(index, entry)| entries[..index].iter().any(|earlier| earlier.key.value == entry.key.value));
    }
    let mut seen = std::collections::HashSet::with_capacity(entries.len());
    !entries.iter().all(|entry| seen.insert(&*entry.key.value))
}

fn duplicate(first: &Entry, last: &Entry) -> Diagnostic {
    Diagnostic::new(Code(0005), last.key.at, format!("`{}` is written twice; this one is used", last.key.value))
        .cause("the Kubernetes YAML reader keeps the last of several equal keys without a word; kustomize refuses them")
        .help("remove one of the two")
        .related(first.key.at, "this one is ignored")
}

/// Bytes a copy takes, and how deep it is nested.
fn measure(node: &Node) -> (usize, usize) {
    let own = size_of::<Node>();
    match &node.value {
        Value::String(text) => (own + text.len(), 0),
        Value::Sequence(items) => items
            .iter()
            .map(measure)
            .fold((own, 1), |(weight, height), (more, below)| (weight + more, height.max(below + 1))),
        Value::Mapping(entries) => entries.iter().fold((own, 1), |(weight, height), entry| {
            let (more, below) = measure(&entry.value);
            (weight + more + size_of_val(&entry.key) + entry.key.value.len(), height.max(below + 1))
        }),
        Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) => (own, 0),
    }
}
