//! What a machine's own reports say about why it does not come along: the cause in one sentence, and the next step.
//!
//! ```text
//! the newest boot's last report -> Ignition failed | it left the initramfs | it was in it | it is in the real root
//!                                       |                  |                    |             |
//!                                       its error          the handover         the network, compared with the declared one
//! ```
//!
//! A report that was kept on a disk speaks only when the newest boot does not. Pure and total.
//!
//! Not here: who reports and how it is kept, see [`super::first_boot`].

use super::first_boot::{Boot, Declared, Seen, WITNESS, addresses, arrival};
use super::why::{Likelihood, Situation};
use super::{Moment, Stage, Timeline};
use crate::beacon::{Handover, Point, Report};

/// How long the next report may take, in seconds: a disk is resized, a unit waits for the network.
const PATIENCE: i64 = 600;
/// How much later than a fetch the report from before it may arrive, in seconds.
const LATENESS: i64 = 60;
/// How many files, NICs or profiles are named in one sentence.
const NAMED: usize = 3;

/// What follows from reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Inference {
    /// The stage it has not come to: whoever reports from an initramfs is long past being switched on.
    pub(super) missing: Stage,
    pub(super) likelihood: Likelihood,
    pub(super) cause: String,
    pub(super) step: String,
}

/// Cause and step.
type Finding = (String, String);

/// What the reports about a host's boot say; none when they say nothing about the stage it has not reached.
pub(super) fn infer(timeline: &Timeline, situation: &Situation, missing: Stage, now: Moment) -> Option<Inference> {
    let boot = situation.boot.as_ref()?;
    let (seen, late) = match (boot.last(), boot.kept.last()) {
        (Some(seen), _) => (seen, false),
        (None, Some(seen)) => (seen, true),
        (None, None) => return None,
    };
    // Since then it was made anew.
    if timeline.reached(Stage::Discovered).is_some_and(|entry| entry.time > seen.time) {
        return None;
    }
    // Somebody else saw something fail after that.
    let failure = timeline.failure(missing).filter(|failure| failure.source != WITNESS);
    if failure.is_some_and(|failure| failure.time >= seen.time) {
        return None;
    }
    // An earlier boot may have fetched a config, too.
    let begun = boot.reports.first().map_or(seen.time, |first| first.time);
    let fetched = timeline.reached(Stage::IgnitionFetched);
    let fetched = fetched.is_some_and(|entry| begun.0 <= entry.time.0.saturating_add(LATENESS));
    let missing = match (missing, seen.report.point) {
        (Stage::ClientCsr, _) => Stage::ClientCsr,
        (late, _) if late > Stage::RealRoot => return None,
        (_, Point::Network | Point::IgnitionFailed) if !fetched => Stage::IgnitionFetched,
        _ => Stage::RealRoot,
    };
    let (certain, (cause, step)) = find(boot, seen, situation, missing, fetched)?;
    let waited = now.0.saturating_sub(seen.time.0);
    let likelihood = match certain {
        Certainty::Told => Likelihood::Known,
        Certainty::Silent if late || waited > PATIENCE => Likelihood::Known,
        Certainty::Silent => {
            let report = &seen.report;
            let cause =
                format!("last seen {} {}; {missing} may take {} minutes", place(report), with(report), PATIENCE / 60);
            let step = format!("wait: `kiln watch` shows when {missing} is reached");
            return Some(Inference { missing, likelihood: Likelihood::Waiting, cause, step });
        }
    };
    let cause = match late {
        true => format!("a report that an earlier boot kept on its disk, delivered later, says: {cause}"),
        false => cause,
    };
    Some(Inference { missing, likelihood, cause, step })
}

/// Whether a machine said it, or said nothing more.
#[derive(Clone, Copy)]
enum Certainty {
    Told,
    Silent,
}

fn find(
    boot: &Boot,
    seen: &Seen,
    situation: &Situation,
    missing: Stage,
    fetched: bool,
) -> Option<(Certainty, Finding)> {
    let (report, declared, host) = (&seen.report, &situation.declared, situation.host.as_str());
    Some(match (report.point, missing) {
        (_, Stage::ClientCsr) => (Certainty::Silent, no_request(boot, report)?),
        (Point::IgnitionFailed, _) => (Certainty::Told, ignition_failed(report, host)),
        (Point::RealRoot | Point::KubeletKey, _) => (Certainty::Told, arrived_wrong(report, declared)?),
        (Point::Leaving, _) => (Certainty::Silent, left(boot, report, host)),
        (Point::Network, _) if fetched => (Certainty::Silent, never_left(report)),
        (Point::Network, _) => match fault(report, declared) {
            Some((cause, step)) => (Certainty::Told, (format!("in the initramfs {cause}"), step)),
            None => (Certainty::Silent, never_fetched(report)),
        },
    })
}

