//! Fits a written config to the spec's table: types checked, keys in their own letter case, nulls gone.
//!
//! This is the step in which Go decodes JSON into Ignition's structs, so it accepts exactly what that accepts: any letter
//! case of a known key (reported), `null` for anything (same as not written; in a list, an empty item), keys nobody knows
//! (reported and carried along). A value of the wrong type is the only error.

use super::SpecVersion;
use super::schema::{self, Field, Object, Type};
use crate::diagnostic::{Code, Diagnostic};
use crate::document::json::lay_over;
use crate::document::{Entry, Node, Value};
use crate::source::Sourced;

pub(super) const WRONG_TYPE: Code = Code(406);
const UNKNOWN_KEY: Code = Code(407);
const KEY_CASE: Code = Code(408);
const NEWER_SPEC: Code = Code(409);
const DUPLICATE_KEY: Code = Code(401);

/// The config with every known field in place. Any error among the findings means that Ignition cannot read it.
pub(super) fn conform(root: Node, version: SpecVersion) -> (Node, Vec<Diagnostic>) {
    let mut conforming = Conforming { version, findings: Vec::new() };
    let root = conforming.object(root, schema::root(version), "the config");
    (root, conforming.findings)
}

struct Conforming {
    version: SpecVersion,
    findings: Vec<Diagnostic>,
}

impl Conforming {
    fn object(&mut self, node: Node, object: &'static Object, called: &str) -> Node {
        let at = node.at;
        let entries = match node.value {
            Value::Mapping(entries) => entries,
            Value::Null => Vec::new(),
            _ => {
                self.wrong_type(&node, called, Type::Object(object));
                return node;
            }
        };
        let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
        for entry in entries {
            match self.known(&entry.key, object) {
                Some(field) => {
                    if let Some(entry) = self.field(entry, field, object) {
                        self.keep(&mut kept, entry);
                    }
                }
                None => kept.push(entry),
            }
        }
        Node { at, value: Value::Mapping(kept) }
    }

