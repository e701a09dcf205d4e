//! What the command lines of the field become. That the files are right to the byte is the oracle test's business.

use proptest::prelude::*;

use super::*;
use crate::keyfile::Keyfile;

fn dropped(line: &str) -> Vec<(Effect, String, Option<String>)> {
    let dropped = generate(&Kargs::parse(line)).dropped;
    dropped.into_iter().map(|dropped| (dropped.effect, dropped.reason, dropped.meant)).collect()
}

#[test]
fn ip_auto_becomes_the_default_profile() {
    let generated = generate(&Kargs::parse("ip=auto"));
    assert_eq!(generated.files.len(), 1);
    assert_eq!((generated.files[0].name.as_str(), generated.files[0].mode), ("default_connection.nmconnection", 0o600));
    let expected = "# Created by nm-initrd-generator\n\n[connection]\nid=Wired Connection\nuuid=UUID\ntype=ethernet\n\
        autoconnect-priority=-100\nautoconnect-retries=1\nmulti-connect=3\n\n[ethernet]\n\n[ipv4]\ndhcp-timeout=90\n\
        method=auto\nrequired-timeout=20000\n\n[ipv6]\ndhcp-timeout=90\nmethod=auto\n\n[proxy]\n\n[user]\n\
        org.freedesktop.NetworkManager.origin=nm-initrd-generator\n";
    let uuid = generated.files[0].keyfile.get("connection", "uuid").expect("a profile has a UUID").into_owned();
    assert_eq!(generated.files[0].keyfile.render(), expected.replace("UUID", &uuid));
    assert_eq!(generated.run_files[0].path, "/run/NetworkManager/conf.d/15-carrier-timeout.conf");
    assert_eq!(generated.dropped, []);
}

#[test]
fn ports_name_their_bond_by_its_uuid() {
    let files = generate(&Kargs::parse("bond=bond0:eno1,eno2:mode=802.3ad ip=bond0:dhcp")).files;
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["bond0.nmconnection", "eno1.nmconnection", "eno2.nmconnection"]);
    let bond = files[0].keyfile.get("connection", "uuid");
    assert_eq!(files[1].keyfile.get("connection", "master"), bond);
    assert_eq!(files[2].keyfile.get("connection", "master"), bond);
}

#[test]
fn the_last_valid_hostname_wins() {
    let line = "ip=::::one:eth0:dhcp ip=::::two:eth1:dhcp ip=::::bad_name:eth2:dhcp";
    assert_eq!(generate(&Kargs::parse(line)).hostname.as_deref(), Some("two"));
}

#[test]
fn coreos_tells_default_networking_from_asked_for_networking() {
    let mac = "BOOTIF=01-52-54-00-12-34-56";
    let cases = [
        ("ip=auto".to_owned(), true),
        ("ip=auto rd.neednet=1".to_owned(), true),
        ("rd.neednet=1".to_owned(), true),
        ("ip=on".to_owned(), true),
        ("ip=any".to_owned(), true),
        ("ip=dchp".to_owned(), true),
        ("ip=auto ifname=eno1:52:54:00:12:34:56".to_owned(), true),
        ("ip=auto rd.net.timeout.carrier=30".to_owned(), true),
        (format!("ip=auto {mac}"), true),
        (format!("ip=auto {mac} rd.bootif=0"), true),
        ("ip=dhcp".to_owned(), false),
        ("ip=dhcp,dhcp6".to_owned(), false),
        ("ip=eno1:dhcp".to_owned(), false),
        ("ip=auto nameserver=192.0.2.53".to_owned(), false),
        ("ip=auto rd.net.timeout.dhcp=30".to_owned(), false),
        ("ip=auto rd.peerdns=0".to_owned(), false),
        ("ip=auto rd.route=192.0.2.0/24:192.0.2.1".to_owned(), false),
        // Nothing at all is not the default either: the comparison is with one profile.
        ("quiet".to_owned(), false),
    ];
    for (line, expected) in cases {
        let kargs = Kargs::parse(&line);
        assert_eq!(is_default(&generate(&kargs).files, &kargs), expected, "{line}");
    }
}

#[test]
fn the_loopback_profile_does_not_make_networking_special() {
    let kargs = Kargs::parse("ip=auto");
    let mut files = generate(&kargs).files;
    files.push(ConnectionFile { name: "lo.nmconnection".to_owned(), mode: 0o600, keyfile: Keyfile::default() });
    assert!(is_default(&files, &kargs));
}

