//! A bond with a VLAN on a running machine, changed without a reboot: kernel, systemd and NetworkManager are the real ones.
//!
//! `kiln agent apply` takes the policies kubernetes-nmstate documents for what the host's own kernel lacks (bridge with its trunk
//! of VLANs, VLAN, VRF, bond); it makes a bond with a VLAN out of two bare NICs; a change that loses the way to its target is put
//! back; and neither a change that was for this boot only nor one that was being proved when the power went is there after the
//! next boot. `kiln agent update` brings files, units and profiles of a config into force: with a restart where a rule says so,
//! back when the restart fails, and through a reboot.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

#[path = "support/vm.rs"]
mod vm;

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kiln_testimage::{Disk, TempDir};
use serde_json::json;
use vm::trunk::Trunk;
use vm::{Bed, KERNEL_ARGUMENTS, Vm};

const LONGEST_BOOT: Duration = Duration::from_secs(900);
const UNITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");

/// A bond of both NICs with a VLAN on it that has these addresses.
fn network(vlan: u16, addresses: &[&str]) -> String {
    let addresses: Vec<String> = addresses.iter().map(|it| format!("{{ip: {it}, prefix-length: 24}}")).collect();
    format!(
        "interfaces:
- name: bond0
  type: bond
  state: up
  link-aggregation: {{mode: active-backup, options: {{miimon: 100}}, port: [eno2, eno3]}}
- name: bond0.110
  type: vlan
  state: up
  vlan: {{base-iface: bond0, id: {vlan}}}
  ipv4: {{enabled: true, dhcp: false, address: [{}]}}
",
        addresses.join(", ")
    )
}

/// Shapes kubernetes-nmstate documents, as policies: name, interfaces, what shows them, what is to be absent again.
const SHAPES: [(&str, &str, &str, &str); 4] = [
    (
        "bridge",
        "- name: br1
      type: linux-bridge
      state: up
      ipv4: {enabled: true, dhcp: false, address: [{ip: 192.0.2.4, prefix-length: 24}]}
      bridge: {options: {stp: {enabled: false}}, port: [{name: eno2}]}",
        "ip -d link show br1 | grep 'vlan_filtering 1' && bridge -compressvlans vlan show dev eno2 | grep 2-4094 && ip -o -4 addr show br1 | grep 192.0.2.4/24",
        "- {name: br1, type: linux-bridge, state: absent}",
    ),
    (
        "vlan",
        "- {name: eno2.102, type: vlan, state: up, vlan: {base-iface: eno2, id: 102}, ipv4: {enabled: true, dhcp: false, address: [{ip: 192.0.2.2, prefix-length: 24}]}}",
        "ip -d link show eno2.102 | grep 'vlan protocol 802.1Q id 102' && ip -o -4 addr show eno2.102 | grep 192.0.2.2/24",
        "- {name: eno2.102, type: vlan, state: absent}",
    ),
    (
        "vrf",
        "- {name: vrf0, type: vrf, state: up, vrf: {port: [eno3], route-table-id: 100}}
    - {name: eno3, type: ethernet, state: up, ipv4: {enabled: true, dhcp: false, address: [{ip: 192.0.2.251, prefix-length: 24}]}}",
        "ip -d link show eno3 | grep 'vrf_slave table 100' && ip route show table 100 | grep '192.0.2.0/24 dev eno3'",
        "- {name: vrf0, type: vrf, state: absent}",
    ),
    (
        "bond",
        "- name: bond0
      type: bond
      state: up
      ipv4: {enabled: true, dhcp: false, address: [{ip: 192.0.2.3, prefix-length: 24}]}
      link-aggregation: {mode: active-backup, options: {miimon: '140'}, port: [eno2, eno3]}",
        "grep -c 'Slave Interface' /proc/net/bonding/bond0 | grep 2 && grep 'MII Polling Interval (ms): 140' /proc/net/bonding/bond0",
        "- {name: bond0, type: bond, state: absent}",
    ),
];

fn policy(name: &str, interfaces: &str) -> String {
    format!(
        "apiVersion: nmstate.io/v1\nkind: NodeNetworkConfigurationPolicy\nmetadata: {{name: {name}}}\nspec:\n  desiredState:\n    interfaces:\n    {interfaces}\n"
    )
}

