//! One profile at a time.

use super::*;

fn file(text: &str) -> ConnectionFile {
    ConnectionFile::new("test.nmconnection", Keyfile::parse(text).unwrap())
}

#[test]
fn a_file_without_id_and_uuid_gets_both_from_its_name() {
    let profile = Profile::read(&file("[connection]\ntype=802-3-ethernet\n"));
    assert_eq!(profile.id, "test");
    assert_eq!(profile.uuid, ConnectionUuid::of_path("/etc/NetworkManager/system-connections/test.nmconnection"));
    assert_eq!(profile.kind.as_deref(), Some("ethernet"));
}

#[test]
fn only_true_false_1_and_0_are_booleans() {
    for (text, expected) in [("true", true), ("1", true), ("false", false), ("0", false), ("no", true), ("False", true)]
    {
        let profile = Profile::read(&file(&format!("[connection]\ntype=ethernet\nautoconnect={text}\n")));
        assert_eq!(profile.autoconnect, expected, "{text}");
    }
}

#[test]
fn references_are_uuids_or_interface_names() {
    let text = "[connection]\ntype=vlan\nmaster=bond0\nslave-type=bond\n[vlan]\nid=110\nparent=AAAAAAAA-BBBB-4CCC-8DDD-EEEEEEEEEEEE\n";
    let profile = Profile::read(&file(text));
    assert_eq!(profile.controller, Some(Reference::Name("bond0".to_owned())));
    assert_eq!(profile.parent, Some(Reference::Uuid("aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee".parse().unwrap())));
    assert_eq!(profile.vlan_id.map(VlanId::get), Some(110));
}

#[test]
fn addresses_are_read_in_networkmanagers_order_and_spellings() {
    let text = "[ipv4]\nmethod=manual\naddress2=10.0.0.2/24\naddress1=10.0.0.1/24,10.0.0.254\naddress10=10.0.0.10/24\n\
        addresses=10.0.0.99/24\naddresses3=10.0.0.3;24;10.0.0.253;\naddress=10.0.0.98/24\naddress4=10.0.0.4\n\
        address5=10.0.0.5/24;10.0.0.7\naddress6=nonsense\ndns=1.1.1.1,2.2.2.2;3.3.3.3\n\
        route1=10.1.0.0/16,10.0.0.254,50\nroute2=10.2.0.0/16\nroute5=0.0.0.0/0,10.0.0.251\nroute5_options=table=5\n";
    let ipv4 = Profile::read(&file(text)).ipv4;
    let addresses: Vec<_> = ipv4.addresses.iter().map(ToString::to_string).collect();
    let expected = ["98", "99", "1", "2", "3", "4", "5", "10"].map(|last| format!("10.0.0.{last}/24"));
    assert_eq!(addresses, expected);
    assert_eq!(ipv4.gateway, Some("10.0.0.254".parse().unwrap()));
    assert_eq!(ipv4.dns, ["3.3.3.3".parse::<IpAddr>().unwrap()]);
    let routes: Vec<_> = ipv4.routes.iter().map(|route| (route.destination.to_string(), route.metric)).collect();
    let expected = [("10.1.0.0/16", Some(50)), ("10.2.0.0/16", None), ("0.0.0.0/0", None)];
    assert_eq!(routes, expected.map(|(destination, metric)| (destination.to_owned(), metric)));
    assert_eq!(ipv4.routes[2].options.as_deref(), Some("table=5"));
}

#[test]
fn refusals_say_what_to_write() {
    let cases = [
        ("", "`[connection]` has no `type`; write for example `type=ethernet`"),
        (
            "[connection]\ntype=ethernet\nuuid=x\n",
            "`x` is not a UUID; write 32 hexadecimal digits as in 6b0b1d6e-6d2c-4f0e-8a52-0f0c6a3f2b11",
        ),
        (
            "[connection]\ntype=ethernet\ninterface-name=a/b\n",
            "`a/b` is not an interface name: `/` and `:` are not allowed",
        ),
        (
            "[connection]\ntype=ethernet\nmaster=bond0\n",
            "it is a port of bond0 without `slave-type`; write for example `slave-type=bond`",
        ),
        (
            "[connection]\ntype=ethernet\nslave-type=bond\n",
            "`slave-type` needs `master`; name the controller or remove it",
        ),
        ("[connection]\ntype=vlan\n[vlan]\nid=5\n", "the VLAN has no `parent` in `[vlan]`"),
        ("[connection]\ntype=bond\n[bond]\n", "a bond needs `interface-name` in `[connection]`"),
        (
            "[connection]\ntype=ethernet\n[ipv4]\nroute1=10.0.0.0/8,192.0.2.1\n",
            "`[ipv4]` has no `method`; write for example `method=auto`",
        ),
        (
            "[connection]\ntype=ethernet\n[ipv4]\nmethod=static\n",
            "`[ipv4] method=static` is not one of auto, manual, disabled, link-local, shared",
        ),
        (
            "[connection]\ntype=ethernet\n[ipv6]\nmethod=manual\n",
            "`[ipv6] method=manual` needs an address; write for example `address1=…/…`",
        ),
        (
            "[connection]\ntype=ethernet\n[ipv4]\nmethod=disabled\naddress1=10.0.0.1/8\n",
            "`[ipv4] method=disabled` does not allow addresses; remove them or change the method",
        ),
        (
            "[connection]\ntype=ethernet\n[ipv6]\nmethod=disabled\ndns-search=a.example;\n",
            "`[ipv6] method=disabled` does not allow name servers or search domains; remove them or change the method",
        ),
        (
            "[connection]\ntype=ethernet\n[ipv4]\nmethod=auto\ngateway=10.0.0.1\n",
            "`[ipv4]` has a gateway but no address; add the address or remove the gateway",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(
            Profile::refusal(&file(text)).map(|refusal| refusal.to_string()).as_deref(),
            Some(expected),
            "{text}"
        );
    }
    let mut open = file("[connection]\ntype=ethernet\n");
    assert_eq!(Profile::refusal(&open), None);
    open.mode = 0o644;
    let expected =
        "mode 0644 gives rights to group or others; NetworkManager loads a keyfile only with mode 0600 or less";
    assert_eq!(Profile::refusal(&open).map(|refusal| refusal.to_string()).as_deref(), Some(expected));
}
