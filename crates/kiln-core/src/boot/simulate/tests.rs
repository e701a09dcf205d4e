//! The decision table of a stock first boot, one row per observed behaviour of the real scripts.

use super::*;

const DUMMY: &str = "[connection]\nid=dummy0\ntype=dummy\nautoconnect=false\ninterface-name=dummy0\n";
const BOND: &str =
    "[connection]\nid=bond0\ntype=bond\ninterface-name=bond0\n\n[ipv4]\nmethod=manual\naddress1=192.0.2.7/24\n";

fn file(name: &str, mode: u32, text: &str) -> NetworkFile {
    NetworkFile { name: name.to_owned(), mode, content: Content::Bytes(text.as_bytes().to_vec()) }
}

fn boot(kargs: &str, copied: &[NetworkFile], connections: &[NetworkFile]) -> FirstBoot {
    FirstBoot {
        kargs: Kargs::parse(kargs),
        copied_network: copied.to_vec(),
        written_to: CopyLayout::Boot,
        read_from: CopyLayout::Boot,
        real_root: RealRoot { system_connections: connections.to_vec(), ..RealRoot::default() },
    }
}

fn files(phase: &Phase) -> Vec<(&str, u32, bool)> {
    phase.profiles.iter().map(|profile| (profile.name.as_str(), profile.mode, profile.not_loaded.is_none())).collect()
}

#[test]
fn a_file_networkmanager_refuses_still_stops_propagation() {
    let copied = [file("bond0.nmconnection", 0o600, BOND)];
    let boot = boot("", &copied, &[file("dummy0.nmconnection", 0o644, DUMMY)]);
    let prediction = simulate(&boot);
    let by = vec!["/etc/NetworkManager/system-connections/dummy0.nmconnection".to_owned()];
    assert_eq!(prediction.propagation, Propagation::Blocked { by });
    assert_eq!(files(&prediction.real_root), [("dummy0.nmconnection", 0o644, false)]);
    assert_eq!(prediction.lost, ["bond0.nmconnection"]);
    let composed = compose(&prediction.declared(), &boot.real_root.system_connections);
    let composed: Vec<&str> = composed.files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(composed, ["bond0.nmconnection"]);
}

#[test]
fn a_forced_copy_keeps_both_files() {
    let copied = [file("bond0.nmconnection", 0o600, BOND)];
    let own = [file("dummy0.nmconnection", 0o600, DUMMY)];
    let prediction = simulate(&boot("coreos.force_persist_ip", &copied, &own));
    let both = [("bond0.nmconnection", 0o600, true), ("dummy0.nmconnection", 0o600, true)];
    assert_eq!(files(&prediction.real_root), both);
    assert_eq!(prediction.lost, Vec::<String>::new());
}

#[test]
fn a_forced_copy_over_a_readable_file_is_not_loaded_either() {
    let copied = [file("bond0.nmconnection", 0o600, BOND)];
    let own = [file("bond0.nmconnection", 0o644, DUMMY)];
    let prediction = simulate(&boot("coreos.force_persist_ip=1", &copied, &own));
    assert_eq!(files(&prediction.real_root), [("bond0.nmconnection", 0o644, false)]);
    assert_eq!(prediction.lost, ["bond0.nmconnection"]);
}

#[test]
fn the_decision_follows_the_table() {
    let route = [file("route-bond0", 0o644, "192.0.2.0/24 via 192.0.2.1\n")];
    let readme = [file("readme-ifcfg-rh.txt", 0o644, "")];
    let none: &[NetworkFile] = &[];
    for (kargs, scripts, expected) in [
        ("ip=auto", none, "default"),
        ("", none, "default"),
        ("ip=auto rd.neednet=1", none, "default"),
        ("ip=auto coreos.force_persist_ip", none, "default"),
        ("ip=dhcp", none, "copied"),
        ("ip=eno1:dhcp", none, "copied"),
        ("ip=dhcp", &route, "blocked"),
        ("ip=dhcp", &readme, "copied"),
        ("ip=dhcp coreos.force_persist_ip", &route, "forced"),
        ("ip=dhcp coreos.no_persist_ip", none, "forbidden"),
        ("ip=dhcp coreos.no_persist_ip=0", none, "copied"),
        ("ip=dhcp coreos.no_persist_ip coreos.force_persist_ip", &route, "forbidden"),
    ] {
        let mut boot = boot(kargs, &[], &[]);
        boot.real_root.network_scripts = scripts.to_vec();
        assert_eq!(simulate(&boot).propagation.name(), expected, "{kargs} with {scripts:?}");
    }
}

