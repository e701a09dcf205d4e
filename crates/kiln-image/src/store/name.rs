//! Names that become parts of paths and of URLs, and therefore have one door.

use std::fmt;
use std::str::FromStr;

use crate::error::ImageError;

/// The name of a base in the store, e.g. `rhcos-4.20`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BaseName(String);

/// The name of a host in the store, e.g. `rack1-n07` or `n07.example.com`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

impl BaseName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl HostName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for BaseName {
    type Err = ImageError;

    fn from_str(text: &str) -> Result<Self, ImageError> {
        check("base name", text).map(BaseName)
    }
}

impl FromStr for HostName {
    type Err = ImageError;

    fn from_str(text: &str) -> Result<Self, ImageError> {
        check("host name", text).map(HostName)
    }
}

impl fmt::Display for BaseName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Nothing that needs escaping in a URL, no way out of a folder, no name that begins like an unfinished file.
fn check(what: &str, text: &str) -> Result<String, ImageError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if (1..=128).contains(&text.len())
        && text.bytes().all(plain)
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
    {
        return Ok(text.to_string());
    }
    let shown: String = text.chars().take(40).collect();
    Err(ImageError::refused(
        format!("{what} `{}`", shown.escape_debug()),
        "it is not a plain name",
        "use 1 to 128 letters, digits, dots, hyphens and underscores, the first one a letter or digit",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_folder() {
        for good in ["n1", "rack1-n07.example.com", "RHCOS_4.20", "9", &"a".repeat(128)] {
            assert_eq!(good.parse::<HostName>().unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", "../x", "a/b", "/a", ".tmp", "-a", "a b", "a%2f", "ä", "a\0", &"a".repeat(129)] {
            let error = bad.parse::<BaseName>().unwrap_err().to_string();
            assert!(error.contains("is not a plain name; use 1 to 128 letters"), "{error}");
        }
        assert_eq!(
            "../etc".parse::<HostName>().unwrap_err().to_string(),
            "host name `../etc`: it is not a plain name; use 1 to 128 letters, digits, dots, hyphens and underscores, \
             the first one a letter or digit"
        );
    }
}
