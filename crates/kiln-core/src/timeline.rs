//! A host's timeline: what is known to have happened to it, when, and who saw it.
//!
//! [`Timeline::merge`] is the only way in. Merging the same entry twice changes nothing, the order of arrival does not
//! matter, and the number of entries has an upper bound, so several witnesses may report the same thing at their leisure.
//! [`why()`] tells from it which stage a host has not reached, the likeliest cause and the next step.
//!
//! Not here: clocks and texts of time. A [`Moment`] is a number of seconds; whoever observes brings it.
//! A stage that nobody witnessed is not missing when a later one was: a node that is Ready did read its image.

use std::fmt;
use std::str::FromStr;

pub mod first_boot;
mod inference;
mod why;

pub use why::{Likelihood, Situation, Why, why};

/// Seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub i64);

/// One step on the way of a machine, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Somebody wrote it down.
    Declared,
    /// Its management controller says it is on.
    PoweredOn,
    /// Its boot image was read.
    ImageRead,
    /// It reported from the discovery image.
    Discovered,
    /// What it reported fits what was declared.
    Validated,
    /// The system is on its disk.
    Installed,
    /// The initramfs fetched its Ignition config.
    IgnitionFetched,
    /// The installed system reported.
    RealRoot,
    /// Its kubelet asked for a client certificate and got it.
    ClientCsr,
    /// Its Node exists.
    Registered,
    /// Its kubelet asked for a serving certificate and got it.
    ServingCsr,
    /// Its Node is ready.
    Ready,
    /// A change on the running node.
    Changed,
}

impl Stage {
    /// The stages every host goes through, in order.
    pub const PATH: [Stage; 12] = [
        Stage::Declared,
        Stage::PoweredOn,
        Stage::ImageRead,
        Stage::Discovered,
        Stage::Validated,
        Stage::Installed,
        Stage::IgnitionFetched,
        Stage::RealRoot,
        Stage::ClientCsr,
        Stage::Registered,
        Stage::ServingCsr,
        Stage::Ready,
    ];

    /// The name people and programs use.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Declared => "Declared",
            Stage::PoweredOn => "PoweredOn",
            Stage::ImageRead => "ImageRead",
            Stage::Discovered => "Discovered",
            Stage::Validated => "Validated",
            Stage::Installed => "Installed",
            Stage::IgnitionFetched => "IgnitionFetched",
            Stage::RealRoot => "RealRoot",
            Stage::ClientCsr => "ClientCSR",
            Stage::Registered => "Registered",
            Stage::ServingCsr => "ServingCSR",
            Stage::Ready => "Ready",
            Stage::Changed => "Changed",
        }
    }

    /// The stage after this one.
    fn next(self) -> Option<Stage> {
        Stage::PATH.into_iter().find(|stage| *stage > self)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that names no stage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no stage of a host; the first is Declared and the last before changes is Ready")]
pub struct UnknownStage(String);

impl FromStr for Stage {
    type Err = UnknownStage;
    fn from_str(name: &str) -> Result<Self, UnknownStage> {
        let mut known = Stage::PATH.into_iter().chain([Stage::Changed]);
        known.find(|stage| stage.name() == name).ok_or_else(|| UnknownStage(name.to_owned()))
    }
}

/// Whether a stage was reached or tried in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// It happened.
    Reached,
    /// It was tried and did not happen.
    Failed,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What.
    pub stage: Stage,
    /// Whether it worked.
    pub outcome: Outcome,
    /// When.
    pub time: Moment,
    /// Who saw it: `BareMetalHost ztp/worker-0`, `node agent`, `image server`.
    pub source: String,
    /// What the witness knows of it.
    pub cause: String,
}

impl Entry {
    /// Something that happened.
    pub fn reached(stage: Stage, time: Moment, source: impl Into<String>, cause: impl Into<String>) -> Entry {
        Entry { stage, outcome: Outcome::Reached, time, source: source.into(), cause: cause.into() }
    }

    /// Something that was tried in vain.
    pub fn failed(stage: Stage, time: Moment, source: impl Into<String>, cause: impl Into<String>) -> Entry {
        Entry { outcome: Outcome::Failed, ..Entry::reached(stage, time, source, cause) }
    }

    fn event(&self) -> (Stage, Outcome, &str, &str) {
        (self.stage, self.outcome, &self.source, &self.cause)
    }

    fn order(&self) -> (Moment, Stage, Outcome, &str, &str) {
        (self.time, self.stage, self.outcome, &self.source, &self.cause)
    }
}

