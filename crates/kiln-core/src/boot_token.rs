//! Boot tokens: what a machine shows to get the one config that was made for it.
//!
//! A token belongs to one host and one provision generation. The first fetch uses it up; the same source may ask again
//! for a short while, because an answer can get lost on the way. Anybody else who shows it raises an alarm: two
//! machines have a secret that was made for one.
//!
//! Pure: [`judge`] gets the record, the source and the time, and says what must be written *before* the config may leave.
//! Not here: randomness and hashing (the text of a token is never kept, only its SHA-256), and how a record stands in a Secret,
//! see `kiln::hub::boot_secrets`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::timeline::Moment;

/// How long the source of the first fetch may ask again, in seconds.
pub const RETRY_SECONDS: i64 = 300;
/// How long a token that was not used is good, in seconds.
pub const LIFETIME_SECONDS: i64 = 24 * 3600;

/// What every token begins with, so that scanners for leaked secrets recognise it.
const PREFIX: &str = "kiln-";
/// Characters of 32 bytes in base64 without padding.
const ENCODED: usize = 43;

/// The text of a token: `kiln-` and 256 random bits. Secret: it is shown once and kept nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct BootToken(String);

impl BootToken {
    /// The token of these random bytes.
    pub fn of_random(random: [u8; 32]) -> BootToken {
        BootToken(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random)))
    }

    /// What the machine sends. Secret.
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for BootToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BootToken(…)")
    }
}

/// A text that is no boot token. It does not repeat the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a boot token: `kiln-` and 43 characters of base64url are expected")]
pub struct NoBootToken;

impl FromStr for BootToken {
    type Err = NoBootToken;

    /// Strict: one text for each token, nothing around it.
    fn from_str(text: &str) -> Result<Self, NoBootToken> {
        let encoded = text.strip_prefix(PREFIX).filter(|encoded| encoded.len() == ENCODED).ok_or(NoBootToken)?;
        let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| NoBootToken)?;
        <[u8; 32]>::try_from(bytes).map(BootToken::of_random).map_err(|_| NoBootToken)
    }
}

/// The SHA-256 of a token's text: all that is kept of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenHash(pub [u8; 32]);

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Enough to tell two apart in a log.
        self.0.iter().take(4).try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("…")
    }
}

/// A text that is no hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a SHA-256: 64 hexadecimal digits in small letters are expected")]
pub struct NoTokenHash;

impl FromStr for TokenHash {
    type Err = NoTokenHash;

    fn from_str(text: &str) -> Result<Self, NoTokenHash> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            b'a'..=b'f' => Ok(byte - b'a' + 10),
            _ => Err(NoTokenHash),
        };
        let bytes: &[u8; 64] = text.as_bytes().try_into().map_err(|_| NoTokenHash)?;
        let mut hash = [0; 32];
        let (pairs, _) = bytes.as_chunks::<2>();
        for (byte, [high, low]) in hash.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Ok(TokenHash(hash))
    }
}

/// The first fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    /// When.
    pub at: Moment,
    /// From where.
    pub source: IpAddr,
}

/// What is kept of a host's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BootRecord {
    /// What its text hashes to.
    pub hash: TokenHash,
    /// Which provisioning of the host it is for: one more at each issue.
    pub generation: u64,
    /// When it was made.
    pub issued: Moment,
    /// From when on it is not good any more.
    pub expires: Moment,
    /// The first fetch; none yet.
    pub used: Option<Use>,
    /// When somebody took it back.
    pub revoked: Option<Moment>,
}

impl BootRecord {
    /// A new token for a host, in place of the one before.
    pub fn issue(hash: TokenHash, previous: Option<&BootRecord>, now: Moment, lifetime_seconds: i64) -> BootRecord {
        BootRecord {
            hash,
            generation: previous.map_or(0, |previous| previous.generation).saturating_add(1),
            issued: now,
            expires: later(now, lifetime_seconds.max(0)),
            used: None,
            revoked: None,
        }
    }

    /// Taken back; the first time counts.
    #[must_use]
    pub fn revoke(self, now: Moment) -> BootRecord {
        BootRecord { revoked: self.revoked.or(Some(now)), ..self }
    }

    /// What people are told of it.
    pub fn state(&self, now: Moment) -> State {
        match self {
            BootRecord { revoked: Some(_), .. } => State::Revoked,
            BootRecord { used: Some(first), .. } if now < later(first.at, RETRY_SECONDS) => State::Retry,
            BootRecord { used: Some(_), .. } => State::Used,
            BootRecord { expires, .. } if *expires <= now => State::Expired,
            BootRecord { .. } => State::Unused,
        }
    }
}

/// Where a token stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Nobody has used it yet.
    Unused,
    /// Used a moment ago: the same source may ask again.
    Retry,
    /// Used up.
    Used,
    /// Not used in time.
    Expired,
    /// Taken back.
    Revoked,
}

impl State {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            State::Unused => "unused",
            State::Retry => "retry",
            State::Used => "used",
            State::Expired => "expired",
            State::Revoked => "revoked",
        }
    }
}

