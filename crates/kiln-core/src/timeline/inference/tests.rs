//! Each situation with its exact sentence.

use serde_json::{Value, json};

use super::super::first_boot::Writer;
use super::super::{Entry, Why, why};
use super::*;

const OWN: &str = "/etc/NetworkManager/system-connections/bond0.nmconnection";
const DUMMY: &str = "/etc/NetworkManager/system-connections/dummy0.nmconnection";

/// What was said, how far it had come, whose files stand in the way; the cause and the step.
type Case<'a> = (Report, Stage, &'a [(&'a str, &'a str)], &'a str, &'a str);

/// A report of boot `b`; `more` replaces fields of it.
fn report(point: &str, more: Value) -> Report {
    let mut report = json!({"point": point, "bootId": "b", "uptimeMs": 9000,
        "interfaces": [{"name": "eth0", "mac": "52:54:00:00:00:01", "up": true},
            {"name": "bond0.110", "mac": "52:54:00:00:00:01", "up": true, "addresses": ["10.0.11.11/24"]}],
        "defaultRoutes": [{"gateway": "10.0.11.1", "interface": "bond0.110"}]});
    for (key, value) in more.as_object().into_iter().flatten() {
        report[key] = value.clone();
    }
    Report::parse(report.to_string().as_bytes()).unwrap()
}

fn handed_over(outcome: &str, blocked_by: &[&str]) -> Value {
    json!({"propagation": {"policy": "stock", "outcome": outcome, "blockedBy": blocked_by}})
}

/// No address and no way; `more` replaces fields of the one NIC.
fn cut_off(nic: Value) -> Value {
    let mut own = json!({"name": "eth0", "mac": "52:54:00:00:00:01", "up": true});
    for (key, value) in nic.as_object().into_iter().flatten() {
        own[key] = value.clone();
    }
    json!({"interfaces": [own], "defaultRoutes": []})
}

/// Asks about host w0, which said this at second 1000, when it had come this far.
fn ask(report: Report, furthest: Stage, now: i64) -> Why {
    ask_with(report, furthest, now, &[])
}

fn ask_with(report: Report, furthest: Stage, now: i64, writers: &[(&str, &str)]) -> Why {
    let reached = Stage::PATH.into_iter().filter(|stage| *stage <= furthest && *stage != Stage::Discovered);
    let time = |stage: Stage| if stage < Stage::IgnitionFetched { Moment(900) } else { Moment(1001) };
    let timeline = Timeline::of(reached.map(|stage| Entry::reached(stage, time(stage), "test", "seen")));
    let writers: Vec<Writer> =
        writers.iter().map(|(path, object)| Writer { path: (*path).into(), object: (*object).into() }).collect();
    let mut boot = Boot::default();
    boot.take(1, Seen { time: Moment(1000), report }, &writers);
    let declared = Declared {
        addresses: vec![("bond0.110".into(), "10.0.11.11/24".parse().unwrap())],
        gateways: vec!["10.0.11.1".into()],
        macs: vec![(Some("eth0".into()), "52:54:00:00:00:01".into())],
    };
    let situation = Situation {
        host: "w0".into(),
        driven: Stage::PATH.to_vec(),
        boot: Some(boot),
        declared,
        ..Situation::default()
    };
    why(&timeline, &situation, Moment(now))
}