/// `with 10.0.11.11 on bond0.110`.
fn with(report: &Report) -> String {
    match addresses(report).next() {
        Some((interface, address)) => format!("with {} on {interface}", address.split('/').next().unwrap_or(address)),
        None => "without an address".into(),
    }
}

fn place(report: &Report) -> &'static str {
    match report.point {
        Point::Network | Point::IgnitionFailed | Point::Leaving => "in the initramfs",
        Point::RealRoot | Point::KubeletKey => "in the real root",
    }
}

/// It left the initramfs and was not seen again.
fn left(boot: &Boot, report: &Report, host: &str) -> Finding {
    let last = format!("last seen in the initramfs {}; the real root never reported", with(report));
    let again = format!("then `kiln token rotate {host}` and boot it again");
    let Some(handover) = &report.propagation else {
        return (last, format!("look at the console: the system does not start, or starts without a network; {again}"));
    };
    let own = format!("Host {host}");
    match handover.outcome.as_str() {
        "blocked" if boot.writers.iter().any(|writer| writer.object == own) => (
            format!("{last}, although its config brings the host's own network"),
            format!("look at the console: the system does not start, or NetworkManager refuses what it got; {again}"),
        ),
        "blocked" => {
            let (who, object) = blockers(boot, handover);
            let cause = format!("{last}; {who}, so the initramfs network was not kept");
            let remove = object.map_or("take the file away".into(), |object| format!("take the file out of {object}"));
            let step = format!(
                "{remove}, or let Kiln compose both (`firstBootNetwork: composed` in the Pool), or keep the initramfs network with the kernel argument coreos.force_persist_ip; {again}"
            );
            (cause, step)
        }
        "forbidden" => (
            format!("{last}; the kernel argument coreos.no_persist_ip forbids keeping the initramfs network"),
            format!("remove coreos.no_persist_ip, or give the real root profiles of its own; {again}"),
        ),
        "default" | "nothing" => (
            format!("{last}; the initramfs had no network of its own to keep, and the config brings none that works"),
            format!("declare the host's network (`kiln plan` shows what it gets); {again}"),
        ),
        kept => (
            format!("{last}, although the initramfs network was handed over ({kept})"),
            format!("look at the console: the system does not start, or NetworkManager refuses what it got; {again}"),
        ),
    }
}

/// What stands in the way, and the object that can be changed.
fn blockers(boot: &Boot, handover: &Handover) -> (String, Option<String>) {
    let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let folder = |path: &str| path.rsplit('/').nth(1).unwrap_or("the real root").to_owned();
    let Some(first) = handover.blocked_by.first() else {
        return ("the real root has network files of its own".into(), None);
    };
    let more = match handover.blocked_by.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    match boot.writers.iter().find(|writer| handover.blocked_by.contains(&writer.path)) {
        Some(writer) => {
            let what = format!("{} puts {} into {}{more}", writer.object, name(&writer.path), folder(&writer.path));
            (what, Some(writer.object.clone()))
        }
        None => (format!("{} is in {}{more}", name(first), folder(first)), None),
    }
}

fn never_left(report: &Report) -> Finding {
    (
        format!("its config was fetched, but it never left the initramfs, where it was last seen {}", with(report)),
        "look at the console: Ignition's next stages (disks, files) have not ended; a disk that is missing or in use is the usual cause".into(),
    )
}

fn never_fetched(report: &Report) -> Finding {
    (
        format!("last seen in the initramfs {}; its config was never fetched", with(report)),
        "look at the console for Ignition's last line; check that names and routes lead to the hub from there".into(),
    )
}

/// What is wrong with a network, if it cannot reach anybody.
fn fault(report: &Report, declared: &Declared) -> Option<Finding> {
    let address = addresses(report).next();
    if address.is_some() && !report.default_routes.is_empty() {
        return None;
    }
    if let Some(found) =
        wrong_nic(report, declared).or_else(|| no_carrier(report, declared)).or_else(|| refused(report))
    {
        return Some(found);
    }
    Some(match (address, declared.gateways.first()) {
        (Some((interface, address)), Some(gateway)) => (
            format!("{interface} has {address}, but there is no default route, though one via {gateway} is declared"),
            format!("check that {gateway} is in a subnet of {interface}; `kiln plan` shows the network it should have"),
        ),
        (Some((interface, address)), None) => (
            format!("{interface} has {address}, but there is no default route and none is declared"),
            "declare one (`routes.config` with the destination 0.0.0.0/0), or let DHCP give one".into(),
        ),
        (None, _) => (
            "no interface has an address".into(),
            "look at the console: NetworkManager's log says why; `kiln plan` shows the network it should have".into(),
        ),
    })
}

