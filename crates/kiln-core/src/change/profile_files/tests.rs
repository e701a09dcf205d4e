//! Profiles of a config as tables: what a node has, what is asked for, what must be done.

use serde_json::json;

use super::*;
use crate::assignment::Disruption;
use crate::change::plan_change;
use crate::change::tests::{ETH0, after, file, held, node, steps};

/// eth1's profile in [`node`].
const ETH1: &str = "[connection]\nid=eth1\nuuid=10000000-0000-4000-8000-000000000001\ntype=ethernet\ninterface-name=eth1\n[ipv4]\nmethod=disabled\n[ipv6]\nmethod=disabled\n";

fn profile(name: &str, text: &str) -> ConnectionFile {
    ConnectionFile::new(format!("{name}.nmconnection"), Keyfile::parse(text).unwrap())
}

/// A profile with a number at the end of its UUID.
fn numbered(name: &str, number: &str, connection: &str) -> ConnectionFile {
    let uuid = format!("20000000-0000-4000-8000-0000000000{number}");
    let text = format!("[connection]\nid={name}\nuuid={uuid}\n{connection}\n");
    let port = connection.contains("master=");
    let ip = if port { "" } else { "[ipv4]\nmethod=manual\naddress1=198.51.100.5/24\n[ipv6]\nmethod=disabled\n" };
    profile(name, &(text + ip))
}

fn lying(file: ConnectionFile, active_on: Option<&str>) -> Held {
    Held { place: Some(Place::Persistent), file, active_on: active_on.map(str::to_owned) }
}

fn wish(files: &[ConnectionFile], gone: &[&str]) -> ProfileWish {
    let gone = gone.iter().map(|name| format!("{name}.nmconnection")).collect();
    ProfileWish { files: files.to_vec(), gone }
}

fn plan(node: &Observed, files: &[ConnectionFile], gone: &[&str]) -> Change {
    plan_profile_files(node, &Ownership::default(), None, &wish(files, gone)).unwrap()
}

