//! Document 000's experiment on a real machine: kernel, initramfs, Ignition, NetworkManager and systemd are the real ones.
//!
//! A hub serves four hosts with document 003's network: an LACP bond of two NICs, VLAN 110 on it, a static address. Their
//! pools' configs differ in the file that made document 000's machine lose its network. Each host's disk is made with
//! `kiln image customize`, boots in a virtual machine (`support/vm.rs`), fetches its config from the hub over TLS with its token
//! and ends with the network of its real root, or without. What is on the disk afterwards is what `kiln boot simulate` said.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

#[path = "support/first_boot.rs"]
mod first_boot;
#[path = "support/vm.rs"]
mod vm;

use std::time::Duration;

use kiln_core::beacon::{Point, Report};
use kiln_core::timeline::Stage;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use first_boot::{Ending, Host, LONGEST_BOOT, Machine, Site};
use vm::Bed;

/// The file document 000's MachineConfig writes.
const DUMMY: &str = "dummy-dummy0.nmconnection";
const PROFILES: [&str; 4] = ["bond0.110.nmconnection", "bond0.nmconnection", "eno2.nmconnection", "eno3.nmconnection"];

/// A virtual machine without KVM takes a whole core: two run at a time, whichever test they belong to.
static CORES: Semaphore = Semaphore::const_new(2);

/// Does something with a machine when there is a core for it.
fn with_core<T>(runtime: &Handle, boot: impl FnOnce() -> T) -> T {
    let _core = runtime.block_on(CORES.acquire()).unwrap();
    boot()
}

/// Stock rules, and nothing in the pool's config about networking.
const PLAIN: Host = Host {
    name: "plain",
    address: "10.0.11.11",
    pool: "plain",
    nics: ["52:54:00:00:01:02", "52:54:00:00:01:03"],
    force_persist_ip: false,
};
/// Stock rules, and the dummy profile: document 000's failure.
const LOST: Host = Host {
    name: "lost",
    address: "10.0.11.12",
    pool: "stock",
    nics: ["52:54:00:00:02:02", "52:54:00:00:02:03"],
    force_persist_ip: false,
};
/// The same with `coreos.force_persist_ip`: document 000's way out. Its witness is appended, as to an image of CoreOS's.
const FORCED: Host = Host {
    name: "forced",
    address: "10.0.11.13",
    pool: "stock",
    nics: ["52:54:00:00:03:02", "52:54:00:00:03:03"],
    force_persist_ip: true,
};
/// The same, composed by Kiln.
const COMPOSED: Host = Host {
    name: "composed",
    address: "10.0.11.14",
    pool: "composed",
    nics: ["52:54:00:00:04:02", "52:54:00:00:04:03"],
    force_persist_ip: false,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_keeps_or_loses_its_network_as_predicted_and_kiln_knows_why() {
    let Some(bed) = Bed::find("a_machine_keeps_or_loses_its_network_as_predicted_and_kiln_knows_why") else { return };
    let site = Site::start("first-boot", &[PLAIN, LOST, FORCED, COMPOSED]).await;
    let (site, appended, runtime) = (&site, bed.with_appended_witness(), &Handle::current());
    let hosts = [(PLAIN, &bed), (LOST, &bed), (FORCED, &appended), (COMPOSED, &bed)];
    let [plain, lost, forced, composed] = tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            let boot = |(host, bed)| scope.spawn(move || with_core(runtime, || site.first_boot(bed, host)));
            hosts.map(boot).map(|thread| thread.join().unwrap())
        })
    });

    for Ending { host, real_root, predicted, .. } in [&plain, &lost, &forced, &composed] {
        assert_eq!(real_root, predicted, "what the machine `{}` has is what was predicted", host.name);
    }
    assert_eq!(names(&plain), PROFILES);
    assert_eq!(names(&lost), [DUMMY]);
    assert_eq!(names(&forced), [&PROFILES[..2], &[DUMMY], &PROFILES[2..]].concat());
    assert_eq!(names(&composed), [&PROFILES[..2], &[DUMMY], &PROFILES[2..]].concat());
    for ending in [&plain, &forced, &composed] {
        let wanted = format!("{}/24", ending.host.address);
        assert!(ending.addresses.contains(&wanted), "{}: {}", ending.host.name, ending.addresses);
    }
    assert!(!lost.addresses.contains("10.0.11."), "{}", lost.addresses);
    // The first boot is over: nothing of it is left where a next boot would look.
    for Ending { host, boot, .. } in [&plain, &lost, &forced, &composed] {
        for path in ["coreos-firstboot-network", "ignition", "ignition.firstboot"] {
            assert!(!boot.iter().any(|file| file == path), "{}: {boot:?}", host.name);
        }
    }

    // Those with a network told the hub; the one without kept its report where the next boot finds it.
    for Ending { host, kept_reports, console, .. } in [&plain, &forced, &composed] {
        let reported = reports(site, *host);
        let told = |point| reported.iter().find(|report| report["point"] == point);
        for point in ["Network", "Leaving", "RealRoot"] {
            assert!(told(point).is_some(), "{}: {point} is not in {reported:#?}\n{console}", host.name);
        }
        assert!(told("RealRoot").unwrap().to_string().contains(host.address), "{reported:#?}");
        assert_eq!(kept_reports.len(), 0, "{}: {kept_reports:?}", host.name);
    }
    let kept: Vec<Report> = lost.kept_reports.iter().map(|text| Report::parse(text.as_bytes()).unwrap()).collect();
    assert_eq!(kept.iter().map(|report| report.point).collect::<Vec<_>>(), [Point::RealRoot], "{}", lost.console);
    assert!(kept[0].interfaces.iter().all(|interface| interface.addresses.is_empty()), "{kept:#?}");

    // From what the machine said in its initramfs, and its silence since.
    let answer = site.why_after(LOST, 11 * 60).await;
    let cause = "last seen in the initramfs with 10.0.11.12 on bond0.110; the real root never reported; MachineConfig 50-network-dumy puts dummy-dummy0.nmconnection into system-connections, so the initramfs network was not kept";
    assert_eq!((answer.missing, answer.cause.as_str()), (Some(Stage::RealRoot), cause));
    assert!(answer.step.contains("firstBootNetwork: composed"), "{}", answer.step);
    let said = site.ask(&["why", "site/lost"]);
    assert!(said.contains("last seen in the initramfs with 10.0.11.12 on bond0.110"), "{said}");
}