fn wrong_nic(report: &Report, declared: &Declared) -> Option<Finding> {
    let has = |mac: &str| {
        report.interfaces.iter().any(|own| own.mac.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(mac)))
    };
    let (name, mac) = declared.macs.iter().find(|(_, mac)| !has(mac))?;
    let name = name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    let own = report.interfaces.iter().filter_map(|own| Some(format!("{} ({})", own.mac.as_ref()?, own.name)));
    let own: Vec<String> = own.take(NAMED).collect();
    let own = if own.is_empty() { "no NIC at all".into() } else { own.join(", ") };
    Some((
        format!("no NIC has the declared address {mac}{name}; the machine has {own}"),
        "correct the MAC address in the host's declaration, or boot the machine it belongs to".into(),
    ))
}

fn no_carrier(report: &Report, declared: &Declared) -> Option<Finding> {
    let meant = |mac: Option<&String>| {
        declared.macs.is_empty()
            || mac.is_some_and(|mac| declared.macs.iter().any(|(_, own)| own.eq_ignore_ascii_case(mac)))
    };
    let nics: Vec<_> = report.interfaces.iter().filter(|own| own.mac.is_some() && meant(own.mac.as_ref())).collect();
    if nics.is_empty() || nics.iter().any(|own| own.up) {
        return None;
    }
    let names: Vec<&str> = nics.iter().take(NAMED).map(|own| own.name.as_str()).collect();
    let have = if names.len() == 1 { "has" } else { "have" };
    Some((
        format!("{} {have} no carrier", names.join(", ")),
        "check the cable and the switch port: its VLANs, and LACP if the host has a bond".into(),
    ))
}

/// A profile that NetworkManager did not take.
fn refused(report: &Report) -> Option<Finding> {
    // One that another was preferred to is no fault.
    let mut unused = report.profiles.iter().filter(|profile| profile.chosen_for.is_none());
    let profile = unused.find(|profile| !profile.why.starts_with("passed over"))?;
    let name = profile.path.rsplit('/').next().unwrap_or(&profile.path);
    let step = match profile.why.contains("mode") {
        true => format!("write {name} with mode 0600: NetworkManager reads no profile that others may read"),
        false => format!("correct {name}; `kiln plan` shows the profiles it should have"),
    };
    Some((format!("NetworkManager did not use {name}: {}", profile.why), step))
}

/// The real root runs with another network than the declared one.
fn arrived_wrong(report: &Report, declared: &Declared) -> Option<Finding> {
    let missing = arrival(report, declared).err()?;
    let reason = wrong_nic(report, declared).or_else(|| no_carrier(report, declared)).or_else(|| refused(report));
    let (why, step) = match reason {
        Some((why, step)) => (format!("; {why}"), step),
        None => (
            String::new(),
            "compare `kiln plan` with `nmcli` on the node; another profile for the same interface is the usual cause"
                .into(),
        ),
    };
    Some((format!("the real root runs, but {missing}{why}"), step))
}

/// The real root runs, and no kubelet asked for a certificate.
fn no_request(boot: &Boot, report: &Report) -> Option<Finding> {
    boot.at(Point::RealRoot).or_else(|| boot.at(Point::KubeletKey))?;
    Some(match boot.at(Point::KubeletKey) {
        None => (
            format!("the real root runs {}, but its kubelet has not made a key: it has not started", with(report)),
            "look at the kubelet's unit on the node (`systemctl status kubelet`)".into(),
        ),
        Some(_) => (
            format!("the real root runs {} and its kubelet has made a key, but no request of it was approved", with(report)),
            "`kubectl get csr` on the cluster shows requests that wait; without any, check that the node reaches the cluster's API".into(),
        ),
    })
}

/// What Ignition's error stands for.
fn ignition_failed(report: &Report, host: &str) -> Finding {
    let error = report.ignition_error.as_deref().unwrap_or("it did not say why").trim();
    let words = error.to_ascii_lowercase();
    let any = |known: &[&str]| known.iter().any(|known| words.contains(known));
    let anew = format!("`kiln ignition pointer --host {host}`");
    let (what, step) = if any(&["x509", "certificate"]) {
        (
            "Ignition does not trust the hub's certificate",
            format!(
                "the authorities in its user-data are not those the hub's certificate is from, or its clock is wrong: make it anew with {anew}"
            ),
        )
    } else if any(&["no such host", "server misbehaving", "lookup "]) {
        ("Ignition cannot resolve the hub's name", "check the name servers in the host's network, or give the hub's address instead of its name (`--node-url`)".into())
    } else if any(&["401", "403", "404", "410", "unauthorized", "forbidden", "not found"]) {
        (
            "the server refused Ignition's request for good",
            format!(
                "what it asks for is not there or not for it: check the address in its user-data, or make it anew with {anew}"
            ),
        )
    } else if any(&["unreachable", "timeout", "timed out", "refused", "no route", "deadline exceeded"]) {
        ("Ignition cannot reach the server", "check routes and firewalls between the host and the hub".into())
    } else {
        (
            "Ignition failed",
            "look at the console for the stage that failed; `kiln ignition validate` checks the config".into(),
        )
    };
    (format!("{what}, last seen in the initramfs {}: {error}", with(report)), step)
}

#[cfg(test)]
mod tests;
