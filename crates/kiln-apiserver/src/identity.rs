//! Who asks: a name and groups, from a certificate, a token or whoever embeds the router.
//!
//! Tokens are 256 random bits, and only their SHA-256 is kept: whoever reads the store cannot use them, and how long a
//! lookup takes says nothing about a token, because the table is asked by hash. What identities may do is in
//! [`crate::policy`].

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom, SystemRandom};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;

/// The group that may do everything.
pub const ADMINISTRATORS: &str = "system:masters";
/// The group that may read everything but secrets.
pub const VIEWERS: &str = "kiln:viewers";
/// The group of everybody who was recognised.
pub const AUTHENTICATED: &str = "system:authenticated";

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
        Identity { user: user.into(), groups: vec![group.into(), AUTHENTICATED.into()] }
    }

    /// Whether somebody belongs to a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|known| known == group)
    }
}

/// What is kept of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRecord {
    /// What people call it; says nothing about the token.
    pub id: String,
    /// Whom it stands for.
    pub identity: Identity,
    /// When it was made.
    pub issued: OffsetDateTime,
    /// When it ends; never without.
    pub expires: Option<OffsetDateTime>,
}

/// A token that was just made. Its text is shown once and kept nowhere.
#[derive(Clone)]
pub struct IssuedToken {
    /// What the client sends. Secret.
    pub text: String,
    /// What is kept of it.
    pub record: TokenRecord,
}

impl std::fmt::Debug for IssuedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IssuedToken").field("text", &"…").field("record", &self.record).finish()
    }
}

/// What a token hashes to.
pub type TokenHash = [u8; 32];

/// Bearer tokens and whom they stand for.
#[derive(Debug, Clone, Default)]
pub struct Tokens(HashMap<TokenHash, TokenRecord>);

impl Tokens {
    /// Makes a token known for as long as the process lives. Only its hash is kept.
    pub fn insert(&mut self, token: &str, identity: Identity) {
        let record = TokenRecord { id: String::new(), identity, issued: OffsetDateTime::UNIX_EPOCH, expires: None };
        self.0.insert(hash(token), record);
    }

    /// Makes a token known by its hash.
    pub fn insert_record(&mut self, hash: TokenHash, record: TokenRecord) {
        self.0.insert(hash, record);
    }

    /// Makes all of those known, too.
    pub fn extend(&mut self, more: Tokens) {
        self.0.extend(more.0);
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&TokenHash, &TokenRecord)> {
        self.0.iter()
    }

    /// Whose token this is, unless it has expired.
    pub fn find(&self, token: &str, now: OffsetDateTime) -> Option<&Identity> {
        let record = self.0.get(&hash(token))?;
        record.expires.is_none_or(|expires| now < expires).then_some(&record.identity)
    }

    fn hash_of(&self, id: &str) -> Option<TokenHash> {
        self.0.iter().find(|(_, record)| record.id == id && !id.is_empty()).map(|(hash, _)| *hash)
    }
}

/// The tokens of a running server: read without locks, changed by replacing the table.
#[derive(Debug, Default)]
pub(crate) struct TokenTable(ArcSwap<Tokens>);

impl TokenTable {
    pub(crate) fn new(tokens: Tokens) -> TokenTable {
        TokenTable(ArcSwap::from_pointee(tokens))
    }

    pub(crate) fn find(&self, token: &str, now: OffsetDateTime) -> Option<Identity> {
        self.0.load().find(token, now).cloned()
    }

    pub(crate) fn hash_of(&self, id: &str) -> Option<TokenHash> {
        self.0.load().hash_of(id)
    }

    pub(crate) fn insert(&self, hash: TokenHash, record: &TokenRecord) {
        self.0.rcu(|known| {
            let mut next = Tokens::clone(known);
            next.insert_record(hash, record.clone());
            Arc::new(next)
        });
    }

    pub(crate) fn remove(&self, hash: &TokenHash) {
        self.0.rcu(|known| {
            let mut next = Tokens::clone(known);
            next.0.remove(hash);
            Arc::new(next)
        });
    }

    /// Those that were issued are these from now on; those that were only made known stay.
    pub(crate) fn replace_issued(&self, issued: Tokens) {
        self.0.rcu(|known| {
            let given = known.0.iter().filter(|(_, record)| record.id.is_empty());
            let mut next = Tokens(given.map(|(hash, record)| (*hash, record.clone())).collect());
            next.extend(issued.clone());
            Arc::new(next)
        });
    }

    /// What is known of the tokens that were issued, oldest first.
    pub(crate) fn records(&self) -> Vec<TokenRecord> {
        let mut records: Vec<TokenRecord> =
            self.0.load().0.values().filter(|record| !record.id.is_empty()).cloned().collect();
        records.sort_by(|a, b| (a.issued, &a.id).cmp(&(b.issued, &b.id)));
        records
    }
}

/// Makes a token; nothing is kept yet. Fails when the system has no random numbers.
pub(crate) fn make_token(
    identity: Identity,
    issued: OffsetDateTime,
    expires: Option<OffsetDateTime>,
) -> Option<IssuedToken> {
    let mut random = [0; 32];
    SystemRandom::new().fill(&mut random).ok()?;
    // The beginning lets scanners for leaked secrets recognise it.
    let text = format!("kiln_{}", URL_SAFE_NO_PAD.encode(random));
    let id = hash(&text)[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    Some(IssuedToken { text, record: TokenRecord { id, identity, issued, expires } })
}

/// What is kept of a token's text.
pub fn hash(token: &str) -> TokenHash {
    Sha256::digest(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use time::Duration;

    use super::*;

    #[test]
    fn tokens_are_found_by_what_they_hash_to_until_they_expire() {
        let now = OffsetDateTime::UNIX_EPOCH + Duration::days(1);
        let admin = Identity::member("a", ADMINISTRATORS);
        let mut tokens = Tokens::default();
        tokens.insert("secret", admin.clone());
        let brief = make_token(admin.clone(), now, Some(now + Duration::minutes(1))).unwrap();
        tokens.insert_record(hash(&brief.text), brief.record.clone());
        assert_eq!(tokens.find("secret", now), Some(&admin));
        assert_eq!(tokens.find("Secret", now), None);
        assert_eq!(tokens.find(&brief.text, now), Some(&admin));
        assert_eq!(tokens.find(&brief.text, now + Duration::minutes(1)), None);
        assert_eq!((brief.text.len(), brief.record.id.len()), (48, 12));
        assert!(!format!("{brief:?}").contains(&brief.text), "a token is never printed by accident");
    }
}
