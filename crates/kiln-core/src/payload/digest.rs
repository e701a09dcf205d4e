//! Hashes of what goes into a payload: SHA-256 for Kiln's own names, HyperShift's 32-bit hash where its names demand it.
//!
//! **Invariant:** every input of a [`Digest`] is prefixed with its length, so that moving a boundary between two inputs
//! gives another hash. HyperShift's hash has no separators and collides there, so it is used for names only, and with a
//! [`Digest`] among its inputs.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// SHA-256 over a list of inputs. Shown as 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The first sixteen digits, which are enough for a name.
    pub fn short(&self) -> String {
        let mut text = self.to_string();
        text.truncate(16);
        text
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Takes inputs one by one.
#[derive(Clone)]
pub struct Inputs(Sha256);

impl Inputs {
    /// Begins; `purpose` keeps the hashes of different things apart.
    pub fn of(purpose: &str) -> Inputs {
        Inputs(Sha256::new()).with(purpose)
    }

    /// Takes the next input.
    #[must_use]
    pub fn with(mut self, input: impl AsRef<[u8]>) -> Inputs {
        let input = input.as_ref();
        self.0.update((input.len() as u64).to_be_bytes());
        self.0.update(input);
        self
    }

    /// Takes an input that may be absent. Absent and empty are different.
    #[must_use]
    pub fn with_optional(self, input: Option<impl AsRef<[u8]>>) -> Inputs {
        match input {
            Some(input) => self.with("some").with(input),
            None => self.with("none"),
        }
    }

    /// The hash of everything taken.
    pub fn digest(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

/// SHA-256 of a text, in hexadecimal: how tokens are kept.
pub fn sha256_hex(text: &str) -> String {
    Digest(Sha256::digest(text.as_bytes()).into()).to_string()
}

/// HyperShift's `HashSimple`: FNV-1a with 32 bits, as eight hexadecimal digits.
pub fn hash_simple(text: &str) -> String {
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:08x}")
}

/// HyperShift's hash of bytes as it writes `pull-secret-hash`: of Go's text for a list of bytes, `[123 34 …]`.
pub fn hash_bytes(bytes: &[u8]) -> String {
    let numbers: Vec<String> = bytes.iter().map(u8::to_string).collect();
    hash_simple(&format!("[{}]", numbers.join(" ")))
}

/// What HyperShift's hash of a pool's config is made of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigHash<'a> {
    /// The manifests, sorted and joined.
    pub manifests: &'a str,
    /// `4.14.3`.
    pub release_version: &'a str,
    /// Name of the pull secret.
    pub pull_secret: &'a str,
    /// Name of the additional trust bundle.
    pub trust_bundle: &'a str,
    /// What else decides. Kiln puts the payload's [`Digest`] here, so that contents of secrets count, too.
    pub global: &'a str,
}

impl ConfigHash<'_> {
    /// The eight digits in `token-<pool>-<hash>`.
    pub fn hash(&self) -> String {
        let ConfigHash { manifests, release_version, pull_secret, trust_bundle, global } = self;
        hash_simple(&format!("{manifests}{release_version}{pull_secret}{trust_bundle}{global}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_in_names_is_hypershifts() {
        let base = ConfigHash {
            manifests: "test config",
            release_version: "4.7.0",
            pull_secret: "pull-secret",
            trust_bundle: "trust-bundle",
            global: "global config",
        };
        assert_eq!(base.hash(), "bb196408");
        assert_eq!(ConfigHash { release_version: "4.8.0", ..base.clone() }.hash(), "27bb7699");
        assert_eq!(ConfigHash { manifests: "different", ..base.clone() }.hash(), "25f99ac5");
        assert_eq!(ConfigHash { pull_secret: "different", ..base }.hash(), "d0d6f6e9");
        assert_eq!(hash_simple(""), "811c9dc5");
        assert_eq!(hash_bytes(b"{\""), hash_simple("[123 34]"));
    }

    #[test]
    fn the_hash_of_a_structure_is_that_of_its_json() {
        // Go's HashStruct: FNV-1a over what json.Marshal writes; the numbers are those of hash/fnv.
        for (json, expected) in [("null", "77074ba4"), ("{}", "5465b825")] {
            assert_eq!(hash_simple(json), expected, "{json}");
        }
    }

    #[test]
    fn moving_a_boundary_gives_another_digest() {
        let of = |one: &str, two: &str| Inputs::of("t").with(one).with(two).digest();
        assert_eq!(of("a", "1.0"), of("a", "1.0"));
        assert_ne!(of("a", "1.0"), of("a1", ".0"));
        assert_ne!(Inputs::of("t").with("").digest(), Inputs::of("t").digest());
        let optional = |input: Option<&str>| Inputs::of("t").with_optional(input).digest();
        assert_ne!(optional(None), optional(Some("")));
        assert_ne!(Inputs::of("a").digest(), Inputs::of("b").digest());
    }

    #[test]
    fn digests_are_shown_in_hexadecimal() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_hex("abc"), abc);
        let digest = Inputs::of("t").digest();
        assert_eq!((digest.to_string().len(), digest.short().len()), (64, 16));
        assert!(digest.to_string().starts_with(&digest.short()));
    }
}
