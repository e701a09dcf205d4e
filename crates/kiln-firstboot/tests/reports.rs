//! The witness against a real TLS server: one that takes reports, one that refuses, one that never answers, and none.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a helper that fails is a failed test")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use kiln_core::beacon::{Credentials, Point, Report};
use kiln_core::boot::handover::Policy;
use kiln_core::ignition::data_url;
use kiln_firstboot::witness::{Task, deliver, report};

#[path = "support/hub.rs"]
mod hub;
#[path = "support/machine.rs"]
mod machine;

use hub::Hub;
use machine::{BOND, DUMMY, Machine};

const TAKEN: &str = "204 No Content\r\n";
const KEPT: &str = "boot-partition/kiln-witness";

fn tell(machine: &Machine, point: Point, seconds: u64) -> String {
    let task = Task {
        root: machine.root(),
        boot: None,
        point,
        policy: Policy::Stock,
        time_limit: Duration::from_secs(seconds),
    };
    let mut said = Vec::new();
    report(&task, &mut said);
    String::from_utf8(said).unwrap()
}

fn machine(credentials: &Credentials) -> Machine {
    let machine = Machine::new(
        "",
        &[
            ("proc/sys/kernel/random/boot_id", 0o444, "6b0fbdb1-96b5-4a51-9d6b-7e3a4d7f3a10\n"),
            ("proc/sys/kernel/hostname", 0o644, "worker-0\n"),
            ("proc/uptime", 0o444, "8.12 3.00\n"),
            ("proc/net/route", 0o444, "eth0\t00000000\t010B000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"),
            ("sys/class/net/eth0/address", 0o444, "52:54:00:00:00:01\n"),
            ("sys/class/net/eth0/carrier", 0o444, "1\n"),
            ("run/NetworkManager/system-connections/bond0.nmconnection", 0o600, BOND),
            ("run/NetworkManager/system-connections/dummy.nmconnection", 0o644, DUMMY),
        ],
    );
    machine.put("etc/kiln/beacon.json", 0o600, &serde_json::to_string(credentials).unwrap());
    machine
}

#[test]
fn a_report_says_what_the_machine_looks_like() {
    let hub = Hub::start(&[TAKEN]);
    let machine = machine(&hub.credentials("host-token"));
    let said = tell(&machine, Point::Leaving, 20);
    assert!(said.contains(&format!("taken by {}", hub.url())), "{said}");
    assert!(said.contains("host  worker-0") && said.contains("10.0.11.1 on eth0"), "{said}");
    assert!(!said.contains("host-token"), "{said}");
    let (head, report) = hub.received();
    assert!(
        head.starts_with("POST /beacon HTTP/1.1\r\n") && head.contains("Authorization: Bearer host-token\r\n"),
        "{head}"
    );
    assert_eq!((report.point, report.uptime_ms, report.kept), (Point::Leaving, 8120, false));
    assert_eq!(report.interfaces[0].mac.as_deref(), Some("52:54:00:00:00:01"));
    let why: Vec<_> =
        report.profiles.iter().map(|profile| (profile.chosen_for.as_deref(), profile.why.as_str())).collect();
    let refused =
        "mode 0644 gives rights to group or others; NetworkManager loads a keyfile only with mode 0600 or less";
    assert_eq!(
        why,
        [(Some("bond0"), "it is the only profile that fits, but there is no such interface"), (None, refused)]
    );
    assert_eq!(report.propagation.unwrap().outcome, "copied");
    assert_eq!(machine.files(KEPT), []);
}

#[test]
fn the_pointer_is_enough_and_the_second_token_is_tried() {
    let hub = Hub::start(&["401 Unauthorized\r\n", TAKEN]);
    let machine = machine(&hub.credentials("old-token"));
    let authority = data_url::encode_base64(hub.authority().as_bytes());
    let source = hub.url().replace("/beacon", "/ignition");
    let header = r#"{"name": "Authorization", "value": "Bearer boot-token"}"#;
    let pointer = format!(
        r#"{{"ignition": {{"version": "3.2.0", "config": {{"merge": [{{"source": "{source}", "httpHeaders": [{header}]}}]}},
            "security": {{"tls": {{"certificateAuthorities": [{{"source": "{authority}"}}]}}}}}}}}"#
    );
    machine.put("usr/lib/ignition/user.ign", 0o600, &pointer);
    let said = tell(&machine, Point::Network, 20);
    assert!(said.contains("taken by"), "{said}");
    assert!(hub.received().0.contains("Bearer old-token"));
    assert!(hub.received().0.contains("Bearer boot-token"));
}

