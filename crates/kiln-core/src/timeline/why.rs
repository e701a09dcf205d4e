//! Why a host is not ready: the first stage it has not reached, the likeliest cause and the next step.
//!
//! What is known beats what is likely, in this order: what the machine itself reported about its boot ([`super::inference`]),
//! an attempt that failed and said why, an error in what was declared
//! (which stops everything before the machine is installed), a stage that nothing in this hub carries out, and then the
//! table: what usually keeps a machine from this stage, once it has waited longer than such a stage takes.

use super::first_boot::{Boot, Declared};
use super::inference::{Inference, infer};
use super::{Moment, Stage, Timeline};

/// What is known about a host besides its timeline.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Situation {
    /// Name of its object.
    pub host: String,
    /// Errors in what was declared, as `KLN0101: message`, the first one first.
    pub errors: Vec<String>,
    /// What repairs the first of them.
    pub fix: Option<String>,
    /// Whether a management controller is declared.
    pub has_bmc: bool,
    /// Stages that somebody in this hub carries out or witnesses.
    pub driven: Vec<Stage>,
    /// What it said about its newest boot.
    pub boot: Option<Boot>,
    /// What is declared of its network.
    pub declared: Declared,
}

/// How sure the cause is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Likelihood {
    /// Somebody reported it.
    Known,
    /// It usually is.
    Likely,
    /// Nothing is wrong yet: it has not waited longer than usual.
    Waiting,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// The first stage it has not reached; none when there is nothing to explain.
    pub missing: Option<Stage>,
    /// How long ago the stage before it was reached, in seconds.
    pub waiting: Option<i64>,
    /// How sure the cause is.
    pub likelihood: Likelihood,
    /// The likeliest cause.
    pub cause: String,
    /// What to do.
    pub step: String,
}

/// What usually keeps a host from a stage.
struct Row {
    stage: Stage,
    /// How long it may take before anything is wrong, in seconds.
    patience: i64,
    cause: &'static str,
    step: &'static str,
}

#[rustfmt::skip]
const TABLE: [Row; 12] = [
    Row { stage: Stage::Declared, patience: 60,
        cause: "nothing that declares this host was found",
        step: "apply its BareMetalHost, NMStateConfig or Host" },
    Row { stage: Stage::PoweredOn, patience: 300,
        cause: "the management controller does not answer or refuses the credentials",
        step: "try the address and the Secret of spec.bmc from the hub's network; boot the machine by hand meanwhile" },
    Row { stage: Stage::ImageRead, patience: 600,
        cause: "the machine is on but did not read its image: virtual media is not attached, or the boot order comes first",
        step: "look at the console; check that the management controller reaches the hub's image address and trusts its certificate" },
    Row { stage: Stage::Discovered, patience: 600,
        cause: "the image was read but nothing reported: its network did not come up, or no NIC has the declared MAC address",
        step: "compare the NICs on the console with the declared MAC addresses; `kiln plan` shows the network it should have" },
    Row { stage: Stage::Validated, patience: 300,
        cause: "what the machine has does not fit what was declared, or has not been compared yet",
        step: "read the findings of the host; correct the declaration or the machine" },
    Row { stage: Stage::Installed, patience: 3600,
        cause: "the image is being written, or the disk is too slow or refused",
        step: "look at the console for the installer's last line; check the disk hint" },
    Row { stage: Stage::IgnitionFetched, patience: 2400,
        cause: "after its reboot the machine did not fetch its config: it booted the wrong disk, or its first-boot network is missing",
        step: "check the boot order, then `kiln boot simulate` with its image and config shows the network of the first boot" },
    Row { stage: Stage::RealRoot, patience: 1200,
        cause: "the config was fetched, but neither the initramfs nor the installed system reported: its image has no witness, or the network of the initramfs was not carried over",
        step: "`kiln plan` shows stock and composed network side by side; the usual cause is a pool that writes NetworkManager profiles" },
    Row { stage: Stage::ClientCsr, patience: 1200,
        cause: "the kubelet has not asked for a certificate: it is not running, or cannot reach the cluster's API",
        step: "look at the kubelet's log on the node; check names and routes to the API address" },
    Row { stage: Stage::Registered, patience: 300,
        cause: "the client certificate was issued but there is no Node: the kubelet waits or has another name",
        step: "compare the node's hostname with the declared one" },
    Row { stage: Stage::ServingCsr, patience: 300,
        cause: "the request for a serving certificate was not approved: its names or addresses are not those declared",
        step: "`kubectl get csr` shows it; approve it only if its addresses belong to this host" },
    Row { stage: Stage::Ready, patience: 1200,
        cause: "the Node exists but is not ready: its pods' network is not up, or images are still being pulled",
        step: "`kubectl describe node` names the condition" },
];

