//! Which Ignition spec a config is written in.

use std::fmt;
use std::str::FromStr;

/// A released spec version that Kiln knows: 2.0 to 2.4 and 3.0 to 3.6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpecVersion {
    major: u8,
    minor: u8,
}

/// Why a text is no spec version Kiln knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// Not of the form `3.4.0`.
    #[error("`{0}` is not a version of the form `3.4.0`")]
    Malformed(String),
    /// `3.7.0-experimental`.
    #[error("`{0}` is an experimental spec")]
    Experimental(String),
    /// Well formed, but never released.
    #[error("there is no Ignition spec `{0}`")]
    Unknown(String),
}

impl SpecVersion {
    /// 2.2.0, which the machine-config-operator of OpenShift 4.1 to 4.5 used.
    pub const V2_2: Self = SpecVersion { major: 2, minor: 2 };
    /// 3.0.0.
    pub const V3_0: Self = SpecVersion { major: 3, minor: 0 };
    /// 3.1.0.
    pub const V3_1: Self = SpecVersion { major: 3, minor: 1 };
    /// 3.2.0, which the machine-config-operator renders since OpenShift 4.7.
    pub const V3_2: Self = SpecVersion { major: 3, minor: 2 };
    /// 3.3.0.
    pub const V3_3: Self = SpecVersion { major: 3, minor: 3 };
    /// 3.4.0.
    pub const V3_4: Self = SpecVersion { major: 3, minor: 4 };
    /// 3.5.0.
    pub const V3_5: Self = SpecVersion { major: 3, minor: 5 };
    /// 3.6.0.
    pub const V3_6: Self = SpecVersion { major: 3, minor: 6 };
    /// The newest spec there is.
    pub const NEWEST: Self = Self::V3_6;

    const NEWEST_MINOR_OF_2: u8 = 4;

    /// Whether it belongs to the 2.x family, whose configs no current Ignition reads.
    pub const fn is_v2(self) -> bool {
        self.major == 2
    }

    /// The 2 of 3.2.0.
    pub const fn minor(self) -> u8 {
        self.minor
    }

    /// Every version, oldest first.
    pub fn all() -> impl Iterator<Item = SpecVersion> {
        let second = (0..=Self::NEWEST_MINOR_OF_2).map(|minor| SpecVersion { major: 2, minor });
        second.chain((0..=Self::NEWEST.minor).map(|minor| SpecVersion { major: 3, minor }))
    }
}

impl FromStr for SpecVersion {
    type Err = VersionError;

    /// Reads `3.4.0`. Ignition compares exactly: `3.4` and `3.4.1` are refused, though `3.04.0` is not.
    fn from_str(text: &str) -> Result<Self, VersionError> {
        let malformed = || VersionError::Malformed(text.to_owned());
        let (numbers, suffix) = match text.find(['-', '+']) {
            Some(at) => text.split_at(at),
            None => (text, ""),
        };
        let mut parts = numbers.split('.').map(|part| {
            let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| part.parse::<u64>().unwrap_or(u64::MAX)).ok_or_else(malformed)
        });
        let mut next = || parts.next().unwrap_or_else(|| Err(malformed()));
        let (major, minor, patch) = (next()?, next()?, next()?);
        if parts.next().is_some() {
            return Err(malformed());
        }
        if suffix.starts_with("-experimental") {
            return Err(VersionError::Experimental(text.to_owned()));
        }
        SpecVersion::all()
            .find(|known| (u64::from(known.major), u64::from(known.minor), 0, "") == (major, minor, patch, suffix))
            .ok_or_else(|| VersionError::Unknown(text.to_owned()))
    }
}

impl fmt::Display for SpecVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.0", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_exactly() {
        for (text, expected) in [
            ("3.2.0", "3.2.0"),
            ("2.4.0", "2.4.0"),
            ("3.03.0", "3.3.0"),
            ("3.6.0", "3.6.0"),
            ("", "`` is not a version of the form `3.4.0`"),
            ("3.2", "`3.2` is not a version of the form `3.4.0`"),
            ("v3.2.0", "`v3.2.0` is not a version of the form `3.4.0`"),
            ("3.2.0.1", "`3.2.0.1` is not a version of the form `3.4.0`"),
            ("3.2.1", "there is no Ignition spec `3.2.1`"),
            ("3.99999999999999999999.0", "there is no Ignition spec `3.99999999999999999999.0`"),
            ("3.7.0", "there is no Ignition spec `3.7.0`"),
            ("2.5.0", "there is no Ignition spec `2.5.0`"),
            ("3.2.0+build", "there is no Ignition spec `3.2.0+build`"),
            ("3.7.0-experimental", "`3.7.0-experimental` is an experimental spec"),
        ] {
            let shown =
                text.parse::<SpecVersion>().map_or_else(|error| error.to_string(), |version| version.to_string());
            assert_eq!(shown, expected);
        }
    }
}
