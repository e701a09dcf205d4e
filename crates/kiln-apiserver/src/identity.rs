//! Who asks, and what they may do.
//!
//! Three roles for now: `system:masters` may do everything, [`VIEWERS`] may read everything but secrets, everybody else
//! may ask who they are and what they may do. Tokens are kept as SHA-256 only.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

/// The group that may do everything.
pub const ADMINISTRATORS: &str = "system:masters";
/// The group that may read everything but secrets.
pub const VIEWERS: &str = "kiln:viewers";

/// Somebody who was recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The name.
    pub user: String,
    /// The groups.
    pub groups: Vec<String>,
}

impl Identity {
    /// A member of one group, besides that of everybody who was recognised.
    pub fn member(user: &str, group: &str) -> Identity {
        Identity { user: user.into(), groups: vec![group.into(), "system:authenticated".into()] }
    }

    /// Whether this request is allowed.
    pub fn may(&self, verb: &str, group: &str, resource: &str) -> bool {
        let member = |name: &str| self.groups.iter().any(|group| group == name);
        let review = group == "authorization.k8s.io" || group == "authentication.k8s.io";
        let reading = ["get", "list", "watch"].contains(&verb);
        member(ADMINISTRATORS)
            || (review && verb == "create" && resource.starts_with("selfsubject"))
            || (member(VIEWERS) && reading && !(group.is_empty() && (resource == "secrets" || resource == "*")))
    }
}

/// Bearer tokens and whom they stand for.
#[derive(Debug, Clone, Default)]
pub struct Tokens(HashMap<[u8; 32], Identity>);

impl Tokens {
    /// Makes a token known. Only its hash is kept.
    pub fn insert(&mut self, token: &str, identity: Identity) {
        self.0.insert(hash(token), identity);
    }

    /// Makes a token known by its hash.
    pub fn insert_hash(&mut self, hash: [u8; 32], identity: Identity) {
        self.0.insert(hash, identity);
    }

    /// Whose token this is. The table is asked by hash, so how long it takes says nothing about a token.
    pub fn find(&self, token: &str) -> Option<&Identity> {
        self.0.get(&hash(token))
    }
}

/// What is kept of a token.
pub fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn viewers_read_everything_but_secrets() {
        let viewer = Identity::member("v", VIEWERS);
        for (verb, group, resource, allowed) in [
            ("list", "", "configmaps", true),
            ("get", "", "secrets", false),
            ("watch", "example.org", "secrets", true),
            ("create", "", "configmaps", false),
            ("create", "authorization.k8s.io", "selfsubjectaccessreviews", true),
            ("create", "authorization.k8s.io", "subjectaccessreviews", false),
        ] {
            assert_eq!(viewer.may(verb, group, resource), allowed, "{verb} {group}/{resource}");
        }
        assert!(Identity::member("a", ADMINISTRATORS).may("delete", "", "secrets"));
        assert!(!Identity::member("n", "nobody").may("list", "", "configmaps"));
    }

    #[test]
    fn tokens_are_found_by_what_they_hash_to() {
        let mut tokens = Tokens::default();
        tokens.insert("secret", Identity::member("a", ADMINISTRATORS));
        assert_eq!(tokens.find("secret").unwrap().user, "a");
        assert_eq!(tokens.find("Secret"), None);
    }
}