    /// The field of this spec version a key stands for; a finding when there is none.
    fn known(&mut self, key: &Sourced<Box<str>>, object: &'static Object) -> Option<&'static Field> {
        let field = object.field_any_case(&key.value);
        if let Some(field) = field.filter(|field| field.since <= self.version.minor()) {
            return Some(field);
        }
        self.findings.push(match field {
            Some(field) => self.needs_newer_spec(key, field, object),
            None => self.unknown_key(key, object),
        });
        None
    }

    fn field(&mut self, entry: Entry, field: &'static Field, object: &'static Object) -> Option<Entry> {
        let Entry { key, value } = entry;
        if &*key.value != field.name {
            let message = format!("key `{}` is written in another letter case than `{}`", key.value, field.name);
            self.findings.push(
                Diagnostic::new(KEY_CASE, key.at, message)
                    .cause("Ignition's JSON reader accepts any letter case, but warns; other readers ignore such a key")
                    .help(format!("write `{}`", field.name)),
            );
        }
        if value.is_null() {
            return None;
        }
        let called = format!("`{}` of the {}", field.name, object.name);
        let value = self.value(value, field, &called);
        Some(Entry { key: Sourced::new(field.name.into(), key.at), value })
    }

    fn value(&mut self, node: Node, field: &'static Field, called: &str) -> Node {
        let fits = match (field.holds, &node.value) {
            (Type::String, Value::String(_)) | (Type::Boolean, Value::Bool(_)) => true,
            (Type::Integer, Value::Integer(number)) => i64::try_from(*number).is_ok(),
            (Type::Object(inner), Value::Mapping(_)) => return self.object(node, inner, called),
            (Type::Objects(inner), Value::Sequence(_)) => {
                return self.items(node, |this, item| this.object(item, inner, called));
            }
            (Type::Strings, Value::Sequence(_)) => {
                return self.items(node, |this, item| {
                    match item.value {
                        Value::String(_) => {}
                        Value::Null => return Node { at: item.at, value: Value::String("".into()) },
                        _ => this.wrong_type(&item, called, Type::String),
                    }
                    item
                });
            }
            _ => false,
        };
        if !fits {
            self.wrong_type(&node, called, field.holds);
        }
        node
    }

    fn items(&mut self, node: Node, mut each: impl FnMut(&mut Self, Node) -> Node) -> Node {
        let Value::Sequence(items) = node.value else { return node };
        let items = items.into_iter().map(|item| each(self, item)).collect();
        Node { at: node.at, value: Value::Sequence(items) }
    }

    /// Two keys that differ only in letter case are the same field to Go.
    fn keep(&mut self, kept: &mut Vec<Entry>, entry: Entry) {
        let Some(earlier) = kept.iter_mut().find(|known| known.key.value == entry.key.value) else {
            kept.push(entry);
            return;
        };
        self.findings.push(
            Diagnostic::new(
                DUPLICATE_KEY,
                entry.key.at,
                format!("`{}` is written twice, in two letter cases", entry.key.value),
            )
            .cause("Ignition's JSON reader does not tell letter cases apart and takes the last value")
            .help("keep one of the two entries")
            .related(earlier.key.at, "first written here"),
        );
        lay_over(earlier, entry);
    }

    fn wrong_type(&mut self, node: &Node, called: &str, wanted: Type) {
        let found = match &node.value {
            Value::Float(number) if number.is_finite() => format!("the number {number:?}"),
            Value::Integer(number) => format!("the number {number}"),
            Value::Mapping(_) => "an object".to_owned(),
            _ => node.kind_name().to_owned(),
        };
        let help = match (&node.value, wanted) {
            (Value::Float(number), Type::Integer) if number.fract() == 0.0 && number.abs() < 1e15 => {
                format!("write {number:.0}")
            }
            (Value::String(text), Type::Integer) => match i64::from_str_radix(text.trim_start_matches("0o"), 8) {
                Ok(number) if text.starts_with('0') => format!("write {number}, which is octal {text}"),
                _ => "write the number without quotes".to_owned(),
            },
            (Value::String(text), Type::Boolean) if matches!(&**text, "true" | "false") => {
                format!("write {text} without quotes")
            }
            (Value::String(_), Type::Strings) => "put the string in brackets: [\"…\"]".to_owned(),
            (Value::Mapping(_), Type::Objects(_)) => "put the object in brackets: [{…}]".to_owned(),
            (Value::Integer(number), Type::String) => format!("write \"{number}\""),
            _ => format!("write {} there", wanted.describe()),
        };
        self.findings.push(
            Diagnostic::new(WRONG_TYPE, node.at, format!("{called} must be {}, but it is {found}", wanted.describe()))
                .cause(match wanted {
                    Type::Integer => {
                        "Ignition reads only whole numbers of 64 bits, written without fraction or exponent"
                    }
                    _ => "Ignition refuses a config in which a field has another type than the spec says",
                })
                .help(help),
        );
    }

    fn needs_newer_spec(&self, key: &Sourced<Box<str>>, field: &'static Field, object: &'static Object) -> Diagnostic {
        let major = if self.version.is_v2() { 2 } else { 3 };
        let needed = format!("{major}.{}.0", field.since);
        let message = format!(
            "`{}` of the {} needs spec {needed}, but the config is written in {}",
            key.value, object.name, self.version
        );
        Diagnostic::new(NEWER_SPEC, key.at, message)
            .cause(format!("an Ignition that reads spec {} ignores the key", self.version))
            .help(format!("set `ignition.version` to `{needed}` if the image's Ignition knows it, or remove the key"))
    }

    fn unknown_key(&self, key: &Sourced<Box<str>>, object: &'static Object) -> Diagnostic {
        let known: Vec<_> = object.fields.iter().filter(|field| field.since <= self.version.minor()).collect();
        let near = known
            .iter()
            .map(|field| (strsim::damerau_levenshtein(field.name, &key.value), field.name))
            .min()
            .filter(|(distance, name)| *distance <= 1 + name.len() / 4);
        let help = match near {
            Some((_, name)) => format!("did you mean `{name}`?"),
            None => {
                let names: Vec<_> = known.iter().map(|field| format!("`{}`", field.name)).collect();
                format!("remove it; a {} has {}", object.name, names.join(", "))
            }
        };
        Diagnostic::new(
            UNKNOWN_KEY,
            key.at,
            format!("spec {} has no key `{}` in a {}", self.version, key.value, object.name),
        )
        .cause("Ignition ignores keys it does not know, after a warning nobody sees at boot")
        .help(help)
    }
}
