//! `copy-network` and `propagate` on folders that stand for machines: every row of the stock scripts' behaviour.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a helper that fails is a failed test")]

use std::path::Path;
use std::process::Command;

use kiln_core::boot::handover::Policy;
use kiln_firstboot::copy_network::copy_network;
use kiln_firstboot::disk::RealDisk;
use kiln_firstboot::propagate::propagate;

#[path = "support/machine.rs"]
mod machine;

use machine::{BOND, DUMMY, Machine};

const ETC: &str = "sysroot/etc/NetworkManager/system-connections";
const RUN: &str = "run/NetworkManager/system-connections";

/// One row: what the initramfs and the real root have, and what the real root has afterwards.
struct Row {
    name: &'static str,
    kargs: &'static str,
    policy: Policy,
    files: &'static [(&'static str, u32, &'static str)],
    outcome: &'static str,
    expected: &'static [(&'static str, u32, &'static str)],
}

const BOND_FILE: (&str, u32, &str) = ("run/NetworkManager/system-connections/bond0.nmconnection", 0o600, BOND);

const ROWS: &[Row] = &[
    Row {
        name: "an empty real root gets a copy, without the loopback",
        kargs: "",
        policy: Policy::Stock,
        files: &[BOND_FILE, ("run/NetworkManager/system-connections/lo.nmconnection", 0o600, "[connection]\nid=lo\n")],
        outcome: "copied",
        expected: &[("bond0.nmconnection", 0o600, BOND)],
    },
    Row {
        name: "a dummy nobody loads stands in the way",
        kargs: "",
        policy: Policy::Stock,
        files: &[BOND_FILE, ("sysroot/etc/NetworkManager/system-connections/dummy.nmconnection", 0o644, DUMMY)],
        outcome: "blocked",
        expected: &[("dummy.nmconnection", 0o644, DUMMY)],
    },
    Row {
        name: "the karg forces both files",
        kargs: "coreos.force_persist_ip",
        policy: Policy::Stock,
        files: &[BOND_FILE, ("sysroot/etc/NetworkManager/system-connections/dummy.nmconnection", 0o644, DUMMY)],
        outcome: "forced",
        expected: &[("bond0.nmconnection", 0o600, BOND), ("dummy.nmconnection", 0o644, DUMMY)],
    },
    Row {
        name: "a forced file of the same name keeps the mode it had",
        kargs: "",
        policy: Policy::Force,
        files: &[BOND_FILE, ("sysroot/etc/NetworkManager/system-connections/bond0.nmconnection", 0o644, DUMMY)],
        outcome: "forced",
        expected: &[("bond0.nmconnection", 0o644, BOND)],
    },
    Row {
        name: "a hidden file counts",
        kargs: "",
        policy: Policy::Stock,
        files: &[BOND_FILE, ("sysroot/etc/NetworkManager/system-connections/.keep", 0o644, "")],
        outcome: "blocked",
        expected: &[(".keep", 0o644, "")],
    },
    Row {
        name: "a stray ifcfg file counts",
        kargs: "",
        policy: Policy::Stock,
        files: &[BOND_FILE, ("sysroot/etc/sysconfig/network-scripts/route-bond0", 0o644, "")],
        outcome: "blocked",
        expected: &[],
    },
    Row {
        name: "the readme beside ifcfg files does not count",
        kargs: "",
        policy: Policy::Stock,
        files: &[BOND_FILE, ("sysroot/etc/sysconfig/network-scripts/readme-ifcfg-rh.txt", 0o644, "")],
        outcome: "copied",
        expected: &[("bond0.nmconnection", 0o600, BOND)],
    },
    Row {
        name: "other folders are not looked at",
        kargs: "",
        policy: Policy::Stock,
        files: &[BOND_FILE, ("sysroot/etc/NetworkManager/conf.d/a.conf", 0o644, "")],
        outcome: "copied",
        expected: &[("bond0.nmconnection", 0o600, BOND)],
    },
    Row {
        name: "no_persist_ip beats force_persist_ip",
        kargs: "coreos.force_persist_ip coreos.no_persist_ip",
        policy: Policy::Force,
        files: &[BOND_FILE],
        outcome: "forbidden",
        expected: &[],
    },
    Row {
        name: "no_persist_ip=0 says nothing",
        kargs: "coreos.no_persist_ip=0",
        policy: Policy::Stock,
        files: &[BOND_FILE],
        outcome: "copied",
        expected: &[("bond0.nmconnection", 0o600, BOND)],
    },
    Row {
        name: "nothing comes of nothing",
        kargs: "",
        policy: Policy::Force,
        files: &[],
        outcome: "nothing",
        expected: &[],
    },
    Row {
        name: "a profile others may read is copied as it is",
        kargs: "",
        policy: Policy::Stock,
        files: &[("run/NetworkManager/system-connections/a.nmconnection", 0o644, DUMMY)],
        outcome: "copied",
        expected: &[("a.nmconnection", 0o644, DUMMY)],
    },
    Row {
        name: "a merge keeps the dummy and the bond",
        kargs: "",
        policy: Policy::Merge,
        files: &[BOND_FILE, ("sysroot/etc/NetworkManager/system-connections/dummy.nmconnection", 0o644, DUMMY)],
        outcome: "merged",
        expected: &[("bond0.nmconnection", 0o600, BOND), ("dummy.nmconnection", 0o644, DUMMY)],
    },
];

