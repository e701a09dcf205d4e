//! Whether a host comes along, and what is done about one that does not.
//!
//! [`judge_health`] is total and deterministic. A host waits for the next stage that somebody in the hub carries out or
//! witnesses; when that takes longer than the stages on the way to it may take, it is late, and the pool's policy says
//! what follows: nothing, a new generation, a power cycle, and after some attempts nothing any more.
//!
//! A host that is only declared is not late: nobody may have switched it on.
//! [`take_turns`] keeps repairs within the pool's budget.
//! Not here: carrying out, see `kiln::hub::health`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::timeline::{Moment, Stage, Timeline};

/// How long each stage may take, generous: a machine with much memory needs twenty minutes for its self-test alone.
const USUAL: [(Stage, i64); 11] = [
    (Stage::PoweredOn, 900),
    (Stage::ImageRead, 2400),
    (Stage::Discovered, 1800),
    (Stage::Validated, 900),
    (Stage::Installed, 5400),
    (Stage::IgnitionFetched, 3600),
    (Stage::RealRoot, 1800),
    (Stage::ClientCsr, 1800),
    (Stage::Registered, 900),
    (Stage::ServingCsr, 900),
    (Stage::Ready, 2400),
];
/// How often a host is repaired when the pool does not say.
pub const USUAL_ATTEMPTS: u32 = 3;

/// What is done with a late host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Remedy {
    /// Somebody will look.
    #[default]
    None,
    /// It begins anew: its token is revoked and a new generation is wanted.
    Reprovision,
    /// Its power is cycled.
    Repower,
}

impl Remedy {
    /// The word in a status.
    pub const fn name(self) -> &'static str {
        match self {
            Remedy::None => "None",
            Remedy::Reprovision => "Reprovision",
            Remedy::Repower => "Repower",
        }
    }
}

/// A text that says nothing about health.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not {wanted}")]
pub struct WrongPolicy {
    given: String,
    wanted: &'static str,
}

impl FromStr for Remedy {
    type Err = WrongPolicy;
    fn from_str(text: &str) -> Result<Remedy, WrongPolicy> {
        [Remedy::None, Remedy::Reprovision, Remedy::Repower]
            .into_iter()
            .find(|remedy| remedy.name() == text)
            .ok_or_else(|| WrongPolicy { given: text.to_owned(), wanted: "None, Reprovision or Repower" })
    }
}

/// A pool's policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthPolicy {
    limits: BTreeMap<Stage, i64>,
    /// What is done.
    pub remedy: Remedy,
    /// How often.
    pub attempts: u32,
}

impl Default for HealthPolicy {
    fn default() -> Self {
        HealthPolicy { limits: USUAL.into(), remedy: Remedy::None, attempts: USUAL_ATTEMPTS }
    }
}

impl HealthPolicy {
    /// With another limit for a stage, in seconds.
    pub fn limit(&mut self, stage: Stage, seconds: i64) {
        self.limits.insert(stage, seconds.max(1));
    }

    /// How long it may take from one stage to another.
    fn between(&self, from: Stage, to: Stage) -> i64 {
        self.limits.iter().filter(|(stage, _)| **stage > from && **stage <= to).map(|(_, seconds)| seconds).sum()
    }
}

/// `1h30m`, `45m`, `90s`, `2d`: a duration as Go and Kubernetes write it, in seconds.
pub fn parse_duration(text: &str) -> Result<i64, WrongPolicy> {
    let wrong = || WrongPolicy { given: text.to_owned(), wanted: "a duration such as 45m, 1h30m or 90s" };
    let (mut total, mut number) = (0_i64, String::new());
    for letter in text.chars() {
        let unit = match letter {
            '0'..='9' if number.len() < 9 => {
                number.push(letter);
                continue;
            }
            'd' => 86_400,
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return Err(wrong()),
        };
        let count: i64 = number.parse().map_err(|_| wrong())?;
        number.clear();
        total = total.saturating_add(count.saturating_mul(unit));
    }
    if text.is_empty() || !number.is_empty() { Err(wrong()) } else { Ok(total) }
}