/// The reports of a host's newest boot, as `kiln why -o json` has them.
fn reports(site: &Site, host: Host) -> Vec<Value> {
    let said: Value = serde_json::from_str(&site.ask(&["why", &format!("site/{}", host.name), "-o", "json"])).unwrap();
    said["boot"]["reports"].as_array().cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_power_cut_while_the_network_is_handed_over_costs_another_first_boot_and_nothing_else() {
    let name = "a_power_cut_while_the_network_is_handed_over_costs_another_first_boot_and_nothing_else";
    let Some(bed) = Bed::find(name) else { return };
    let site = Site::start("power-cut", &[PLAIN]).await;
    let runtime = Handle::current();
    let cut_and_boot = || {
        let machine = Machine::new(&site, &bed, PLAIN);
        let vm = machine.boot(&bed, "systemd.journald.forward_to_console=1");
        let handing_over = ["Stopping kiln-hand-over.service"];
        assert!(vm.console.wait_for(&handing_over, LONGEST_BOOT), "{}", vm.console.text());
        // The shell has started; the copying is next.
        std::thread::sleep(Duration::from_millis(700));
        vm.cut_power();
        machine.first_boot(&bed)
    };
    let ending = tokio::task::block_in_place(|| with_core(&runtime, cut_and_boot));
    assert_eq!(ending.real_root, ending.predicted);
    assert_eq!(names(&ending), PROFILES);
    assert!(ending.addresses.contains("10.0.11.11/24"), "{}", ending.addresses);
}

fn names(ending: &Ending) -> Vec<&str> {
    ending.real_root.keys().map(String::as_str).collect()
}
