//! What the core predicts of the stock scripts is what `propagate` leaves: files, contents, modes, hostname.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a failed test")]

use kiln_core::boot::folder::{Content, NetworkFile};
use kiln_core::boot::handover::Policy;
use kiln_core::boot::kargs::Kargs;
use kiln_core::boot::teardown::{RealRoot, tear_down};
use kiln_firstboot::disk::RealDisk;
use kiln_firstboot::propagate::propagate;
use proptest::prelude::*;

#[path = "support/machine.rs"]
mod machine;

use machine::{BOND, DUMMY, Machine};

const ETC: &str = "sysroot/etc/NetworkManager/system-connections";
const NAMES: [&str; 6] =
    ["bond0.nmconnection", "eth0.nmconnection", "lo.nmconnection", ".hidden", "route-bond0", "readme-ifcfg-rh.txt"];
const MODES: [u32; 4] = [0o600, 0o644, 0o400, 0o640];
const TEXTS: [&str; 5] = [BOND, DUMMY, "", "no keyfile", "[connection]\nid=a\ntype=ethernet\n"];
const KARGS: [&str; 6] = [
    "",
    "coreos.force_persist_ip",
    "coreos.no_persist_ip",
    "coreos.force_persist_ip=1 coreos.no_persist_ip=0",
    "coreos.force_persist_ip coreos.no_persist_ip",
    "ip=dhcp coreos.force_persist_ip=0",
];

fn folder() -> impl Strategy<Value = Vec<NetworkFile>> {
    let entry = (prop::sample::select(&MODES[..]), prop::option::weighted(0.95, prop::sample::select(&TEXTS[..])));
    prop::collection::btree_map(prop::sample::select(&NAMES[..]), entry, 0..4).prop_map(|entries| {
        let file = |(name, (mode, text)): (&str, (u32, Option<&str>))| NetworkFile {
            name: name.to_owned(),
            mode: if text.is_some() { mode } else { 0o755 },
            content: text.map_or(Content::Directory, |text| Content::Bytes(text.as_bytes().to_vec())),
        };
        entries.into_iter().map(file).collect()
    })
}

fn put(machine: &Machine, folder: &str, files: &[NetworkFile]) {
    for file in files {
        let path = format!("{folder}/{}", file.name);
        match &file.content {
            Content::Bytes(bytes) => machine.put(&path, file.mode, std::str::from_utf8(bytes).unwrap()),
            _ => std::fs::create_dir_all(machine.path(&path)).unwrap(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn propagate_does_what_is_predicted(
        kargs in prop::sample::select(&KARGS[..]),
        initramfs in folder(),
        real_root in folder(),
        scripts in folder(),
        hostname in prop::option::of(Just("worker-0")),
        own_hostname in prop::option::of(Just("own")),
    ) {
        let machine = Machine::in_memory(kargs, &[]);
        put(&machine, "run/NetworkManager/system-connections", &initramfs);
        put(&machine, ETC, &real_root);
        put(&machine, "sysroot/etc/sysconfig/network-scripts", &scripts);
        hostname.iter().for_each(|name| machine.put("run/NetworkManager/initrd/hostname", 0o644, &format!("{name}\n")));
        own_hostname.iter().for_each(|name| machine.put("sysroot/etc/hostname", 0o644, &format!("{name}\n")));

        let own_hostname = own_hostname.map(str::to_owned);
        let root = RealRoot { system_connections: real_root, network_scripts: scripts, hostname: own_hostname };
        let predicted = tear_down(&Kargs::parse(kargs), &initramfs, hostname, &root);
        let done = propagate(&machine.root(), Policy::Stock, &mut RealDisk).unwrap();

        prop_assert_eq!(&done.handover.outcome, predicted.propagation.name());
        let mut expected: Vec<_> = predicted
            .system_connections
            .iter()
            .filter_map(|file| Some((format!("{ETC}/{}", file.name), file.mode, String::from_utf8(file.bytes()?).unwrap())))
            .collect();
        expected.sort();
        prop_assert_eq!(machine.files(ETC), expected);
        let hostname = machine.files("sysroot/etc/hostname").pop().map(|(_, _, text)| text.trim().to_owned());
        prop_assert_eq!(hostname, predicted.hostname);
    }
}