/// `+name` for a file that is written, `-name` for one that is removed.
fn writes(change: &Change) -> String {
    let word = |write: &Write| {
        let sign = if write.content.is_some() { '+' } else { '-' };
        let place = if write.place == Place::Runtime { "run/" } else { "" };
        format!("{sign}{place}{}", write.name.trim_end_matches(".nmconnection"))
    };
    change.writes.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn with_interface(mut node: Observed, entry: Value) -> Observed {
    node.current["interfaces"].as_array_mut().unwrap().push(entry);
    node
}

#[test]
fn profiles_that_are_there_change_nothing() {
    let other_spelling =
        ETH1.replace("[ipv4]", "\n# a comment\n[ipv4]").replace("type=ethernet", "type=802-3-ethernet");
    for files in [vec![], vec![profile("eth1", ETH1)], vec![profile("eth0", ETH0), profile("eth1", &other_spelling)]] {
        let change = plan(&node(), &files, &["never-there"]);
        assert!(change.is_empty(), "{change:#?}");
        assert_eq!(change, Change::default());
    }
}

#[test]
fn what_a_set_of_profiles_takes() {
    let dummy = || numbered("d0", "d0", "type=dummy\ninterface-name=d0");
    let quiet = numbered("d0", "d0", "type=dummy\ninterface-name=d0\nautoconnect=false");
    let address = ETH0.replace("192.0.2.10/24", "192.0.2.11/24");
    let cloned = ETH0.to_owned() + "[ethernet]\ncloned-mac-address=52:54:00:00:00:09\n";
    let by_mac = numbered("mac", "03", "type=ethernet\n[ethernet]\nmac-address=52:54:00:00:00:03");
    let preferred = numbered("new", "0a", "type=ethernet\ninterface-name=eth1\nautoconnect-priority=5");
    let equal = numbered("new", "0a", "type=ethernet\ninterface-name=eth1");
    let renewed = ETH1.replace("8000-000000000001", "8000-0000000000ff");
    let quieter = ETH1.replace("type=ethernet", "type=ethernet\nautoconnect=false");
    let vlan = numbered("v5", "05", "type=vlan\ninterface-name=d0.5\n[vlan]\nid=5\nparent=d0");
    let bridge = |pull: &str| {
        let head = format!("type=bridge\ninterface-name=br1\n{pull}[bridge]\nstp=false");
        [
            numbered("br1", "b1", &head),
            numbered("port", "b2", "type=ethernet\ninterface-name=eth2\nmaster=br1\nslave-type=bridge"),
        ]
    };
    let renamed = profile("uplink", ETH0);
    let none = &[][..];
    for (what, files, gone, written, told, disruption) in [
        ("a new dummy", vec![dummy()], none, "+d0", "activate d0", Disruption::Reapply),
        ("one that waits for somebody", vec![quiet], none, "+d0", "", Disruption::Reapply),
        ("another address", vec![profile("eth0", &address)], none, "+eth0", "reapply eth0", Disruption::PrimaryPath),
        (
            "what needs a new link",
            vec![profile("eth0", &cloned)],
            none,
            "+eth0",
            "activate eth0",
            Disruption::PrimaryPath,
        ),
        ("a NIC by its address", vec![by_mac], none, "+mac", "activate eth2", Disruption::Reapply),
        ("a higher priority", vec![preferred], none, "+new", "activate eth1", Disruption::LinkBounce),
        ("the one that was active stays", vec![equal], none, "+new", "", Disruption::Reapply),
        ("another UUID", vec![profile("eth1", &renewed)], none, "+eth1", "activate eth1", Disruption::LinkBounce),
        ("not by itself any more", vec![profile("eth1", &quieter)], none, "+eth1", "", Disruption::Reapply),
        ("one that goes", vec![], &["eth1"], "-eth1", "remove eth1", Disruption::LinkBounce),
        ("a VLAN on it", vec![vlan, dummy()], none, "+v5 +d0", "activate d0, activate d0.5", Disruption::Reapply),
        ("a bridge", bridge("").to_vec(), none, "+br1 +port", "activate br1, activate eth2", Disruption::Reapply),
        (
            "that takes its ports",
            bridge("autoconnect-slaves=1\n").to_vec(),
            none,
            "+br1 +port",
            "activate br1",
            Disruption::Reapply,
        ),
        ("another name of the file", vec![renamed], &["eth0"], "+uplink -eth0", "", Disruption::Reapply),
    ] {
        let change = plan(&node(), &files, gone);
        let found = (writes(&change), steps(&change), change.disruption);
        assert_eq!(found, (written.to_owned(), told.to_owned(), disruption), "{what}: {change:#?}");
        assert_eq!((&change.wanted, &change.ownership), (&Value::Null, &Ownership::default()), "{what}");
        assert!(!change.lines.is_empty(), "{what}");
        let again = plan(&after(node(), &change), &files, gone);
        assert!(again.is_empty(), "{what}, again: {again:#?}");
    }
}

#[test]
fn a_file_is_written_as_the_config_has_it() {
    let wanted = profile("eth0", &ETH0.replace("192.0.2.10/24", "192.0.2.11/24"));
    let change = plan(&node(), std::slice::from_ref(&wanted), &[]);
    assert_eq!(file(&change, Place::Persistent, "eth0.nmconnection"), wanted.keyfile.render());
    assert_eq!(change.lines, ["profile eth0.nmconnection [ipv4] addresses: 192.0.2.10/24 -> 192.0.2.11/24"]);
}

#[test]
fn a_device_falls_back_to_another_profile() {
    let mut node = node();
    node.profiles[1] =
        lying(numbered("new", "0a", "type=ethernet\ninterface-name=eth1\nautoconnect-priority=5"), Some("eth1"));
    node.profiles.push(held("eth1", None, ETH1));
    let change = plan(&node, &[profile("eth1", ETH1)], &["new"]);
    assert_eq!((writes(&change).as_str(), steps(&change).as_str()), ("-new", "activate eth1"));
    let uuid = "10000000-0000-4000-8000-000000000001".to_owned();
    assert_eq!(change.stages, [[Step::Activate { uuid, interface: "eth1".into() }]]);
    assert_eq!(change.lines, ["profile new.nmconnection is removed"]);
}

#[test]
fn a_bridge_goes_and_its_port_is_free() {
    let mut node = with_interface(
        node(),
        json!({"name": "br1", "type": "linux-bridge", "state": "up", "bridge": {"port": [{"name": "eth1"}]}}),
    );
    let [bridge, port] = [
        numbered("br1", "b1", "type=bridge\ninterface-name=br1"),
        numbered("port", "b2", "type=ethernet\ninterface-name=eth1\nmaster=br1\nslave-type=bridge"),
    ];
    node.profiles[1] = held("eth1", None, ETH1);
    node.profiles.extend([lying(bridge, Some("br1")), lying(port, Some("eth1"))]);
    let change = plan(&node, &[profile("eth1", ETH1)], &["br1", "port"]);
    assert_eq!((writes(&change).as_str(), steps(&change).as_str()), ("-br1 -port", "remove br1 + activate eth1"));
    assert_eq!(change.disruption, Disruption::LinkBounce);
}

#[test]
fn what_a_device_is_made_with_takes_a_new_device() {
    let vlan =
        |id: u16| numbered("v", "05", &format!("type=vlan\ninterface-name=eth1.5\n[vlan]\nid={id}\nparent=eth1"));
    let mut node = with_interface(
        node(),
        json!({"name": "eth1.5", "type": "vlan", "state": "up", "vlan": {"base-iface": "eth1", "id": 5}}),
    );
    node.profiles.push(lying(vlan(5), Some("eth1.5")));
    assert_eq!(steps(&plan(&node, &[vlan(6)], &[])), "remove eth1.5, activate eth1.5");
}

#[test]
fn a_profile_for_many_nics_changes_on_all_of_them() {
    let any = |address: &str| {
        let text = "[connection]\nid=any\nuuid=20000000-0000-4000-8000-00000000000a\ntype=ethernet\nmulti-connect=3\n[ipv4]\nmethod=auto\ndns-search=";
        profile("any", &format!("{text}{address}\n[ipv6]\nmethod=disabled\n"))
    };
    let mut node = node();
    node.current["interfaces"][2]["state"] = "up".into();
    node.profiles = vec![held("eth0", Some("eth0"), ETH0), lying(any("one.example"), Some("eth1"))];
    let change = plan(&node, &[any("two.example")], &[]);
    assert_eq!(steps(&change), "reapply eth1 + reapply eth2");
    assert_eq!(steps(&plan(&node, &[], &["any"])), "remove eth1 + remove eth2");
    // One that may be active only once stays where it is.
    let once = |text: &str| profile("any", &any(text).keyfile.render().replace("multi-connect=3\n", ""));
    node.profiles[1] = lying(once("one.example"), Some("eth2"));
    assert_eq!(steps(&plan(&node, &[once("two.example")], &[])), "reapply eth2");
}

#[test]
fn a_nic_without_a_link_gets_its_profile_and_no_step() {
    let mut node = node();
    node.current["interfaces"][2]["carrier"] = false.into();
    let change = plan(&node, &[numbered("spare", "03", "type=ethernet\ninterface-name=eth2")], &[]);
    assert_eq!((writes(&change).as_str(), steps(&change).as_str()), ("+spare", ""));
}

#[test]
fn a_runtime_profile_with_its_uuid_stays_in_force() {
    let mut node = node();
    node.profiles[1].active_on = None;
    let strong = ETH1.to_owned() + "[ethernet]\nmtu=9000\n";
    node.profiles.push(Held { place: Some(Place::Runtime), ..held("run", Some("eth1"), &strong) });
    let change = plan(&node, &[profile("eth1", &(ETH1.to_owned() + "[ethernet]\nmtu=1400\n"))], &[]);
    assert_eq!((writes(&change).as_str(), steps(&change).as_str()), ("+eth1", ""));
    assert_eq!(
        change.lines,
        [
            "profile eth1.nmconnection [ethernet] mtu: nothing -> 1400",
            "profile eth1.nmconnection is hidden until the next boot: run.nmconnection in /run has its UUID",
        ]
    );
}

#[test]
fn a_profile_networkmanager_does_not_read_is_refused() {
    let bad = profile("bad", "[connection]\nid=bad\ninterface-name=eth2\n");
    let error = plan_profile_files(&node(), &Ownership::default(), None, &wish(&[bad], &[])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "NetworkManager does not read profile `bad.nmconnection`: `[connection]` has no `type`; write for example `type=ethernet`"
    );
}

/// A node on which a policy has set eth1's MTU, and that policy.
fn with_policy() -> (Observed, Ownership, Value) {
    let policy = json!({"interfaces": [{"name": "eth1", "type": "ethernet", "state": "up", "mtu": 9000}]});
    let change = plan_change(&node(), &Ownership::default(), &policy, &policy).unwrap();
    (after(node(), &change), change.ownership, policy)
}

fn new_base(uuid: &str) -> ConnectionFile {
    let text = ETH1.replace("[ipv4]\nmethod=disabled", "[ipv4]\nmethod=manual\naddress1=198.51.100.5/24");
    profile("eth1", &text.replace("8000-000000000001", &format!("8000-{uuid}")))
}

#[test]
fn a_policy_keeps_its_fields_over_a_new_profile_which_comes_back_when_the_policy_goes() {
    for (uuid, told) in [("000000000001", "reapply eth1"), ("0000000000ff", "activate eth1")] {
        let (node, owned, policy) = with_policy();
        let base = new_base(uuid);
        let wish = wish(&[profile("eth0", ETH0), base.clone()], &[]);
        let change = plan_profile_files(&node, &owned, Some((&policy, &policy)), &wish).unwrap();
        assert_eq!((writes(&change).as_str(), steps(&change).as_str()), ("+eth1", told), "{change:#?}");
        let text = file(&change, Place::Persistent, "eth1.nmconnection");
        assert!(text.contains("198.51.100.5/24") && text.contains("mtu=9000") && text.contains(uuid), "{text}");
        assert_eq!(change.wanted, policy);
        assert_eq!(change.ownership.interfaces["eth1"].originals[0].content, base.keyfile.render());
        let changed = after(node, &change);
        let again = plan_profile_files(&changed, &change.ownership, Some((&policy, &policy)), &wish).unwrap();
        assert_eq!((again.is_empty(), &again.ownership), (true, &change.ownership), "{again:#?}");
        let back = plan_change(&changed, &change.ownership, &json!({}), &json!({})).unwrap();
        assert_eq!(file(&back, Place::Persistent, "eth1.nmconnection"), base.keyfile.render());
        let active = uuid_of(&base).to_string();
        assert_eq!(back.stages, [[Step::Activate { uuid: active, interface: "eth1".into() }]]);
    }
}

#[test]
fn nothing_is_planned_beneath_policies_that_are_not_known() {
    let (node, owned, _) = with_policy();
    let error = plan_profile_files(&node, &owned, None, &wish(&[new_base("000000000001")], &[])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "profile `eth1.nmconnection` lies beneath what policies ask of `eth1`, and these are not known yet; \
         it can change when the hub has told what the network shall be"
    );
    // What does not lie there may change.
    let dummy = numbered("d0", "d0", "type=dummy\ninterface-name=d0");
    let change = plan_profile_files(&node, &owned, None, &wish(&[dummy, profile("eth1", ETH1)], &[])).unwrap();
    assert_eq!((writes(&change).as_str(), steps(&change).as_str()), ("+d0", "activate d0"));
    assert_eq!(change.ownership, owned);
}

#[test]
fn a_policy_keeps_its_copy_of_a_shared_profile_up_to_date() {
    let any = |name: &str| {
        let text = "[connection]\nid=any\nuuid=20000000-0000-4000-8000-00000000000a\ntype=ethernet\nmulti-connect=3\n[ipv4]\nmethod=auto\ndns-search=";
        profile("any", &format!("{text}{name}\n[ipv6]\nmethod=disabled\n"))
    };
    let mut node = node();
    node.profiles[1] = lying(any("one.example"), Some("eth1"));
    let policy = json!({"interfaces": [{"name": "eth1", "type": "ethernet", "state": "up", "mtu": 9000}]});
    let first = plan_change(&node, &Ownership::default(), &policy, &policy).unwrap();
    let taken = after(node, &first);
    let wish = wish(&[any("two.example")], &[]);
    let change = plan_profile_files(&taken, &first.ownership, Some((&policy, &policy)), &wish).unwrap();
    assert_eq!(writes(&change), "+kiln-eth1 +any");
    let text = file(&change, Place::Persistent, "kiln-eth1.nmconnection");
    assert!(text.contains("two.example") && text.contains("mtu=9000"), "{text}");
    let error = plan_profile_files(&taken, &first.ownership, None, &wish).unwrap_err();
    assert_eq!(error, ChangeError::PolicyUnknown { profile: "any".into(), interface: "eth1".into() });
}

#[test]
fn a_profile_that_goes_is_not_given_back() {
    let (node, owned, policy) = with_policy();
    let change = plan_profile_files(&node, &owned, Some((&policy, &policy)), &wish(&[], &["eth1"])).unwrap();
    let Taken { originals, shared, active, made: _ } = &change.ownership.interfaces["eth1"];
    assert_eq!((originals.as_slice(), shared, active), (&[][..], &None, &None));
    let text = file(&change, Place::Persistent, "eth1.nmconnection");
    assert!(text.contains("mtu=9000") && !text.contains("8000-000000000001"), "{text}");
    let changed = after(node, &change);
    let again = plan_change(&changed, &change.ownership, &policy, &policy).unwrap();
    assert!(again.is_empty(), "{again:#?}");
    let back = plan_change(&changed, &change.ownership, &json!({}), &json!({})).unwrap();
    assert_eq!((writes(&back).as_str(), steps(&back).as_str()), ("-eth1", "remove eth1"));
}

#[test]
fn a_policy_of_its_own_making_gets_a_profile_beneath() {
    let policy = json!({"interfaces": [{"name": "br1", "type": "linux-bridge", "state": "up", "bridge": {"port": []},
        "ipv4": {"enabled": true, "dhcp": false, "address": [{"ip": "198.51.100.1", "prefix-length": 24}]}}]});
    let first = plan_change(&node(), &Ownership::default(), &policy, &policy).unwrap();
    let made = after(node(), &first);
    let bridge = numbered("br1", "b1", "type=bridge\ninterface-name=br1");
    let wish = wish(std::slice::from_ref(&bridge), &[]);
    let change = plan_profile_files(&made, &first.ownership, Some((&policy, &policy)), &wish).unwrap();
    let text = file(&change, Place::Persistent, "br1.nmconnection");
    assert!(text.contains("198.51.100.1/24") && text.contains("uuid=20000000"), "{text}");
    let back = plan_change(&after(made, &change), &change.ownership, &json!({}), &json!({})).unwrap();
    assert_eq!(file(&back, Place::Persistent, "br1.nmconnection"), bridge.keyfile.render());
    assert_eq!(steps(&back), "activate br1");
}
