//! Tokens of pools, as HyperShift has them: shared by the machines of a pool, used many times, rotated, outlived by the
//! one before.
//!
//! [`judge_current`] and [`judge_outdated`] decide what becomes of a token Secret; time comes in. A token is made new after
//! [`ROTATE_AFTER`] and the old one stays valid beside it, [`LIFETIME`] in all. When the pool's config changes, the token
//! of the old config lives for [`GRACE`], set once, so that machines that are just booting come through.
//!
//! What surprises: a missing time of generation means "rotate now", which is how a person asks for it; an expiry that cannot
//! be read means "expired".

use crate::timeline::Moment;

/// Seconds until a token is made new: five and a half hours.
pub const ROTATE_AFTER: i64 = 19_800;
/// Seconds a token is valid: eleven hours, half of them as the old one.
pub const LIFETIME: i64 = 39_600;
/// Seconds the token of an outdated config goes on: two hours.
pub const GRACE: i64 = 7_200;

/// What a token Secret says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolTokenRecord {
    /// When its token was made, if that can be read.
    pub generated: Option<Moment>,
    /// Until when it may live.
    pub expires: Expiry,
}

/// Until when a token Secret may live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// As long as its config is the pool's.
    Open,
    /// Until then.
    At(Moment),
    /// Something is written there that is no time: dead.
    Unreadable,
}

impl Expiry {
    /// Whether nobody gets in with it any more.
    pub fn is_past(self, now: Moment) -> bool {
        match self {
            Expiry::Open => false,
            Expiry::At(end) => end <= now,
            Expiry::Unreadable => true,
        }
    }
}

/// What becomes of the token of the pool's present config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Current {
    /// It stays; look again then.
    Keep {
        /// When it is to be rotated.
        until: Moment,
    },
    /// A new token is made.
    Rotate {
        /// Whether the one before stays valid beside it.
        keep_old: bool,
    },
}

/// What becomes of the token of an earlier config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outdated {
    /// Its end is set.
    Expire {
        /// When.
        at: Moment,
    },
    /// Its end is set already; look again then.
    Wait {
        /// When.
        until: Moment,
    },
    /// It goes.
    Delete,
}

/// Decides about the token of the present config. An expiry it still has is taken away: its config came back.
pub fn judge_current(record: &PoolTokenRecord, now: Moment) -> Current {
    let Some(generated) = record.generated else { return Current::Rotate { keep_old: true } };
    let age = now.0.saturating_sub(generated.0);
    if age >= ROTATE_AFTER {
        // Nobody rotated it in time: a token that has had its life does not get half of another.
        Current::Rotate { keep_old: age < LIFETIME }
    } else {
        Current::Keep { until: Moment(generated.0.saturating_add(ROTATE_AFTER)) }
    }
}

/// Decides about the token of an earlier config.
pub fn judge_outdated(record: &PoolTokenRecord, now: Moment) -> Outdated {
    match record.expires {
        Expiry::Open => Outdated::Expire { at: Moment(now.0.saturating_add(GRACE)) },
        Expiry::At(end) if end > now => Outdated::Wait { until: end },
        Expiry::At(_) | Expiry::Unreadable => Outdated::Delete,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(generated: Option<i64>, expires: Expiry) -> PoolTokenRecord {
        PoolTokenRecord { generated: generated.map(Moment), expires }
    }

    #[test]
    fn a_token_is_rotated_after_half_its_life() {
        let at = |age: i64| judge_current(&record(Some(1_000), Expiry::Open), Moment(1_000 + age));
        assert_eq!(at(0), Current::Keep { until: Moment(20_800) });
        assert_eq!(at(19_799), Current::Keep { until: Moment(20_800) });
        assert_eq!(at(19_800), Current::Rotate { keep_old: true });
        assert_eq!(at(39_599), Current::Rotate { keep_old: true });
        assert_eq!(at(39_600), Current::Rotate { keep_old: false });
        assert_eq!(at(-50), Current::Keep { until: Moment(20_800) }, "a clock that went back rotates nothing");
        assert_eq!(judge_current(&record(None, Expiry::Open), Moment(5)), Current::Rotate { keep_old: true });
    }

    #[test]
    fn the_end_of_an_outdated_token_is_set_once() {
        let at = |expires, now| judge_outdated(&record(Some(0), expires), Moment(now));
        assert_eq!(at(Expiry::Open, 100), Outdated::Expire { at: Moment(7_300) });
        assert_eq!(at(Expiry::At(Moment(7_300)), 200), Outdated::Wait { until: Moment(7_300) });
        assert_eq!(at(Expiry::At(Moment(7_300)), 7_300), Outdated::Delete);
        assert_eq!(at(Expiry::Unreadable, 0), Outdated::Delete);
        assert!(Expiry::Unreadable.is_past(Moment(0)) && !Expiry::Open.is_past(Moment(i64::MAX)));
    }

    proptest! {
        #[test]
        fn looking_when_told_always_finds_something_to_do(generated in 0..i64::MAX / 4, age in 0..ROTATE_AFTER) {
            let record = record(Some(generated), Expiry::Open);
            let Current::Keep { until } = judge_current(&record, Moment(generated + age)) else { return Ok(()) };
            let rotated = matches!(judge_current(&record, until), Current::Rotate { keep_old: true });
            prop_assert!(rotated);
        }
    }
}
