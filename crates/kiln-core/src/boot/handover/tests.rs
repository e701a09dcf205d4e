//! Each policy on the same machine, and merging twice.

use super::*;
use crate::boot::folder::Content;

const BOND: &str =
    "[connection]\nid=bond0\ntype=bond\ninterface-name=bond0\n\n[ipv4]\nmethod=manual\naddress1=192.0.2.7/24\n";
const DUMMY: &str = "[connection]\nid=dummy0\ntype=dummy\nautoconnect=false\ninterface-name=dummy0\n";

fn file(name: &str, mode: u32, text: &str) -> NetworkFile {
    NetworkFile { name: name.to_owned(), mode, content: Content::Bytes(text.as_bytes().to_vec()) }
}

fn initramfs(kargs: &str, files: &[NetworkFile]) -> Initramfs {
    Initramfs { kargs: Kargs::parse(kargs), files: files.to_vec(), only_default: false, hostname: None }
}

fn real_root(files: &[NetworkFile]) -> RealRoot {
    RealRoot { system_connections: files.to_vec(), ..RealRoot::default() }
}

fn names(decision: &Decision) -> Vec<(&str, u32)> {
    decision.system_connections.iter().map(|file| (file.name.as_str(), file.mode)).collect()
}

#[test]
fn one_dummy_file_meets_three_policies() {
    let dummy = real_root(&[file("dummy0.nmconnection", 0o644, DUMMY)]);
    let boot = initramfs("", &[file("bond0.nmconnection", 0o600, BOND), file("lo.nmconnection", 0o600, DUMMY)]);
    let both = vec![("bond0.nmconnection", 0o600), ("dummy0.nmconnection", 0o644)];
    for (policy, outcome, expected) in [
        (Policy::Stock, "blocked", vec![("dummy0.nmconnection", 0o644)]),
        (Policy::Force, "forced", both.clone()),
        (Policy::Merge, "merged", both),
    ] {
        let decision = decide(policy, &boot, &dummy);
        assert_eq!((decision.handover.outcome.as_str(), names(&decision)), (outcome, expected), "{policy}");
        assert_eq!(decision.handover.policy.parse(), Ok(policy));
    }
}

#[test]
fn no_policy_beats_no_persist_ip_or_hands_the_default_over() {
    let boot = initramfs("coreos.no_persist_ip ifname=a:52:54:00:00:00:01", &[file("bond0.nmconnection", 0o600, BOND)]);
    let default = Initramfs { only_default: true, ..initramfs("", &boot.files) };
    for policy in [Policy::Stock, Policy::Force, Policy::Merge] {
        let decision = decide(policy, &boot, &RealRoot::default());
        assert_eq!((decision.handover.outcome.as_str(), decision.keeps_interface_names), ("forbidden", false));
        let decision = decide(policy, &default, &RealRoot::default());
        assert_eq!((decision.handover.outcome.as_str(), names(&decision)), ("default", vec![]));
    }
}

#[test]
fn a_merge_keeps_an_unusable_file_beside_a_usable_one_of_its_name() {
    let own = real_root(&[file("bond0.nmconnection", 0o644, DUMMY), file("notes", 0o600, "no keyfile")]);
    let decision = decide(Policy::Merge, &initramfs("", &[file("bond0.nmconnection", 0o600, BOND)]), &own);
    let expected = [("bond0-initramfs.nmconnection", 0o600), ("bond0.nmconnection", 0o644), ("notes", 0o600)];
    assert_eq!(names(&decision), expected);
    assert!(decision.handover.reasons.iter().any(|reason| reason.contains("bond0-initramfs")));
}

#[test]
fn a_merge_replaces_the_bridge_of_an_interface_that_is_a_bond() {
    let bridge = "[connection]\nid=br\ntype=bridge\ninterface-name=bond0\n";
    let own = real_root(&[file("br.nmconnection", 0o600, bridge)]);
    let decision = decide(Policy::Merge, &initramfs("", &[file("bond0.nmconnection", 0o600, BOND)]), &own);
    assert_eq!(decision.system_connections.len(), 1, "{:?}", decision.handover.reasons);
}

#[test]
fn merging_what_was_merged_changes_nothing() {
    let tweak =
        "[connection]\nid=routes\ninterface-name=bond0\n\n[ipv4]\nmethod=auto\nroute1=198.51.100.0/24,192.0.2.1\n";
    let any = "[connection]\nid=any\ntype=ethernet\n\n[ipv4]\nmethod=auto\n";
    let nic = "[connection]\nid=eth0\ntype=ethernet\ninterface-name=eth0\nautoconnect-priority=-100\n";
    let boot = initramfs("", &[file("bond0.nmconnection", 0o600, BOND), file("eth0.nmconnection", 0o600, nic)]);
    for own in [vec![], vec![file("a", 0o600, tweak)], vec![file("any", 0o600, any), file("dummy", 0o644, DUMMY)]] {
        let once = decide(Policy::Merge, &boot, &real_root(&own));
        let twice = decide(Policy::Merge, &boot, &real_root(&once.system_connections));
        let bytes = |decision: &Decision| -> Vec<_> {
            let files = decision.system_connections.iter();
            files.map(|file| (file.name.clone(), file.mode, file.bytes())).collect()
        };
        assert_eq!(bytes(&once), bytes(&twice));
    }
}