#[test]
fn a_hub_that_is_busy_is_asked_again() {
    let hub = Hub::start(&["503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 0\r\n", TAKEN]);
    let said = tell(&machine(&hub.credentials("t")), Point::RealRoot, 30);
    assert!(said.contains("taken by"), "{said}");
    let reports = [hub.received().1, hub.received().1];
    assert_eq!(reports[0], reports[1]);
}

#[test]
fn what_nobody_took_is_kept_and_delivered_by_a_later_boot() {
    let (hub, other) = (Hub::start(&[]), Hub::start(&[TAKEN, TAKEN]));
    // The right address, but another authority: time will not mend that, and nothing is tried twice.
    let wrong = Credentials { authorities: other.authority().to_owned(), ..hub.credentials("t") };
    let machine = machine(&wrong);
    let said = tell(&machine, Point::Network, 600);
    assert!(said.contains("invalid peer certificate") && said.contains("kept on the boot partition"), "{said}");
    let kept = machine.files(KEPT);
    let name = format!("{KEPT}/6b0fbdb196b54a519d6b7e3a4d7f3a10-Network.json");
    assert_eq!(kept.iter().map(|(path, mode, _)| (path.as_str(), *mode)).collect::<Vec<_>>(), [(name.as_str(), 0o600)]);

    machine.put("etc/kiln/beacon.json", 0o600, &serde_json::to_string(&other.credentials("t")).unwrap());
    let said = tell(&machine, Point::RealRoot, 20);
    assert!(said.contains("1 reports of earlier boots were delivered"), "{said}");
    let points = [other.received().1, other.received().1].map(|report| (report.point, report.kept));
    assert_eq!(points, [(Point::RealRoot, false), (Point::Network, true)]);
    assert_eq!(machine.files(KEPT), []);
}

#[test]
fn deliver_alone_sends_what_was_kept_and_drops_what_is_no_report() {
    let hub = Hub::start(&[TAKEN]);
    let machine = machine(&hub.credentials("t"));
    machine.put(&format!("{KEPT}/a-Network.json"), 0o600, r#"{"point": "Network", "bootId": "a", "uptimeMs": 1}"#);
    machine.put(&format!("{KEPT}/b-Network.json"), 0o600, "half a rep");
    let mut said = Vec::new();
    deliver(&machine.root(), None, Duration::from_secs(20), &mut said);
    assert_eq!(String::from_utf8(said).unwrap(), "kiln: 1 reports of earlier boots were delivered\n");
    assert_eq!(hub.received().1.boot_id, "a");
    assert_eq!(machine.files(KEPT), []);
}

#[test]
fn a_hub_that_never_answers_or_is_not_there_holds_nothing_up() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hub = Hub::start(&[]);
    let url = format!("https://{}/beacon", silent.local_addr().unwrap());
    let machine = machine(&Credentials { url, ..hub.credentials("t") });
    let said = tell(&machine, Point::Network, 1);
    assert!(said.contains("kept on the boot partition"), "{said}");
    drop(silent);
    let said = tell(&machine, Point::Leaving, 1);
    assert!(said.contains("Connection refused") && said.contains("kept on the boot partition"), "{said}");
    assert_eq!(machine.files(KEPT).len(), 2);
    std::fs::remove_file(machine.path("etc/kiln/beacon.json")).unwrap();
    let said = tell(&machine, Point::RealRoot, 1);
    assert!(said.contains("this machine knows no hub"), "{said}");
}