/// A service that runs only with a good file, and what a change of either takes.
const UNIT: &str = "[Service]\nExecStartPre=/bin/grep -qv bad /etc/app.conf\nExecStart=/bin/sh -c 'cp /etc/app.conf /run/app; exec sleep infinity'\n[Install]\nWantedBy=multi-user.target\n";
const RULES: &str = "files:
- {path: /etc/app.conf, actions: [{type: Restart, restart: {serviceName: app.service}}]}
units:
- {name: app.service, actions: [{type: DaemonReload}, {type: Restart, restart: {serviceName: app.service}}]}
";
const VLAN: &str = "[connection]\nid=storage\nuuid=a1000000-0000-4000-8000-000000000001\ntype=vlan\ninterface-name=storage\n\n[vlan]\nid=102\nparent=eno2\n\n[ipv4]\nmethod=manual\naddress1=192.0.2.7/24\n\n[ipv6]\nmethod=disabled\n";

/// A config with this text in the file of the service, a VLAN, and perhaps a file that has no rule.
fn config(text: &str, more: bool) -> String {
    let file = |path: &str, mode: u32, text: &str| {
        let escaped: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
        json!({"path": path, "mode": mode, "overwrite": true, "contents": {"source": format!("data:,{escaped}")}})
    };
    let mut files = vec![
        file("/etc/app.conf", 0o644, text),
        file("/etc/NetworkManager/system-connections/storage.nmconnection", 0o600, VLAN),
    ];
    files.extend(more.then(|| file("/etc/other", 0o600, "more\n")));
    json!({"ignition": {"version": "3.2.0"}, "storage": {"files": files},
        "systemd": {"units": [{"name": "app.service", "enabled": true, "contents": UNIT}]}})
    .to_string()
}

/// A disk with the program and its documents, for the machine to mount.
fn write_tools(folder: &TempDir, documents: &[(String, String)]) -> [String; 4] {
    let tools = folder.join("tools");
    std::fs::create_dir_all(&tools).unwrap();
    let strip = Command::new("strip").arg(env!("CARGO_BIN_EXE_kiln")).arg("-o").arg(tools.join("kiln")).status();
    // What debuggers need is four fifths of it; without strip(1) the machine reads them in vain.
    if !strip.is_ok_and(|status| status.success()) {
        std::fs::copy(env!("CARGO_BIN_EXE_kiln"), tools.join("kiln")).unwrap();
    }
    std::fs::copy(Path::new(UNITS).join("kiln-agent-recover.service"), tools.join("kiln-agent-recover.service"))
        .unwrap();
    for (name, text) in documents {
        std::fs::write(tools.join(name), text).unwrap();
    }
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-L", "tools", "-d"])
        .arg(&tools)
        .arg(folder.join("tools.ext4"))
        .arg("400M")
        .status();
    assert!(made.unwrap().success());
    [
        "-drive".to_owned(),
        format!("file={},if=none,id=tools,format=raw,readonly=on", folder.join("tools.ext4").display()),
        "-device".to_owned(),
        "virtio-blk-pci,drive=tools".to_owned(),
    ]
}

/// A disk of the test bed's root.
fn write_disk(bed: &Bed, folder: &TempDir) {
    let root_mebibytes = std::fs::metadata(&bed.root).unwrap().len() >> 20;
    let layout = Disk { root: Some(bed.root.clone()), root_mebibytes, ..Disk::default() };
    layout.write(&folder.join("disk"));
}

const INSTALL: &str = "mkdir -p /tools && mount -o ro LABEL=tools /tools && cp /tools/kiln /usr/local/bin/kiln && \
    cp /tools/kiln-agent-recover.service /etc/systemd/system/ && systemctl enable kiln-agent-recover.service && sync";

/// What must be as it was: links, addresses, and the bytes of every profile. Not the state of a link: the kernel says UNKNOWN
/// of one that just came up, and UP when it next looks after its links.
fn snapshot(vm: &Vm) -> String {
    vm.ask(
        "ip -brief link | awk '{print $1}' | sort; ip -brief -4 address | tr -s ' ' | cut -d ' ' -f 1,3- | sort; \
        cat /proc/net/vlan/config 2>/dev/null | tail -n +3; sha256sum /etc/NetworkManager/system-connections/*",
    )
}