#[test]
fn each_situation_has_its_sentence_and_its_step() {
    use Stage::{Declared, IgnitionFetched as Fetched, RealRoot};
    let profile =
        |why: &str| json!([{"path": "/run/NetworkManager/system-connections/bond0.nmconnection", "why": why}]);
    let with = |mut value: Value, key: &str, more: Value| {
        value[key] = more;
        value
    };
    let failed = |error: &str| report("IgnitionFailed", json!({"ignitionError": error}));
    #[rustfmt::skip]
    let table: Vec<Case> = vec![
        // It left the initramfs.
        (report("Leaving", handed_over("blocked", &[DUMMY])), Fetched, &[(DUMMY, "MachineConfig 50-network-dumy")],
            "last seen in the initramfs with 10.0.11.11 on bond0.110; the real root never reported; MachineConfig 50-network-dumy puts dummy0.nmconnection into system-connections, so the initramfs network was not kept",
            "take the file out of MachineConfig 50-network-dumy, or let Kiln compose both (`firstBootNetwork: composed` in the Pool), or keep the initramfs network with the kernel argument coreos.force_persist_ip; then `kiln token rotate w0` and boot it again"),
        (report("Leaving", handed_over("blocked", &["/etc/sysconfig/network-scripts/route-bond0", DUMMY])), Fetched, &[],
            "last seen in the initramfs with 10.0.11.11 on bond0.110; the real root never reported; route-bond0 is in network-scripts (and 1 more), so the initramfs network was not kept",
            "take the file away, or let Kiln compose both (`firstBootNetwork: composed` in the Pool), or keep the initramfs network with the kernel argument coreos.force_persist_ip; then `kiln token rotate w0` and boot it again"),
        (report("Leaving", handed_over("blocked", &[OWN])), Fetched, &[(OWN, "Host w0")],
            "last seen in the initramfs with 10.0.11.11 on bond0.110; the real root never reported, although its config brings the host's own network",
            "look at the console: the system does not start, or NetworkManager refuses what it got; then `kiln token rotate w0` and boot it again"),
        (report("Leaving", handed_over("forbidden", &[])), Fetched, &[],
            "last seen in the initramfs with 10.0.11.11 on bond0.110; the real root never reported; the kernel argument coreos.no_persist_ip forbids keeping the initramfs network",
            "remove coreos.no_persist_ip, or give the real root profiles of its own; then `kiln token rotate w0` and boot it again"),
        (report("Leaving", handed_over("default", &[])), Fetched, &[],
            "last seen in the initramfs with 10.0.11.11 on bond0.110; the real root never reported; the initramfs had no network of its own to keep, and the config brings none that works",
            "declare the host's network (`kiln plan` shows what it gets); then `kiln token rotate w0` and boot it again"),
        (report("Leaving", handed_over("copied", &[])), Fetched, &[],
            "last seen in the initramfs with 10.0.11.11 on bond0.110; the real root never reported, although the initramfs network was handed over (copied)",
            "look at the console: the system does not start, or NetworkManager refuses what it got; then `kiln token rotate w0` and boot it again"),
        (report("Leaving", Value::Null), Fetched, &[],
            "last seen in the initramfs with 10.0.11.11 on bond0.110; the real root never reported",
            "look at the console: the system does not start, or starts without a network; then `kiln token rotate w0` and boot it again"),
        // It never left it.
        (report("Network", Value::Null), Fetched, &[],
            "its config was fetched, but it never left the initramfs, where it was last seen with 10.0.11.11 on bond0.110",
            "look at the console: Ignition's next stages (disks, files) have not ended; a disk that is missing or in use is the usual cause"),
        (report("Network", Value::Null), Declared, &[],
            "last seen in the initramfs with 10.0.11.11 on bond0.110; its config was never fetched",
            "look at the console for Ignition's last line; check that names and routes lead to the hub from there"),
        (report("Network", json!({"defaultRoutes": []})), Declared, &[],
            "in the initramfs bond0.110 has 10.0.11.11/24, but there is no default route, though one via 10.0.11.1 is declared",
            "check that 10.0.11.1 is in a subnet of bond0.110; `kiln plan` shows the network it should have"),
        (report("Network", cut_off(json!({"mac": "52:54:00:00:00:99", "name": "ens3"}))), Declared, &[],
            "in the initramfs no NIC has the declared address 52:54:00:00:00:01 (eth0); the machine has 52:54:00:00:00:99 (ens3)",
            "correct the MAC address in the host's declaration, or boot the machine it belongs to"),
        (report("Network", cut_off(json!({"up": false}))), Declared, &[],
            "in the initramfs eth0 has no carrier",
            "check the cable and the switch port: its VLANs, and LACP if the host has a bond"),
        (report("Network", with(cut_off(Value::Null), "profiles", profile("its mode is 0644"))), Declared, &[],
            "in the initramfs NetworkManager did not use bond0.nmconnection: its mode is 0644",
            "write bond0.nmconnection with mode 0600: NetworkManager reads no profile that others may read"),
        (report("Network", with(cut_off(Value::Null), "profiles", profile("no device fits"))), Declared, &[],
            "in the initramfs NetworkManager did not use bond0.nmconnection: no device fits",
            "correct bond0.nmconnection; `kiln plan` shows the profiles it should have"),
        (report("Network", cut_off(Value::Null)), Declared, &[],
            "in the initramfs no interface has an address",
            "look at the console: NetworkManager's log says why; `kiln plan` shows the network it should have"),
        // Ignition failed.
        (failed("GET https://hub.lab/ignition: x509: certificate signed by unknown authority"), Declared, &[],
            "Ignition does not trust the hub's certificate, last seen in the initramfs with 10.0.11.11 on bond0.110: GET https://hub.lab/ignition: x509: certificate signed by unknown authority",
            "the authorities in its user-data are not those the hub's certificate is from, or its clock is wrong: make it anew with `kiln ignition pointer --host w0`"),
        (failed("dial tcp: lookup hub.lab on 10.0.0.53:53: no such host"), Declared, &[],
            "Ignition cannot resolve the hub's name, last seen in the initramfs with 10.0.11.11 on bond0.110: dial tcp: lookup hub.lab on 10.0.0.53:53: no such host",
            "check the name servers in the host's network, or give the hub's address instead of its name (`--node-url`)"),
        (failed("GET result: Not Found"), Declared, &[],
            "the server refused Ignition's request for good, last seen in the initramfs with 10.0.11.11 on bond0.110: GET result: Not Found",
            "what it asks for is not there or not for it: check the address in its user-data, or make it anew with `kiln ignition pointer --host w0`"),
        (failed("dial tcp 10.0.0.1:22624: connect: no route to host"), Declared, &[],
            "Ignition cannot reach the server, last seen in the initramfs with 10.0.11.11 on bond0.110: dial tcp 10.0.0.1:22624: connect: no route to host",
            "check routes and firewalls between the host and the hub"),
        (failed("failed to create partitions on \"/dev/vda\""), Fetched, &[],
            "Ignition failed, last seen in the initramfs with 10.0.11.11 on bond0.110: failed to create partitions on \"/dev/vda\"",
            "look at the console for the stage that failed; `kiln ignition validate` checks the config"),
        // The real root runs.
        (report("RealRoot", cut_off(json!({"addresses": ["10.0.11.99/24"]}))), Fetched, &[],
            "the real root runs, but 10.0.11.11/24 is declared for bond0.110 and missing: eth0 has 10.0.11.99/24, no default route",
            "compare `kiln plan` with `nmcli` on the node; another profile for the same interface is the usual cause"),
        (report("RealRoot", with(cut_off(Value::Null), "profiles", profile("its mode is 0644"))), Fetched, &[],
            "the real root runs, but 10.0.11.11/24 is declared for bond0.110 and missing: no interface has an address, no default route; NetworkManager did not use bond0.nmconnection: its mode is 0644",
            "write bond0.nmconnection with mode 0600: NetworkManager reads no profile that others may read"),
        (report("RealRoot", Value::Null), RealRoot, &[],
            "the real root runs with 10.0.11.11 on bond0.110, but its kubelet has not made a key: it has not started",
            "look at the kubelet's unit on the node (`systemctl status kubelet`)"),
        (report("KubeletKey", Value::Null), RealRoot, &[],
            "the real root runs with 10.0.11.11 on bond0.110 and its kubelet has made a key, but no request of it was approved",
            "`kubectl get csr` on the cluster shows requests that wait; without any, check that the node reaches the cluster's API"),
        // Delivered late.
        (report("Network", with(cut_off(json!({"up": false})), "kept", json!(true))), Declared, &[],
            "a report that an earlier boot kept on its disk, delivered later, says: in the initramfs eth0 has no carrier",
            "check the cable and the switch port: its VLANs, and LACP if the host has a bond"),
    ];
    for (report, furthest, writers, cause, step) in table {
        let answer = ask_with(report.clone(), furthest, 1_000_000, writers);
        assert_eq!((answer.cause.as_str(), answer.step.as_str()), (cause, step), "{report:?}");
        assert_eq!(answer.likelihood, Likelihood::Known);
        let missing = if furthest == RealRoot {
            Stage::ClientCsr
        } else if furthest == Fetched {
            RealRoot
        } else {
            Fetched
        };
        assert_eq!(answer.missing, Some(missing), "{cause}");
    }
}

