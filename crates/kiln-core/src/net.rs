//! The small values of networking, each with one door.
//!
//! Whoever holds an [`InterfaceName`] or a [`MacAddress`] never checks again: it was proven when it was parsed.

use std::fmt;
use std::str::FromStr;

/// Why a small value was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Not six pairs of hexadecimal digits.
    #[error("`{0}` is not a MAC address; write six pairs of hexadecimal digits, as in 52:54:00:12:34:56")]
    Mac(String),
    /// The kernel would refuse it.
    #[error("`{name}` is not an interface name: {reason}")]
    InterfaceName {
        /// What was written.
        name: String,
        /// Which rule it breaks.
        reason: &'static str,
    },
}

/// The name of a network interface by the kernel's rules (`dev_valid_name`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceName(Box<str>);

impl FromStr for InterfaceName {
    type Err = ValueError;
    fn from_str(name: &str) -> Result<Self, ValueError> {
        let reason = match name {
            "" => "it is empty",
            "." | ".." => "the kernel reserves `.` and `..`",
            _ if name.len() > 15 => "it is longer than 15 bytes",
            _ if name.contains(['/', ':']) => "`/` and `:` are not allowed",
            _ if name.bytes().any(|byte| byte.is_ascii_whitespace() || byte == 0x0b) => "white space is not allowed",
            _ => return Ok(InterfaceName(name.into())),
        };
        Err(ValueError::InterfaceName { name: name.to_owned(), reason })
    }
}

impl InterfaceName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An Ethernet address. Printed in lower case with colons; read in either case with `:` or `-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress([u8; 6]);

impl FromStr for MacAddress {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let refuse = || ValueError::Mac(text.to_owned());
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut bytes = [0; 6];
        let mut parts = text.split(separator);
        for byte in &mut bytes {
            let pair = parts.next().filter(|pair| pair.len() == 2).ok_or_else(refuse)?;
            let digits = pair.bytes().all(|digit| digit.is_ascii_hexdigit());
            *byte = u8::from_str_radix(pair, 16).ok().filter(|_| digits).ok_or_else(refuse)?;
        }
        if parts.next().is_some() { Err(refuse()) } else { Ok(MacAddress(bytes)) }
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}