/// Whether there is something to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// The host's config is there.
    Ready,
    /// It is still being made.
    Pending,
}

/// Why nothing is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// No such token.
    Unknown,
    /// Not used in time.
    Expired,
    /// Taken back, or replaced by a newer one.
    Revoked,
    /// Used up.
    Used,
    /// Good, but the config is not there yet.
    Pending,
}

impl Refusal {
    /// Every reason.
    pub const ALL: [Refusal; 5] =
        [Refusal::Unknown, Refusal::Expired, Refusal::Revoked, Refusal::Used, Refusal::Pending];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Refusal::Unknown => "unknown",
            Refusal::Expired => "expired",
            Refusal::Revoked => "revoked",
            Refusal::Used => "used",
            Refusal::Pending => "pending",
        }
    }
}

/// What becomes of a fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// The config is sent, after the record (if there is one) is written over the one that was judged.
    Serve {
        /// The record with this use in it; none when it says so already.
        write: Option<BootRecord>,
    },
    /// Nothing is sent.
    Refuse(Refusal),
    /// Nothing is sent, and people must know: the token was used from somewhere else before.
    Alarm {
        /// The first fetch.
        first: Use,
    },
}

/// Judges one fetch. The caller has found the record by the hash of what the machine sent.
pub fn judge(record: Option<&BootRecord>, source: IpAddr, readiness: Readiness, now: Moment) -> Judgement {
    let Some(record) = record else { return Judgement::Refuse(Refusal::Unknown) };
    let source = source.to_canonical();
    match (record.used, readiness) {
        _ if record.revoked.is_some() => Judgement::Refuse(Refusal::Revoked),
        // It cannot be used any more, but whoever shows it from elsewhere has it from somewhere.
        (Some(first), _) if first.source != source => Judgement::Alarm { first },
        (Some(first), _) if later(first.at, RETRY_SECONDS) <= now => Judgement::Refuse(Refusal::Used),
        (None, _) if record.expires <= now => Judgement::Refuse(Refusal::Expired),
        // What is not served does not use the token up.
        (_, Readiness::Pending) => Judgement::Refuse(Refusal::Pending),
        (Some(_), Readiness::Ready) => Judgement::Serve { write: None },
        (None, Readiness::Ready) => {
            Judgement::Serve { write: Some(BootRecord { used: Some(Use { at: now, source }), ..*record }) }
        }
    }
}

