//! The kernel command line, as each of its readers splits it.
//!
//! Two readers matter at first boot and they disagree about quotes. dracut's `getarg` splits like the kernel:
//! a space inside double quotes does not end an argument and the outer quotes are taken off. The hook that calls
//! nm-initrd-generator passes the line through the shell's word splitting instead: quotes stay in the words
//! and do not hold anything together. [`Kargs`] keeps both views of the same text.
//!
//! Reading never fails and never grows beyond [`MAX_BYTES`]: kernels cut their command line far earlier.
//! Not here: the shell's pathname expansion, which would replace a word with `*` or `?` by matching file names.

/// Bytes of a command line that are read; the rest is cut off, as the kernel does at 2 to 4 KiB.
pub const MAX_BYTES: usize = 64 * 1024;

/// One argument as the kernel and dracut see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// What stands before the first `=`.
    pub key: String,
    /// What stands behind it; none for a bare key.
    pub value: Option<String>,
}

/// A kernel command line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Kargs {
    words: Vec<String>,
    arguments: Vec<Argument>,
}

impl Kargs {
    /// Reads a command line.
    pub fn parse(line: &str) -> Kargs {
        let line = cut(line, MAX_BYTES);
        Kargs {
            words: line.split([' ', '\t', '\n']).filter(|word| !word.is_empty()).map(str::to_owned).collect(),
            arguments: split_like_the_kernel(line).into_iter().map(argument).collect(),
        }
    }

    /// The words nm-initrd-generator gets: split at white space alone, quotes and all.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// The arguments dracut's `getarg` sees, in order.
    pub fn arguments(&self) -> &[Argument] {
        &self.arguments
    }

    /// All values given for a key, in order; a bare key counts as an empty value.
    pub fn values<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a str> {
        self.arguments
            .iter()
            .filter(move |argument| argument.key == key)
            .map(|argument| argument.value.as_deref().unwrap_or(""))
    }

    /// The value of a key: the last one wins. A bare key has an empty value.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.arguments
            .iter()
            .rfind(|argument| argument.key == key)
            .map(|argument| argument.value.as_deref().unwrap_or(""))
    }

    /// dracut's `getargbool`: the default when the key is missing; otherwise true unless its last value is exactly `0`, `no` or `off`.
    pub fn flag(&self, key: &str, default: bool) -> bool {
        self.value(key).map_or(default, |value| !matches!(value, "0" | "no" | "off"))
    }

    /// The same line with more text at its end.
    pub fn and(&self, more: &str) -> Kargs {
        let more = Kargs::parse(more);
        Kargs {
            words: self.words.iter().cloned().chain(more.words).collect(),
            arguments: self.arguments.iter().cloned().chain(more.arguments).collect(),
        }
    }
}

/// The longest start of a text that fits and ends at a character.
fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes.min(text.len()))]
}

/// The arguments of a line as they are written: a space inside double quotes does not end one.
pub(crate) fn split_like_the_kernel(line: &str) -> Vec<&str> {
    let (mut parts, mut start, mut quoted) = (Vec::new(), None, false);
    for (at, character) in line.char_indices() {
        if character == '"' {
            quoted = !quoted;
        }
        let space = matches!(character, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c') && !quoted;
        match (space, start) {
            (false, None) => start = Some(at),
            (true, Some(begin)) => {
                parts.push(&line[begin..at]);
                start = None;
            }
            _ => {}
        }
    }
    parts.extend(start.map(|begin| &line[begin..]));
    parts
}

/// Splits at the first `=` that is not the first character, and takes off the quotes around the whole or around the value.
fn argument(text: &str) -> Argument {
    let (text, whole_quoted) = match text.strip_prefix('"') {
        Some(inner) => (inner, true),
        None => (text, false),
    };
    let unquote_end = |text: &str| text.strip_suffix('"').unwrap_or(text).to_owned();
    let equals = text.char_indices().skip(1).find(|(_, character)| *character == '=').map(|(at, _)| at);
    let Some(equals) = equals else {
        return Argument { key: if whole_quoted { unquote_end(text) } else { text.to_owned() }, value: None };
    };
    let value = &text[equals + 1..];
    let value = match value.strip_prefix('"') {
        Some(inner) => unquote_end(inner),
        None if whole_quoted => unquote_end(value),
        None => value.to_owned(),
    };
    Argument { key: text[..equals].to_owned(), value: Some(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(line: &str) -> Vec<(String, Option<String>)> {
        Kargs::parse(line).arguments().iter().map(|argument| (argument.key.clone(), argument.value.clone())).collect()
    }

    fn pair(key: &str, value: Option<&str>) -> (String, Option<String>) {
        (key.to_owned(), value.map(str::to_owned))
    }

    #[test]
    fn dracut_sees_quotes_and_nm_initrd_generator_does_not() {
        let line = "root=\"LABEL=my root\" quiet \"foo=a b\" ip=dhcp";
        assert_eq!(
            pairs(line),
            [
                pair("root", Some("LABEL=my root")),
                pair("quiet", None),
                pair("foo", Some("a b")),
                pair("ip", Some("dhcp"))
            ]
        );
        assert_eq!(Kargs::parse(line).words(), ["root=\"LABEL=my", "root\"", "quiet", "\"foo=a", "b\"", "ip=dhcp"]);
    }

    #[test]
    fn odd_arguments_are_kept_as_they_are() {
        assert_eq!(
            pairs("  a=  =b c==d =e=f  "),
            [pair("a", Some("")), pair("=b", None), pair("c", Some("=d")), pair("=e", Some("f"))]
        );
        assert_eq!(pairs("\"unclosed ip=dhcp"), [pair("unclosed ip", Some("dhcp"))]);
        assert_eq!(pairs("\""), [pair("", None)]);
        assert_eq!(pairs(""), []);
    }

    #[test]
    fn flags_follow_dracut() {
        let cases = [
            ("", true, true),
            ("", false, false),
            ("f", false, true),
            ("f=", false, true),
            ("f=1", false, true),
            ("f=0", true, false),
            ("f=no", true, false),
            ("f=off", true, false),
            ("f=false", false, true),
            ("f=OFF", false, true),
            ("f=0 f=1", false, true),
            ("f=1 f=0", true, false),
        ];
        for (line, default, expected) in cases {
            assert_eq!(Kargs::parse(line).flag("f", default), expected, "{line:?} with default {default}");
        }
    }

    #[test]
    fn the_last_value_wins_and_all_are_listed() {
        let kargs = Kargs::parse("ip=a ip ip=b");
        assert_eq!(kargs.value("ip"), Some("b"));
        assert_eq!(kargs.values("ip").collect::<Vec<_>>(), ["a", "", "b"]);
        assert_eq!(kargs.and("ip=c").value("ip"), Some("c"));
    }

    #[test]
    fn an_endless_line_is_cut_at_a_character() {
        let kargs = Kargs::parse(&"ö".repeat(MAX_BYTES));
        assert_eq!(kargs.words()[0].len(), MAX_BYTES);
    }
}