#[test]
fn a_bond_with_a_vlan_is_made_put_back_and_survives_a_power_cut_in_between() {
    let name = "a_bond_with_a_vlan_is_made_put_back_and_survives_a_power_cut_in_between";
    let Some(bed) = Bed::find(name) else { return };
    let folder = TempDir::new("day2-vm");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let mut documents: Vec<(String, String)> = [
        ("first.yaml", network(110, &["10.0.11.21"])),
        ("lost.yaml", network(111, &["10.0.11.21"])),
        ("second.yaml", network(110, &["10.0.11.21", "10.0.11.22"])),
        ("runtime.yaml", "interfaces:\n- {name: bond0.112, type: vlan, state: up, vlan: {base-iface: bond0, id: 112}, ipv4: {enabled: true, dhcp: false, address: [{ip: 192.0.2.112, prefix-length: 24}]}}\n".to_owned()),
        ("probe", format!("tcp:10.0.11.1:{port}")),
    ]
    .map(|(name, text)| (name.to_owned(), text))
    .into();
    for (name, interfaces, _, absent) in SHAPES {
        documents.push((format!("{name}.yaml"), policy(name, interfaces)));
        documents.push((format!("no-{name}.yaml"), policy(name, absent)));
    }
    let tools = write_tools(&folder, &documents);
    write_disk(&bed, &folder);
    let trunk = Trunk::start(folder.path(), ["52:54:00:00:07:02", "52:54:00:00:07:03"], port);
    let boot = || {
        let vm = Vm::boot_with(&bed, &folder.join("disk"), KERNEL_ARGUMENTS, &trunk, folder.path(), &tools);
        vm.wait_for_real_root(LONGEST_BOOT);
        vm.ask("nm-online -s -q -t 120");
        vm
    };

    let vm = boot();
    vm.ask(INSTALL);
    let apply = |vm: &Vm, file: &str, more: &str| {
        vm.ask(&format!("kiln agent apply /tools/{file} --probe $(cat /tools/probe) {more} 2>&1; echo code $?"))
    };
    for (name, _, check, _) in SHAPES {
        let said = vm.ask(&format!("kiln agent apply /tools/{name}.yaml --soak 100ms 2>&1; echo code $?"));
        assert!(said.contains("code 0"), "{name}: {said}\n{}", vm.ask("journalctl -b -u NetworkManager | tail -n 40"));
        let shown = vm.ask(&format!("({check}) 2>&1; echo code $?"));
        assert!(shown.contains("code 0"), "{name}: {shown}\n{}", vm.ask("ip -d address"));
        let said = vm.ask(&format!("kiln agent apply /tools/no-{name}.yaml --soak 100ms 2>&1; echo code $?"));
        assert!(said.contains("code 0"), "{name}: {said}");
    }
    let said = apply(&vm, "first.yaml", "");
    assert!(said.contains("code 0"), "{said}\n{}", vm.ask("journalctl -b -u NetworkManager | tail -n 40"));
    let before = snapshot(&vm);
    assert!(before.contains("10.0.11.21/24"), "{before}");
    let again = apply(&vm, "first.yaml", "");
    assert!(again.contains("code 0"), "nothing to change: {again}");

    // Another VLAN: the target is gone, and the old one comes back.
    let passed = trunk.passed.load(Ordering::Relaxed);
    let said = apply(&vm, "lost.yaml", "--timeout 5s");
    assert!(said.contains("code 1") && said.contains("TCP 10.0.11.1"), "{said}");
    assert_eq!(snapshot(&vm), before, "{said}");
    assert!(trunk.passed.load(Ordering::Relaxed) > passed, "the probe went over the VLAN before the change");

    // What is for this boot only is not there after the next one, which is compared with `before`.
    let said = apply(&vm, "runtime.yaml", "--runtime --soak 100ms");
    assert!(said.contains("code 0"), "{said}");
    assert!(vm.ask("ip -o -4 address show bond0.112").contains("192.0.2.112/24"), "{said}");

    // The power goes between try and commit.
    vm.ask("(kiln agent apply /tools/second.yaml --probe $(cat /tools/probe) --soak 900s --checkpoint 1000s > /tmp/said 2>&1 &)");
    let deadline = Instant::now() + Duration::from_secs(300);
    while !vm.ask("ip -4 address show bond0.110").contains("10.0.11.22") {
        assert!(Instant::now() < deadline, "{}", vm.ask("cat /tmp/said"));
    }
    vm.cut_power();
    let vm = boot();
    let recovered = vm.ask("systemctl is-active kiln-agent-recover.service; journalctl -b -u kiln-agent-recover.service -o cat; ls /var/lib/kiln/agent");
    assert!(recovered.contains("put back"), "{recovered}");
    let deadline = Instant::now() + Duration::from_secs(120);
    while snapshot(&vm) != before {
        assert!(Instant::now() < deadline, "{}\n--- not\n{before}\n{recovered}", snapshot(&vm));
    }
    vm.end();
}

