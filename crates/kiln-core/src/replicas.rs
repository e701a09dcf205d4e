//! How many of its hosts a pool has in service, and which.
//!
//! [`choose`] is total and deterministic, and looks at nothing but its arguments. A pool that says no number has all of
//! its hosts. One that says a number keeps what it has, takes the oldest available hosts when it has too few, and lets go
//! when it has too many: first those somebody marked, then those that are not ready, then the youngest.
//!
//! **Invariant:** when a pool has as many as it says, nothing changes: no host goes so that another may come.
//! Not here: what taking and letting go are, see `kiln::hub::pools`.

use crate::timeline::Moment;

/// The annotation by which people say which host goes first, as Cluster API has it on a Machine.
pub const MARK: &str = "cluster.x-k8s.io/delete-machine";
/// The annotation that keeps a host from being taken; its value says why.
pub const HOLD: &str = "kiln.dev/hold";
/// Annotations by which metal3 is told to leave a host alone.
pub const HOLDS_OF_METAL3: [&str; 2] = ["baremetalhost.metal3.io/paused", "baremetalhost.metal3.io/detached"];

/// A host of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// Namespace and name.
    pub place: (&'a str, &'a str),
    /// Whether it is in service.
    pub taken: bool,
    /// Whether somebody wants it gone before others.
    pub marked: bool,
    /// Why it may not be taken; empty when nobody says why.
    pub held: Option<&'a str>,
    /// What is wrong with what is declared of it.
    pub error: Option<&'a str>,
    /// Whether its Node is ready.
    pub ready: bool,
    /// When it was declared.
    pub created: Moment,
}

/// What becomes of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate<'a> {
    /// It is in service, or comes into it.
    InService,
    /// It goes out of service.
    Released,
    /// The pool has as many as it says.
    Full,
    /// Somebody holds it.
    Held(&'a str),
    /// What is declared of it cannot work.
    Invalid(&'a str),
    /// Somebody wants it gone.
    Marked,
}

impl Fate<'_> {
    /// The word in a status.
    pub const fn reason(self) -> &'static str {
        match self {
            Fate::InService => "InService",
            Fate::Released => "Releasing",
            Fate::Full => "PoolIsFull",
            Fate::Held(_) => "Held",
            Fate::Invalid(_) => "Invalid",
            Fate::Marked => "Marked",
        }
    }
}

/// How many hosts a pool wants in service; all of them without a number.
///
/// A NodePool of platform None says 0 because its machines are not HyperShift's: nobody goes out of service for that.
pub fn wanted(platform: Option<&str>, replicas: Option<u32>) -> Option<u32> {
    replicas.filter(|replicas| *replicas > 0 || platform != Some("None"))
}

/// Decides about every host of a pool, in their order.
pub fn choose<'a>(replicas: Option<u32>, hosts: &[Candidate<'a>]) -> Vec<Fate<'a>> {
    let Some(replicas) = replicas else { return vec![Fate::InService; hosts.len()] };
    let replicas = usize::try_from(replicas).unwrap_or(usize::MAX);
    let mut fates: Vec<Fate> = hosts.iter().map(|host| if host.taken { Fate::InService } else { wait(host) }).collect();
    let taken = hosts.iter().filter(|host| host.taken).count();
    let mut order: Vec<usize> = (0..hosts.len()).collect();
    if taken > replicas {
        order.retain(|index| hosts[*index].taken);
        // Whoever goes first stands first. One that is held is touched last.
        order.sort_by_key(|index| {
            let host = &hosts[*index];
            (!host.marked, host.held.is_some(), host.ready, std::cmp::Reverse((host.created, host.place)))
        });
        order.iter().take(taken - replicas).for_each(|index| fates[*index] = Fate::Released);
    } else {
        order.retain(|index| fates[*index] == Fate::Full);
        order.sort_by_key(|index| (hosts[*index].created, hosts[*index].place));
        order.iter().take(replicas - taken).for_each(|index| fates[*index] = Fate::InService);
    }
    fates
}