#[test]
fn the_key_of_the_kubelet_is_named_once_it_is_whole() {
    let pem = include_str!("../../kiln-core/src/beacon/kubelet_key/p256.pem");
    let hub = Hub::start(&[TAKEN]);
    let machine = machine(&hub.credentials("t"));
    let key = "var/lib/kubelet/pki/kubelet-client.key.tmp";
    machine.put(key, 0o600, &pem[..100]);
    std::thread::scope(|scope| {
        let telling = scope.spawn(|| tell(&machine, Point::KubeletKey, 60));
        machine.put("var/lib/kubelet/pki/new", 0o600, pem);
        std::fs::rename(machine.path("var/lib/kubelet/pki/new"), machine.path(key)).unwrap();
        assert!(telling.join().unwrap().contains("taken by"));
    });
    let expected = kiln_core::beacon::kubelet_key::kubelet_key(pem.as_bytes()).unwrap().to_string();
    assert_eq!(hub.received().1.kubelet_key, Some(expected));
    std::fs::remove_file(machine.path(key)).unwrap();
    assert!(tell(&machine, Point::KubeletKey, 0).contains("made no key in time"));
}

#[test]
fn the_error_of_ignition_travels_without_its_secrets() {
    let hub = Hub::start(&[TAKEN]);
    let machine = machine(&hub.credentials("t"));
    let log = "INFO     : GET https://h/i\nCRITICAL : failed to fetch: Authorization: Bearer geheim\nfailing config {\"passwordHash\": \"$6$a$b\"}\n";
    machine.put("run/ignition-fetch.log", 0o600, log);
    let said = tell(&machine, Point::IgnitionFailed, 20);
    let report = hub.received().1;
    assert_eq!(report.ignition_error.as_deref(), Some("CRITICAL : failed to fetch: Authorization: Bearer …"));
    assert!(!said.contains("geheim"), "{said}");
}

#[test]
fn in_the_real_root_it_tells_what_was_decided_in_the_initramfs() {
    let hub = Hub::start(&[TAKEN]);
    let machine = machine(&hub.credentials("t"));
    machine.put("sysroot/etc/NetworkManager/system-connections/dummy.nmconnection", 0o644, DUMMY);
    kiln_firstboot::propagate::propagate(&machine.root(), Policy::Stock, &mut kiln_firstboot::disk::RealDisk).unwrap();
    tell(&machine, Point::RealRoot, 20);
    let handover = hub.received().1.propagation.unwrap();
    let blocked = "/etc/NetworkManager/system-connections/dummy.nmconnection";
    assert_eq!((handover.outcome.as_str(), handover.blocked_by), ("blocked", vec![blocked.to_owned()]));
}

/// In a network of its own, with the real `/sys` and `/proc`.
#[test]
fn addresses_and_routes_are_the_kernels() {
    let test = "addresses_and_routes_are_the_kernels";
    let script = "mount -t sysfs sysfs /sys && ip link add eth7 type veth peer name eth8 && ip link set eth7 up && ip link set eth8 up && \
        ip addr add 10.0.11.11/24 dev eth7 && ip -6 addr add fd00::7/64 dev eth7 nodad && ip route add default via 10.0.11.1 && exec \"$@\"";
    let machine = Machine::new("", &[]);
    std::fs::remove_dir_all(machine.path("proc")).unwrap();
    machine.link("proc", "/proc");
    machine.link("sys", "/sys");
    let mut command = Command::new("unshare");
    command.args([
        "--net",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        script,
        "sh",
        env!("CARGO_BIN_EXE_kiln-firstboot"),
    ]);
    command.args(["report", "--point", "network", "--time-limit", "0", "--root"]).arg(machine.path(""));
    if !Path::new("/usr/bin/unshare").exists()
        || !Path::new("/usr/sbin/ip").exists()
        || !nix::unistd::geteuid().is_root()
    {
        let reason = "it needs root, unshare (util-linux) and ip (iproute2)";
        assert!(std::env::var("KILN_REQUIRE_ORACLES").as_deref() != Ok("1"), "{test}: {reason}");
        eprintln!("skipped: {test}: {reason}");
        return;
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("link  eth7 up, 10.0.11.11/24 fd00::7/64\n"), "{said}");
    assert!(said.contains("route  10.0.11.1 on eth7\n"), "{said}");
    let kept = machine.files(KEPT);
    let report = Report::parse(kept[0].2.as_bytes()).unwrap();
    assert_eq!(report.interfaces.len(), 2, "{said}");
}