#[test]
fn the_hostname_of_ignition_is_never_overwritten() {
    let kargs = "ip=192.0.2.7::192.0.2.1:255.255.255.0:from-kargs:eno1:none coreos.force_persist_ip";
    let mut boot = boot(kargs, &[], &[]);
    assert_eq!(simulate(&boot).hostname.as_deref(), Some("from-kargs"));
    boot.real_root.hostname = Some("from-ignition".to_owned());
    assert_eq!(simulate(&boot).hostname.as_deref(), Some("from-ignition"));
}

#[test]
fn copied_profiles_replace_those_of_the_kernel_arguments() {
    let copied = [file("bond0.nmconnection", 0o600, BOND)];
    let prediction = simulate(&boot("ip=eno1:dhcp", &copied, &[]));
    assert_eq!(files(&prediction.initramfs), [("bond0.nmconnection", 0o600, true)]);
    assert_eq!(
        prediction.initramfs.reasons,
        [
            "1 file is copied from /boot/coreos-firstboot-network",
            "the profiles of the kernel arguments are deleted first: eno1.nmconnection"
        ]
    );
}

#[test]
fn an_image_that_looks_elsewhere_loses_the_copied_network() {
    let mut boot = boot("", &[file("bond0.nmconnection", 0o600, BOND)], &[]);
    boot.written_to = CopyLayout::Initrd;
    let prediction = simulate(&boot);
    assert_eq!(files(&prediction.initramfs), [("default_connection.nmconnection", 0o600, true)]);
    assert_eq!(
        prediction.initramfs.reasons,
        ["the files are in /etc/coreos-firstboot-network in the initrd, but this image looks in \
          /boot/coreos-firstboot-network: they are never read"]
    );
}

#[test]
fn an_iscsi_root_reads_only_the_initrd_layout() {
    let mut boot = boot("rd.iscsi.firmware=1", &[file("bond0.nmconnection", 0o600, BOND)], &[]);
    assert_eq!(files(&simulate(&boot).initramfs), [("default_connection.nmconnection", 0o600, true)]);
    (boot.written_to, boot.read_from) = (CopyLayout::Initrd, CopyLayout::Initrd);
    assert_eq!(files(&simulate(&boot).initramfs), [("bond0.nmconnection", 0o600, true)]);
}

#[test]
fn a_copied_folder_or_only_hidden_files_stop_the_boot() {
    let folder = NetworkFile { name: "conf.d".to_owned(), mode: 0o755, content: Content::Directory };
    assert_eq!(
        simulate(&boot("", &[folder], &[])).initramfs.reasons,
        ["`conf.d` is a folder, which the copy cannot handle: the boot stops here"]
    );
    assert_eq!(
        simulate(&boot("", &[file(".hidden", 0o600, BOND)], &[])).initramfs.reasons,
        ["only hidden files are there, which count but cannot be copied: the boot stops here"]
    );
}

#[test]
fn files_without_ending_are_loaded_from_etc_but_not_from_run() {
    let prediction = simulate(&boot("", &[file("bond0", 0o600, BOND)], &[]));
    assert_eq!(files(&prediction.initramfs), [("bond0", 0o600, false)]);
    assert_eq!(files(&prediction.real_root), [("bond0", 0o600, true)]);
}

#[test]
fn names_given_with_ifname_are_kept_unless_persisting_is_switched_off() {
    let kargs = "ip=net0:dhcp ifname=net0:52:54:00:00:00:01";
    let kept = simulate(&boot(kargs, &[], &[]));
    let expected = "the interface names of `ifname=` are kept: 80-ifname.rules is copied";
    assert_eq!(kept.real_root.reasons.last().map(String::as_str), Some(expected));
    let lost = simulate(&boot(&format!("{kargs} coreos.no_persist_ip"), &[], &[]));
    let expected = "the interface names of `ifname=` are not kept, for the same reason";
    assert_eq!(lost.real_root.reasons.last().map(String::as_str), Some(expected));
}