#[test]
fn the_real_root_ends_as_the_table_says() {
    for row in ROWS {
        let machine = Machine::new(row.kargs, row.files);
        let done = propagate(&machine.root(), row.policy, &mut RealDisk).unwrap();
        assert_eq!(done.handover.outcome, row.outcome, "{}: {:?}", row.name, done.handover.reasons);
        let expected: Vec<_> = row
            .expected
            .iter()
            .map(|(name, mode, text)| (format!("{ETC}/{name}"), *mode, (*text).to_owned()))
            .collect();
        assert_eq!(machine.files(ETC), expected, "{}", row.name);
        assert!(!machine.path("run/NetworkManager").exists(), "{}", row.name);
        assert!(!machine.path("sysroot/etc/NetworkManager/.kiln-propagate").exists(), "{}", row.name);
    }
}

#[test]
fn the_kernel_command_line_may_choose_the_policy() {
    for (kargs, policy) in
        [("", Policy::Stock), ("kiln.firstboot=merge", Policy::Merge), ("kiln.firstboot=x", Policy::Stock)]
    {
        assert_eq!(Machine::new(kargs, &[]).root().policy(), policy, "{kargs}");
    }
}

#[test]
fn the_hostname_is_written_once_and_never_forced() {
    let hostname = ("run/NetworkManager/initrd/hostname", 0o644, "worker-0\n");
    let machine = Machine::new("", &[BOND_FILE, hostname]);
    propagate(&machine.root(), Policy::Stock, &mut RealDisk).unwrap();
    assert_eq!(machine.files("sysroot/etc/hostname"), [("sysroot/etc/hostname".into(), 0o644, "worker-0\n".into())]);
    let machine = Machine::new("", &[BOND_FILE, hostname, ("sysroot/etc/hostname", 0o600, "own\n")]);
    propagate(&machine.root(), Policy::Force, &mut RealDisk).unwrap();
    assert_eq!(machine.files("sysroot/etc/hostname"), [("sysroot/etc/hostname".into(), 0o600, "own\n".into())]);
    let machine = Machine::new("coreos.no_persist_ip", &[BOND_FILE, hostname]);
    propagate(&machine.root(), Policy::Force, &mut RealDisk).unwrap();
    assert_eq!(machine.files("sysroot/etc/hostname"), []);
}

#[test]
fn names_of_interfaces_go_along_even_when_profiles_do_not() {
    let rules = ("etc/udev/rules.d/80-ifname.rules", 0o644, "SUBSYSTEM==\"net\"\n");
    let blocked = ("sysroot/etc/NetworkManager/system-connections/dummy", 0o644, DUMMY);
    let machine = Machine::new("ifname=a:52:54:00:00:00:01", &[BOND_FILE, rules, blocked]);
    propagate(&machine.root(), Policy::Stock, &mut RealDisk).unwrap();
    let copied = ("sysroot/etc/udev/rules.d/80-ifname.rules".to_owned(), 0o644, rules.2.to_owned());
    assert_eq!(machine.files("sysroot/etc/udev"), [copied]);
    let machine = Machine::new("ifname=a:52:54:00:00:00:01 coreos.no_persist_ip=1", &[rules]);
    propagate(&machine.root(), Policy::Stock, &mut RealDisk).unwrap();
    assert_eq!(machine.files("sysroot/etc/udev"), []);
}

/// What the real generator makes of a command line, and whether that is the default nobody asked for.
const DEFAULTS: &[(&str, bool)] = &[
    ("ip=auto", true),
    ("ip=auto rd.neednet=1", true),
    ("rd.neednet=1", true),
    ("ip=on", true),
    ("ip=any", true),
    ("ip=nonsense", true),
    ("ip=auto ifname=a:52:54:00:00:00:01", true),
    ("ip=auto rd.net.timeout.carrier=20", true),
    ("ip=auto BOOTIF=01-52-54-00-00-00-01", true),
    ("ip=dhcp", false),
    ("ip=dhcp,dhcp6", false),
    ("ip=eno1:dhcp", false),
    ("ip=auto nameserver=192.0.2.53", false),
    ("ip=auto rd.net.timeout.dhcp=20", false),
    ("ip=auto rd.peerdns=0", false),
    ("ip=auto rd.route=198.51.100.0/24:192.0.2.1", false),
];

