//! Conditions of policies and enactments in the words of kubernetes-nmstate: its types, reasons and messages.
//!
//! | NNCP | when |
//! |---|---|
//! | Ignored NoMatchingNode | it selects no node that has an agent |
//! | Degraded FailedToConfigure | it failed on a node, or is not tried on one any more |
//! | Progressing ConfigurationProgressing | a ready node is not finished |
//! | Available SuccessfullyConfigured | otherwise; nodes that are not ready are skipped |
//!
//! Not here: times, see `kiln::hub::mirror`.

use super::{Enactment, Progress};

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// `Available`.
    pub kind: &'static str,
    /// None is Unknown.
    pub truth: Option<bool>,
    /// One word.
    pub reason: &'static str,
    /// One sentence, or nothing.
    pub message: String,
}

const SUCCESS: &str = "SuccessfullyConfigured";
const FAILED: &str = "FailedToConfigure";
const PROGRESSING: &str = "ConfigurationProgressing";
const ABORTED: &str = "ConfigurationAborted";

/// All conditions of a policy.
pub fn of_policy(progress: &Progress) -> Vec<Condition> {
    let Progress { matching, ready, available, failed, aborted, pending, .. } = *progress;
    let finished = available + failed + aborted;
    let mut skipped = String::new();
    if matching > ready {
        skipped = format!(", {} nodes ignored due to NotReady state", matching - ready);
    }
    let list = |which: &str, message: String, truths: [Option<bool>; 4], reasons: [&'static str; 4]| {
        let kinds = ["Available", "Degraded", "Ignored", "Progressing"];
        let of = |index: usize| Condition {
            kind: kinds[index],
            truth: truths[index],
            reason: reasons[index],
            message: if kinds[index] == which { message.clone() } else { String::new() },
        };
        (0..kinds.len()).map(of).collect()
    };
    let (yes, no) = (Some(true), Some(false));
    if matching == 0 {
        let message = "Policy does not match any node".to_owned();
        return list("Ignored", message, [no, no, yes, no], ["NoMatchingNode"; 4]);
    }
    if failed + aborted > 0 {
        let mut message = format!("{failed}/{matching} nodes failed to configure");
        if aborted > 0 {
            message += &format!(", {aborted} nodes aborted configuration");
        }
        return list("Degraded", message, [no, yes, no, no], [FAILED, FAILED, FAILED, PROGRESSING]);
    }
    if finished < ready || pending > 0 {
        let waiting = if finished < ready { String::new() } else { format!(", {pending} pending") };
        let message = format!("Policy is progressing {finished}/{ready} nodes finished{waiting}{skipped}");
        return list("Progressing", message, [None, None, no, yes], [PROGRESSING; 4]);
    }
    let message = format!("{available}/{matching} nodes successfully configured{skipped}");
    list("Available", message, [yes, no, no, no], [SUCCESS; 4])
}

