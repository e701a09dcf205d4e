//! `kiln ignition render --overlay` against the real NetworkManager: what is written at run time is in memory, what the machine
//! config owns stays as it was. Mounted by hand with the options of the unit, because there is no systemd in a namespace.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

#[path = "support/networkmanager.rs"]
mod networkmanager;

use std::process::Command;

use kiln_core::ignition::data_url::decode;
use kiln_core::keyfile::{ConnectionFile, Keyfile};
use networkmanager::Machine;
use serde_json::Value;

#[test]
fn a_reboot_forgets_what_was_written_at_run_time() {
    let output = Command::new(env!("CARGO_BIN_EXE_kiln"))
        .args(["ignition", "render", "--overlay", "--pool", "edge", "-o", "json"])
        .output()
        .unwrap();
    let machine_config: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(machine_config["metadata"]["labels"]["machineconfiguration.openshift.io/role"], "edge");
    let config = &machine_config["spec"]["config"];
    let file = |path: &str| {
        let files = config["storage"]["files"].as_array().unwrap();
        let file = files.iter().find(|file| file["path"].as_str().unwrap().starts_with(path)).unwrap();
        String::from_utf8(decode(file["contents"]["source"].as_str().unwrap()).unwrap()).unwrap()
    };
    let unit = config["systemd"]["units"][0]["contents"].as_str().unwrap();
    let setting = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    let folders: String = file("/etc/tmpfiles.d/")
        .lines()
        .map(|line| format!("mkdir -p -m {} {}\n", line.split(' ').nth(2).unwrap(), line.split(' ').nth(1).unwrap()))
        .collect();
    let (options, merged) = (setting("Options="), setting("Where="));
    let script = format!(
        "{folders}
        mount -t overlay overlay -o {options} {merged}
        printf '{}' > /etc/NetworkManager/conf.d/overlay.conf
        # NetworkManager reads where its profiles are when it starts.
        kill $(cat /run/NetworkManager/NetworkManager.pid 2>/dev/null || pgrep -x NetworkManager); sleep 1
        NetworkManager > /dev/null 2>&1; sleep 1
        nmcli -g NAME connection show | sort
        nmcli connection add type bridge con-name br9 ifname br9 autoconnect no > /dev/null
        nmcli connection modify owned ipv4.dns 192.0.2.53
        echo disk: $(ls /etc/NetworkManager/system-connections) $(grep -c 192.0.2.53 /etc/NetworkManager/system-connections/owned.nmconnection)
        echo merged: $(ls {merged}) $(grep -c 192.0.2.53 {merged}/owned.nmconnection)",
        file("/etc/NetworkManager/conf.d/").replace('\n', "\\n"),
    );
    let text = "[connection]\nid=owned\nuuid=20000000-0000-4000-8000-000000000000\ntype=ethernet\ninterface-name=eth0\n[ipv4]\nmethod=manual\naddress1=192.0.2.10/24\n";
    let owned = ConnectionFile::new("owned.nmconnection", Keyfile::parse(text).unwrap());
    let machine = Machine { nics: &[("eth0", "52:54:00:00:00:01")], files: &[owned], last_active: &[] };
    let Some(session) = machine.run("a_reboot_forgets_what_was_written_at_run_time", &script) else { return };
    let lines: Vec<_> = session.output.lines().filter(|line| *line != "lo").collect();
    let expected = ["owned", "disk: owned.nmconnection 0", "merged: br9.nmconnection owned.nmconnection 1"];
    assert_eq!(lines, expected, "{}", session.log);
}