#[test]
fn a_boot_that_goes_on_is_waited_for_and_one_that_told_its_fault_is_not() {
    let soon = ask(report("Leaving", handed_over("copied", &[])), Stage::IgnitionFetched, 1005);
    assert_eq!(
        (soon.likelihood, soon.cause.as_str()),
        (Likelihood::Waiting, "last seen in the initramfs with 10.0.11.11 on bond0.110; RealRoot may take 10 minutes")
    );
    let soon = ask(report("IgnitionFailed", json!({"ignitionError": "x509"})), Stage::IgnitionFetched, 1005);
    assert_eq!(soon.likelihood, Likelihood::Known);
}

#[test]
fn what_an_earlier_boot_fetched_this_one_has_not() {
    let mut boot = Boot::default();
    boot.take(2, Seen { time: Moment(9000), report: report("Network", Value::Null) }, &[]);
    let situation = Situation { host: "w0".into(), boot: Some(boot), ..Situation::default() };
    let timeline = Timeline::of([Entry::reached(Stage::IgnitionFetched, Moment(1000), "test", "seen")]);
    let answer = why(&timeline, &situation, Moment(10_000));
    assert_eq!(answer.cause, "last seen in the initramfs with 10.0.11.11 on bond0.110; its config was never fetched");
    assert_eq!(answer.missing, Some(Stage::IgnitionFetched));
}

