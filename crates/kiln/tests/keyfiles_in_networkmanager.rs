//! Kiln's keyfiles before the real NetworkManager: it reads what was meant, and skips what Kiln says it skips.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

#[path = "support/networkmanager.rs"]
mod networkmanager;

use kiln_core::keyfile::{ConnectionFile, Keyfile};
use kiln_core::network::profile::{IpSettings, Profile, ignored_values};

fn ethernet(id: &str, interface: &str) -> Keyfile {
    let mut keyfile = Keyfile::default();
    keyfile.set("connection", "id", id);
    keyfile.set("connection", "type", "ethernet");
    keyfile.set("connection", "interface-name", interface);
    keyfile
}

#[test]
fn nasty_values_come_back_from_networkmanager() {
    let nasty = [
        " leading blank",
        "\tleading tab",
        "back\\slash",
        "semi;colon",
        "#hash",
        "quo\"te'",
        "a=b",
        "[x]",
        "trailing ",
        "ünïcödé ☃",
        "\\s",
        "tab\tinside",
        "percent%41",
    ];
    let files: Vec<_> = nasty
        .iter()
        .enumerate()
        .map(|(number, id)| {
            let mut keyfile = ethernet(id, &format!("eth{number}"));
            keyfile.set("connection", "stable-id", id);
            keyfile.set("ipv4", "method", "auto");
            keyfile.set_list("ipv4", "dns-search", ["one.example", "two.example"]);
            keyfile.set_list("connection", "permissions", Vec::<&str>::new());
            ConnectionFile::new(format!("{number}.nmconnection"), keyfile)
        })
        .collect();
    let Some(loaded) = networkmanager::load("nasty_values_come_back_from_networkmanager", &files) else { return };
    loaded.assert_clean(&files);
    for (number, id) in nasty.iter().enumerate() {
        let file = format!("{number}.nmconnection");
        assert_eq!(loaded.value(&file, "connection.id"), *id);
        assert_eq!(loaded.value(&file, "connection.stable-id"), *id);
        assert_eq!(loaded.value(&file, "ipv4.dns-search"), "one.example,two.example");
    }
}

#[test]
fn networkmanager_skips_exactly_the_files_kiln_says_it_skips() {
    let names = [
        ("good.nmconnection", 0o600),
        ("readable.nmconnection", 0o644),
        ("group.nmconnection", 0o640),
        ("read-only.nmconnection", 0o400),
        ("no-ending", 0o600),
        (".hidden.nmconnection", 0o600),
        ("a~", 0o600),
        ("a.backup", 0o600),
        ("a.rpmnew", 0o600),
        ("a.rpmsave", 0o600),
        ("a.bak", 0o600),
        ("a.123456", 0o600),
        ("a.pem", 0o600),
        ("a.der", 0o600),
        ("a.b-c_de", 0o600),
    ];
    let files: Vec<_> = names
        .iter()
        .map(|(name, mode)| ConnectionFile { name: (*name).to_owned(), mode: *mode, keyfile: ethernet(name, "eth0") })
        .collect();
    let Some(loaded) = networkmanager::load("networkmanager_skips_exactly_the_files_kiln_says_it_skips", &files) else {
        return;
    };
    let mut expected: Vec<_> =
        files.iter().filter(|file| file.ignored().is_none()).map(|file| file.name.as_str()).collect();
    expected.sort_unstable();
    assert_eq!(loaded.profiles.keys().collect::<Vec<_>>(), expected);
    assert_eq!(loaded.warnings.len(), 2, "{:#?}", loaded.warnings);
    for warning in loaded.warnings {
        assert!(warning.contains("are insecure"), "{warning}");
    }
}

