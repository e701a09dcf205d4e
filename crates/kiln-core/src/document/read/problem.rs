//! Why a pass over a document stopped: the serde error, which learns its place on the way out.

use std::fmt;

use serde::de::{self, Expected, Unexpected};

use crate::diagnostic::{Code, Diagnostic};
use crate::document::{Node, Value};
use crate::source::Location;

use super::deserializer::Path;
use super::unknown::nearest;

/// The error of one pass. Boxed: it travels through every level.
#[derive(Debug)]
pub(super) struct Problem(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: Kind,
    place: Option<Place>,
}

#[derive(Debug)]
struct Place {
    node: *const Node,
    at: Location,
    path: String,
    found: String,
    help: Option<String>,
    /// A field of this mapping was set aside, so that it is missing is no news.
    follows: bool,
}

#[derive(Debug)]
enum Kind {
    Type { expected: String },
    Range { expected: String },
    Missing { field: &'static str },
    Variant { variants: &'static [&'static str] },
    Other { message: String },
}

impl Problem {
    pub(super) fn wrong_type(expected: impl Into<String>) -> Self {
        Problem::from_kind(Kind::Type { expected: expected.into() })
    }

    pub(super) fn out_of_range(expected: impl Into<String>) -> Self {
        Problem::from_kind(Kind::Range { expected: expected.into() })
    }

    fn from_kind(kind: Kind) -> Self {
        Problem(Box::new(Inner { kind, place: None }))
    }

    /// Notes where it happened, unless an inner value has done so.
    pub(super) fn at(mut self, node: &Node, path: &Path, is_aside: impl Fn(&Node) -> bool) -> Self {
        if self.0.place.is_none() {
            let (at, follows) = match self.0.kind {
                Kind::Missing { field } => (
                    missing_place(node, path),
                    node.entries().iter().any(|e| &*e.key.value == field && is_aside(&e.value)),
                ),
                _ => (node.at, false),
            };
            self.0.place =
                Some(Place { node, at, path: path.to_string(), found: describe(node), help: self.help(node), follows });
        }
        self
    }

    /// The value to set aside.
    pub(super) fn node(&self) -> Option<*const Node> {
        self.0.place.as_ref().map(|place| place.node)
    }

    /// The finding; none if it only follows from another one.
    pub(super) fn diagnostic(&self) -> Option<Diagnostic> {
        let place = self.0.place.as_ref()?;
        if place.follows {
            return None;
        }
        let name = if place.path.is_empty() { "the document".to_owned() } else { format!("`{}`", place.path) };
        let found = &place.found;
        let diagnostic = match &self.0.kind {
            Kind::Type { expected } => {
                Diagnostic::new(Code(0011), place.at, format!("{name} must be {expected}, but is {found}"))
                    .cause("the API server refuses an object with a value of another type")
            }
            Kind::Range { expected } => {
                Diagnostic::new(Code(0011), place.at, format!("{name} must be {expected}, but is {found}"))
            }
            Kind::Missing { field } => {
                let path = if place.path.is_empty() { (*field).to_owned() } else { format!("{}.{field}", place.path) };
                Diagnostic::new(Code(0012), place.at, format!("`{path}` is missing"))
            }
            Kind::Variant { variants } => Diagnostic::new(
                Code(0013),
                place.at,
                format!("{name} is {found}, but must be one of {}", variants.join(", ")),
            ),
            Kind::Other { message } => Diagnostic::new(Code(0013), place.at, format!("{name}: {message}")),
        };
        Some(match &place.help {
            Some(help) => diagnostic.help(help.as_str()),
            None => diagnostic,
        })
    }

    /// The edit that repairs it, where it is plain.
    fn help(&self, node: &Node) -> Option<String> {
        match (&self.0.kind, &node.value) {
            (Kind::Type { expected }, Value::String(text)) => match expected.as_str() {
                "a boolean" if matches!(&**text, "true" | "false") => Some(format!("remove the quotes: {text}")),
                "a boolean" => Some("write true or false, without quotes".into()),
                "a list" => Some("write it as a list: a line that begins with `- ` for each item".into()),
                "a mapping" => Some("write `key: value` lines, indented below".into()),
                _ if text.parse::<f64>().is_ok() => Some(format!("remove the quotes: {text}")),
                _ => Some("write a number".into()),
            },
            (Kind::Type { expected }, Value::Integer(_) | Value::Float(_) | Value::Bool(_))
                if expected == "a string" =>
            {
                Some("put it in quotes".into())
            }
            (Kind::Type { expected }, Value::Mapping(_)) if expected == "a list" => {
                Some("begin each item with `- `".into())
            }
            (Kind::Type { expected }, _) => Some(format!("write {expected}")),
            (Kind::Missing { field }, _) => Some(format!("add `{field}:` here")),
            (Kind::Variant { variants }, Value::String(text)) => {
                nearest(text, variants).map(|near| format!("did you mean {near}?"))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.diagnostic() {
            Some(diagnostic) => f.write_str(&diagnostic.message),
            None => f.write_str("the value does not fit"),
        }
    }
}

impl std::error::Error for Problem {}

impl de::Error for Problem {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Problem::from_kind(Kind::Other { message: message.to_string() })
    }

    fn invalid_type(_: Unexpected, expected: &dyn Expected) -> Self {
        Problem::wrong_type(expected.to_string())
    }

    fn missing_field(field: &'static str) -> Self {
        Problem::from_kind(Kind::Missing { field })
    }

    fn unknown_variant(_: &str, variants: &'static [&'static str]) -> Self {
        Problem::from_kind(Kind::Variant { variants })
    }
}

/// A mapping can be long: its key, or its first key, says well enough where something is missing.
fn missing_place(node: &Node, path: &Path) -> Location {
    path.key_place().or(node.entries().first().map(|entry| entry.key.at)).unwrap_or(node.at)
}

fn describe(node: &Node) -> String {
    const LONG: usize = 40;
    match &node.value {
        Value::Integer(number) => format!("the number {number}"),
        Value::Float(number) => format!("the number {number}"),
        Value::Bool(truth) => format!("the boolean {truth}"),
        Value::String(text) if text.chars().count() <= LONG => format!("the string {text:?}"),
        Value::String(text) => format!("the string {:?}…", text.chars().take(LONG).collect::<String>()),
        Value::Null | Value::Sequence(_) | Value::Mapping(_) => node.kind_name().to_owned(),
    }
}