#[test]
fn the_default_of_the_real_generator_is_never_copied() {
    const GENERATOR: &str = "/usr/lib/NetworkManager/nm-initrd-generator";
    let test = "the_default_of_the_real_generator_is_never_copied";
    if !Path::new(GENERATOR).exists() {
        let reason = "nm-initrd-generator is not installed (apt-get install network-manager)";
        assert!(std::env::var("KILN_REQUIRE_ORACLES").as_deref() != Ok("1"), "{test}: {reason}");
        eprintln!("skipped: {test}: {reason}");
        return;
    }
    for (kargs, default) in DEFAULTS {
        // Once the machine's own program says what the default is, once the model of it.
        for with_program in [true, false] {
            let machine = Machine::new(kargs, &[]);
            let mut generator = Command::new(GENERATOR);
            generator.arg("-c").arg(machine.path(RUN)).arg("-i").arg(machine.path("run/NetworkManager/initrd"));
            // Initramfs images have no folder of persistent profiles; the machine that runs this test may.
            generator
                .arg("-p")
                .arg(machine.path("absent"))
                .arg("-r")
                .arg(machine.path("run/NetworkManager/conf.d"))
                .arg("--")
                .args(kargs.split(' '));
            assert!(generator.status().unwrap().success());
            if with_program {
                machine.link("usr/libexec/nm-initrd-generator", GENERATOR);
            }
            let done = propagate(&machine.root(), Policy::Force, &mut RealDisk).unwrap();
            let expected = if *default { "default" } else { "copied" };
            assert_eq!(done.handover.outcome, expected, "{kargs}, program: {with_program}");
            assert_eq!(machine.files(ETC).is_empty(), *default, "{kargs}");
        }
    }
}

#[test]
fn files_left_for_the_first_boot_replace_those_of_the_kernel_arguments() {
    let generated = ("run/NetworkManager/system-connections/default_connection.nmconnection", 0o600, DUMMY);
    let hidden = ("run/NetworkManager/system-connections/.kept", 0o600, "");
    let boot = ("boot-partition/coreos-firstboot-network/bond0.nmconnection", 0o644, BOND);
    let initrd = ("etc/coreos-firstboot-network/bond1.nmconnection", 0o600, BOND);
    let live = ("etc/coreos-live-initramfs", 0o644, "");
    let copied = |name: &str, mode| (format!("{RUN}/{name}.nmconnection"), mode, BOND.to_owned());
    for (files, kargs, expected) in [
        // The boot partition is asked first, the initramfs where it has nothing; both keep modes.
        (vec![generated, boot, initrd], "", vec![copied("bond0", 0o644)]),
        (vec![generated, initrd], "", vec![copied("bond1", 0o600)]),
        // Live images and machines with their root on iSCSI have no boot partition to ask.
        (vec![generated, boot, initrd, live], "", vec![copied("bond1", 0o600)]),
        (vec![generated, boot, initrd], "rd.iscsi.firmware=1", vec![copied("bond1", 0o600)]),
        (vec![generated], "", vec![(generated.0.to_owned(), 0o600, DUMMY.to_owned())]),
        (vec![hidden, boot], "", vec![(hidden.0.to_owned(), 0o600, String::new()), copied("bond0", 0o644)]),
    ] {
        let machine = Machine::new(kargs, &files);
        copy_network(&machine.root(), None).unwrap();
        assert_eq!(machine.files(RUN), expected, "{files:?} {kargs}");
    }
}

#[test]
fn what_cp_cannot_copy_fails_and_says_why() {
    let generated = ("run/NetworkManager/system-connections/default_connection.nmconnection", 0o600, DUMMY);
    let file = ("boot-partition/coreos-firstboot-network/bond0.nmconnection", 0o600, BOND);
    let inner = ("boot-partition/coreos-firstboot-network/old/bond0.nmconnection", 0o600, BOND);
    let hidden = ("boot-partition/coreos-firstboot-network/.bond0.nmconnection", 0o600, BOND);
    let machine = Machine::new("", &[generated, file, inner]);
    let error = copy_network(&machine.root(), None).unwrap_err().to_string();
    assert!(error.contains("coreos-firstboot-network/old` is a folder"), "{error}");
    assert_eq!(machine.files(RUN), [(format!("{RUN}/bond0.nmconnection"), 0o600, BOND.to_owned())]);
    let machine = Machine::new("", &[generated, hidden]);
    let error = copy_network(&machine.root(), None).unwrap_err().to_string();
    assert!(error.contains("has only hidden files"), "{error}");
    assert_eq!(machine.files(RUN), []);
}

#[test]
fn labels_are_set_with_the_programs_of_the_initramfs() {
    use std::os::unix::fs::PermissionsExt as _;
    let config = ("sysroot/etc/selinux/config", 0o644, "SELINUX=enforcing\nSELINUXTYPE=targeted\n");
    let script = "#!/bin/sh\necho \"$@\" > \"${0%/*}/called\"; [ \"$1\" != -F ] || cat >> \"${0%/*}/called\"\n";
    for (program, contains) in [
        ("usr/sbin/coreos-relabel", "/etc/NetworkManager/system-connections/bond0.nmconnection"),
        ("usr/sbin/setfiles", "-r"),
    ] {
        let machine = Machine::new("", &[BOND_FILE, config, (program, 0o755, script)]);
        propagate(&machine.root(), Policy::Stock, &mut RealDisk).unwrap();
        let called = std::fs::read_to_string(machine.path("usr/sbin/called")).unwrap();
        assert!(called.contains(contains) && called.contains("bond0.nmconnection"), "{called}");
        let mode = std::fs::metadata(machine.path(program)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
    }
}