/// Texts NetworkManager must refuse, and beside each a repaired one it must load.
const REFUSED_AND_REPAIRED: [(&str, &str); 13] = [
    ("[connection]\n", "[connection]\ntype=ethernet\n"),
    ("[connection]\ntype=ethernet\nuuid=x\n", "[connection]\ntype=ethernet\n"),
    ("[connection]\ntype=ethernet\ninterface-name=eth%d\n", "[connection]\ntype=ethernet\ninterface-name=eth0\n"),
    ("[connection]\ntype=ethernet\nmaster=b0\n", "[connection]\ntype=ethernet\nmaster=b0\nslave-type=bond\n"),
    ("[connection]\ntype=ethernet\nslave-type=bond\n", "[connection]\ntype=ethernet\n"),
    ("[connection]\ntype=bond\n[bond]\n", "[connection]\ntype=bond\ninterface-name=b0\n"),
    ("[connection]\ntype=vlan\n[vlan]\nid=5\n", "[connection]\ntype=vlan\n[vlan]\nid=5\nparent=eth0\n"),
    ("[connection]\ntype=ethernet\n[ipv4]\n", "[connection]\ntype=ethernet\n[ipv4]\nmethod=auto\n"),
    ("[connection]\ntype=ethernet\n[ipv4]\nmethod=static\n", "[connection]\ntype=ethernet\n[ipv6]\nmethod=ignore\n"),
    (
        "[connection]\ntype=ethernet\n[ipv4]\nmethod=manual\n",
        "[connection]\ntype=ethernet\n[ipv4]\nmethod=manual\naddress1=10.0.0.1/8\n",
    ),
    (
        "[connection]\ntype=ethernet\n[ipv4]\nmethod=disabled\naddress1=10.0.0.1/8\n",
        "[connection]\ntype=ethernet\n[ipv4]\nmethod=disabled\nroute1=10.0.0.0/8\n",
    ),
    (
        "[connection]\ntype=ethernet\n[ipv6]\nmethod=disabled\ndns=fd00::1;\n",
        "[connection]\ntype=macvlan\n[macvlan]\nparent=eth0\nmode=2\n",
    ),
    (
        "[connection]\ntype=ethernet\n[ipv4]\nmethod=auto\ngateway=10.0.0.1\n",
        "[connection]\ntype=ethernet\n[ipv4]\nmethod=auto\nnever-default=true\n",
    ),
];

#[test]
fn networkmanager_refuses_exactly_the_files_kiln_says_it_refuses() {
    let named = |kind: &str, number: usize, text: &str| {
        ConnectionFile::new(format!("{kind}-{number:02}.nmconnection"), Keyfile::parse(text).unwrap())
    };
    let files: Vec<_> = (0..)
        .zip(REFUSED_AND_REPAIRED)
        .flat_map(|(number, (refused, repaired))| {
            [named("refused", number, refused), named("repaired", number, repaired)]
        })
        .collect();
    for file in &files {
        assert_eq!(Profile::refusal(file).is_some(), file.name.starts_with("refused"), "{file:?}");
    }
    let test = "networkmanager_refuses_exactly_the_files_kiln_says_it_refuses";
    let Some(loaded) = networkmanager::load(test, &files) else { return };
    let expected: Vec<_> =
        (0..REFUSED_AND_REPAIRED.len()).map(|number| format!("repaired-{number:02}.nmconnection")).collect();
    assert_eq!(loaded.profiles.keys().cloned().collect::<Vec<_>>(), expected, "{:#?}", loaded.warnings);
    for file in files.iter().filter(|file| file.name.starts_with("repaired")) {
        let profile = Profile::read(file);
        assert_eq!(loaded.value(&file.name, "connection.uuid"), profile.uuid.to_string());
        assert_eq!(loaded.value(&file.name, "connection.id"), profile.id);
    }
}