/// How many entries of one stage and outcome are kept: the first and the latest ones.
pub const KEPT_PER_STAGE: usize = 4;
/// How many changes of a running node are kept: the first and the latest ones.
pub const KEPT_CHANGES: usize = 16;
/// How long a source or a cause may be, in bytes. What is longer is cut.
pub const LONGEST_TEXT: usize = 512;

/// What is known of one host, in the order of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeline {
    entries: Vec<Entry>,
    /// When the host began anew.
    since: Option<Moment>,
}

impl Timeline {
    /// A timeline of these entries.
    pub fn of(entries: impl IntoIterator<Item = Entry>) -> Timeline {
        let mut timeline = Timeline::default();
        for entry in entries {
            timeline.merge(entry);
        }
        timeline.entries.shrink_to_fit();
        timeline
    }

    /// The same for a host that began anew then: it has come nowhere by what happened before.
    #[must_use]
    pub fn begun_anew(self, since: Option<Moment>) -> Timeline {
        Timeline { since, ..self }
    }

    /// Everything known, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Takes an entry. Says whether anything changed.
    ///
    /// The same event seen twice (stage, outcome, source and cause) is one entry with the earlier time.
    pub fn merge(&mut self, mut entry: Entry) -> bool {
        shorten(&mut entry.source);
        shorten(&mut entry.cause);
        match self.entries.iter_mut().find(|known| known.event() == entry.event()) {
            Some(known) if known.time <= entry.time => return false,
            Some(known) => known.time = entry.time,
            None => self.entries.push(entry.clone()),
        }
        self.entries.sort_by(|left, right| left.order().cmp(&right.order()));
        self.forget(entry.stage, entry.outcome);
        // Too many of its sort: it may be the one that was let go.
        self.entries.iter().any(|known| known.event() == entry.event())
    }

    /// The latest entry that says a stage was reached, since the machine last reported from its discovery image: from
    /// then on it is a new machine, whatever its disk held before.
    pub fn reached(&self, stage: Stage) -> Option<&Entry> {
        let latest = |stage: Stage| {
            let mut of_stage = self.entries.iter().rev().filter(move |entry| entry.stage == stage);
            of_stage.find(|entry| entry.outcome == Outcome::Reached)
        };
        let latest = |stage: Stage| {
            latest(stage).filter(|entry| stage == Stage::Declared || self.since.is_none_or(|since| since <= entry.time))
        };
        let reborn = latest(Stage::Discovered).map(|entry| entry.time);
        latest(stage).filter(|entry| stage <= Stage::Discovered || reborn.is_none_or(|reborn| reborn <= entry.time))
    }

    /// The furthest stage it has come to.
    pub fn furthest(&self) -> Option<&Entry> {
        Stage::PATH.iter().rev().find_map(|stage| self.reached(*stage))
    }

    /// The first stage it has not come to. None when it is Ready.
    pub fn missing(&self) -> Option<Stage> {
        self.furthest().map_or(Some(Stage::Declared), |entry| entry.stage.next())
    }

    /// The latest vain attempt at a stage or one after it, not older than the furthest stage.
    fn failure(&self, stage: Stage) -> Option<&Entry> {
        let since = self.furthest().map(|entry| entry.time);
        self.entries.iter().rev().find(|entry| {
            entry.outcome == Outcome::Failed && entry.stage >= stage && since.is_none_or(|since| since <= entry.time)
        })
    }

    /// Keeps the first and the latest entries of one sort.
    fn forget(&mut self, stage: Stage, outcome: Outcome) {
        let kept = if stage == Stage::Changed { KEPT_CHANGES } else { KEPT_PER_STAGE };
        let of_sort = |entry: &Entry| entry.stage == stage && entry.outcome == outcome;
        while self.entries.iter().filter(|entry| of_sort(entry)).count() > kept {
            let second = self.entries.iter().enumerate().filter(|(_, entry)| of_sort(entry)).nth(1);
            let Some((second, _)) = second else { return };
            self.entries.remove(second);
        }
    }
}