#[test]
fn what_is_dropped_or_bent_is_said_in_plain_words() {
    use Effect::*;
    let cases = [
        ("ip=dchp", Reinterpreted, "`dchp` is no method and counts as `auto`", Some("write `ip=dhcp`")),
        (
            "ip=eno1:dchp",
            Ignored,
            "`dchp` is no method, so `eno1` is taken for an IP address, which it is not",
            Some("write `ip=eno1:dhcp`"),
        ),
        (
            "ip=eno1",
            Reinterpreted,
            "`eno1` is no method and counts as `auto`",
            Some("for an interface write `ip=eno1:dhcp`"),
        ),
        (
            "ip=52:54:00:12:34:56:dhcp",
            Ignored,
            "`54` is no method, so `52` is taken for an IP address, which it is not",
            Some("write the MAC address with dashes: `ip=52-54-00-12-34-56:dhcp`"),
        ),
        (
            "ip=[2001:db8::5]/48:::::eno1:none",
            Reinterpreted,
            "`/48` behind the bracket is skipped",
            Some("write the prefix inside the brackets: `[2001:db8::5/48]`"),
        ),
        (
            "ip=10.0.0.5:::::eno1:none",
            Reinterpreted,
            "10.0.0.5 has no netmask and gets /8 by its old address class",
            Some("write the netmask in the fourth field"),
        ),
        (
            "bond=bond0:eno1:mode=actve-backup",
            PartlyIgnored,
            "bond option `mode` does not take `actve-backup`",
            Some("write `mode=active-backup`"),
        ),
        (
            "bond=bond0:eno1:arp_interval=100",
            ProfileLost,
            "profile `bond0` is not written: bond option `arp_interval` needs `arp_ip_target`",
            None,
        ),
        ("vlan=:eno1", Fatal, "the VLAN has no name", Some("write `vlan=NAME:PARENT`")),
        (
            "nameservers=192.0.2.53",
            Ignored,
            "nm-initrd-generator knows no argument called `nameservers`",
            Some("write `nameserver=192.0.2.53`"),
        ),
        ("nameserver=192.0.2.53", Ignored, "no profile has IPv4 switched on, and a name server alone makes none", None),
        (
            "\"ip=eno1:dhcp\"",
            Ignored,
            "nm-initrd-generator sees `\"ip`, quote and all",
            Some("leave out the quotes: nm-initrd-generator gets them as part of the argument"),
        ),
        (
            "ip=ibft",
            Firmware,
            "it takes its settings from the machine's firmware (iBFT, device tree), which only the machine knows",
            None,
        ),
    ];
    for (line, effect, reason, meant) in cases {
        assert_eq!(dropped(line), [(effect, reason.to_owned(), meant.map(str::to_owned))], "{line}");
    }
}

#[test]
fn arguments_of_other_programs_are_none_of_its_business() {
    let line = "root=UUID=x rw quiet console=ttyS0 ignition.platform.id=metal coreos.no_persist_ip ifname=a:52:54:00:12:34:56 \
        $ignition_firstboot ostree=/x biosdevname=0 ipv6.disable=1 ro boot=UUID=y rd.luks=0";
    assert_eq!(dropped(line), []);
}

#[test]
fn diagnostics_carry_code_message_and_repair() {
    let generated = generate(&Kargs::parse("ip=eno1:dchp"));
    let diagnostics = diagnose(&generated.dropped, None);
    assert_eq!(diagnostics.len(), 1);
    assert_eq!(diagnostics[0].code.to_string(), "KLN0101");
    assert_eq!(
        diagnostics[0].message,
        "kernel argument `ip=eno1:dchp` has no effect: `dchp` is no method, so `eno1` is taken for an IP address, which it is not"
    );
    assert_eq!(diagnostics[0].help.as_deref(), Some("write `ip=eno1:dhcp`"));
}

proptest! {
    #[test]
    fn no_line_makes_the_model_panic_and_every_file_reads_back(line in "[a-z0-9:=,.\\[\\]/;\" \\\\é-]{0,80}") {
        for line in [line.clone(), format!("ip={line}"), format!("bond=b0:a:{line}"), format!("vlan={line}"), format!("rd.znet=qeth,{line}")] {
            for file in generate(&Kargs::parse(&line)).files {
                prop_assert_eq!(Keyfile::parse(&file.keyfile.render()), Ok(file.keyfile));
            }
        }
    }
}