#[test]
fn files_and_units_of_a_config_come_into_force_or_go_back_and_a_reboot_is_verified() {
    let name = "files_and_units_of_a_config_come_into_force_or_go_back_and_a_reboot_is_verified";
    let Some(bed) = Bed::find(name) else { return };
    let folder = TempDir::new("day2-vm-machine");
    let documents = [
        ("one.ign", config("one\n", false)),
        ("two.ign", config("two\n", false)),
        ("bad.ign", config("bad\n", false)),
        ("more.ign", config("two\n", true)),
        ("rules.yaml", RULES.to_owned()),
    ];
    let tools = write_tools(&folder, &documents.map(|(name, text)| (name.to_owned(), text)));
    write_disk(&bed, &folder);
    let trunk = Trunk::start(folder.path(), ["52:54:00:00:08:02", "52:54:00:00:08:03"], 1);
    let boot = || {
        let vm = Vm::boot_with(&bed, &folder.join("disk"), KERNEL_ARGUMENTS, &trunk, folder.path(), &tools);
        vm.wait_for_real_root(LONGEST_BOOT);
        vm.ask("nm-online -s -q -t 120");
        vm
    };
    let update = |vm: &Vm, file: &str| {
        vm.ask(&format!("kiln agent update /tools/{file} --rules /tools/rules.yaml --soak 100ms 2>&1; echo code $?"))
    };
    let seen = |vm: &Vm| {
        vm.ask(
            "cat /etc/app.conf /run/app; systemctl is-enabled app.service; systemctl is-active app.service; \
            ip -o -4 address show storage | grep -o 192.0.2.7/24; cat /etc/other; ls /var/lib/kiln/agent",
        )
    };
    let settled = |text: &str| format!("{text}\n{text}\nenabled\nactive\n192.0.2.7/24\n");

    let vm = boot();
    vm.ask(INSTALL);
    let said = update(&vm, "one.ign");
    assert!(said.contains("code 0"), "{said}\n{}", vm.ask("journalctl -b | tail -n 40"));
    assert!(seen(&vm).starts_with(&settled("one")), "{said}\n{}", seen(&vm));
    let said = update(&vm, "two.ign");
    assert!(said.contains("code 0") && said.contains("/etc/app.conf changes"), "{said}");
    assert!(seen(&vm).starts_with(&settled("two")), "{said}\n{}", seen(&vm));
    let before = seen(&vm);

    let said = update(&vm, "bad.ign");
    assert!(said.contains("code 1") && said.contains("app.service"), "{said}");
    assert_eq!(seen(&vm), before, "{said}");

    // What has no rule takes a reboot, and nobody reboots without being told to.
    let said = update(&vm, "more.ign");
    assert!(said.contains("code 1") && said.contains("--reboot"), "{said}");
    assert_eq!(seen(&vm), before, "{said}");
    vm.ask(
        "(kiln agent update /tools/more.ign --rules /tools/rules.yaml --soak 100ms --reboot > /var/tmp/said 2>&1 &)",
    );
    vm.wait_for_end();

    let vm = boot();
    vm.ask("mkdir -p /tools && mount -o ro LABEL=tools /tools");
    let said = update(&vm, "more.ign");
    assert!(said.contains("code 0"), "{said}\n{}", vm.ask("cat /var/tmp/said"));
    let after = seen(&vm);
    assert!(after.starts_with(&format!("{}more\n", settled("two"))), "{said}\n{after}");
    assert!(!after.contains("machine-journal"), "{after}");
    vm.end();
}