fn later(moment: Moment, seconds: i64) -> Moment {
    Moment(moment.0.saturating_add(seconds))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HASH: TokenHash = TokenHash([7; 32]);

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn fresh() -> BootRecord {
        BootRecord::issue(HASH, None, Moment(1000), LIFETIME_SECONDS)
    }

    fn used() -> BootRecord {
        BootRecord { used: Some(Use { at: Moment(2000), source: address(1) }), ..fresh() }
    }

    #[test]
    fn a_token_is_one_text_and_never_printed() {
        let token = BootToken::of_random([0xab; 32]);
        assert_eq!(token.text(), "kiln-q6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s");
        assert_eq!(token.text().parse(), Ok(token.clone()));
        assert_eq!(format!("{token:?}"), "BootToken(…)");
        let text = token.text().to_owned();
        for wrong in [
            String::new(),
            "kiln-".into(),
            text.to_uppercase(),
            format!("{text}="),
            format!(" {text}"),
            text.replace("kiln-", "kiln_"),
            text[..47].to_owned(),
            // the same bytes with other bits behind the last one
            text.replace("q6s", "q6t"),
            text.replace("q6s", "q6+"),
        ] {
            assert_eq!(wrong.parse::<BootToken>(), Err(NoBootToken), "{wrong}");
        }
    }

    #[test]
    fn a_hash_is_read_as_it_is_written() {
        let text = HASH.to_string();
        assert_eq!((text.len(), text.parse()), (64, Ok(HASH)));
        assert_eq!(format!("{HASH:?}"), "07070707…");
        for wrong in ["", "07", &text.replace('7', "A"), &text.replace('7', "g"), &format!("{text}0")] {
            assert_eq!(wrong.parse::<TokenHash>(), Err(NoTokenHash), "{wrong}");
        }
    }

    #[test]
    fn each_situation_has_its_judgement() {
        use Readiness::{Pending, Ready};
        let served_again = Judgement::Serve { write: None };
        let first = used().used.unwrap();
        let burnt = Judgement::Serve { write: Some(used()) };
        let end = 1000 + LIFETIME_SECONDS;
        for (what, record, source, readiness, now, expected) in [
            ("nobody knows it", None, 1, Ready, 2000, Judgement::Refuse(Refusal::Unknown)),
            ("the first fetch", Some(fresh()), 1, Ready, 2000, burnt),
            ("before the config is there", Some(fresh()), 1, Pending, 2000, Judgement::Refuse(Refusal::Pending)),
            ("the last second", Some(fresh()), 1, Pending, end - 1, Judgement::Refuse(Refusal::Pending)),
            ("too late", Some(fresh()), 1, Ready, end, Judgement::Refuse(Refusal::Expired)),
            ("too late and not ready", Some(fresh()), 1, Pending, end, Judgement::Refuse(Refusal::Expired)),
            ("once more", Some(used()), 1, Ready, 2000, served_again.clone()),
            ("once more, clock set back", Some(used()), 1, Ready, 1500, served_again.clone()),
            ("the end of the window", Some(used()), 1, Ready, 2000 + RETRY_SECONDS - 1, served_again),
            ("after the window", Some(used()), 1, Ready, 2000 + RETRY_SECONDS, Judgement::Refuse(Refusal::Used)),
            ("somebody else", Some(used()), 2, Ready, 2001, Judgement::Alarm { first }),
            ("somebody else, much later", Some(used()), 2, Ready, end + 1, Judgement::Alarm { first }),
            ("somebody else, not ready", Some(used()), 2, Pending, 2001, Judgement::Alarm { first }),
            ("taken back", Some(fresh().revoke(Moment(1500))), 1, Ready, 2000, Judgement::Refuse(Refusal::Revoked)),
            (
                "taken back after it was used",
                Some(used().revoke(Moment(2001))),
                1,
                Ready,
                2002,
                Judgement::Refuse(Refusal::Revoked),
            ),
        ] {
            assert_eq!(judge(record.as_ref(), address(source), readiness, Moment(now)), expected, "{what}");
        }
    }

    #[test]
    fn an_address_counts_as_the_same_in_either_notation() {
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        assert_eq!(judge(Some(&used()), mapped, Readiness::Ready, Moment(2001)), Judgement::Serve { write: None });
        let Judgement::Serve { write: Some(record) } = judge(Some(&fresh()), mapped, Readiness::Ready, Moment(2000))
        else {
            panic!("the first fetch is served")
        };
        assert_eq!(record, used());
    }

    #[test]
    fn a_new_token_is_for_the_next_generation() {
        let next = BootRecord::issue(TokenHash([8; 32]), Some(&used()), Moment(5000), 60);
        assert_eq!((next.generation, next.expires, next.used, next.revoked), (2, Moment(5060), None, None));
        assert_eq!(next.revoke(Moment(1)).revoke(Moment(2)).revoked, Some(Moment(1)));
        let states = [fresh(), used(), used().revoke(Moment(0))].map(|record| record.state(Moment(2100)).name());
        assert_eq!(states, ["unused", "retry", "revoked"]);
        let late = [fresh(), used()].map(|record| record.state(Moment(i64::MAX)).name());
        assert_eq!(late, ["expired", "used"]);
    }

    /// A machine that shows the token, at some later second.
    fn fetches() -> impl Strategy<Value = Vec<(u8, i64, bool)>> {
        prop::collection::vec((0..3_u8, 0..400_i64, any::<bool>()), 0..40)
    }

    proptest! {
        #[test]
        fn whatever_happens_one_source_at_most_gets_the_config(fetches in fetches(), revoked in prop::option::of(0..40_usize)) {
            let mut record = fresh();
            let mut now = 1000;
            let mut served: Vec<(u8, i64)> = Vec::new();
            for (turn, (source, pause, ready)) in fetches.into_iter().enumerate() {
                now += pause;
                if revoked == Some(turn) {
                    record = record.revoke(Moment(now));
                }
                let readiness = if ready { Readiness::Ready } else { Readiness::Pending };
                match judge(Some(&record), address(source), readiness, Moment(now)) {
                    Judgement::Serve { write } => {
                        prop_assert!(ready && record.revoked.is_none());
                        prop_assert_eq!(write.is_some(), served.is_empty(), "exactly the first use is written");
                        record = write.unwrap_or(record);
                        served.push((source, now));
                    }
                    Judgement::Alarm { first } => {
                        prop_assert_eq!(served.first().map(|(source, at)| Use { at: Moment(*at), source: address(*source) }), Some(first));
                        prop_assert_ne!(first.source, address(source));
                    }
                    Judgement::Refuse(refusal) => prop_assert_ne!(refusal, Refusal::Unknown),
                }
            }
            if let Some((first, at)) = served.first() {
                prop_assert!(served.iter().all(|(source, later)| source == first && later - at < RETRY_SECONDS));
                prop_assert!(at - 1000 < LIFETIME_SECONDS);
            }
        }

        #[test]
        fn no_time_makes_it_panic(issued: i64, used: Option<i64>, now: i64, lifetime: i64) {
            let used = used.map(|at| Use { at: Moment(at), source: address(1) });
            let record = BootRecord { used, ..BootRecord::issue(HASH, None, Moment(issued), lifetime) };
            let _ = (judge(Some(&record), address(1), Readiness::Ready, Moment(now)), record.state(Moment(now)));
        }

        #[test]
        fn every_random_token_is_read_back(random: [u8; 32]) {
            let token = BootToken::of_random(random);
            prop_assert_eq!(token.text().parse(), Ok(token.clone()));
        }

        #[test]
        fn no_text_makes_it_panic(text: String) {
            let _ = (text.parse::<BootToken>(), text.parse::<TokenHash>());
        }
    }
}