#[test]
fn what_is_over_says_nothing() {
    // It was discovered anew after that, it is further than its reports, or somebody else saw something since.
    let boot = |point: &str| {
        let mut boot = Boot::default();
        boot.take(1, Seen { time: Moment(1000), report: report(point, Value::Null) }, &[]);
        Situation { host: "w0".into(), boot: Some(boot), driven: Stage::PATH.to_vec(), ..Situation::default() }
    };
    let at = |stage: Stage, time: i64| Entry::reached(stage, Moment(time), "test", "seen");
    let alarm = Entry::failed(Stage::IgnitionFetched, Moment(1001), "ignition endpoint", "two machines have it");
    for (timeline, situation, missing) in [
        (Timeline::of([at(Stage::Discovered, 1001)]), boot("Leaving"), Stage::Validated),
        (Timeline::of([at(Stage::Registered, 1001)]), boot("RealRoot"), Stage::ServingCsr),
        (Timeline::of([at(Stage::Declared, 1), alarm]), boot("Network"), Stage::PoweredOn),
        (Timeline::of([at(Stage::RealRoot, 1)]), Situation { boot: None, ..boot("RealRoot") }, Stage::ClientCsr),
        (
            Timeline::of([at(Stage::RealRoot, 1)]),
            Situation { boot: Some(Boot::default()), ..boot("RealRoot") },
            Stage::ClientCsr,
        ),
    ] {
        assert_eq!(infer(&timeline, &situation, missing, Moment(5000)), None, "{missing}");
    }
}