#[test]
fn networkmanager_reads_the_same_addresses_and_routes() {
    let text = "[connection]\ntype=ethernet\nautoconnect-priority= 7 \nautoconnect=0\n[ipv4]\nmethod=manual\n\
        address2=10.0.0.2/24\naddress1=10.0.0.1/24,10.0.0.254\naddress10=10.0.0.10/24\naddresses=10.0.0.99/24\n\
        addresses3=10.0.0.3;24;10.0.0.253;\naddress=10.0.0.98/24\naddress4=10.0.0.4\naddress5=10.0.0.5/24;10.0.0.7\n\
        dns=192.0.2.1;192.0.2.2\nroute1=10.1.0.0/16,10.0.0.254,50\nroute2=10.2.0.0/16\nroutes=10.9.0.0/16,10.0.0.9\n\
        [ipv6]\nmethod=manual\naddress1=fd00::5\nroute1=::/0,fd00::1\n";
    let file = ConnectionFile::new("a.nmconnection", Keyfile::parse(text).unwrap());
    let test = "networkmanager_reads_the_same_addresses_and_routes";
    let Some(loaded) = networkmanager::load(test, std::slice::from_ref(&file)) else { return };
    let profile = Profile::read(&file);
    let addresses = |settings: &IpSettings| join(settings.addresses.iter().map(ToString::to_string));
    let routes = |settings: &IpSettings| {
        join(settings.routes.iter().map(|route| {
            let hop = route.next_hop.map_or(String::new(), |hop| format!(" {hop}"));
            let metric = route.metric.map_or(String::new(), |metric| format!(" {metric}"));
            format!("{}{hop}{metric}", route.destination)
        }))
    };
    let read = |property| loaded.value("a.nmconnection", property).to_owned();
    assert_eq!(read("ipv4.addresses"), addresses(&profile.ipv4));
    assert_eq!(read("ipv6.addresses"), addresses(&profile.ipv6));
    assert_eq!(read("ipv4.routes"), routes(&profile.ipv4));
    assert_eq!(read("ipv6.routes"), routes(&profile.ipv6));
    assert_eq!(read("ipv4.dns").replace(',', ", "), join(profile.ipv4.dns.iter().map(ToString::to_string)));
    assert_eq!(read("ipv4.gateway"), profile.ipv4.gateway.unwrap().to_string());
    assert_eq!(read("connection.autoconnect-priority"), profile.priority.to_string());
    assert_eq!(read("connection.autoconnect"), "no");
    assert!(!profile.autoconnect);
}

fn join(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

#[test]
fn networkmanager_ignores_exactly_the_values_kiln_says_it_ignores() {
    let text = "[connection]\ntype=vlan\ninterface-name=v0\nautoconnect=no\nautoconnect-priority=1000\n\
        [ethernet]\nmac-address=52:54:00\n[vlan]\nid=4096\nparent=eth0\n\
        [ipv4]\nmethod=auto\nmay-fail=False\nnever-default=true\naddress1=299.0.0.1/24\naddress2=192.0.2.1/24\n\
        address3=192.0.2/24\ndns=192.0.2.53,192.0.2.54;192.0.2.55;\nroute1=default,192.0.2.1\nroute2=10.0.0.0/8\n\
        [ipv6]\nmethod=auto\naddress1=192.0.2.1/24\ndns=fd00::53;\n";
    let bond = "[connection]\ntype=bond\ninterface-name=b0\n[bond]\nmode=lacp\n";
    let files: Vec<_> = [("vlan", text), ("bond", bond)]
        .map(|(name, text)| ConnectionFile::new(format!("{name}.nmconnection"), Keyfile::parse(text).unwrap()))
        .into();
    let ignored: Vec<_> = files.iter().flat_map(|file| ignored_values(&file.keyfile)).collect();
    let values: Vec<_> = ignored.iter().map(|ignored| format!("{}={}", ignored.key, ignored.value)).collect();
    let expected = [
        "autoconnect=no",
        "may-fail=False",
        "autoconnect-priority=1000",
        "mac-address=52:54:00",
        "id=4096",
        "address1=299.0.0.1/24",
        "address3=192.0.2/24",
        "route1=default,192.0.2.1",
        "dns=192.0.2.53,192.0.2.54",
        "address1=192.0.2.1/24",
        "mode=lacp",
    ];
    assert_eq!(values, expected);
    let test = "networkmanager_ignores_exactly_the_values_kiln_says_it_ignores";
    let Some(loaded) = networkmanager::load(test, &files) else { return };
    assert_eq!(loaded.profiles.len(), 2);
    assert_eq!(loaded.warnings.len(), expected.len(), "{:#?}", loaded.warnings);
    assert_eq!(loaded.value("vlan.nmconnection", "ipv4.addresses"), "192.0.2.1/24");
    assert_eq!(loaded.value("vlan.nmconnection", "connection.autoconnect"), "yes");
}
