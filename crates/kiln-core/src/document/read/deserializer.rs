//! The serde side of [`super::read`]: one value of a document, its fields, items and keys.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::document::{Entry, Node, Value};
use crate::source::{Location, Sourced};

use super::State;
use super::integer::integer;
use super::problem::Problem;
use super::sourced::{SOURCED, SourcedAccess};
use super::unknown::unknown_field;

/// How the value was reached, as in `spec.interfaces[0].name`.
pub(super) enum Path<'p> {
    Root,
    Key(&'p Path<'p>, &'p Sourced<Box<str>>),
    Index(&'p Path<'p>, usize),
}

impl Path<'_> {
    pub(super) const ROOT: Path<'static> = Path::Root;

    /// Where the key stands that leads here.
    pub(super) fn key_place(&self) -> Option<Location> {
        if let Path::Key(_, key) = self { Some(key.at) } else { None }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Key(parent, key) if key.value.contains(['.', '/', '[']) => write!(f, "{parent}[{key}]"),
            Path::Key(Path::Root, key) => write!(f, "{key}"),
            Path::Key(parent, key) => write!(f, "{parent}.{key}"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// One value, read by serde.
#[derive(Clone, Copy)]
pub(super) struct NodeDeserializer<'de, 'p> {
    node: &'de Node,
    path: &'p Path<'p>,
    state: &'p State,
}

impl<'de, 'p> NodeDeserializer<'de, 'p> {
    pub(super) fn new(node: &'de Node, path: &'p Path<'p>, state: &'p State) -> Self {
        NodeDeserializer { node, path, state }
    }

    /// Runs `read` and notes this place in its error.
    fn here<T>(self, read: impl FnOnce(Self) -> Result<T, Problem>) -> Result<T, Problem> {
        read(self).map_err(|problem| problem.at(self.node, self.path, |node| self.state.is_aside(node)))
    }

    fn items<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match &self.node.value {
            Value::Sequence(items) => visitor.visit_seq(Items { of: self, items, index: 0 }),
            Value::Null => visitor.visit_seq(Items { of: self, items: &[], index: 0 }),
            _ => Err(Problem::wrong_type("a list")),
        }
    }

    fn fields(self, fields: Option<&'static [&'static str]>) -> Result<Fields<'de, 'p>, Problem> {
        match &self.node.value {
            Value::Mapping(entries) => Ok(Fields { of: self, entries, fields, value: None }),
            Value::Null => Ok(Fields { of: self, entries: &[], fields, value: None }),
            _ => Err(Problem::wrong_type("a mapping")),
        }
    }
}

macro_rules! integers {
    ($($method:ident $visit:ident $number:ty),*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
            self.here(|this| {
                visitor.$visit(integer::<$number>(this.node, <$number>::MIN as i128, <$number>::MAX as i128)?)
            })
        }
    )*};
}

impl<'de> Deserializer<'de> for NodeDeserializer<'de, '_> {
    type Error = Problem;

    integers! {
        deserialize_i8 visit_i8 i8, deserialize_i16 visit_i16 i16, deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64, deserialize_u8 visit_u8 u8, deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32, deserialize_u64 visit_u64 u64
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.here(|this| match &this.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(truth) => visitor.visit_bool(*truth),
            Value::Integer(number) => match (i64::try_from(*number), u64::try_from(*number)) {
                (Ok(number), _) => visitor.visit_i64(number),
                (_, Ok(number)) => visitor.visit_u64(number),
                _ => visitor.visit_i128(*number),
            },
            Value::Float(number) => visitor.visit_f64(*number),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Sequence(_) => this.items(visitor),
            Value::Mapping(_) => visitor.visit_map(this.fields(None)?),
        })
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.here(|this| match this.node.value {
            Value::Bool(truth) => visitor.visit_bool(truth),
            Value::Null => visitor.visit_bool(false),
            _ => Err(Problem::wrong_type("a boolean")),
        })
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.here(|this| match this.node.value {
            Value::Float(number) => visitor.visit_f64(number),
            Value::Integer(number) => visitor.visit_f64(number as f64),
            Value::Null => visitor.visit_f64(0.0),
            _ => Err(Problem::wrong_type("a number")),
        })
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.here(|this| match &this.node.value {
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Null => visitor.visit_borrowed_str(""),
            _ => Err(Problem::wrong_type("a string")),
        })
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.deserialize_str(visitor)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        if self.node.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.here(|this| this.items(visitor))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Problem> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Problem> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.here(|this| visitor.visit_map(this.fields(None)?))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        self.here(|this| visitor.visit_map(this.fields(Some(fields))?))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Problem> {
        if name == SOURCED {
            return self.here(|this| visitor.visit_seq(SourcedAccess::new(this.node.at, this)));
        }
        self.here(|this| visitor.visit_newtype_struct(this))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        self.here(|this| match &this.node.value {
            Value::String(text) => StrDeserializer::new(text).deserialize_enum(name, variants, visitor),
            Value::Mapping(_) => {
                MapAccessDeserializer::new(this.fields(None)?).deserialize_enum(name, variants, visitor)
            }
            _ => Err(Problem::wrong_type("a string")),
        })
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! { bytes byte_buf unit unit_struct identifier i128 u128 }
}

/// The items of a list that were not set aside.
struct Items<'de, 'p> {
    of: NodeDeserializer<'de, 'p>,
    items: &'de [Node],
    index: usize,
}

impl<'de> SeqAccess<'de> for Items<'de, '_> {
    type Error = Problem;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Problem> {
        while let Some(item) = self.items.get(self.index) {
            let path = Path::Index(self.of.path, self.index);
            self.index += 1;
            if !self.of.state.is_aside(item) {
                return seed.deserialize(NodeDeserializer::new(item, &path, self.of.state)).map(Some);
            }
        }
        Ok(None)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len() - self.index)
    }
}

/// The entries of a mapping that were not set aside; for a struct, those it knows.
struct Fields<'de, 'p> {
    of: NodeDeserializer<'de, 'p>,
    entries: &'de [Entry],
    fields: Option<&'static [&'static str]>,
    value: Option<&'de Entry>,
}

impl<'de> MapAccess<'de> for Fields<'de, '_> {
    type Error = Problem;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Problem> {
        while let [entry, rest @ ..] = self.entries {
            self.entries = rest;
            if self.of.state.is_aside(&entry.value) {
                continue;
            }
            if let Some(fields) = self.fields {
                if !fields.contains(&&*entry.key.value) {
                    self.of.state.warn(unknown_field(entry, self.of.path, fields));
                    continue;
                }
                if entry.value.is_null() {
                    continue;
                }
            }
            self.value = Some(entry);
            return seed.deserialize(KeyDeserializer(&entry.key)).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Problem> {
        let entry = self.value.take().ok_or_else(|| de::Error::custom("a value was asked for before its key"))?;
        let path = Path::Key(self.of.path, &entry.key);
        seed.deserialize(NodeDeserializer::new(&entry.value, &path, self.of.state))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.entries.len())
    }
}

/// A key: text, or text with its place.
struct KeyDeserializer<'de>(&'de Sourced<Box<str>>);

impl<'de> Deserializer<'de> for KeyDeserializer<'de> {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_borrowed_str(&self.0.value)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Problem> {
        if name == SOURCED {
            return visitor.visit_seq(SourcedAccess::new(self.0.at, self));
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        StrDeserializer::new(&self.0.value).deserialize_enum(name, variants, visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        seq tuple tuple_struct map struct identifier ignored_any
    }
}
