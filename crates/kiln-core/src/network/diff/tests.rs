//! What is a difference and what is not.

use super::*;

fn set(files: &[(&str, &str)]) -> Vec<ConnectionFile> {
    files.iter().map(|(name, text)| ConnectionFile::new(*name, Keyfile::parse(text).unwrap())).collect()
}

fn told(first: &[(&str, &str)], second: &[(&str, &str)]) -> Vec<String> {
    diff(&set(first), &set(second)).iter().map(ToString::to_string).collect()
}

#[test]
fn spelling_is_no_difference() {
    let bond = "[connection]\nid=bond0\nuuid=10000000-0000-4000-8000-000000000000\ntype=bond\ninterface-name=bond0\n[bond]\nmode=4\n";
    let bond_again = "# by hand\n[bond]\nmode=802.3ad\n[connection]\ninterface-name=bond0\ntype=bond\nautoconnect=true\n[ipv4]\nmethod=auto\n";
    let port = "[connection]\ntype=ethernet\ninterface-name=eth0\nmaster=10000000-0000-4000-8000-000000000000\nslave-type=bond\n[ethernet]\nmac-address=52:54:00:AA:BB:CC\n";
    let port_again = "[connection]\ntype=802-3-ethernet\ninterface-name=eth0\ncontroller=bond0\nport-type=bond\n[802-3-ethernet]\nmac-address=52-54-00-aa-bb-cc\n";
    let vlan = "[connection]\ntype=vlan\ninterface-name=bond0.5\n[vlan]\nid=5\nparent=bond0\n[ipv4]\nmethod=manual\naddress1=192.0.2.5/24,192.0.2.1\nroute1=10.0.0.0/8,192.0.2.2\nroute2=10.1.0.0/16,192.0.2.2\ndns=192.0.2.53;\n";
    let vlan_again = "[connection]\ntype=vlan\ninterface-name=bond0.5\n[vlan]\nid=5\nparent=bond0\n[ipv4]\nmethod=manual\naddresses=192.0.2.5/24\ngateway=192.0.2.1\nroute1=10.1.0.0/16,192.0.2.2\nroute7=10.0.0.0/8,192.0.2.2\ndns=192.0.2.53\n";
    let first = [("a.nmconnection", bond), ("b.nmconnection", port), ("c.nmconnection", vlan)];
    let second = [("z.nmconnection", vlan_again), ("y.nmconnection", port_again), ("x.nmconnection", bond_again)];
    assert_eq!(told(&first, &second), Vec::<String>::new());
}

#[test]
fn differences_name_both_values() {
    let first = [
        (
            "eth0.nmconnection",
            "[connection]\ntype=ethernet\ninterface-name=eth0\n[ipv4]\nmethod=auto\n[802-1x]\npassword=old\n",
        ),
        ("eth1.nmconnection", "[connection]\ntype=ethernet\ninterface-name=eth1\n"),
    ];
    let second = [
        (
            "eth0.nmconnection",
            "[connection]\ntype=ethernet\ninterface-name=eth0\nautoconnect-priority=5\n[ipv4]\nmethod=manual\naddress1=192.0.2.5/24,192.0.2.1\n[802-1x]\npassword=new\n",
        ),
        ("bond0.nmconnection", "[connection]\ntype=bond\ninterface-name=bond0\n"),
    ];
    let expected = [
        "~ eth0.nmconnection [802-1x] password: … -> …",
        "~ eth0.nmconnection [connection] autoconnect-priority: nothing -> 5",
        "~ eth0.nmconnection [ipv4] addresses: nothing -> 192.0.2.5/24",
        "~ eth0.nmconnection [ipv4] gateway: nothing -> 192.0.2.1",
        "~ eth0.nmconnection [ipv4] method: nothing -> manual",
        "- eth1.nmconnection (ethernet eth1)",
        "+ bond0.nmconnection (bond bond0)",
    ];
    assert_eq!(told(&first, &second), expected);
}

#[test]
fn a_file_that_became_readable_to_all_is_a_difference() {
    let first = set(&[("eth0.nmconnection", "[connection]\ntype=ethernet\ninterface-name=eth0\n")]);
    let mut second = first.clone();
    second[0].mode = 0o644;
    let told: Vec<_> = diff(&first, &second).iter().map(ToString::to_string).collect();
    let expected = [
        "! eth0.nmconnection is read in the first set only; in the second: mode 0644 gives rights to group or others; NetworkManager loads a keyfile only with mode 0600 or less",
        "- eth0.nmconnection (ethernet eth0)",
    ];
    assert_eq!(told, expected);
    assert_eq!(diff(&second, &second), []);
}
