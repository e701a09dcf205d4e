//! Small sets of profiles and what NetworkManager does with them; `keyfiles_in_networkmanager` asks the real one.

use super::*;
use crate::keyfile::Keyfile;
use crate::network::profile::uuid_of;

fn file(name: &str, uuid_start: char, connection: &str) -> ConnectionFile {
    let text =
        format!("[connection]\nid={name}\nuuid={}0000000-0000-4000-8000-000000000000\n{connection}\n", uuid_start);
    ConnectionFile::new(format!("{name}.nmconnection"), Keyfile::parse(&text).unwrap())
}

fn two_nics() -> [Nic; 2] {
    [("eth0", "52:54:00:00:00:01"), ("eth1", "52:54:00:00:00:02")]
        .map(|(name, mac)| Nic { name: Some(name.parse().unwrap()), mac: Some(mac.parse().unwrap()) })
}

fn answers(files: &[ConnectionFile]) -> Vec<String> {
    choose(files, &two_nics()).iter().map(ToString::to_string).collect()
}

const ETH0: &str = "type=ethernet\ninterface-name=eth0";

#[test]
fn priority_comes_before_uuid() {
    let files =
        [file("low", '1', ETH0), file("high", '2', "type=ethernet\ninterface-name=eth0\nautoconnect-priority=5")];
    let expected = [
        "eth0: high.nmconnection, because its autoconnect-priority 5 is above the 0 of low.nmconnection",
        "eth1: nothing, because no profile fits",
    ];
    assert_eq!(answers(&files), expected);
}

#[test]
fn a_tie_is_decided_by_the_uuid() {
    let files = [file("a", '2', ETH0), file("b", '1', ETH0)];
    let expected = "eth0: b.nmconnection, because its UUID sorts before that of a.nmconnection, and nothing else distinguishes them";
    assert_eq!(answers(&files)[0], expected);
}

#[test]
fn what_was_active_more_recently_comes_before_the_uuid() {
    let files = [file("a", '2', ETH0), file("b", '1', ETH0)];
    let last_active = LastActive::from([(uuid_of(&files[0]), 1_700_000_000)]);
    let choices = choose_after(&files, &two_nics(), &last_active);
    let expected = "eth0: a.nmconnection, because it was active more recently than b.nmconnection";
    assert_eq!(choices[0].to_string(), expected);
}

#[test]
fn a_profile_that_does_not_start_leaves_the_nic_alone() {
    let files = [file("a", '1', "type=ethernet\ninterface-name=eth0\nautoconnect=false")];
    assert_eq!(answers(&files)[0], "eth0: nothing, because the profiles that fit have autoconnect=false");
}

#[test]
fn an_unbound_profile_is_active_once_unless_it_may_be_active_often() {
    let once = [file("any", '1', "type=ethernet")];
    let expected = [
        "eth0: any.nmconnection, because it is the only profile that fits; it fits other NICs too, and the first link to come up gets it",
        "eth1: nothing, because no profile fits",
    ];
    assert_eq!(answers(&once), expected);
    let often = [file("any", '1', "type=ethernet\nmulti-connect=3")];
    let expected =
        ["eth0", "eth1"].map(|nic| format!("{nic}: any.nmconnection, because it is the only profile that fits"));
    assert_eq!(answers(&often), expected);
}

#[test]
fn an_address_must_be_that_of_the_nic() {
    let files = [file("mac", '1', "type=ethernet\n[ethernet]\nmac-address=52-54-00-00-00-02")];
    assert_eq!(answers(&files)[1], "eth1: mac.nmconnection, because it is the only profile that fits");
    let both = [file("both", '1', "type=ethernet\ninterface-name=eth0\n[ethernet]\nmac-address=52:54:00:00:00:02")];
    assert_eq!(answers(&both)[0], "eth0: nothing, because no profile fits");
}

#[test]
fn a_controller_that_pulls_its_ports_beats_any_priority() {
    let bond = "type=bond\ninterface-name=bond0\nautoconnect-slaves=1\n[bond]";
    let port = "type=ethernet\ninterface-name=eth0\nmaster=bond0\nslave-type=bond";
    let alone = "type=ethernet\ninterface-name=eth0\nautoconnect-priority=50";
    let files = [file("alone", '1', alone), file("port", '2', port), file("bond0", '3', bond)];
    let expected = [
        "bond0: bond0.nmconnection, because it is the only profile that fits",
        "eth0: port.nmconnection, because its controller bond0.nmconnection has autoconnect-slaves=1 and takes its ports",
        "eth1: nothing, because no profile fits",
    ];
    assert_eq!(answers(&files), expected);
}

#[test]
fn a_port_without_controller_gives_way() {
    let port = "type=ethernet\ninterface-name=eth0\nmaster=bond0\nslave-type=bond";
    let files = [file("port", '1', port), file("alone", '2', ETH0)];
    assert_eq!(answers(&files)[0], "eth0: alone.nmconnection, because it is the only profile that fits");
    let quiet = "type=bond\ninterface-name=bond0\nautoconnect=false\n[bond]";
    let files = [file("port", '1', port), file("bond0", '3', quiet)];
    let expected = [
        "bond0: bond0.nmconnection, because its port port.nmconnection brings it up",
        "eth0: port.nmconnection, because it is the only profile that fits",
    ];
    assert_eq!(answers(&files)[..2], expected);
}

#[test]
fn files_networkmanager_does_not_load_are_not_chosen() {
    let mut open = file("open", '1', ETH0);
    open.mode = 0o644;
    assert_eq!(answers(&[open])[0], "eth0: nothing, because no profile fits");
}

#[test]
fn the_nics_of_a_set_are_those_it_speaks_of() {
    let files = [
        file("a", '1', ETH0),
        file("b", '2', "type=ethernet\n[ethernet]\nmac-address=52:54:00:00:00:02"),
        file("c", '3', "type=vlan\ninterface-name=eno1.5\n[vlan]\nid=5\nparent=eno1"),
        file("d", '4', "type=bond\ninterface-name=bond0"),
        file("e", '5', "type=ethernet\ninterface-name=eth0\n[ethernet]\nmac-address=52:54:00:00:00:01"),
    ];
    let nics: Vec<_> = known_nics(&files).iter().map(ToString::to_string).collect();
    assert_eq!(nics, ["the NIC with address 52:54:00:00:00:02", "eno1", "eth0"]);
}
