//! A parsed YAML or JSON document whose every key and value knows its place.
//!
//! Both formats give the same [`Node`]: rules and readers do not care which one a user wrote.
//! Scalars are resolved as the Kubernetes YAML reader does (YAML 1.1: `0644` is 420, `yes` is true), because the
//! same file must mean the same here and on the cluster it was written for.

use crate::source::{Location, Sourced};

pub mod emit;
pub mod json;
mod read;
pub mod yaml;

pub use read::read;

/// A value with its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Where the value stands.
    pub at: Location,
    /// What it is.
    pub value: Value,
}

/// What a [`Node`] holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing, `null` or `~`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number. Wide enough for every u64 and i64.
    Integer(i128),
    /// Any other number.
    Float(f64),
    /// Text.
    String(Box<str>),
    /// A list.
    Sequence(Vec<Node>),
    /// A mapping, in the order written. Keys are strings; duplicates were reported by the parser and the last one kept.
    Mapping(Vec<Entry>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::String(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::String(text.into())
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Value::Bool(truth)
    }
}

impl From<i128> for Value {
    fn from(number: i128) -> Self {
        Value::Integer(number)
    }
}

impl From<Vec<Node>> for Value {
    fn from(items: Vec<Node>) -> Self {
        Value::Sequence(items)
    }
}

/// One key of a mapping with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key and where it stands.
    pub key: Sourced<Box<str>>,
    /// The value.
    pub value: Node,
}

impl Node {
    /// The value under `key`, if this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|entry| &*entry.key.value == key).map(|entry| &entry.value)
    }

    /// The value under a path of keys.
    pub fn path(&self, keys: &[&str]) -> Option<&Node> {
        keys.iter().try_fold(self, |node, key| node.get(key))
    }

    /// The entries of a mapping; none for anything else.
    pub fn entries(&self) -> &[Entry] {
        if let Value::Mapping(entries) = &self.value { entries } else { &[] }
    }

    /// The items of a list; none for anything else.
    pub fn items(&self) -> &[Node] {
        if let Value::Sequence(items) = &self.value { items } else { &[] }
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        if let Value::String(text) = &self.value { Some(text) } else { None }
    }

    /// A whole number.
    pub fn as_integer(&self) -> Option<i128> {
        if let Value::Integer(number) = self.value { Some(number) } else { None }
    }

    /// A truth value.
    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(truth) = self.value { Some(truth) } else { None }
    }

    /// Whether there is nothing here.
    pub fn is_null(&self) -> bool {
        self.value == Value::Null
    }

    /// A value that nobody wrote: it stands where the value that made it necessary stands.
    pub fn made(value: impl Into<Value>, at: Location) -> Node {
        Node { at, value: value.into() }
    }

    /// The items of a list to change; none for anything else.
    pub fn items_mut(&mut self) -> &mut [Node] {
        if let Value::Sequence(items) = &mut self.value { items } else { &mut [] }
    }

    /// The value under `key` to change.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        let Value::Mapping(entries) = &mut self.value else { return None };
        entries.iter_mut().find(|entry| &*entry.key.value == key).map(|entry| &mut entry.value)
    }

    /// Puts `value` under `key`, in the old place when there was one. Anything but a mapping becomes a mapping.
    pub fn set(&mut self, key: &str, value: Node) {
        if let Some(old) = self.get_mut(key) {
            *old = value;
            return;
        }
        let entry = Entry { key: Sourced::new(key.into(), value.at), value };
        match &mut self.value {
            Value::Mapping(entries) => entries.push(entry),
            other => *other = Value::Mapping(vec![entry]),
        }
    }

    /// Takes `key` out of a mapping.
    pub fn take(&mut self, key: &str) -> Option<Node> {
        let Value::Mapping(entries) = &mut self.value else { return None };
        let index = entries.iter().position(|entry| &*entry.key.value == key)?;
        Some(entries.remove(index).value)
    }

    /// How a message calls this type of value.
    pub fn kind_name(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "a boolean",
            Value::Integer(_) | Value::Float(_) => "a number",
            Value::String(_) => "a string",
            Value::Sequence(_) => "a list",
            Value::Mapping(_) => "a mapping",
        }
    }

    /// The same value without places.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(truth) => (*truth).into(),
            Value::Integer(number) => match (u64::try_from(*number), i64::try_from(*number)) {
                (Ok(number), _) => number.into(),
                (_, Ok(number)) => number.into(),
                _ => serde_json::Number::from_f64(*number as f64).map_or(serde_json::Value::Null, Into::into),
            },
            Value::Float(number) => serde_json::Number::from_f64(*number).map_or(serde_json::Value::Null, Into::into),
            Value::String(text) => text.to_string().into(),
            Value::Sequence(items) => items.iter().map(Node::to_json).collect(),
            Value::Mapping(entries) => entries.iter().map(|e| (e.key.value.to_string(), e.value.to_json())).collect(),
        }
    }

    /// The dotted path of the key or value that stands at `at`, as in `spec.interfaces[0].name`.
    ///
    /// A written document nests by place, so the way down is a search by halves. A rendered one (a SiteConfig's host,
    /// say) has its parts from anywhere and is searched completely.
    pub fn path_of(&self, at: Location) -> Option<String> {
        let mut path = String::new();
        (self.descend(at, &mut path) || self.search(at, &mut path)).then_some(path)
    }

    /// Follows the places. Leaves `path` as it was when that leads nowhere.
    fn descend(&self, at: Location, path: &mut String) -> bool {
        if self.at == at {
            return true;
        }
        let length = path.len();
        let before = |start: Location| (start.file, start.span.start) <= (at.file, at.span.start);
        let found = match &self.value {
            Value::Mapping(entries) => {
                let next = entries.partition_point(|entry| before(entry.key.at));
                entries[..next].last().is_some_and(|entry| {
                    push_key(path, &entry.key.value);
                    entry.key.at == at || entry.value.descend(at, path)
                })
            }
            Value::Sequence(items) => {
                let next = items.partition_point(|item| before(item.at));
                items[..next].last().is_some_and(|item| {
                    path.push_str(&format!("[{}]", next - 1));
                    item.descend(at, path)
                })
            }
            _ => false,
        };
        if !found {
            path.truncate(length);
        }
        found
    }

    fn search(&self, at: Location, path: &mut String) -> bool {
        if self.at == at {
            return true;
        }
        let length = path.len();
        for entry in self.entries() {
            push_key(path, &entry.key.value);
            if entry.key.at == at || entry.value.search(at, path) {
                return true;
            }
            path.truncate(length);
        }
        for (index, item) in self.items().iter().enumerate() {
            path.push_str(&format!("[{index}]"));
            if item.search(at, path) {
                return true;
            }
            path.truncate(length);
        }
        false
    }
}

/// A key with characters that mean something in a path is put in brackets.
fn push_key(path: &mut String, key: &str) {
    match (key.contains(['.', '/', '[']), path.is_empty()) {
        (false, true) => path.push_str(key),
        (false, false) => path.extend([".", key]),
        (true, _) => path.extend(["[", key, "]"]),
    }
}
