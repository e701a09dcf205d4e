//! Keys that stand twice in one JSON object. Parsers take the last and say nothing; strict clients want to know.

use std::collections::HashSet;

/// Where each key that stands twice is: `spec.ports[0].name`. The text must be valid JSON; of other text nothing is said.
pub fn duplicate_fields(json: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut levels: Vec<Level> = Vec::new();
    let mut at = 0;
    while let Some(byte) = json.get(at) {
        match byte {
            b'{' | b'[' => {
                let path = levels.last().map(Level::path).unwrap_or_default();
                let inside = if *byte == b'{' { Inside::Object(HashSet::new()) } else { Inside::List };
                levels.push(Level { path, inside, key: String::new(), index: 0, expects_key: *byte == b'{' });
            }
            b'}' | b']' => {
                levels.pop();
            }
            b',' => {
                if let Some(level) = levels.last_mut() {
                    level.index += 1;
                    level.expects_key = matches!(level.inside, Inside::Object(_));
                }
            }
            b'"' => {
                let end = end_of_text(json, at);
                if let Some(level) = levels.last_mut().filter(|level| level.expects_key) {
                    level.expects_key = false;
                    level.key = serde_json::from_slice(&json[at..end]).unwrap_or_default();
                    let path = level.path();
                    if let Inside::Object(keys) = &mut level.inside
                        && !keys.insert(level.key.clone())
                        && !found.contains(&path)
                    {
                        found.push(path);
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
struct Level {
    path: String,
    inside: Inside,
    key: String,
    index: usize,
    expects_key: bool,
}

enum Inside {
    Object(HashSet<String>),
    List,
}

impl Level {
    /// Where the value that comes next is.
    fn path(&self) -> String {
        match (&self.inside, self.path.is_empty()) {
            (Inside::List, _) => format!("{}[{}]", self.path, self.index),
            (Inside::Object(_), true) => self.key.clone(),
            (Inside::Object(_), false) => format!("{}.{}", self.path, self.key),
        }
    }
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