/// What was tried already since the host was last well.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attempts {
    /// How often.
    pub made: u32,
    /// When last.
    pub last: Option<Moment>,
}

/// How a host is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Its Node is ready.
    Healthy,
    /// It has time.
    Waiting {
        /// For what.
        stage: Stage,
        /// Until when; none when nobody knows whether it has begun.
        until: Option<Moment>,
    },
    /// It takes too long.
    Late {
        /// What is missing.
        stage: Stage,
        /// Since when it is late.
        since: Moment,
    },
    /// It takes too long and something is done about it.
    Repair {
        /// What is missing.
        stage: Stage,
        /// What is done.
        remedy: Remedy,
        /// The how manieth time.
        attempt: u32,
    },
    /// It takes too long, and others of its pool are being repaired.
    Queued {
        /// What is missing.
        stage: Stage,
    },
    /// It was tried often enough.
    GaveUp {
        /// What is missing.
        stage: Stage,
        /// How often it was tried.
        attempts: u32,
    },
}

/// Decides how a host is. `driven` are the stages that somebody in the hub carries out or witnesses.
pub fn judge_health(
    timeline: &Timeline,
    policy: &HealthPolicy,
    attempts: Attempts,
    driven: &[Stage],
    now: Moment,
) -> Health {
    let Some(furthest) = timeline.furthest().filter(|_| timeline.missing().is_some()) else {
        return match timeline.missing() {
            None => Health::Healthy,
            Some(stage) => Health::Waiting { stage, until: None },
        };
    };
    let next = Stage::PATH.into_iter().find(|stage| *stage > furthest.stage && driven.contains(stage));
    let (Some(stage), true) = (next, furthest.stage > Stage::Declared) else {
        let stage = next.or(timeline.missing()).unwrap_or(Stage::Ready);
        return Health::Waiting { stage, until: None };
    };
    // What was repaired begins before the stage it had come to.
    let begun = attempts.last.filter(|last| *last >= furthest.time);
    let allowed = match begun {
        Some(_) => policy.between(Stage::PoweredOn, stage),
        None => policy.between(furthest.stage, stage),
    };
    let until = Moment(begun.unwrap_or(furthest.time).0.saturating_add(allowed));
    if now < until {
        return Health::Waiting { stage, until: Some(until) };
    }
    match policy.remedy {
        Remedy::None => Health::Late { stage, since: until },
        _ if attempts.made >= policy.attempts => Health::GaveUp { stage, attempts: attempts.made },
        remedy => Health::Repair { stage, remedy, attempt: attempts.made + 1 },
    }
}

/// How many hosts of a pool may be changed at once: `maxUnavailable` as a number or a percentage of its hosts. At least
/// one, and one when nothing is written or nobody can read it.
pub fn parse_budget(written: Option<&str>, hosts: usize) -> usize {
    let number = |text: &str| text.trim().parse::<usize>().ok();
    let budget = written.and_then(|text| match text.strip_suffix('%') {
        Some(percent) => number(percent).map(|percent| hosts.saturating_mul(percent) / 100),
        None => number(text),
    });
    budget.unwrap_or(1).max(1)
}

/// Lets no more hosts of a pool be repaired at once than its budget allows. The others wait for their turn, in the order
/// they are given in. With each host: whether it was repaired and has not had its time since.
pub fn take_turns(hosts: &mut [(Health, bool)], budget: usize) {
    let is_busy = |(health, repaired): &(Health, bool)| *repaired && matches!(health, Health::Waiting { .. });
    let mut busy = hosts.iter().filter(|host| is_busy(host)).count();
    for (health, _) in hosts {
        match health {
            Health::Repair { .. } if busy < budget => busy += 1,
            Health::Repair { stage, .. } => *health = Health::Queued { stage: *stage },
            _ => {}
        }
    }
}

