//! A value as YAML text that every reader takes for the same value.
//!
//! Block style, keys in the order given, no anchors and no tags. A string is left plain only when no YAML version could
//! take it for something else: `yes`, `0644`, `1e3`, a date, and a MAC address (a number to base sixty in YAML 1.1) get
//! quotes. Own code instead of a serializer crate: the crate nearest to hand is no longer maintained, and this is short.

use serde_json::Value;

/// Writes a value, with a final line break.
pub fn to_yaml(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(entries) if !entries.is_empty() => mapping(entries, 0, &mut text),
        Value::Array(items) if !items.is_empty() => sequence(items, 0, &mut text),
        scalar => text.extend([&scalar_text(scalar, 0), "\n"]),
    }
    text
}

fn mapping(entries: &serde_json::Map<String, Value>, indent: usize, text: &mut String) {
    for (index, (key, value)) in entries.iter().enumerate() {
        // The first key of a list entry stands behind its dash.
        if index > 0 || !text.ends_with("- ") {
            pad(indent, text);
        }
        text.extend([&string_text(key), ":"]);
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                text.push('\n');
                mapping(inner, indent + 2, text);
            }
            Value::Array(items) if !items.is_empty() => {
                text.push('\n');
                sequence(items, indent, text);
            }
            scalar => text.extend([" ", &scalar_text(scalar, indent + 2), "\n"]),
        }
    }
}

fn sequence(items: &[Value], indent: usize, text: &mut String) {
    for (index, item) in items.iter().enumerate() {
        if index > 0 || !text.ends_with("- ") {
            pad(indent, text);
        }
        text.push_str("- ");
        match item {
            Value::Object(inner) if !inner.is_empty() => mapping(inner, indent + 2, text),
            Value::Array(inner) if !inner.is_empty() => sequence(inner, indent + 2, text),
            scalar => text.extend([&scalar_text(scalar, indent + 2), "\n"]),
        }
    }
}

fn pad(indent: usize, text: &mut String) {
    text.extend(std::iter::repeat_n(' ', indent));
}

fn scalar_text(value: &Value, indent: usize) -> String {
    match value {
        Value::String(content) => literal_block(content, indent).unwrap_or_else(|| string_text(content)),
        Value::Object(_) => "{}".to_owned(),
        Value::Array(_) => "[]".to_owned(),
        other => other.to_string(),
    }
}

/// Several lines as they are, when nothing in them depends on how a reader treats white space.
fn literal_block(content: &str, indent: usize) -> Option<String> {
    let lines = content.strip_suffix('\n').unwrap_or(content);
    let chomp = if content.ends_with('\n') { "|" } else { "|-" };
    let odd = |line: &str| line.ends_with(' ') || line.chars().any(needs_escape);
    if !lines.contains('\n') || lines.starts_with([' ', '\n']) || lines.ends_with('\n') || lines.split('\n').any(odd) {
        return None;
    }
    let mut text = chomp.to_owned();
    for line in lines.split('\n') {
        text.push('\n');
        if !line.is_empty() {
            // On the top level a line that begins with `---` would end the document.
            pad(indent.max(2), &mut text);
            text.push_str(line);
        }
    }
    Some(text)
}

fn string_text(content: &str) -> String {
    if is_plain(content) { content.to_owned() } else { quoted(content) }
}

fn is_plain(content: &str) -> bool {
    const WORDS: [&str; 10] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan"];
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '+' | '@');
    let word = content.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let spaced = content.split(' ').all(|part| !part.is_empty() && part.chars().all(allowed));
    (word && spaced && !WORDS.contains(&content.to_ascii_lowercase().as_str())) || is_ipv4(content)
}

/// Four numbers and perhaps a prefix: what else begins with a digit might be one number or a date.
fn is_ipv4(content: &str) -> bool {
    let (address, prefix) = content.split_once('/').unwrap_or((content, "0"));
    address.parse::<std::net::Ipv4Addr>().is_ok()
        && !prefix.is_empty()
        && prefix.bytes().all(|byte| byte.is_ascii_digit())
}

fn needs_escape(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

fn quoted(content: &str) -> String {
    let mut text = String::from('"');
    for character in content.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            c if needs_escape(c) => text.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn structure_is_written_in_block_style() {
        let value = json!({
            "interfaces": [{"name": "bond0", "mtu": 9000, "ipv4": {"enabled": true, "address": [{"ip": "192.0.2.1"}]}}, {}],
            "empty": [], "nested": [["a", "b"], []], "nothing": null,
        });
        let expected = "\
interfaces:
- name: bond0
  mtu: 9000
  ipv4:
    enabled: true
    address:
    - ip: 192.0.2.1
- {}
empty: []
nested:
- - a
  - b
- []
nothing: null
";
        assert_eq!(to_yaml(&value), expected);
    }

    #[test]
    fn a_string_never_becomes_something_else() {
        for (content, expected) in [
            ("bond0", "bond0"),
            ("bond0.110", "bond0.110"),
            ("two words", "two words"),
            ("192.0.2.0/24", "192.0.2.0/24"),
            ("802.3ad", "\"802.3ad\""),
            ("52:54:00:12:34:56", "\"52:54:00:12:34:56\""),
            ("0644", "\"0644\""),
            ("1e3", "\"1e3\""),
            ("2026-08-01", "\"2026-08-01\""),
            ("No", "\"No\""),
            ("~", "\"~\""),
            ("", "\"\""),
            ("a: b", "\"a: b\""),
            ("- a", "\"- a\""),
            ("a #b", "\"a #b\""),
            ("::", "\"::\""),
            ("a\u{85}b", "\"a\\u0085b\""),
            (" a", "\" a\""),
        ] {
            assert_eq!(to_yaml(&content.into()), format!("{expected}\n"));
        }
    }

    #[test]
    fn lines_stay_lines() {
        let value =
            json!({"keyfile": "[connection]\nid=a\n\n[ipv4]\n", "open": "a\nb", "spaced": " a\nb\n", "tab": "a\tb\nc"});
        let expected = "\
keyfile: |
  [connection]
  id=a

  [ipv4]
open: |-
  a
  b
spaced: \" a\\nb\\n\"
tab: \"a\\tb\\nc\"
";
        assert_eq!(to_yaml(&value), expected);
    }
}
