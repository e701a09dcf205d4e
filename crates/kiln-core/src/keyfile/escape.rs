//! Escapes of values, as GLib writes and reads them.
//!
//! Only white space at the start of a value is escaped: GLib drops it when it reads, but keeps it everywhere else.

use std::borrow::Cow;

/// The text behind `=` that means `value`. NUL has no spelling and is left out.
pub(super) fn escape(value: &str) -> String {
    let mut raw = String::with_capacity(value.len());
    escape_into(&mut raw, value, false);
    raw
}

/// The text behind `=` that means these elements, each closed with `;`.
pub(super) fn escape_list<T: AsRef<str>>(values: impl IntoIterator<Item = T>) -> String {
    let mut raw = String::new();
    for value in values {
        escape_into(&mut raw, value.as_ref(), true);
        raw.push(';');
    }
    raw
}

/// The meaning of the text behind `=`, or nothing when GLib would refuse to say.
pub(super) fn unescape(raw: &str) -> Option<Cow<'_, str>> {
    if !raw.contains('\\') {
        return Some(Cow::Borrowed(raw));
    }
    let mut value = String::with_capacity(raw.len());
    let mut characters = raw.chars();
    while let Some(character) = characters.next() {
        value.push(if character == '\\' { meaning(characters.next()?)? } else { character });
    }
    Some(Cow::Owned(value))
}

/// The elements of a list. An empty last element is no element: `a;` and `a` are the same list.
pub(super) fn unescape_list(raw: &str) -> Option<Vec<String>> {
    let mut values = Vec::new();
    let mut value = String::new();
    let mut characters = raw.chars();
    while let Some(character) = characters.next() {
        match character {
            ';' => values.push(std::mem::take(&mut value)),
            '\\' => match characters.next()? {
                ';' => value.push(';'),
                escaped => value.push(meaning(escaped)?),
            },
            _ => value.push(character),
        }
    }
    if !value.is_empty() {
        values.push(value);
    }
    Some(values)
}

fn meaning(escaped: char) -> Option<char> {
    Some(match escaped {
        's' => ' ',
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        '\\' => '\\',
        _ => return None,
    })
}

fn escape_into(raw: &mut String, value: &str, in_list: bool) {
    let mut leading = true;
    for character in value.chars() {
        match character {
            ' ' if leading => raw.push_str("\\s"),
            '\t' if leading => raw.push_str("\\t"),
            // A form feed has no escape; GLib would drop it here, so the value loses it here too.
            '\x0c' if leading => {}
            '\n' => raw.push_str("\\n"),
            '\r' => raw.push_str("\\r"),
            '\\' => raw.push_str("\\\\"),
            ';' if in_list => raw.push_str("\\;"),
            '\0' => {}
            _ => raw.push(character),
        }
        leading &= matches!(character, ' ' | '\t' | '\x0c' | '\0');
    }
}
