//! `choose` against the real NetworkManager: the profile it predicts is the one that is active on the NIC.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

#[path = "support/networkmanager.rs"]
mod networkmanager;

use kiln_core::keyfile::{ConnectionFile, Keyfile};
use kiln_core::network::choice::{Nic, choose_after};
use networkmanager::Machine;

const NICS: [(&str, &str); 2] = [("eth0", "52:54:00:00:00:01"), ("eth1", "52:54:00:00:00:02")];

/// A profile that comes up at once: a static address, or a port.
fn file(name: &str, uuid_start: char, connection: &str) -> ConnectionFile {
    let ip = if connection.contains("slave-type") {
        String::new()
    } else {
        format!("[ipv4]\nmethod=manual\naddress1=192.0.2.{}/24\n[ipv6]\nmethod=disabled\n", 10 + name.len())
    };
    let uuid = format!("{uuid_start}0000000-0000-4000-8000-000000000000");
    let text = format!("[connection]\nid={name}\nuuid={uuid}\n{connection}\n{ip}");
    ConnectionFile::new(format!("{name}.nmconnection"), Keyfile::parse(&text).unwrap())
}

/// Asks both and compares; the prediction of each interface is `name=id` or `name=`.
fn compare(test: &str, files: &[ConnectionFile]) {
    compare_after(test, files, &[]);
}

fn compare_after(test: &str, files: &[ConnectionFile], last_active: &[(&str, u64)]) {
    let known = last_active.iter().map(|(uuid, seconds)| (uuid.parse().unwrap(), *seconds)).collect();
    let nics = NICS.map(|(name, mac)| Nic { name: name.parse().ok(), mac: mac.parse().ok() });
    let predicted: Vec<_> = choose_after(files, &nics, &known)
        .into_iter()
        .map(|choice| format!("{}={}", choice.nic, choice.profile.map_or(String::new(), |profile| profile.id)))
        .collect();
    // Activation takes a moment: ask until it is as predicted, at most ten seconds, then wait for it to change its mind.
    let script = format!(
        "ask() {{ for nic in {}; do echo \"$nic=$(nmcli -g GENERAL.CONNECTION device show $nic 2>/dev/null)\"; done; }}
        tries=50
        until [ \"$(ask | tr '\\n' ' ')\" = '{} ' ] || [ $tries = 0 ]; do tries=$((tries - 1)); sleep 0.2; done
        sleep 0.5
        ask",
        predicted.iter().filter_map(|line| line.split('=').next()).collect::<Vec<_>>().join(" "),
        predicted.join(" "),
    );
    let machine = Machine { nics: &NICS, files, last_active };
    let Some(session) = machine.run(test, &script) else { return };
    assert_eq!(session.output.lines().collect::<Vec<_>>(), predicted, "{test}\n{}", session.log);
}

const ETH0: &str = "type=ethernet\ninterface-name=eth0";
const PORT: &str = "type=ethernet\ninterface-name=eth0\nmaster=br0\nslave-type=bridge";

#[test]
fn the_smaller_uuid_wins_a_tie() {
    compare("the_smaller_uuid_wins_a_tie", &[file("first", '2', ETH0), file("second", '1', ETH0)]);
}

#[test]
fn the_profile_that_was_active_last_wins_a_tie() {
    let files = [file("first", '2', ETH0), file("second", '1', ETH0)];
    let last_active = [("20000000-0000-4000-8000-000000000000", 1_700_000_000)];
    compare_after("the_profile_that_was_active_last_wins_a_tie", &files, &last_active);
}

#[test]
fn the_higher_priority_wins() {
    let high = "type=ethernet\ninterface-name=eth0\nautoconnect-priority=5";
    compare("the_higher_priority_wins", &[file("low", '1', ETH0), file("high", '2', high)]);
}

#[test]
fn an_unbound_profile_that_may_be_active_often_takes_the_nics_left() {
    let any = "type=ethernet\nmulti-connect=3\nautoconnect-priority=-100";
    compare(
        "an_unbound_profile_that_may_be_active_often_takes_the_nics_left",
        &[file("any", '1', any), file("eth0", '2', ETH0)],
    );
}

#[test]
fn addresses_and_patterns_choose_the_nic() {
    let mac = "type=ethernet\n[ethernet]\nmac-address=52:54:00:00:00:02";
    let pattern = "type=ethernet\n[match]\ninterface-name=eth*;!eth1;";
    compare("addresses_and_patterns_choose_the_nic", &[file("mac", '2', mac), file("pattern", '1', pattern)]);
}

#[test]
fn a_controller_takes_its_ports_when_it_says_so() {
    let pulling = "type=bridge\ninterface-name=br0\nautoconnect-slaves=1\n[bridge]\nstp=false";
    let alone = "type=ethernet\ninterface-name=eth0\nautoconnect-priority=50";
    let files = [file("alone", '1', alone), file("port", '2', PORT), file("bridge", '3', pulling)];
    compare("a_controller_takes_its_ports_when_it_says_so", &files);
}

#[test]
fn a_port_without_controller_gives_way_to_the_next() {
    compare("a_port_without_controller_gives_way_to_the_next", &[file("port", '1', PORT), file("alone", '2', ETH0)]);
}

#[test]
fn a_port_names_its_controller_by_uuid_and_brings_it_up() {
    let port = "type=ethernet\ninterface-name=eth0\nmaster=30000000-0000-4000-8000-000000000000\nslave-type=bridge";
    let quiet = "type=bridge\ninterface-name=br0\nautoconnect=false\n[bridge]\nstp=false";
    compare(
        "a_port_names_its_controller_by_uuid_and_brings_it_up",
        &[file("port", '1', port), file("bridge", '3', quiet)],
    );
}
