//! Keys that stand twice in one JSON object. Parsers take the last and say nothing; strict clients want to know.

use std::borrow::Cow;
use std::collections::HashSet;

/// Where each key that stands twice is: `spec.ports[0].name`. The text must be valid JSON; of other text nothing is said.
///
/// Every object that is written is asked, and hardly any has one: nothing is put together before a key stands twice.
pub fn duplicate_fields(json: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut levels: Vec<Level<'_>> = Vec::new();
    let mut at = 0;
    while let Some(byte) = json.get(at) {
        match byte {
            b'{' => levels.push(Level { keys: Some(HashSet::new()), key: "".into(), index: 0, expects_key: true }),
            b'[' => levels.push(Level { keys: None, key: "".into(), index: 0, expects_key: false }),
            b'}' | b']' => {
                levels.pop();
            }
            b',' => {
                if let Some(level) = levels.last_mut() {
                    level.index += 1;
                    level.expects_key = level.keys.is_some();
                }
            }
            b'"' => {
                let end = end_of_text(json, at);
                if let Some(level) = levels.last_mut().filter(|level| level.expects_key) {
                    level.expects_key = false;
                    level.key = key(&json[at..end]);
                    let is_new = level.keys.as_mut().is_none_or(|keys| keys.insert(level.key.clone()));
                    if !is_new {
                        let place = path(&levels);
                        if !found.contains(&place) {
                            found.push(place);
                        }
                    }
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// An object or list that is not closed yet.
struct Level<'a> {
    /// The keys of an object so far; none of a list.
    keys: Option<HashSet<Cow<'a, str>>>,
    /// Whose value comes next.
    key: Cow<'a, str>,
    index: usize,
    expects_key: bool,
}

/// What a key in its quotes says.
fn key(quoted: &[u8]) -> Cow<'_, str> {
    match quoted {
        [b'"', plain @ .., b'"'] if !plain.contains(&b'\\') => String::from_utf8_lossy(plain),
        _ => serde_json::from_slice::<String>(quoted).unwrap_or_default().into(),
    }
}

/// Where the value that comes next is.
fn path(levels: &[Level<'_>]) -> String {
    let mut path = String::new();
    for level in levels {
        match (&level.keys, path.is_empty()) {
            (None, _) => path.push_str(&format!("[{}]", level.index)),
            (Some(_), true) => path.push_str(&level.key),
            (Some(_), false) => path.push_str(&format!(".{}", level.key)),
        }
    }
    path
}

/// The place behind the closing quote.
fn end_of_text(json: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = json.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_that_stand_twice_are_found_where_they_are() {
        for (json, expected) in [
            (r#"{"a": 1, "b": {"a": 1}}"#, vec![]),
            (r#"{"a": 1, "a": 2, "a": 3}"#, vec!["a"]),
            (r#"{"spec": {"ports": [{"n": 1}, {"n": 1, "m": "x,{\"n\":", "n": 2}]}}"#, vec!["spec.ports[1].n"]),
            (r#"{"a\u0062": 1, "ab": 2}"#, vec!["ab"]),
            (r#"{"a": "b", "b": "a", "c": ["a", "a"]}"#, vec![]),
        ] {
            assert_eq!(duplicate_fields(json.as_bytes()), expected, "{json}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[{}\\[\\],:\"\\\\a-c ]{0,60}") {
            let _ = duplicate_fields(text.as_bytes());
        }
    }
}
