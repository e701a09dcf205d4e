//! What the Secrets for nodes are called. Names that would be too long are cut, and end in a hash of the whole name.

use crate::payload::digest::{Digest, Inputs};

/// The longest name of an object.
const LONGEST: usize = 253;
/// A name that was cut is at least so long: dots and dashes at its end go, and they do not stand in a row of hundreds.
pub const SHORTEST_CUT: usize = 128;

/// `payload-<pool>-<first digits of the digest>`.
pub fn payload(pool: &str, id: Digest) -> String {
    fitting(format!("payload-{pool}-{}", id.short()))
}

/// `overlay-<host>`.
pub fn overlay(host: &str) -> String {
    fitting(format!("overlay-{host}"))
}

/// `boot-token-<host>`.
pub fn boot_token(host: &str) -> String {
    fitting(format!("boot-token-{host}"))
}

/// `boot-user-data-<host>`.
pub fn boot_user_data(host: &str) -> String {
    fitting(format!("boot-user-data-{host}"))
}

/// `token-<pool>-<hash>`.
pub fn token(pool: &str, hash: &str) -> String {
    fitting(format!("token-{pool}-{hash}"))
}

/// `user-data-<pool>-<hash>`.
pub fn user_data(pool: &str, hash: &str) -> String {
    fitting(format!("user-data-{pool}-{hash}"))
}

fn fitting(name: String) -> String {
    if name.len() <= LONGEST {
        return name;
    }
    let hash = Inputs::of("kiln name").with(&name).digest().short();
    let end = (0..=LONGEST - hash.len() - 1).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    format!("{}-{hash}", name[..end].trim_end_matches(['-', '.']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_and_stay_apart() {
        assert_eq!(token("workers", "bb196408"), "token-workers-bb196408");
        assert_eq!(overlay("w0"), "overlay-w0");
        let (one, two) = (boot_token(&format!("{}a", "x".repeat(250))), boot_token(&format!("{}b", "x".repeat(250))));
        assert!(one.len() <= 253 && two.len() <= 253 && one != two, "{one}");
        assert_eq!(payload("p", Inputs::of("t").digest()).len(), "payload-p-".len() + 16);
    }
}