impl Health {
    /// The stage that is missing.
    pub const fn missing(&self) -> Option<Stage> {
        match self {
            Health::Healthy => None,
            Health::Waiting { stage, .. }
            | Health::Late { stage, .. }
            | Health::Repair { stage, .. }
            | Health::Queued { stage }
            | Health::GaveUp { stage, .. } => Some(*stage),
        }
    }

    /// One word for a condition.
    pub const fn reason(&self) -> &'static str {
        match self {
            Health::Healthy => "NodeReady",
            Health::Waiting { until: None, .. } => "NotBegun",
            Health::Waiting { .. } => "OnItsWay",
            Health::Late { .. } => "Late",
            Health::Repair { .. } => "Repairing",
            Health::Queued { .. } => "WaitsForItsTurn",
            Health::GaveUp { .. } => "GaveUp",
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Health::Healthy => f.write_str("its Node is ready"),
            Health::Waiting { stage, until: None } => {
                write!(f, "waits for {stage}; nothing is known that should have brought it there")
            }
            Health::Waiting { stage, .. } => write!(f, "waits for {stage} and has time"),
            Health::Late { stage, .. } => {
                write!(f, "{stage} is late and the pool repairs nothing by itself; `kiln why` names the next step")
            }
            Health::Repair { stage, remedy: Remedy::Repower, attempt } => {
                write!(f, "{stage} is late: its power is cycled (attempt {attempt})")
            }
            Health::Repair { stage, attempt, .. } => {
                write!(f, "{stage} is late: it is provisioned again, its old token is dead (attempt {attempt})")
            }
            Health::Queued { stage } => {
                write!(f, "{stage} is late; as many hosts of its pool are being repaired as may be at once")
            }
            Health::GaveUp { stage, attempts } => {
                write!(
                    f,
                    "{stage} is still missing after {attempts} attempts; nothing more is done until somebody looks"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::Entry;

    const DRIVEN: [Stage; 6] =
        [Stage::Declared, Stage::IgnitionFetched, Stage::ClientCsr, Stage::Registered, Stage::ServingCsr, Stage::Ready];

    fn at(stages: &[(Stage, i64)]) -> Timeline {
        Timeline::of(stages.iter().map(|(stage, time)| Entry::reached(*stage, Moment(*time), "test", "seen")))
    }

    fn told(timeline: &Timeline, policy: &HealthPolicy, attempts: Attempts, now: i64) -> String {
        let health = judge_health(timeline, policy, attempts, &DRIVEN, Moment(now));
        format!("{}: {health}", health.reason())
    }

    #[test]
    fn a_host_is_late_only_after_every_stage_on_the_way_had_its_time() {
        let policy = HealthPolicy::default();
        let none = Attempts::default();
        let fetched = at(&[(Stage::Declared, 0), (Stage::IgnitionFetched, 1000)]);
        // RealRoot is witnessed by nobody here: its time is added to that of the next one.
        assert_eq!(told(&fetched, &policy, none, 1000 + 3599), "OnItsWay: waits for ClientCSR and has time");
        let late = "Late: ClientCSR is late and the pool repairs nothing by itself; `kiln why` names the next step";
        assert_eq!(told(&fetched, &policy, none, 1000 + 3600), late);
        let declared = at(&[(Stage::Declared, 0)]);
        let waits = "NotBegun: waits for IgnitionFetched; nothing is known that should have brought it there";
        assert_eq!(told(&declared, &policy, none, i64::MAX / 2), waits);
        assert_eq!(
            told(&Timeline::default(), &policy, none, 5),
            "NotBegun: waits for Declared; nothing is known that should have brought it there"
        );
        assert_eq!(told(&at(&[(Stage::Ready, 9)]), &policy, none, i64::MAX), "NodeReady: its Node is ready");
        let mut quick = policy.clone();
        quick.limit(Stage::ClientCsr, 10);
        quick.limit(Stage::RealRoot, 0);
        assert_eq!(told(&fetched, &quick, none, 1010), "OnItsWay: waits for ClientCSR and has time");
        assert_eq!(told(&fetched, &quick, none, 1011), late);
    }

    #[test]
    fn a_late_host_is_repaired_a_few_times_and_then_given_up() {
        let fetched = at(&[(Stage::Declared, 0), (Stage::IgnitionFetched, 1000)]);
        let policy = HealthPolicy { remedy: Remedy::Reprovision, attempts: 2, ..HealthPolicy::default() };
        let first = told(&fetched, &policy, Attempts::default(), 4600);
        assert_eq!(first, "Repairing: ClientCSR is late: it is provisioned again, its old token is dead (attempt 1)");
        let once = Attempts { made: 1, last: Some(Moment(4600)) };
        assert_eq!(told(&fetched, &policy, once, 4601), "OnItsWay: waits for ClientCSR and has time");
        let whole = policy.between(Stage::PoweredOn, Stage::ClientCsr);
        let power = HealthPolicy { remedy: Remedy::Repower, ..policy.clone() };
        let second = told(&fetched, &power, once, 4600 + whole);
        assert_eq!(second, "Repairing: ClientCSR is late: its power is cycled (attempt 2)");
        let twice = Attempts { made: 2, last: Some(Moment(9000)) };
        let given_up = "GaveUp: ClientCSR is still missing after 2 attempts; nothing more is done until somebody looks";
        assert_eq!(told(&fetched, &policy, twice, 9000 + whole), given_up);
        // It came further since it was repaired: from there on it has the time of the next stage.
        let further = at(&[(Stage::Declared, 0), (Stage::Registered, 9100)]);
        assert_eq!(told(&further, &policy, twice, 9999), "OnItsWay: waits for ServingCSR and has time");
        assert_eq!(told(&further, &policy, twice, 10_000), given_up.replace("ClientCSR", "ServingCSR"));
    }

    #[test]
    fn never_more_hosts_of_a_pool_are_repaired_at_once_than_it_says() {
        let stage = Stage::ClientCsr;
        let late = (Health::Repair { stage, remedy: Remedy::Repower, attempt: 1 }, false);
        let busy = (Health::Waiting { stage, until: Some(Moment(9)) }, true);
        let fine = (Health::Waiting { stage, until: Some(Moment(9)) }, false);
        let given_up = (Health::GaveUp { stage, attempts: 3 }, true);
        for (budget, hosts, expected) in [
            (1, vec![&late, &late], "Repairing WaitsForItsTurn"),
            (1, vec![&late, &busy], "WaitsForItsTurn OnItsWay"),
            (2, vec![&late, &busy, &late], "Repairing OnItsWay WaitsForItsTurn"),
            (1, vec![&fine, &given_up, &late], "OnItsWay GaveUp Repairing"),
        ] {
            let mut hosts: Vec<(Health, bool)> = hosts.into_iter().cloned().collect();
            take_turns(&mut hosts, budget);
            let told: Vec<&str> = hosts.iter().map(|(health, _)| health.reason()).collect();
            assert_eq!(told.join(" "), expected);
        }
        let budgets = [(None, 1), (Some("3"), 3), (Some("0"), 1), (Some("25%"), 2), (Some("5%"), 1), (Some("few"), 1)];
        for (written, expected) in budgets {
            assert_eq!(parse_budget(written, 10), expected, "{written:?}");
        }
    }

    #[test]
    fn durations_and_remedies_are_read_as_kubernetes_writes_them() {
        for (text, seconds) in [("45m", 2700), ("1h30m", 5400), ("90s", 90), ("2d", 172_800), ("0s", 0)] {
            assert_eq!(parse_duration(text), Ok(seconds), "{text}");
        }
        for wrong in ["", "5", "m", "1h30", "-5m", "1.5h", "99999999999h", "5 m"] {
            let error = parse_duration(wrong).unwrap_err().to_string();
            assert_eq!(error, format!("`{wrong}` is not a duration such as 45m, 1h30m or 90s"));
        }
        assert_eq!("Repower".parse(), Ok(Remedy::Repower));
        assert_eq!("reboot".parse::<Remedy>().unwrap_err().to_string(), "`reboot` is not None, Reprovision or Repower");
    }
}
