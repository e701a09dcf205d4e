//! Texts that resemble each other, kept small.
//!
//! The objects of a collection say the same words in the same order: of ten thousand hosts each differs from the first in
//! some two hundred bytes. A [`Packed`] text is what LZ4 leaves of it when it may refer to such a sample; taking it
//! apart costs a microsecond or two. [`Sample`] chooses what to refer to as texts come by.
//!
//! **Invariant:** what went in comes out, byte by byte; a text that nothing resembles is kept as it is.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use lz4_flex::block::{compress_with_dict, decompress_into_with_dict};

/// Shorter texts are not worth it.
const SHORTEST: usize = 128;
/// Longer ones are contents of their own, which resemble nothing and would take long.
const LONGEST: usize = 64 << 10;
/// A larger sample would cost every text the time to look through it.
const LARGEST_SAMPLE: usize = 8 << 10;
/// One text in so many is tried as a sample for the next one.
const TRIED: u32 = 32;

/// A text, packed.
#[derive(Clone)]
pub struct Packed {
    /// What it refers to; nothing when it is kept as it is.
    sample: Option<Arc<[u8]>>,
    bytes: Box<[u8]>,
    length: u32,
    /// So many bytes are the first ones of the sample.
    shared: u16,
}

impl Packed {
    /// Packs a text that may resemble `sample`.
    pub fn new(text: &[u8], sample: Option<&Arc<[u8]>>) -> Packed {
        let plain = || Packed { sample: None, bytes: text.into(), length: 0, shared: 0 };
        let (Some(sample), Ok(length)) = (sample, u32::try_from(text.len())) else { return plain() };
        if !(SHORTEST..=LONGEST).contains(&text.len()) {
            return plain();
        }
        let bytes = compress_with_dict(text, sample);
        if bytes.len() > text.len() / 4 * 3 {
            return plain();
        }
        let shared = text.iter().zip(&**sample).take(usize::from(u16::MAX)).take_while(|(own, other)| own == other);
        let shared = u16::try_from(shared.count()).unwrap_or(u16::MAX);
        Packed { sample: Some(Arc::clone(sample)), bytes: bytes.into(), length, shared }
    }

    /// Bytes of the text.
    pub fn len(&self) -> usize {
        if self.sample.is_some() { self.length as usize } else { self.bytes.len() }
    }

    /// Whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The text.
    pub fn text(&self) -> Cow<'_, [u8]> {
        if self.sample.is_none() {
            return Cow::Borrowed(&self.bytes);
        }
        let mut text = Vec::with_capacity(self.len());
        self.append_to(&mut text);
        Cow::Owned(text)
    }

    /// Appends the text.
    pub fn append_to(&self, buffer: &mut Vec<u8>) {
        let Some(sample) = &self.sample else { return buffer.extend_from_slice(&self.bytes) };
        let begin = buffer.len();
        buffer.resize(begin + self.len(), 0);
        let taken = decompress_into_with_dict(&self.bytes, &mut buffer[begin..], sample);
        // What was packed here can be taken apart.
        debug_assert_eq!(taken.ok(), Some(self.len()));
    }

    /// Whether the text begins with these bytes. Those it shares with its sample are not taken apart for that.
    pub fn starts_with(&self, prefix: &[u8]) -> bool {
        match &self.sample {
            Some(sample) if prefix.len() <= usize::from(self.shared) => sample.starts_with(prefix),
            _ => self.text().starts_with(prefix),
        }
    }
}

impl PartialEq for Packed {
    fn eq(&self, other: &Packed) -> bool {
        self.len() == other.len() && self.text() == other.text()
    }
}

impl Eq for Packed {}

impl PartialEq<[u8]> for Packed {
    fn eq(&self, other: &[u8]) -> bool {
        self.len() == other.len() && *self.text() == *other
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It may have secrets in it.
        write!(f, "Packed({} bytes)", self.len())
    }
}

