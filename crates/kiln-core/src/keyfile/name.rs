//! Which names of groups and keys a keyfile can hold (GLib's rules), and the nearest spelling of those it cannot.

use std::borrow::Cow;

/// The name in a `[header]` line. Blanks behind the bracket are allowed.
pub(super) fn header(line: &str) -> Option<&str> {
    let (name, rest) = line.strip_prefix('[')?.split_once(']')?;
    rest.trim_matches([' ', '\t']).is_empty().then_some(name)
}

/// Whether a group may be called so.
pub(super) fn is_group(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c == '[' || c == ']' || c.is_ascii_control())
}

/// Whether a key may be called so: `key` or `key[locale]`.
pub(super) fn is_key(name: &str) -> bool {
    let (bare, locale) = match name.split_once('[') {
        Some((bare, locale)) => (bare, locale.strip_suffix(']')),
        None => (name, Some("")),
    };
    let in_locale = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
    !bare.is_empty()
        && !bare.contains(['=', ']', '\n', '\0'])
        && !bare.starts_with(|c: char| c == '#' || c.is_ascii_whitespace())
        && !bare.ends_with(|c: char| c.is_ascii_whitespace())
        && locale.is_some_and(|locale| locale.chars().all(in_locale))
}

/// The name itself, or the nearest a file can hold.
pub(super) fn spell_group(name: &str) -> Cow<'_, str> {
    if is_group(name) { Cow::Borrowed(name) } else { Cow::Owned(spell(name)) }
}

/// The name itself, or the nearest a file can hold.
pub(super) fn spell_key(name: &str) -> Cow<'_, str> {
    if is_key(name) { Cow::Borrowed(name) } else { Cow::Owned(spell(name)) }
}

fn spell(name: &str) -> String {
    let unspeakable = |c: char| c.is_ascii_control() || c.is_ascii_whitespace() || matches!(c, '=' | '[' | ']' | '#');
    if name.is_empty() { "_".to_owned() } else { name.replace(unspeakable, "_") }
}
