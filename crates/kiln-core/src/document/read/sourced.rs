//! How a place travels through serde, which knows nothing of places.
//!
//! A type that wants its place asks for a newtype struct with the name [`SOURCED`] and gets a sequence: file, first byte,
//! end, then the value. Any other serde format gives something else for that name and is refused.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::U32Deserializer;
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, IntoDeserializer, SeqAccess, Visitor};

use crate::source::{FileId, Location, Sourced, Span};

use super::problem::Problem;

/// The name that asks for a place.
pub(super) const SOURCED: &str = "$kiln::Sourced";

/// File, first byte, end, value.
pub(super) struct SourcedAccess<D> {
    numbers: [u32; 3],
    next: usize,
    value: Option<D>,
}

impl<D> SourcedAccess<D> {
    pub(super) fn new(at: Location, value: D) -> Self {
        SourcedAccess { numbers: [at.file.index(), at.span.start, at.span.end], next: 0, value: Some(value) }
    }
}

impl<'de, D: Deserializer<'de, Error = Problem>> SeqAccess<'de> for SourcedAccess<D> {
    type Error = Problem;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Problem> {
        if let Some(number) = self.numbers.get(self.next) {
            self.next += 1;
            let number: U32Deserializer<Problem> = number.into_deserializer();
            return seed.deserialize(number).map(Some);
        }
        self.value.take().map(|value| seed.deserialize(value)).transpose()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Sourced<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_sourced(deserializer, PhantomData)
    }
}

/// Reads a place and a value that is read by `seed`.
pub(super) fn deserialize_sourced<'de, D: Deserializer<'de>, S: DeserializeSeed<'de>>(
    deserializer: D,
    seed: S,
) -> Result<Sourced<S::Value>, D::Error> {
    deserializer.deserialize_newtype_struct(SOURCED, SourcedVisitor(seed))
}

struct SourcedVisitor<S>(S);

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for SourcedVisitor<S> {
    type Value = Sourced<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that knows its place, which only documents of Kiln have")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
        let mut number = || parts.next_element::<u32>()?.ok_or_else(|| de::Error::custom("a place is incomplete"));
        let (file, start, end) = (number()?, number()?, number()?);
        let at = Location { file: FileId::from_index(file), span: Span::new(start, end) };
        let value = parts.next_element_seed(self.0)?.ok_or_else(|| de::Error::custom("a place without a value"))?;
        Ok(Sourced::new(value, at))
    }
}
