//! A report as one block of lines, for whoever stands before the machine's console.

use std::fmt::Write;

use super::{Point, Report};

impl Point {
    /// In words.
    pub fn describe(self) -> &'static str {
        match self {
            Point::Network => "initramfs, before Ignition fetches",
            Point::IgnitionFailed => "initramfs, Ignition failed",
            Point::Leaving => "initramfs, Ignition is done",
            Point::RealRoot => "real root",
            Point::KubeletKey => "real root, the kubelet has a key",
        }
    }
}

/// The block. `delivery` says what became of the report.
pub fn render_block(report: &Report, delivery: &str) -> String {
    let mut text = format!("==== kiln: {} ====\n", report.point.describe());
    let mut line = |name: &str, value: &str| {
        // Only printable: a console obeys control characters.
        let value: String = value.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let _ = writeln!(text, "{name:>10}  {value}");
    };
    line("host", report.hostname.as_deref().unwrap_or("(no name)"));
    for interface in &report.interfaces {
        let state = if interface.up { "up" } else { "down" };
        let addresses =
            if interface.addresses.is_empty() { "no address".to_owned() } else { interface.addresses.join(" ") };
        line("link", &format!("{} {state}, {addresses}", interface.name));
    }
    if report.default_routes.is_empty() {
        line("route", "none leads out");
    }
    for route in &report.default_routes {
        line("route", &format!("{} on {}", route.gateway.as_deref().unwrap_or("direct"), route.interface));
    }
    for profile in &report.profiles {
        let place = profile.chosen_for.as_deref().unwrap_or("unused");
        line("profile", &format!("{} ({place}): {}", profile.path, profile.why));
    }
    if let Some(handover) = &report.propagation {
        line("handover", &format!("{} by policy {}", handover.outcome, handover.policy));
        handover.reasons.iter().for_each(|reason| line("", reason));
    }
    if let Some(error) = &report.ignition_error {
        line("ignition", error);
    }
    line("report", delivery);
    text.push_str("====\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beacon::tests::report;

    #[test]
    fn a_person_reads_at_the_console_what_the_hub_reads() {
        let mut report = report();
        report.ignition_error = Some("bad\x1b[2Jnews".into());
        let expected = "==== kiln: initramfs, Ignition is done ====\n      host  worker-0\n      link  bond0.110 up, 10.0.11.11/24\n     route  10.0.11.1 on bond0.110\n   profile  /run/x (unused): mode 0644\n  handover  blocked by policy stock\n            nothing is propagated\n  ignition  bad [2Jnews\n    report  taken\n====\n";
        assert_eq!(render_block(&report, "taken"), expected);
    }
}
