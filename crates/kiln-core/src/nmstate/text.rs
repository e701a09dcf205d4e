//! Free text on its way into a keyfile.
//!
//! The crate writes strings into keyfiles as they are. A description with a line break would begin a new key, and a
//! password with a backslash would be read back as another password, so every string is escaped before it goes in.
//! Names and addresses never need it, hence a document without such text is passed on unchanged.

use serde_json::Value;

/// Escapes what the keyfile format gives a meaning to, as NetworkManager itself writes it.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let body = text.trim_matches(' ');
    let leading = text.len() - text.trim_start_matches(' ').len();
    (0..leading).for_each(|_| escaped.push_str("\\s"));
    for character in body.chars() {
        match character {
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            '\\' => escaped.push_str("\\\\"),
            other => escaped.push(other),
        }
    }
    (leading + body.len()..text.len()).for_each(|_| escaped.push_str("\\s"));
    escaped
}

/// Escapes every string of a document, in place.
pub fn escape_all(value: &mut Value) {
    match value {
        Value::String(text) if needs_escape(text) => *text = escape(text),
        Value::Array(items) => items.iter_mut().for_each(escape_all),
        Value::Object(entries) => entries.iter_mut().for_each(|(_, value)| escape_all(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn needs_escape(text: &str) -> bool {
    text.starts_with(' ') || text.ends_with(' ') || text.contains(['\n', '\r', '\t', '\\'])
}

/// A file name made of a profile's id: what would leave the folder or hide the file is replaced.
pub fn file_name(id: &str) -> String {
    let name: String = id.chars().map(|c| if c == '/' || c == '\\' || c.is_control() { '_' } else { c }).collect();
    if name.starts_with('.') { format!("_{name}") } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_as_networkmanager_reads_it() {
        for (text, expected) in [
            ("plain; text", "plain; text"),
            ("two\nlines", "two\\nlines"),
            ("  back\\slash ", "\\s\\sback\\\\slash\\s"),
            (" ", "\\s"),
            ("", ""),
        ] {
            assert_eq!(escape(text), expected, "{text:?}");
        }
    }

    #[test]
    fn file_names_stay_in_their_folder() {
        for (id, expected) in [("bond0", "bond0"), ("../../etc/x", "_.._.._etc_x"), (".hidden", "_.hidden")] {
            assert_eq!(file_name(id), expected);
        }
    }
}