/// What the texts of one kind are packed by: one of them, until another serves better.
#[derive(Clone, Default)]
pub struct Sample {
    chosen: Option<Arc<[u8]>>,
    /// Whether the next text is packed better by this one.
    candidate: Option<Arc<[u8]>>,
    seen: u32,
}

impl Sample {
    /// Packs a text, and learns from it: objects that get a status resemble each other more than what they were.
    pub fn pack(&mut self, text: &[u8]) -> Packed {
        let packed = Packed::new(text, self.chosen.as_ref());
        if !(SHORTEST..=LARGEST_SAMPLE).contains(&text.len()) {
            return packed;
        }
        if let Some(candidate) = self.candidate.take() {
            let other = Packed::new(text, Some(&candidate));
            if other.bytes.len() < packed.bytes.len() / 4 * 3 {
                self.chosen = Some(candidate);
                return other;
            }
        }
        self.seen = self.seen.wrapping_add(1);
        if self.chosen.is_none() {
            self.chosen = Some(text.into());
        } else if self.seen.is_multiple_of(TRIED) {
            self.candidate = Some(text.into());
        }
        packed
    }
}

impl fmt::Debug for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sample({} bytes)", self.chosen.as_ref().map_or(0, |chosen| chosen.len()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host(number: u32) -> String {
        format!(
            r#"{{"apiVersion":"kiln.dev/v1alpha1","kind":"Host","metadata":{{"name":"machine-{number}","namespace":"edge"}},"spec":{{"role":"worker","macAddress":"52:54:00:00:{:02x}:{:02x}","network":{{"interfaces":[{{"name":"eno1","type":"ethernet","state":"up"}}]}}}}}}"#,
            number / 256,
            number % 256
        )
    }

    #[test]
    fn texts_that_resemble_each_other_become_small() {
        let mut sample = Sample::default();
        let packed: Vec<Packed> = (0..100).map(|number| sample.pack(host(number).as_bytes())).collect();
        for (number, packed) in (0..).zip(&packed) {
            assert_eq!(*packed, *host(number).as_bytes());
            assert_eq!(packed.len(), host(number).len());
        }
        let bytes: usize = packed.iter().skip(1).map(|packed| packed.bytes.len()).sum();
        assert!(bytes < 99 * 70, "{bytes}");
    }

    #[test]
    fn how_a_text_begins_is_known_also_beyond_what_it_shares() {
        let mut sample = Sample::default();
        sample.pack(host(1).as_bytes());
        let packed = sample.pack(host(2).as_bytes());
        assert!(packed.sample.is_some());
        for (prefix, expected) in [
            ("{\"apiVersion\":\"kiln.dev/v1alpha1\",", true),
            ("{\"apiVersion\":\"kiln.dev/v1\",", false),
            (&host(2)[..90], true),
            (&host(1)[..90], false),
            (&host(2), true),
            (&format!("{} ", host(2)), false),
        ] {
            assert_eq!(packed.starts_with(prefix.as_bytes()), expected, "{prefix}");
        }
    }

    #[test]
    fn another_sample_is_chosen_when_texts_have_changed() {
        let mut sample = Sample::default();
        sample.pack(host(1).as_bytes());
        let words: String = (0..60).map(|word| format!("{}", (word * 7919 + 13) % 977)).collect();
        let other = |number: u32| format!("{words} of {number}");
        let sizes: Vec<usize> = (0..80).map(|number| sample.pack(other(number).as_bytes()).bytes.len()).collect();
        assert!(sizes[79] * 4 < sizes[0], "{sizes:?}");
    }

    proptest! {
        #[test]
        fn what_went_in_comes_out(texts in prop::collection::vec("[a-c\"{}:]{0,400}", 1..20)) {
            let mut sample = Sample::default();
            for text in texts {
                let packed = sample.pack(text.as_bytes());
                prop_assert_eq!(&*packed.text(), text.as_bytes());
                prop_assert_eq!(packed.len(), text.len());
            }
        }
    }
}