fn shorten(text: &mut String) {
    if text.len() > LONGEST_TEXT {
        let mut end = LONGEST_TEXT;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(stage: Stage, time: i64) -> Entry {
        Entry::reached(stage, Moment(time), "test", format!("at {time}"))
    }

    #[test]
    fn every_stage_is_read_back_by_its_name() {
        for stage in Stage::PATH.into_iter().chain([Stage::Changed]) {
            assert_eq!(stage.name().parse(), Ok(stage));
        }
        let error = "Powered".parse::<Stage>().unwrap_err();
        let expected = "`Powered` is no stage of a host; the first is Declared and the last before changes is Ready";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_stage_nobody_saw_is_not_missing_when_a_later_one_was_seen() {
        let mut timeline = Timeline::default();
        assert_eq!(timeline.missing(), Some(Stage::Declared));
        timeline.merge(at(Stage::Declared, 1));
        assert_eq!(timeline.missing(), Some(Stage::PoweredOn));
        timeline.merge(at(Stage::Registered, 9));
        assert_eq!(timeline.missing(), Some(Stage::ServingCsr));
        timeline.merge(at(Stage::Ready, 10));
        assert_eq!(timeline.missing(), None);
    }

    #[test]
    fn a_machine_that_reports_from_its_discovery_image_again_begins_anew() {
        let mut timeline = Timeline::of([at(Stage::Declared, 1), at(Stage::Discovered, 2), at(Stage::Ready, 3)]);
        timeline.merge(at(Stage::Discovered, 10));
        assert_eq!(timeline.missing(), Some(Stage::Validated));
        timeline.merge(at(Stage::Installed, 11));
        assert_eq!(timeline.missing(), Some(Stage::IgnitionFetched));
    }

    #[test]
    fn the_first_and_the_latest_are_kept_however_many_there_are() {
        let timeline = Timeline::of((0..1000).map(|time| at(Stage::PoweredOn, time)));
        let times: Vec<i64> = timeline.entries().iter().map(|entry| entry.time.0).collect();
        assert_eq!(times, [0, 997, 998, 999]);
        let changes = Timeline::of((0..1000).map(|time| at(Stage::Changed, time)));
        assert_eq!(changes.entries().len(), KEPT_CHANGES);
    }

    #[test]
    fn a_long_text_is_cut_between_letters() {
        let mut timeline = Timeline::default();
        timeline.merge(Entry::failed(Stage::ImageRead, Moment(1), "s", "ä".repeat(400) + "b"));
        assert_eq!(timeline.entries()[0].cause, "ä".repeat(256));
    }

    fn any_entry() -> impl Strategy<Value = Entry> {
        let stages: Vec<Stage> = Stage::PATH.into_iter().chain([Stage::Changed]).collect();
        (proptest::sample::select(stages), any::<bool>(), 0..40_i64).prop_map(|(stage, failed, time)| {
            // one event has one time, as honest witnesses report it
            let entry = at(stage, time);
            if failed { Entry { outcome: Outcome::Failed, ..entry } } else { entry }
        })
    }

    #[test]
    fn a_host_that_began_anew_has_come_nowhere_by_what_was_before() {
        let old = Timeline::of([at(Stage::Declared, 1), at(Stage::PoweredOn, 2), at(Stage::Ready, 3)]);
        assert_eq!(old.furthest().map(|entry| entry.stage), Some(Stage::Ready));
        let mut anew = old.begun_anew(Some(Moment(10)));
        assert_eq!(anew.missing(), Some(Stage::PoweredOn));
        assert!(anew.merge(at(Stage::IgnitionFetched, 11)));
        assert_eq!(anew.furthest().map(|entry| entry.stage), Some(Stage::IgnitionFetched));
        assert_eq!(anew.entries().len(), 4, "what happened is not forgotten");
    }

    proptest! {
        #[test]
        fn merging_again_changes_nothing(entries in prop::collection::vec(any_entry(), 0..80)) {
            let once = Timeline::of(entries);
            let mut twice = once.clone();
            for entry in once.entries().to_vec() {
                prop_assert!(!twice.merge(entry));
            }
            prop_assert_eq!(twice, once);
        }

        #[test]
        fn the_order_of_arrival_does_not_matter(entries in prop::collection::vec(any_entry(), 0..80), seed in 0..1000_usize) {
            let mut turned = entries.clone();
            let middle = if turned.is_empty() { 0 } else { seed % turned.len() };
            turned.rotate_left(middle);
            turned.reverse();
            prop_assert_eq!(Timeline::of(entries), Timeline::of(turned));
        }

        #[test]
        fn it_never_grows_beyond_its_bound(entries in prop::collection::vec(any_entry(), 0..300)) {
            prop_assert!(Timeline::of(entries).entries().len() <= 2 * (12 * KEPT_PER_STAGE + KEPT_CHANGES));
        }
    }
}