/// Why a host waits that is not taken; [`Fate::Full`] when only the number is in its way.
fn wait<'a>(host: &Candidate<'a>) -> Fate<'a> {
    match host {
        Candidate { held: Some(why), .. } => Fate::Held(why),
        Candidate { error: Some(error), .. } => Fate::Invalid(error),
        Candidate { marked: true, .. } => Fate::Marked,
        _ => Fate::Full,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

    /// `T` taken, `R` ready, `m` marked, `h` held, `e` an error; younger from left to right.
    fn hosts(words: &[&str]) -> Vec<Candidate<'static>> {
        let of = |(index, word): (usize, &&str)| Candidate {
            place: ("lab", NAMES[index]),
            taken: word.contains('T'),
            marked: word.contains('m'),
            held: word.contains('h').then_some("burn-in"),
            error: word.contains('e').then_some("KLN0101: no"),
            ready: word.contains('R'),
            created: Moment(index as i64),
        };
        words.iter().enumerate().map(of).collect()
    }

    #[test]
    fn a_pool_whose_machines_are_brought_keeps_them_when_it_says_0() {
        assert_eq!(wanted(Some("None"), Some(0)), None);
        assert_eq!(wanted(Some("None"), Some(2)), Some(2));
        assert_eq!(wanted(Some("Agent"), Some(0)), Some(0));
        assert_eq!(wanted(None, Some(0)), Some(0));
        assert_eq!(wanted(None, None), None);
    }

    fn told(replicas: Option<u32>, words: &[&str]) -> String {
        choose(replicas, &hosts(words)).into_iter().map(Fate::reason).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_pool_takes_the_oldest_and_lets_the_marked_the_late_and_the_youngest_go() {
        for (replicas, words, expected) in [
            (None, &["", "e", "h", "Tm"][..], "InService InService InService InService"),
            (Some(2), &["", "", ""], "InService InService PoolIsFull"),
            (Some(0), &["", "T"], "PoolIsFull Releasing"),
            (Some(2), &["e", "h", "m", "", ""], "Invalid Held Marked InService InService"),
            (Some(9), &["e", "h", "m", "", ""], "Invalid Held Marked InService InService"),
            (Some(1), &["", "TR"], "PoolIsFull InService"),
            (Some(1), &["T", "TR"], "Releasing InService"),
            (Some(1), &["TR", "TR"], "InService Releasing"),
            (Some(1), &["TRm", "T"], "Releasing InService"),
            (Some(1), &["TR", "Th"], "Releasing InService"),
            (Some(1), &["Th", "Th"], "InService Releasing"),
            (Some(2), &["Te", "Tm", ""], "InService InService PoolIsFull"),
            (Some(1), &["T", "T", "T"], "InService Releasing Releasing"),
        ] {
            assert_eq!(told(replicas, words), expected, "{replicas:?} {words:?}");
        }
    }

    prop_compose! {
        fn any_host()(flags in any::<[bool; 5]>(), created in 0..4_i64) -> ([bool; 5], i64) {
            (flags, created)
        }
    }

    proptest! {
        #[test]
        fn never_more_than_asked_and_nothing_changes_without_cause(
            seeds in prop::collection::vec(any_host(), 0..8), replicas in 0..9_u32, turn in 0..8_usize,
        ) {
            let mut hosts: Vec<Candidate> = seeds.iter().enumerate().map(|(index, ([taken, marked, held, wrong, ready], created))| Candidate {
                place: ("lab", NAMES[index]), taken: *taken, marked: *marked, held: held.then_some(""),
                error: wrong.then_some("no"), ready: *ready, created: Moment(*created),
            }).collect();
            let before = hosts.clone();
            let fates = choose(Some(replicas), &hosts);
            let in_service = fates.iter().filter(|fate| **fate == Fate::InService).count();
            prop_assert!(in_service <= replicas as usize);
            // Somebody comes or somebody goes, never both.
            let comes = fates.iter().zip(&before).any(|(fate, host)| *fate == Fate::InService && !host.taken);
            let goes = fates.contains(&Fate::Released);
            prop_assert!(!(comes && goes));
            // A host stays out only when the pool has enough, or for a reason of its own.
            let full = in_service == replicas as usize;
            prop_assert!(full || !fates.contains(&Fate::Full));
            for (host, fate) in hosts.iter_mut().zip(&fates) {
                host.taken = *fate == Fate::InService;
            }
            let again = choose(Some(replicas), &hosts);
            for (first, second) in fates.iter().zip(&again) {
                prop_assert_eq!(*first == Fate::InService, *second == Fate::InService, "it changed its mind");
            }
            // The order they come in decides nothing.
            let mut turned = before.clone();
            let by = turn % turned.len().max(1);
            turned.rotate_left(by);
            let mut other = choose(Some(replicas), &turned);
            other.rotate_right(by);
            prop_assert_eq!(fates, other);
        }
    }
}