/// Explains why a host is not ready.
pub fn why(timeline: &Timeline, situation: &Situation, now: Moment) -> Why {
    let Some(missing) = timeline.missing() else {
        let cause = "it has reached every stage".to_owned();
        return Why { missing: None, waiting: None, likelihood: Likelihood::Known, cause, step: "nothing".into() };
    };
    let row = &TABLE[TABLE.iter().position(|row| row.stage == missing).unwrap_or(0)];
    // a clock that runs behind must not make the wait negative
    let waiting = timeline.furthest().map(|entry| (now.0 - entry.time.0).max(0));
    let answer =
        |likelihood, cause: String, step: String| Why { missing: Some(missing), waiting, likelihood, cause, step };
    if let Some(Inference { missing, likelihood, cause, step }) = infer(timeline, situation, missing, now) {
        return Why { missing: Some(missing), waiting, likelihood, cause, step };
    }
    if let Some(failure) = timeline.failure(missing) {
        let cause = format!("{} failed: {} ({})", failure.stage, failure.cause, failure.source);
        return answer(Likelihood::Known, cause, row.step.into());
    }
    if let Some(first) = situation.errors.first().filter(|_| missing <= Stage::Installed) {
        let more = situation.errors.len() - 1;
        let cause = if more == 0 { first.clone() } else { format!("{first} (and {more} more)") };
        let step = situation.fix.clone().unwrap_or_else(|| format!("`kiln explain {}`", code(first)));
        return answer(Likelihood::Known, cause, step);
    }
    if missing == Stage::PoweredOn && !situation.has_bmc {
        let cause = "no management controller is declared: somebody must boot the machine".to_owned();
        return answer(Likelihood::Known, cause, "boot it from its discovery image, or declare spec.bmc".into());
    }
    if missing != Stage::Declared && !situation.driven.contains(&missing) {
        let cause = format!("nothing in this hub leads a host to {missing} yet, and nobody has reported it");
        let step =
            format!("`kiln plan` on your manifests shows the steps; {missing} appears here when it is witnessed");
        return answer(Likelihood::Known, cause, step);
    }
    if waiting.is_some_and(|waiting| waiting <= row.patience) {
        let cause = format!("{missing} may take {} minutes", row.patience / 60);
        return answer(Likelihood::Waiting, cause, format!("wait: `kiln watch` shows when {missing} is reached"));
    }
    answer(Likelihood::Likely, row.cause.into(), row.step.into())
}

fn code(error: &str) -> &str {
    error.split(':').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::Entry;
    use super::*;

    fn driven() -> Situation {
        Situation { host: "w0".into(), has_bmc: true, driven: Stage::PATH.to_vec(), ..Situation::default() }
    }

    fn after(stage: Stage) -> Timeline {
        Timeline::of(
            Stage::PATH
                .into_iter()
                .filter(|other| *other <= stage)
                .map(|stage| Entry::reached(stage, Moment(1000), "test", "seen")),
        )
    }

    #[test]
    fn the_table_has_a_row_for_every_stage_in_order() {
        assert_eq!(TABLE.map(|row| row.stage), Stage::PATH);
    }

    #[test]
    fn a_host_waits_first_and_is_explained_later() {
        for row in TABLE.iter().skip(1) {
            let before = Stage::PATH[Stage::PATH.iter().position(|stage| *stage == row.stage).unwrap() - 1];
            let soon = why(&after(before), &driven(), Moment(1000 + row.patience));
            assert_eq!((soon.missing, soon.likelihood), (Some(row.stage), Likelihood::Waiting));
            let late = why(&after(before), &driven(), Moment(1001 + row.patience));
            assert_eq!((late.likelihood, late.cause.as_str()), (Likelihood::Likely, row.cause));
            assert_eq!(late.waiting, Some(row.patience + 1));
        }
    }

    #[test]
    fn what_is_known_beats_what_is_likely() {
        let errors = vec!["KLN0315: two hosts have this MAC address".to_owned(), "KLN0101: x".to_owned()];
        let wrong = Situation { errors: errors.clone(), fix: Some("give one another".into()), ..driven() };
        let table: [(&str, Timeline, Situation, &str, &str); 6] = [
            (
                "nothing declared",
                Timeline::default(),
                driven(),
                "nothing that declares this host was found",
                "apply its BareMetalHost, NMStateConfig or Host",
            ),
            (
                "an error",
                after(Stage::Declared),
                wrong.clone(),
                "KLN0315: two hosts have this MAC address (and 1 more)",
                "give one another",
            ),
            (
                "an error without a fix",
                after(Stage::Declared),
                Situation { fix: None, errors: errors[..1].to_vec(), ..driven() },
                "KLN0315: two hosts have this MAC address",
                "`kiln explain KLN0315`",
            ),
            (
                "no controller",
                after(Stage::Declared),
                Situation { has_bmc: false, ..driven() },
                "no management controller is declared: somebody must boot the machine",
                "boot it from its discovery image, or declare spec.bmc",
            ),
            (
                "nobody does it",
                after(Stage::Validated),
                Situation { driven: vec![], ..driven() },
                "nothing in this hub leads a host to Installed yet, and nobody has reported it",
                "`kiln plan` on your manifests shows the steps; Installed appears here when it is witnessed",
            ),
            ("an error no longer matters", after(Stage::Installed), wrong, TABLE[6].cause, TABLE[6].step),
        ];
        for (name, timeline, situation, cause, step) in table {
            let answer = why(&timeline, &situation, Moment(1_000_000));
            assert_eq!((answer.cause.as_str(), answer.step.as_str()), (cause, step), "{name}");
        }
    }

    #[test]
    fn a_failed_attempt_is_the_cause_until_the_stage_is_reached() {
        let mut timeline = after(Stage::PoweredOn);
        timeline.merge(Entry::failed(Stage::ImageRead, Moment(1010), "image server", "the certificate is not trusted"));
        let answer = why(&timeline, &driven(), Moment(1011));
        assert_eq!(answer.cause, "ImageRead failed: the certificate is not trusted (image server)");
        assert_eq!(answer.likelihood, Likelihood::Known);
        timeline.merge(Entry::reached(Stage::ImageRead, Moment(1020), "image server", "all of it"));
        assert_eq!(why(&timeline, &driven(), Moment(1021)).likelihood, Likelihood::Waiting);
    }

    #[test]
    fn a_ready_host_needs_no_explanation_and_a_clock_behind_makes_no_negative_wait() {
        assert_eq!(why(&after(Stage::Ready), &driven(), Moment(5)).missing, None);
        assert_eq!(why(&after(Stage::Declared), &driven(), Moment(5)).waiting, Some(0));
    }
}