/// All conditions of an enactment.
pub fn of_enactment(enactment: &Enactment) -> Vec<Condition> {
    let (yes, no) = (Some(true), Some(false));
    // Aborted, Available, Failing, Pending, Progressing.
    let (which, message, reason, truths): (&str, String, &'static str, [Option<bool>; 5]) = match enactment {
        Enactment::Available => ("Available", "successfully reconciled".into(), SUCCESS, [no, yes, no, no, no]),
        Enactment::Progressing(doing) => ("Progressing", (*doing).to_owned(), PROGRESSING, [no, None, None, no, yes]),
        Enactment::Pending(reason) => {
            ("Pending", reason.to_string(), "MaxUnavailableLimitReached", [no, no, no, yes, no])
        }
        Enactment::Failing(why) => ("Failing", why.clone(), FAILED, [no, no, yes, no, no]),
        Enactment::Aborted => {
            let message = "maximum number of failing nodes has been reached, skipping configuration";
            ("Aborted", message.into(), ABORTED, [yes, no, no, no, no])
        }
        Enactment::Withdrawn => {
            let message = "this generation failed on other nodes and was taken back";
            ("Aborted", message.into(), ABORTED, [yes, no, no, no, no])
        }
    };
    let kinds = ["Aborted", "Available", "Failing", "Pending", "Progressing"];
    let of = |(kind, truth): (&'static str, Option<bool>)| Condition {
        kind,
        truth,
        // Upstream says so of what was not aborted by a failure.
        reason: if kind == "Aborted" && which == "Failing" { SUCCESS } else { reason },
        message: if kind == which || (kind == "Progressing" && which == "Pending") {
            message.clone()
        } else {
            String::new()
        },
    };
    kinds.into_iter().zip(truths).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Reason;
    use super::*;

    fn told(conditions: &[Condition]) -> String {
        let word = |truth: Option<bool>| match truth {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let tell = |condition: &Condition| {
            let Condition { kind, truth, reason, message } = condition;
            format!("{kind}={} {reason} {message}", word(*truth)).trim_end().to_owned()
        };
        conditions.iter().map(tell).collect::<Vec<_>>().join(" | ")
    }

    #[test]
    fn policies_speak_as_upstream_does() {
        let of = |matching, ready, available, failed, aborted, pending| {
            told(&of_policy(&Progress { matching, ready, available, failed, aborted, pending, ..Progress::default() }))
        };
        for (said, expected) in [
            (
                of(0, 0, 0, 0, 0, 0),
                "Available=False NoMatchingNode | Degraded=False NoMatchingNode | Ignored=True NoMatchingNode Policy does not match any node | Progressing=False NoMatchingNode",
            ),
            (
                of(3, 3, 3, 0, 0, 0),
                "Available=True SuccessfullyConfigured 3/3 nodes successfully configured | Degraded=False SuccessfullyConfigured | Ignored=False SuccessfullyConfigured | Progressing=False SuccessfullyConfigured",
            ),
            (
                of(3, 2, 2, 0, 0, 0),
                "Available=True SuccessfullyConfigured 2/3 nodes successfully configured, 1 nodes ignored due to NotReady state | Degraded=False SuccessfullyConfigured | Ignored=False SuccessfullyConfigured | Progressing=False SuccessfullyConfigured",
            ),
            (
                of(4, 3, 1, 0, 0, 0),
                "Available=Unknown ConfigurationProgressing | Degraded=Unknown ConfigurationProgressing | Ignored=False ConfigurationProgressing | Progressing=True ConfigurationProgressing Policy is progressing 1/3 nodes finished, 1 nodes ignored due to NotReady state",
            ),
            (
                of(3, 2, 2, 0, 0, 1),
                "Available=Unknown ConfigurationProgressing | Degraded=Unknown ConfigurationProgressing | Ignored=False ConfigurationProgressing | Progressing=True ConfigurationProgressing Policy is progressing 2/2 nodes finished, 1 pending, 1 nodes ignored due to NotReady state",
            ),
            (
                of(3, 3, 0, 1, 0, 1),
                "Available=False FailedToConfigure | Degraded=True FailedToConfigure 1/3 nodes failed to configure | Ignored=False FailedToConfigure | Progressing=False ConfigurationProgressing",
            ),
            (
                of(3, 3, 0, 1, 2, 0),
                "Available=False FailedToConfigure | Degraded=True FailedToConfigure 1/3 nodes failed to configure, 2 nodes aborted configuration | Ignored=False FailedToConfigure | Progressing=False ConfigurationProgressing",
            ),
        ] {
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn enactments_speak_as_upstream_does() {
        for (enactment, expected) in [
            (
                Enactment::Available,
                "Aborted=False SuccessfullyConfigured | Available=True SuccessfullyConfigured successfully reconciled | Failing=False SuccessfullyConfigured | Pending=False SuccessfullyConfigured | Progressing=False SuccessfullyConfigured",
            ),
            (
                Enactment::Progressing("Applying desired state"),
                "Aborted=False ConfigurationProgressing | Available=Unknown ConfigurationProgressing | Failing=Unknown ConfigurationProgressing | Pending=False ConfigurationProgressing | Progressing=True ConfigurationProgressing Applying desired state",
            ),
            (
                Enactment::Pending(Reason::Paused("p".into())),
                "Aborted=False MaxUnavailableLimitReached | Available=False MaxUnavailableLimitReached | Failing=False MaxUnavailableLimitReached | Pending=True MaxUnavailableLimitReached policy p is paused | Progressing=False MaxUnavailableLimitReached policy p is paused",
            ),
            (
                Enactment::Failing("no gateway".into()),
                "Aborted=False SuccessfullyConfigured | Available=False FailedToConfigure | Failing=True FailedToConfigure no gateway | Pending=False FailedToConfigure | Progressing=False FailedToConfigure",
            ),
            (
                Enactment::Aborted,
                "Aborted=True ConfigurationAborted maximum number of failing nodes has been reached, skipping configuration | Available=False ConfigurationAborted | Failing=False ConfigurationAborted | Pending=False ConfigurationAborted | Progressing=False ConfigurationAborted",
            ),
        ] {
            assert_eq!(told(&of_enactment(&enactment)), expected, "{enactment:?}");
        }
    }
}
