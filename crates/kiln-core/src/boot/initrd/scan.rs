//! The small readers nm-initrd-generator is built from: words, numbers, booleans, names and addresses.
//!
//! They accept and refuse exactly what the C functions do, oddities included: `[` protects separators only as the
//! first character of a word, and whatever follows the closing `]` up to the next separator disappears.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What is left of an argument while words are taken from its front.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Words { rest: text }
    }

    /// The text no word was taken from yet.
    pub(super) fn rest(&self) -> &'a str {
        self.rest
    }

    /// Takes the next word; an empty one counts as missing.
    pub(super) fn next(&mut self, separator: char) -> Option<&'a str> {
        let (inner, bracketed) = match self.rest.strip_prefix('[') {
            Some(inner) => (inner, true),
            None => (self.rest, false),
        };
        let close = if bracketed { inner.find(']') } else { None };
        let open_end = match (bracketed, close) {
            (true, None) => inner.len(),
            (true, Some(close)) => close + 1,
            (false, _) => 0,
        };
        let end = inner[open_end..].find(separator).map(|at| open_end + at);
        self.rest = end.map_or("", |end| &inner[end + separator.len_utf8()..]);
        let word = &inner[..close.or(end).unwrap_or(inner.len())];
        (!word.is_empty()).then_some(word)
    }
}

/// A whole decimal or hexadecimal number within bounds.
pub(super) fn integer(text: &str, base: u32, minimum: i64, maximum: i64) -> Option<i64> {
    let text = text.trim_matches([' ', '\t', '\n', '\r', '\x0c']);
    let (digits, negative) = match text.as_bytes().first()? {
        b'-' => (&text[1..], true),
        b'+' => (&text[1..], false),
        _ => (text, false),
    };
    let digits = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hexadecimal) if base == 16 && hexadecimal.starts_with(|c: char| c.is_ascii_hexdigit()) => hexadecimal,
        _ => digits,
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(base)) {
        return None;
    }
    let value = i64::from_str_radix(digits, base).ok()?;
    let value = if negative { -value } else { value };
    (minimum..=maximum).contains(&value).then_some(value)
}

/// A boolean word; none when it is neither.
pub(super) fn boolean(text: &str) -> Option<bool> {
    let text = text.trim_matches([' ', '\t', '\n', '\r', '\x0c']).to_ascii_lowercase();
    match text.as_str() {
        "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// The bytes a text with C escapes stands for.
pub(super) fn unescape_octal(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes().peekable();
    let mut plain = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            plain.push(byte);
            continue;
        }
        let mut octal = None;
        for _ in 0..3 {
            let Some(digit) = bytes.next_if(|byte| matches!(byte, b'0'..=b'7')) else { break };
            octal = Some(octal.unwrap_or(0u8).wrapping_mul(8).wrapping_add(digit - b'0'));
        }
        plain.push(octal.or_else(|| bytes.next()).unwrap_or(byte));
    }
    plain
}

/// Whether the reader takes a text as an interface name (it looks at more names later, when it verifies).
pub(super) fn is_interface_name(text: &str) -> bool {
    let forbidden = |byte: u8| byte == b'/' || byte == b':' || byte.is_ascii_whitespace() || byte == 0x0b;
    !text.is_empty() && text.len() < 16 && text != "." && text != ".." && !text.bytes().any(forbidden)
}

/// A hardware address of any length in canonical form: upper case, colons.
pub(super) fn hardware_address(text: &str) -> Option<String> {
    let separator = text.chars().find(|character| matches!(character, ':' | '-'))?;
    let bytes: Vec<&str> = text.split(separator).collect();
    let fine = |byte: &&str| matches!(byte.len(), 1 | 2) && byte.bytes().all(|digit| digit.is_ascii_hexdigit());
    if bytes.len() > 20 || !bytes.iter().all(fine) {
        return None;
    }
    Some(bytes.iter().map(|byte| format!("{byte:0>2}").to_ascii_uppercase()).collect::<Vec<_>>().join(":"))
}

/// A hardware address of exactly so many bytes in canonical form.
pub(super) fn hardware_address_of(text: &str, bytes: usize) -> Option<String> {
    hardware_address(text).filter(|canonical| canonical.len() == 3 * bytes - 1)
}

/// An address without a prefix.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    if text.contains(':') { text.parse().ok().map(IpAddr::V6) } else { text.parse().ok().map(IpAddr::V4) }
}

/// An address, perhaps with `/prefix`.
pub(super) fn address_and_prefix(text: &str) -> Option<(IpAddr, Option<u8>)> {
    let (plain, prefix) = match text.split_once('/') {
        Some((plain, prefix)) => (plain, Some(prefix)),
        None => (text, None),
    };
    let address = address(plain)?;
    let prefix = match prefix {
        Some(prefix) => Some(integer(prefix, 10, 0, i64::from(longest_prefix(address)))? as u8),
        None => None,
    };
    Some((address, prefix))
}

/// 32 or 128.
pub(super) fn longest_prefix(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// An address as the C library prints it: unlike Rust it shows `::1.2.3.4` for the old IPv4-compatible range.
pub(super) fn show(address: IpAddr) -> String {
    let IpAddr::V6(v6) = address else { return address.to_string() };
    match v6.segments() {
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => {
            format!("::{}", Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)))
        }
        _ => Ipv6Addr::to_string(&v6),
    }
}

/// The prefix an IPv4 address has by its old class.
pub(super) fn class_prefix(address: Ipv4Addr) -> u8 {
    match address.octets()[0] {
        0..=127 => 8,
        128..=191 => 16,
        _ => 24,
    }
}

/// The prefix of a netmask; holes in the mask are not noticed.
pub(super) fn mask_prefix(mask: Ipv4Addr) -> u8 {
    32 - u32::from(mask).trailing_zeros() as u8
}

/// Whether systemd's rule takes a text as a hostname.
pub(super) fn is_hostname(text: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    text.len() <= 64 && text.split('.').all(label)
}
